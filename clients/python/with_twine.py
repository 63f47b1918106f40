"""twine: upload by each kind of login and by a limited token, --skip-existing, refusals with their reason; then pip installs what came.

    with_twine.py DIRECTORY
"""

import environments
import packages
from server import PASSWORD, Desk, Larder, check, client, installed

PYPIRC = """[distutils]
index-servers = ours
[ours]
repository = {url}
username = team
password = {password}
"""

# twine refuses --skip-existing for every index but the two whose addresses are constants in it. One of them is
# replaced; nothing else of it is touched, so that what it makes of the answers is its own.
SKIPPING = """
import sys, twine.__main__, twine.repository
twine.repository.TEST_WAREHOUSE = "{url}/"
sys.argv[0] = "twine"
sys.exit(twine.__main__.main())
"""


def test(work):
    tools = environments.environment("tools")
    desk, pip = Desk(work, tools), environments.environment("pip") / "bin" / "python"
    files = work / "files"
    with Larder(work) as larder:
        dev = f"{larder.url}/team/dev/"

        def upload(*arguments, to=dev, user="team", password=PASSWORD, **expected):
            login = ("--repository-url", to, "--username", user, "--password", password)
            return desk.run("twine", "upload", "--non-interactive", "--disable-progress-bar", *login, *arguments, **expected)

        first = packages.both(files, "larder-app", "1.0", requires=["Larder.Lib"], requires_python=">=3.6")
        desk.run("twine", "check", *first)
        upload(*first)
        upload(*packages.both(files, "Larder.Lib", "0.1"), to=f"{larder.url}/team/base")
        upload(*first)  # the same bytes again
        changed = packages.wheel(files / "changed", "larder-app", "1.0", mark="changed")
        upload(changed)  # a volatile stage takes it
        larder.must(200, "PATCH", "/team/dev", {"volatile": False}, auth=larder.auth)
        refusal = "already exists in non-volatile index"
        upload(first[0], status=1, says=["409", refusal])
        upload("--skip-existing", *first, status=1, says="UnsupportedConfiguration")  # twine's own word, before it asks
        skipping = ("python", "-c", SKIPPING.format(url=larder.url), "upload", "--skip-existing", "--disable-progress-bar")
        login = ("--repository-url", dev, "--username", "team", "--password", PASSWORD)
        skipped = "Skipping larder_app-1.0-py3-none-any.whl because it appears to already exist"
        desk.run(*skipping, *login, *first, says=skipped)
        fresh = packages.wheel(files, "larder-app", "1.1", requires=["larder-lib"])
        desk.run(*skipping, *login, first[0], fresh, says=skipped)

        other = packages.wheel(files, "larder-other", "1.0")
        upload(other, password="wrong", status=1, says="401")
        upload(other, user="nobody", status=1, says="401")
        larder.must(201, "PUT", "/stranger", {"password": "else"}, auth=("root", larder.root_password))
        upload(other, user="stranger", password="else", status=1, says=["403", "no permission to submit"])
        upload(other, to=f"{larder.url}/team/missing/", status=1, says="404")
        check("what was refused", larder.ask("GET", "/team/dev/+simple/larder-other/").status, 404)

        # A login token in place of the password, a file with the password, and more slashes than there should be.
        token = larder.must(200, "POST", "/+login", {"user": "team", "password": PASSWORD}).result["password"]
        upload(other, password=token)
        file = packages.wheel(files, "larder-other", "1.1")
        (desk.home / ".pypirc").write_text(PYPIRC.format(url=dev, password=PASSWORD), encoding="utf-8")
        desk.run("twine", "upload", "--non-interactive", "--repository", "ours", file)
        upload(packages.wheel(files, "larder-other", "1.2"), to=f"{larder.url}//team/dev/")

        # A token of one project makes its first release, and no other's.
        wish = {"scopes": ["python:upload"], "indexes": ["team/dev"], "projects": ["larder-new"]}
        limited = larder.must(201, "POST", "/+tokens", wish, auth=larder.auth).json["token"]
        upload(*packages.both(files, "larder-new", "1.0"), user="__token__", password=limited)
        another = packages.wheel(files, "larder-other", "1.3")
        refusal = "this token is limited to project `larder-new` of team/dev; it may not write `larder-other`"
        upload(another, user="__token__", password=limited, status=1, says=["403", refusal])
        elsewhere = "this token is limited to project `larder-new` of team/dev; it may not write team/base"
        upload(another, to=f"{larder.url}/team/base/", user="__token__", password=limited, status=1, says=["403", elsewhere])

        def install(*arguments):
            desk.run(pip, "-m", "pip", "install", "--index-url", f"{dev}+simple/", "--target", work / "into", *arguments)
            return installed(work / "into")

        found = install("larder-app", "larder-other")
        check("installed", found, {"larder-app": "1.1", "larder-lib": "0.1", "larder-other": "1.2"})
        page = larder.must(200, "GET", "/team/dev/+simple/larder-app/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}).json
        limits = {file["filename"]: file.get("requires-python") for file in page["files"]}
        check("the limit that twine sent", limits["larder_app-1.0.tar.gz"], ">=3.6")


client(test)
