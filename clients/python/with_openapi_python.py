"""A Python client, made of the server's own OpenAPI document: no warning, and it writes, uploads, calls and follows.

    with_openapi_python.py DIRECTORY

Every document is checked by openapi-spec-validator; the client is made by openapi-python-client.
"""

import environments
from packages import wheel
from server import ROOT_PASSWORD, Desk, Larder, check, client

USING = '''
import hashlib, importlib, io, json, pkgutil, sys
import made
from made import AuthenticatedClient, Client
from made.api.actions import run_actions
from made.api.articles import read_article, replace_article, write_article_version
from made.api.changes import list_changes
from made.api.python import read_index, read_project, simple_page, upload_file
from made.models import ActionArguments, ActionRequest, ArticleVersion, Change, IndexResult, ListChangesSurface, UploadForm, UploadFormAction
from made.types import File

for module in pkgutil.walk_packages(made.__path__, "made."):
    importlib.import_module(module.name)

url, token, path, name = sys.argv[1:]
accept = {"Accept": "application/json, application/vnd.pypi.simple.v1+json;q=0.9"}
us = AuthenticatedClient(url, token=token, headers=dict(accept), raise_on_unexpected_status=True)
them = Client(url, headers=dict(accept), raise_on_unexpected_status=True)


def text(of):
    return File(payload=io.BytesIO(of.encode()))


# An article: made, read, changed on the version that was read, and refused on an older one.
made_now = write_article_version.sync("guide/start.md", 0, client=us, body=text("# Start\\n"))
assert isinstance(made_now, ArticleVersion) and made_now.version == 1, made_now
assert made_now.content_type == "text/markdown; charset=utf-8", made_now
read = read_article.sync_detailed("guide/start.md", client=them)
assert (read.status_code, read.parsed.payload.read()) == (200, b"# Start\\n"), read
assert read.headers["X-Article-Version"] == "1", read.headers
changed = write_article_version.sync("guide/start.md", 1, client=us, body=text("# Start here\\n"), comment="clearer")
assert (changed.version, changed.comment, changed.title) == (2, "clearer", "Start here"), changed
late = write_article_version.sync_detailed("guide/start.md", 1, client=us, body=text("# Begin\\n"))
assert late.status_code == 409 and late.parsed.status == 409, late
tagged = replace_article.sync_detailed("guide/start.md", client=us, body=text("# Begin\\n"), if_match=read.headers["ETag"])
assert tagged.status_code in (409, 412), tagged
stranger = write_article_version.sync_detailed("guide/start.md", 2, client=them, body=text("x"))
assert stranger.status_code == 401 and stranger.parsed.detail, stranger

# A file: uploaded, and on the page of its project.
with open(path, "rb") as file:
    data = file.read()
form = UploadForm(UploadFormAction.FILE_UPLOAD, "larder-app", "1.0", File(io.BytesIO(data), name, "application/octet-stream"))
form["requires_python"] = ">=3.9"
form["sha256_digest"] = hashlib.sha256(data).hexdigest()
for _ in range(2):  # the same bytes again are no conflict
    uploaded = upload_file.sync_detailed("team", "dev", client=us, body=form)
    assert uploaded.status_code == 200, uploaded
page = simple_page.sync("team", "dev", "larder-app", client=them)
[found] = page["files"]
assert (found["filename"], found["requires-python"]) == (name, ">=3.9"), found
project = read_project.sync("team", "dev", "larder-app", client=them)
assert isinstance(project, IndexResult) and list(project.result) == ["1.0"], project
assert read_index.sync("team", "dev", client=them).result["projects"] == ["larder-app"]
missing = read_project.sync_detailed("team", "dev", "larder-nothing", client=them)
assert missing.status_code == 404 and missing.parsed.message, missing

# Actions: one, then several.
hello = ActionRequest(ActionArguments.from_dict({"example.hello_world": {}}))
assert run_actions.sync(client=them, body=hello) == "Hello world!"
several = ActionRequest(ActionArguments.from_dict({"article.get_version": {"name": "guide/start.md"}, "example.fibonacci": {"n": 10}}))
results = run_actions.sync(client=them, body=several)
assert results["example.fibonacci"]["result"]["value"] == 55, results
assert results["article.get_version"]["result"]["version"] == 2, results
nothing = ActionRequest(ActionArguments.from_dict({"article.get": {"name": "nothing"}}))
refused = run_actions.sync_detailed(client=them, body=nothing)
assert (refused.status_code, refused.parsed.action) == (404, "article.get"), refused


# The feed: all changes of articles, in pages of one, then those of the index.
def follow(surface, since, **more):
    while True:
        *lines, last = [json.loads(line) for line in list_changes.sync(client=us, surface=ListChangesSurface(surface), since=since, **more).splitlines()]
        yield from map(Change.from_dict, lines)
        since = last["next"]
        if not last["more"]:
            return


seen = [(change.name, change.kind.value, change.version) for change in follow("articles", "0", limit=1)]
assert seen == [("guide/start.md", "added", 1), ("guide/start.md", "changed", 2)], seen
seen = [(change.type_, change.kind.value) for change in follow("python", "0") if change.index == "team/dev" and change.project]
assert ("release", "added") in seen or ("file", "added") in seen, seen
print("used")
'''


def test(work):
    tools = environments.environment("openapi")
    desk = Desk(work, tools)
    with Larder(work) as larder:
        for name in ("openapi", "docs/openapi-pages"):
            document = work / f"{name.rpartition('/')[2]}.json"
            document.write_bytes(larder.must(200, "GET", f"/{name}.json").body)
            said = desk.run("openapi-spec-validator", "--subschema-errors", "all", document)
            check(f"what the validator says of {name}", said.split()[-1], "OK")
        admin = environments.ROOT / "crates/larder/templates/admin-openapi.json"
        desk.run("openapi-spec-validator", "--subschema-errors", "all", admin, says="OK")

        generate = ("openapi-python-client", "generate", "--meta", "none", "--overwrite", "--fail-on-warning")
        for name, source in (("made", ("--url", f"{larder.url}/openapi.json")), ("of_admin", ("--path", admin))):
            said = desk.run(*generate, *source, "--output-path", desk.home / name)
            check(f"what the generator of {name} says", said.split(), ["Generating", str(desk.home / name)])

        root = ("root", ROOT_PASSWORD)
        larder.must(200, "PATCH", "/team/dev", {"acl_upload": ["team", "root"]}, auth=root)
        scopes = {"scopes": ["article:write", "python:upload", "python:read"]}
        token = larder.must(201, "POST", "/+tokens", scopes, auth=root).json["token"]
        path = wheel(work / "files", "larder-app", "1.0", requires_python=">=3.9")
        desk.run("python", "-W", "error", "-c", USING, larder.url, token, path, path.name, says="used")


client(test)
