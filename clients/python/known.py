"""The differences from devpi-server that are meant, by the ids of docs/devpi-differences.md.

Rows of id, requests (patterns of their names), parts of the answer (patterns), and where that can be said what the
values are like: a function of devpi's and Larder's, none for a part that is not there. The first row that fits names the
difference.
"""

import re


def becomes(*pairs):
    """Just these values, devpi's and Larder's."""
    return lambda devpi, larder: (devpi, larder) in pairs


def new(devpi, larder):
    return devpi is None and larder is not None


def once(devpi, larder):
    """What is not there a second time."""
    return larder is None or devpi == larder + 1


def gone(devpi, larder):
    return bool(devpi) and not larder


def reordered(devpi, larder):
    return isinstance(devpi, list) and isinstance(larder, list) and sorted(devpi) == sorted(larder)


def fewer_overwrites(devpi, larder):
    """A log that has the same entries, but for overwriting that is counted less often."""
    if not isinstance(devpi, list) or not isinstance(larder, list):
        return False
    others = [[entry for entry in log if "what=overwrite" not in entry] for log in (devpi, larder)]
    counts = [sum(int(count) for count in re.findall(r"count=(\d+) what=overwrite", "\n".join(log))) for log in (devpi, larder)]
    return others[0] == others[1] and counts[0] > counts[1]


