"""The requests of the comparison, in order: users, stages, uploads, pages, files, pushes, results, removals.

[`SCRIPT`] -> one request after another, each with a name that known differences refer to.

Each leaves behind what the next ones build on, so that the order matters.
"""

import urllib.parse
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import packages
from server import basic, multipart

HTML, SIMPLE, BROWSER = "text/html", "application/vnd.pypi.simple.v1+json", "text/html,application/xhtml+xml,*/*;q=0.8"
PIP = {"User-Agent": "pip/26.3 {}", "Accept": f"{SIMPLE}, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01"}
OLD_PIP = {"User-Agent": "pip/20.0.2 {}", "Accept": "text/html"}
POETRY = {"User-Agent": "poetry/2.5.1", "Accept": f"{SIMPLE}, */*;q=0.1"}
ANNA, BERT, ROOT = ("anna", "anna-secret"), ("bert", "bert-secret"), ("root", "")


@dataclass
class Step:
    """One request. `form` is fields and files of an upload; `path` may have `{name}` for the place of a file."""

    name: str
    method: str
    path: str
    body: Any = None
    auth: Any = None
    headers: dict = field(default_factory=dict)
    form: Any = None
    content: str | None = None
    keys_only: bool = False

    def request(self, files, site):
        headers, body, path = dict(self.headers), self.body, self.path
        if self.form is not None:
            data = [("content", self.content.rpartition("/")[2], (files / self.content).read_bytes())] if self.content else []
            body, headers["Content-Type"] = multipart(self.form, data)
        for key in ("auth-basic",):
            if key in headers:
                headers["Authorization"] = f"Basic {basic(*headers.pop(key))}"
        for name in PLACED:
            path = path.replace("{" + name + "}", place(files / name))
        if isinstance(body, dict) and str(body.get("posturl", "")).startswith("STUB/"):
            body = body | {"posturl": body["posturl"].replace("STUB", site.stub)}
        return SimpleNamespace(method=self.method, path=path, body=body, headers=headers, auth=self.auth)


def place(path):
    """Where a file is kept: the first digits of its digest."""
    import hashlib

    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"+f/{digest[:3]}/{digest[3:16]}/{path.name}"


APP, APP_SDIST, APP_OTHER = "larder_app-1.0-py3-none-any.whl", "larder_app-1.0.tar.gz", "other/larder_app-1.0-py3-none-any.whl"
APP_LATER, LIB, DOCS = "larder_app-1.1-py3-none-any.whl", "larder_lib-2.0-py3-none-any.whl", "larder-app-1.0.doc.zip"
LOCAL = "larder_app-1.2+local.1-py3-none-any.whl"
NO_TAGS, LONGER = "larder_app-1.4.whl", "larder_apples-1.0.zip"
PLACED = (APP, APP_SDIST, APP_OTHER, APP_LATER, LIB, DOCS, NO_TAGS, LONGER)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}  # what `curl -d` says of whatever it sends


def make_files(directory):
    """Writes the files that are uploaded."""
    packages.both(directory, "larder-app", "1.0", requires=["larder-lib"], requires_python=">=3.6")
    packages.wheel(directory / "other", "larder-app", "1.0", mark="other", requires=["larder-lib"], requires_python=">=3.6")
    packages.wheel(directory, "larder-app", "1.1")
    packages.wheel(directory, "larder-app", "1.2+local.1")
    packages.wheel(directory, "larder-lib", "2.0")
    packages.documentation(directory, "larder-app", "1.0", "documentation")
    (directory / "larder-app-1.0.txt").write_bytes(b"text")
    (directory / NO_TAGS).write_bytes(b"no tags")
    (directory / LONGER).write_bytes(b"not a zip")


SCRIPT = []


def step(name, method, path, body=None, auth=None, **more):
    SCRIPT.append(Step(name, method, path, body, auth, **more))


def upload(name, path, content, fields=(), auth=ANNA, action="file_upload", **more):
    """An upload of the release file `content`, with more fields or other ones."""
    form = {":action": action, "name": "larder-app", "version": "1.0", "metadata_version": "2.1"} | dict(fields)
    form = [(key, one) for key, value in form.items() if value is not None for one in (value if isinstance(value, list) else [value])]
    SCRIPT.append(Step(name, "POST", path, None, auth, more.pop("headers", {}), form, content, **more))


# ---- what there is at first

step("api", "GET", "/+api")
step("api-html", "GET", "/+api", headers={"Accept": HTML})
step("api-any", "GET", "/+api", headers={"Accept": "*/*"})
step("api-user-missing", "GET", "/nobody/+api")
step("api-index-missing", "GET", "/nobody/dev/+api")
step("users-first", "GET", "/")
step("user-root", "GET", "/root")
step("user-missing", "GET", "/nobody")
step("status", "GET", "/+status", keys_only=True)
step("nothing-here", "GET", "/+nothing")
step("api-slash", "GET", "/+api/")
step("api-put", "PUT", "/+api", {})
step("api-proto", "GET", "/+api", headers={"X-Forwarded-Proto": "https"})

# ---- logins

step("login-root", "POST", "/+login", {"user": "root", "password": ""})
step("login-wrong", "POST", "/+login", {"user": "root", "password": "wrong"})
step("login-nobody", "POST", "/+login", {"user": "nobody", "password": "x"})
step("login-no-password", "POST", "/+login", {"user": "root"})
step("login-no-user", "POST", "/+login", {"password": "x"})
step("login-not-json", "POST", "/+login", b"{", headers={"Content-Type": "application/json"})
step("login-list", "POST", "/+login", [])
step("login-no-body", "POST", "/+login")
step("login-get", "GET", "/+login")
step("login-form-type", "POST", "/+login", b'{"user": "root", "password": ""}', headers=FORM)
step("login-text-type", "POST", "/+login", b'{"user": "root", "password": ""}', headers={"Content-Type": "text/plain"})
step("login-html", "POST", "/+login", {"user": "root", "password": ""}, headers={"Accept": HTML})

# ---- users

