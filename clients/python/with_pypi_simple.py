"""pypi-simple: both forms of every page read by a strict reader, and the digests of metadata files.

    with_pypi_simple.py DIRECTORY
"""

import json

import environments
from server import Desk, Larder, check, client
from packages import both, sdist, wheel

READING = '''
import hashlib, json, sys, urllib.request, warnings
from packaging.version import Version
from pypi_simple import ACCEPT_HTML_ONLY, ACCEPT_JSON_ONLY, NoSuchProjectError, PyPISimple

warnings.simplefilter("error")  # an unknown version of the interface is a warning
found = {}
for form, accept in (("html", ACCEPT_HTML_ONLY), ("json", ACCEPT_JSON_ONLY)):
    with PyPISimple(sys.argv[1], accept=accept) as client:
        index = client.get_index_page()
        page = client.get_project_page("Larder_APP")
        files = {}
        for package in page.packages:
            data = urllib.request.urlopen(package.url).read()
            assert hashlib.sha256(data).hexdigest() == package.digests["sha256"], package
            if package.has_metadata:
                text = client.get_package_metadata(package)  # compares its digest itself
                assert f"Version: {package.version}" in text, text
                assert package.metadata_digests and package.metadata_digests.get("sha256"), package
            files[package.filename] = [
                package.version, package.package_type, package.requires_python, package.is_yanked, package.yanked_reason,
                package.has_metadata, package.size if form == "json" else None,
                package.upload_time is not None if form == "json" else None, len(data),
            ]
        try:
            client.get_project_page("larder-nothing")
            missing = False
        except NoSuchProjectError:
            missing = True
        found[form] = {
            "projects": index.projects, "index version": index.repository_version, "project": page.project,
            "version": page.repository_version, "versions": page.versions, "files": files, "missing": missing,
        }
print(json.dumps(found))
'''


def test(work):
    desk = Desk(work, environments.environment("tools"))
    files = work / "files"
    with Larder(work) as larder:
        larder.release("team/base", *both(files, "larder-core", "1.0"))
        old = both(files, "Larder.App", "0.9", requires_python=">=3.6,<4")
        larder.release("team/middle", *old, requires_python=">=3.6,<4")
        larder.release("team/dev", wheel(files, "larder-app", "1.10"), wheel(files, "larder-app", "1.9"), sdist(files, "larder-app", "2.0rc1"))
        larder.must(200, "POST", "/team/dev/larder-app/1.9/+yank", {"reason": "<it> & 'bites'"}, auth=larder.auth)
        found = json.loads(desk.run("python", "-c", READING, f"{larder.url}/team/dev/+simple").splitlines()[-1])
        sizes = {path.name: path.stat().st_size for path in files.iterdir()}
        for form, page in found.items():
            check(f"{form}: projects", sorted(page["projects"]), ["larder-app", "larder-core"])
            check(f"{form}: project", page["project"], "larder-app" if form == "json" else "Larder_APP")  # HTML names none
            assert page["version"].startswith("1."), page
            assert page["missing"], "a project that is not there is not told"
            check(f"{form}: files", sorted(page["files"]), sorted(name for name in sizes if "core" not in name))
            for name, (version, kind, python, yanked, reason, metadata, size, timed, read) in page["files"].items():
                check(f"{name}: bytes", read, sizes[name])
                check(f"{name}: metadata", bool(metadata), name.endswith(".whl"))
                check(f"{name}: limit", python, ">=3.6,<4" if "0.9" in name else None)
                check(f"{name}: yanked", [yanked, reason], [True, "<it> & 'bites'"] if "-1.9-" in name else [False, None])
                if form == "json":
                    check(f"{name}: size and time", [size, timed], [sizes[name], True])
                check(f"{name}: kind", kind, "wheel" if name.endswith(".whl") else "sdist")
        check("versions", sorted(found["json"]["versions"]), ["0.9", "1.10", "1.9", "2.0rc1"])


client(test)
