#!/usr/bin/env python3
"""Writes clients/cases.json: what every client must be told, computed from a dump by plain scans.

dump -> the records -> questions picked from them, with the names (and records) that answer each.

    clients/expect.py DUMP > clients/cases.json

It knows nothing of Larder's code, so that the clients compare two independent readings of the contract. The
questions are picked by position in sorted order, never at random: the same dump gives the same file.
"""

import gzip
import hashlib
import json
import re
import sys

RESULTS_MAX = 5000
SUGGESTIONS_MAX = 20
INFO_NAMES = 200
RELATION_FIELDS = {
    "depends": "Depends",
    "makedepends": "MakeDepends",
    "optdepends": "OptDepends",
    "checkdepends": "CheckDepends",
    "provides": "Provides",
    "conflicts": "Conflicts",
    "replaces": "Replaces",
    "groups": "Groups",
    "keywords": "Keywords",
    "comaintainers": "CoMaintainers",
}
RELATIONS_WITH_CONDITION = {"depends", "makedepends", "optdepends", "checkdepends", "provides", "conflicts", "replaces"}
# Shown in every info record, whatever the dump leaves out; the other lists appear only when they hold something.
LISTS_ALWAYS_SHOWN = ("License", "Keywords")


def read_dump(path):
    """The records of a dump file, plain or gzip, in its order; and the sha256 of the file as it lies there."""
    with open(path, "rb") as file:
        raw = file.read()
    digest = hashlib.sha256(raw).hexdigest()
    while raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    return json.loads(raw), digest


def info_record(package):
    """A dump record as `info` shows it: the lists that are always there, and the path of the package base."""
    record = dict(package)
    for field in LISTS_ALWAYS_SHOWN:
        record.setdefault(field, [])
    record["URLPath"] = f"/cgit/aur.git/snapshot/{package['PackageBase']}.tar.gz"
    return record


def exact_index(packages, by):
    """value -> names of the packages that have it, for each `by` that compares whole values; keys are lower case."""
    index = {}
    for package in packages:
        if by in ("maintainer", "submitter"):
            values = [package["Maintainer" if by == "maintainer" else "Submitter"] or ""]
        else:
            values = package.get(RELATION_FIELDS[by], [])
        if by in RELATIONS_WITH_CONDITION:
            values = [re.split("[<>=]", value)[0] for value in values]
        if by == "provides":
            values = values + [package["Name"]]
        for value in values:
            index.setdefault(value.lower(), set()).add(package["Name"])
    return index


def substring_names(packages, needle, with_description):
    """Names of the packages whose name (or description) holds `needle`, in any case."""
    needle = needle.lower()
    return {
        package["Name"]
        for package in packages
        if needle in package["Name"].lower() or with_description and needle in (package["Description"] or "").lower()
    }


def search_case(by, arg, names):
    """One question; more answers than a reply may hold become the error that says so."""
    if len(names) > RESULTS_MAX:
        return {"by": by, "arg": arg, "error": "Too many package results."}
    return {"by": by, "arg": arg, "names": sorted(names)}


def pick_values(index):
    """Two values that a handful of packages share, or the rarest one where none is so rare."""
    ascii_only = {value: names for value, names in index.items() if value.isascii() and len(value) > 1}
    handful = sorted(value for value, names in ascii_only.items() if 3 <= len(names) <= 60)
    if not handful:
        return [min(ascii_only, key=lambda value: (len(ascii_only[value]), value))]
    return sorted({handful[len(handful) // 3], handful[2 * len(handful) // 3]})


def build_cases(packages, digest):
    by_name = sorted(packages, key=lambda package: package["Name"])
    names = [package["Name"] for package in by_name]
    searches = []
    for by in ("maintainer", "submitter", *RELATION_FIELDS):
        index = exact_index(packages, by)
        searches += [search_case(by, value, index[value]) for value in pick_values(index)]
    # Words and pairs of words of descriptions, a piece of a name, a name with a plus, and one that is everywhere.
    texts = [package["Description"] or "" for package in by_name]
    words = [text.split() for text in texts if text.isascii() and len(text.split()) > 4]
    needles = [words[len(words) // 5][2], " ".join(words[2 * len(words) // 5][1:3]), words[3 * len(words) // 5][0]]
    needles += [names[len(names) // 2][1:6], next(name for name in names if "++" in name), "zzqqxx-nothing", "lib"]
    for needle in needles:
        searches.append(search_case("name-desc", needle, substring_names(packages, needle, True)))
        searches.append(search_case("name", needle, substring_names(packages, needle, False)))
    orphans = exact_index(packages, "maintainer").get("", set())
    searches.append(search_case("maintainer", "", orphans))
    searches.append({"by": "name", "arg": "x", "error": "Query arg too small."})

    bases = sorted({package["PackageBase"] for package in packages})
    prefixes = [names[len(names) // 7][:4], names[len(names) // 3][:6], "zzqqxx"]
    suggest = [{"arg": arg, "names": [name for name in names if name.startswith(arg)][:SUGGESTIONS_MAX]} for arg in prefixes]
    suggest_base = [{"arg": arg, "names": [name for name in bases if name.startswith(arg)][:SUGGESTIONS_MAX]} for arg in prefixes]

    # Spread over the catalogue, among them split packages, names with a plus, and text beyond ASCII.
    spread = [by_name[position * len(by_name) // (INFO_NAMES - 20)] for position in range(INFO_NAMES - 20)]
    special = [package for package in by_name if "+" in package["Name"]][:10]
    special += [package for package in by_name if not (package["Description"] or "").isascii()][:10]
    records = {package["Name"]: info_record(package) for package in spread + special}
    return {
        "dump_sha256": digest,
        "packages": len(packages),
        "search": searches,
        "suggest": suggest,
        "suggest-pkgbase": suggest_base,
        "info": [records[name] for name in sorted(records)],
    }


def write_cases(cases, out):
    """JSON with one question or record a line, so that a change can be read."""
    out.write("{\n")
    for position, (key, value) in enumerate(cases.items()):
        out.write(",\n" if position else "")
        if isinstance(value, list):
            lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in value)
            out.write(f"{json.dumps(key)}: [\n{lines}\n]")
        else:
            out.write(f"{json.dumps(key)}: {json.dumps(value)}")
    out.write("\n}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} DUMP > clients/cases.json")
    sys.stdout.reconfigure(encoding="utf-8")
    write_cases(build_cases(*read_dump(sys.argv[1])), sys.stdout)