HTML, JSON, TEXT = "text/html; charset=UTF-8", "application/json", "text/plain; charset=UTF-8"
PROBLEM = "application/problem+json"
FAILS = "login-list index-patch-add-to-text index-patch-add-unknown index-patch-numbers index-patch-text upload-no-name upload-no-version push-no-target push-no-name push-external-closed"  # fmt: skip
OTHER_METHODS = "api-put login-get user-post upload-to-project upload-to-simple simple-post file-put nothing-here"
PAGES = "simple-* odd-page python-page* ring-list-* ring-page-* ways-page-* base-child-page"
PUSHED_PAGES = "pushed-page deleted-project-page"
REDIRECTS = "simple-no-slash-* simple-other-spelling* project-other-spelling version-other-spelling refresh*"
EMPTY = "odd-no-tags-again authcheck authcheck-api authcheck-file authcheck-no-uri upload-non-volatile-again"
UNSEEN = "zero-width wide-space right-to-left private-use".split()
PEOPLE = "user-html index-html project-html simple-bare-project-browser simple-bare-index-browser"
NO_BODY = "user-create-no-body login-no-body index-create-no-body posted-nothing"
KNOWN = (
    # Browsers get pages.
    ("P8", PEOPLE, "status", becomes((404, 200), (415, 200))),
    ("P8", PEOPLE, "type body* header.* order*"),
    # A mirror of nothing.
    ("P15", "index-create-mirror-no-url", "status", becomes((200, 400))),
    ("P15", "index-create-mirror-no-url", "body.message", new),
    ("P15", "users-last", "body.result.bert.indexes.mirror*", gone),
    ("P18", "upload-mirror", "body.message"),
    ("P59", "index-create-mirror index-mirror-of-old-client", "body.message", new),
    # Names that nobody could tell apart.
    ("P33", " ".join(f"user-create-{what}" for what in UNSEEN), "status", becomes((201, 400))),
    ("P33", " ".join(f"user-{what}" for what in UNSEEN), "status", becomes((200, 404))),
    ("P33", " ".join(f"user-*{what}" for what in UNSEEN), "body.message", new),
    ("P33", "users-last", "body.result.a?b.* body.result.a?.*", lambda devpi, larder: larder is None),
    # Where a request comes from and goes to.
    ("P35", "api-slash", "status", becomes((404, 200))),
    ("P35", "api-slash", "body.message", gone),
    ("P36", "api-proto", "body.result.login", becomes(("http://HOST/+login", "https://HOST/+login"))),
    # Bases.
    ("P37", "ways-version-* ways-project-*", "body.result*+shadowing*", once),
    ("P39", "base-child-patch-*", "status", becomes((400, 200))),
    ("P39", "base-child-patch-*", "body.message", gone),
    ("P47", "base-file base-file-json", "status", becomes((410, 404))),
    ("P47", "base-file-json", "body.message"),
    ("P13", "base-file-delete user-delete-missing-anonymous user-delete-missing-other", "status", becomes((403, 404))),
    ("P13", "base-file-delete user-delete-missing-anonymous user-delete-missing-other", "body.message"),
    ("P53", "file-of-base-here", "status", becomes((404, 200))),
    ("P53", "file-of-base-here", "type body*"),
    # What a file needs is its own.
    ("P38", "python-page*", "body.files*requires-python", becomes((">=3.9", ">=3.6"))),
    ("P38", "python-page-after-submit", "body.files*requires-python"),
    # Bodies that are missing.
    ("P10", NO_BODY, "body.message"),
    ("P10", "posted-form-without-action posted-nothing-as-form", "reason body.code body.title body.message"),
    # Pushes elsewhere.
    ("P32", "push-external-unknown-option", "status", becomes((200, 400))),
    ("P32", "push-external-unknown-option", "body.message", new),
    ("P32", "push-external-unknown-option", "came", gone),
    ("P32", "push-external-files-refused", "status", becomes((200, 502))),
    ("P12", "push-external-register-closed", "body.result[[]0]"),
    ("P14", "push-external-files-refused*", "body.result*"),
    # More on the pages, and metadata beside the files.
    ("P1", PAGES, "body.files*.size", new),
    ("P1", PAGES, "body.files*.upload-time", becomes((None, "MOMENT"))),
    ("P1", PAGES, "body.files*.core-metadata.sha256", new),
    ("P1", f"{PAGES} {PUSHED_PAGES}", "body.links*.data-core-metadata", new),
    ("P1", PAGES, "body.versions", new),
    ("P1", PAGES, "body.meta.api-version", becomes(("1.0", "1.4"))),
    ("P1", "file-metadata", "status", becomes((404, 200))),
    ("P1", "file-metadata", "type", becomes((JSON, "application/octet-stream"))),
    ("P1", "file-metadata", "body.message", gone),
    ("P1", "file", "body.result.size", new),
    # Headers that let clients keep what they have.
    ("P2", f"{PAGES} {PUSHED_PAGES} file* odd-file*", "header.etag", new),
    ("P2", f"{PAGES} {PUSHED_PAGES}", "header.cache-control", becomes((None, "max-age=0, must-revalidate"))),
    ("P2", f"{PAGES} {PUSHED_PAGES}", "header.vary", becomes(
        ("Accept, User-Agent", "Accept, Accept-Encoding, User-Agent"), ("Accept, User-Agent", "Accept, Accept-Encoding"))),
    ("P2", "*", "header.content-length", becomes((None, "present"))),
    ("P2", "*", "header.vary", becomes((None, "Accept, User-Agent"), (None, "Accept"))),
    ("P3", "file* odd-file*", "header.accept-ranges", becomes((None, "bytes"))),
    ("P3", "file-range", "status", becomes((200, 206))),
    # How pages are written.
    ("P4", f"{PAGES} pushed", "*order", reordered),
    ("P5", PAGES, "*requires-python", becomes(("", None))),
    ("P6", PAGES, "body.title body.h1", new),
    ("P6", PAGES, "body.form*", new),
    ("P7", "simple-list-no-slash-*", "status", becomes((302, 200))),
    ("P7", "simple-list-no-slash-*", "type", becomes((JSON, HTML))),
    ("P7", "simple-list-no-slash-*", "body.message", gone),
    ("P7", "simple-list-no-slash-* simple-bare-index-*", "body.links*.href"),
    # Which of several forms is answered.
    ("P8", "api-html login-html", "status", becomes((404, 200))),
    ("P8", "api-html login-html", "type", becomes((HTML, JSON))),
    ("P8", "login-html", "body.message", becomes((None, "login successful"))),
    ("P8", "simple-bare-project-any simple-bare-project-browser simple-bare-project-poetry", "status", becomes((415, 200))),
    ("P8", "simple-bare-project-any simple-bare-project-browser simple-bare-project-poetry", "body.message", gone),
    ("P8", "simple-bare-project-any simple-bare-project-browser simple-bare-project-poetry", "type"),
    ("P8", "simple-project-json simple-list-json simple-image", "type", becomes(("text_html", HTML))),
    ("P8", "simple-v1-html", "type", becomes(("text_html", "application/vnd.pypi.simple.v1+html"))),
    ("P8", "*", "type", becomes((HTML, PROBLEM))),
    ("P8", "*", "body.detail body.status body.title body.type", new),
    ("P9", f"{REDIRECTS} {EMPTY}", "type", gone),
    ("P9", f"{REDIRECTS} {EMPTY}", "body*", gone),
    # Refusals.
    ("P10", "user-delete-root user-delete-other user-delete-anonymous index-patch-anonymous index-patch-other", "body.message"),
    ("P10", "index-delete-anonymous index-delete-other delete-*-anonymous delete-*-other authcheck-nothing", "body.message"),
    ("P10", "user-patch-anonymous user-patch-other user-patch-wrong-password user-patch-password-other", "body.message"),
    ("P10", "delete-project-non-volatile* delete-version delete-version-again delete-version-force delete-version-missing", "body.message"),
    ("P10", "index-create-unknown-keys index-patch-no-operator", "body.message"),
    ("P18", "upload-anonymous* upload-wrong-password upload-no-action upload-missing-index push-conflict", "reason", new),
    ("P18", "upload-anonymous upload-wrong-password upload-no-action upload-missing-index", "body.code body.title body.message"),
    ("P18", "odd-no-tags-again odd-other-version upload-bad-action upload-bad-archive upload-no-content upload-other upload-other-name", "body.message"),
    ("P18", "upload-other-version upload-non-volatile-changed upload-non-volatile-changed-uv", "body.message"),
    ("P19", "upload-bad-archive", "reason body.code body.title"),
    ("P55", "deleted-last-version-list", "body.result.held_names", new),
    ("P55", "delete-project-again", "body.message"),
    ("P19", "upload-bad-name submit-bad-name submit-no-version upload-empty-version submit-empty-version upload-docs-empty-version", "reason body.code body.title body.message"),
    ("P11", OTHER_METHODS, "status", becomes((404, 405), (200, 405))),
    ("P11", OTHER_METHODS, "body.message"),
    ("P11", "upload-to-simple upload-to-project simple-post", "reason body.code body.title"),
    ("P14", "push-external-anonymous", "status", becomes((500, 401))),
    ("P14", "push-external-anonymous", "type", becomes((TEXT, JSON))),
    ("P14", "push-external-anonymous", "body.message", new),
    ("P12", FAILS, "status", becomes((500, 400))),
    ("P12", "push-external-closed", "status", becomes((500, 502))),
    ("P12", FAILS, "type", becomes((TEXT, JSON))),
    ("P12", FAILS, "body.message reason", new),
    ("P13", "index-patch-missing index-delete-missing", "status", becomes((403, 404))),
    ("P13", "index-patch-missing index-delete-missing", "body.message"),
    ("P14", "push-anonymous push-other push-mirror-target push-form-type-anonymous", "header.www-authenticate", becomes((None, 'Basic realm="pypi"'))),
    # Configuration.
    ("P16", "index-patch-noop-error", "status", becomes((200, 400))),
    ("P16", "index-patch-noop-error", "body.message", new),
    # Records.
    ("P17", "simple-bare-project-json project* version* tox-listed pushed", "body.result*+links*.log", fewer_overwrites),
    ("P30", "push-kept-again", "status", becomes((409, 200))),
    ("P30", "push-kept-again", "body.message", gone),
)

# Of devpi's own tests of mirrors, those that fail: the id, and part of the failure.
MIRROR_TESTS = {
    # The upstream of the tests answers with nothing where it has no files, and no projects.
    "test_no_releases": ("P34", "the answer is no page of an index"),
    "test_whitelisted_package_not_in_mirror": ("P34", "502 Bad Gateway"),
    "test_download_release_error": ("P34", "or 'received 502 from primary' in msg"),
    "test_deleted_package": ("P34", "no project 'pkg'"),
    "test_releases_urlquoting_hash": ("P34", "/mirror10/mirror/+f/123/4/pkg-1!2017.4+devpi.zip"),
}
