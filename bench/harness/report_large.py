"""Each surface at two sizes: large.json -> a section of RESULTS.md for each, and their targets.

Reads nothing but the results, so that the text can be improved without measuring again.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import provenance
from tables import ratio_text, size_text, table

HERE = Path(__file__).resolve().parents[1]
GROWTH_RATIO_MAX = 11.0
FLAT_RATIO_MAX = 1.3


@dataclass
class Surface:
    """What is said of a surface, and what is expected of it."""

    heading: str
    said: str
    # What is counted, in the plural and in the singular, and the sizes that are compared.
    things: str
    thing: str
    sizes: tuple
    # The most bytes of each at the larger size; None if there is no target.
    bytes_max: int
    # What is to grow with the size at most, and what is not to grow at all: `{work: (what, is_flat)}`.
    works: dict


SURFACES = {
    "python": Surface(
        "As large as the public index",
        "By `bench/large`: an index of release files with sizes, names and dates as on the public one, half of whose projects have at most five files. "
        "No other client asks meanwhile. Where other work runs on the machine, CPU says more than time.",
        "release files", "file", (1_000_000, 10_000_000), 250, {
            "small_first": ("a page of at most 20 files, asked for the first time", True),
            "small_again": ("the same page again", True),
            "small_upload": ("an upload to it, and its page after that", True),
            "large_first": ("the page of 10,000 files, first time", True),
            "large_again": ("the same page again", True),
            "large_upload": ("an upload to it, and its page after that", True),
            "suggest": ("suggestions for what somebody types, each letter", False),
            "search": ("a search in all names", False),
            "list_json_first": ("the list of all names, JSON, first time", False),
            "list_json_again": ("the same list again", False),
            "list_gzip_first": ("the list, gzip, first time", False),
            "list_gzip_again": ("the same list again", False),
            "list_gzip_after_one_more": ("the list, gzip, after one more name", False),
            "push": ("a push of a release to another index", True),
        }),
    "aur": Surface(
        "A million packages of the AUR",
        "By `bench/large`: packages that `larder demo-data` makes, in a dump packed with gzip. No other client asks meanwhile.",
        "packages", "package", (100_000, 1_000_000), None, {
            "info_first": ("info on a package, asked for the first time", True),
            "info_again": ("the same again", True),
            "page_first": ("the page of a package, first time", True),
            "page_again": ("the same page again", True),
            "complete": ("`suggest`, four letters", True),
            "search": ("a search for a name, in names and descriptions", False),
            "search_twelve": ("a search that finds 12 packages at either size", False),
            "suggest": ("suggestions of the page for what somebody types, each letter", False),
            "reload": ("a dump with 10 changed packages, until it is served", False),
        }),
    "articles": Surface(
        "A million articles",
        "By `bench/large`: articles of 800 bytes with 1.45 versions on average, in folders of some 50 pages; ten share a text. No other client asks "
        "meanwhile.",
        "articles", "article", (100_000, 1_000_000), None, {
            "read_first": ("an article, read for the first time", True),
            "read_again": ("the same again", True),
            "page_first": ("the page of an article, first time", True),
            "page_again": ("the same page again", True),
            "write": ("a new version, and the article's page after that", True),
            "create": ("a new article, and its page", True),
            "home": ("the first page", True),
            "folder": ("the page of a folder of 50 articles", True),
            "folder_large": ("the page of a folder of 10,000 articles", True),
            "root": ("the page of the outermost folder", True),
            "history": ("100 of an article's 1,000 versions", True),
            "list": ("100 names of the list of all", True),
            # In results from before `list_tagged`: the smaller size has not as many, so the two did not compare.
            "list_tag": ("100 articles with a tag, in a folder", True),
            "list_tagged": ("25 articles with a tag, in a folder", True),
            "list_titled": ("100 articles with a word in their titles, from somewhere on", True),
            "search_own": ("a search for a word of one article", True),
            "search_common": ("a search for a word of one article in thirty", False),
            "suggest": ("suggestions for what somebody types, each letter", False),
        }),
}


def read(path):
    """The results kept in `path`; None if there is no such file."""
    return json.loads(Path(path).read_text(encoding="utf-8")) if Path(path).exists() else None


def write(results, out):
    """Writes large.json into the directory `out`."""
    (out / "large.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def figures(surface, facts):
    """`{name: (what, value, shown, is_flat)}` of one size: everything that is compared between two sizes."""
    start, seconds = facts["start"], lambda it: f"{it:,.1f} s"  # noqa: E731
    milliseconds = lambda it: f"{it:,.2f} ms" if it < 100 else f"{it:,.0f} ms"  # noqa: E731
    found = {
        "start_cpu": ("start until ready, CPU", start["cpu"], seconds, False),
        "start_wall": ("start until ready", start["wall"], seconds, False),
        "indexed": ("start until all texts are found, CPU", start.get("indexed_cpu"), seconds, False),
        "memory": ("resident memory at rest", start["rss_rested"], size_text, False),
        "peak": ("peak of the start", start.get("peak"), size_text, False),
        "database": ("records in SQLite", facts["database_bytes"], size_text, False),
        "dump": ("the dump", facts.get("dump_bytes"), size_text, False),
    }
    if "dump_bytes" in facts:
        del found["database"]
    for work, (what, is_flat) in surface.works.items():
        if row := facts["works"].get(work):
            found[work] = (f"{what}, CPU", row["cpu_ms"], milliseconds, is_flat)
            found[f"{work}_ms"] = (what, row["ms"], milliseconds, is_flat)
    if backup := facts.get("backup"):
        found["backup_cpu"] = ("a backup of the records, CPU", backup["cpu"], seconds, False)
        found["backup_wall"] = ("a backup of the records", backup["wall"], seconds, False)
        found["backup_peak"] = ("peak of the backup", backup["peak"], size_text, False)
    # A run that was ended early lacks some.
    return {name: figure for name, figure in found.items() if figure[1] is not None}


def bytes_of_each(results, size):
    """Resident bytes of each file, package or article, without what an empty server takes."""
    return (results["sizes"][size]["start"]["rss_rested"] - results["empty"]["rss_rested"]) / int(size)


def pair(surface, results):
    """The figures of both sizes, `[(what, smaller, larger, shown, is_flat)]`; empty if one is missing."""
    sizes = [results["sizes"].get(str(size)) for size in surface.sizes]
    if not all(sizes):
        return []
    small, large = (figures(surface, facts) for facts in sizes)
    return [(what, value, large[name][1], shown, is_flat) for name, (what, value, shown, is_flat) in small.items() if name in large]


def targets(results):
    """Rows (what, target, measured, met): met is None where nothing was measured."""
    return [row for name, surface in SURFACES.items() for row in targets_of(surface, (results or {}).get(name))]


def targets_of(surface, results):
    rows, both = [], pair(surface, results) if results else []
    smaller, larger = surface.sizes
    if surface.bytes_max:
        each = bytes_of_each(results, str(larger)) if both else None
        rows.append((f"{larger:,} {surface.things}: memory of each", f"≤ {surface.bytes_max} B", each and f"{each:.0f} B",
                     each and each <= surface.bytes_max))
    for what, is_wanted, most in (("what grows with their number", False, GROWTH_RATIO_MAX), ("what does not", True, FLAT_RATIO_MAX)):
        # Time on a shared machine says less than CPU: where there is a figure of CPU, that one counts.
        known = {each[0] for each in both}
        ratios = [(large / small, name) for name, small, large, _, is_flat in both if is_flat is is_wanted and small and f"{name}, CPU" not in known]
        worst = max(ratios, default=None)
        rows.append((f"{smaller:,} → {larger:,} {surface.things}: {what}", f"≤ {most:g} ×",
                     worst and f"{ratio_text(worst[0])} × at worst ({worst[1]})", worst and worst[0] <= most))
    return rows


def lines(results):
    """The sections of RESULTS.md."""
    return [line for name, surface in SURFACES.items() if (found := (results or {}).get(name)) for line in lines_of(surface, found)]


def lines_of(surface, results):
    meta, sizes = results["meta"], results["sizes"]
    said = [f"## {surface.heading}", "", surface.said, "",
            f"{meta['date']}; {provenance.described(meta)}; load average "
            + ", ".join(f"{facts['load_before']:.1f} before {int(size):,} {surface.things}" for size, facts in sizes.items())
            + f".{' ' + meta['note'] if meta.get('note') else ''}", ""]
    shown = [figures(surface, facts) for facts in sizes.values()]
    rows = []
    for name, (what, *_) in shown[0].items():
        values = [found.get(name) for found in shown]
        ratio = f"{values[-1][1] / values[0][1]:.2f} ×" if len(values) > 1 and all(values) and values[0][1] else "–"
        rows.append([what, *[it[2](it[1]) if it else "–" for it in values], ratio])
        if name == "memory":
            rows.append([f"memory of each {surface.thing}, without an empty server's", *[f"{bytes_of_each(results, size):.0f} B" for size in sizes], "–"])
    said += table(["what", *[column(surface, size, facts) for size, facts in sizes.items()], "growth"], rows)
    for size, facts in sizes.items():
        suggest = facts["works"]["suggest"]
        if suggest.get("whole_names_missed"):
            said += [f"With {int(size):,} {surface.things}, {suggest['whole_names_missed']} of {suggest['whole_names']} names were not suggested though they "
                     "were typed whole.", ""]
        if both := facts.get("processes"):
            starts = both["starts"]
            said += [f"Two processes on {both['postgresql']} with {int(size):,} files: restored from the backup in {both['restore']['wall']:.0f} s "
                     f"({both['restore']['cpu']:.0f} s of CPU); ready after {starts[0]['wall']:.1f} s and {starts[1]['wall']:.1f} s "
                     f"({starts[0]['cpu']:.1f} s and {starts[1]['cpu']:.1f} s of CPU), {size_text(starts[0]['rss_rested'])} each. An upload to the project of "
                     f"{both['seen']['files']:,} files at one is on its page at the other {both['seen']['ms']:.0f} ms after its acknowledgement "
                     f"(at most {both['seen']['max_ms']:.0f} ms), page and all.", ""]
    return said


def column(surface, size, facts):
    """The head of a column of the table."""
    return f"{int(size):,} files in {facts['projects']:,} projects" if "projects" in facts else f"{int(size):,} {surface.things}"
