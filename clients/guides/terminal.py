"""A terminal: one bash for all commands of a page, and somebody in front of it who types passwords.

command -> what it printed, and its exit code. Variables, functions and the directory stay from one command to the next.

Programs find a real terminal (a pty), so they ask for passwords as they ask a person, and show a new one to a person.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

END = re.compile(rb"\x1e(\d+)\x1e")
# The last line while a program waits for a password; the name in it, if any, is whose.
PROMPT = re.compile(
    r"^[^\n]*(?:password|token)(?: (?:for|of)(?: user)? '?([\w.-]+)'?)?(?: at \S+)? ?: ?$|^(The same again): ?$", re.IGNORECASE | re.MULTILINE
)
DRIVER = r"""while IFS= read -r -u FD next_command; do . "$next_command" FD<&-; printf '\036%d\036' $?; done"""


class TimedOut(Exception):
    """A command did not end in time; the text has what it printed so far."""


class Terminal:
    """`password_of(name or None)` answers what is typed when a program asks."""

    def __init__(self, directory, environment, commands_directory, password_of):
        self.commands_directory, self.password_of, self.count = commands_directory, password_of, 0
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 250, 0, 0))
        attributes = termios.tcgetattr(slave)
        attributes[1] &= ~termios.ONLCR
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        commands, self.to_bash = os.pipe()

        def in_front():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", DRIVER.replace("FD", str(commands))],
            cwd=directory, env=environment, stdin=slave, stdout=slave, stderr=slave, preexec_fn=in_front, pass_fds=(commands,),
        )  # fmt: skip
        os.close(slave)
        os.close(commands)

    def run(self, text, seconds_max):
        """Runs a command; answers its exit code and what it wrote."""
        self.count += 1
        path = self.commands_directory / f"{self.count:03}.sh"
        path.write_text(text + "\n", encoding="utf-8")
        os.write(self.to_bash, f"{path}\n".encode())
        written, asked, typed, deadline = b"", 0, "", time.monotonic() + seconds_max
        while not (end := END.search(written)):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimedOut(written.decode("utf-8", "replace"))
            if not select.select([self.master], [], [], min(left, 1))[0]:
                continue
            try:
                came = os.read(self.master, 65536)
            except OSError:  # the last one to hold the terminal has gone
                came = b""
            if not came:
                raise TimedOut(written.decode("utf-8", "replace") + "\n(the shell has ended)")
            written += came
            # A prompt is not ended by a line feed; what is after the last one that was answered is new.
            fresh = written[asked:].decode("utf-8", "replace").rpartition("\n")[2]
            if prompt := PROMPT.search(fresh):
                asked = len(written)
                typed = typed if prompt[2] else self.password_of(prompt[1])
                os.write(self.master, (typed + "\n").encode())
        text = written[: end.start()].decode("utf-8", "replace").replace("\r\n", "\n")
        # Who asked for a password goes on in a new line.
        return int(end[1]), re.sub(PROMPT.pattern.replace("$", r"\n"), "", text, flags=PROMPT.flags) if asked else text

    def close(self):
        """Ends bash and whatever it left running in front of this terminal."""
        os.close(self.to_bash)
        try:
            os.killpg(self.bash.pid, signal.SIGHUP)
        except ProcessLookupError:
            pass
        try:
            self.bash.wait(10)
        except subprocess.TimeoutExpired:
            self.bash.kill()
            self.bash.wait()
        os.close(self.master)
