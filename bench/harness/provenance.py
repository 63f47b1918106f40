"""Of what, with what and where something was measured: the checkout, the binary, the tools, the machine.

command line, binary, tools -> one dictionary in the results -> the head of each report. Nothing in it names a directory
of this machine.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# All that goes into the binary: sources, what they include, versions of what they use, and how all is compiled.
INPUTS = ["crates", "testdata/aur/general_ci.txt", "Cargo.toml", "Cargo.lock", ".cargo", "rust-toolchain", "rust-toolchain.toml"]
# Of these, what only tests and examples are made of.
NOT_BUILT_IN = ("tests", "benches", "examples", "tests.rs")


def checkout(binary=None):
    """The commit; whether anything that goes into the binary differs from it; whether `binary` is older than its sources
    (None where that cannot be told).

    A file that git does not know yet differs, too.
    """
    inputs = [name for name in INPUTS if (ROOT / name).exists()]
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "--", *inputs)
    return {
        "commit": git("rev-parse", "--short", "HEAD") or "none",
        "changed": bool(git("status", "--porcelain", "--untracked-files=all", "--", *inputs)),
        "stale": is_stale(binary, listed) if binary and listed else None,
    }


def git(*words):
    """What git prints; an empty string where there is no git or no checkout."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def is_stale(binary, listed):
    """Whether one of the listed files that are built in is newer than the binary, which then is of something else."""
    files = [ROOT / name for name in listed.splitlines() if not set(Path(name).parts) & set(NOT_BUILT_IN)]
    return any(file.stat().st_mtime > Path(binary).stat().st_mtime for file in files if file.exists())


def facts(program, binary, tools):
    """The circumstances of a section: `program` is the script's name, `tools` maps `nginx` and `wrk` to their paths or None."""
    return {
        "command": shown_command(program), **checkout(binary),
        "larder": output([str(binary), "--version"]) if binary else None, "profile": profile(binary),
        "nginx": output([tools["nginx"], "-v"]).removeprefix("nginx version: ") if tools.get("nginx") else None,
        "wrk": output([tools["wrk"], "-v"]).split(" [")[0] if tools.get("wrk") else None,
        "cpu": cpu_model(), "cpus": os.cpu_count(), "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": system_name(), "kernel": platform.release().split("-")[0], "python": platform.python_version(),
    }


def profile(binary):
    """The profile that cargo built the binary with, which its directory is named after; None of one from elsewhere."""
    directory = Path(binary).resolve().parent if binary else None
    if directory is None or not (directory / ".cargo-lock").exists():
        return None
    return {"debug": "dev"}.get(directory.name, directory.name)


def described(meta):
    """The same in words. Results of earlier versions of the scripts lack some of it: that is left out."""
    binary = meta.get("larder") and meta["larder"] + (f" (profile {meta['profile']})" if meta.get("profile") else "")
    tools = [binary, meta.get("nginx") and f"nginx {meta['nginx'].removeprefix('nginx/')}", meta.get("wrk")]
    machine = [meta.get("cpu"), meta.get("cpus") and f"{meta['cpus']} cores",
               meta.get("memory_bytes") and f"{meta['memory_bytes'] / 2**30:.0f} GiB", meta.get("system"),
               meta.get("kernel") and f"Linux {meta['kernel']}"]
    commit = f"commit {meta['commit']}" + (" with uncommitted changes" if meta.get("changed") else "")
    if meta.get("stale"):
        commit += ", **of which the binary is not: it is older than the sources**"
    return "; ".join(", ".join(part for part in parts if part) for parts in ([commit, *tools], machine) if any(parts))


def output(command):
    """What a command prints on either stream, or an empty string if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() or done.stderr.strip()


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def system_name():
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def shown(path):
    """A path for people: relative inside the repository, the bare file name elsewhere."""
    path = Path(path).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def shown_command(program):
    """The command line, with paths for people."""
    words = []
    for word in sys.argv[1:]:
        prefix, _, value = word.partition("=") if word.startswith("--") else ("", "", word)
        value = shown(value) if value.startswith(("/", "../", "./")) else value
        value = f"{prefix}={value}" if prefix and value else prefix or value
        words.append(f"'{value}'" if set(value) & set(" '\"$&;()") else value)
    return " ".join([program, *words])
