"""Instructions by function, from a profile that valgrind's callgrind wrote."""

import re
from collections import Counter


def by_function(profile):
    """Self costs by function, from a callgrind profile (format: valgrind's manual, section on Callgrind's format)."""
    names, costs, function, skip = {}, Counter(), "?", False
    for line in profile.splitlines():
        if line.startswith(("fn=", "cfn=")):
            number, name = re.fullmatch(r"c?fn=(\(\d+\))(?: (.*))?", line).groups()
            names[number] = name or names.get(number, "?")
            if line.startswith("fn="):
                function = plain(names[number])
        elif line.startswith("calls="):
            skip = True  # The next line has what the call cost, which its own lines have, too.
        elif line[:1] in "0123456789+-*" and line:
            if not skip:
                fields = line.split()
                costs[function] += int(fields[1]) if len(fields) > 1 else 0
            skip = False
    return costs


def plain(name):
    """A function's name without what a compiler may choose anew."""
    return re.sub(r"(::h[0-9a-f]{16}|'\d+|@\S+)$", "", re.sub(r"\[[0-9a-f]{16}\]", "", name))
