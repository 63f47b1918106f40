"""poetry: publish, add and install from a stage as the source, lock with what the index says of its files.

    with_poetry.py DIRECTORY
"""

import tomllib

import environments
import packages
from server import PASSWORD, Desk, Larder, check, client, installed

PUBLISHED = """[project]
name = "larder-app"
version = "1.0"
description = "A package for tests"
requires-python = ">=3.9"
dependencies = ["larder-lib (>=1)"]
[tool.poetry]
packages = [{ include = "larder_app" }]
[build-system]
requires = ["poetry-core"]
build-backend = "poetry.core.masonry.api"
"""
CONSUMER = """[project]
name = "consumer"
version = "0"
requires-python = ">=3.9"
dependencies = []
[tool.poetry]
package-mode = false
[[tool.poetry.source]]
name = "ours"
url = "{url}"
priority = "primary"
"""


def test(work):
    desk = Desk(
        work, environments.environment("tools"),
        POETRY_VIRTUALENVS_IN_PROJECT="true", POETRY_CACHE_DIR=work / "cache", POETRY_NO_INTERACTION=1,
    )  # fmt: skip
    files = work / "files"
    with Larder(work) as larder:
        simple = f"{larder.url}/team/dev/+simple/"
        larder.release("team/base", *packages.both(files, "larder-core", "1.0"))
        larder.release("team/base", packages.wheel(files, "larder-core", "1.2", requires_python=">=99"), requires_python=">=99")
        larder.release("team/middle", packages.wheel(files, "Larder.Lib", "2.0", requires=["larder-core>=1.0"]))

        published = work / "published"
        (published / "larder_app").mkdir(parents=True)
        (published / "larder_app" / "__init__.py").write_text("VERSION = '1.0'\n", encoding="utf-8")
        (published / "pyproject.toml").write_text(PUBLISHED, encoding="utf-8")
        desk.run("poetry", "config", "repositories.ours", f"{larder.url}/team/dev/")
        login = ("--username", "team", "--password", PASSWORD)
        publish = ("poetry", "publish", "--repository", "ours")
        desk.run(*publish, "--build", *login, cwd=published)
        desk.run(*publish, *login, cwd=published)  # the same bytes again
        larder.must(200, "PATCH", "/team/dev", {"volatile": False}, auth=larder.auth)
        (published / "larder_app" / "__init__.py").write_text("VERSION = 'changed'\n", encoding="utf-8")
        desk.run("poetry", "build", cwd=published)
        desk.run(*publish, *login, cwd=published, status=1, says=["409", "already exists in non-volatile index"])
        desk.run(*publish, "--skip-existing", *login, cwd=published, says="File exists. Skipping")
        desk.run(*publish, "--username", "team", "--password", "wrong", cwd=published, status=1, says="401")

        project = work / "project"
        project.mkdir()
        (project / "pyproject.toml").write_text(CONSUMER.format(url=simple), encoding="utf-8")
        desk.run("poetry", "add", "larder-app", cwd=project)
        expected = {"larder-app": "1.0", "larder-lib": "2.0", "larder-core": "1.0"}
        check("added", installed(project / ".venv"), expected)
        lock = tomllib.loads((project / "poetry.lock").read_text(encoding="utf-8"))
        check("locked", {package["name"]: package["version"] for package in lock["package"]}, expected)
        for package in lock["package"]:
            assert package["files"] and all(file["hash"].startswith("sha256:") for file in package["files"]), package
            check("source", package["source"]["url"].rstrip("/"), simple.rstrip("/"))
        # From the lock alone, with nothing kept.
        desk.run("poetry", "env", "remove", "--all", cwd=project)
        desk.run("poetry", "install", cwd=project, POETRY_CACHE_DIR=work / "another-cache")
        check("installed from the lock", installed(project / ".venv"), expected)
        # A login of its own, and a stage that asks for it is another test: here it must at least not disturb.
        desk.run("poetry", "config", "--local", "http-basic.ours", "team", PASSWORD, cwd=project)
        larder.release("team/dev", packages.wheel(files, "larder-app", "1.1", requires=["larder-lib"]))
        desk.run("poetry", "update", cwd=project)
        check("updated", installed(project / ".venv"), expected | {"larder-app": "1.1"})
        desk.run("poetry", "add", "larder-nothing", cwd=project, status=1, says="Could not find a matching version of package larder-nothing")
        # Of a source that is not the public index it looks through the list of projects itself, and asks for the page of each.
        desk.run("poetry", "search", "larder-app", cwd=project, says=["larder-app 1.0 ours", "larder-app 1.1 ours"], never="larder-lib")
        desk.run("poetry", "search", "larder-nothing", cwd=project, never="ours")


client(test)
