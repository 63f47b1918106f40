"""One reader with a machine of their own: what a page's commands are run on, and what they have printed.

block -> its commands, with this machine's places instead of the page's -> bash on a terminal -> exit codes and output.

The commands are those of the page, letter by letter, but for the table [`Visit.places`]: a directory instead of `/`, free
ports instead of the usual ones, and this server instead of hosts that the pages invent. What is printed is turned back.
Passwords and tokens that a command shows are remembered and used where the page has `larder_…`, and where a program asks.
"""

import http.client
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import environments  # noqa: E402
import given  # noqa: E402
from printed import difference  # noqa: E402
from server import DROPPED, free_port  # noqa: E402
from terminal import Terminal, TimedOut  # noqa: E402

ROOT = environments.ROOT
COMMAND_SECONDS_MAX = 150
READY_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60
SEEN_SECONDS_MAX = 30
PRINTED_CHARACTERS_MAX = 3000

SERVES = re.compile(r"^(?:\w+=\S+ +)*larder serve\b")
# These write the store itself; a server that runs on it takes that over within `store.poll_seconds`.
WRITES = re.compile(r"^larder (?:(?:user|token|index|release) (?!list\b|show\b)|import-devpi|import-wheels|import-articles)(?!.* --dry-run)")
SYSTEMCTL = re.compile(r"^systemctl (stop|start|restart) larder\b")
COMMENT_AT_THE_END = re.compile(r"[ \t]+#[^'\"\n]*$")
# Where the pages keep things; none of it is touched outside the visit's own directory.
DIRECTORIES = re.compile(r"(?<![\w./:~-])(?=/(?:srv|var|etc|backup|usr|tmp)(?:/|\b))")
HOSTS = re.compile(r"https://((?:[^/@\s\"']*@)?)(?:index|larder|aur)\.example(?![\w.])")


class Failure(Exception):
    """A page that does not hold; the text has the place, the command and what it printed."""


