"""A fake of a CI system that signs who its jobs are, and of an identity provider: openssl signs, and a little server publishes the key."""

import base64
import http.server
import json
import subprocess
import threading
import time
import urllib.parse
import uuid

from server import free_port


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*arguments, **options):
    return subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, **options).stdout


class FakeIssuer:
    """The issuer, the address at which a job asks for its identity, and the endpoints of a provider."""

    def __init__(self, work):
        self.key, self.port = work / "issuer.pem", free_port()
        self.url, self.claims = f"http://127.0.0.1:{self.port}", {}
        # What is given for any code, as claims.
        self.person = {}
        openssl("genrsa", "-out", self.key, 2048)
        modulus = openssl("rsa", "-in", self.key, "-noout", "-modulus").decode().strip().split("=")[1]
        key = {"kty": "RSA", "kid": "k1", "alg": "RS256", "use": "sig", "n": encoded(bytes.fromhex(modulus)), "e": "AQAB"}
        document = {
            "issuer": self.url, "jwks_uri": f"{self.url}/keys", "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/redeem",
        }  # fmt: skip
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                path, _, query = self.path.partition("?")
                audience = urllib.parse.parse_qs(query).get("audience", [""])[0]
                answer = {"/.well-known/openid-configuration": document, "/keys": {"keys": [key]}}.get(path)
                if path == "/token" and self.headers["Authorization"].lower() == "bearer of-the-job":
                    answer = {"value": fake.identity(audience)}
                self.send(answer)

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send({"id_token": fake.signed(fake.person)} if self.path == "/redeem" else None)

            def send(self, answer):
                body = json.dumps(answer).encode()
                self.send_response(200 if answer else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def identity(self, audience):
        """Of a job of the repository `org/repo`, for a tag."""
        claims = {
            "aud": audience, "jti": str(uuid.uuid4()),
            "sub": "repo:org/repo:environment:release", "repository": "org/repo", "repository_id": "7",
            "repository_owner": "org", "repository_owner_id": "3", "event_name": "push", "ref": "refs/tags/v1.0",
            "job_workflow_ref": "org/repo/.github/workflows/release.yml@refs/tags/v1.0", "environment": "release",
        }  # fmt: skip
        return self.signed(claims | self.claims)

    def publisher(self, projects):
        """The publisher that such jobs are."""
        return (
            f"{projects} {self.url} repository_id=7 repository_owner_id=3 workflow=release.yml environment=release ref=refs/tags/*"
        )

    def signed(self, claims):
        now = int(time.time())
        claims = {"iss": self.url, "iat": now - 5, "nbf": now - 5, "exp": now + 300} | claims
        parts = [{"alg": "RS256", "kid": "k1", "typ": "JWT"}, claims]
        signed = ".".join(encoded(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{encoded(openssl('dgst', '-sha256', '-sign', self.key, input=signed.encode()))}"
