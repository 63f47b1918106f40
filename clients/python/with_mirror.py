"""pip and uv through a mirror of another Larder: cold, warm, and after the upstream has stopped half-way.

    with_mirror.py DIRECTORY
"""

import shutil
import sys
import tomllib

import environments
import packages
from server import Desk, Larder, check, client, installed

COUNT = 60
PROJECT = """[project]
name = "consumer"
version = "0"
requires-python = ">=3.9"
dependencies = ["ours"]
[[tool.uv.index]]
name = "ours"
url = "{url}"
default = true
"""


def name(number):
    return f"mirrored-{number:02}"


def fill(upstream, files):
    """Projects that need those before them, two releases each; `all` needs every one of them, `half` the first half."""
    for number in range(COUNT):
        requires = [f"{name(before)}>=1.1" for before in {number // 2, number - 1} if 0 <= before < number]
        for version in ("1.0", "1.1"):
            upstream.release("team/base", packages.wheel(files, name(number), version, bulk=20_000, requires=requires))
    for top, count in (("mirrored-all", COUNT), ("mirrored-half", COUNT // 2)):
        requires = [name(number) for number in range(count)]
        upstream.release("team/base", packages.wheel(files, top, "1.0", requires=requires))


def releases(top, count):
    return {name(number): "1.1" for number in range(count)} | {top: "1.0"}


def test(work):
    pip_desk = Desk(work, environments.environment("pip"))
    uv_desk = Desk(work, environments.environment("tools"), UV_PYTHON=sys.executable, UV_PYTHON_DOWNLOADS="never")
    into, project = work / "into", work / "project"

    def pip(url, *wanted, **expected):
        """What pip has installed, without anything that it kept."""
        shutil.rmtree(into, ignore_errors=True)
        options = ("--no-cache-dir", "--retries", "0", "--target", into, "--index-url", url)
        pip_desk.run("python", "-m", "pip", "install", *options, *wanted, **expected)
        return installed(into)

    def uv(url, *wanted, **expected):
        shutil.rmtree(into, ignore_errors=True)
        options = ("--no-cache", "--target", into, "--index-url", url)
        uv_desk.run("uv", "pip", "install", *options, *wanted, **expected)
        return installed(into)

    def sync():
        shutil.rmtree(project / ".venv", ignore_errors=True)
        uv_desk.run("uv", "sync", "--frozen", "--no-cache", "--no-install-project", cwd=project)
        return installed(project / ".venv")

    # Nothing stays fresh: each page is confirmed while the upstream is there, and served as stale when it is not.
    settings = {"LARDER_EGRESS_ALLOW": "127.0.0.0/8", "LARDER_PYTHON_MIRROR_CACHE_EXPIRY_SECONDS": "0"}
    with Larder(work, "mirror", **settings) as larder:
        dev, half = f"{larder.url}/team/dev/+simple/", f"{larder.url}/team/half/+simple/"
        everything, a_half = releases("mirrored-all", COUNT), releases("mirrored-half", COUNT // 2)
        with Larder(work, "upstream") as upstream:
            fill(upstream, work / "files")
            # Two mirrors of one upstream: each has a cache of its own.
            for stage in ("pypi", "half"):
                config = {"type": "mirror", "mirror_url": f"{upstream.url}/team/base/+simple/"}
                larder.must(200, "PUT", f"/team/{stage}", config, auth=larder.auth)
            larder.must(200, "PATCH", "/team/base", {"bases": ["team/pypi"]}, auth=larder.auth)
            ours = packages.wheel(work / "files", "ours", "1.0", requires=["mirrored-all"])
            larder.release("team/dev", ours)
            everything |= {"ours": "1.0"}

            check("uv, cold", uv(dev, "ours"), everything)
            check("uv, warm", uv(dev, "ours"), everything)
            check("pip, warm", pip(dev, "ours"), everything)
            check("pip, cold", pip(half, "mirrored-half"), a_half)
            project.mkdir()
            (project / "pyproject.toml").write_text(PROJECT.format(url=dev), encoding="utf-8")
            uv_desk.run("uv", "lock", "--no-cache", cwd=project)
            lock = tomllib.loads((project / "uv.lock").read_text(encoding="utf-8"))
            locked = {package["name"]: package for package in lock["package"] if package["name"] != "consumer"}
            check("locked", {name: package["version"] for name, package in locked.items()}, everything)
            for package in locked.values():
                (wheel,) = package["wheels"]
                assert wheel["url"].startswith(larder.url) and wheel["hash"].startswith("sha256:"), wheel
            check("synced", sync(), everything)

        # What the mirrors have, they go on serving; what they do not have is an error, never a smaller choice.
        check("uv, without the upstream", uv(dev, "ours"), everything)
        check("pip, without the upstream", pip(dev, "ours"), everything)
        check("synced without the upstream", sync(), everything)
        check("half of it", pip(half, "mirrored-half"), a_half)
        check("half of it, by uv", uv(half, "mirrored-half"), a_half)
        uv(half, "mirrored-all", status=(1, 2), says="502")
        pip(half, "mirrored-all", status=1, says="No matching distribution")  # all that pip says of a 502
        check("nothing is half installed", installed(into), {})
        ready = larder.ask("GET", "/readyz?verbose")
        check("ready", ready.status, 200)
        assert "[!] mirror team/half: its upstream fails" in ready.text, ready.text


client(test)