step("user-create", "PUT", "/anna", {"password": "anna-secret", "email": "anna@upstream.example"})
step("user-create-slash", "PUT", "/bert/", {"password": "bert-secret"})
step("user-create-again", "PUT", "/anna", {"password": "other"})
step("user-create-no-password", "PUT", "/carla", {"email": "c@upstream.example"})
step("user-create-bad-name", "PUT", "/b!d", {"password": "x"})
step("user-create-colon", "PUT", "/b:d", {"password": "x"})
step("user-create-unknown-keys", "PUT", "/carla", {"password": "x", "zebra": 1})
step("user-create-all-keys", "PUT", "/dora", {"password": "x", "title": "Dora", "description": "d", "custom_data": {"a": 1}, "email": ""})
step("user-create-not-json", "PUT", "/carla", b"{", headers={"Content-Type": "application/json"})
step("user-create-no-body", "PUT", "/carla")
step("user-create-no-type", "PUT", "/emil", b'{"password": "x"}')
step("user-create-unicode", "PUT", "/" + urllib.parse.quote("jürgen"), {"password": "x"})
step("user-unicode", "GET", "/" + urllib.parse.quote("jürgen"))
for what, name in (("emoji", "\U0001f600"), ("emoji-joined", "\U0001f469\u200d\U0001f4bb"), ("euro", "€uro"), ("quotes", "„a“"), ("zero-width", "a\u200bb"),
                   ("wide-space", "a\u2003b"), ("right-to-left", "a\u202eb"), ("private-use", "a\ue000")):  # fmt: skip
    step(f"user-create-{what}", "PUT", "/" + urllib.parse.quote(name), {"password": "x"})
    step(f"user-{what}", "GET", "/" + urllib.parse.quote(name))
step("user-create-space", "PUT", "/a%20b", {"password": "x"})
step("user-create-form-type", "PUT", "/frida", b'{"password": "x"}', headers=FORM)
step("user-dots", "PUT", "/f.g-h_i@j", {"password": "x"})
step("user-create-logged-in", "PUT", "/gina", {"password": "x"}, auth=ANNA)
step("user", "GET", "/anna")
step("user-slash", "GET", "/anna/")
step("user-html", "GET", "/anna", headers={"Accept": HTML})
step("user-head", "HEAD", "/anna")
step("user-post", "POST", "/anna", {})
step("user-patch-anonymous", "PATCH", "/anna", {"email": "x@upstream.example"})
step("user-patch-other", "PATCH", "/anna", {"email": "x@upstream.example"}, auth=BERT)
step("user-patch-password-other", "PATCH", "/anna", {"password": "mine"}, auth=BERT)
step("user-patch", "PATCH", "/anna", {"email": "new@upstream.example", "title": "Anna"}, auth=ANNA)
step("user-patch-whole", "PATCH", "/anna", {"username": "anna", "email": "new@upstream.example", "title": "Anna B", "created": "2026-01-01T00:00:00Z", "indexes": {}}, auth=ANNA)
step("user-patch-unknown", "PATCH", "/anna", {"zebra": 1, "title": "Anna"}, auth=ANNA)
step("user-patch-remove", "PATCH", "/anna", {"title": ""}, auth=ANNA)
step("user-patched", "GET", "/anna", auth=ANNA)
step("user-patch-missing", "PATCH", "/nobody", {"title": "x"}, auth=ROOT)
step("user-patch-not-json", "PATCH", "/anna", b"[", auth=ANNA)
step("user-patch-wrong-password", "PATCH", "/anna", {"title": "x"}, auth=("anna", "wrong"))
step("user-patch-password", "PATCH", "/anna", {"password": "anna-second"}, auth=ANNA)
step("user-patch-password-back", "PATCH", "/anna", {"password": "anna-secret"}, auth=("anna", "anna-second"))
step("user-patch-password-empty", "PATCH", "/emil", {"password": ""}, auth=("emil", "x"))
step("user-patch-basic", "PATCH", "/anna", {"title": "By Basic"}, headers={"auth-basic": ANNA})
step("user-patch-two-logins", "PATCH", "/anna", {"title": "By X"}, auth=ANNA, headers={"auth-basic": BERT})
step("user-patch-missing-anonymous", "PATCH", "/nobody", {"title": "x"})
step("user-patch-missing-other", "PATCH", "/nobody", {"title": "x"}, auth=BERT)
step("user-patch-form-type", "PATCH", "/anna", b'{"title": "By form"}', auth=ANNA, headers=FORM)
step("user-delete-missing-anonymous", "DELETE", "/nobody")
step("user-delete-missing-other", "DELETE", "/nobody", auth=BERT)
step("user-delete-missing", "DELETE", "/nobody", auth=ROOT)
step("user-delete-root", "DELETE", "/root", auth=ROOT)
step("user-delete-other", "DELETE", "/anna", auth=BERT)
step("user-delete-anonymous", "DELETE", "/anna")
step("user-delete", "DELETE", "/dora", auth=ROOT)
step("user-delete-own", "DELETE", "/gina", auth=("gina", "x"))

# ---- stages

