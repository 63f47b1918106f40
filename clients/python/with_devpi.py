"""devpi-client: a team's day from the first login to the deleted user, and what pip then installs.

    with_devpi.py DIRECTORY
"""

import json
import os
import shutil

import environments
import packages
from server import PASSWORD, Desk, Larder, check, client, installed

TOX = """[tox]
envlist = short
[testenv]
commands = python -c "import larder_app, sys; sys.exit(larder_app.VERSION != '1.0')"
"""

# Stands in for the program of the same name, which devpi-client calls for the documentation and which is large.
SPHINX_BUILD = """#!/bin/sh
mkdir -p "$3" && cp "$2/conf.py" "$3/index.html"
"""


def source_tree(directory, name, version, **about):
    """A checkout to upload from, with documentation beside it."""
    files = packages.tree(name, version, **about) | {"tox.ini": TOX.encode(), "docs/conf.py": f"<h1>{name} {version}</h1>".encode()}
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    return directory


def test(work):
    bin, tools, temporary = work / "bin", environments.environment("tools"), work / "tmp"
    bin.mkdir()
    temporary.mkdir()
    (bin / "sphinx-build").write_text(SPHINX_BUILD, encoding="utf-8")
    (bin / "sphinx-build").chmod(0o755)
    path = f"{bin}:{tools / 'bin'}:{os.environ['PATH']}"
    desk = Desk(work, tools, PIP_CACHE_DIR=work / "pip-cache", TMPDIR=temporary, PATH=path)
    files = work / "files"
    with Larder(work, LARDER_PYTHON_DEVPI_DEFAULTS="true") as larder:

        def devpi(*arguments, **expected):
            return desk.run("devpi", *arguments, **expected)

        def names(*arguments):
            """The lines that `devpi list` writes about what there is."""
            lines = devpi("list", *arguments).split("\n")
            return [line.strip().rpartition("/")[2] for line in lines if line.strip() and not line.startswith("***")]

        # Who, and where to.
        devpi("use", larder.url, says="not logged in")
        devpi("--version", says="6.")
        devpi("user", "-c", "anna", "password=first secret", "email=anna@upstream.example", says="user created: anna")
        devpi("user", "-c", "anna", "password=other", status=1, says="409 Conflict: user already exists")
        devpi("login", "anna", "--password", "wrong", status=1, says=["401", "could not be authenticated"])
        devpi("login", "anna", "--password", "first secret", says="logged in 'anna'")
        devpi("user", "-m", "anna", "email=a@upstream.example", "title=Anna", says="user modified: anna")
        devpi("user", "-m", "anna", "password=second: secret", says="user modified: anna")
        devpi("index", "-c", "nothing", status=1, says="403")  # logins end with the password that they came from
        devpi("logoff", says="login information deleted")
        devpi("index", "-c", "nothing", status=1)
        devpi("login", "anna", "--password", "first secret", status=1, says="401")
        devpi("login", "anna", "--password", "second: secret")
        devpi("user", "-l", says=["anna", "root", "team"])
        shown = json.loads(devpi("getjson", "/anna").split("\n", 0)[0])["result"]
        check("user", [shown.get("email"), shown.get("title")], ["a@upstream.example", "Anna"])

        # Indexes, and the three ways to change them.
        devpi("index", "-c", "base", "volatile=False", says="volatile=False")
        devpi("index", "-c", "middle", "bases=anna/base")
        devpi("index", "-c", "dev", "bases=anna/middle", "title=For trying", says=["bases=anna/middle", "title=For trying"])
        devpi("index", "-c", "dev", status=1, says="409")
        devpi("index", "-c", "b@d!", status=1, says="characters that aren't allowed")
        devpi("index", "anna/dev", "acl_upload+=team", "mirror_whitelist+=some-project", says=["acl_upload=anna,team", "mirror_whitelist=some-project"])
        devpi("index", "anna/dev", "acl_upload-=team", says="acl_upload=anna", never="team,")
        devpi("index", "anna/dev", "acl_upload-=nobody", status=1, says="The 'acl_upload' setting doesn't have value 'nobody'")
        devpi("index", "anna/dev", "bases=anna/missing", status=1, says="400")
        devpi("index", "anna/dev", "title-=", never="title=")
        devpi("index", "-l", says=["anna/base", "anna/middle", "anna/dev"])
        devpi("use", "-l", says="anna/dev bases=anna/middle")
        devpi("use", "anna/dev", says="current devpi index: " + larder.url + "/anna/dev")
        shown = json.loads(devpi("getjson", "/anna/dev"))
        check("type", shown["type"], "indexconfig")
        shown["result"]["title"] = "As it was read"
        (work / "dev.json").write_text(json.dumps(shown), encoding="utf-8")
        devpi("patchjson", "/anna/dev", work / "dev.json")
        check("patched", larder.ask("GET", "/anna/dev").result["title"], "As it was read")
        devpi("use", "anna/missing", status=1)

        # Uploads: built from a checkout with its documentation, and from files.
        checkout = source_tree(work / "checkout", "larder-app", "1.0", requires=["Larder.Lib"])
        devpi("upload", "--no-vcs", "--no-isolation", "--sdist", "--wheel", "--with-docs", cwd=checkout, says=[
            "file_upload of larder_app-1.0-py3-none-any.whl", "file_upload of larder_app-1.0.tar.gz", "doc_upload of larder-app-1.0.doc.zip",
        ])  # fmt: skip
        packages.both(files / "lib", "Larder.Lib", "0.1", requires=["larder-core"])
        packages.wheel(files / "lib", "Larder.Lib", "0.2a1", requires=["larder-core"])
        devpi("upload", "--index", "anna/middle", "--from-dir", files / "lib")
        core = packages.both(files, "larder-core", "1.0")
        devpi("upload", "--index", "anna/base", *core, *environments.build_tools())
        devpi("upload", "--index", "anna/base", core[0])  # the same bytes again
        changed = packages.wheel(files / "changed", "larder-core", "1.0", mark="changed")
        devpi("upload", "--index", "anna/base", changed, status=1, says=["409", "already exists in non-volatile index"])
        devpi("upload", "--index", "team/dev", core[0], status=1, says=["403", "no permission to submit"])

        check("list", names(), ["larder-app"])
        check("list of a base", names("--index", "anna/middle"), ["larder-lib"])
        check("list -v", names("-v"), ["larder-app==1.0"])
        check("files", sorted(names("larder-app")), ["larder_app-1.0-py3-none-any.whl", "larder_app-1.0.tar.gz"])
        check("of a base", names("larder-core"), ["larder_core-1.0-py3-none-any.whl", "larder_core-1.0.tar.gz"])
        devpi("list", "--ignore-bases", "larder-core", never="/+f/")
        devpi("list", "larder-nothing", status=1, says="404")

        # Tests, and their results.
        devpi("test", "-e", "short", "larder-app", says=["posting tox result data to", "success"])
        devpi("list", "--toxresults", "larder-app", says="tests passed")

        # On to the next index, with documentation and results.
        devpi("push", "larder-app==1.0", "anna/middle", says=["200 register larder-app 1.0 -> anna/middle", "200 store_releasefile anna/middle/+f/", "store_toxresult", "store_doczip"])
        check("pushed", names("--index", "anna/middle", "larder-app"), ["larder_app-1.0-py3-none-any.whl", "larder_app-1.0.tar.gz"])
        devpi("push", "larder-app==7.0", "anna/middle", status=1, says="there are no files for larder-app 7.0 on stage anna/dev")
        devpi("push", "larder-app==1.0", "team/dev", status=1, says="401")
        devpi("push", "--no-docs", "larder-app==1.0", "anna/base", says="200 register", never="store_doczip")
        devpi("refresh", "larder-app")

        environment = work / "environment"
        desk.run("python", "-m", "venv", environment)
        devpi("install", "--venv", environment, "larder-app")
        found = installed(environment)
        wanted = {"larder-app": "1.0", "larder-lib": "0.2a1", "larder-core": "1.0"}  # devpi asks for prereleases
        check("installed", {name: found.get(name) for name in wanted}, wanted)

        # And away with it.
        link = larder.must(200, "GET", "/anna/dev/larder-app?ignore_bases=").result["1.0"]["+links"][0]["href"]
        devpi("remove", "-y", link)
        check("one file fewer", len([link for link in larder.ask("GET", "/anna/dev/larder-app?ignore_bases=").result["1.0"]["+links"] if link["rel"] == "releasefile"]), 1)
        check("that file", larder.ask("GET", "/" + link.split("/", 3)[3]).status, 410)
        devpi("remove", "-y", "larder-app==1.0", says="deleting release 1.0 of larder-app")
        check("nothing here", names(), [])
        check("those of the two bases", len(names("larder-app")), 4)
        devpi("remove", "-y", "--index", "anna/base", "larder-core", status=1, says="403")
        devpi("remove", "-y", "--force", "--index", "anna/base", "larder-core==1.0")
        devpi("index", "-y", "--delete", "anna/base", status=1, says="403")
        devpi("index", "anna/base", "volatile=True")
        for index in ("dev", "middle", "base"):
            devpi("index", "-y", "--delete", f"anna/{index}", says=f"index deleted: {larder.url}/anna/{index}")
        devpi("user", "-y", "--delete", "anna", says="user deleted: anna")
        check("no such user", larder.ask("GET", "/anna").status, 404)
        shutil.rmtree(environment, ignore_errors=True)


client(test)
