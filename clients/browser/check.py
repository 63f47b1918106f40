"""The pages for people in a headless Chromium: what axe-core says of them, and a person's first clicks.

    python3 check.py DIRECTORY     servers of its own are started below DIRECTORY; $LARDER is the binary

Three servers: the demonstration, one that was started with nothing, and one with every surface switched off. On each:
every page, on a desktop and on a phone, light and dark, without a finding of axe-core; every link answers; every prefilled
form finds something, with scripts and without; every command that needs no account works; nothing is asked of another host
and nothing is said in the console. axe-core runs through the driver, so that the pages keep their Content-Security-Policy.
"""

import base64
import contextlib
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
import zipfile
from urllib.parse import quote, urldefrag, urljoin, urlsplit

import axe_playwright_python
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import expect, sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
AXE = (pathlib.Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
READY_SECONDS_MAX = 120
WAIT_MILLISECONDS_MAX = 60_000
# An index of the demo, and its owner.
OWNER = "root"
DEV = f"/{OWNER}/dev"
SIZES = {"desktop": (1280, 900), "phone": (360, 740)}
OFF = ["aur", "python", "article", "actions", "metrics"]
BROWSER = [
    "--no-sandbox",  # the suite runs as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ACCEPT = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@contextlib.contextmanager
def server(work, name, *arguments, until):
    """A server on a port of the system's choice; `until` is in its log once everything is there."""
    directory, log_path = work / name, work / f"{name}.log"
    shutil.rmtree(directory, ignore_errors=True)
    binary = os.environ.get("LARDER", str(ROOT / "target" / "debug" / "larder"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LARDER")}
    environment["LARDER_CONFIG"] = ""
    serve = [binary, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(directory), *arguments]
    with open(log_path, "wb") as log:
        process = subprocess.Popen(serve, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while until not in log_path.read_text(errors="replace"):
            assert process.poll() is None, f"larder ended with {process.returncode}; see {log_path}"
            assert time.monotonic() < deadline, f"larder was not ready in time; see {log_path}"
            time.sleep(0.05)
        listening = re.search(r'"message":"listening","address":"([^"]+)"', log_path.read_text())
        yield f"http://{listening[1]}"
    finally:
        process.terminate()
        process.wait()


class Watched:
    """A page, and what it must not do: say something in the console, or ask another host."""

    def __init__(self, context, base):
        self.page, self.base, self.said, self.asked = context.new_page(), base, [], []
        self.page.set_default_timeout(WAIT_MILLISECONDS_MAX)
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, path, status=200):
        response = self.page.goto(self.base + path)
        assert response.status == status, f"{path}: {response.status}"
        policy = response.header_value("content-security-policy") or ""
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy, f"{path}: {policy!r}"
        assert "unsafe" not in policy, f"{path}: {policy!r}"
        return response

    def check(self, what, statuses=()):
        # The browser itself notes the status of a page that it was asked for.
        said = [text for text in self.said if not any(f"status of {status}" in text for status in statuses)]
        assert not said, f"{what}: the console says {said}"
        others = [url for url in self.asked if not url.startswith(self.base + "/")]
        assert not others, f"{what}: asks {others}"
        self.said, self.asked = [], []


def check_accessible(page, what):
    """Nothing that axe-core finds, nothing to scroll sideways."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    lines = [f"{v['id']}: {v['help']}: {[node['html'][:160] for node in v['nodes'][:4]]}" for v in found]
    assert not lines, f"{what}: axe-core finds\n" + "\n".join(lines)
    wide, seen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= seen, f"{what}: {wide} pixels wide on a screen of {seen}"


def packages_of(base):
    """A package of the demonstration that others need, one that needs others, and their people: pages to look at."""
    def asked(path):
        with urllib.request.urlopen(base + path) as answer:
            return json.load(answer)

    named = asked("/rpc/v5/search/git?by=name-desc&mode=starts-with")["results"]
    found = asked("/rpc/v5/info?" + "&".join(f"arg[]={quote(package['Name'])}" for package in named[:200]))["results"]
    needing = max(found, key=lambda package: len(package.get("Depends", [])))
    return {
        f"/packages/{quote(needing['Name'])}": 200,
        f"/pkgbase/{quote(needing['PackageBase'])}": 200,
        f"/account/{quote(next(package['Maintainer'] for package in found if package['Maintainer']))}": 200,
        f"/packages/{quote(next(package['Name'] for package in found if not package['Maintainer']))}": 200,
    }


def contexts(browser, **more):
    for size, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
            yield f"{size}, {scheme}", context
            context.close()


def check_pages(browser, base, pages):
    """axe-core on every page, and on what a click makes of it."""
    count = 0
    for name, context in contexts(browser):
        watched = Watched(context, base)
        for path, status in pages.items():
            what = f"{path} ({name})"
            watched.open(path, status)
            check_accessible(watched.page, what)
            count += 1
            if watched.page.locator("#find").count():
                searched_in_place(watched)
                check_accessible(watched.page, f"{what} after a search")
            if watched.page.locator("#ask").count():
                watched.page.click("#ask button")
                watched.page.wait_for_selector("#answer:not([hidden])")
                assert '"error"' not in watched.page.inner_text("#answer"), watched.page.inner_text("#answer")
                check_accessible(watched.page, f"{what} after a question")
            watched.check(what, statuses=[status])
    return count


def searched_in_place(watched):
    """The form for packages, with scripts: its results come into the page."""
    page = watched.page
    page.click("#find button")
    expect(page.locator("#note")).to_have_text(re.compile(" ms"))
    assert page.locator("#found tbody tr").count() > 0, page.inner_text("#note")
    assert "Too many" not in page.inner_text("#note")


def check_found(what, response, text):
    """A form's answer has something in it."""
    assert response.status == 200, f"{what}: {response.status} {text[:200]}"
    if response.header_value("content-type").startswith("text/html"):
        assert 'class="links"' in text, f"{what} finds nothing"
        return
    answer = json.loads(text)
    if isinstance(answer, dict):
        assert "error" not in answer and "detail" not in answer, f"{what}: {text[:200]}"
        counts = [len(value) for value in answer.values() if isinstance(value, list)]
        assert not counts or any(counts), f"{what} finds nothing: {text[:200]}"


def check_forms(browser, base, path, expected):
    """Each form as it stands, without scripts: what it leads to has something in it."""
    context = browser.new_context(java_script_enabled=False)
    watched = Watched(context, base)
    watched.open(path)
    labels = [form.get_attribute("aria-label") for form in watched.page.locator("main form:not(.find)").all()]
    assert labels == expected, f"{path}: {labels}"
    for label in labels:
        watched.open(path)
        with watched.page.expect_navigation() as navigation:
            watched.page.click(f'form[aria-label="{label}"] button')
        response = navigation.value
        check_found(f"{path}, the form `{label}`", response, response.text())
        watched.check(f"{path}, the form `{label}`")
    context.close()
    return len(labels)


def check_links(browser, base, paths):
    """Every link of these pages answers 200, and what it names within a page is there."""
    context = browser.new_context(java_script_enabled=False)
    page, seen = context.new_page(), set()
    for path in paths:
        page.goto(base + path)
        # What somebody wrote may lead elsewhere, and to articles that are not there yet.
        own = page.locator("a[href]:not(.missing):not([rel~=nofollow][href^=http])").all()
        links = [urljoin(page.url, link.get_attribute("href")) for link in own]
        assert links, f"{path} has no links"
        for link in links:
            if urlsplit(link).netloc != urlsplit(base).netloc:
                # Where a package comes from is a link, and only there.
                assert path.startswith("/packages/") and link.startswith("https://"), f"{path} links to {link}"
                continue
            if link in seen:
                continue
            seen.add(link)
            url, fragment = urldefrag(link)
            answer = context.request.get(url, headers=ACCEPT)
            # Nobody is logged in here.
            expected = 401 if urlsplit(link).path.startswith(("/+edit/", "/+rename/")) else 200
            assert answer.status == expected, f"{path} links to {link}: {answer.status}"
            if fragment:
                assert f'id="{fragment}"' in answer.text(), f"{path} links to {link}: nothing there"
    context.close()
    return len(seen)


def check_commands(browser, base, directory):
    """Every command of the page "Use this server" that needs no account and no program of its own; copying one."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(base + "/+use")
    commands = page.locator(".copy code").all_text_contents()
    run = []
    for command in commands:
        words = shlex.split(command)
        if words[0] == "curl" and "-u" not in words and "NAME" not in command:
            run.append(["curl", "--silent", "--show-error", "--fail", *words[1:]])
        if words[0] == "pip" and "PROJECT" not in words:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(directory / "wheels")]
            run.append([*pip, "--no-cache-dir", "--disable-pip-version-check", *words[2:]])
    for command in run:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, f"{shlex.join(command)}: {ended.stderr}"
    if commands:
        # Not `wait_for_function`: where it has to wait, it evaluates text in the page, which the page's policy forbids.
        page.locator(".copy button").first.click()
        expect(page.locator(".copy button").first).to_have_text("Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == commands[0], f"{copied!r} is copied, not {commands[0]!r}"
    context.close()
    return len(run)


# Pages of what the demonstration has, and what is written into it by `written` below.
PEOPLE = [
    "/root",
    DEV,
    f"{DEV}?q=hello",
    f"{DEV}/+log",
    "/root/stable",
    f"{DEV}/larder-hello",
    f"{DEV}/larder-hello/0.1",
    f"{DEV}/larder-hello/+downloads",
    "/root/stable/larder-greetings?versions=all",
    f"{DEV}/larder-hello?python=cp39",
    "/articles",
    "/articles?prefix=guide/",
    "/articles?tag=texts",
    "/articles?text=article",
    "/search?q=article",
    "/articles?text=nothing-has-this",
    "/article/welcome",
    "/article/guide/reading",
    "/article/guide/reading/history",
    "/article/guide/reading/diff",
    "/article/guide/reading?version=1",
    "/article/written",
    "/article/written/history",
    "/article/written/diff",
    "/article/written/diff?view=inline",
    "/+attachments/written/",
    f"{DEV}/text-sample",
    f"{DEV}/text-sample/1.0/+contents/text-sample-1.0.zip",
    f"{DEV}/text-sample/1.0/+contents/text-sample-1.0.zip?member=0",
    f"{DEV}/text-attacks/2.0/+compare?with=1.0",
    f"{DEV}/text-attacks/2.0/+compare?with=1.0&file=text-attacks-2.0.zip&old=0&new=0",
]
WRITTEN = """# Everything that a text can have

Some *text* with `code`, a [link](guide/reading), a [[guide/missing]] one, and https://e.example/ as it is.

## A list

1. one
2. two
   - [x] done
   - [ ] open

## A table

| name | size |
| --- | ---: |
| a | 1 |
| a long name that goes on | 20 |

### Code

```python
@parcels.packed  # a comment
def size(path: str) -> int:
    return len(path) + 1

print("a line that is much longer than a phone is wide, and so has to break or to be scrolled sideways somewhere")
```

## A formula

It costs $5, and $\\frac{a}{b}$ is in a line.

$$\\begin{aligned} a &= \\sum_{i=0}^n x_i^2 \\\\ &= \\sqrt[3]{b} \\end{aligned}$$

> A quotation, with a picture: ![one](https://e.example/picture.png)

<details><summary>More</summary>Hidden until it is asked for.</details>

A note is at the end[^1].

[^1]: Here it is.
"""
# A picture of one dot, and endings of names that a browser could run what is in the file for.
PICTURE = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")
# Nothing may be posted there.
WEBHOOK = '[[webhook]]\nname = "nowhere"\nurl = "http://127.0.0.1:9/"\nsurface = "articles"\nsecret = "sixteen bytes, or more"\n'
ATTACHED = [".html", ".svg", ".xhtml", ".js", ".pdf", ".png", ".txt", ".xml", ""]
FORMATS = {"md": "text/markdown", "rst": "text/x-rst", "html": "text/html", "txt": "text/plain"}
# What a page could do that nobody asked it for, if something of a text came to life.
ALIVE = """
window.ran = [];
for (const name of ["alert", "confirm", "prompt", "print", "open"]) window[name] = (...what) => { window.ran.push(name + " " + what); };
addEventListener("message", event => window.ran.push("message"));
"""
PROVOKE = """
() => {
  const inside = [...document.querySelectorAll("main, main *")];
  const events = ["mouseover", "mouseenter", "pointerover", "focus", "click", "toggle", "error", "load", "animationstart", "input"];
  const named = /^on|^style$|^srcdoc$|^srcset$|^ping$|^formaction$|^xlink/i;
  const found = [];
  for (const element of inside) {
    for (const name of element.getAttributeNames()) if (named.test(name)) found.push(element.outerHTML.slice(0, 200));
    if (element.href && !/^(https?|mailto):/.test(element.href)) found.push(element.outerHTML.slice(0, 200));
    if (/^(script|style|iframe|object|embed|svg|math|base|meta|link|form|template)$/i.test(element.tagName) && !element.closest("form[aria-label]")
      && !(element.matches("svg.chart") && !element.closest(".text")))
      found.push(element.outerHTML.slice(0, 200));
  }
  const stay = event => event.preventDefault();
  addEventListener("click", stay, true);
  for (const element of inside) for (const name of events) element.dispatchEvent(new Event(name, {bubbles: false, cancelable: true}));
  removeEventListener("click", stay, true);
  return found;
}
"""


def send(base, password, path, body, content_type, method="POST"):
    """Writes as `root`."""
    login = base64.b64encode(f"root:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": content_type}
    request = urllib.request.Request(base + path, data=body, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status in (200, 201), f"{path}: {answer.status}"


def send_release(base, password, name, version, description, content_type, more=()):
    """Uploads a release whose metadata says this, with a source archive of nothing in particular."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr(f"{name}-{version}/setup.py", description)
        members.writestr(f"{name}-{version}/\"'><img src=x onerror=alert(1)>.txt", more[0][1] if more else "")
    fields = [
        (":action", "file_upload"), ("metadata_version", "2.1"), ("name", name), ("version", version), ("filetype", "sdist"),
        ("description", description), ("description_content_type", content_type), *more,
    ]
    boundary = "b0undary0f0ne0f0urs"
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="content"; filename="{name}-{version}.zip"\r\n\r\n'
    body = "".join(parts).encode() + head.encode() + archive.getvalue() + f"\r\n--{boundary}--\r\n".encode()
    send(base, password, f"{DEV}/", body, f"multipart/form-data; boundary={boundary}")


def written(base, password):
    """Texts to look at, and the attacks of testdata/attacks.txt wherever a text can be; the pages that show those."""
    send(base, password, "/article/written/0", b"# Everything\n\nto come\n", "text/markdown")
    before = "---\nauthor: Ann\ndate: 2026-01-31\ntags: [texts, everything at once]\n---\n"
    send(base, password, "/article/written/1", (before + WRITTEN).encode(), "text/markdown")
    send(base, password, "/+attachments/written/plan.png", PICTURE, "image/png", "PUT")
    send(base, password, "/+attachments/written/list%20of%20seeds.pdf", b"%PDF-1.7", "application/pdf", "PUT")
    send_release(base, password, "text-sample", "1.0", WRITTEN, "text/markdown", [("summary", "Describes itself")])
    send_release(base, password, "text-needing", "1.0", "", "text/plain", [("requires_dist", "text-sample>=1")])
    attacks = (ROOT / "testdata" / "attacks.txt").read_text(encoding="utf-8")
    assert attacks.count("\n\n") > 150, "the attacks are read"
    one = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>"
    tag = "\"'><img src=x onerror=alert(1)>"
    before = f"---\nauthor: {one}\ndate: 2026-01-31 {one}\ntags: [{tag}]\n---\n\n"
    paths = ["/articles", "/articles?text=alert", "/search?q=alert", f"/articles?tag={quote(tag)}", DEV, f"{DEV}/+log", f"{DEV}/text-attacks"]
    for at, (name, content_type) in enumerate(FORMATS.items()):
        send(base, password, f"/article/written/attacks/{name}/0", f"# {one}\n\n".encode(), content_type)
        send(base, password, f"/article/written/attacks/{name}/1", ((before if name == "md" else "") + attacks).encode(), content_type)
        more = [(key, one) for key in ("summary", "author", "license", "keywords", "requires_dist", "classifiers", "provides_extras")]
        more += [("home_page", "javascript:alert(1)"), ("project_urls", f"{one}, javascript:alert(1)")]
        send_release(base, password, "text-attacks", f"{at + 1}.0", attacks, content_type, more)
        for ending in ATTACHED:
            for file in [f"x{ending}", f"{one.replace('/', '')}{ending}"]:
                place = f"/+attachments/written/attacks/{name}/{quote(file)}"
                send(base, password, place, attacks.encode(), "text/html", "PUT")
        article = f"/article/written/attacks/{name}"
        paths += [f"/+attachments/written/attacks/{name}/"]
        paths += [article, f"{article}/history", f"{article}/diff", f"{article}/diff?view=inline", f"{DEV}/text-attacks/{at + 1}.0"]
        contents = f"{DEV}/text-attacks/{at + 1}.0/+contents/text-attacks-{at + 1}.0.zip"
        paths += [contents, f"{contents}?member=0", f"{contents}?member=1"]
        if at > 0:
            paths.append(f"{DEV}/text-attacks/{at + 1}.0/+compare?with={at}.0")
    reason = json.dumps({"status": "deprecated", "reason": one}).encode()
    send(base, password, f"{DEV}/text-attacks/1.0/+yank", json.dumps({"reason": one}).encode(), "application/json")
    send(base, password, f"{DEV}/text-attacks/+status", reason, "application/json", "PUT")
    send(base, password, "/+tokens", json.dumps({"scopes": ["python:read"], "comment": one}).encode(), "application/json")
    # Those of whoever is logged in.
    manage = "/+manage/releases/root/dev/text-attacks"
    return [*paths, "/+account", "/+manage/users/root", manage, f"{manage}?version=1.0"]


def log_in(page, base, password):
    page.goto(f"{base}/+account/login")
    page.fill("main input[name=name]", "root")
    page.fill("main input[name=password]", password)
    with page.expect_navigation():
        page.press("main input[name=password]", "Enter")


def check_attacks(browser, base, password, paths):
    """Nothing comes to life: with the policy of the page, and without it, when only the sanitiser is in between."""
    for is_bare in (False, True):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.add_init_script(ALIVE)
        if is_bare:
            context.route("**/*", lambda route: without_policy(route))
        watched = Watched(context, base)
        log_in(watched.page, base, password)
        for path in paths:
            what = f"{path} ({'without' if is_bare else 'with'} its policy)"
            response = watched.page.goto(base + path)
            assert response.status == 200, f"{what}: {response.status}"
            found = watched.page.evaluate(PROVOKE)
            assert not found, f"{what}: {found[:5]}"
            ran = watched.page.evaluate("window.ran")
            assert not ran, f"{what}: {ran}"
            assert watched.page.url == base + path, f"{what} went to {watched.page.url}"
            # The heading that the page itself has, and no other of that level.
            assert watched.page.locator("h1").count() == 1, what
            if not is_bare:
                check_accessible(watched.page, what)
            watched.check(what)
        context.close()
    # That a script is noticed where one runs: the same, with one put in.
    context = browser.new_context()
    context.add_init_script(ALIVE)
    context.route("**/*", lambda route: without_policy(route, "<script>alert(1)</script>"))
    page = context.new_page()
    page.goto(base + paths[0])
    assert page.evaluate("window.ran") == ["alert 1"], "a script that runs is not noticed"
    context.close()
    return 2 * len(paths)


def check_attached(browser, base, paths):
    """No file of an article comes to life where a browser goes to it."""
    context = browser.new_context()
    context.add_init_script(ALIVE)
    page, count = context.new_page(), 0
    for path in [path for path in paths if path.startswith("/+attachments/")]:
        page.goto(base + path)
        links = page.locator(".files > li > a")
        files = [urljoin(page.url, link.get_attribute("href")) for link in links.all()]
        assert len(files) == 2 * len(ATTACHED), f"{path}: {len(files)} files"
        for file in files:
            answer = context.request.get(file)
            policy = answer.headers.get("content-security-policy", "")
            assert policy.endswith("sandbox") and answer.headers.get("x-content-type-options") == "nosniff", f"{file}: {policy}"
            try:
                page.goto(file)
                ran = page.evaluate("window.ran || []")
                assert not ran, f"{file}: {ran}"
            except PlaywrightError as error:
                # It is saved, and not shown.
                assert "Download" in str(error) or "ERR_ABORTED" in str(error), f"{file}: {error}"
            count += 1
    context.close()
    return count


def without_policy(route, more=""):
    answer = route.fetch()
    headers = {name: value for name, value in answer.headers.items() if name != "content-security-policy"}
    if "text/html" not in headers.get("content-type", ""):
        return route.fulfill(response=answer)
    return route.fulfill(status=answer.status, headers=headers, body=answer.text().replace("</main>", more + "</main>"))


def check_pictures(browser, base, directory):
    """A picture of each page as it is, to look at: `SCREENSHOTS=DIRECTORY` keeps them."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, context in contexts(browser):
        page = context.new_page()
        for path in PEOPLE:
            page.goto(base + path)
            file = re.sub(r"[^a-z0-9.]+", "-", f"{path} {name}").strip("-")
            page.screenshot(path=directory / f"{file}.png", full_page=True)


def submitted(page, label, values=(), button="button"):
    """Sends a form of a page; the answer."""
    form = page.locator(f'form[aria-label="{label}"]')
    for name, value in values:
        field = form.locator(f"[name='{name}']")
        if value is True:
            field.first.check()
        else:
            field.fill(value)
    with page.expect_navigation() as navigation:
        form.locator(button).first.click()
    return navigation.value


def check_account(browser, base, password):
    """A user's own pages and the writing of articles, with scripts and without, on every size and in every colour."""
    count = 0
    for has_scripts in (True, False):
        for name, context in contexts(browser, java_script_enabled=has_scripts):
            watched = Watched(context, base)
            page = watched.page

            def looked_at(what, statuses=()):
                nonlocal count
                count += 1
                what = f"{what} ({name}, {'with' if has_scripts else 'without'} scripts)"
                if has_scripts:
                    check_accessible(page, what)
                watched.check(what, statuses)

            watched.open("/+edit/written/in/a/browser", 401)
            looked_at("a page that needs a user", [401])
            with page.expect_navigation():
                page.click('main a[href^="/+account/login"]')
            page.fill("main input[name=name]", "root")
            page.fill("main input[name=password]", "wrong")
            assert submitted(page, "Log in").status == 401
            looked_at("a wrong password", [401])
            page.fill("main input[name=password]", password)
            with page.expect_navigation():
                page.press("main input[name=password]", "Enter")
            assert page.url == f"{base}/+edit/written/in/a/browser", page.url
            looked_at("the form of an article")
            answer = submitted(page, "Article", [("text", WRITTEN)], "button[value=preview]")
            assert answer.status == 200 and page.locator("article.written table").count() == 1
            looked_at("a preview")
            # Somebody else is first: the same article in another tab.
            other = context.new_page()
            other.goto(f"{base}/+edit/written/in/a/browser")
            mark = f"{name}, {has_scripts}"
            submitted(other, "Article", [("text", f"# Other\n\n{mark}\n")], "button[value=save]")
            assert other.url == f"{base}/article/written/in/a/browser", other.url
            other.close()
            answer = submitted(page, "Article", [("text", f"{WRITTEN}\n\nmine\n")], "button[value=save]")
            assert answer.status == 409, answer.status
            expect(page.locator("#theirs + label textarea")).to_have_value(f"# Other\n\n{mark}\n")
            looked_at("a conflict", [409])
            answer = submitted(page, "Article", [("text", f"{WRITTEN}\n\nboth\n")], "button[value=save]")
            assert page.url == f"{base}/article/written/in/a/browser", page.url
            watched.check("saved")
            page.click('main a[href="/+attachments/written/in/a/browser/"]')
            picture = {"name": "plan.png", "mimeType": "image/png", "buffer": PICTURE}
            page.set_input_files('form[aria-label="Add a file"] input[type=file]', files=[picture])
            submitted(page, "Add a file")
            expect(page.locator("main .files")).to_contain_text("plan.png")
            page.click("summary")
            looked_at("the files of an article")
            submitted(page, "Remove plan.png")
            expect(page.locator("main")).to_contain_text("has no files")
            looked_at("an article without files")
            page.goto(f"{base}/article/written/in/a/browser")
            page.click('main a[href^="/+rename/"]')
            looked_at("the form for another name")
            assert submitted(page, "Rename", [("to", "written/../x")]).status == 400
            looked_at("a name that is refused", [400])
            submitted(page, "Rename", [("to", "written/anew"), ("comment", "a better name")])
            assert page.url == f"{base}/article/written/anew", page.url
            watched.check("renamed", [400])
            watched.open("/+edit/written/in/a/browser")
            expect(page.locator("main .note")).to_contain_text("is called written/anew now")
            looked_at("the form at the old name")
            # The old name leads to the new one; from there it comes back.
            page.goto(f"{base}/article/written/in/a/browser")
            assert page.url == f"{base}/article/written/anew", page.url
            page.click('main a[href^="/+rename/"]')
            submitted(page, "Rename", [("to", "written/in/a/browser")])
            assert page.url == f"{base}/article/written/in/a/browser", page.url
            watched.check("renamed back")
            page.click("text=Edit")
            page.click("summary")
            submitted(page, "Delete", [("comment", "tidied up")])
            assert page.url == f"{base}/article/written/in/a/browser/history", page.url
            looked_at("the history of what was deleted")
            watched.open("/+account")
            looked_at("the account")
            answer = submitted(page, "New token", [("comment", "ci"), ("scope", True), ("own", password)])
            assert answer.status == 201 and page.locator("section.card code").inner_text().startswith("larder_")
            looked_at("a new token")
            submitted(page, "Change the password", [("old", "x"), ("new", "y"), ("again", "z")])
            looked_at("a password that is not changed", [422])
            page.locator('form[aria-label^="Revoke"] button').first.click()
            expect(page.locator("main [role=status]")).to_contain_text("is revoked")
            watched.check("revoked", [422])
            for path in [
                "/+manage", "/+manage/audit", "/+manage/groups", "/+manage/groups?q=x", "/+manage/tokens", "/+manage/webhooks", "/+manage/users/root", "/+manage/indexes/root/dev",
                "/+manage/indexes/root/pypi", "/+manage/prefetch/root/pypi", "/+manage/releases/root/dev", "/+manage/releases/root/dev/text-attacks",
                "/+manage/releases/root/dev/text-attacks?version=1.0",
            ]:
                watched.open(path)
                for summary in page.locator("summary").all():
                    summary.click()
                looked_at(path)
            watched.open("/+manage/webhooks")
            answer = submitted(page, "Webhook nowhere", [], "button[value=test]")
            assert answer.status == 422, answer.status
            looked_at("a webhook whose test is not taken", [422])
            watched.open("/+manage/prefetch/root/pypi")
            submitted(page, "Fetch ahead", [("lock", "not-there==1.0")])
            expect(page.locator("#last + p")).to_contain_text("releases")
            # The one before it may not have ended.
            looked_at("a lock whose files are fetched", [409])
            watched.open("/+manage/indexes/root/dev")
            submitted(page, "Old versions", [("versions", "1")], "button[value=look]")
            expect(page.locator("main [role=status]")).to_contain_text("removed")
            looked_at("old versions")
            submitted(page, "Settings", [("is.title", f"Ours, {mark}")])
            expect(page.locator("main [role=status]")).to_contain_text("are changed")
            looked_at("settings")
            watched.open("/+manage")
            page.click("summary >> nth=0")
            new = re.sub("[^a-z]", "", mark.lower())
            answer = submitted(page, "New user", [("name", new), ("own", password), ("password", "staple")])
            assert page.url == f"{base}/+manage/users/{new}", page.url
            submitted(page, "Groups", [("groups", "readers"), ("own", password)])
            page.click("summary:has-text('A new token')")
            answer = submitted(page, "New token", [("comment", "ci"), ("scope", True), ("own", password)])
            assert answer.status == 200 and page.locator("section.card code").inner_text().startswith("larder_")
            looked_at("a new token of another user")
            watched.open("/+manage/groups")
            expect(page.locator("main dd")).to_contain_text(new)
            looked_at("the groups")
            page.click(f"text={new}")
            submitted(page, "Disable")
            looked_at("a user who is disabled")
            submitted(page, "Delete", [("confirm", new)])
            assert page.url == f"{base}/+manage", page.url
            watched.check("deleted")
            watched.open(f"{DEV}/text-sample")
            expect(page.locator("#required-by + ul")).to_contain_text("text-needing")
            looked_at("what requires a project")
            watched.open("/+manage/releases/root/dev")
            page.click("text=text-sample")
            page.click("main .links a >> nth=0")
            submitted(page, "Yank", [("reason", "a look")])
            expect(page.locator("main [role=status]")).to_contain_text("is yanked")
            looked_at("a yanked release")
            submitted(page, "Take the yank back")
            submitted(page, "Push", [("target", "root/nowhere")])
            looked_at("a push to nowhere", [404])
            submitted(page, "Push", [("target", "root/stable")])
            expect(page.locator("main [role=status]")).to_contain_text("is pushed")
            watched.open("/root/stable/text-sample/1.0")
            page.click("text=Manage this release")
            force = [("force", True)] if page.locator("form[aria-label=Remove] [name=force]").count() else []
            answer = submitted(page, "Remove", [("confirm", "2.0"), *force])
            assert answer.status == 422, answer.status
            looked_at("a removal that was not confirmed", [422])
            submitted(page, "Remove", [("confirm", "1.0"), *force])
            assert page.url == f"{base}/+manage/releases/root/stable", page.url
            watched.check("removed")
            watched.open("/+account")
            submitted(page, "Log out")
            assert page.url == f"{base}/+account/login", page.url
            looked_at("logged out")
    return count


def check_search(browser, base):
    """The search box: by a click without scripts, and by keys alone with them, to the page of a package."""
    with urllib.request.urlopen(base + "/rpc/v5/suggest/py") as answer:
        names = json.load(answer)
    name = names[0]
    for path in ["/", "/docs"]:
        context = browser.new_context(java_script_enabled=False)
        watched = Watched(context, base)
        watched.open(path)
        watched.page.fill("#q", name)
        with watched.page.expect_navigation():
            watched.page.click('form.find button')
        expect(watched.page.locator("h1")).to_have_text(name)
        with watched.page.expect_navigation():
            watched.page.click(f'.hits a[href="/packages/{quote(name)}"]')
        expect(watched.page.locator("h1")).to_contain_text(name)
        watched.check(f"{path}, a search without scripts")
        context.close()
        for label, context in contexts(browser):
            what = f"{path}, a search by keys ({label})"
            watched = Watched(context, base)
            page = watched.page
            watched.open(path)
            page.keyboard.press("/")
            expect(page.locator("#q")).to_be_focused()
            page.keyboard.type(name)
            first = page.locator("#suggestions [role=option]").first
            expect(first).to_contain_text(name)
            check_accessible(page, what)
            page.keyboard.press("ArrowDown")
            expect(first).to_have_attribute("aria-selected", "true")
            page.keyboard.press("Escape")
            expect(page.locator("#suggestions")).to_be_hidden()
            page.keyboard.press("ArrowDown")
            with page.expect_navigation():
                page.keyboard.press("Enter")
            expect(page.locator("h1")).to_contain_text(name)
            watched.check(what)
    return len(names)


def check_times(browser, base):
    """Times in words, beside the exact ones; on paper, and without scripts, the times themselves."""
    minute = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d$")
    for has_scripts, said in ((True, re.compile("^(just now|.* ago)$")), (False, minute)):
        context = browser.new_context(java_script_enabled=has_scripts)
        page = context.new_page()
        page.goto(base + "/article/welcome/history")
        time = page.locator("time.ago").first
        expect(time).to_have_text(said)
        expect(time).to_have_attribute("title", re.compile("UTC$"))
        if has_scripts:
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
            expect(time).to_have_text(minute)
            page.evaluate("dispatchEvent(new Event('afterprint'))")
            expect(time).to_have_text(said)
        context.close()


def check_sorting(browser, base):
    """Heads of tables that sort them, by the keyboard, too; without scripts the tables are as they came."""
    ascending = ["1.0", "2.0", "3.0", "4.0"]
    for has_scripts in (True, False):
        context = browser.new_context(java_script_enabled=has_scripts)
        watched = Watched(context, base)
        page = watched.page
        watched.open(f"{DEV}/text-attacks")
        table = page.locator("table.sorts")
        names = table.locator("tbody td:first-child a")
        expect(names).to_have_text(ascending[::-1])
        if has_scripts:
            button = table.get_by_role("button", name="Version")
            button.focus()
            page.keyboard.press("Enter")
            expect(names).to_have_text(ascending)
            expect(table.locator("th").first).to_have_attribute("aria-sort", "ascending")
            button.click()
            expect(names).to_have_text(ascending[::-1])
            table.get_by_role("button", name="Last file").click()
            expect(table.locator("th[aria-sort]")).to_have_text("Last file")
            # Several were uploaded within one second.
            times = table.locator("tbody time").evaluate_all("all => all.map(it => it.dateTime)")
            assert len(times) == len(ascending) and times == sorted(times), times
            check_accessible(page, "a sorted table")
        else:
            expect(table.locator("button")).to_have_count(0)
        watched.check("a table that sorts")
        context.close()


def main():
    work = pathlib.Path(sys.argv[1])
    work.mkdir(parents=True, exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])))
    pages = {"/": 200, "/+use": 200, "/status": 200, "/docs": 200, "/docs?q=yank": 200, "/docs/aur": 200, "/+account": 200, "/nothing/is/here/at/all/of/it": 404}
    aur = {
        "/packages/": 200,
        "/packages/?K=lib&SeB=n&SB=v": 200,
        "/packages/?K=cmake&SeB=makedepends&outdated=on&O=50": 200,
        "/packages/?K=nothing-is-called-so": 200,
        "/packages/nothing-is-called-so": 404,
        "/search?q=lib": 200,
        "/search?q=nothing-is-called-so": 200,
        "/search": 200,
    }
    everything = ["AUR packages", "Python projects", "Articles"]
    off = [word for name in OFF for word in (f"--{name}-enabled", "false")]
    webhooks = work / "webhooks.toml"
    webhooks.write_text(WEBHOOK)
    python = {"/+search?query=larder": 200, "/nobody/none/+simple/": 404}
    servers = [
        ("demo", ["--demo", "--changes-webhooks-file", str(webhooks)], "Stop with Ctrl-C", pages | python | aur | {"/rpc/stats": 200, "/rpc": 200}, everything),
        ("bare", [], '"message":"loaded the store"', pages | python, []),
        ("off", off, '"message":"loaded the store"', pages, []),
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER)
        for name, arguments, until, pages, forms in servers:
            with server(work, name, *arguments, until=until) as base:
                attacked = []
                if name == "demo":
                    password = (work / name / "root-password").read_text().strip()
                    attacked = written(base, password)
                    pages = pages | {path: 200 for path in PEOPLE}
                    pages = pages | packages_of(base)
                checked = check_pages(browser, base, pages)
                paths = [path for path, status in pages.items() if status == 200]
                links = check_links(browser, base, paths)
                submitted = check_forms(browser, base, "/", forms)
                submitted += check_forms(browser, base, "/+use", [] if name == "off" else ["Actions"])
                commands = check_commands(browser, base, work)
                harmless = check_attacks(browser, base, password, attacked) if attacked else 0
                harmless += check_attached(browser, base, attacked) if attacked else 0
                if attacked and os.environ.get("SCREENSHOTS"):
                    check_pictures(browser, base, pathlib.Path(os.environ["SCREENSHOTS"]))
                if name == "demo":
                    check_search(browser, base)
                    check_times(browser, base)
                    check_sorting(browser, base)
                    check_account(browser, base, password)
            print(f"{name}: {checked} pages, {links} links, {submitted} forms, {commands} commands, {harmless} attacked")
        browser.close()


if __name__ == "__main__":
    main()