step("index-create", "PUT", "/anna/base", {}, auth=ANNA)
step("index-create-slash", "PUT", "/anna/middle/", {"bases": ["anna/base"]}, auth=ANNA)
step("index-create-csv", "PUT", "/anna/dev", {"bases": "anna/middle,anna/base", "volatile": "yes", "acl_upload": "anna,:group", "title": "Dev"}, auth=ANNA)
step("index-create-again", "PUT", "/anna/dev", {}, auth=ANNA)
step("index-create-anonymous", "PUT", "/anna/more", {})
step("index-create-other", "PUT", "/anna/more", {}, auth=BERT)
step("index-create-again-other", "PUT", "/anna/dev", {}, auth=BERT)
step("index-create-again-anonymous", "PUT", "/anna/dev", {})
step("index-create-no-user-anonymous", "PUT", "/nobody/dev", {})
step("index-create-no-user-other", "PUT", "/nobody/dev", {}, auth=BERT)
step("index-create-no-body", "PUT", "/anna/more", auth=ANNA)
step("index-create-form-type", "PUT", "/anna/form", b"{}", auth=ANNA, headers=FORM)
step("index-create-root", "PUT", "/bert/dev", {"volatile": False}, auth=ROOT)
step("index-create-no-user", "PUT", "/nobody/dev", {}, auth=ROOT)
step("index-create-bad-name", "PUT", "/anna/b!d", {}, auth=ANNA)
step("index-create-unknown-type", "PUT", "/anna/more", {"type": "zebra"}, auth=ANNA)
step("index-create-unknown-key", "PUT", "/anna/more", {"zebra": "1"}, auth=ANNA)
step("index-create-unknown-keys", "PUT", "/anna/more", {"zebra": "1", "apple": [2]}, auth=ANNA)
step("index-create-missing-base", "PUT", "/anna/more", {"bases": ["anna/nothing"]}, auth=ANNA)
step("index-create-bad-base", "PUT", "/anna/more", {"bases": ["nothing"]}, auth=ANNA)
step("index-create-bad-bases", "PUT", "/anna/more", {"bases": ["nothing", "anna/nothing", "a/b/c"]}, auth=ANNA)
step("index-create-bad-boolean", "PUT", "/anna/more", {"volatile": "perhaps"}, auth=ANNA)
step("index-create-bad-inheritance", "PUT", "/anna/more", {"mirror_whitelist_inheritance": "both"}, auth=ANNA)
step("index-create-not-json", "PUT", "/anna/more", b"{", auth=ANNA)
step("index-create-everything", "PUT", "/anna/all", {
    "type": "stage", "volatile": "False", "acl_upload": [":anonymous:", ":authenticated:", ":g", "bert"], "acl_toxresult_upload": "bert",
    "mirror_whitelist": ["Foo_Bar", "*"], "mirror_whitelist_inheritance": "union", "title": "All", "description": "d", "custom_data": "c",
}, auth=ANNA)  # fmt: skip
step("index-create-self-base", "PUT", "/anna/self", {"bases": ["anna/self"]}, auth=ANNA)
step("index-create-projects", "PUT", "/anna/projects", {"projects": ["x"]}, auth=ANNA)
step("index-create-mirror-no-url", "PUT", "/bert/mirror", {"type": "mirror"}, auth=BERT)
step("index-create-mirror-bad-url", "PUT", "/bert/other", {"type": "mirror", "mirror_url": "ftp://upstream.example/"}, auth=BERT)
step("index-create-mirror", "PUT", "/anna/mirror", {"type": "mirror", "mirror_url": "http://127.0.0.1:9/simple"}, auth=ANNA)
step("index", "GET", "/anna/dev")
step("index-slash", "GET", "/anna/dev/")
step("index-no-projects", "GET", "/anna/dev?no_projects=")
step("index-all", "GET", "/anna/all")
step("index-mirror", "GET", "/anna/mirror?no_projects=")
step("index-missing", "GET", "/anna/nothing")
step("index-missing-user", "GET", "/nobody/nothing")
step("index-html", "GET", "/anna/dev", headers={"Accept": HTML})
step("index-head", "HEAD", "/anna/dev")
step("index-api", "GET", "/anna/dev/+api")
step("index-api-login", "GET", "/anna/dev/+api", auth=ANNA)
step("index-api-wrong", "GET", "/anna/dev/+api", auth=("anna", "wrong"))
step("index-api-mirror", "GET", "/anna/mirror/+api")
step("user-with-indexes", "GET", "/anna")
step("index-patch-anonymous", "PATCH", "/anna/dev", ["title=x"])
step("index-patch-other", "PATCH", "/anna/dev", ["title=x"], auth=BERT)
step("index-patch-missing", "PATCH", "/anna/nothing", ["title=x"], auth=ANNA)
step("index-patch-set", "PATCH", "/anna/dev", ["title=New", "volatile=False"], auth=ANNA)
step("index-patch-add", "PATCH", "/anna/dev", ["acl_upload+=bert", "acl_upload+=bert", "mirror_whitelist+=Foo_Bar"], auth=ANNA)
step("index-patch-remove", "PATCH", "/anna/dev", ["acl_upload-=:group", "acl_upload-=bert"], auth=ANNA)
step("index-patch-remove-missing", "PATCH", "/anna/dev", ["acl_upload-=zebra"], auth=ANNA)
step("index-patch-drop", "PATCH", "/anna/dev", ["title-="], auth=ANNA)
step("index-patch-drop-missing", "PATCH", "/anna/dev", ["description-="], auth=ANNA)
step("index-patch-drop-default", "PATCH", "/anna/dev", ["volatile-="], auth=ANNA)
step("index-patch-add-to-text", "PATCH", "/anna/dev", ["description+=x"], auth=ANNA)
step("index-patch-add-unknown", "PATCH", "/anna/dev", ["zebra+=x"], auth=ANNA)
step("index-patch-no-operator", "PATCH", "/anna/dev", ["zebra"], auth=ANNA)
step("index-patch-numbers", "PATCH", "/anna/dev", [1], auth=ANNA)
step("index-patch-dict", "PATCH", "/anna/dev", {"title": "By dict", "volatile": True}, auth=ANNA)
step("index-patch-slash", "PATCH", "/anna/dev/", {"description": "d"}, auth=ANNA)
step("index-patch-whole", "PATCH", "/anna/dev", {"type": "indexconfig", "result": {
    "type": "stage", "volatile": True, "acl_upload": ["anna"], "acl_toxresult_upload": [":ANONYMOUS:"], "bases": ["anna/middle"],
    "mirror_whitelist": [], "mirror_whitelist_inheritance": "intersection", "title": "Whole", "projects": ["x"],
}}, auth=ANNA)  # fmt: skip
step("index-patch-form-type", "PATCH", "/anna/form", b'["title=By form"]', auth=ANNA, headers=FORM)
step("index-patch-type", "PATCH", "/anna/dev", {"type": "mirror"}, auth=ANNA)
step("index-patch-type-list", "PATCH", "/anna/dev", ["type=mirror"], auth=ANNA)
step("index-patch-unknown", "PATCH", "/anna/dev", {"zebra": "1"}, auth=ANNA)
step("index-patch-unknown-list", "PATCH", "/anna/dev", ["zebra=1"], auth=ANNA)
step("index-patch-bad-base", "PATCH", "/anna/dev", ["bases=nothing"], auth=ANNA)
step("index-patch-missing-base", "PATCH", "/anna/dev", ["bases=anna/nothing"], auth=ANNA)
step("index-patch-bad-boolean", "PATCH", "/anna/dev", ["volatile=perhaps"], auth=ANNA)
step("index-patch-bad-inheritance", "PATCH", "/anna/dev", ["mirror_whitelist_inheritance=both"], auth=ANNA)
step("index-patch-noop", "PATCH", "/anna/dev", {"title": "Whole"}, auth=ANNA)
step("index-patch-noop-error", "PATCH", "/anna/dev?error_on_noop=", {"title": "Whole"}, auth=ANNA)
step("index-patch-noop-error-list", "PATCH", "/anna/dev?error_on_noop", ["title=Whole"], auth=ANNA)
step("index-patch-empty-text", "PATCH", "/anna/dev", ["description="], auth=ANNA)
step("index-patch-drop-unknown", "PATCH", "/anna/dev", ["nothing-="], auth=ANNA)
step("index-patch-empty", "PATCH", "/anna/dev", {}, auth=ANNA)
step("index-patch-text", "PATCH", "/anna/dev", b'"x"', auth=ANNA)
step("index-patch-not-json", "PATCH", "/anna/dev", b"{", auth=ANNA)
OF_OLD_CLIENT = {"type": "mirror", "mirror_url": "http://upstream.example/simple", "bases": "", "acl_upload": "bert"}
step("index-mirror-of-old-client", "PUT", "/bert/old", OF_OLD_CLIENT, auth=BERT)
step("index-mirror-bad-expiry", "PATCH", "/bert/old", ["mirror_cache_expiry=soon"], auth=BERT)
step("index-mirror-drop-url", "PATCH", "/bert/old", ["mirror_url-="], auth=BERT)
step("index-patch-result", "GET", "/anna/dev")
step("index-delete-missing", "DELETE", "/anna/nothing", auth=ANNA)
step("index-delete-anonymous", "DELETE", "/anna/all")
step("index-delete-other", "DELETE", "/anna/all", auth=BERT)
step("index-delete-non-volatile", "DELETE", "/anna/all", auth=ANNA)
step("index-make-volatile", "PATCH", "/anna/all", ["volatile=True"], auth=ANNA)
step("index-delete", "DELETE", "/anna/all", auth=ANNA)
step("index-deleted", "GET", "/anna/all")
step("user-delete-with-index", "DELETE", "/bert", auth=ROOT)

