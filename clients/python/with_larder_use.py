"""larder use: pip, uv, twine and poetry install and upload with what it wrote, which is tokens and no password; a reader cannot
upload; devpi-server gets the password; over TLS the clients know the authority.

    with_larder_use.py DIRECTORY
"""

import re
import shutil
import sys
import urllib.parse

import environments
import packages
from devpi_process import Devpi
from gate import Gate
from server import PASSWORD, Desk, Larder, check, client, free_port, installed

FILES = (".config/pip/pip.conf", ".config/uv/uv.toml", ".pypirc", ".config/pypoetry/config.toml", ".config/pypoetry/auth.toml")
TOKEN = re.compile(r"larder_[0-9a-f]{12}_[0-9a-f]{64}")
PUBLISHED = """[project]
name = "larder-poem"
version = "1.0"
description = "A package for tests"
requires-python = ">=3.9"
[build-system]
requires = ["poetry-core"]
build-backend = "poetry.core.masonry.api"
"""
CONSUMER = """[project]
name = "consumer"
version = "0"
requires-python = ">=3.9"
dependencies = []
[tool.poetry]
package-mode = false
[[tool.poetry.source]]
name = "team-dev"
url = "{url}"
priority = "primary"
"""


class Home(Desk):
    """A desk whose pip reads the file that larder wrote, and what is in it."""

    def __init__(self, work, name, larder, **variables):
        super().__init__(
            work / name, environments.environment("tools"), UV_PYTHON=sys.executable, UV_PYTHON_DOWNLOADS="never",
            POETRY_VIRTUALENVS_IN_PROJECT="true", POETRY_CACHE_DIR=work / name / "cache", POETRY_NO_INTERACTION=1, **variables,
        )  # fmt: skip
        self.environment["PIP_CONFIG_FILE"] = str(self.home / FILES[0])
        self.binary, self.work = larder.binary, work / name

    def use(self, url, *options, user="team", password=PASSWORD, **expected):
        login = ("--user", user, "--password-stdin")
        never = (password, *expected.pop("never", ()))
        return self.run(self.binary, "use", url, *options, *login, stdin=password + "\n", never=never, **expected)

    def texts(self):
        return {name: (self.home / name).read_text("utf-8") for name in FILES if (self.home / name).exists()}

    def tokens(self):
        return {name: TOKEN.findall(text) for name, text in self.texts().items()}

    def lack_password(self):
        for name, text in self.texts().items():
            assert PASSWORD not in text and urllib.parse.quote(PASSWORD, safe="") not in text, f"the password is in {name}"
            mode = (self.home / name).stat().st_mode & 0o777
            assert mode == 0o600 or not TOKEN.search(text), f"{name} has a token and the mode {mode:o}"

    def installed(self, *command):
        shutil.rmtree(self.work / "into", ignore_errors=True)
        self.run(*command, "--target", self.work / "into", "larder-app")
        return installed(self.work / "into")

    def publish_poem(self, **expected):
        project = self.work / "poem"
        if not project.exists():
            (project / "larder_poem").mkdir(parents=True)
            (project / "larder_poem" / "__init__.py").write_text("VERSION = '1.0'\n", encoding="utf-8")
            (project / "pyproject.toml").write_text(PUBLISHED, encoding="utf-8")
            self.run("poetry", "build", cwd=project)
        self.run("poetry", "publish", "--repository", "team-dev", cwd=project, **expected)

    def installs_everywhere(self, url):
        pip = environments.environment("pip") / "bin" / "python"
        expected = {"larder-app": "1.1"}
        check("pip", self.installed(pip, "-m", "pip", "install", "--no-cache-dir"), expected)
        check("uv", self.installed("uv", "pip", "install", "--no-cache"), expected)
        project = self.work / "project"
        shutil.rmtree(project, ignore_errors=True)
        project.mkdir()
        (project / "pyproject.toml").write_text(CONSUMER.format(url=url + "/+simple/"), encoding="utf-8")
        self.run("poetry", "add", "larder-app", cwd=project)
        check("poetry", installed(project / ".venv"), expected)


def listed(larder):
    return larder.must(200, "GET", "/+tokens", auth=larder.auth).json["tokens"]


