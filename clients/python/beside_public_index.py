"""Our index beside the public one: which of two files of one name each client takes, with the settings of the manual.

    beside_public_index.py DIRECTORY

Another Larder stands in for the public index. It has what we depend on, and a stranger's package that has our package's
name and a higher version. docs/beside-the-public-index.md says what comes out here.
"""

import shutil
import sys
import tomllib

import environments
import packages
from server import Desk, Larder, check, client, installed

OURS = {"larder-app": "1.0", "larder-lib": "2.0"}
STRANGERS = {"larder-app": "99.0"}

PROJECT = """[project]
name = "consumer"
version = "0"
requires-python = ">=3.9"
dependencies = ["larder-app"]
"""
UV_EXPLICIT = """[[tool.uv.index]]
name = "public"
url = "{public}"
default = true
[[tool.uv.index]]
name = "team-dev"
url = "{ours}"
explicit = true
[tool.uv.sources]
larder-app = {{ index = "team-dev" }}
"""
UV_FIRST = """[[tool.uv.index]]
name = "team-dev"
url = "{ours}"
[[tool.uv.index]]
name = "public"
url = "{public}"
default = true
"""
POETRY = """[project]
name = "consumer"
version = "0"
requires-python = ">=3.9"
dependencies = []
[tool.poetry]
package-mode = false
[tool.poetry.dependencies]
larder-app = {dependency}
[[tool.poetry.source]]
name = "public"
url = "{public}"
priority = "primary"
[[tool.poetry.source]]
name = "team-dev"
url = "{ours}"
priority = "{priority}"
"""


def test(work):
    desk = Desk(
        work, environments.environment("tools"),
        UV_PYTHON=sys.executable, UV_PYTHON_DOWNLOADS="never",
        POETRY_VIRTUALENVS_IN_PROJECT="true", POETRY_CACHE_DIR=work / "cache", POETRY_NO_INTERACTION=1,
    )  # fmt: skip
    pip = environments.environment("pip") / "bin" / "python"
    files = work / "files"
    with Larder(work, "public") as theirs, Larder(work, "ours") as larder:
        urls = {"public": f"{theirs.url}/team/dev/+simple/", "ours": f"{larder.url}/team/dev/+simple/"}
        theirs.release("team/dev", packages.wheel(files / "public", "larder-app", "99.0", mark="a stranger's"))
        theirs.release("team/dev", packages.wheel(files / "public", "larder-lib", "2.0"))
        larder.release("team/dev", packages.wheel(files / "ours", "larder-app", "1.0", requires=["larder-lib"]))

        def pip_install(*arguments, **expected):
            shutil.rmtree(work / "into", ignore_errors=True)
            desk.run(pip, "-m", "pip", "install", "--no-cache-dir", "--target", work / "into", *arguments, **expected)
            return installed(work / "into")

        def project(text):
            directory = work / "project"
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            (directory / "pyproject.toml").write_text(text, encoding="utf-8")
            return directory

        def uv_lock(settings):
            directory = project(PROJECT + settings.format(**urls))
            desk.run("uv", "lock", "--no-cache", cwd=directory)
            lock = tomllib.loads((directory / "uv.lock").read_text(encoding="utf-8"))
            return {package["name"]: package["version"] for package in lock["package"] if package["name"] != "consumer"}

        def poetry_lock(priority, dependency):
            directory = project(POETRY.format(priority=priority, dependency=dependency, **urls))
            shutil.rmtree(work / "cache", ignore_errors=True)
            desk.run("poetry", "lock", cwd=directory)
            lock = tomllib.loads((directory / "poetry.lock").read_text(encoding="utf-8"))
            return {package["name"]: package["version"] for package in lock["package"]}

        # pip knows no order of indexes: the highest version of all of them wins.
        both = ("--index-url", urls["public"], "--extra-index-url", urls["ours"])
        check("pip, two indexes", pip_install("larder-app", *both), STRANGERS)
        # In a second step, what is ours comes from ours alone.
        alone = ("--index-url", urls["ours"], "--no-deps", "larder-app==1.0")
        check("pip, ours alone", pip_install(*alone), {"larder-app": "1.0"})

        # uv: a package that names its index comes from there alone.
        check("uv, explicit", uv_lock(UV_EXPLICIT), OURS)
        # Without it the first index that has the name counts: good, as long as ours has it.
        check("uv, ours first", uv_lock(UV_FIRST), OURS)
        check("uv, unsafe", uv_lock(UV_FIRST + '[tool.uv]\nindex-strategy = "unsafe-best-match"\n'), STRANGERS)

        # poetry: likewise; a supplemental source is asked only for what the others do not have.
        check("poetry, explicit", poetry_lock("explicit", '{ version = "*", source = "team-dev" }'), OURS)
        check("poetry, supplemental", poetry_lock("supplemental", '"*"'), STRANGERS)


client(test)
