"""Servers under test: started in a session of their own, measured from /proc, always stopped.

command line or address -> Server -> CPU seconds, resident bytes -> stop.
Nothing here sends a request other than the one that asks whether a server is ready, and nothing listens on or
talks to any address but 127.0.0.1.
"""

import base64
import contextlib
import ctypes
import glob
import http.client
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
READY_SECONDS_MAX = 300.0
SMALL_BYTES_MAX = 16_384
ROOT_PASSWORD = "benchmark"
STOP_SECONDS_MAX = 10.0

_started = []


class Trouble(Exception):
    """What stops the benchmark, said in one sentence for the person who runs it."""


class Server:
    """One server: its name in the tables, its port on 127.0.0.1, and the root of its process tree.

    `pid` is None where it is not known (a peer of another user): then CPU and memory stay unknown, and are None.
    """

    def __init__(self, name, port, pid, child=None, log=None):
        self.name, self.port, self.pid, self.child, self.log = name, port, pid, child, log
        # Whether the port speaks TLS; its certificate is made for the run, and nobody verifies it.
        self.tls = False

    @property
    def address(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def connection(self, timeout):
        """A connection to it, over HTTP/1.1."""
        if self.tls:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=ssl._create_unverified_context())
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def cpu_seconds(self):
        """User and system time of the process tree so far, exited and reaped children included."""
        if self.pid is None:
            return None
        ticks = 0
        for pid in _tree(self.pid):
            fields = _stat(pid)
            if fields:
                ticks += sum(int(field) for field in fields[11:15])
        return ticks / TICKS_PER_SECOND

    def own_cpu_seconds(self):
        """User and system time of the one process so far, to the nanosecond: what `cpu_seconds` reads counts in hundredths of a second."""
        # clock_getcpuclockid(3), which Python lacks: the clock of what the scheduler gave to all threads of a process, ended ones too.
        return time.clock_gettime_ns(~self.pid << 3 | 2) / 1e9

    def thread_seconds(self, name):
        """User and system time so far of the process's own threads called `name`."""
        ticks = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            try:
                before, after = (task / "stat").read_text().rsplit(")", 1)
            except OSError:
                continue
            if before.split("(", 1)[1] == name:
                ticks += sum(int(field) for field in after.split()[11:13])
        return ticks / TICKS_PER_SECOND

    def memory(self):
        """Resident bytes now and at their highest, summed over the tree: `{"rss": …, "peak": …}`."""
        if self.pid is None:
            return {"rss": None, "peak": None}
        rss = peak = 0
        for pid in _tree(self.pid):
            try:
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            except OSError:
                continue
            values = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))}
            rss += int(values.get("VmRSS", 0)) * 1024
            peak += int(values.get("VmHWM", 0)) * 1024
        return {"rss": rss, "peak": peak}

    def stop(self):
        """Ends the session that was started for this server; a peer that somebody else started is left alone."""
        if self.child is None:
            return
        child, self.child = self.child, None
        _signal_group(child.pid, signal.SIGTERM)
        try:
            child.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            pass
        _signal_group(child.pid, signal.SIGKILL)
        child.wait()
        if self in _started:
            _started.remove(self)


def stop_all():
    """Stops every server that this module started, newest first."""
    for server in reversed(list(_started)):
        server.stop()


@contextlib.contextmanager
def scratch(prefix):
    """A directory for one run. It is removed only after the servers, which write into it, have ended."""
    with tempfile.TemporaryDirectory(prefix=prefix) as directory:
        try:
            yield Path(directory)
        finally:
            stop_all()


def start(name, command, port, log, environment=None, directory=None):
    """Starts `command`, which must serve on `port`; its output goes to the file `log`. Does not wait.

    `directory` is the one it works in, for what leaves files there; without it, that of the caller.
    """
    with open(log, "ab") as output:
        child = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=environment, cwd=directory, start_new_session=True, preexec_fn=_die_with_parent)
    server = Server(name, port, child.pid, child, log)
    _started.append(server)
    return server


def check_alive(server):
    """Raises Trouble with the end of its log if a server that was started here has exited."""
    if server.child is not None and server.child.poll() is not None:
        raise Trouble(f"{server.name} exited with {server.child.returncode}:\n{_tail(server.log)}")


