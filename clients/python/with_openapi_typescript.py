"""Types for TypeScript, made of the server's own OpenAPI document: no warning, and a program on them writes, uploads, calls and follows.

    with_openapi_typescript.py DIRECTORY

openapi-typescript makes the types; tsc compiles clients/openapi-typescript/use.ts on them, and node runs it.
"""

import fcntl
import shutil

import environments
from packages import wheel
from server import ROOT_PASSWORD, Desk, Larder, check, client

SOURCE = environments.ROOT / "clients" / "openapi-typescript"
HOME = environments.HOME / "openapi-typescript"


def installed_packages():
    """The folder of the packages that package-lock.json names, installed now if they are not there."""
    if not (shutil.which("node") and shutil.which("npm")):
        raise environments.Skipped("node or npm is not installed")
    wanted = (SOURCE / "package-lock.json").read_text(encoding="utf-8")
    environments.HOME.mkdir(parents=True, exist_ok=True)
    with open(environments.HOME / "npm-lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once would fill the same directory
        stamp = HOME / "made-from.txt"
        if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted):
            shutil.rmtree(HOME, ignore_errors=True)
            HOME.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCE / name, HOME)
            quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
            environments.run("the packages could not be installed", "npm", "ci", *quiet, "--prefix", HOME)
            stamp.write_text(wanted, encoding="utf-8")
    return HOME / "node_modules"


def test(work):
    packages = installed_packages()
    desk = Desk(work, work, PATH=f"{packages / '.bin'}:{environments.os.environ['PATH']}")
    for name in ("package.json", "tsconfig.json", "use.ts"):
        shutil.copy(SOURCE / name, desk.home)
    (desk.home / "node_modules").symlink_to(packages)
    with Larder(work) as larder:
        said = desk.run("openapi-typescript", f"{larder.url}/openapi.json", "--output", "larder.d.ts")
        lines = [line for line in said.splitlines() if line.strip()]
        check("lines that the generator writes", [line.split()[0] for line in lines], ["✨", "🚀"])
        check("what tsc says", desk.run("tsc", "--project", desk.home), "")
        root = ("root", ROOT_PASSWORD)
        larder.must(200, "PATCH", "/team/dev", {"acl_upload": ["team", "root"]}, auth=root)
        scopes = {"scopes": ["article:write", "python:upload", "python:read"]}
        token = larder.must(201, "POST", "/+tokens", scopes, auth=root).json["token"]
        path = wheel(work / "files", "larder-app", "1.0")
        desk.run("node", "built/use.js", larder.url, token, path, says="used")


client(test)