# ---- uploads

upload("upload-anonymous", "/anna/dev/", APP, auth=None)
upload("upload-anonymous-html", "/anna/dev/", APP, auth=None, headers={"Accept": BROWSER})
upload("upload-wrong-password", "/anna/dev/", APP, auth=("anna", "wrong"))
upload("upload-other", "/anna/dev/", APP, auth=BERT)
upload("upload-missing-index", "/anna/nothing/", APP)
upload("upload-mirror", "/anna/mirror/", APP)
upload("upload-no-action", "/anna/dev/", APP, {":action": None})
upload("upload-bad-action", "/anna/dev/", APP, action="zebra")
upload("upload-no-content", "/anna/dev/", None)
upload("upload-no-name", "/anna/dev/", APP, {"name": None})
upload("upload-no-version", "/anna/dev/", APP, {"version": None})
upload("upload-other-version", "/anna/dev/", APP, {"version": "3.0"})
upload("upload-other-name", "/anna/dev/", APP, {"name": "zebra"})
upload("upload-bad-archive", "/anna/dev/", "larder-app-1.0.txt")
upload("upload-bad-name", "/anna/dev/", APP, {"name": "../x"})
upload("upload-docs-before-release", "/anna/dev/", DOCS, action="doc_upload")
upload("upload-docs-no-version", "/anna/dev/", DOCS, {"version": None}, action="doc_upload")
upload("submit", "/anna/dev/", None, {"summary": "A summary", "classifiers": ["A :: B", "C :: D"]}, action="submit")
step("submit-urlencoded", "POST", "/anna/dev/", b"%3Aaction=submit&name=larder-app&version=1.0&summary=Encoded", auth=ANNA,
     headers={"Content-Type": "application/x-www-form-urlencoded"})  # fmt: skip
upload("submit-no-version", "/anna/dev/", None, {"version": None}, action="submit")
upload("submit-bad-name", "/anna/dev/", None, {"name": "a/b"}, action="submit")
upload("upload", "/anna/dev/", APP, {
    "summary": "A package for tests", "requires_python": ">=3.6", "requires_dist": ["larder-lib"], "classifiers": ["A :: B", "C :: D"],
    "filetype": "bdist_wheel", "pyversion": "py3", "license": "UNKNOWN", "author": "Anna", "project_urls": ["Home, http://upstream.example"],
    "description": "Long\ntext", "keywords": "a,b", "zebra": "1",
})  # fmt: skip
upload("upload-sdist-no-slash", "/anna/dev", APP_SDIST, {"requires_python": ">=3.6"})
upload("upload-again", "/anna/dev/", APP, {"requires_python": ">=3.6"})
upload("upload-changed", "/anna/dev/", APP_OTHER, {"requires_python": ">=3.6"})
upload("upload-later", "/anna//dev/".replace("//dev", "/dev"), APP_LATER, {"version": "1.1"})
upload("upload-two-slashes", "//anna/dev/", APP_LATER, {"version": "1.1"})
upload("upload-local-version", "/anna/dev/", LOCAL, {"version": "1.2+local.1"})
upload("upload-other-spelling", "/anna/dev/", APP_SDIST, {"name": "Larder_App", "requires_python": ">=3.6"})
upload("upload-docs", "/anna/dev/", DOCS, action="doc_upload")
upload("upload-docs-again", "/anna/dev/", DOCS, action="doc_upload")
upload("upload-lib", "/anna/base/", LIB, {"name": "larder-lib", "version": "2.0"})
upload("upload-shadowed", "/anna/base/", APP, {"summary": "of the base", "requires_python": ">=3.6"})
upload("upload-basic", "/anna/base/", LIB, {"name": "larder-lib", "version": "2.0"}, auth=None, headers={"auth-basic": ANNA})
upload("upload-to-simple", "/anna/dev/+simple/", APP)
upload("upload-to-project", "/anna/dev/larder-app/", APP)
upload("upload-non-volatile", "/bert/dev/", APP, auth=BERT)
upload("upload-non-volatile-again", "/bert/dev/", APP, auth=BERT)
upload("upload-non-volatile-changed", "/bert/dev/", APP_OTHER, auth=BERT)
upload("upload-non-volatile-changed-html", "/bert/dev/", APP_OTHER, auth=BERT, headers={"Accept": BROWSER})
upload("upload-non-volatile-changed-any", "/bert/dev/", APP_OTHER, auth=BERT, headers={"Accept": "*/*"})
upload("upload-non-volatile-changed-uv", "/bert/dev/", APP_OTHER, auth=BERT, headers={"Accept": "application/json;q=0.9, text/plain;q=0.8, text/html;q=0.7"})
upload("submit-non-volatile", "/bert/dev/", None, {"summary": "changed"}, auth=BERT, action="submit")

