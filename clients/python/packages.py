"""Tiny real packages: pure Python wheels and source archives, the same bytes for the same arguments.

name, version, metadata -> a wheel and a source archive in a directory. Nothing is built by anybody else's tools.
"""

import base64
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path

MOMENT = (2026, 1, 2, 3, 4, 6)


def module_name(name):
    return re.sub(r"[-_.]+", "_", name).lower()


def metadata(name, version, requires=(), requires_python=None, summary="A package for tests", extra=""):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Summary: {summary}"]
    lines += [f"Requires-Python: {requires_python}"] if requires_python else []
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    return "\n".join(lines) + "\n" + extra + "\nOne line of description.\n"


def source(name, version, mark):
    return f'VERSION = "{version}"\nMARK = "{mark}"\n'


def wheel(directory, name, version, mark="", bulk=0, **about):
    """Writes a wheel; `mark` makes it another file with the same name, `bulk` adds that many bytes."""
    module = module_name(name)
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}.py": source(name, version, mark).encode(),
        f"{info}/METADATA": metadata(name, version, **about).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: larder-tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if bulk:
        # Bytes that do not compress, the same each time.
        blocks = (hashlib.sha256(f"{name}{version}{number}".encode()).digest() for number in range(bulk // 32))
        files[f"{module}_bulk.bin"] = b"".join(blocks)
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, data in files.items()
    )
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    path = Path(directory) / f"{module}-{version}-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in files.items():
            archive.writestr(zipfile.ZipInfo(member, MOMENT), data, zipfile.ZIP_DEFLATED)
    return path


SETUP = """from setuptools import setup
setup(name={name!r}, version={version!r}, py_modules=[{module!r}], install_requires={requires!r},
      python_requires={requires_python!r}, description="A package for tests")
"""
PROJECT = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'


def tree(name, version, mark="", requires=(), requires_python=None, **_):
    """The files of a source tree: path -> bytes."""
    module = module_name(name)
    setup = SETUP.format(
        name=name, version=version, module=module, requires=list(requires), requires_python=requires_python
    )
    return {
        "setup.py": setup.encode(),
        "pyproject.toml": PROJECT.encode(),
        "MANIFEST.in": b"include tox.ini\n",
        f"{module}.py": source(name, version, mark).encode(),
    }


def sdist(directory, name, version, mark="", files=None, **about):
    """Writes a source archive that setuptools can build."""
    module = module_name(name)
    top = f"{module}-{version}"
    members = {"PKG-INFO": metadata(name, version, **about).encode(), **tree(name, version, mark, **about)}
    members.update(files or {})
    path = Path(directory) / f"{top}.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, data in members.items():
            entry = tarfile.TarInfo(f"{top}/{member}")
            entry.size, entry.mtime, entry.mode = len(data), 1_767_323_046, 0o644
            archive.addfile(entry, io.BytesIO(data))
    path.write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    return path


def both(directory, name, version, **about):
    """A wheel and a source archive of one release."""
    return [wheel(directory, name, version, **about), sdist(directory, name, version, **about)]


def documentation(directory, name, version, text):
    """Writes a documentation archive with one page."""
    path = Path(directory) / f"{name}-{version}.doc.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("index.html", MOMENT), f"<html><body>{text}</body></html>")
    return path
