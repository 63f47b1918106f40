"""uv: pip install, lock, sync, publish with and without a check URL, and cut-off dates, through a chain of bases.

    with_uv.py DIRECTORY
"""

import json
import shutil
import sys
import tomllib

import environments
import packages
from server import PASSWORD, Desk, Larder, check, client, installed

PROJECT = """[project]
name = "consumer"
version = "0"
requires-python = ">=3.9"
dependencies = ["larder-app"]
[[tool.uv.index]]
name = "ours"
url = "{url}"
default = true
"""


def test(work):
    desk = Desk(work, environments.environment("tools"), UV_PYTHON=sys.executable, UV_PYTHON_DOWNLOADS="never")
    files = work / "files"
    with Larder(work) as larder:
        dev, simple = f"{larder.url}/team/dev", f"{larder.url}/team/dev/+simple/"

        def publish(path, *options, to=dev, password=PASSWORD, **expected):
            login = ("--username", "team", "--password", password)
            return desk.run("uv", "publish", "--publish-url", to, *login, *options, path, **expected)

        # Published by uv, to each of the three stages; with and without a slash at the end.
        for path in packages.both(files, "larder-core", "1.0") + packages.both(files, "larder-core", "1.1"):
            publish(path, to=f"{larder.url}/team/base/")
        publish(packages.wheel(files, "larder-core", "1.2", requires_python=">=99"), to=f"{larder.url}/team/base")
        publish(packages.wheel(files, "Larder.Lib", "2.0", requires=["larder-core>=1.0"]), to=f"{larder.url}/team/middle")
        app = packages.wheel(files, "larder-app", "3.0", requires=["larder-lib>=1"])
        publish(app, "--check-url", simple)
        publish(packages.wheel(files, "larder-app", "3.1rc1", requires=["larder-lib>=1"]))
        publish(app, "--check-url", simple, says="already exists, skipping")
        publish(app)  # the same bytes again: nothing to do, nothing to refuse
        larder.must(200, "PATCH", "/team/dev", {"volatile": False}, auth=larder.auth)
        changed = packages.wheel(files / "changed", "larder-app", "3.0", mark="changed", requires=["larder-lib>=1"])
        publish(changed, "--check-url", simple, status=2, says=changed.name)
        publish(changed, status=2, says="already exists in non-volatile index")
        publish(packages.wheel(files, "larder-other", "1.0"), password="wrong", status=2, says="401")
        publish(packages.wheel(files, "larder-other", "1.0"), to=simple, status=2)  # a common slip: it must not look done
        check("the slip", larder.ask("GET", "/team/dev/+simple/larder-other/").status, 404)

        # uv pip: HTML-free, metadata instead of wheels.
        def install(*arguments, url=simple, **expected):
            shutil.rmtree(work / "into", ignore_errors=True)
            options = ("--target", work / "into", "--index-url", url)
            desk.run("uv", "pip", "install", *options, *arguments, **expected)
            return installed(work / "into")

        needed = {"larder-lib": "2.0", "larder-core": "1.1"}
        check("install", install("larder-app"), {"larder-app": "3.0"} | needed)
        check("again", install("larder-app"), {"larder-app": "3.0"} | needed)
        check("the index itself", install("larder-app", url=dev), {"larder-app": "3.0"} | needed)
        check("a prerelease", install("--prerelease", "allow", "larder-app"), {"larder-app": "3.1rc1"} | needed)
        check("lowest", install("--resolution", "lowest", "larder-app"), {"larder-app": "3.0", "larder-lib": "2.0", "larder-core": "1.0"})
        install("larder-core==1.2", status=1, says="Python>=99")
        install("larder-nothing", status=1, says="was not found in the package registry")
        install("--exclude-newer", "2020-01-01T00:00:00Z", "larder-app", status=1, says="larder-app")
        check("not newer", install("--exclude-newer", "2999-01-01T00:00:00Z", "larder-app"), {"larder-app": "3.0"} | needed)
        check("with a login", install("larder-app", url=larder.with_login("/team/dev/+simple/")), {"larder-app": "3.0"} | needed)

        # A release is there for the very next command, though uv keeps pages.
        publish(packages.wheel(files, "larder-app", "3.0.1", requires=["larder-lib>=1"]), "--check-url", simple)
        check("straight after an upload", install("larder-app"), {"larder-app": "3.0.1"} | needed)

        larder.must(200, "POST", "/team/dev/larder-app/3.0.1/+yank", {"reason": "it bites"}, auth=larder.auth)
        check("yanked", install("larder-app"), {"larder-app": "3.0"} | needed)
        check("yanked, by its version", install("larder-app==3.0.1", says="it bites"), {"larder-app": "3.0.1"} | needed)
        larder.must(200, "DELETE", "/team/dev/larder-app/3.0.1/+yank", auth=larder.auth)

        # A source archive, built with the setuptools of our own stage.
        larder.release("team/base", *environments.build_tools())
        publish(packages.sdist(files, "larder-source", "0.5"))
        check("from source", install("larder-source"), {"larder-source": "0.5"})

        project = work / "project"
        project.mkdir()
        (project / "pyproject.toml").write_text(PROJECT.format(url=simple), encoding="utf-8")
        desk.run("uv", "lock", cwd=project)
        lock = tomllib.loads((project / "uv.lock").read_text(encoding="utf-8"))
        # One version for each Python that there may be: the one that asks for 99, too.
        locked = sorted((package["name"], package["version"]) for package in lock["package"] if package["name"] != "consumer")
        expected = [("larder-app", "3.0.1"), ("larder-core", "1.1"), ("larder-core", "1.2"), ("larder-lib", "2.0")]
        check("locked", locked, expected)
        for package in lock["package"][1:]:
            (one,) = package["wheels"]
            assert one["hash"].startswith("sha256:") and one["size"] > 0 and one.get("upload-time"), one
        desk.run("uv", "lock", "--check", cwd=project)
        desk.run("uv", "sync", "--frozen", "--no-install-project", cwd=project)
        check("synced", installed(project / ".venv"), {"larder-app": "3.0.1"} | needed)
        # A lock file is used where no page has been seen: by addresses alone.
        shutil.rmtree(project / ".venv")
        desk.run("uv", "sync", "--frozen", "--no-cache", "--no-install-project", cwd=project)
        check("synced without what was kept", installed(project / ".venv"), {"larder-app": "3.0.1"} | needed)
        said = json.loads(desk.run("uv", "pip", "list", "--format", "json", "--quiet", "--python", project / ".venv"))
        check("listed", len(said), 3)


client(test)
