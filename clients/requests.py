#!/usr/bin/env python3
"""The requests of AUR clients, byte for byte, and whether each answer is one that the client can use.

clients/cases.json (what to expect) + a dump -> requests written by hand on sockets -> checks -> one line each.

    clients/requests.py --port PORT --dump DUMP         everything but `http2`
    clients/requests.py --port PORT --dump DUMP http2   one client alone; its name is that of its function here

Each function is a client: it says what that client sends, with its headers, its escapes and its batch sizes, as
read in its source, and fails by an assertion. Only the standard library is used; nothing here is lenient.
"""

import argparse
import concurrent.futures
import gzip
import hashlib
import json
import os
import socket
import string
import subprocess
import sys
import traceback
import urllib.parse
import zlib
from email.utils import parsedate_to_datetime

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
import expect  # noqa: E402

SEARCH_KEYS = set(
    "Description FirstSubmitted ID LastModified Maintainer Name NumVotes OutOfDate PackageBase PackageBaseID"
    " Popularity URL URLPath Version".split()
)
TIMEOUT_SECONDS = 20
FORM = "application/x-www-form-urlencoded"
ALPHANUMERIC = frozenset((string.ascii_letters + string.digits).encode())


# ---- HTTP/1.1 by hand, so that nothing is normalized on the way


class Response:
    """status, headers (lower-case names; a repeated one joined by commas), and the body as it came."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def decoded(self):
        """The body without its content coding."""
        coding = self.headers.get("content-encoding", "identity")
        if coding == "gzip":
            return gzip.decompress(self.body)
        if coding == "deflate":
            return zlib.decompress(self.body)
        assert coding == "identity", f"content-encoding is `{coding}`, which was not asked for"
        return self.body


class Connection:
    """One keep-alive connection; `exchanges` counts what went over it without a reconnect."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self.reader = self.socket.makefile("rb")
        self.exchanges = 0

    def exchange(self, method, target, headers=(), body=None, expect_continue=False):
        head = [f"{method} {target} HTTP/1.1", "Host: aur.example.org", *headers]
        if body is not None:
            head.append(f"Content-Length: {len(body)}")
        if expect_continue:
            head.append("Expect: 100-continue")
        self.socket.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + (b"" if expect_continue else body or b""))
        if expect_continue:
            interim, _ = self.read_head()
            assert interim == 100, f"status {interim} where 100 Continue was expected"
            self.socket.sendall(body)
        status, answered = self.read_head()
        self.exchanges += 1
        return Response(status, answered, self.read_body(method, status, answered))

    def read_head(self):
        line = self.reader.readline()
        assert line.startswith(b"HTTP/1.1 "), f"status line {line!r}"
        headers = {}
        while (field := self.reader.readline()) not in (b"\r\n", b""):
            name, _, value = field.decode("latin-1").partition(":")
            name, value = name.strip().lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return int(line.split()[1]), headers

    def read_body(self, method, status, headers):
        if method == "HEAD" or status in (204, 304):
            return b""
        if headers.get("transfer-encoding") == "chunked":
            chunks = []
            while size := int(self.reader.readline().split(b";")[0], 16):
                chunks.append(self.reader.read(size))
                self.reader.readline()
            while self.reader.readline() not in (b"\r\n", b""):
                pass
            return b"".join(chunks)
        length = int(headers["content-length"])
        body = self.reader.read(length)
        assert len(body) == length, f"{len(body)} bytes of body where content-length says {length}"
        return body

    def close(self):
        self.reader.close()
        self.socket.close()


