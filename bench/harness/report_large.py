"""The Python index at the public one's size: large.json -> the section of RESULTS.md, and its targets.

Reads nothing but the results, so that the text can be improved without measuring again.
"""

import json
from pathlib import Path

import provenance
from tables import ratio_text, size_text, table

HERE = Path(__file__).resolve().parents[1]
GROWTH_RATIO_MAX = 11.0
FLAT_RATIO_MAX = 1.3
FILE_BYTES_MAX = 250
SMALLER, LARGER = 1_000_000, 10_000_000
# What is to grow with the index at most, and what is not to grow at all: figures of CPU where the server alone counts.
WORKS = {
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
}


def read(path):
    """The results kept in `path`; None if there is no such file."""
    return json.loads(Path(path).read_text(encoding="utf-8")) if Path(path).exists() else None


def write(results, out):
    """Writes large.json into the directory `out`."""
    (out / "large.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def figures(facts):
    """`{name: (what, value, shown, is_flat)}` of one size: everything that is compared between two sizes."""
    start, seconds = facts["start"], lambda it: f"{it:,.1f} s"  # noqa: E731
    milliseconds = lambda it: f"{it:,.2f} ms" if it < 100 else f"{it:,.0f} ms"  # noqa: E731
    found = {
        "start_cpu": ("start until ready, CPU", start["cpu"], seconds, False),
        "start_wall": ("start until ready", start["wall"], seconds, False),
        "memory": ("resident memory at rest", start["rss_rested"], size_text, False),
        "peak": ("peak of the start", start.get("peak"), size_text, False),
        "database": ("records in SQLite", facts["database_bytes"], size_text, False),
    }
    for work, (what, is_flat) in WORKS.items():
        if row := facts["works"].get(work):
            found[work] = (f"{what}, CPU", row["cpu_ms"], milliseconds, is_flat)
            found[f"{work}_ms"] = (what, row["ms"], milliseconds, is_flat)
    if backup := facts.get("backup"):
        found["backup_cpu"] = ("a backup of the records, CPU", backup["cpu"], seconds, False)
        found["backup_wall"] = ("a backup of the records", backup["wall"], seconds, False)
        found["backup_peak"] = ("peak of the backup", backup["peak"], size_text, False)
    # A run that was ended early lacks some.
    return {name: figure for name, figure in found.items() if figure[1] is not None}


def file_bytes(results, size):
    """Resident bytes of each file, without what an empty server takes."""
    facts = results["sizes"][str(size)]
    return (facts["start"]["rss_rested"] - results["empty"]["rss_rested"]) / facts["files"]


def pair(results):
    """The figures of both sizes, `[(what, smaller, larger, shown, is_flat)]`; empty if one is missing."""
    sizes = results["sizes"]
    if not {str(SMALLER), str(LARGER)} <= set(sizes):
        return []
    small, large = (figures(sizes[str(size)]) for size in (SMALLER, LARGER))
    return [(what, value, large[name][1], shown, is_flat) for name, (what, value, shown, is_flat) in small.items() if name in large]


def targets(results):
    """Rows (what, target, measured, met): met is None where nothing was measured."""
    rows, both = [], pair(results) if results else []
    each = file_bytes(results, LARGER) if both else None
    rows.append((f"{LARGER:,} release files: memory of each", f"≤ {FILE_BYTES_MAX} B", each and f"{each:.0f} B", each and each <= FILE_BYTES_MAX))
    for what, is_wanted, most in (("what grows with the index", False, GROWTH_RATIO_MAX), ("pages, uploads and pushes", True, FLAT_RATIO_MAX)):
        # Time on a shared machine says less than CPU: where there is a figure of CPU, that one counts.
        known = {each[0] for each in both}
        ratios = [(large / small, name) for name, small, large, _, is_flat in both if is_flat is is_wanted and small and f"{name}, CPU" not in known]
        worst = max(ratios, default=None)
        rows.append((f"{SMALLER:,} → {LARGER:,} release files: {what}", f"≤ {most:g} ×", worst and f"{ratio_text(worst[0])} × at worst ({worst[1]})",
                     worst and worst[0] <= most))
    return rows


def lines(results):
    """The section of RESULTS.md."""
    if not results:
        return []
    meta, sizes = results["meta"], list(results["sizes"].values())
    said = ["## As large as the public index", "",
            "By `bench/large`: an index of release files with sizes, names and dates as on the public one, half of whose projects have at most five files. "
            "No other client asks meanwhile. Where other work runs on the machine, CPU says more than time.", "",
            f"{meta['date']}; {provenance.described(meta)}; load average "
            + ", ".join(f"{facts['load_before']:.1f} before {facts['files']:,} files" for facts in sizes)
            + f".{' ' + meta['note'] if meta.get('note') else ''}", ""]
    shown = [(facts["files"], figures(facts)) for facts in sizes]
    rows = []
    for name, (what, *_) in shown[0][1].items():
        values = [found.get(name) for _, found in shown]
        ratio = f"{values[-1][1] / values[0][1]:.2f} ×" if len(values) > 1 and all(values) and values[0][1] else "–"
        rows.append([what, *[it[2](it[1]) if it else "–" for it in values], ratio])
    rows.insert(4, ["memory of each file, without an empty server's", *[f"{file_bytes(results, files):.0f} B" for files, _ in shown], "–"])
    said += table(["what", *[f"{files:,} files in {facts['projects']:,} projects" for (files, _), facts in zip(shown, sizes)], "growth"], rows)
    for facts in sizes:
        suggest = facts["works"]["suggest"]
        if suggest.get("whole_names_missed"):
            said += [f"With {facts['files']:,} files, {suggest['whole_names_missed']} of {suggest['whole_names']} names were not suggested though they were typed whole.", ""]
        if both := facts.get("processes"):
            starts = both["starts"]
            said += [f"Two processes on {both['postgresql']} with {facts['files']:,} files: restored from the backup in {both['restore']['wall']:.0f} s "
                     f"({both['restore']['cpu']:.0f} s of CPU); ready after {starts[0]['wall']:.1f} s and {starts[1]['wall']:.1f} s "
                     f"({starts[0]['cpu']:.1f} s and {starts[1]['cpu']:.1f} s of CPU), {size_text(starts[0]['rss_rested'])} each. An upload to the project of "
                     f"{both['seen']['files']:,} files at one is on its page at the other {both['seen']['ms']:.0f} ms after its acknowledgement "
                     f"(at most {both['seen']['max_ms']:.0f} ms), page and all.", ""]
    return said
