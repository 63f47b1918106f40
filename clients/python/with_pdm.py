"""pdm: publish, then add, lock and sync from a stage as the only source.

    with_pdm.py DIRECTORY
"""

import sys
import tomllib

import environments
import packages
from server import PASSWORD, Desk, Larder, check, client, installed

CONSUMER = """[project]
name = "consumer"
version = "0"
requires-python = ">=3.9"
dependencies = []
[tool.pdm]
distribution = false
[[tool.pdm.source]]
name = "pypi"
url = "{url}"
verify_ssl = false
"""


def test(work):
    desk = Desk(work, environments.environment("tools"), PDM_CHECK_UPDATE="0", PDM_CACHE_DIR=work / "cache")
    with Larder(work) as larder:
        simple = f"{larder.url}/team/dev/+simple/"
        published = work / "published"
        published.mkdir()
        dist = published / "dist"

        def publish(to, password=PASSWORD, *options, **expected):
            options = ("--username", "team", "--password", password, *options)
            desk.run("pdm", "publish", "--no-build", "--repository", f"{larder.url}/team/{to}/", *options, cwd=published, **expected)
            for path in () if expected else dist.iterdir():
                path.unlink()

        (published / "pyproject.toml").write_text("[project]\nname = 'unused'\nversion = '0'\nrequires-python = '>=3.9'\n", encoding="utf-8")
        packages.both(dist, "larder-core", "1.0")
        publish("base")
        packages.wheel(dist, "Larder.Lib", "2.0", requires=["larder-core>=1.0"])
        publish("middle")
        packages.both(dist, "larder-app", "1.0", requires=["larder-lib>=1"])
        publish("dev", "wrong", status=1, says="401")
        publish("dev")
        packages.both(dist, "larder-app", "1.0", requires=["larder-lib>=1"])
        publish("dev")  # the same bytes again
        larder.must(200, "PATCH", "/team/dev", {"volatile": False}, auth=larder.auth)
        packages.wheel(dist, "larder-app", "1.0", mark="changed")
        publish("dev", status=1, says="409 Conflict")
        publish("dev", PASSWORD, "--skip-existing", status=0, says="because it appears to already exist")

        project = work / "project"
        project.mkdir()
        (project / "pyproject.toml").write_text(CONSUMER.format(url=simple), encoding="utf-8")
        desk.run("pdm", "use", "--first", sys.executable, cwd=project)
        desk.run("pdm", "add", "larder-app", cwd=project)
        expected = {"larder-app": "1.0", "larder-lib": "2.0", "larder-core": "1.0"}
        found = installed(project / ".venv")
        check("added", {name: found.get(name) for name in expected}, expected)
        lock = tomllib.loads((project / "pdm.lock").read_text(encoding="utf-8"))
        check("locked", {package["name"]: package["version"] for package in lock["package"]}, expected)
        assert all(file["hash"].startswith("sha256:") for package in lock["package"] for file in package["files"]), lock
        desk.run("pdm", "sync", "--clean", cwd=project, PDM_CACHE_DIR=work / "another-cache")
        larder.release("team/dev", packages.wheel(work / "files", "larder-app", "1.1", requires=["larder-lib"]))
        desk.run("pdm", "update", "larder-app", cwd=project)
        check("updated", installed(project / ".venv").get("larder-app"), "1.1")
        desk.run("pdm", "add", "larder-nothing", cwd=project, status=1, says="larder-nothing")


client(test)