class Visit:
    """`with Visit(directory) as visit:` makes the machine, and leaves nothing running."""

    def __init__(self, directory, binary):
        self.directory, self.binary = Path(directory), Path(binary).resolve()
        self.root, self.home = self.directory / "root", self.directory / "home"
        self.port, self.admin_port, self.upstream_port = free_port(), free_port(), free_port()
        self.directory_port = free_port()
        self.passwords, self.token, self.logs = {}, None, []
        self.server, self.serve_command, self.closing = None, None, []
        self.printed, self.commands_run = "", 0

    # ---- the machine

    def __enter__(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        programs, commands, work = self.directory / "bin", self.directory / "commands", self.home / "work"
        for directory in (programs, commands, work, self.home / ".config", self.root / "etc" / "larder", self.root / "tmp"):
            directory.mkdir(parents=True)
        for directory in ("srv", "var/lib", "var/log", "backup", "usr/bin", "usr/share/man/man1", "usr/share/bash-completion/completions", "etc/systemd/system"):
            (self.root / directory).mkdir(parents=True, exist_ok=True)
        (self.home / ".config" / "larder").symlink_to(self.root / "etc" / "larder")
        # An answer of 400 and more is a failure of the command; no bar of progress among the output.
        (self.home / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\nmax-time = 100\n", encoding="utf-8")
        tools, pip, devpi = (environments.environment(name) for name in ("tools", "pip", "devpi-server"))
        (programs / "larder").symlink_to(self.binary)
        for program in ("devpi-init", "devpi-export", "devpi-server"):
            (programs / program).symlink_to(devpi / "bin" / program)
        for program in ("devpi", "poetry", "twine", "uv"):
            (programs / program).symlink_to(tools / "bin" / program)
        # The reader's environment of Python, into which `pip` and `uv pip` install.
        venv = self.home / "venv"
        environments.run("python3 -m venv does not work", sys.executable, "-m", "venv", "--without-pip", venv)
        script(programs / "pip", f'exec "{pip}/bin/python" -m pip --python "{venv}" "$@"')
        # Never the servers of anybody else.
        script(programs / "pidof", f'[ "$1" = larder ] && exec cat "{self.directory}/pid"')
        script(programs / "editor", 'echo "A line more." >>"$1"')
        environment = {key: value for key, value in os.environ.items() if not DROPPED.match(key) and not key.startswith("AWS_")}
        environment |= {
            "HOME": str(self.home),
            "PATH": f"{programs}:{venv}/bin:{os.environ['PATH']}",
            "VIRTUAL_ENV": str(venv),
            "TMPDIR": str(self.root / "tmp"),
            "EDITOR": "editor",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "LC_ALL": "C.UTF-8",
            "LARDER_LISTEN": f"127.0.0.1:{self.port}",
            "LARDER_ADMIN_LISTEN": f"127.0.0.1:{self.admin_port}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_PROGRESS_BAR": "off",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            "UV_PYTHON": str(venv / "bin" / "python"),
            "UV_PYTHON_DOWNLOADS": "never",
            "POETRY_NO_INTERACTION": "1",
            "POETRY_VIRTUALENVS_IN_PROJECT": "true",
        }
        self.terminal = Terminal(work, environment, commands, self.password_of)
        return self

    @property
    def work(self):
        """The directory that the commands begin in."""
        return self.home / "work"

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.stop()
            elif self.server:
                os.kill(self.server, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            self.terminal.close()
            for close in reversed(self.closing):
                close()
        if kind is None:
            shutil.rmtree(self.directory, ignore_errors=True)

    # ---- the page's places, and this machine's

    def here(self, text):
        """A text of a page with the places of this machine."""
        for there, here in self.places():
            text = text.replace(there, here)
        text = HOSTS.sub(rf"http://\g<1>127.0.0.1:{self.port}", text)
        text = DIRECTORIES.sub(lambda _: str(self.root), text)
        if self.token:
            text = text.replace("larder_…", self.token)
            text = re.sub(r"(?<=token revoke )[0-9a-f]{12}\b|(?<=\+tokens/)[0-9a-f]{12}\b", self.token.split("_")[1], text)
        return re.sub(r"(?<=-u )(\w+):PASSWORD\b", lambda user: f"{user[1]}:{self.password_of(user[1])}", text)

    def there(self, text):
        """What was printed, with the places of the pages."""
        for there, here in reversed(self.places()):
            if there.startswith(("127.", "https:", "ldap:")):
                text = text.replace(here, there)
        return text.replace(str(self.root), "").replace(str(self.home), "~")

    def places(self):
        return [
            ("127.0.0.1:8080", f"127.0.0.1:{self.port}"),
            ("localhost:8080", f"127.0.0.1:{self.port}"),
            ("0.0.0.0:8080", f"127.0.0.1:{self.port}"),
            ("127.0.0.1:8081", f"127.0.0.1:{self.admin_port}"),
            ("https://aur.archlinux.org", f"http://127.0.0.1:{self.upstream_port}"),
            ("ldap://directory.example", f"ldap://localhost:{self.directory_port}"),
            # The same program, built without what makes it fast.
            ("cargo run --release --", "larder"),
        ]

    # ---- secrets

    def password_of(self, user):
        """What the reader types as the password of `user`; without a name, of the user that the command names."""
        if user is None and (named := re.search(r"(?:-u|--username|login) +(\w+)", self.now)):
            user = named[1]
        if user == "root" and user not in self.passwords:
            for path in self.directory.glob("**/root-password"):
                self.passwords[user] = path.read_text(encoding="utf-8").strip()
        # Somebody new, who chooses; a wrong one for somebody who is there fails the command.
        chosen = self.passwords.setdefault(user or "somebody", f"chosen-by-{user}")
        (self.home / f"password-of-{user}").write_text(chosen, encoding="utf-8")
        return chosen

    def remember(self, printed):
        for user, password in re.findall(r"the user ([\w.-]+) with the password (\S+)", printed):
            self.passwords[user] = password
        for user, password in re.findall(r"\b(?:user|password of) ([\w.-]+)\n[^\n]*password is shown only now:\n(\S+)", printed):
            self.passwords[user] = password
        for user, password in re.findall(r"-u '(root):([^']+)'", printed):
            self.passwords[user] = password
        for token in re.findall(r"larder_[0-9a-f]{12}_[0-9a-f]{64}", printed):
            self.token = token

    # ---- commands

    def run(self, text, status=0, place="", seconds_max=COMMAND_SECONDS_MAX):
        """Runs one command of a page; answers what it printed, with the page's places."""
        self.now = text
        text = self.here(text)
        if SERVES.match(text):
            self.start(text, place)
            return ""
        if order := SYSTEMCTL.match(text):
            if order[1] != "start":
                self.stop()
            if order[1] != "stop":
                self.start(self.serve_command, place)
            return ""
        if text.startswith("has "):
            given.bring(self, text.removeprefix("has "))
            return ""
        self.commands_run += 1
        before = self.serial() if WRITES.match(text) else None
        try:
            ended, printed = self.terminal.run(text, seconds_max)
        except TimedOut as said:
            raise Failure(f"{place}: `{self.now}` did not end within {seconds_max} s; it printed\n{self.shown(str(said))}") from None
        self.remember(printed)
        if ended != status:
            raise Failure(f"{place}: `{self.now}` ended with exit code {ended}, expected {status}; it printed\n{self.shown(printed)}{self.log_end()}")
        if before is not None:
            self.wait_for_serial(before)
        # What curl says besides comes from `fail-with-body`, which is ours.
        return self.there(re.sub(r"curl: \(22\) The requested URL returned error: \d+\n?", "", printed))

    def shown(self, printed):
        printed = self.there(printed)
        cut = printed if len(printed) <= PRINTED_CHARACTERS_MAX else printed[:1000] + "\n…\n" + printed[1000 - PRINTED_CHARACTERS_MAX :]
        return "\n".join(f"    | {line}" for line in cut.rstrip().split("\n"))

    def block(self, block, brings_only=False):
        """Runs, compares or writes one block of a page; answers whether it was run.

        With `brings_only`, what the page takes as given is left out, but for the things that a reader brings along.
        """
        marks = block.marks
        if "file" in marks:
            path = Path(self.here(marks["file"]))
            (path if path.is_absolute() else self.work / path).write_text(self.here(block.text) + "\n", encoding="utf-8")
        if "prints" in marks and (said := difference(block.language, block.text, self.printed)):
            raise Failure(f"{block.place}: {said}")
        if not block.is_commands or "not run" in marks:
            return False
        for command in block.marked("given"):
            if brings_only and not command.text.startswith("has "):
                continue
            self.run(command.text, place=f"{block.place}, given")
        expected = [0] * (len(block.commands) - 1) + [int(marks.get("stops with", 0))]
        for command, status in zip(block.commands, expected):
            if command is not block.commands[0]:
                for other in block.marked("between"):
                    self.run(other.text, place=f"{block.place}, between")
            place = f"{block.page}:{command.line}"
            self.printed = self.run(command.text, status, place)
            if command.prints and (said := difference("text", "\n".join(command.prints), self.printed)):
                raise Failure(f"{place}: `{command.text}`: {said}")
        return True

    # ---- the server, in a terminal of its own

    def start(self, text, place=""):
        """`larder serve`, until it is ready; one that runs already is stopped first."""
        self.stop()
        self.commands_run += 1
        self.serve_command = text
        log = self.directory / f"server-{len(self.logs) + 1}.log"
        self.logs.append(log)
        line = COMMENT_AT_THE_END.sub("", text)
        _, printed = self.terminal.run(f'{line} >"{log}" 2>&1 </dev/null &\nprintf "%d\\n" $! | tee "{self.directory}/pid"', 20)
        self.server = int(printed.split()[-1])
        deadline = time.monotonic() + READY_SECONDS_MAX
        while (status := self.ready_status()) != 200 or not self.has_said(text):
            if self.has_ended():
                self.server = None
                raise Failure(f"{place}: `{self.there(text)}` ended at once{self.log_end()}")
            if time.monotonic() > deadline:
                raise Failure(f"{place}: `{self.there(text)}`: /readyz is {status} after {READY_SECONDS_MAX} s{self.log_end()}")
            time.sleep(0.05)
        self.remember(log.read_text("utf-8", "replace"))

    def has_said(self, text):
        """Whether a demonstration has named what to try, which is when its articles and packages are there, and whether its history
        has taken in all packages: until then it answers 503, as the pages say."""
        if "--demo" not in text:
            return True
        return "Try:" in self.logs[-1].read_text("utf-8", "replace") and self.status("/aur/history?name=x") != 503

    def has_ended(self):
        """Whether the server has ended, also if bash has not looked at it yet."""
        try:
            stat = Path(f"/proc/{self.server}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return True
        return stat.rpartition(")")[2].split()[0] == "Z"

    def ready_status(self):
        return self.status("/readyz")

    def status(self, path):
        """The status of an answer; None where nobody answers."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return None
        finally:
            connection.close()

    def serial(self):
        """The serial of the store that the server serves; None where no server runs."""
        if self.server is None:
            return None
        found = re.search(rb"(?m)^larder_store_serial (\d+)$", self.ask("/metrics")[2])
        return int(found[1]) if found else None

    def wait_for_serial(self, before):
        """Waits until the server shows more than `before`; a command that wrote nothing is not waited for for ever."""
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        while self.serial() == before and time.monotonic() < deadline:
            time.sleep(0.05)

    def stop(self):
        if self.server is None:
            return
        server, self.server = self.server, None
        try:
            status, _ = self.terminal.run(f"kill -TERM {server}; wait {server}", STOP_SECONDS_MAX)
        except TimedOut:
            os.kill(server, signal.SIGKILL)
            raise Failure(f"the server did not end within {STOP_SECONDS_MAX} s of SIGTERM{self.log_end()}") from None
        log = self.logs[-1].read_text("utf-8", "replace")
        if status or "panicked" in log:
            raise Failure(f"the server ended with exit code {status}{self.log_end()}")

    def log_end(self):
        if not self.logs:
            return ""
        lines = self.logs[-1].read_text("utf-8", "replace").rstrip().split("\n")[-12:]
        return "\n  the server's log ends\n" + "\n".join(f"    | {self.there(line)}" for line in lines)

    # ---- looking at the outcome

    def ask(self, path, method="GET", body=None, headers=None):
        """One request to the server of this visit: status, headers (lower-case names), body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def json(self, path, **options):
        status, _, body = self.ask(path, **options)
        assert status == 200, f"{path}: {status}: {body[:300]!r}"
        return json.loads(body)


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
