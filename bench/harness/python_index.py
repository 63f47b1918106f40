"""What the Python benchmarks upload, and devpi's API as they speak it.

project, version -> a small wheel or source archive -> Index.upload -> pages that Index.page asks for.
"""

import base64
import gzip
import hashlib
import http.client
import io
import json
import random
import tarfile
import time
import uuid
import zipfile

from servers import Trouble

PASSWORD = "bench"


def wheel(project, version):
    """A wheel of one module; equal arguments give equal bytes."""
    name = project.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    members = {
        f"{name}.py": "x = 1\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\nRequires-Python: >=3.8\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in members.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
    return f"{name}-{version}-py3-none-any.whl", buffer.getvalue()


def large_wheel(megabytes):
    """What makes wheels as `wheel` does, with so many megabytes in them that cannot be compressed."""
    def make(project, version):
        filename, content = wheel(project, version)
        archive = io.BytesIO(content)
        with zipfile.ZipFile(archive, "a") as opened:
            bulk = random.Random(megabytes).randbytes(megabytes * 1_000_000)
            opened.writestr(zipfile.ZipInfo("bulk.bin", (2026, 1, 1, 0, 0, 0)), bulk)
        return filename, archive.getvalue()

    return make


def sdist(project, version):
    """A source archive of nothing but its PKG-INFO and an empty setup.py; equal arguments give equal bytes."""
    text = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\nRequires-Python: >=3.8\n".encode()
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo(f"{project}-{version}/PKG-INFO")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
        archive.addfile(tarfile.TarInfo(f"{project}-{version}/setup.py"))
    return f"{project}-{version}.tar.gz", buffer.getvalue()


class Index:
    """devpi's API of one server: made users, stages, uploads."""

    def __init__(self, server):
        self.server = server
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        self.headers = {}

    def create_user(self):
        self.ask("PUT", "/bench", {"password": PASSWORD})
        self.log_in()

    def log_in(self, user="bench", password=PASSWORD):
        token = self.ask("POST", "/+login", {"user": user, "password": password})["result"]["password"]
        self.headers = {"X-Devpi-Auth": base64.b64encode(f"{user}:{token}".encode()).decode()}
        return self

    def ask(self, method, path, body=None, headers=None, expected=(200, 201)):
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Accept": "application/json", **self.headers, **(headers or {})}
        self.connection.request(method, path, data, sent)
        response = self.connection.getresponse()
        answer = response.read()
        if response.status >= 400:
            # A server may refuse before it has read the body, and closes the connection then.
            self.connection.close()
        if response.status not in expected:
            raise Trouble(f"{self.server.name}: {method} {path}: {response.status} {response.reason} {answer[:300]!r}")
        is_json = (response.headers.get("Content-Type") or "").startswith("application/json")
        return json.loads(answer) if is_json and answer else answer

    def upload(self, path, project, version, make=wheel):
        """As twine does it; `path` is where uploads of the stage go."""
        filename, content = make(project, version)
        boundary = uuid.uuid4().hex
        fields = {":action": "file_upload", "name": project, "version": version, "filetype": "bdist_wheel" if make is wheel else "sdist",
                  "pyversion": "py3" if make is wheel else "source", "metadata_version": "2.1", "requires_python": ">=3.8",
                  "sha256_digest": hashlib.sha256(content).hexdigest()}
        parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
                 for key, value in fields.items()]
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="content"; filename="{filename}"\r\n'
                     f"Content-Type: application/octet-stream\r\n\r\n".encode() + content + b"\r\n")
        parts.append(f"--{boundary}--\r\n".encode())
        self.ask("POST", path, b"".join(parts), {"Content-Type": f"multipart/form-data; boundary={boundary}"})

    def answer(self, path, headers):
        """The response to one GET, whatever its status, and its body."""
        self.connection.request("GET", path, headers=headers)
        response = self.connection.getresponse()
        return response, response.read()

    def page(self, path, headers, status=200):
        response, body = self.answer(path, headers)
        if response.status != status:
            raise Trouble(f"{self.server.name}: GET {path}: {response.status} {body[:300]!r}")
        return response, body

    def timed(self, path, headers):
        """`{"first_ms": until the header has come, "whole_ms": until all is read, "bytes": n}`."""
        begun = time.monotonic()
        self.connection.request("GET", path, headers=headers)
        response = self.connection.getresponse()
        first = time.monotonic()
        size = len(response.read())
        whole = time.monotonic()
        if response.status != 200:
            raise Trouble(f"{self.server.name}: GET {path}: {response.status}")
        return {"first_ms": (first - begun) * 1e3, "whole_ms": (whole - begun) * 1e3, "bytes": size}
