"""The differences from devpi-server that are meant, by the ids of docs/devpi-differences.md.

Rows of id, requests (patterns of their names), parts of the answer (a pattern); the first that fits names the difference.
"""

PAGES = "simple-*"
KNOWN = (
    # More on the pages, and metadata beside the files.
    ("P1", PAGES, "body.*size"),
    ("P1", PAGES, "body.*upload-time"),
    ("P1", PAGES, "body.*core-metadata*"),
    ("P1", "pushed-page deleted-project-page", "body.*"),
    ("P1", PAGES, "body.versions"),
    ("P1", PAGES, "body.meta.api-version"),
    ("P1", "file-metadata", "*"),
    ("P1", "file", "body.result.*size*"),
    # Headers that let clients keep what they have.
    ("P2", "*", "header.etag"),
    ("P2", "*", "header.cache-control"),
    ("P2", "*", "header.vary"),
    ("P2", "*", "header.content-length"),
    ("P3", "file*", "header.accept-ranges"),
    ("P3", "file-range", "*"),
    # How pages are written.
    ("P4", "*", "*order"),
    ("P5", PAGES, "*requires-python"),
    ("P6", PAGES, "body.title"),
    ("P6", PAGES, "body.h1"),
    ("P6", PAGES, "body.form*"),
    ("P7", "simple-list-no-slash-*", "*"),
    ("P7", "simple-bare-index-*", "body.links*"),
    # Which of several forms is answered.
    ("P8", "api-html login-html user-html index-html", "*"),
    ("P8", "simple-bare-project-any simple-bare-project-browser simple-bare-project-poetry", "*"),
    ("P8", "simple-project-json simple-list-json simple-image simple-v1-html", "type"),
    ("P9", "simple-no-slash-* simple-other-spelling* project-other-spelling version-other-spelling refresh*", "type"),
    ("P9", "simple-no-slash-* simple-other-spelling* project-other-spelling version-other-spelling refresh*", "body*"),
    ("P9", "authcheck authcheck-api authcheck-file authcheck-no-uri upload-non-volatile-again", "type"),
    ("P9", "authcheck authcheck-api authcheck-file authcheck-no-uri upload-non-volatile-again", "body*"),
    # Refusals.
    ("P10", "user-delete-root user-delete-other user-delete-anonymous index-patch-anonymous index-patch-other", "body.message"),
    ("P10", "index-delete-anonymous index-delete-other delete-*-anonymous delete-*-other authcheck-nothing", "body.message"),
    ("P10", "user-patch-anonymous user-patch-other user-patch-wrong-password user-patch-password-other", "body.message"),
    ("P10", "delete-project-non-volatile* delete-version delete-version-again delete-version-force delete-version-missing", "body.message"),
    ("P10", "index-create-unknown-keys index-patch-no-operator", "body.message"),
    ("P18", "upload-anonymous* upload-wrong-password upload-no-action upload-missing-index push-conflict", "reason"),
    ("P18", "upload-anonymous upload-wrong-password upload-no-action upload-missing-index", "body.*"),
    ("P18", "upload-bad-action upload-bad-archive upload-mirror upload-no-content upload-other upload-other-name", "body.message"),
    ("P18", "upload-other-version upload-non-volatile-changed upload-non-volatile-changed-uv", "body.message"),
    ("P19", "upload-bad-name submit-bad-name submit-no-version", "*"),
    ("P11", "login-get user-post upload-to-project upload-to-simple simple-post file-put nothing-here", "*"),
    ("P12", "login-list index-patch-add-to-text index-patch-add-unknown index-patch-numbers index-patch-text", "*"),
    ("P12", "upload-no-name upload-no-version push-no-target push-no-name push-external-closed", "*"),
    ("P13", "index-patch-missing index-delete-missing", "*"),
    ("P14", "push-mirror-target push-anonymous push-other", "header.www-authenticate"),
    ("P14", "push-external-anonymous", "*"),
    # Configuration.
    ("P16", "index-patch-noop-error", "*"),
    # Records.
    ("P17", "*", "*log"),
    ("P30", "push-kept-again", "*"),
)
