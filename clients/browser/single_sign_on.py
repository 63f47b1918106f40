"""A person logs in with Chromium at a real identity provider, Dex.

    python3 single_sign_on.py DIRECTORY DEX     a server and the provider are started below DIRECTORY; DEX is its program

The whole way by buttons and forms: to the provider and back, a wrong password there, a token without a password here, logged
out and in again, and by an account that has a password here, which is linked. Nothing is said in the console, and axe-core finds
nothing on our pages.
"""

import contextlib
import pathlib
import shutil
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

from check import BROWSER, WAIT_MILLISECONDS_MAX, check_accessible, contexts, log_in, server
from playwright.sync_api import expect, sync_playwright

PROVIDERS = """
[[provider]]
name = "dex"
title = "Acme"
issuer = "{issuer}"
client_id = "larder"
client_secret = "s3cret"
scopes = ["openid", "profile", "email", "groups"]
make_users = true
groups_claim = "groups"
groups = {{ developers = "dev" }}
"""

# The hash is that of `password`.
DEX = """
issuer: {issuer}
storage:
  type: memory
web:
  http: {address}
oauth2:
  skipApprovalScreen: true
staticClients:
  - id: larder
    secret: s3cret
    name: Larder
    redirectURIs: ['{base}/+account/oidc/dex/callback']
enablePasswordDB: true
staticPasswords:
"""
PERSON = """
  - email: {name}@acme.example
    hash: "$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W"
    username: {name}
    preferredUsername: {name}
    userID: "id-of-{name}"
    groups: [developers, others]
"""


@contextlib.contextmanager
def dex(program, work, issuer, base):
    address = urlsplit(issuer).netloc
    config = work / "dex.yaml"
    people = "".join(PERSON.format(name=name) for name in ["alice", "root"])
    config.write_text(DEX.format(issuer=issuer, address=address, base=base) + people)
    with open(work / "dex.log", "wb") as log:
        process = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log)
    try:
        host, port = address.split(":")
        for _ in range(600):
            assert process.poll() is None, f"dex ended with {process.returncode}; see {work / 'dex.log'}"
            with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
                break
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def at_dex(page, name, password="password"):
    """Fills in the provider's own form."""
    page.fill("#login", f"{name}@acme.example")
    page.fill("#password", password)
    with page.expect_navigation():
        page.click("#submit-login")


def check_person(context, base, issuer, is_new):
    """Somebody without an account here."""
    page = context.new_page()
    page.set_default_timeout(WAIT_MILLISECONDS_MAX)
    said = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda message: said.append(message.text) if urlsplit(page.url).netloc in base else None)
    page.goto(f"{base}/+account/login?next=%2Farticles")
    check_accessible(page, "the log-in page")
    with page.expect_navigation():
        page.click("text=Log in with Acme")
    assert page.url.startswith(issuer), page.url
    at_dex(page, "alice", "wrong")
    assert page.url.startswith(issuer), page.url
    at_dex(page, "alice")
    assert page.url == f"{base}/articles", page.url
    page.goto(f"{base}/+account")
    expect(page.locator("h1")).to_have_text("alice")
    expect(page.locator("main")).to_contain_text("Groups: dev")
    check_accessible(page, "the account of somebody without a password")
    page.goto(f"{base}/+account/device?code=BCDF-GHJK-LMNP-QRST")
    check_accessible(page, "the page that approves a command line")
    page.goto(f"{base}/+account")
    if is_new:
        page.check("form[aria-label='New token'] input[value='python:read']")
        with page.expect_navigation():
            page.click("text=Make the token")
        expect(page.locator("section[aria-label='The new token']")).to_contain_text("larder_")
    with page.expect_navigation():
        page.click("form[aria-label='Log out'] button")
    assert page.url.split("?")[0] == f"{base}/+account/login", page.url
    check_accessible(page, "the page after a log-out")
    assert not said, said
    context.close()


def check_link(context, base, issuer, password):
    """Somebody who has a password here links the account at the provider, and logs in with it."""
    page = context.new_page()
    page.set_default_timeout(WAIT_MILLISECONDS_MAX)
    page.goto(f"{base}/+account/login")
    with page.expect_navigation():
        page.click("text=Log in with Acme")
    at_dex(page, "root")
    expect(page.locator("main [role=alert]")).to_contain_text("has a user of that name")
    check_accessible(page, "a log-in that was refused")
    log_in(page, base, password)
    page.fill("form[aria-label='Link dex'] input[name=own]", password)
    with page.expect_navigation():
        page.click("form[aria-label='Link dex'] button")
    check_accessible(page, "the page that leads to the provider")
    with page.expect_navigation():
        page.click("text=Go on to Acme")
    at_dex(page, "root")
    assert page.url == f"{base}/+account", page.url
    expect(page.locator("main")).to_contain_text("Remove the link with Acme")
    check_accessible(page, "an account with a link")
    with page.expect_navigation():
        page.click("form[aria-label='Log out'] button")
    with page.expect_navigation():
        page.click("text=Log in with Acme")
    at_dex(page, "root")
    expect(page.locator("h1")).to_have_text("root")
    context.close()


def main():
    work, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    work.mkdir(parents=True, exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        issuer = f"http://127.0.0.1:{free.getsockname()[1]}/dex"
    providers = work / "providers.toml"
    providers.write_text(PROVIDERS.format(issuer=issuer))
    arguments = ["--oidc-providers-file", str(providers)]
    loaded = '"message":"loaded the store"'
    with sync_playwright() as playwright, server(work, "sso", *arguments, until=loaded) as base:
        browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER)
        with dex(program, work, issuer, base):
            count = 0
            for _, context in contexts(browser):
                check_person(context, base, issuer, is_new=count == 0)
                count += 1
            password = (work / "sso" / "root-password").read_text().strip()
            check_link(browser.new_context(), base, issuer, password)
        browser.close()
    print(f"single sign-on at dex: {count} browsers, one link")


if __name__ == "__main__":
    main()
