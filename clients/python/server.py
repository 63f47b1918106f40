"""A Larder of its own for one client's test, and the client's programs run against it.

data directory -> `larder init`, `larder serve` -> requests and programs -> SIGTERM, and its status.

Programs run with a home of their own and none of this machine's settings for pip, uv and their like.
"""

import base64
import hashlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.parse
from pathlib import Path

from environments import ROOT

READY_SECONDS_MAX = 60
STOP_SECONDS_MAX = 40
COMMAND_SECONDS_MAX = 120
ROOT_PASSWORD = "root-secret"
PASSWORD = "team secret:%40é"  # a space, a colon, an escape and an accent: all legal, all traps


class Answer:
    """One response: `status`, `reason`, `headers` (lower-case names), `body`."""

    def __init__(self, response, body):
        self.status, self.reason, self.body = response.status, response.reason, body
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.pairs = response.getheaders()

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def result(self):
        return self.json["result"]


def multipart(fields, files):
    """A form: its body and its content type. `fields` is pairs; `files` is (field, filename, bytes)."""
    boundary = "larder-" + hashlib.sha256(repr((fields, files)).encode()).hexdigest()[:24]
    parts = []
    for name, value in fields:
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode())
    for name, filename, data in files:
        head = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"'
        parts.append(f"--{boundary}\r\n{head}\r\nContent-Type: application/octet-stream\r\n\r\n".encode() + data + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def basic(user, password):
    return base64.b64encode(f"{user}:{password}".encode()).decode()


taken, taken_lock = set(), threading.Lock()


def free_port():
    """A port below those that the system gives to connections, which could take it before a server does, and not one of an
    earlier call."""
    with taken_lock:
        for _ in range(1000):
            port = random.randrange(20000, 32000)
            if port in taken:
                continue
            with socket.socket() as listener:
                try:
                    listener.bind(("127.0.0.1", port))
                except OSError:
                    continue
            taken.add(port)
            return port
    raise AssertionError("no free port between 20000 and 32000")


class Site:
    """A server to ask, whoever it is."""

    def __init__(self, port, prefix=""):
        self.port, self.prefix = port, prefix
        self.netloc = f"127.0.0.1:{port}"
        self.url = f"http://{self.netloc}"

    def with_login(self, path, user="team", password=PASSWORD):
        """The URL of `path` with credentials in it, as one writes it into an installer's configuration."""
        quoted = ":".join(urllib.parse.quote(text, safe="") for text in (user, password))
        return f"http://{quoted}@{self.netloc}{path}"

    def ask(self, method, path, body=None, headers=None, auth=None):
        """One request on a connection of its own. A dict or list as `body` is sent as JSON; `auth` is a pair."""
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        headers.setdefault("Accept", "application/json")
        if auth:
            headers["X-Devpi-Auth"] = basic(*auth)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, self.prefix + path, skip_accept_encoding=True)
            for name, value in headers.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None or method in ("POST", "PUT", "PATCH", "PUSH"):
                connection.putheader("Content-Length", str(len(body or b"")))
            connection.endheaders(body)
            response = connection.getresponse()
            return Answer(response, response.read())
        finally:
            connection.close()

    def must(self, status, method, path, *arguments, **options):
        answer = self.ask(method, path, *arguments, **options)
        assert answer.status == status, f"{method} {path}: {answer.status}, expected {status}: {answer.text[:500]}"
        return answer

    def upload(self, stage, path, auth, **fields):
        """Uploads a release file the way that twine does, without its digests; answers the response."""
        name, version = re.match(r"(.+?)-(\d[^-]*?)(?:-py3-none-any\.whl|\.tar\.gz|\.zip)$", path.name).groups()
        form = {":action": "file_upload", "protocol_version": "1", "metadata_version": "2.1"}
        form |= {"name": name.replace("_", "-"), "version": version} | fields
        body, content_type = multipart(list(form.items()), [("content", path.name, path.read_bytes())])
        return self.ask("POST", f"/{stage}/", body, {"Content-Type": content_type}, auth)


