"""What a reader has before they come to a page: their project, their dump, the server that they come from.

`has NAME ARGUMENTS` in a comment `given` of a page -> files in the visit's directory, or a program that runs beside it.
"""

import functools
import http.server
import json
import shlex
import shutil
import subprocess
import threading

import environments
import packages

DUMP = environments.ROOT / "testdata" / "aur" / "packages-meta-ext-v1.json.gz"


def bring(visit, text):
    name, *arguments = shlex.split(text, comments=True)
    THINGS[name](visit, *arguments)


def project(visit, name, version, *requires):
    """A checkout in the working directory, with `dist/` built: a wheel and a source archive."""
    for path, data in packages.tree(name, version, requires=requires).items():
        (visit.work / path).write_bytes(data)
    (visit.work / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "{version}"\nrequires-python = ">=3.9"\n'
        f'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n', encoding="utf-8"
    )  # fmt: skip
    packages.both(visit.work / "dist", name, version, requires=requires)


def wheels(visit, directory, *names):
    """A folder with the wheels of these packages, as pypiserver serves it."""
    for name in names:
        packages.wheel(directory, name, "1.0")


def file(visit, path, *lines):
    (visit.work / path).parent.mkdir(parents=True, exist_ok=True)
    (visit.work / path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def dump(visit, path):
    """The AUR's metadata dump as a file."""
    shutil.copyfile(DUMP, made_parent(visit, path))


def made_parent(visit, path):
    path = visit.work / path
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def upstream(visit):
    """A server that publishes the AUR's metadata dump; it stands in for aur.archlinux.org."""
    handler = functools.partial(Quiet, directory=str(DUMP.parent))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", visit.upstream_port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    visit.closing += [server.server_close, server.shutdown]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a directory, without a line for each request."""

    def log_message(self, *_):
        pass


def checkout(visit):
    """A checkout of this repository, built."""
    (visit.work / "target" / "release").mkdir(parents=True)
    (visit.work / "target" / "release" / "larder").symlink_to(visit.binary)
    (visit.work / "packaging").symlink_to(environments.ROOT / "packaging")


# The record that docs/aur-api.md shows, and another one.
LARCH = {
    "Depends": ["glibc", "libwood>=1.2"], "Description": "Renders trees as plain text", "FirstSubmitted": 1644749267,
    "ID": 200123, "Keywords": ["text", "tree"], "LastModified": 1683831770, "License": ["MIT"], "Maintainer": "rowan",
    "Name": "larch", "NumVotes": 42, "OutOfDate": None, "PackageBase": "larch", "PackageBaseID": 100045,
    "Popularity": 1.337042, "Submitter": "rowan", "URL": "https://example.org/larch",
    "URLPath": "/cgit/aur.git/snapshot/larch.tar.gz", "Version": "2.4.1-1",
}  # fmt: skip


def trees(visit, path):
    """A small dump with the packages of docs/aur-api.md."""
    others = [("oak", "A tree in the terminal"), ("tree-view", "Shows a tree of windows")]
    records = [LARCH]
    for number, (name, description) in enumerate(others):
        own = {"ID": 200200 + number, "Name": name, "PackageBase": name, "PackageBaseID": 100200 + number, "Description": description}
        records.append(LARCH | own | {"URLPath": f"/cgit/aur.git/snapshot/{name}.tar.gz"})
    made_parent(visit, path).write_text(json.dumps(records), encoding="utf-8")


CONSUMER = """[project]
name = "consumer"
version = "0"
requires-python = ">=3.9"
dependencies = {dependencies}

[tool.poetry]
package-mode = false

[[tool.{tool}.{what}]]
name = "team-dev"
url = "{url}"
{explicit}

"""
UV_SOURCES = '[tool.uv.sources]\nyourproject = { index = "team-dev" }\n'
POETRY_SOURCES = '[tool.poetry.dependencies]\nyourproject = { version = "^1.0", source = "team-dev" }\n'


def consumer(visit, tool):
    """A project in a directory called as its tool, which needs `yourproject` from the index `team-dev`."""
    url = f"http://127.0.0.1:{visit.port}/team/dev/+simple/"
    if tool == "uv":
        text = CONSUMER.format(dependencies='["yourproject"]', tool=tool, what="index", url=url, explicit="explicit = true") + UV_SOURCES
    else:
        text = CONSUMER.format(dependencies="[]", tool=tool, what="source", url=url, explicit='priority = "explicit"') + POETRY_SOURCES
    made_parent(visit, visit.home / tool / "pyproject.toml").write_text(text, encoding="utf-8")


def goaurrpc(visit, path):
    """The configuration of a goaurrpc with a dump of its own, as it runs somewhere."""
    # What is taken over from it says where to listen.
    visit.terminal.run("unset LARDER_LISTEN", 20)
    source = visit.root / "srv" / "aur" / "packages-meta-ext-v1.json.gz"
    dump(visit, source)
    settings = {
        "Port": 10666, "AurFileLocation": str(source), "LoadFromFile": True, "RefreshInterval": 600, "MaxResults": 5000,
        "RateLimit": 0, "RateLimitCleanupInterval": 600, "RateLimitTimeWindow": 86400, "TrustedReverseProxies": ["127.0.0.1", "::1"],
        "EnableSSL": False, "CertFile": "", "KeyFile": "", "EnableSearchCache": True, "CacheCleanupInterval": 60,
        "CacheExpirationTime": 180, "LogFile": "", "EnableMetrics": True, "EnableAdminApi": False, "AdminAPIKey": "change-me",
    }  # fmt: skip
    made_parent(visit, path).write_text(json.dumps(settings, indent=2), encoding="utf-8")


def devpi(visit, path):
    """A devpi-server that a team has used: users, two stages with a base between them, releases. It is stopped."""
    import old_devpi

    old_devpi.make(visit, path)


ENTRIES = """dn: dc=example,dc=org
objectClass: organization
objectClass: dcObject
o: example
dc: example

dn: cn=larder,dc=example,dc=org
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: larder
userPassword: service word

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: uid=alice,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: alice
cn: Alice
sn: Liddell
userPassword: wonderland

dn: ou=groups,dc=example,dc=org
objectClass: organizationalUnit
ou: groups

dn: cn=developers,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: developers
member: uid=alice,ou=people,dc=example,dc=org
"""
SLAPD = """include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCertificateFile {path}/own.pem
TLSCertificateKeyFile {path}/key.pem
database mdb
suffix dc=example,dc=org
directory {path}/data
maxsize 33554432
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact=cn=larder,dc=example,dc=org read by * auth
"""


def directory(visit, ca_file, password_file):
    """A directory with `alice` (password `wonderland`, group `developers`), the file of its authority, and the service's password."""
    if not (slapd := shutil.which("slapd", path="/usr/sbin:/usr/bin")):
        raise environments.Skipped("slapd is not installed (Debian package slapd)")
    path = visit.directory / "slapd"
    (path / "data").mkdir(parents=True)
    # Some systems confine the program at its own place to its own files.
    slapd = shutil.copy(slapd, path / "slapd")
    (path / "slapd.conf").write_text(SLAPD.format(path=path), encoding="utf-8")
    (path / "entries").write_text(ENTRIES, encoding="utf-8")
    make_key = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    # Its own authority, and not one itself.
    ends = ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*make_key, *names, *ends, "-keyout", path / "key.pem", "-out", path / "own.pem"], check=True, capture_output=True)
    subprocess.run([slapd, "-T", "add", "-f", path / "slapd.conf", "-l", path / "entries"], check=True)
    url = f"ldap://localhost:{visit.directory_port}"
    server = subprocess.Popen([slapd, "-d", "0", "-f", path / "slapd.conf", "-h", url], stderr=subprocess.DEVNULL)
    visit.closing += [server.wait, server.kill]
    shutil.copyfile(path / "own.pem", made_parent(visit, ca_file))
    made_parent(visit, password_file).write_text("service word\n", encoding="utf-8")
    visit.passwords["alice"] = "wonderland"


THINGS = {each.__name__: each for each in (project, wheels, file, dump, upstream, checkout, trees, consumer, goaurrpc, devpi, directory)}
