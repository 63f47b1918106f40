"""Larder's follower beside devpi-server's replica, in one run: a primary of each with the same projects.

primary, copy -> uploads until the copy shows them, reads of a page on either, catching up after a time without the copy.
All of it goes through devpi's API, which both speak; nothing else runs meanwhile but the four servers.
"""

import http.client
import random
import subprocess
import time

import python_index
import servers
from servers import Trouble

STAGE, PAGE_TYPE = "/bench/dev", {"Accept": "application/vnd.pypi.simple.v1+json"}
SEEN_SECONDS_MAX = 120


class Pair:
    """A primary, its copy, and how to start the copy again on its data."""

    def __init__(self, name, primary, start_copy):
        self.name, self.primary, self.start_copy, self.copy = name, primary, start_copy, None
        self.index = python_index.Index(primary)

    def has(self, filename):
        """Whether the copy's page of the file's project links it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.copy.port, timeout=30)
        try:
            connection.request("GET", f"{STAGE}/+simple/{filename.split('-')[0].replace('_', '-')}/", headers=PAGE_TYPE)
            response = connection.getresponse()
            return f'"{filename}"'.encode() in response.read() and response.status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def wait_for(self, filename):
        """Seconds until the copy shows the file."""
        begun = time.monotonic()
        while not self.has(filename):
            servers.check_alive(self.copy)
            if time.monotonic() - begun > SEEN_SECONDS_MAX:
                raise Trouble(f"{self.name}: the copy did not show {filename} within {SEEN_SECONDS_MAX} s")
        return time.monotonic() - begun

    def upload(self, project, version):
        self.index.upload(f"{STAGE}/", project, version)
        return python_index.wheel(project, version)[0]


def devpi(options, scratch):
    """devpi-server as a primary and a replica, with the secret that both need."""
    home = scratch / "replica-devpi"
    home.mkdir()
    secret, ports = home / "secret", {role: servers.free_port() for role in ("primary", "replica")}
    run = lambda *command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: E731
    run(options.devpi / "devpi-gen-secret", "--secretfile", secret)
    secret.chmod(0o600)
    url = ["--primary-url", f"http://127.0.0.1:{ports['primary']}"]

    def start(role):
        data, further = home / role, url if role == "replica" else []
        if not data.exists():
            run(options.devpi / "devpi-init", "--serverdir", data, "--role", role, *further, *(["--no-root-pypi"] if role == "primary" else []))
        command = [options.devpi / "devpi-server", "--serverdir", data, "--port", str(ports[role]), "--role", role, "--secretfile", secret, *further]
        server = servers.start(f"devpi-{role}", command, ports[role], scratch / f"devpi-{role}.log")
        servers.wait_ready(server, "/+api")
        return server

    return Pair("devpi-server", start("primary"), lambda: start("replica"))


def measure_pair(options, pair, uploads):
    """What one pair does: lag in milliseconds, reads a second of either, seconds of catching up."""
    pair.index.create_user()
    pair.index.ask("PUT", STAGE, {"volatile": True})
    names = [f"lag-{at % 5}" for at in range(uploads)]
    first = [pair.upload(project, "0.1") for project in sorted(set(names))]
    begun = time.monotonic()
    pair.copy = pair.start_copy()
    for filename in first:
        pair.wait_for(filename)
    found = {"first_copy_seconds": time.monotonic() - begun}
    lags, pauses = [], random.Random(1)
    for at, project in enumerate(names):
        time.sleep(pauses.uniform(0, 0.1))
        filename = pair.upload(project, f"{at + 1}.0")
        lags.append(pair.wait_for(filename) * 1e3)
    ordered = sorted(lags)
    found["lag"] = {"uploads": uploads, "p50": ordered[len(ordered) // 2], "max": ordered[-1]}
    found["reads"] = {which: reads(server, options.read_seconds) for which, server in (("primary", pair.primary), ("copy", pair.copy))}
    pair.copy.stop()
    missed = [pair.upload(f"missed-{at}", "1.0") for at in range(uploads)]
    begun = time.monotonic()
    pair.copy = pair.start_copy()
    found["starts_seconds"] = time.monotonic() - begun
    for filename in missed:
        pair.wait_for(filename)
    found["missed"], found["catching_up_seconds"] = uploads, time.monotonic() - begun
    return found


def reads(server, seconds):
    """Reads a second of one page, over one connection that is kept."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    count, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        connection.request("GET", f"{STAGE}/+simple/lag-0/", headers=PAGE_TYPE)
        response = connection.getresponse()
        if response.status != 200 or not response.read():
            raise Trouble(f"{server.name}: a page was refused: {response.status}")
        count += 1
    return count / (time.monotonic() - begun)


def measure(options, pairs, say):
    """Each pair in turn: name -> what was found."""
    found = {}
    for make in pairs:
        pair = make()
        found[pair.name] = facts = measure_pair(options, pair, options.uploads)
        for server in (pair.primary, pair.copy):
            server.stop()
        say(f"{pair.name}: an upload is on the copy {facts['lag']['p50']:.1f} ms later (max {facts['lag']['max']:.1f}); reads/s "
            f"{facts['reads']['primary']:,.0f} and {facts['reads']['copy']:,.0f}; {facts['missed']} missed uploads after {facts['catching_up_seconds']:.1f} s")
    return found


def lines(found):
    """The section of the report."""
    uploads = next(iter(found.values()))["lag"]["uploads"]
    rows = ["", "## Beside devpi-server's replica", "",
            f"A primary and a copy of each, one pair after the other, on the same machine: {uploads} small wheels are uploaded to the primary, and the page of their project on the "
            "copy is asked over and over until it lists them. Reads: that page, one after the other over one connection, by a client in Python, which is most of the time of a read "
            f"of Larder. Catching up: the copy is started again after {uploads} uploads that it missed, each of another project. The time of the start is in both last columns.", "",
            "| servers | upload acknowledged until on the copy: p50, ms | max, ms | reads/s of the primary | of the copy | first copy, s | catching up, s (of which until it answers) |",
            "| --- | --- | --- | --- | --- | --- | --- |"]
    for name, facts in found.items():
        lag, read = facts["lag"], facts["reads"]
        rows.append(f"| {name} | {lag['p50']:.1f} | {lag['max']:.1f} | {read['primary']:,.0f} | {read['copy']:,.0f} | {facts['first_copy_seconds']:.1f} | "
                    f"{facts['catching_up_seconds']:.1f} ({facts['starts_seconds']:.1f}) |")
    return rows
