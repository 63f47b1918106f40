"""A proxy with a certificate that openssl makes, which no machine knows, in front of a Larder."""

import http.server
import ssl
import threading

from issuer import openssl
from server import free_port


class Gate:
    """TLS before Larder at `localhost`, as a proxy on the same machine: it passes bytes on."""

    def __init__(self, work, larder, port=None):
        certificate, key = work / "gate.crt", work / "gate.key"
        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
            "-keyout", key, "-out", certificate,
        )  # fmt: skip
        self.certificate, self.port = certificate, port or free_port()
        self.url = f"https://localhost:{self.port}"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def passed_on(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                if "chunked" in self.headers.get("Transfer-Encoding", ""):
                    body = b""
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                dropped = ("host", "connection", "content-length", "transfer-encoding")
                kept = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
                answer = larder.ask(self.command, self.path, body or None, kept)
                self.send_response(answer.status, answer.reason)
                for name, value in answer.pairs:
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST = do_HEAD = passed_on

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