def over_http(work):
    files = work / "files"
    with Larder(work) as larder:
        dev = f"{larder.url}/team/dev"
        larder.must(201, "PUT", "/reader", {"password": "of the reader"}, auth=("root", larder.root_password))
        larder.must(200, "PATCH", "/team/dev", {"acl_read": ["team", "reader"]}, auth=larder.auth)
        home = Home(work, "team", larder)
        home.use(dev, "--all", "--only", "--dry-run", says=["a token would be made: it only reads team/dev", "nothing was written"])
        check("no token of a dry run", listed(larder), [])
        home.use(dev, "--all", "--only", says=["it only reads team/dev, until", "it reads and uploads to team/dev, until"])
        home.lack_password()
        scopes = sorted(scope for token in listed(larder) for scope in token["scopes"])
        check("scopes", scopes, ["python:read", "python:upload"])
        for token in listed(larder):
            assert token["indexes"] == ["team/dev"] and token["expires_at"], token

        # Each uploads with what it was given, and installs.
        home.run("twine", "upload", "--non-interactive", "--repository", "team-dev", packages.wheel(files, "larder-app", "1.0"))
        home.run("uv", "publish", "--index", "team-dev", packages.wheel(files, "larder-app", "1.1"))
        home.publish_poem()
        home.installs_everywhere(dev)

        # What installs cannot upload.
        tokens = home.tokens()
        (reads,), (uploads,) = tokens[FILES[0]], tokens[FILES[2]]
        check("uv has both", tokens[FILES[1]], [reads, uploads])
        check("poetry has both", tokens[FILES[4]], [reads, uploads])
        answer = larder.upload("team/dev", packages.wheel(files, "larder-app", "2.0"), ("__token__", reads))
        check("an upload by what reads", answer.status, 403)
        larder.must(403, "DELETE", "/team/dev/larder-app", auth=("__token__", uploads))

        # Again: the same tokens. One that was revoked is made anew.
        home.use(dev, "--all", "--only", says=["is still good: it only reads team/dev", "nothing to change"])
        check("tokens stay", home.tokens(), tokens)
        larder.must(204, "DELETE", f"/+tokens/{reads.split('_')[1]}", auth=larder.auth)
        home.use(dev, "--all", "--only", says=["made the token", "is still good: it reads and uploads to"], never=["/.pypirc: +"])
        assert home.tokens()[FILES[0]] != [reads] and home.tokens()[FILES[2]] == [uploads], home.tokens()
        check("tokens", len(listed(larder)), 2)
        home.installs_everywhere(dev)

        # Without what uploads.
        home.use(dev, "--all", "--only", "--read-only", says="is still good: it only reads")
        check("no token to upload", [text for text in home.texts().values() if uploads in text], [])
        home.installs_everywhere(dev)
        more = packages.wheel(files, "larder-more", "1.0")
        home.run("uv", "publish", "--index", "team-dev", more, status=2)
        home.run("twine", "upload", "--non-interactive", "--repository", "team-dev", more, status=1)
        home.publish_poem(status=1)

        # Who may not upload gets one token.
        reader = Home(work, "reader", larder)
        says = ["it only reads team/dev", "`reader` may not upload to team/dev"]
        reader.use(dev, "--all", "--only", user="reader", password="of the reader", says=says, never=["uploads to"])
        reader.installs_everywhere(dev)
        reader.run("uv", "publish", "--index", "team-dev", more, status=2)

        # A password that is not the user's gets nothing.
        stranger = Home(work, "stranger", larder)
        stranger.use(dev, "--all", password="wrong", status=1, says="does not accept this user")
        check("no files", stranger.texts(), {})


def of_devpi_server(work):
    file = packages.wheel(work / "files", "larder-app", "1.1")
    with Larder(work) as larder, Devpi(work) as devpi:
        root = ("root", "")
        devpi.must(201, "PUT", "/team", {"password": PASSWORD}, auth=root)
        login = ("team", devpi.must(200, "POST", "/+login", {"user": "team", "password": PASSWORD}).result["password"])
        devpi.must(200, "PUT", "/team/dev", {"bases": []}, auth=login)
        home = Home(work, "devpi-home", larder)
        says = "warning: the files get the password itself, as the server makes no token with it"
        home.use(f"{devpi.url}/team/dev", "--all", "--only", says=says)
        check("tokens", [token for tokens in home.tokens().values() for token in tokens], [])
        home.run("twine", "upload", "--non-interactive", "--repository", "team-dev", file)
        home.installs_everywhere(f"{devpi.url}/team/dev")


def over_tls(work):
    if not shutil.which("openssl"):
        raise environments.Skipped("openssl is not installed")
    files, port = work / "files", free_port()
    with Larder(work, "tls", LARDER_PUBLIC_URL=f"https://localhost:{port}") as larder:
        gate = Gate(work, larder, port)
        dev = f"{gate.url}/team/dev"
        home = Home(work, "tls-home", larder)
        unknown = "signed by an authority that this machine does not know"
        home.use(dev, "--all", "--only", status=1, says=[unknown, "`SSL_CERT_FILE=FILE`", "PIP_CERT", "TWINE_CERT"])
        home.run(home.binary, "index", "list", "--server", gate.url, status=1, says=[unknown, "`SSL_CERT_FILE=FILE`"])
        home.run(home.binary, "login", gate.url, status=1, says=unknown)
        home.use(dev, "--all", "--only", SSL_CERT_FILE=gate.certificate, says=f"export SSL_CERT_FILE='{gate.certificate}'")
        home.run("twine", "upload", "--non-interactive", "--repository", "team-dev", packages.wheel(files, "larder-app", "1.0"))
        upload = ("uv", "publish", "--index", "team-dev", packages.wheel(files, "larder-app", "1.1"))
        home.run(*upload, SSL_CERT_FILE=gate.certificate)
        home.publish_poem()
        home.environment["SSL_CERT_FILE"] = str(gate.certificate)  # as it said, for uv
        home.installs_everywhere(dev)


def test(work):
    over_http(work)
    of_devpi_server(work)
    over_tls(work)


client(test)
