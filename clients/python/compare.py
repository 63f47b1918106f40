"""The same requests to a real devpi-server and to Larder, and every difference between their answers.

requests.SCRIPT -> both servers -> answers with what must vary masked -> compared, part by part.

A difference is expected if `known.KNOWN` names it with an id that docs/devpi-differences.md explains; any other is a
failure. So is one that is expected and does not show: then the page is out of date.

    compare.py DIRECTORY           writes DIRECTORY/differences.txt, with both answers of every difference
    compare.py DIRECTORY STEP..    also prints both answers to the requests whose names begin so
"""

import fnmatch
import html.parser
import http.server
import json
import re
import sys
import threading
import urllib.parse

import environments
from devpi_process import Devpi
from known import KNOWN
from requests_of_devpi import SCRIPT, make_files
from server import Larder, client

PAGE = environments.ROOT / "docs" / "devpi-differences.md"
# What is compared of the headers; the rest is the server's own affair (Date, Server, Connection, ..).
HEADERS = ("location", "www-authenticate", "vary", "cache-control", "etag", "accept-ranges", "content-range", "allow")
# Of these only whether they are there.
PRESENT = ("x-devpi-api-version", "x-devpi-server-version", "x-devpi-uuid", "x-devpi-master-uuid",
           "x-devpi-primary-uuid", "x-devpi-serial", "last-modified", "content-length", "content-disposition")  # fmt: skip