upload("upload-docs-empty-version", "/anna/dev/", DOCS, {"version": ""}, action="doc_upload")
upload("upload-empty-version", "/anna/dev/", APP, {"version": ""})
upload("submit-empty-version", "/anna/dev/", None, {"version": ""}, action="submit")
step("posted-form-without-action", "POST", "/anna/dev/", b"name=larder-app&version=1.0", auth=ANNA, headers=FORM)
step("posted-nothing", "POST", "/anna/dev/", auth=ANNA)
step("posted-nothing-as-form", "POST", "/anna/dev/", b"", auth=ANNA, headers=FORM)

# ---- names of files that say little

step("odd-index", "PUT", "/anna/odd", {"volatile": False}, auth=ANNA)
upload("odd-no-tags", "/anna/odd/", NO_TAGS, {"version": "1.4"})
upload("odd-no-tags-again", "/anna/odd/", NO_TAGS, {"version": "1.4"})
upload("odd-longer-name", "/anna/odd/", LONGER)
upload("odd-other-version", "/anna/odd/", NO_TAGS, {"version": "2.0"})
step("odd-page", "GET", "/anna/odd/+simple/larder-app/", headers=OLD_PIP)
step("odd-file", "GET", "/anna/odd/{%s}" % NO_TAGS, headers={"Accept": "*/*"})
step("odd-file-longer", "GET", "/anna/odd/{%s}" % LONGER, headers={"Accept": "*/*"})
step("odd-version", "GET", "/anna/odd/larder-app/1.4")
step("odd-volatile", "PATCH", "/anna/odd", ["volatile=True"], auth=ANNA)

# ---- limits on Python versions, of a release and of its files

step("python-index", "PUT", "/anna/python", {}, auth=ANNA)
upload("python-wheel", "/anna/python/", APP, {"requires_python": ">=3.6"})
upload("python-sdist", "/anna/python/", APP_SDIST, {"requires_python": ">=3.9"})
step("python-page", "GET", "/anna/python/+simple/larder-app/", headers=PIP)
upload("python-submit", "/anna/python/", None, {"requires_python": ">=3.11"}, action="submit")
step("python-page-after-submit", "GET", "/anna/python/+simple/larder-app/", headers=PIP)
step("python-version", "GET", "/anna/python/larder-app/1.0")

# ---- bases in rings, by two ways, and gone

step("ring-one", "PUT", "/anna/ring1", {}, auth=ANNA)
step("ring-two", "PUT", "/anna/ring2", {"bases": ["anna/ring1"]}, auth=ANNA)
step("ring-closed", "PATCH", "/anna/ring1", ["bases=anna/ring2"], auth=ANNA)
step("ring-own", "PATCH", "/anna/ring2", ["bases+=anna/ring2"], auth=ANNA)
upload("ring-upload", "/anna/ring2/", LIB, {"name": "larder-lib", "version": "2.0"})
upload("ring-upload-other", "/anna/ring1/", LIB, {"name": "larder-lib", "version": "2.0"})
for number in (1, 2):
    step(f"ring-index-{number}", "GET", f"/anna/ring{number}")
    step(f"ring-list-{number}", "GET", f"/anna/ring{number}/+simple/", headers=OLD_PIP)
    step(f"ring-page-{number}", "GET", f"/anna/ring{number}/+simple/larder-lib/", headers=OLD_PIP)
    step(f"ring-version-{number}", "GET", f"/anna/ring{number}/larder-lib/2.0")
step("ring-delete", "DELETE", "/anna/ring2", auth=ANNA)
step("ring-index-after", "GET", "/anna/ring1")
step("ring-page-after", "GET", "/anna/ring1/+simple/larder-lib/", headers=OLD_PIP)

for name, bases in (("below", []), ("left", ["anna/below"]), ("right", ["anna/below"]), ("above", ["anna/left", "anna/right"]), ("again", ["anna/left", "anna/below"])):
    step(f"ways-{name}", "PUT", f"/anna/{name}", {"bases": bases}, auth=ANNA)
for name in ("below", "above", "again"):
    upload(f"ways-upload-{name}", f"/anna/{name}/", LIB, {"name": "larder-lib", "version": "2.0", "summary": name})
for name in ("above", "again"):
    step(f"ways-version-{name}", "GET", f"/anna/{name}/larder-lib/2.0")
    step(f"ways-project-{name}", "GET", f"/anna/{name}/larder-lib")
    step(f"ways-page-{name}", "GET", f"/anna/{name}/+simple/larder-lib/", headers=OLD_PIP)

step("base-gone", "PUT", "/anna/gone", {}, auth=ANNA)
step("base-child", "PUT", "/anna/child", {"bases": ["anna/gone"]}, auth=ANNA)
for what in ("list", "whole", "add"):
    step(f"base-child-{what}", "PUT", f"/anna/child-{what}", {"bases": ["anna/gone"]}, auth=ANNA)
upload("base-upload", "/anna/gone/", LIB, {"name": "larder-lib", "version": "2.0"})
step("base-delete", "DELETE", "/anna/gone", auth=ANNA)
step("base-file", "GET", "/anna/gone/{%s}" % LIB, headers={"Accept": "*/*"})
step("base-file-json", "GET", "/anna/gone/{%s}" % LIB)
step("base-file-delete", "DELETE", "/anna/gone/{%s}" % LIB, auth=ANNA)
step("base-file-never", "GET", "/anna/gone/+f/abc/0123456789abc/larder_lib-9.0.tar.gz", headers={"Accept": "*/*"})
step("base-page", "GET", "/anna/gone/+simple/larder-lib/", headers=OLD_PIP)
step("base-child-index", "GET", "/anna/child")
step("base-child-patch", "PATCH", "/anna/child", {"title": "y"}, auth=ANNA)
step("base-child-page", "GET", "/anna/child/+simple/", headers=OLD_PIP)
for what, patch in (("list", ["title=x"]), ("whole", {"type": "stage", "bases": ["anna/gone"], "title": "z"}), ("add", ["bases+=anna/below"])):
    step(f"base-child-patch-{what}", "PATCH", f"/anna/child-{what}", patch, auth=ANNA)
