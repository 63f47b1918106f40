"""The report on following a database: database.json -> DATABASE.md, and the targets that RESULTS.md has of it.

Reads nothing but the results, so that the text can be improved without measuring again. A target that is missed is
written as missed; one whose section has not been measured says so.
"""

import json
from pathlib import Path

import provenance
import tables
from tables import megabytes, table

VISIBLE_MS_MAX = 1000
IDLE_MS_MAX = 1.0
CHANGE_CPU_MS_MAX = 5.0
REFRESH_BYTES_MAX = 160e6
DELTA_SHARE_MAX = 0.02
# Resident memory is not the same after every change: what the allocator keeps comes and goes.
GROWTH_BYTES_MAX = 4e6


def read(path):
    """The results kept in `path`; empty ones if there is no such file."""
    return json.loads(Path(path).read_text()) if Path(path).exists() else {"sections": {}}


def write(results, out):
    """Writes DATABASE.md into the directory `out`."""
    (out / "DATABASE.md").write_text("\n".join(text(results)) + "\n", encoding="utf-8")


def data(results, section):
    return results["sections"].get(section, {}).get("data")


def targets(results):
    """Rows (what, target, measured, met): met is None where nothing was measured."""
    rows = []

    def add(what, target, value, shown, met):
        rows.append((what, target, None if value is None else shown(value), None if value is None else met(value)))

    visible, idle, change, wave, refresh, delta = (data(results, name) for name in ("visible", "idle", "change", "wave", "refresh", "delta"))
    add("a change in the database, from its commit to the first answer that shows it: p99", f"≤ {VISIBLE_MS_MAX} ms",
        visible and visible["alone"]["all"]["p99"], lambda ms: f"{ms:,.0f} ms", lambda ms: ms <= VISIBLE_MS_MAX)
    add("idle: CPU of the database for each second", f"≤ {IDLE_MS_MAX:.0f} ms",
        idle and idle["mariadb"] - idle["without"], lambda ms: f"{ms:.2f} ms", lambda ms: ms <= IDLE_MS_MAX)
    for kind, name in (("vote", "vote"), ("push", "push")):
        add(f"one {name}: CPU of larder", f"≤ {CHANGE_CPU_MS_MAX:.0f} ms", change and change["cpu"][kind]["larder"],
            lambda ms: f"{ms:.1f} ms", lambda ms: ms <= CHANGE_CPU_MS_MAX)
    add("resident memory after single changes, beside that after the first", f"≤ {megabytes(GROWTH_BYTES_MAX)} more",
        change and change["memory_last"] - change["memory_first"], lambda size: f"{size / 1e6:+.1f} MB",
        lambda size: size <= GROWTH_BYTES_MAX)
    add("a vote after one statement has changed all package bases: at most", f"≤ {VISIBLE_MS_MAX} ms",
        wave and max(wave["votes"]), lambda seconds: f"{seconds * 1e3:,.0f} ms", lambda seconds: seconds * 1e3 <= VISIBLE_MS_MAX)
    add("all package bases, changed by one statement: at most", "≤ a read of all tables",
        wave and (max(wave["waves"]), min(wave["reads"])), lambda times: f"{times[0]:.1f} s, a read {times[1]:.1f} s",
        lambda times: times[0] <= times[1])
    for source, name in (("database", "all tables are read again"), ("dump", "a dump in which 50 records differ")):
        add(f"peak memory of a refresh: {name}", f"≤ {megabytes(REFRESH_BYTES_MAX)}",
            refresh and max(row["peak"] for row in refresh[source]), megabytes, lambda size: size <= REFRESH_BYTES_MAX)
    add("a day's delta, 0.5 % of the packages pushed", f"≤ {DELTA_SHARE_MAX:.0%} of the dump", delta and share(delta["dump"]),
        lambda part: f"{part:.2%}", lambda part: part <= DELTA_SHARE_MAX)
    return rows


def times_text(seconds):
    """The shortest, the median and the longest of these times."""
    ordered = sorted(seconds)
    return " to ".join(f"{one:.2f} s" for one in (ordered[0], ordered[-1])) + f" (median {ordered[len(ordered) // 2]:.2f} s)"


def share(row):
    return row["delta"] / row["dump"]


