"""Whether a command prints what its page says.

expected text + printed text -> None, or a sentence that says where they part.

`…` in an expected text stands for anything within its line or its JSON string; a line, a member or an element that is `…`
alone, for any number of them. What differs each time (moments, tokens, digests) only has to have the same form.
"""

import json
import re

VARYING = [
    (re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "<moment>"),
    (re.compile(r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} 20\d\d \d\d:\d\d:\d\d GMT"), "<moment>"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "<day>"),
    (re.compile(r"\blarder_[0-9a-f]{12}_[0-9a-f]{64}\b|\blarder_…"), "<token>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12}\b"), "<id>"),
]


def masked(text):
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return text


def is_like(expected, found):
    """Whether one line, or one string, is as expected."""
    pairs = (expected, found), (masked(expected), masked(found))
    return any(re.fullmatch(".*".join(map(re.escape, wanted.split("…"))), text, re.DOTALL) for wanted, text in pairs)


def difference(language, expected, found):
    """None, or where `found` is not what the block says."""
    if language == "json":
        try:
            wanted = json.loads(expected)
        except ValueError as error:
            return f"the block is not JSON: {error}"
        try:
            return json_difference("", wanted, json.loads(found))
        except ValueError:
            return f"it does not print JSON: {found[:300]!r}"
    return lines_difference(expected.split("\n"), found.split("\n"))


def json_difference(path, wanted, found):
    where = path or "the value"
    if isinstance(wanted, dict) and isinstance(found, dict):
        missing = sorted(wanted.keys() - found.keys() - {"…"})
        more = sorted(found.keys() - wanted.keys())
        if missing or (more and "…" not in wanted):
            return f"{where} has the members {sorted(found)}, expected {sorted(wanted)}"
        parts = ((f"{path}.{key}", wanted[key], found[key]) for key in wanted if key != "…")
    elif isinstance(wanted, list) and isinstance(found, list):
        is_open = bool(wanted) and wanted[-1] == "…"
        wanted = wanted[:-1] if is_open else wanted
        if len(found) < len(wanted) or (len(found) > len(wanted) and not is_open):
            return f"{where} has {len(found)} elements, expected {len(wanted)}{' or more' if is_open else ''}"
        parts = ((f"{path}[{index}]", *pair) for index, pair in enumerate(zip(wanted, found)))
    elif wanted == "…" or wanted == found:
        return None
    elif isinstance(wanted, str) and isinstance(found, str) and is_like(wanted, found):
        return None
    else:
        return f"{where} is {found!r}, expected {wanted!r}"
    return next((said for part in parts if (said := json_difference(*part))), None)


def lines_difference(wanted, found):
    """As for a text: its lines one after the other, without the spaces at their ends and empty lines at the end."""
    wanted, found = ([line.rstrip() for line in "\n".join(lines).rstrip().split("\n")] for lines in (wanted, found))

    def follows(at, position):
        """Whether the lines from `at` on are those that are found from `position` on."""
        if at == len(wanted):
            return position == len(found)
        if wanted[at] == "…":
            return any(follows(at + 1, later) for later in range(position, len(found) + 1))
        return position < len(found) and is_like(wanted[at], found[position]) and follows(at + 1, position + 1)

    if follows(0, 0):
        return None
    return "expected\n" + "\n".join(f"    | {line}" for line in wanted) + "\n  but it prints\n" + "\n".join(f"    | {line}" for line in found[:40])
