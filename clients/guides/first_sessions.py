"""Five people's first sessions: each goes from README to what they came for, by the commands of the pages alone.

references to blocks of pages -> run on a fresh machine -> whether the goal is reached, asked by other clients.

A session names blocks and has no commands of its own. Of what a page takes as given it gets only what the person brings
(`has ..`): a step that the pages do not name is missing, and the session fails.
"""

import base64
import subprocess
import sys
from pathlib import Path

import environments
import given
import old_devpi
import packages
import pages
from server import check, installed
from visit import Visit

REQUESTS = environments.ROOT / "clients" / "requests.py"
TEAM, PAGES, HELPERS = "docs/python-team.md", "docs/pages-with-an-api.md", "docs/aur-helpers.md"
FROM_DEVPI, FROM_GOAURRPC = "docs/coming-from-devpi.md", "docs/coming-from-goaurrpc.md"


def follow(visit, page, heading, *numbers):
    """Runs the blocks below a heading of a page, or those of them with these numbers, and compares what they print."""
    known = pages.links("README.md") | pages.links("docs/README.md") | {"README.md"}
    assert page in known, f"{page} is linked from neither README.md nor docs/README.md"
    below = [block for block in pages.blocks(page) if block.heading == heading]
    groups = []  # a block of commands, and what is said about it after it
    for block in below:
        if block.is_commands:
            groups.append([block])
        elif groups and block.marks:
            groups[-1].append(block)
    assert groups, f"{page} has no commands below the heading {heading!r}"
    for number in numbers or range(len(groups)):
        assert number < len(groups), f"{page} has {len(groups)} blocks of commands below {heading!r}, not {number + 1}"
        for block in groups[number]:
            assert "not run" not in block.marks, f"{block.place}: a session cannot go on here"
            visit.block(block, brings_only=True)


def aur_mirror(visit):
    """An operator of an AUR mirror: yay and aurutils ask, and get what the dump has."""
    follow(visit, "README.md", "Install and run", 1)
    follow(visit, HELPERS, "Run it")
    asked(visit, "yay", "aurutils")


def asked(visit, *clients):
    """The requests of these helpers, byte for byte, and whether the answers are those of the dump."""
    command = [sys.executable, "-B", REQUESTS, "--port", visit.port, "--dump", given.DUMP, *clients]
    ended = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-2000:]


def python_team(visit):
    """The lead of a Python team: a release goes to the team's index and on to the next, and only members install it."""
    follow(visit, "README.md", "Install and run", 1)
    follow(visit, TEAM, "1. Start the server")
    follow(visit, TEAM, "2. A user and an index", 0, 1)
    follow(visit, TEAM, "3. Upload")
    follow(visit, TEAM, "4. Install")
    token = visit.token
    follow(visit, TEAM, "5. Release", 0)
    # The token is for team/dev and what it inherits; the team itself reads both.
    for index, login in (("team/dev", ("__token__", token)), ("team/prod", ("team", visit.passwords["team"]))):
        found = pip_installs(visit, index, "yourproject", login)
        check(f"installed from {index}", found, {"yourproject": "1.0"})
        check(f"{index} for strangers", visit.ask(f"/{index}/+simple/yourproject/")[0], 401)


def pip_installs(visit, index, package, login=None):
    """What pip installs into a fresh environment, by the address of an index and a login."""
    venv = visit.directory / f"venv-{index.replace('/', '-')}"
    environments.run("python3 -m venv does not work", sys.executable, "-m", "venv", "--without-pip", venv)
    user = f"{login[0]}:{login[1]}@" if login else ""
    url = f"http://{user}127.0.0.1:{visit.port}/{index}/+simple/"
    pip = [environments.environment("pip") / "bin" / "python", "-m", "pip", "--python", venv, "--isolated", "--no-cache-dir"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(visit.home), "PIP_NO_INPUT": "1"}
    command = [str(part) for part in (*pip, "install", "--disable-pip-version-check", "--index-url", url, package)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
    assert ended.returncode == 0, f"pip install {package} from {index}: {ended.stdout[-1500:]}{ended.stderr[-1500:]}"
    module = packages.module_name(package)
    subprocess.run([venv / "bin" / "python", "-B", "-c", f"import {module}; assert {module}.VERSION"], check=True, timeout=60)
    return installed(venv)


def publisher(visit):
    """Somebody with pages to publish: strangers read each version as text, and a program has written one, too."""
    follow(visit, "README.md", "Install and run", 1)
    for heading in ("Start", "Write a page", "Read it", "Change it, together with others", "Let a program write"):
        follow(visit, PAGES, heading)
    status, headers, body = visit.ask("/article/guide/start")
    check("the page", (status, headers["content-type"], body), (200, "text/markdown; charset=utf-8", b"# Getting started\n"))
    versions = visit.json("/article/guide/start/history")["versions"]
    authors = [(version["version"], version["author"]) for version in versions]
    check("who wrote which version", authors, [(3, "notes"), (2, "root"), (1, "root")])


def from_devpi(visit):
    """Somebody with a devpi-server: its users log in as before, and its releases are installed from the same paths."""
    follow(visit, "README.md", "Install and run", 1)
    follow(visit, FROM_DEVPI, "In five steps")
    found = pip_installs(visit, "acme/dev", "larder-app")
    check("installed from acme/dev", found, {"larder-app": "1.1", "larder-lib": "2.0"})
    check("installed from acme/prod", pip_installs(visit, "acme/prod", "larder-app"), {"larder-app": "1.0", "larder-lib": "2.0"})
    page = visit.ask("/acme/dev/+simple/larder-app/")[2].decode()
    for path in old_devpi.file_paths(visit):
        assert path in page, f"{path} of the devpi-server is not linked: {page}"
    login = base64.b64encode(f"acme:{old_devpi.PASSWORD}".encode()).decode()
    status, _, body = visit.ask("/+tokens", headers={"Authorization": f"Basic {login}"})
    check("a login with the password of before", (status, b'"user":"acme"' in body), (200, True))


def from_goaurrpc(visit):
    """Somebody with a goaurrpc: its configuration is taken over, and its clients and its metrics are answered as before."""
    follow(visit, "README.md", "Install and run", 1)
    follow(visit, FROM_GOAURRPC, "In four steps")
    asked(visit, "yay", "older")
    name = "yay"
    fifth, sixth = (visit.json(path)["results"] for path in (f"/rpc?v=5&type=info&arg[]={name}", f"/api/v6/info/{name}"))
    check("what version 6 answers", sixth, fifth)
    assert b"\nrpc_requests{" in visit.ask("/metrics")[2], "goaurrpc's metric `rpc_requests` is not there"


ALL = {}


def session(name, way):
    def run(directory, binary):
        with Visit(Path(directory), binary) as visit:
            way(visit)
            return f"{way.__doc__} {visit.commands_run} commands"

    ALL[f"first-session-{name}"] = run


for name, way in (("aur", aur_mirror), ("python", python_team), ("pages", publisher), ("devpi", from_devpi), ("goaurrpc", from_goaurrpc)):
    session(name, way)