def wait_ready(server, path, seconds_max=READY_SECONDS_MAX):
    """Waits until `path` answers 200; asks every 2 ms, since the time until then is itself a figure.

    Raises Trouble with the end of the server's log when it exits or is not ready in time.
    """
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        check_alive(server)
        connection = server.connection(timeout=5)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.002)
    raise Trouble(f"{server.name} was not ready within {seconds_max:.0f} s:\n{_tail(server.log)}")


def make_certificate(openssl, scratch):
    """A certificate for 127.0.0.1 that signs itself, and its key: their files."""
    files = Path(scratch) / "certificate.pem", Path(scratch) / "key.pem"
    subprocess.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def start_larder(binary, dump, scratch, settings=(), certificate=None):
    """Starts larder on `dump`, with TLS if it gets a certificate and a key, and waits until it is ready.

    Returns the server and `{"wall": s, "cpu": s, "rss": bytes, "peak": bytes, "steal": share}` as they were at that moment.
    `settings` are further `LARDER_…=value` strings; those of the caller's own environment are not inherited.
    """
    port = free_port()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LARDER_")}
    environment["LARDER_AUR_RATE_LIMIT"] = "0"
    environment.update(setting.split("=", 1) for setting in settings)
    if certificate:
        environment["LARDER_TLS_CERTIFICATE"], environment["LARDER_TLS_KEY"] = map(str, certificate)
    data_dir = Path(scratch) / f"larder-data-{port}"
    data_dir.mkdir()
    subprocess.run([binary, "init", "--data-dir", data_dir, "--root-password", ROOT_PASSWORD], check=True, env=environment,
                   stdout=subprocess.DEVNULL)
    command = [binary, "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", data_dir, "--aur-source", dump]
    watch = Watch()
    server = start("larder", command, port, Path(scratch) / f"larder-{port}.log", environment)
    server.tls = certificate is not None
    wait_ready(server, "/readyz")
    facts = {"wall": watch.seconds(), "cpu": server.cpu_seconds(), **server.memory(), "steal": watch.steal()}
    return server, facts


