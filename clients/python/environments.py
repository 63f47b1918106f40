"""The environments that the clients run in: made once below target/, again when their requirements change.

requirements/NAME.txt -> target/python-clients/NAME, an environment with those packages, or [`Skipped`] with a reason.

Nothing outside target/ is written. The registry is whichever the pip of this machine is configured for.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "target" / "python-clients"
REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
# What packages of ours are built with: uploaded to our own stages, so that builds need no other index.
BUILD_TOOLS = ("setuptools", "wheel", "packaging")


class Skipped(Exception):
    """Something that the client needs cannot be had here; the text says what."""


def run(what, *arguments):
    result = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True)
    if result.returncode:
        said = (result.stderr.strip() or result.stdout.strip()).splitlines()
        raise Skipped(f"{what}: {said[-1] if said else f'status {result.returncode}'}")


def environment(name):
    """The directory of the environment `name`, made now if it is not there; programs are in its `bin`."""
    HOME.mkdir(parents=True, exist_ok=True)
    with open(HOME / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once would fill the same directory
        return made(name)


def made(name):
    directory, wanted = HOME / name, (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
    stamp = directory / "made-from.txt"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return directory
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    shutil.rmtree(directory, ignore_errors=True)
    print(f"making {directory.relative_to(ROOT)} (once)", flush=True)
    base = [sys.executable, "-m", "venv"]
    if name == "pip":
        run("python3 -m venv does not work (Debian package python3-venv)", *base, directory)
        pip = [directory / "bin" / "python", "-m", "pip"]
    else:
        pip = [made("pip") / "bin" / "python", "-m", "pip", "--python", directory]
        run("python3 -m venv does not work", *base, "--without-pip", directory)
    run(
        f"the packages of {name} could not be installed",
        *pip, "install", "--quiet", "--upgrade", "-r", REQUIREMENTS / f"{name}.txt",
    )  # fmt: skip
    stamp.write_text(wanted, encoding="utf-8")
    return directory


def build_tools():
    """Wheels of what packages are built with, downloaded once: setuptools and its like."""
    directory = HOME / "wheels"
    tools = environment("tools")
    if not directory.is_dir():
        fresh = HOME / "wheels.part"
        shutil.rmtree(fresh, ignore_errors=True)
        pins = [line for line in (REQUIREMENTS / "tools.txt").read_text(encoding="utf-8").splitlines() if "==" in line]
        wanted = [pin for pin in pins if pin.split("==")[0] in BUILD_TOOLS] + ["packaging"]
        pip = [environment("pip") / "bin" / "python", "-m", "pip", "--python", tools]
        run("setuptools could not be downloaded", *pip, "download", "--quiet", "--no-deps", "--dest", fresh, *wanted)
        fresh.rename(directory)
    return sorted(directory.glob("*.whl"))
