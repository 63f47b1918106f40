"""pip of today and an old pip that reads only HTML: install, download, hashes, resuming, through a chain of bases.

    with_pip.py DIRECTORY [old]
"""

import hashlib
import http.server
import shutil
import sys
import threading
import urllib.request

import environments
import packages
from server import Desk, Larder, check, client, installed


def fill(larder, files):
    """What installers are asked for: three projects that need each other, one in each stage."""
    make = packages.both
    larder.release("team/base", *make(files, "larder-core", "1.0"), *make(files, "larder-core", "1.1"))
    never = {"requires_python": ">=99"}
    larder.release("team/base", *make(files, "larder-core", "1.2", **never), **never)
    larder.release("team/base", *make(files / "base", "Larder.Lib", "2.0", mark="base", requires=["larder-core>=1.0"]))
    larder.release("team/middle", *make(files / "middle", "Larder.Lib", "2.0", mark="middle", requires=["larder-core>=1.0"]))
    larder.release("team/dev", *make(files, "larder-app", "3.0", requires=["larder_lib>=1"]))
    larder.release("team/dev", *make(files, "larder-app", "3.1rc1", requires=["larder_lib>=1"]))
    larder.release("team/dev", packages.wheel(files, "larder-app", "3.0.1", requires=["larder_lib>=1"]))
    larder.release("team/base", packages.sdist(files, "larder-source", "0.5"))
    larder.release("team/base", packages.wheel(files, "larder-bulk", "1.0", bulk=3_000_000))