class Larder(Site):
    """`larder serve` on a fresh data directory, with the user `team` and a chain of three stages.

    `team/dev` has the base `team/middle`, and that has `team/base`. `with Larder(work) as larder:` starts and stops it.
    """

    def __init__(self, work, name="larder", chain=True, **settings):
        super().__init__(free_port())
        self.work, self.log_path = Path(work), Path(work) / f"{name}.log"
        self.data, self.chain = Path(work) / f"{name}-data", chain
        self.binary = os.environ.get("LARDER", str(ROOT / "target" / "debug" / "larder"))
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("LARDER")}
        self.environment |= {"LARDER_CONFIG": ""} | settings
        self.root_password = "" if settings.get("LARDER_PYTHON_DEVPI_DEFAULTS") == "true" else ROOT_PASSWORD

    def __enter__(self):
        shutil.rmtree(self.data, ignore_errors=True)
        common = [self.binary, "--data-dir", str(self.data)]
        init = [common[0], "init", *common[1:], "--root-password", self.root_password]
        subprocess.run(init, env=self.environment, check=True, stdout=subprocess.DEVNULL)
        with open(self.log_path, "wb") as log:
            serve = [common[0], "serve", *common[1:], "--listen", self.netloc]
            self.process = subprocess.Popen(serve, env=self.environment, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self.is_ready():
            assert self.process.poll() is None, f"larder ended with {self.process.returncode}; see {self.log_path}"
            assert time.monotonic() < deadline, f"larder was not ready in time; see {self.log_path}"
            time.sleep(0.05)
        if self.chain:
            self.make_chain()
        return self

    def is_ready(self):
        try:
            return self.ask("GET", "/readyz").status == 200
        except OSError:
            return False

    def make_chain(self):
        root = ("root", self.root_password)
        self.must(201, "PUT", "/team", {"password": PASSWORD}, auth=root)
        self.auth = ("team", PASSWORD)
        for stage, bases in (("base", []), ("middle", ["team/base"]), ("dev", ["team/middle"])):
            self.must(200, "PUT", f"/team/{stage}", {"bases": bases}, auth=self.auth)

    def __exit__(self, kind, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "no end in time"
        if kind is None:
            assert status == 0, f"larder ended with {status} on SIGTERM; see {self.log_path}"
            log = self.log_path.read_text("utf-8", "replace")
            assert "panicked" not in log, f"a panic is in {self.log_path}"
        shutil.rmtree(self.data, ignore_errors=True)

    def release(self, stage, *paths, **fields):
        """Uploads release files of the user `team`."""
        for path in paths:
            answer = self.upload(stage, path, self.auth, **fields)
            assert answer.status == 200, f"upload of {path.name} to {stage}: {answer.status} {answer.reason}"


DROPPED = re.compile(
    r"^(PIP|UV|TWINE|POETRY|PDM|HATCH|DEVPI|VIRTUALENV|TOX|PYTHON|XDG|LARDER)_|^(PYTHONPATH|VIRTUAL_ENV|NETRC)$"
    r"|^(https?|all)_proxy$|^(REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|SSL_CERT_FILE|SSL_CERT_DIR)$",
    re.IGNORECASE,
)


class Desk:
    """A home directory of its own, and programs that run there: one client's."""

    def __init__(self, work, programs, **variables):
        self.home, self.programs = Path(work) / "home", Path(programs) / "bin"
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        self.environment = {key: value for key, value in os.environ.items() if not DROPPED.match(key)}
        self.environment |= {
            "HOME": str(self.home),
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INPUT": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            "NO_COLOR": "1",
            "COLUMNS": "200",
            "LC_ALL": "C.UTF-8",
        } | {key: str(value) for key, value in variables.items()}

    def run(self, *command, status=0, says=(), never=(), cwd=None, stdin=None, **variables):
        """Runs a program of the environment; answers all that it wrote. Its status and what it says are checked."""
        command = [str(part) for part in command]
        short = (part if len(part) < 120 else part[:60].strip() + " …" for part in command)
        shown = " ".join(" ".join(short).replace(str(self.home.parent), "…").split())
        print(f"$ {shown}", flush=True)
        local = self.programs / command[0]
        ended = subprocess.run(
            [str(local) if local.exists() else command[0], *command[1:]],
            env=self.environment | {key: str(value) for key, value in variables.items()},
            cwd=cwd or self.home,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS_MAX,
        )
        says, never = ([text] if isinstance(text, str) else text for text in (says, never))
        flat = " ".join(ended.stdout.split())  # messages are wrapped to the width of a terminal
        allowed = status if isinstance(status, tuple) else (status,)
        wrong = [] if ended.returncode in allowed else [f"status {ended.returncode}, expected {status}"]
        wrong += [f"it does not say {text!r}" for text in says if text not in flat]
        wrong += [f"it says {text!r}" for text in never if text in flat]
        assert not wrong, f"{shown}: {'; '.join(wrong)}\n{ended.stdout[-6000:]}"
        return ended.stdout


def installed(directory):
    """What is installed in a directory of packages or an environment, but for pip itself: name -> version."""
    found = {}
    for path in Path(directory).glob("**/*.dist-info/METADATA"):
        text = path.read_text(encoding="utf-8")
        name, version = (re.search(rf"(?m)^{key}: (.+)$", text)[1] for key in ("Name", "Version"))
        found[re.sub(r"[-_.]+", "-", name).lower()] = version
    found.pop("pip", None)
    return found


def check(what, found, expected):
    """Fails, naming both, unless they are equal."""
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


def client(test):
    """Runs one client's test below the directory named on the command line: 0, 1, or 77 and `skipped: REASON`."""
    from environments import Skipped

    work = Path(sys.argv[1]).resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        test(work)
        print("all as expected", flush=True)
    except Skipped as reason:
        (work / "skipped").write_text(str(reason), encoding="utf-8")
        sys.exit(77)
    except AssertionError as failure:
        at = traceback.extract_tb(failure.__traceback__)
        lines = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in at if frame.name not in ("check", "must")]
        print(f"failed at {' > '.join(lines[1:])}: {failure}", flush=True)
        sys.exit(1)