def write_article(server, name, body):
    """Makes the article `name`; raises Trouble if larder does not take it."""
    connection = server.connection(timeout=20)
    credentials = base64.b64encode(f"root:{ROOT_PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {credentials}", "Content-Type": "text/plain; charset=utf-8"}
    connection.request("POST", f"/article/{name}/0", body, headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    if response.status != 201:
        raise Trouble(f"{server.name} did not take an article: {response.status} {answer.decode(errors='replace')}")


NGINX_CONFIG = """\
# A static file server tuned as its manual advises for many small answers.
worker_processes auto;
daemon off;
pid {scratch}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_timeout 3600;
    keepalive_requests 1000000000;
    open_file_cache max=20000 inactive=1h;
    open_file_cache_valid 1h;
    open_file_cache_min_uses 1;
    server_tokens off;
    default_type application/json;
    client_body_temp_path {scratch}/nginx-body;
    proxy_temp_path {scratch}/nginx-proxy;
    fastcgi_temp_path {scratch}/nginx-fastcgi;
    uwsgi_temp_path {scratch}/nginx-uwsgi;
    scgi_temp_path {scratch}/nginx-scgi;
    server {{
        listen 127.0.0.1:{port}{tls};
        root {root};
        location /small/ {{ {small} }}
        location /small/gzip/ {{ {small} add_header Content-Encoding gzip; }}
        location /small/zstd/ {{ {small} add_header Content-Encoding zstd; }}
        location /large/gzip/ {{ add_header Content-Encoding gzip; }}
        location /large/zstd/ {{ add_header Content-Encoding zstd; }}
        location /simple/ {{ types {{ }} default_type application/vnd.pypi.simple.v1+json; }}
    }}
}}
"""


def static_folder(size_bytes):
    """Below which folder of nginx's a body of this size goes, for the way of sending that is best for it."""
    return "small" if size_bytes <= SMALL_BYTES_MAX else "large"


def start_nginx(binary, root, scratch, sendfile_always=False, certificate=None):
    """Starts nginx over the directory `root`, with a configuration of its own in `scratch`.

    Files in `small/` are read into the buffer that holds the header and sent with it in one call: for bodies of a few
    kilobytes that takes nginx 20 to 30 % less CPU than sendfile, so it is the fair ceiling. `sendfile_always` leaves that out.
    `tcp_nopush` stays on, although the last piece of a body that does not fit into one segment of the loopback interface
    (65,483 bytes) now and then waits until the one before is acknowledged, which the receiver may put off for 40 ms: that
    happens to one answer in some thousands, and without it a body of 74 kB takes twice the CPU.
    """
    port = free_port()
    home = Path(scratch) / f"nginx-{port}"
    home.mkdir()
    home.chmod(0o755)
    (Path(root) / "ready").write_text("ready\n")
    config = home / "nginx.conf"
    tls = f" ssl http2; ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]}; ssl_protocols TLSv1.3" if certificate else ""
    config.write_text(NGINX_CONFIG.format(scratch=home, root=root, port=port, tls=tls, small="" if sendfile_always else "sendfile off;"))
    server = start("nginx", [binary, "-e", "stderr", "-p", home, "-c", config], port, home / "log")
    server.tls = certificate is not None
    wait_ready(server, "/ready")
    return server


def start_postgresql(scratch):
    """A PostgreSQL of our own on a free port, fsync on: its URL and version, or None where it is not installed."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb")) or filter(None, [shutil.which("initdb")])
    binaries = next((Path(path).parent for path in found), None)
    if not binaries:
        return None
    data, port = scratch / "postgresql", free_port()
    as_user = []
    if os.geteuid() == 0:
        # It refuses to run as root.
        as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        scratch.chmod(0o777)
    environment = {**os.environ, "LC_ALL": "C"}
    subprocess.run([*as_user, binaries / "initdb", "-D", data, "-U", "larder", "-A", "trust", "-E", "UTF8"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    command = [*as_user, binaries / "postgres", "-D", data, "-p", str(port), "-k", data, "-c", "listen_addresses=127.0.0.1"]
    server = start("postgresql", command, port, scratch / "postgresql.log", environment)
    deadline = time.monotonic() + 30
    while "ready to accept connections" not in (scratch / "postgresql.log").read_text():
        check_alive(server)
        if time.monotonic() > deadline:
            raise Trouble("PostgreSQL was not ready within 30 s")
        time.sleep(0.05)
    return f"postgres://larder@127.0.0.1:{port}/postgres", subprocess.run([binaries / "postgres", "--version"], check=True, capture_output=True, text=True).stdout.strip()


def find_peer(name, port):
    """A server that somebody else started on 127.0.0.1:`port`; its process is looked up by the listening socket."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError as error:
        raise Trouble(f"peer {name} does not answer at 127.0.0.1:{port}: {error}") from None
    return Server(name, port, _listener(port))


def free_port():
    """A free port below those that the kernel hands out: between this moment and the server's own bind no
    outgoing connection, not even the one that asks whether it is ready, and no other program's `:0` can take it."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = random.Random().sample(range(10_000, lowest), 20) if lowest >= 11_000 else []
    for port in [*candidates, 0]:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise Trouble("no port is free on 127.0.0.1")


class Watch:
    """The machine from here on: what its processes used, and what was kept from it by what it shares its processors with."""

    def __init__(self):
        self.begun, self.busy, self.stolen = time.monotonic(), *_machine_seconds()

    def seconds(self):
        return time.monotonic() - self.begun

    def busy_seconds(self):
        """CPU seconds of all processes since then (interrupts, idle and steal are left out)."""
        return _machine_seconds()[0] - self.busy

    def steal(self):
        """The share of the machine's CPU time since then in which it would have worked, but was not let."""
        return (_machine_seconds()[1] - self.stolen) / max(self.seconds() * os.cpu_count(), 1 / TICKS_PER_SECOND)


def _machine_seconds():
    """(busy, stolen) CPU seconds of the machine so far."""
    fields = [int(field) / TICKS_PER_SECOND for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return sum(fields[:3]), fields[7]


def _tail(log):
    return "\n".join(Path(log).read_text(errors="replace").splitlines()[-15:])


def _signal_group(group, number):
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


def _die_with_parent():
    # If the benchmark itself is killed, its `finally` never runs: then the kernel ends the server.
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def _stat(pid):
    """The fields of /proc/PID/stat from the third on (the second may hold blanks and brackets); None when gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def _tree(root):
    """`root` and all that descend from it, as far as they still live."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(entry)):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return found


def _listener(port):
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    owners = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if any(os.readlink(f"/proc/{entry}/fd/{fd}") in inodes for fd in os.listdir(f"/proc/{entry}/fd")):
                owners.append(int(entry))
        except OSError:
            continue
    # Workers share the socket with the parent that opened it: the parent is the root of the tree.
    roots = [pid for pid in owners if (fields := _stat(pid)) and int(fields[1]) not in owners]
    return roots[0] if roots else None
