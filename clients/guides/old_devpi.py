"""The devpi-server that somebody comes from: a real one, used for a while by devpi's own client, and stopped.

server directory -> users `root` and `acme`, the stages acme/prod and acme/dev (whose base is prod), and three releases.
"""

import hashlib
import os
import signal
import subprocess
import time
import urllib.request

import environments
import packages
from server import free_port

PASSWORD = "acme's password"
READY_SECONDS_MAX = 120
# Hashes that cost nothing: this is nobody's server.
CHEAP = ("--argon2-memory-cost", "8", "--argon2-parallelism", "1", "--argon2-time-cost", "1")


def make(visit, directory):
    server_programs, tools = (environments.environment(name) / "bin" for name in ("devpi-server", "tools"))
    home, port = visit.directory / "old-devpi", free_port()
    home.mkdir()
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(home), "PYTHONWARNINGS": "ignore", "LC_ALL": "C.UTF-8"}
    log = visit.directory / "old-devpi.log"

    def run(*command):
        ended = subprocess.run([str(part) for part in command], env=environment, cwd=home, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, f"{command[0]}: {ended.stdout[-1500:]}{ended.stderr[-1500:]}"

    run(server_programs / "devpi-init", "--serverdir", directory, "--no-root-pypi", "--root-passwd", "root's password")
    command = [server_programs / "devpi-server", "--serverdir", directory, "--host", "127.0.0.1", "--port", port, *CHEAP]
    with open(log, "wb") as output:
        server = subprocess.Popen([str(part) for part in command], env=environment, stdout=output, stderr=output)
    try:
        wait_until_ready(server, port, log)
        run("devpi", "use", f"http://127.0.0.1:{port}")
        run("devpi", "login", "root", "--password", "root's password")
        run("devpi", "user", "-c", "acme", f"password={PASSWORD}", "email=acme@upstream.example")
        run("devpi", "login", "acme", "--password", PASSWORD)
        run("devpi", "index", "-c", "acme/prod", "bases=")
        run("devpi", "index", "-c", "acme/dev", "bases=acme/prod")
        files = home / "files"
        for stage, name, version in (("prod", "larder-lib", "2.0"), ("prod", "larder-app", "1.0"), ("dev", "larder-app", "1.1")):
            requires = ["larder-lib"] if name == "larder-app" else []
            run("devpi", "use", f"acme/{stage}")
            run("devpi", "upload", packages.wheel(files, name, version, requires=requires))
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    visit.passwords["acme"] = PASSWORD


def file_paths(visit):
    """The paths of the files of larder-app 1.0 and 1.1, as the devpi-server links to them: by their SHA-256."""
    for path in sorted((visit.directory / "old-devpi" / "files").glob("larder_app-*.whl")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        yield f"+f/{digest[:3]}/{digest[3:16]}/{path.name}"


def wait_until_ready(server, port, log):
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/+api", timeout=30):
                return
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, f"devpi-server did not start; see {log}"
            time.sleep(0.2)