def said(name, found):
    """A section in a few lines."""
    match name:
        case "idle":
            yield (f"idle: MariaDB {found['mariadb']:.2f} ms of CPU a second, {found['without']:.2f} ms without larder; "
                   f"larder {found['larder']:.2f} ms")
        case "visible":
            for load in ("alone", "beside votes"):
                row = found[load]["all"]
                yield (f"visible, {load}: {row['count']} changes, {row['p50']:.0f} ms median, {row['p99']:.0f} ms p99, {row['max']:.0f} ms at most")
                for kind, row in found[load]["kinds"].items():
                    yield f"  {kind}: {row['p50']:.0f} ms median, {row['max']:.0f} ms at most"
            yield f"visible: resident {megabytes(found['memory_before'])} before, {megabytes(found['memory_after'])} after"
        case "change":
            for kind, row in found["cpu"].items():
                yield f"change: one {kind}: larder {row['larder']:.1f} ms, MariaDB {row['mariadb']:.1f} ms of CPU"
            yield f"change: resident {megabytes(found['memory_first'])} after the first, {megabytes(found['memory_last'])} after the last"
        case "wave":
            yield f"wave: {found['bases']:,} bases, {len(found['votes'])} votes seen after {times_text(found['votes'])}"
            yield f"wave: all seen after {times_text(found['waves'])}; a read of all tables takes {times_text(found['reads'])}"
        case "refresh":
            for source, rows in found.items():
                yield f"refresh, {source}: " + ", ".join(f"{megabytes(row['before'])} before, {megabytes(row['peak'])} at most" for row in rows)
        case "delta":
            for source, row in found.items():
                yield (f"delta, {source}: {row['records']} records differ; {tables.size_text(row['delta'])} of {tables.size_text(row['dump'])} "
                       f"({share(row):.2%})")


def text(results):
    lines = ["# Following aurweb's database", "",
             "Written by `bench/database` from `bench/database.json`; how: [README.md](README.md). A catalogue that `larder demo-data` made, in "
             "a MariaDB on the same machine, reached by its socket, with `userstat` on.", ""]
    for name, kept in results["sections"].items():
        meta = kept["meta"]
        lines.append(f"- **{name}**: {meta['date']}, {meta['packages']:,} packages, {provenance.described(meta)}"
                     + (f"; MariaDB {meta['mariadb']}" if meta.get("mariadb") else "")
                     + f"; {meta['steal']:.1%} of its CPU time the machine was kept from using; load average {meta['load']:.1f} at the end. "
                     + f"`{meta['command']}`" + (f" **{meta['note']}**" if meta["note"] else ""))
    lines += ["", "## Targets", "", *tables.target_table(targets(results))]
    if idle := data(results, "idle"):
        lines += ["## Idle", "", *table(["CPU for each second", "ms"], [
            ["MariaDB without larder", f"{idle['without']:.2f}"], ["MariaDB", f"{idle['mariadb']:.2f}"], ["larder", f"{idle['larder']:.2f}"]])]
    if visible := data(results, "visible"):
        lines += ["## From the commit to the answer", "",
                  "Milliseconds from sending the COMMIT to the first answer that shows the change; alone, and beside votes for other packages, "
                  "20 a second. A push is two commits: the time is that from the second one.", ""]
        for load in ("alone", "beside votes"):
            rows = [["all", visible[load]["all"]], *visible[load]["kinds"].items()]
            lines += table([load, "changes", "p50", "p90", "p99", "max"],
                           [[kind, row["count"], *[f"{row[key]:,.0f}" for key in ("p50", "p90", "p99", "max")]] for kind, row in rows])
        lines += [f"Resident memory: {megabytes(visible['memory_before'])} before, {megabytes(visible['memory_after'])} after all of them.", ""]
    if change := data(results, "change"):
        lines += ["## One change", "", f"Each of {change['count']} alone, with the three seconds after it in which nobody asks, without what the three seconds before it cost.", "",
                  *table(["one", "larder, CPU", "MariaDB, CPU"],
                         [[kind, f"{row['larder']:.1f} ms", f"{row['mariadb']:.1f} ms"] for kind, row in change["cpu"].items()]),
                  f"Resident memory: {megabytes(change['memory_first'])} after the first, {megabytes(change['memory_last'])} after the last.", ""]
    if wave := data(results, "wave"):
        lines += ["## All package bases at once", "",
                  f"One statement changes the popularity of all {wave['bases']:,} package bases, {len(wave['waves'])} times. Votes follow, one after "
                  "another, each as soon as the one before is seen.", "",
                  *table(["seconds", "times", "least", "median", "most"], [
                      [what, len(wave[key]), *[f"{at:.2f}" for at in (min(wave[key]), sorted(wave[key])[len(wave[key]) // 2], max(wave[key]))]]
                      for key, what in (("votes", "a vote, from its commit"), ("waves", "all bases, from the end of the statement"),
                                        ("reads", "a read of all tables, for comparison"))])]
    if refresh := data(results, "refresh"):
        lines += ["## A refresh", "", *table(["what", "resident before", "peak", "resident after"], [
            [{"database": "all tables are read again", "dump": "a dump in which 50 records differ"}[source],
             *[megabytes(row[key]) for key in ("before", "peak", "rss")]] for source, rows in refresh.items() for row in rows])]
    if delta := data(results, "delta"):
        lines += ["## A day's delta", "", "One package of 200 is pushed. From the database, each popularity is a day older, too.", "",
                  *table(["source", "records that differ", "dump, gzip", "delta, gzip", "share"], [
                      [source, f"{row['records']:,}", tables.size_text(row["dump"]), tables.size_text(row["delta"]), f"{share(row):.2%}"]
                      for source, row in delta.items()])]
    return lines
