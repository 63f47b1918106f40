"""Trusted publishing: uv and twine upload as a job of GitHub would, without a stored token, over TLS.

    with_trusted_publishing.py DIRECTORY

GitHub is a fake (issuer.py). uv asks for HTTPS, so Larder has a certificate that openssl makes.
"""

import json
import re
import shutil
import ssl
import time
import urllib.request

import environments
import packages
from gate import Gate
from issuer import FakeIssuer
from server import Desk, Larder, check, client


def test(work):
    if not shutil.which("openssl"):
        raise environments.Skipped("openssl is not installed")
    github = FakeIssuer(work)
    files = work / "files"
    with Larder(work, LARDER_PUBLISHING_ISSUERS=f"github {github.url}", LARDER_PUBLIC_URL="https://localhost") as larder:
        gate = Gate(work, larder)
        desk = Desk(
            work, environments.environment("tools"), GITHUB_ACTIONS="true",
            ACTIONS_ID_TOKEN_REQUEST_URL=f"{github.url}/token?job=1", ACTIONS_ID_TOKEN_REQUEST_TOKEN="of-the-job",
            SSL_CERT_FILE=gate.certificate, REQUESTS_CA_BUNDLE=gate.certificate,
        )  # fmt: skip
        larder.must(200, "PATCH", "/team/dev", [f"trusted_publishers+={github.publisher('larder-*')}"], auth=larder.auth)

        def versions():
            accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
            return sorted(larder.must(200, "GET", "/team/dev/+simple/larder-app/", headers=accept).json["versions"])

        def publish(path, to="dev", **expected):
            url = f"{gate.url}/team/{to}/"
            return desk.run("uv", "publish", "--trusted-publishing", "always", "--publish-url", url, path, **expected)

        # The project does not exist, and there is no token anywhere. uv hides the one that it gets in the job's log.
        said = publish(packages.wheel(files, "larder-app", "1.0"))
        (token,) = re.findall(r"::add-mask::(larder_\S+)", said)
        larder.must(403, "DELETE", "/team/dev/larder-app", auth=("__token__", token))
        check("published by uv", versions(), ["1.0"])
        publish(packages.wheel(files, "larder-app", "1.1"))
        publish(packages.wheel(files, "other", "1.0"), status=2, says="403")
        publish(packages.wheel(files, "larder-app", "1.2"), to="base", status=2, says="403")
        for claims in ({"repository_id": "8"}, {"event_name": "pull_request_target"}, {"ref": "refs/heads/main"}):
            github.claims = claims
            publish(packages.wheel(files, "larder-app", "1.3"), status=2, says=["422", "invalid-publisher"])
        github.claims = {}

        # twine exchanges identities by itself for the public index alone; the action pypi-publish does this for it.
        tls = ssl.create_default_context(cafile=str(gate.certificate))

        def asked(path, body=None):
            request = urllib.request.Request(f"{gate.url}{path}", data=body and json.dumps(body).encode())
            request.add_header("Content-Type", "application/json")
            with urllib.request.urlopen(request, context=tls) as answer:
                return json.load(answer)

        audience = asked("/_/oidc/audience")["audience"]
        check("audience", audience, "localhost")
        answer = asked("/_/oidc/mint-token", {"token": github.identity(audience)})
        check("success", answer["success"], True)
        assert 890 <= answer["expires"] - time.time() <= 905, answer["expires"]
        login = ("--repository-url", f"{gate.url}/team/dev/", "-u", "__token__", "-p", answer["token"])
        desk.run("twine", "upload", "--non-interactive", *login, packages.sdist(files, "larder-app", "2.0"))
        check("all", versions(), ["1.0", "1.1", "2.0"])


client(test)