class Breaking(http.server.BaseHTTPRequestHandler):
    """A proxy that breaks off the first answer with a wheel in it halfway, and notes what comes then."""

    def do_GET(self):
        wanted = {name: value for name, value in self.headers.items() if name.lower() not in ("connection",)}
        request = urllib.request.Request(self.server.behind + self.path, headers=wanted)
        try:
            response = urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            response = error
        body = response.read()
        self.send_response(response.status)
        for name, value in response.headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.end_headers()
        if self.path.endswith(".whl"):
            self.server.seen.append((self.headers.get("Range"), self.headers.get("If-Range"), response.status))
            if len(self.server.seen) == 1:
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True
                return
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test(work):
    old = "old" in sys.argv[2:]
    desk = Desk(work, environments.environment("old-pip" if old else "pip"))
    with Larder(work) as larder:
        fill(larder, work / "files")
        index = f"{larder.url}/team/dev/+simple/"

        def pip(verb, *arguments, url=index, **options):
            into = work / "into"
            if verb == "install":
                shutil.rmtree(into, ignore_errors=True)
                arguments = ("--target", into, *arguments)
            if old:
                options.setdefault("PIP_CACHE_DIR", work / "cache")
            said = desk.run("python", "-m", "pip", verb, "--index-url", url, *arguments, **options)
            return installed(into) if verb == "install" else said

        needed = {"larder-lib": "2.0", "larder-core": "1.1"}
        check("install", pip("install", "larder-app"), {"larder-app": "3.0.1"} | needed)
        mark = (work / "into" / "larder_lib.py").read_text(encoding="utf-8")
        assert 'MARK = "middle"' in mark, f"the nearer base does not hide the farther one: {mark}"
        check("again, from what is cached", pip("install", "larder-app"), {"larder-app": "3.0.1"} | needed)
        check("a prerelease", pip("install", "--pre", "larder-app"), {"larder-app": "3.1rc1"} | needed)
        check("another spelling", pip("install", "LARDER_core==1.0"), {"larder-core": "1.0"})
        check("the index itself for a URL", pip("install", "larder-core", url=f"{larder.url}/team/dev"), {"larder-core": "1.1"})
        check("a base alone", pip("install", "larder-core", url=f"{larder.url}/team/base/+simple"), {"larder-core": "1.1"})
        not_there = "No matching distribution found for"
        pip("install", "larder-app", url=f"{larder.url}/team/base/+simple", status=1, says=f"{not_there} larder-app")
        pip("install", "larder-nothing", status=1, says=not_there)
        pip("install", "larder-core==1.2", status=1, says=f"{not_there} larder-core==1.2")

        # An upload is there for the very next install, whatever was cached before.
        larder.release("team/dev", packages.wheel(work / "files", "larder-app", "3.2", requires=["larder_lib>=1"]))
        check("straight after an upload", pip("install", "larder-app"), {"larder-app": "3.2"} | needed)

        # A source archive, built with the setuptools of the environment or of our own stage.
        larder.release("team/base", *environments.build_tools())
        options = ["--no-build-isolation"] if old else []  # an old pip runs in such an environment only older setuptools
        check("from source", pip("install", *options, "larder-source"), {"larder-source": "0.5"})
        check("from source by choice", pip("install", *options, "--no-binary", "larder-core", "larder-core"), {"larder-core": "1.1"})

        # What is yanked is left alone unless it is asked for by its version; and it can come back.
        larder.must(200, "POST", "/team/dev/larder-app/3.2/+yank", {"reason": "it bites"}, auth=larder.auth)
        check("yanked", pip("install", "larder-app"), {"larder-app": "3.0.1"} | needed)
        check("yanked, by its version", pip("install", "larder-app==3.2", says="it bites"), {"larder-app": "3.2"} | needed)
        larder.must(200, "DELETE", "/team/dev/larder-app/3.2/+yank", auth=larder.auth)
        check("back again", pip("install", "larder-app"), {"larder-app": "3.2"} | needed)

        # Hashes: the right one, and a wrong one.
        wheel = work / "files" / "larder_core-1.1-py3-none-any.whl"
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        requirements = work / "requirements.txt"
        requirements.write_text(f"larder-core==1.1 --hash=sha256:{digest}\n", encoding="utf-8")
        check("hashes", pip("install", "--require-hashes", "-r", requirements), {"larder-core": "1.1"})
        requirements.write_text(f"larder-core==1.1 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
        pip("install", "--require-hashes", "-r", requirements, status=1, says="DO NOT MATCH THE HASHES")

        pip("download", "--dest", work / "down", "larder-app==3.0")
        names = sorted(path.name for path in (work / "down").iterdir())
        stem = "py3-none-any.whl"
        check("download", names, [f"larder_app-3.0-{stem}", f"larder_core-1.1-{stem}", f"larder_lib-2.0-{stem}"])
        pip("download", "--no-deps", "--no-binary", "larder-app", *options, "--dest", work / "down", "larder-app==3.0")
        same = (work / "down" / "larder_app-3.0.tar.gz").read_bytes() == (work / "files" / "larder_app-3.0.tar.gz").read_bytes()
        assert same, "the downloaded source archive is not the uploaded one"

        if not old:
            newer(larder, desk, pip, work)


def newer(larder, desk, pip, work):
    """What only a new pip does: JSON, metadata without the wheel, upload times, resuming."""
    said = pip("download", "-v", "--no-cache-dir", "--dest", work / "metadata", "larder-app==3.0")
    assert "larder_lib-2.0-py3-none-any.whl.metadata" in said, f"the metadata file was not asked for:\n{said}"
    versions = desk.run(
        "python", "-m", "pip", "index", "versions", "--index-url", f"{larder.url}/team/dev/+simple/", "larder-app"
    )
    assert "Available versions: 3.2, 3.0.1, 3.0" in versions, versions
    not_there = "No matching distribution found for larder-core"
    pip("install", "--uploaded-prior-to", "2020-01-01T00:00:00Z", "larder-core", status=1, says=not_there)
    check("uploaded before next year", pip("install", "--uploaded-prior-to", "2999-01-01T00:00:00Z", "larder-core"), {"larder-core": "1.1"})

    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Breaking)
    proxy.behind, proxy.seen = larder.url, []
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{proxy.server_address[1]}/team/dev/+simple/"
    pip("download", "--no-cache-dir", "--resume-retries", "3", "--dest", work / "resumed", "larder-bulk", url=url)
    proxy.shutdown()
    name = "larder_bulk-1.0-py3-none-any.whl"
    assert (work / "resumed" / name).read_bytes() == (work / "files" / name).read_bytes(), "resumed to other bytes"
    assert len(proxy.seen) == 2 and proxy.seen[1][0] and proxy.seen[1][1] and proxy.seen[1][2] == 206, proxy.seen


client(test)
