"""A devpi-server of its own for one client's test."""

import os
import signal
import subprocess
import time

import environments
from server import STOP_SECONDS_MAX, Site, free_port


class Devpi(Site):
    """A devpi-server with its defaults, but for the mirror that it would have; passwords are hashed cheaply."""

    def __init__(self, work):
        super().__init__(free_port())
        self.work, self.programs = work, environments.environment("devpi-server") / "bin"
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("DEVPI")}
        self.environment |= {"HOME": str(work), "PYTHONDONTWRITEBYTECODE": "1"}

    def __enter__(self):
        data = ("--serverdir", str(self.work / "devpi-data"))
        subprocess.run([self.programs / "devpi-init", "--no-root-pypi", *data], env=self.environment, check=True, capture_output=True)
        cheap = ("--argon2-memory-cost", "8", "--argon2-parallelism", "1", "--argon2-time-cost", "1")
        command = [self.programs / "devpi-server", *data, *cheap, "--port", str(self.port), "--host", "127.0.0.1"]
        with open(self.work / "devpi.log", "wb") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 90
        while True:
            assert self.process.poll() is None and time.monotonic() < deadline, f"devpi-server did not start; see {self.work}/devpi.log"
            try:
                self.ask("GET", "/+api")
                return self
            except OSError:
                time.sleep(0.2)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