step("base-child-remove", "PATCH", "/anna/child", ["bases-=anna/gone"], auth=ANNA)
step("base-child-index-after", "GET", "/anna/child")

# ---- pages

for who, headers in (("pip", PIP), ("old-pip", OLD_PIP), ("poetry", POETRY), ("browser", {"Accept": BROWSER}), ("json", {}), ("any", {"Accept": "*/*"})):
    for what, path in (("project", "/anna/dev/+simple/larder-app/"), ("no-slash", "/anna/dev/+simple/larder-app"), ("list", "/anna/dev/+simple/"),
                       ("list-no-slash", "/anna/dev/+simple"), ("bare-index", "/anna/dev"), ("bare-project", "/anna/dev/larder-app")):  # fmt: skip
        step(f"simple-{what}-{who}", "GET", path, headers=headers)
step("simple-v1-html", "GET", "/anna/dev/+simple/larder-app/", headers={"Accept": "application/vnd.pypi.simple.v1+html"})
step("simple-image", "GET", "/anna/dev/+simple/larder-app/", headers={"Accept": "image/png"})
step("simple-no-accept", "GET", "/anna/dev/+simple/larder-app/", headers={"Accept": None})
step("simple-quality", "GET", "/anna/dev/+simple/larder-app/", headers={"Accept": f"{SIMPLE};q=0.1, text/html"})
step("simple-head", "HEAD", "/anna/dev/+simple/larder-app/", headers=PIP)
step("simple-list-head", "HEAD", "/anna/dev/+simple/", headers=PIP)
step("simple-other-spelling", "GET", "/anna/dev/+simple/Larder_App/", headers=PIP)
step("simple-other-spelling-old", "GET", "/anna/dev/+simple/Larder.App", headers=OLD_PIP)
step("simple-missing", "GET", "/anna/dev/+simple/nothing/", headers=PIP)
step("simple-missing-old", "GET", "/anna/dev/+simple/nothing/", headers=OLD_PIP)
step("simple-missing-index", "GET", "/anna/nothing/+simple/larder-app/", headers=PIP)
step("simple-missing-index-list", "GET", "/anna/nothing/+simple/", headers=PIP)
step("simple-unicode", "GET", "/anna/dev/+simple/" + urllib.parse.quote("größe") + "/", headers=PIP)
step("simple-escaped", "GET", "/anna/dev/%2Bsimple/larder-app/", headers=OLD_PIP)
step("simple-post", "POST", "/anna/dev/+simple/", b"", auth=ANNA)
step("simple-outside", "GET", "/anna/dev/+simple/larder-app/", headers=OLD_PIP | {"X-Outside-URL": "https://out.upstream.example/prefix"})
step("simple-absolute", "GET", "/anna/dev/+simple/larder-app/", headers=OLD_PIP | {"X-Devpi-Absolute-URLs": "1"})
step("simple-absolute-json", "GET", "/anna/dev/+simple/larder-app/", headers=PIP | {"X-Devpi-Absolute-URLs": "1"})
step("simple-base-of-base", "GET", "/anna/dev/+simple/larder-lib/", headers=OLD_PIP)
step("refresh", "POST", "/anna/dev/+simple/larder-app/refresh", b"")
step("refresh-missing", "POST", "/anna/dev/+simple/nothing/refresh", b"")
step("api-outside", "GET", "/anna/dev/+api", headers={"X-Outside-URL": "https://out.upstream.example/prefix"})

# ---- files

step("file", "GET", "/anna/dev/{%s}" % APP_OTHER)
step("file-pip", "GET", "/anna/dev/{%s}" % APP_OTHER, headers={"User-Agent": PIP["User-Agent"], "Accept": "*/*"})
step("file-any", "GET", "/anna/dev/{%s}" % APP_SDIST, headers={"Accept": "*/*"})
step("file-head", "HEAD", "/anna/dev/{%s}" % APP_OTHER, headers={"Accept": "*/*"})
step("file-range", "GET", "/anna/dev/{%s}" % APP_OTHER, headers={"Accept": "*/*", "Range": "bytes=0-9"})
step("file-replaced", "GET", "/anna/dev/{%s}" % APP, headers={"Accept": "*/*"})
step("file-missing", "GET", "/anna/dev/+f/abc/0123456789abc/larder_app-9.0.tar.gz", headers={"Accept": "*/*"})
step("file-missing-json", "GET", "/anna/dev/+f/abc/0123456789abc/larder_app-9.0.tar.gz")
step("file-of-base", "GET", "/anna/base/{%s}" % LIB, headers={"Accept": "*/*"})
step("file-of-base-here", "GET", "/anna/dev/{%s}" % LIB, headers={"Accept": "*/*"})
step("file-documentation", "GET", "/anna/dev/{%s}" % DOCS, headers={"Accept": "*/*"})
step("file-metadata", "GET", "/anna/dev/{%s}.metadata" % APP_OTHER, headers={"Accept": "*/*"})
step("file-post", "POST", "/anna/dev/+f/abc/0123456789abc/larder_app-9.0.tar.gz", {"a": 1})
step("file-put", "PUT", "/anna/dev/{%s}" % APP_OTHER, b"x", auth=ANNA)
step("file-external-missing", "GET", "/anna/dev/+e/http_upstream.example/x-1.0.tar.gz", headers={"Accept": "*/*"})

# ---- projects and versions