class Elsewhere(http.server.ThreadingHTTPServer):
    """An index that releases are pushed to: it answers a form with the status that its path has for it, and notes
    what came."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Elsewhere.Handler)
        self.came = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            form = form_of(self.headers["Content-Type"], body)
            statuses = dict(zip(("submit", "file_upload", "doc_upload"), self.path.strip("/").split("/")))
            status = int(statuses.get(form[":action"], "404"))
            told = " ".join(form.get(key, "-") for key in (":action", "name", "version", "content"))
            self.server.came.append(f"{self.path} {told}")
            text = f"answer {status}".encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass


def form_of(kind, body):
    """The fields of a form; of its file the name, as `content`."""
    if not kind.startswith("multipart/"):
        return {key: values[0] for key, values in urllib.parse.parse_qs(body.decode()).items()}
    found = {}
    for part in body.split(b"--" + kind.partition("boundary=")[2].strip('"').encode())[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        name, filename = (re.search(rb'\b%s="([^"]*)"' % key, head) for key in (b"name", b"filename"))
        found[name[1].decode()] = filename[1].decode() if filename else content[:-2].decode()
    return found


class Anchors(html.parser.HTMLParser):
    """What a program reads in a page of links: the links, with their attributes; and the title, forms and notes.

    Addresses are those that they lead to from the address of the page.
    """

    def __init__(self, text, address):
        super().__init__()
        self.found, self.open, self.address = {"links": []}, None, address
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in {"href", "action"} & attributes.keys():
            attributes[name] = urllib.parse.urljoin(self.address, attributes[name])
        if tag == "a":
            self.found["links"].append({"text": "", **attributes})
        if tag == "form":
            self.found["form"] = attributes
        self.open = tag

    def handle_endtag(self, tag):
        self.open = None

    def handle_data(self, data):
        if self.open == "a":
            self.found["links"][-1]["text"] += data
        elif self.open in ("title", "h1"):
            self.found[self.open] = self.found.get(self.open, "") + data


def masked(site, text):
    """What must vary replaced in a text: hosts, times of test results, moments."""
    text = text.replace(site.netloc, "HOST")
    text = re.sub(r"toxresult-\d{14}-", "toxresult-TIME-", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?", "MOMENT", text)
    text = re.sub(r"\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT", "MOMENT", text)
    text = re.sub(r"object at 0x[0-9a-f]+", "object at ADDRESS", text)
    return re.sub(r"\b[0-9a-f]{32}\b", "UUID", text)


def masked_json(value, key=None):
    """The same for what is seen by its key: tokens, moments as lists of numbers, and the values of a status."""
    if key == "when" and isinstance(value, list) and len(value) == 6:
        return "WHEN"
    if isinstance(value, dict):
        if isinstance(value.get("+links"), list):
            links = sorted(value["+links"], key=lambda link: link["href"])
            value = value | {"+links": links, "order": [link["href"] for link in value["+links"]]}
        if isinstance(value.get("log"), list):
            value = value | {"log": [" ".join(f"{key}={one[key]}" for key in sorted(one) if key != "when") for one in value["log"]]}
        if set(value) >= {"password", "expiration"}:
            return value | {"password": "TOKEN"}
        return {name: masked_json(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked_json(inner) for inner in value]
    return value


def flat(value, path="body"):
    """Leaves of a JSON value: path -> value. Lists of plain values stay whole."""
    if isinstance(value, dict) and value:
        return {leaf: found for name, inner in value.items() for leaf, found in flat(inner, f"{path}.{name}").items()}
    if isinstance(value, list) and any(isinstance(inner, (dict, list)) for inner in value):
        found = {f"{path}.length": len(value)}
        for number, inner in enumerate(value):
            found |= flat(inner, f"{path}[{number}]")
        return found
    return {path: value}


def parts(site, step, request, answer):
    """An answer as comparable parts: name -> value."""
    kind = answer.headers.get("content-type", "")
    # An empty body needs no type.
    kind = kind if answer.body or request.method == "HEAD" else ""
    found = {"status": answer.status, "type": kind.replace("charset=utf-8", "charset=UTF-8")}
    for name in HEADERS:
        if name in answer.headers:
            found[f"header.{name}"] = masked(site, answer.headers[name])
    if "vary" in answer.headers:
        found["header.vary"] = ", ".join(sorted(answer.headers["vary"].split(", ")))
    for name in PRESENT:
        if name in answer.headers:
            found[f"header.{name}"] = "present"
    usual = {200: "OK", 206: "Partial Content", 500: "Internal Server Error", 201: "Created", 302: "Found", 304: "Not Modified", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
             404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 410: "Gone", 415: "Unsupported Media Type", 502: "Bad Gateway"}  # fmt: skip
    if answer.reason != usual.get(answer.status):
        found["reason"] = masked(site, answer.reason)
    text = masked(site, answer.text)
    if "json" in kind:
        try:
            body = masked_json(json.loads(text))
        except ValueError:
            body = {"broken": text}
        if step.keys_only:
            body = {"result": {key: type(value).__name__ for key, value in body.get("result", {}).items()}, "type": body.get("type")}
        found |= flat(sorted_by("filename", body) if isinstance(body, dict) else body)
    elif kind.startswith("text/html") and answer.status < 400:
        found |= flat(sorted_by("text", Anchors(text, request.path).found))
    elif answer.status < 400:
        found["body"] = text if kind.startswith("text/") else f"{len(answer.body)} bytes"
    return found


def sorted_by(key, body):
    """A page with its files or links sorted, and their order as a part of its own."""
    name = "files" if "files" in body else "links"
    if isinstance(body.get(name), list) and all(isinstance(one, dict) and key in one for one in body[name]):
        return body | {name: sorted(body[name], key=lambda one: one[key]), "order": [one[key] for one in body[name]]}
    return body


def asked(site, work):
    """Sends every request; answers name -> parts."""
    found = {}
    elsewhere = Elsewhere()
    site.stub = f"http://127.0.0.1:{elsewhere.server_address[1]}"
    for step in SCRIPT:
        request = step.request(work / "files", site)
        answer = site.ask(request.method, request.path, request.body, request.headers, request.auth)
        found[step.name] = parts(site, step, request, answer)
        found[step.name]["_shown"] = f"{request.method} {request.path}\n{answer.status} {answer.reason}\n" + "".join(
            f"{name}: {value}\n" for name, value in answer.pairs
        ) + "\n" + answer.text[:3000]  # fmt: skip
        if elsewhere.came:
            found[step.name]["came"], elsewhere.came = elsewhere.came, []
    elsewhere.shutdown()
    return found


def fits(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split())


def explains(row, name, part, theirs, ours):
    """Whether a row is about this part of this answer, with these values."""
    _, names, part_names, *values = row
    return fits(name, names) and fits(part, part_names) and all(fit(theirs, ours) for fit in values)


def test(work):
    names = [step.name for step in SCRIPT]
    assert len(names) == len(set(names)), f"twice: {[name for name in names if names.count(name) > 1]}"
    make_files(work / "files")
    with Devpi(work) as devpi:
        theirs = asked(devpi, work)
    with Larder(work, chain=False, LARDER_PYTHON_DEVPI_DEFAULTS="true", LARDER_EGRESS_ALLOW="127.0.0.0/8") as larder:
        ours = asked(larder, work)

    known = {row: 0 for row in KNOWN}
    unknown, report, counted = [], [], 0
    for name in names:
        one, other = theirs[name], ours[name]
        if any(name.startswith(wanted) for wanted in sys.argv[2:]):
            print(f"==== {name}: devpi\n{one['_shown']}\n==== {name}: larder\n{other['_shown']}\n")
        compared = (one.keys() | other.keys()) - {"_shown"}
        if one["status"] == other["status"] and one["status"] >= 400 and "body.code" in one and "body.code" not in other:
            compared -= {"body.code", "body.title"}  # the envelope instead of what pyramid makes of an exception
        if one["status"] != other["status"] or one["type"].split(";")[0] != other["type"].split(";")[0]:
            compared &= {"status", "type", "reason", "body.message", "came"}  # other kinds of answers have no parts in common
        for part in sorted(compared):
            if one.get(part) == other.get(part):
                continue
            counted += 1
            rows = [row for row in KNOWN if explains(row, name, part, one.get(part), other.get(part))]
            for row in rows:
                known[row] += 1
            line = f"{rows[0][0] if rows else '???'} {name}: {part}: devpi {one.get(part)!r}, larder {other.get(part)!r}"
            report.append(line)
            if not rows:
                unknown.append(line)
    (work / "differences.txt").write_text("\n".join(report) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    explained = set(re.findall(r"(?m)^\| (P\d+) \|", page))
    gone = [row for row, times in known.items() if not times]
    problems = unknown + [f"expected, but not there: {row[:3]}" for row in gone]
    problems += [f"{row[0]} is not explained in {PAGE.name}" for row in KNOWN if row[0] not in explained]
    print(f"{len(names)} requests, {counted} differing parts, {len({row[0] for row, times in known.items() if times})} known differences")
    assert not problems, f"{len(problems)} problems\n" + "\n".join(problems)


client(test)
