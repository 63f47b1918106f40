"""Pages that do not hold, and whether each is found out: what this directory is for must not pass by itself.

a page in Markdown + what must be said of it -> fails unless just that is said.
"""

import pages
from visit import Failure, Visit

SERVER = """
<!-- given:
larder init --data-dir /srv/larder
larder serve --data-dir /srv/larder
-->
"""
# Each: what is wrong, the page, and a part of what must be said.
WRONG = [
    ("a command that fails", "```sh\ntrue\nlarder user shwo\n```\n", "ended with exit code 2, expected 0"),
    ("an answer of 404", f"{SERVER}```sh\ncurl localhost:8080/article/nowhere\n```\n", "ended with exit code 22, expected 0"),
    ("another output", "```sh\nprintf 'one\\ntwo\\n'\n```\n<!-- prints -->\n```text\none\nthree\n```\n", "| three"),
    ("output that is left out", "```console\n$ printf 'one\\ntwo\\n'\none\n```\n", "| two"),
    ("another value", "```sh\necho '{\"a\": {\"b\": 1}}'\n```\n<!-- prints -->\n```json\n{\"a\": {\"b\": 2}, \"…\": 0}\n```\n", ".a.b is 1, expected 2"),
    ("another member", "```sh\necho '{\"a\": 1, \"b\": 2}'\n```\n<!-- prints -->\n```json\n{\"a\": 1}\n```\n", "has the members ['a', 'b']"),
    ("a moment that is none", "```sh\necho yesterday\n```\n<!-- prints -->\n```text\n2026-01-02\n```\n", "| yesterday"),
    ("no failure where one is said", "<!-- stops with: 1 -->\n```sh\ntrue\n```\n", "ended with exit code 0, expected 1"),
    ("a wrong password", f"{SERVER}```sh\ncurl -u nobody localhost:8080/+tokens\n```\n", "ended with exit code 22"),
    ("a server that does not start", "```sh\nlarder serve --aur-enabled true\n```\n", "ended at once"),
    ("no reason", "<!-- not run: later -->\n```sh\ntrue\n```\n", "needs a reason"),
    ("a mark without a block", "<!-- prints -->\n\nText.\n\n```sh\ntrue\n```\n", "stands above no block"),
    ("a command without its end", "```sh\necho \"one\n```\n", "does not end"),
]  # fmt: skip
RIGHT = """
```console
$ printf 'one\\n2026-11-22T10:00:00Z\\nthree\\nfour\\n'
one
2026-01-02T03:04:05Z
…
```

<!-- not run: a test machine has no printer -->
```sh
lpr README.md
```
"""


def said_of(text, directory, binary):
    """What is said of a page, or None if it holds."""
    try:
        blocks = pages.blocks("page.md", text)
        with Visit(directory, binary) as visit:
            for block in blocks:
                visit.block(block)
    except (Failure, pages.Mistake) as failure:
        return str(failure)
    return None


def check(directory, binary):
    for what, text, expected in WRONG:
        said = said_of(text, directory, binary)
        assert said is not None, f"{what} is not found out:\n{text}"
        assert expected in said, f"{what}: it says {said!r}, expected {expected!r}"
    said = said_of(RIGHT, directory, binary)
    assert said is None, f"a page that holds is refused: {said}"
    return f"{len(WRONG)} pages that do not hold are found out, and one that holds is not"
