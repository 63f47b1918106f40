"""The figures of the repository's README.md: results.json, python.json and follow.json -> what stands between two marks.

So no figure there is typed by hand, and none is of another run than the reports. Which rows are shown is decided here,
once, and not by how they turn out.
"""

from pathlib import Path

import report
import report_python
import tables

HERE = Path(__file__).resolve().parents[1]
README = HERE.parent / "README.md"
BEGIN = "<!-- figures: written by bench/run, bench/python and bench/follow, also with --report -->\n"
END = "<!-- end of the figures -->\n"


def write(out):
    """Writes the figures anew, if `out` is where the kept results are."""
    if Path(out).resolve() != HERE:
        return
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    README.write_text(before + BEGIN + "\n" + "\n".join(figures()) + "\n" + END + after, encoding="utf-8")


def write_with_results(out):
    """Writes RESULTS.md anew, too: for the other scripts than bench/run, whose figures it sums up."""
    if Path(out).resolve() == HERE:
        report.write(report.read(HERE / "results.json"), HERE, quick=False)
    write(out)


def figures():
    """What stands there, line by line."""
    results, python, follow = report.read(HERE / "results.json"), report_python.read(HERE / "python.json"), report.kept("follow.json")
    return [*throughput(results, python), *facts(results, python, follow), *missed(results)]


def throughput(results, python):
    packages = (report.data(results, "search") or {}).get("mix", {}).get("packages")
    of_all = f" of {packages:,}" if packages else ""
    aur, pages = report.works(results), report_python.works(python)

    def mean(work):
        return f", {tables.size_text(aur[work]['body_mean'])} on average" if work in aur else ""

    def size(work):
        return f", {tables.size_text(pages[work]['bytes'])}" if work in pages else ""

    shape = next((kept["meta"] for kept in python["sections"].values()), None)
    page = f"simple page, {shape['files']} files over {shape['bases']} bases" if shape else "simple page"
    rows = [
        (f"AUR `info`, 1,000 random packages{of_all}", aur, "info_1000"),
        ("the same, gzip", aur, "info_1000_gzip"),
        ("AUR `suggest`, 1,000 random prefixes", aur, "suggest_1000"),
        (f"AUR search, 1,000 different questions{mean('search_mix')}", aur, "search_mix"),
        (f"the same, gzip{mean('search_mix_gzip')}", aur, "search_mix_gzip"),
        ("article, 4 kB", aur, "article_4k"),
        (f"{page}, HTML{size('html')}", pages, "html"),
        (f"the same, gzip{size('html_gzip')}", pages, "html_gzip"),
    ]
    written = []
    for name, works, work in rows:
        if "larder" not in works.get(work, {}).get("servers", {}):
            continue
        servers = works[work]["servers"]
        rate = {server: row["per_second"] for server, row in servers.items()}
        peers = ", ".join(f"{shown} {rate[server]:,.0f}" for server, shown in (("goaurrpc", "goaurrpc"), ("devpi", "devpi"), ("nora", "NORA"))
                          if server in rate)
        ratio = f"{rate['larder'] / rate['nginx']:.2f}" if "nginx" in rate else "–"
        written.append([name, f"{rate['larder']:,.0f}", peers or "–", f"{rate['nginx']:,.0f}" if "nginx" in rate else "–", ratio])
    named = " ".join(row[2] for row in written)
    notes = ["NORA has one index, so it inherits nothing."] if "NORA" in named else []
    uncompressed = " and ".join(peer for peer in ("NORA", "devpi") if peer in named)
    if uncompressed:
        notes.append(f"{uncompressed} {'do' if ' and ' in uncompressed else 'does'} not compress: the figure for gzip is that of the whole body.")
    return [*tables.table(["requests/s", "Larder", "peers", "nginx, static", "Larder ÷ nginx"], written), *notes, ""]


def facts(results, python, follow):
    lines = []
    memory, reload = report.data(results, "memory"), report.data(results, "reload")
    if memory and reload:
        median = memory["median"]
        lines += [f"With {memory['packages']:,} packages: {median['rss'] / 1e6:.0f} MB when ready ({median['rss_rested'] / 1e6:.0f} MB some seconds "
                  f"later), {reload['after']['peak'] / 1e6:.0f} MB at the peak",
                  f"of {reload['checked']['reloads']} reloads under load; {median['cpu']:.2f} s of CPU from start to ready."]
    if million := report_python.data(python, "million"):
        lines += [f"With {million['files']:,} release files in {million['projects']:,} projects: "
                  f"{million['median']['rss'] / 1e6:.0f} MB, ready after {million['median']['wall']:.1f} s."]
    if follow and (store := follow["stores"].get("PostgreSQL")):
        lines += ["A write on one process of a PostgreSQL store is seen on another "
                  f"{store['after_ack']['p99']:.1f} ms after its acknowledgement (p99)."]
    return [*lines, ""]


def missed(results):
    targets = report.targets(results)
    count = sum(met is False for *_, met in targets)
    unmeasured = sum(met is None for *_, met in targets)
    rest = f"; {unmeasured} are not measured" if unmeasured else ""
    where = "[bench/RESULTS.md](bench/RESULTS.md#targets) lists all of them."
    return [f"**{count} of {len(targets)} targets are missed**{rest}; {where}", ""]
