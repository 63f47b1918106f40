"""An application of another origin in Chromium: what `cors.origins` opens to it, and what it opens to nobody.

    python3 other_origin.py DIRECTORY     a server is started below DIRECTORY; $LARDER is the binary

Two applications, each an empty page of an origin of its own. The one that the server lists writes an article with its token,
reads it back by condition and range, and hears of it as an event. The other reads what is public, and nothing else. A cookie of a
person who is logged in is of no use to either.
"""

import contextlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

from check import BROWSER, ROOT, WAIT_MILLISECONDS_MAX, log_in, server
from playwright.sync_api import sync_playwright

# Sends a request, and says what the page can read of the answer; `null` is what a page gets that may not.
ASK = """async ([url, options]) => {
    try {
        const answer = await fetch(url, options);
        return {status: answer.status, headers: Object.fromEntries(answer.headers), text: await answer.text()};
    } catch (error) {
        return null;
    }
}"""
# Waits for the first event about an article, from now on; `ready` is set once the stream is open.
LISTEN = """([url]) => {
    window.heard = new Promise((heard, failed) => {
        const events = new EventSource(url);
        events.onopen = () => { window.listening = true; };
        events.onmessage = (event) => { events.close(); heard(event.data); };
        events.onerror = () => { if (events.readyState === EventSource.CLOSED) failed(new Error('closed')); };
    });
}"""


class Empty(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<!doctype html><title>An application</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def application():
    """A site with one empty page; its origin."""
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{site.server_port}"
    finally:
        site.shutdown()
        site.server_close()


def page_of(context, origin):
    page = context.new_page()
    page.set_default_timeout(WAIT_MILLISECONDS_MAX)
    page.goto(origin)
    return page


def check_listed(context, origin, base, token):
    """The application that the server lists: it writes and reads with its token, without it what everybody may read."""
    page = page_of(context, origin)

    def ask(path, **options):
        return page.evaluate(ASK, [base + path, options])

    bearer = {"Authorization": f"Bearer {token}"}
    page.evaluate(LISTEN, [f"{base}/changes?surface=articles"])
    page.wait_for_function("window.listening")
    text = "# Apples\n\nThey are ripe.\n"
    made = ask("/article/fruit/apples/0", method="POST", body=text, headers={**bearer, "Content-Type": "text/markdown"})
    assert made["status"] == 201, made
    event = json.loads(page.evaluate("window.heard"))
    assert (event["kind"], event["name"]) == ("added", "fruit/apples"), event
    # `Authorization`, the conditions and ranges pass the preflight, and the page reads the headers that it needs.
    read = ask("/article/fruit/apples", headers={**bearer, "X-Larder-Serial": made["headers"]["x-larder-serial"]})
    assert (read["status"], read["text"], read["headers"]["x-article-version"]) == (200, text, "1"), read
    again = ask("/article/fruit/apples", headers={"If-None-Match": read["headers"]["etag"]}, cache="no-store")
    assert again["status"] == 304, again
    part = ask("/article/fruit/apples", headers={"Range": "bytes=2-7"}, cache="no-store")
    assert (part["status"], part["text"]) == (206, "Apples"), part
    assert part["headers"]["content-range"] == f"bytes 2-7/{len(text)}", part
    # A refusal is readable, too.
    stale = ask("/article/fruit/apples/0", method="POST", body="# Pears\n", headers={**bearer, "Content-Type": "text/markdown"})
    assert stale["status"] == 409 and stale["text"], stale
    wrong = ask("/article/fruit/apples/1", method="POST", body="# Pears\n", headers={"Authorization": "Bearer larder_wrong", "Content-Type": "text/markdown"})
    assert wrong["status"] == 401, wrong
    with_cookie = ask("/article/fruit/apples", credentials="include", cache="no-store")
    assert with_cookie is None, with_cookie
    page.close()


def check_unlisted(context, origin, base, token):
    """An application that the server does not list."""
    page = page_of(context, origin)

    def ask(path, **options):
        return page.evaluate(ASK, [base + path, {"cache": "no-store", **options}])

    for path in ("/rpc/v5/search/apple", "/openapi.json"):
        public = ask(path)
        assert public["status"] == 200 and json.loads(public["text"]), f"{path}: {public}"
    bearer = {"Authorization": f"Bearer {token}", "Content-Type": "text/markdown"}
    for path, options in [
        ("/article/fruit/apples", {}),
        ("/article/fruit/apples", {"credentials": "include"}),
        ("/article/fruit/apples/1", {"method": "POST", "body": "# Pears\n", "headers": bearer}),
        # A form could send this without a preflight, with the cookie of whoever is logged in.
        ("/article/fruit/apples/1", {"method": "POST", "body": "# Pears\n", "credentials": "include", "headers": {"Content-Type": "text/plain"}}),
        ("/+simple/", {}),
    ]:
        closed = ask(path, **options)
        assert closed is None, f"{path} {options}: {closed}"
    page.evaluate(LISTEN, [f"{base}/changes?surface=articles"])
    assert page.evaluate("window.heard.then(() => true, () => false)") is False, "events are open to an application that is not listed"
    page.close()


def main():
    work = pathlib.Path(sys.argv[1])
    work.mkdir(parents=True, exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])))
    binary = os.environ.get("LARDER", str(ROOT / "target" / "debug" / "larder"))
    with application() as listed, application() as unlisted, sync_playwright() as playwright:
        arguments = ["--cors-origins", listed, "--aur-source", str(ROOT / "testdata/aur/packages-meta-ext-v1.json.gz")]
        with server(work, "origins", *arguments, until='"message":"published a snapshot of the AUR"') as base:
            make = [binary, "token", "create", "root", "--scope", "article:read", "--scope", "article:write", "--data-dir", work / "origins"]
            made = subprocess.run(make, check=True, capture_output=True, text=True, env={**os.environ, "LARDER_CONFIG": ""})
            token = made.stdout.split()[-1]
            browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER)
            context = browser.new_context()
            # Somebody is logged in with this browser.
            page = context.new_page()
            page.set_default_timeout(WAIT_MILLISECONDS_MAX)
            page.goto(f"{base}/+account/login")
            log_in(page, base, (work / "origins" / "root-password").read_text().strip())
            check_listed(context, listed, base, token)
            check_unlisted(context, unlisted, base, token)
            page.goto(f"{base}/article/fruit/apples?view=history")
            assert "Pears" not in page.content()
            browser.close()
    print("two applications of other origins: one listed, one not")


if __name__ == "__main__":
    main()
