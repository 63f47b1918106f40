"""Load: wrk and ab against one server, their reports as dictionaries, CPU per request beside them.

(Server, question or file of questions, seconds) -> one measured round; rounds -> medians.
Every call is bounded in time; nothing here keeps state between calls.
"""

import http.client
import json
import re
import resource
import statistics
import subprocess
import time
from pathlib import Path

from servers import Trouble, Watch, check_alive

LUA = Path(__file__).resolve().parent.parent / "wrk.lua"
REFUSED_SECONDS_MAX = 5.0


def wrk(tool, server, questions, seconds, connections=10, encoding=None, pause_ms=None, headers=None, cpus=1):
    """One run of `wrk -t1`: a dictionary of its report.

    `questions` is one path, or a Path to a file with one path a line. `cpu_us` is the server's user and system
    time per request in microseconds (None when its process is not known). `other_cpu` is the share of the machine's
    CPU time that went to neither this server, nor wrk, nor this script, `steal` the share that the machine was kept
    from using: above a few hundredths the round was not quiet. `answer_bytes` is the mean of an answer with its header.
    """
    listed = isinstance(questions, Path)
    command = [tool, "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", str(LUA)]
    if encoding:
        command += ["-H", f"Accept-Encoding: {encoding}"]
    for key, value in (headers or {}).items():
        command += ["-H", f"{key}: {value}"]
    command += [server.address + ("/" if listed else questions), "--", str(questions) if listed else "-"]
    if pause_ms:
        command += [str(bound) for bound in pause_ms]
    cpu, own, watch = server.cpu_seconds(), _own_cpu_seconds(), Watch()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        raise Trouble(f"wrk did not end within {seconds + 60} s: {' '.join(command)}") from None
    elapsed, steal = watch.seconds(), watch.steal()
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        raise Trouble(f"wrk failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
    report = json.loads(lines[-1].removeprefix("RESULT "))
    report["errors"] = sum(report[key] for key in
                           ("connect_errors", "read_errors", "write_errors", "status_errors", "timeouts"))
    report["per_second"] = report["requests"] / (report["microseconds"] / 1e6)
    report["cpu_us"] = None
    used = _own_cpu_seconds() - own
    if cpu is not None:
        server_used = server.cpu_seconds() - cpu
        used += server_used
        report["cpu_us"] = server_used * 1e6 / max(report["requests"], 1)
    report["other_cpu"] = max(0.0, (watch.busy_seconds() - used) / (elapsed * cpus))
    report["steal"] = steal
    report["answer_bytes"] = report["bytes"] / max(report["requests"], 1)
    return report


def h2load(tool, server, path, seconds, streams, http1=False, cpus=1):
    """One run of `h2load -t1 -c10` with `streams` requests open on each connection: a dictionary as `wrk` gives it."""
    command = [tool, "-t1", "-c10", f"-m{streams}", "-D", str(seconds), *(["--h1"] if http1 else []), server.address + path]
    cpu, own, watch = server.cpu_seconds(), _own_cpu_seconds(), Watch()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        raise Trouble(f"h2load did not end within {seconds + 60} s: {' '.join(command)}") from None
    elapsed, steal = watch.seconds(), watch.steal()
    counts = re.search(r"requests: .*?(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", done.stdout)
    protocol = re.search(r"Application protocol: (\S+)", done.stdout)
    if done.returncode or not counts or not protocol or protocol[1] != ("http/1.1" if http1 else "h2"):
        raise Trouble(f"h2load failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
    finished, succeeded, *failed = map(int, counts.groups())
    if finished == 0:
        raise Trouble(f"h2load got no answer: {' '.join(command)}\n{done.stdout}")
    used, server_used = _own_cpu_seconds() - own, None if cpu is None else server.cpu_seconds() - cpu
    return {"per_second": finished / seconds, "errors": finished - succeeded + sum(failed), "steal": steal,
            "cpu_us": None if cpu is None else server_used * 1e6 / finished,
            "other_cpu": max(0.0, (watch.busy_seconds() - used - (server_used or 0)) / (elapsed * cpus))}


def ab(tool, server, path, keep_alive):
    """`ab -n 1000 -c 10` as goaurrpc's published figures were taken: `{"per_second": …, "failed": n}`."""
    command = [tool, "-q", "-l", "-n", "1000", "-c", "10", *(["-k"] if keep_alive else []), server.address + path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        raise Trouble(f"ab did not end within 300 s: {' '.join(command)}") from None
    rows = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    if done.returncode or "Requests per second" not in rows:
        raise Trouble(f"ab failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
    failed = int(rows["Failed requests"].split()[0]) + int(rows.get("Non-2xx responses", "0").split()[0])
    return {"per_second": float(rows["Requests per second"].split()[0]), "failed": failed}


def summary(rounds):
    """Medians of the rounds of one server: what the tables show, with the lowest and the highest beside it."""
    facts = {key: _median(row[key] for row in rounds) for key in ("per_second", "cpu_us", "p50", "p99", "answer_bytes") if key in rounds[0]}
    rates = [row["per_second"] for row in rounds]
    facts["lowest"], facts["highest"], facts["rounds"] = min(rates), max(rates), len(rounds)
    facts["errors"] = sum(row.get("errors", row.get("failed", 0)) for row in rounds)
    for key in ("other_cpu", "steal"):
        if key in rounds[0]:
            facts[key] = max(row[key] for row in rounds)
    return facts


class Asker:
    """One keep-alive connection for questions outside the measured rounds."""

    def __init__(self, server):
        self.server = server
        self.connection = server.connection(timeout=60)
        # Content-Encoding of the last answer; None if it had none.
        self.encoding = None

    def ask(self, path, encoding=None):
        """(status, body) of one GET, the body as it came; connects again if the server has closed the connection meanwhile.

        A refused connection is tried again for a while; raises Trouble if the server has exited.
        """
        headers = {"Accept-Encoding": encoding} if encoding else {}
        attempt, deadline = 0, time.monotonic() + REFUSED_SECONDS_MAX
        while True:
            try:
                self.connection.request("GET", path, headers=headers)
                response = self.connection.getresponse()
                self.encoding = response.headers.get("Content-Encoding")
                return response.status, response.read()
            except ConnectionRefusedError:
                self.connection.close()
                check_alive(self.server)
                if time.monotonic() > deadline:
                    raise Trouble(f"{self.server.name} refused connections for {REFUSED_SECONDS_MAX:.0f} s") from None
                time.sleep(0.05)
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self.connection.close()
                attempt += 1
                if attempt == 2:
                    raise

    def close(self):
        self.connection.close()


def _median(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _own_cpu_seconds():
    return sum(usage.ru_utime + usage.ru_stime
               for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