step("project", "GET", "/anna/dev/larder-app")
step("project-slash", "GET", "/anna/dev/larder-app/")
step("project-own", "GET", "/anna/dev/larder-app?ignore_bases=")
step("project-of-base", "GET", "/anna/dev/larder-lib")
step("project-of-base-ignored", "GET", "/anna/dev/larder-lib?ignore_bases=")
step("project-other-spelling", "GET", "/anna/dev/Larder_App")
step("project-missing", "GET", "/anna/dev/nothing")
step("project-missing-index", "GET", "/anna/nothing/larder-app")
step("project-outside", "GET", "/anna/base/larder-lib", headers={"X-Outside-URL": "https://out.upstream.example/prefix"})
step("project-html", "GET", "/anna/dev/larder-app", headers={"Accept": HTML})
step("version", "GET", "/anna/dev/larder-app/1.0")
step("version-slash", "GET", "/anna/dev/larder-app/1.1/")
step("version-local", "GET", "/anna/dev/larder-app/1.2+local.1")
step("version-missing", "GET", "/anna/dev/larder-app/9.0")
step("version-other-spelling", "GET", "/anna/dev/Larder_App/1.0")
step("version-missing-project", "GET", "/anna/dev/nothing/1.0")
step("index-with-projects", "GET", "/anna/dev")

# ---- test results

TOX = {"reportversion": "1", "toxversion": "4", "platform": "linux", "host": "here", "testenvs": {"py": {"test": [], "setup": []}}}
step("tox", "POST", "/anna/dev/{%s}" % APP_OTHER, TOX)
step("tox-again", "POST", "/anna/dev/{%s}" % APP_OTHER, TOX, auth=BERT)
step("tox-not-json", "POST", "/anna/dev/{%s}" % APP_OTHER, b"{", headers={"Content-Type": "application/json"})
step("tox-form-type", "POST", "/anna/dev/{%s}" % APP_OTHER, b'{"testenvs": {}}', headers=FORM)
step("tox-missing", "POST", "/anna/dev/+f/abc/0123456789abc/larder_app-9.0.tar.gz", TOX, auth=ANNA)
step("tox-closed", "PATCH", "/anna/dev", ["acl_toxresult_upload=anna"], auth=ANNA)
step("tox-anonymous", "POST", "/anna/dev/{%s}" % APP_OTHER, TOX)
step("tox-other", "POST", "/anna/dev/{%s}" % APP_OTHER, TOX, auth=BERT)
step("tox-listed", "GET", "/anna/dev/larder-app/1.0")

# ---- pushes


def push(name, body, auth=ANNA, method="PUSH", path="/anna/dev", **more):
    step(name, method, path, {"name": "larder-app", "version": "1.0", **body}, auth=auth, **more)


step("push-target", "PUT", "/anna/target", {}, auth=ANNA)
push("push", {"targetindex": "anna/target"})
push("push-again", {"targetindex": "anna/target"}, method="POST")
push("push-slash", {"targetindex": "anna/target"}, path="/anna/dev/")
push("push-no-docs", {"targetindex": "anna/target", "no_docs": True})
push("push-only-docs", {"targetindex": "anna/target", "only_docs": True})
push("push-both-options", {"targetindex": "anna/target", "only_docs": True, "no_docs": True})
push("push-unknown-option", {"targetindex": "anna/target", "zebra": 1})
push("push-bad-target", {"targetindex": "target"})
push("push-missing-target", {"targetindex": "anna/nothing"})
push("push-mirror-target", {"targetindex": "anna/mirror"})
push("push-no-target", {})
push("push-missing-version", {"targetindex": "anna/target", "version": "9.0"})
push("push-missing-project", {"targetindex": "anna/target", "name": "nothing"})
push("push-no-name", {"targetindex": "anna/target", "name": None})
push("push-of-base", {"targetindex": "anna/target", "name": "larder-lib", "version": "2.0"})
push("push-anonymous", {"targetindex": "anna/target"}, auth=None)
push("push-other", {"targetindex": "anna/target"}, auth=BERT)
push("push-conflict", {"targetindex": "bert/dev"}, auth=BERT)
step("push-kept-target", "PUT", "/anna/kept", {"volatile": False}, auth=ANNA)
push("push-kept", {"targetindex": "anna/kept"})
push("push-kept-again", {"targetindex": "anna/kept"})
step("push-kept-volatile", "PATCH", "/anna/kept", ["volatile=True"], auth=ANNA)
push("push-missing-source", {"targetindex": "anna/target"}, path="/anna/nothing")
step("push-not-json", "PUSH", "/anna/dev", b"{", auth=ANNA)
push("push-external-closed", {"posturl": "http://127.0.0.1:9/", "username": "u", "password": "p"})
push("push-external-anonymous", {"posturl": "http://127.0.0.1:9/", "username": "u", "password": "p"}, auth=None)
push("push-missing-forbidden", {"targetindex": "anna/target", "version": "9.0"}, auth=BERT)
push("push-missing-project-forbidden", {"targetindex": "anna/target", "name": "nothing"}, auth=BERT)
push("push-missing-anonymous", {"targetindex": "anna/target", "version": "9.0"}, auth=None)
push("push-missing-unknown-option", {"targetindex": "anna/target", "version": "9.0", "zebra": 1})
push("push-missing-bad-target", {"targetindex": "target", "version": "9.0"})
push("push-missing-missing-target", {"targetindex": "anna/nothing", "version": "9.0"})
push("push-missing-both-options", {"targetindex": "anna/target", "version": "9.0", "only_docs": True, "no_docs": True})
push("push-both-options-unknown-option", {"targetindex": "anna/target", "zebra": 1, "only_docs": True, "no_docs": True})
push("push-unknown-option-bad-target", {"targetindex": "target", "zebra": 1})
push("push-only-docs-without", {"targetindex": "anna/target", "version": "1.1", "only_docs": True})
push("push-only-docs-without-forbidden", {"targetindex": "anna/target", "version": "1.1", "only_docs": True}, auth=BERT)
push("push-only-docs-without-bad-target", {"targetindex": "target", "version": "1.1", "only_docs": True})
push("push-register-project", {"targetindex": "anna/target", "register_project": True})
ORDER = b'{"name": "larder-app", "version": "1.0", "targetindex": "anna/target"}'
for method in ("POST", "PUSH"):
    for what, path in (("", "/anna/dev"), ("-slash", "/anna/dev/")):
        step(f"push-form-type-{method.lower()}{what}", method, path, ORDER, auth=ANNA, headers=FORM)
        step(f"push-text-type-{method.lower()}{what}", method, path, b"\n " + ORDER, auth=ANNA, headers={"Content-Type": "text/plain"})
        step(f"push-no-type-{method.lower()}{what}", method, path, ORDER, auth=ANNA)
