"""hatch: publish, with its own look at the page for what is there already; then pip installs what came.

    with_hatch.py DIRECTORY
"""

import environments
import packages
from server import PASSWORD, Desk, Larder, check, client, installed


def test(work):
    desk = Desk(work, environments.environment("tools"), HATCH_DATA_DIR=work / "data", HATCH_CACHE_DIR=work / "cache")
    pip = environments.environment("pip") / "bin" / "python"
    with Larder(work) as larder:
        files, project = work / "files", work / "project"
        project.mkdir()
        (project / "pyproject.toml").write_text("[project]\nname = 'unused'\nversion = '0'\n", encoding="utf-8")

        def publish(*paths, to="dev", password=PASSWORD, **expected):
            login = ("--repo", f"{larder.url}/team/{to}/", "--user", "team", "--auth", password)
            return desk.run("hatch", "publish", "--no-prompt", *login, *paths, cwd=project, **expected)

        first = packages.both(files, "larder-app", "1.0", requires=["Larder.Lib"], requires_python=">=3.6")
        publish(*first)
        publish(*packages.both(files, "Larder.Lib", "0.1"), to="base")
        publish(*first, status=(0, 1), says="already exists")  # it looks at the page before it sends anything
        packages.wheel(files, "larder-app", "1.1", requires=["larder-lib"])
        publish(files / "larder_app-1.1-py3-none-any.whl", password="wrong", status=1, says="401")
        publish(files / "larder_app-1.1-py3-none-any.whl")
        command = ("-m", "pip", "install", "--index-url", f"{larder.url}/team/dev/+simple/", "--target", work / "into")
        desk.run(pip, *command, "larder-app")
        check("installed", installed(work / "into"), {"larder-app": "1.1", "larder-lib": "0.1"})


client(test)