class World:
    """What every client function is given: where the server is, and what it should know."""

    def __init__(self, port, dump):
        self.port = port
        with open(os.path.join(os.path.dirname(__file__), "cases.json"), encoding="utf-8") as file:
            self.cases = json.load(file)
        self.packages, digest = expect.read_dump(dump)
        assert digest == self.cases["dump_sha256"], "cases.json was made from another dump: run clients/expect.py"
        self.names = sorted(package["Name"] for package in self.packages)
        self.by_name = {package["Name"]: package for package in self.packages}

    def connect(self):
        return Connection(self.port)

    def search_cases(self, *wanted):
        """The recorded searches by the fields named, or by all."""
        return [case for case in self.cases["search"] if not wanted or case["by"] in wanted]

    def info_names(self, count):
        """`count` names, spread over the catalogue."""
        return [self.names[position * len(self.names) // count] for position in range(count)]


# ---- what an answer must be


def sorted_pairs(pairs):
    keys = [key for key, _ in pairs]
    assert keys == sorted(keys) and len(set(keys)) == len(keys), f"keys are not sorted: {keys}"
    return dict(pairs)


def check_json(response):
    """The value of a JSON answer: status 200, the exact content type, one line, sorted keys, text not escaped."""
    assert response.status == 200, f"status {response.status}: {response.body[:200]!r}"
    assert response.headers["content-type"] == "application/json", response.headers["content-type"]
    assert response.headers.get("etag", "").strip('"'), "no ETag"
    body = response.decoded()
    assert b"\n" not in body and b"\r" not in body, "more than one line"
    assert b": " not in body[:40] and b"\\u00" not in body and b"\\/" not in body, "not compact, or needless escapes"
    return json.loads(body.decode("utf-8"), object_pairs_hook=sorted_pairs)


def check_envelope(response, kind):
    """The results of a v5 answer of type `kind`."""
    value = check_json(response)
    assert set(value) == {"resultcount", "results", "type", "version"}, value.get("error", set(value))
    assert value["type"] == kind and value["version"] == 5, (value["type"], value["version"])
    assert value["resultcount"] == len(value["results"])
    return value["results"]


def check_error(response, message):
    """A v5 error: status 200, since curl -f and reqwest drop the text of anything else."""
    value = check_json(response)
    assert value == {"error": message, "resultcount": 0, "results": [], "type": "error", "version": 5}, value


def check_search(response, case, kind="search"):
    """A search answer holds exactly the names expected, each once, by name, with the 14 fields."""
    if "error" in case:
        return check_error(response, case["error"])
    results = check_envelope(response, kind)
    names = [record["Name"] for record in results]
    assert names == case["names"], f"by={case['by']} arg={case['arg']}: {names[:5]}.. expected {case['names'][:5]}.."
    for record in results:
        assert set(record) == SEARCH_KEYS, f"fields {sorted(set(record) ^ SEARCH_KEYS)} of {record['Name']}"
    return None


def check_info(world, response, names):
    """An info answer holds the records of `names`, each once, in the order asked, all fields as in the dump."""
    results = check_envelope(response, "multiinfo")
    found = [record["Name"] for record in results]
    expected = list(dict.fromkeys(name for name in names if name in world.by_name))
    assert found == expected, f"{len(found)} records where {len(expected)} were expected: {found[:3]}, {expected[:3]}"
    for record in results:
        package = expect.info_record(world.by_name[record["Name"]])
        assert record == package, f"{record}\n  expected {package}"


def escape_all(text):
    """aurutils escapes every byte that is no letter and no digit, hyphens too."""
    return "".join(chr(byte) if byte in ALPHANUMERIC else f"%{byte:02X}" for byte in text.encode())


def escape(text):
    """What curl_easy_escape leaves alone: the unreserved characters."""
    return urllib.parse.quote(text, safe="")


# ---- the clients


def yay(world):
    """yay 12 through Jguer/aur: keys in order, brackets escaped, `+` for spaces; 125 names an info request."""
    headers = ["User-Agent: Yay/12.5.0", "Accept-Encoding: gzip"]
    connection = world.connect()
    for case in world.search_cases():
        query = urllib.parse.urlencode({"arg": case["arg"], "by": case["by"], "type": "search", "v": 5})
        check_search(connection.exchange("GET", f"/rpc?{query}", headers), case)
    names = world.info_names(125)
    query = urllib.parse.urlencode([("arg[]", name) for name in names] + [("type", "info"), ("v", 5)])
    response = connection.exchange("GET", f"/rpc?{query}", headers)
    assert response.headers.get("content-encoding") == "gzip", "an answer of 80 kB to a client that takes gzip is not compressed"
    check_info(world, response, names)
    # Redirects are not followed, so nothing may redirect.
    response = connection.exchange("GET", "/rpc?arg%5B%5D=zzqqxx-nothing&type=info&v=5", headers)
    assert check_envelope(response, "multiinfo") == []
    # Completion and `-Sl`; "rpc": false reads the whole dump.
    assert gunzip_lines(connection.exchange("GET", "/packages.gz", headers)) == world.names
    response = connection.exchange("GET", "/packages-meta-ext-v1.json.gz", headers)
    dump = {record["Name"]: dump_record(record) for record in json.loads(plain(response))}
    loaded = {name: dump_record(package) for name, package in world.by_name.items()}
    assert dump == loaded, f"the extended dump differs from what was loaded, in {first_difference(dump, loaded)}"
    assert connection.exchanges > 40, "the connection was not kept alive"
    connection.close()


def dump_record(package):
    """A record of a dump; which of the two paths it gives for a split package is the server's choice."""
    return {**package, "URLPath": None}


def first_difference(left, right):
    return next((name for name in sorted(left.keys() | right.keys()) if left.get(name) != right.get(name)), "nothing")


def plain(response):
    """The text of a .gz file, which must come as it is: paru and aurutils unpack it themselves."""
    assert response.status == 200, f"status {response.status}"
    assert "content-encoding" not in response.headers, f"content-encoding: {response.headers['content-encoding']} on a .gz"
    return gzip.decompress(response.body)


def gunzip_lines(response):
    text = plain(response).decode("utf-8")
    assert text.endswith("\n"), "the last line is not ended"
    return sorted(text.splitlines())


def paru(world):
    """paru 2 through raur: everything by POST form, up to 500 names, escaped brackets first."""
    headers = [f"Content-Type: {FORM}", "User-Agent: paru/2.1.0", "Accept: */*", "Accept-Encoding: gzip"]
    connection = world.connect()
    for path in ("/rpc", "/rpc/"):
        names = world.info_names(500)
        body = urllib.parse.urlencode([("arg[]", name) for name in names] + [("v", 5), ("type", "info")])
        check_info(world, connection.exchange("POST", path, headers, body.encode()), names)
        for case in world.search_cases():
            body = urllib.parse.urlencode([("v", 5), ("type", "search"), ("by", case["by"]), ("arg", case["arg"])])
            check_search(connection.exchange("POST", path, headers, body.encode()), case)
    # `-Sl` and `-x` unpack the list themselves although they say Accept-Encoding: gzip.
    assert gunzip_lines(connection.exchange("GET", "/packages.gz", headers[1:])) == world.names
    connection.close()


def aurutils(world):
    """aurutils: curl -f, every byte escaped in paths, 5,000 names in a form that begins with `&`, raw brackets."""
    headers = ["User-Agent: aurutils", "Accept: */*"]
    form = [*headers, f"Content-Type: {FORM}"]
    connection = world.connect()
    for case in world.search_cases():
        if case["arg"]:
            target = f"/rpc/v5/search/{escape_all(case['arg'])}?by={case['by']}"
            check_search(connection.exchange("GET", target, headers), case)
    for kind in ("suggest", "suggest-pkgbase"):
        for case in world.cases[kind]:
            response = connection.exchange("GET", f"/rpc/v5/{kind}/{escape_all(case['arg'])}", headers)
            assert check_json(response) == case["names"], f"{kind} {case['arg']}"
    names = world.info_names(5000)
    body = "".join(f"&arg[]={name}" for name in names).replace("+", "%2B").encode()
    for expect_continue in (False, True):  # curl asks for leave before it sends a long body
        response = connection.exchange("POST", "/rpc/v5/info", form, body, expect_continue)
        check_info(world, response, names)
    # aur pkglist: HEAD for the date, then the file and its digest.
    users = {package[field] for package in world.packages for field in ("Maintainer", "Submitter")} - {None}
    users |= {name for package in world.packages for name in package.get("CoMaintainers", [])}
    bases = {package["PackageBase"] for package in world.packages}
    lists = {"packages.gz": world.names, "pkgbase.gz": sorted(bases), "users.gz": sorted(users)}
    for file in (*lists, "packages-meta-v1.json.gz", "packages-meta-ext-v1.json.gz"):
        head = connection.exchange("HEAD", f"/{file}", headers)
        assert head.status == 200, f"HEAD /{file}: status {head.status}"
        parsedate_to_datetime(head.headers["last-modified"])
        response = connection.exchange("GET", f"/{file}", headers)
        assert int(head.headers["content-length"]) == len(response.body), f"HEAD /{file} gives another length than GET"
        assert head.headers["etag"] == response.headers["etag"]
        if file in lists:
            assert gunzip_lines(response) == lists[file], f"/{file} does not list what the dump holds"
        else:
            check_dump_lines(world, file, plain(response))
        digest = connection.exchange("GET", f"/{file}.sha256", headers)
        assert digest.status == 200, f"/{file}.sha256: status {digest.status}"
        expected = f"SHA256 ({file}) = {hashlib.sha256(response.body).hexdigest()}"
        assert digest.body.decode() == expected, f"{digest.body!r} where {expected!r} was expected"
        since = [*headers, f"If-Modified-Since: {head.headers['last-modified']}"]
        assert connection.exchange("GET", f"/{file}", since).status == 304, f"/{file} is sent again though not modified"
    connection.close()


def check_dump_lines(world, file, text):
    """A dump is `[`, one record a line, `]`; without `ext` a record has 15 fields."""
    lines = text.decode("utf-8").splitlines()
    assert lines[0] == "[" and lines[-1] == "]" and len(lines) == len(world.packages) + 2, f"/{file} is not one record a line"
    record = json.loads(lines[1].rstrip(","))
    package = world.by_name[record["Name"]]
    if "ext" not in file:
        package = dict(list(package.items())[:15])
    # The extended dump passes through as it was loaded; the short one is made, and JSON gives its keys no order.
    keys = list if "ext" in file else sorted
    assert keys(record) == keys(package), f"/{file}: fields {list(record)}, expected {list(package)}"
    assert dump_record(record) == dump_record(package), f"/{file}: {record}\n  expected {package}"


def auracle(world):
    """auracle: escaped paths with `?by=`, POST forms with raw brackets, five connections at once, every coding."""
    headers = ["User-Agent: Auracle/0", "Accept: */*", "Accept-Encoding: deflate, gzip, br, zstd"]
    connection = world.connect()
    names = world.info_names(100)
    form = [*headers, f"Content-Type: {FORM}"]
    body = "&".join(f"arg[]={escape(name)}" for name in names).encode()
    response = connection.exchange("POST", "/rpc/v5/info", form, body)
    if response.headers.get("content-encoding") == "zstd":
        assert response.body[:4] == b"\x28\xb5\x2f\xfd", "no zstd frame"  # the `http2` client unpacks one
        form[2] = "Accept-Encoding: deflate, gzip"
        response = connection.exchange("POST", "/rpc/v5/info", form, body)
    check_info(world, response, names)
    connection.close()

    def search(case):
        one = world.connect()
        headers[2] = "Accept-Encoding: deflate, gzip"
        check_search(one.exchange("GET", f"/rpc/v5/search/{escape(case['arg'])}?by={case['by']}", headers), case)
        one.close()

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        list(pool.map(search, [case for case in world.search_cases() if case["arg"]]))


def pikaur(world):
    """pikaur through urllib: `+` for spaces, raw brackets in URLs of up to 8,177 bytes, a connection each, threads."""
    headers = ["Accept-Encoding: identity", "User-Agent: Mozilla/5.0", "Connection: close"]

    def fetch(target):
        connection = world.connect()
        response = connection.exchange("GET", target, headers)
        connection.close()
        return response

    def search(case):
        query = urllib.parse.urlencode({"v": 5, "type": "search", "arg": case["arg"], "by": case["by"]})
        check_search(fetch(f"/rpc/?{query}"), case)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(search, world.search_cases("name", "name-desc")))
    chunk, target = [], "/rpc/?v=5&type=info"
    for name in world.info_names(1500):
        argument = f"&arg[]={urllib.parse.quote_plus(name)}"
        if len(target) + len(argument) > 8177:
            break
        chunk.append(name)
        target += argument
    target += "&" * (8177 - len(target))
    check_info(world, fetch(target), chunk)
    assert len(target) == 8177 and len(chunk) > 200, (len(target), len(chunk))
    names = gunzip_lines(fetch("/packages.gz"))
    assert names == world.names


def pacseek(world):
    """pacseek: search with `by=name` in the URL, POST form info to /rpc, suggest."""
    headers = ["User-Agent: Go-http-client/1.1", "Accept-Encoding: gzip"]
    connection = world.connect()
    for case in world.search_cases("name"):
        target = f"/rpc/?v=5&type=search&by=name&arg={urllib.parse.quote_plus(case['arg'])}"
        check_search(connection.exchange("GET", target, headers), case)
    names = world.info_names(40)
    body = urllib.parse.urlencode([("arg[]", name) for name in names] + [("type", "info"), ("v", 5)]).encode()
    check_info(world, connection.exchange("POST", "/rpc", [*headers, f"Content-Type: {FORM}"], body), names)
    for case in world.cases["suggest"]:
        response = connection.exchange("GET", f"/rpc?v=5&type=suggest&arg={escape(case['arg'])}", headers)
        assert check_json(response) == case["names"], case["arg"]
    connection.close()


def trizen(world):
    """trizen through LWP: type multiinfo, raw brackets, long URLs, `TE` and `Connection: TE, close`."""
    headers = ["TE: deflate,gzip;q=0.3", "Connection: TE, close", "Accept-Encoding: gzip, deflate", "User-Agent: trizen/1.68"]
    for batch in (1, 150):
        names = world.info_names(batch)
        connection = world.connect()
        target = "/rpc?v=5&type=multiinfo" + "".join(f"&arg[]={escape(name)}" for name in names)
        check_info(world, connection.exchange("GET", target, headers), names)
        connection.close()
    for case in world.search_cases("maintainer"):
        connection = world.connect()
        target = f"/rpc?v=5&type=search&by=maintainer&arg={escape(case['arg'])}"
        check_search(connection.exchange("GET", target, headers), case)
        connection.close()


def older(world):
    """repoctl, package-query, cower: /rpc.php in batches of 250, msearch; a bare `+` in a URL typed by hand."""
    connection = world.connect()
    for path in ("/rpc.php", "/rpc.php/"):
        names = world.info_names(250)
        target = f"{path}?type=multiinfo&v=5" + "".join(f"&arg[]={escape(name)}" for name in names)
        check_info(world, connection.exchange("GET", target), names)
    for case in world.search_cases("maintainer"):
        response = connection.exchange("GET", f"/rpc.php?type=msearch&v=5&arg={escape(case['arg'])}")
        check_search(response, case, "msearch")
    plus = [name for name in world.names if "++" in name][:5]
    target = "/rpc?v=5&type=info" + "".join(f"&arg[]={name}" for name in plus)
    check_info(world, connection.exchange("GET", target), plus)
    case = next(case for case in world.search_cases("name") if "+" in case["arg"])
    check_search(connection.exchange("GET", f"/rpc?v=5&type=search&by=name&arg={case['arg']}"), case)
    connection.close()


def http2(world):
    """auracle's HTTP/2 through curl: prior knowledge on a plain port, any content coding."""
    case = next(case for case in world.search_cases("name-desc") if case.get("names"))
    url = f"http://127.0.0.1:{world.port}"

    def curl(*arguments):
        command = ["curl", "--silent", "--show-error", "--globoff", "--http2-prior-knowledge", "--compressed"]
        command += ["--max-time", str(TIMEOUT_SECONDS), "--write-out", "\n%{http_version} %{response_code} %{content_type}"]
        output = subprocess.run([*command, *arguments], check=True, capture_output=True).stdout
        body, _, written = output.rpartition(b"\n")
        assert written == b"2 200 application/json", written
        return Response(200, {"content-type": "application/json", "etag": "unread"}, body)

    check_search(curl(f"{url}/rpc/v5/search/{escape(case['arg'])}?by=name-desc"), case)
    names = world.info_names(100)
    body = "&".join(f"arg[]={escape(name)}" for name in names)
    check_info(world, curl("--data", body, f"{url}/rpc/v5/info"), names)


CLIENTS = [yay, paru, aurutils, auracle, pikaur, pacseek, trizen, older]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--dump", required=True)
    arguments.add_argument("clients", nargs="*")
    chosen = arguments.parse_args()
    world = World(chosen.port, chosen.dump)
    by_name = {client.__name__: client for client in [*CLIENTS, http2]}
    failed = 0
    for client in [by_name[name] for name in chosen.clients] or CLIENTS:
        try:
            client(world)
            print(f"  ok      {client.__name__}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the next client is tried as well
            failed += 1
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
            where = " > ".join(f"{frame.name}:{frame.lineno}" for frame in frames[1:])
            print(f"  FAILED  {where}: {type(error).__name__}: {str(error)[:600]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