step("push-form-type-blanks", "POST", "/anna/dev", b" \r\n\t" + ORDER, auth=ANNA, headers=FORM)
step("push-form-type-anonymous", "POST", "/anna/dev", ORDER, headers=FORM)
step("push-form-type-broken", "POST", "/anna/dev", ORDER[:-1], auth=ANNA, headers=FORM)
step("push-form-charset", "POST", "/anna/dev", ORDER, auth=ANNA, headers={"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"})

# To a server elsewhere, which answers as the path says: the status of a registration, of files, and of documentation.
OUTSIDE = {"username": "u", "password": "p"}
for what, path, more in (
    ("fine", "200/200/200", {}),
    ("no-docs", "200/200/200", {"no_docs": True}),
    ("only-docs", "200/200/200", {"only_docs": True}),
    ("both-options", "200/200/200", {"only_docs": True, "no_docs": True}),
    ("unknown-option", "200/200/200", {"zebra": 1}),
    ("missing", "200/200/200", {"version": "9.0"}),
    ("only-docs-without", "200/200/200", {"version": "1.1", "only_docs": True}),
    ("register", "200/200/200", {"register_project": True}),
    ("register-created", "201/201/201", {"register_project": True}),
    ("register-gone", "410/200/200", {"register_project": True}),
    ("register-refused", "403/200/200", {"register_project": True}),
    ("register-docs", "200/200/200", {"register_project": True, "only_docs": True}),
    ("register-empty-flag", "200/200/200", {"register_project": ""}),
    ("files-refused", "200/400/200", {}),
    ("files-refused-no-docs", "200/400/200", {"no_docs": True}),
    ("docs-refused", "200/200/410", {}),
):
    push(f"push-external-{what}", {"posturl": f"STUB/{path}/", **OUTSIDE, **more})
push("push-external-register-closed", {"posturl": "http://127.0.0.1:9/", **OUTSIDE, "register_project": True})
step("push-external-form-type", "POST", "/anna/dev", b'{"name": "larder-app", "version": "9.0", "posturl": "http://127.0.0.1:9/"}', auth=ANNA, headers=FORM)
step("pushed", "GET", "/anna/target/larder-app/1.0")
step("pushed-page", "GET", "/anna/target/+simple/larder-app/", headers=OLD_PIP)

# ---- who may ask

step("authcheck", "GET", "/+authcheck", headers={"X-Original-URI": "http://127.0.0.1/anna/dev/+simple/"})
step("authcheck-nothing", "GET", "/+authcheck", headers={"X-Original-URI": "http://127.0.0.1/a/b/c/d/e/f"})
step("authcheck-api", "GET", "/+authcheck", headers={"X-Original-URI": "http://127.0.0.1/+api"})
step("authcheck-file", "GET", "/+authcheck", headers={"X-Original-URI": "http://127.0.0.1/anna/dev/+f/abc/0123456789abc/x-1.0.tar.gz"})
step("authcheck-no-uri", "GET", "/+authcheck")

# ---- removals

step("delete-file-anonymous", "DELETE", "/anna/dev/{%s}" % APP_SDIST)
step("delete-file-other", "DELETE", "/anna/dev/{%s}" % APP_SDIST, auth=BERT)
step("delete-file", "DELETE", "/anna/dev/{%s}" % APP_SDIST, auth=ANNA)
step("delete-file-again", "DELETE", "/anna/dev/{%s}" % APP_SDIST, auth=ANNA)
step("delete-file-missing", "DELETE", "/anna/dev/+f/abc/0123456789abc/larder_app-9.0.tar.gz", auth=ANNA)
step("deleted-file", "GET", "/anna/dev/{%s}" % APP_SDIST, headers={"Accept": "*/*"})
step("delete-file-non-volatile", "DELETE", "/bert/dev/{%s}" % APP, auth=BERT)
step("delete-version-anonymous", "DELETE", "/anna/dev/larder-app/1.1")
step("delete-version-missing", "DELETE", "/anna/dev/larder-app/9.0", auth=ANNA)
step("delete-version", "DELETE", "/anna/dev/larder-app/1.1", auth=ANNA)
step("deleted-version-file", "GET", "/anna/dev/{%s}" % APP_LATER, headers={"Accept": "*/*"})
step("delete-version-again", "DELETE", "/anna/dev/larder-app/1.1", auth=ANNA)
step("delete-file-non-volatile-missing", "DELETE", "/bert/dev/+f/abc/0123456789abc/larder_app-9.0.tar.gz", auth=BERT)
step("delete-version-non-volatile-missing", "DELETE", "/bert/dev/larder-app/9.0", auth=BERT)
step("delete-project-non-volatile-missing", "DELETE", "/bert/dev/nothing", auth=BERT)
step("delete-version-non-volatile", "DELETE", "/bert/dev/larder-app/1.0", auth=BERT)
step("delete-version-force", "DELETE", "/bert/dev/larder-app/1.0?force=", auth=BERT)
step("deleted-last-version", "GET", "/bert/dev/larder-app")
step("deleted-last-version-list", "GET", "/bert/dev")
upload("upload-after-delete", "/bert/dev/", APP_OTHER, auth=BERT)
step("delete-project-non-volatile", "DELETE", "/bert/dev/larder-app", auth=BERT)
step("delete-project-force", "DELETE", "/bert/dev/larder-app?force", auth=BERT)
step("delete-project-other", "DELETE", "/anna/dev/larder-app", auth=BERT)
step("delete-project", "DELETE", "/anna/dev/larder-app", auth=ANNA)
step("delete-project-again", "DELETE", "/anna/dev/larder-app", auth=ANNA)
step("deleted-project-file", "GET", "/anna/dev/{%s}" % APP_OTHER, headers={"Accept": "*/*"})
step("deleted-project-page", "GET", "/anna/dev/+simple/larder-app/", headers=OLD_PIP)
step("delete-project-of-base", "DELETE", "/anna/dev/larder-lib", auth=ANNA)
step("index-delete-base", "DELETE", "/anna/base", auth=ANNA)
step("index-after-base", "GET", "/anna/middle")
step("simple-after-base", "GET", "/anna/dev/+simple/", headers=OLD_PIP)
step("user-delete-own-with-volatile", "DELETE", "/anna", auth=ANNA)
step("users-last", "GET", "/")
