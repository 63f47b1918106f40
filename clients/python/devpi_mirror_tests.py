"""devpi's own tests of mirrors, as pytest collects them from here, and what they need of a server: a Larder as a black box.

with_devpi_mirrors.py runs it in the environment of devpi-server, which brings the classes. They are not changed; where they
look at devpi's directory, the same is asked over HTTP.
"""

import os
import threading
from pathlib import Path

import pytest
from devpi_common.metadata import parse_version
from server import Larder
from test_devpi_server.functional import MappMixin, TestMirrorIndexThings  # noqa: F401
from test_devpi_server.simpypi import SimPyPI, SimPyPIRequestHandler, SimPyPIServer
from test_devpi_server.test_streaming import TestStreaming, content_digest, server_url_session  # noqa: F401


@pytest.fixture(scope="session")
def larder():
    work = Path(os.environ["DEVPI_MIRROR_TESTS"])
    settings = {"LARDER_PYTHON_DEVPI_DEFAULTS": "true", "LARDER_EGRESS_ALLOW": "127.0.0.0/8"}
    with Larder(work, chain=False, **settings) as larder:
        yield larder


@pytest.fixture(scope="session")
def simpypiserver():
    server = SimPyPIServer(("127.0.0.1", 0), SimPyPIRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def simpypi(simpypiserver):
    simpypiserver.simpypi = SimPyPI(simpypiserver.server_address)
    return simpypiserver.simpypi


@pytest.fixture(scope="session")
def server_version():
    return parse_version("6.20.3")


@pytest.fixture
def host_port(larder):
    return ("127.0.0.1", larder.port)


class Kept:
    """A path below devpi's directory of files: it is there if the file is served although upstream has it no more."""

    def __init__(self, larder, simpypi):
        self.larder, self.simpypi = larder, simpypi

    def joinpath(self, *parts):
        self.path = "/" + "/".join(parts)
        return self

    def exists(self):
        self.simpypi.files.clear()
        return self.larder.ask("GET", self.path).status == 200


@pytest.fixture
def files_path(larder, simpypi):
    return Kept(larder, simpypi)


class Mapp(MappMixin):
    """What devpi's tests ask a server for: by HTTP, as devpi's own class of this name does."""

    def __init__(self, larder):
        self.larder, self.auth, self.stage = larder, None, None

    def ask(self, status, method, path, body=None, **options):
        answer = self.larder.ask(method, path, body, auth=self.auth, **options)
        assert answer.status in (status if isinstance(status, tuple) else (status,)), f"{answer.status}: {answer.text[:300]}"
        return answer

    def create_and_login_user(self, user, password="123"):
        self.auth = None
        self.ask(201, "PUT", f"/{user}", {"password": password, "email": "hello@example.com"})
        login = self.ask(200, "POST", "/+login", {"user": user, "password": password})
        self.auth = (user, login.result["password"])

    def create_index(self, index, indexconfig):
        self.ask(200, "PUT", f"/{self.auth[0]}/{index}", indexconfig)

    def delete_index(self, index):
        self.ask(201, "DELETE", f"/{self.auth[0]}/{index}")

    def use(self, stage):
        self.stage = stage

    def getjson(self, path):
        return self.ask(200, "GET", path).json

    def getindexlist(self):
        user = self.getjson(f"/{self.auth[0]}")["result"]
        return {f"{user['username']}/{name}": config for name, config in user.get("indexes", {}).items()}

    def getpkglist(self):
        return self.getjson(f"/{self.stage}")["result"]["projects"]

    def getreleaseslist(self, project):
        versions = self.getjson(f"/{self.stage}/{project}")["result"]
        return sorted({link["href"] for version in versions.values() for link in version["+links"]})

    def downloadrelease(self, status, url):
        answer = self.ask(status, "GET", url.removeprefix(self.larder.url))
        return answer.body if answer.status < 300 else answer.json

    def makepkg(self, filename, content, name, version):
        return content

    def upload_file_pypi(self, filename, content, name, version):
        path = self.larder.work / filename
        path.write_bytes(content)
        answer = self.larder.upload(self.stage, path, self.auth, name=name, version=version)
        assert answer.status == 200, f"{answer.status} {answer.reason}"

    def get_simple(self, project):
        return self.ask(200, "GET", f"/{self.stage}/+simple/{project}/", headers={"Accept": "text/html", "User-Agent": "pip/25.0"})


@pytest.fixture
def mapp(larder):
    return Mapp(larder)
