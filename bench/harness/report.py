"""The report: results.json -> RESULTS.md (tables beside their targets) and results.svg.

Reads nothing but the results, so that the text can be improved without measuring again. A target that is missed is
written as missed; one whose section has not been measured says so.
"""

import json
from pathlib import Path

import plot
import provenance
import report_database
import report_large
import report_python
import tables
from tables import cell, megabytes, ratio_text, size_text, table

HERE = Path(__file__).resolve().parents[1]
INFO_RATIO_MIN = 0.95
INFO_CPU_RATIO_MAX = 1.15
SEARCH_RATIO_MIN = 0.45
INFO_GZIP_RATIO_MIN = 0.6
SEARCH_GZIP_RATIO_MIN = 0.30
ATTEST_RATIO_MIN = 200
READY_BYTES_MAX = 120e6
PEAK_BYTES_MAX = 150e6
LOAD_CPU_SECONDS_MAX = 0.4
RELOAD_P99_US_MAX = 10_000
GROWTH_MEMORY_RATIO_MAX = 12
GROWTH_SEARCH_RATIO_MAX = 4
SATURATED_P99_RATIO_MAX = 3
FIBONACCI_RATIO_MAX = 1.1
FOLLOW_P99_MS_MAX = 100
COPIED_RECORDS, COPY_SECONDS_MAX = 1_000_000, 20
BINARY_BYTES_MAX = 40e6
WHEEL_BYTES_MAX = 16e6
HTTP2_RATIO_MIN, HTTP2_CPU_RATIO_MAX, TLS_LARGE_RATIO_MIN = 0.85, 1.2, 0.9

TITLES = {
    "info": "info, one package", "info_1000": "info, 1,000 random packages", "suggest": "suggest, one prefix",
    "suggest_1000": "suggest, 1,000 random prefixes", "search_mix": "search, mix of 1,000",
    "search_attest": "search, `attest`", "article_589": "article, 589 B", "article_4k": "article, 4 kB",
    "article_58k": "article, 58 kB", "article_14k": "article, 14 kB", "article_8m": "article, 8 MB",
}
ENCODED = ("info", "info_1000", "search_mix")


def read(path):
    """The results kept in `path`; empty ones if there is no such file."""
    if not Path(path).exists():
        return {"format": 1, "sections": {}}
    return json.loads(Path(path).read_text())


def write(results, out, quick):
    """Writes results.json, RESULTS.md and results.svg into the directory `out`."""
    (out / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    (out / "RESULTS.md").write_text(text(results, quick))
    (out / "results.svg").write_text(plot.draw(works(results)))


def problems(results):
    """What was wrong with answers, in sentences: a benchmark of wrong answers is worth nothing."""
    found = []
    for work, facts in works(results).items():
        for name, answers in facts["answers"].items():
            if name == "larder":
                for key, words in (("not_200", "were not 200"), ("broken", "were broken"), ("other_count", "had another count")):
                    if answers[key]:
                        found.append(f"{work}: {answers[key]} of {answers['asked']} answers {words}: {answers['examples']}")
        row = facts["servers"].get("larder")
        if row and row["errors"]:
            found.append(f"{work}: {row['errors']} errors under load")
    for work, by_kind in (data(results, "ab") or {}).items():
        found += [f"ab {work}, {kind}: {rows['larder']['errors']} failed" for kind, rows in by_kind.items()
                  if "larder" in rows and rows["larder"]["errors"]]
    for size in data(results, "growth") or []:
        found += [f"growth, {size['packages']:,} packages, {work}: {row['errors']} errors"
                  for work, row in size["searches"].items() if row and row["errors"]]
    saturated = data(results, "saturated") or {}
    rows = {f"{name}, {kind}": row for name, by_kind in saturated.get("reads", {}).items() for kind, row in by_kind.items()}
    rows |= {"an article and a computation": saturated["both"]} if "both" in saturated else {}
    found += [f"tls, {work}, {protocol}: {rows['larder']['errors']} errors" for work, protocol, rows in tls_rows(results) if rows["larder"]["errors"]]
    found += [f"saturated, {name}: {row['errors']} errors" for name, row in rows.items() if row["errors"]]
    reload = data(results, "reload")
    if reload:
        if reload["checked"]["client"]["failed"]:
            found.append(f"reload: {reload['checked']['client']['failures']} {reload['checked']['client']['examples']}")
        for name, row in reload.get("latency", {}).items():
            if row["reloading"]["errors"]:
                found.append(f"reload, {name}: {row['reloading']['errors']} errors")
    return found


def data(results, section):
    return results["sections"].get(section, {}).get("data")


def works(results):
    """All works that were compared by wrk, in the order of the tables."""
    found = {}
    for section in ("info", "suggest", "search", "encoding", "article"):
        for work, facts in (data(results, section) or {}).items():
            if work != "mix":
                found[work] = facts
    return found


def tls_rows(results):
    """What was measured over TLS: work, protocol, and the servers' rows."""
    return [(work, protocol, facts[protocol]) for work, facts in (data(results, "tls") or {}).items() for protocol in ("h2", "http/1.1")]


def title(work):
    for encoding in ("gzip", "zstd"):
        if work.endswith(f"_{encoding}"):
            return f"{TITLES[work.removesuffix(f'_{encoding}')]}, {encoding}"
    return TITLES[work]


# -- targets ------------------------------------------------------------------------------------------------------


def targets(results):
    """Rows (what, target, measured, met), those of the Python index among them: met is None where nothing was measured."""
    rows = []
    all_works = works(results)

    def pair(work, other):
        servers = all_works.get(work, {}).get("servers", {})
        return (servers["larder"], servers[other]) if "larder" in servers and other in servers else (None, None)

    for work in ("info", "info_1000", "suggest", "suggest_1000", "article_589", "article_4k", "article_58k", "article_58k_gzip"):
        larder, nginx = pair(work, "nginx")
        ratio = larder and larder["per_second"] / nginx["per_second"]
        cpu = larder and larder["cpu_us"] / nginx["cpu_us"]
        rows.append((f"{title(work)}: requests/s", f"≥ {INFO_RATIO_MIN} × nginx", ratio and f"{ratio:.2f} ×",
                     ratio and ratio >= INFO_RATIO_MIN))
        rows.append((f"{title(work)}: CPU per request", f"≤ {INFO_CPU_RATIO_MAX} × nginx", cpu and f"{cpu:.2f} ×",
                     cpu and cpu <= INFO_CPU_RATIO_MAX))
    rows += tls_targets(results)
    larder, nginx = pair("search_mix", "nginx")
    ratio = larder and larder["per_second"] / nginx["per_second"]
    rows.append(("search, mix: requests/s", f"≥ {SEARCH_RATIO_MIN} × nginx at the mean body size", ratio and f"{ratio:.2f} ×",
                 ratio and ratio >= SEARCH_RATIO_MIN))
    for work, least in (("info_gzip", INFO_GZIP_RATIO_MIN), ("info_1000_gzip", INFO_GZIP_RATIO_MIN), ("search_mix_gzip", SEARCH_GZIP_RATIO_MIN)):
        larder, nginx = pair(work, "nginx")
        ratio = larder and larder["per_second"] / nginx["per_second"]
        rows.append((f"{title(work)}: requests/s", f"≥ {least} × nginx with the finished file", ratio and f"{ratio:.2f} ×", ratio and ratio >= least))
    larder, peer = pair("search_attest", "goaurrpc")
    ratio = larder and larder["per_second"] / peer["per_second"]
    rows.append(("search, `attest`: requests/s", f"≥ {ATTEST_RATIO_MIN} × goaurrpc", ratio and f"{ratio:.0f} ×",
                 ratio and ratio >= ATTEST_RATIO_MIN))
    rows += report_python.targets(report_python.read(HERE / "python.json"))
    rows += report_database.targets(report_database.read(HERE / "database.json"))
    rows += report_large.targets(report_large.read(HERE / "large.json"))
    memory, reload = data(results, "memory"), data(results, "reload")
    packages = memory and memory["packages"]
    size = f" ({packages:,} packages)" if packages else ""
    ready = memory and max(memory["median"]["rss"], memory["median"]["rss_rested"])
    rows.append((f"memory when ready{size}", "≤ 120 MB", ready and megabytes(ready), ready and ready <= READY_BYTES_MAX))
    peak = reload and reload["after"]["peak"]
    rows.append(("peak memory over ten reloads under load", "≤ 150 MB", peak and megabytes(peak), peak and peak <= PEAK_BYTES_MAX))
    cpu = memory and memory["median"]["cpu"]
    rows.append(("load to ready: CPU", "≤ 0.40 s", cpu and f"{cpu:.2f} s", cpu and cpu <= LOAD_CPU_SECONDS_MAX))
    failed = reload and reload["checked"]["client"]["failed"] + sum(row["reloading"]["errors"]
                                                                   for row in reload.get("latency", {}).values())
    rows.append(("failed requests during reloads", "0", None if failed is None else str(failed), None if failed is None else failed == 0))
    for name, row in (reload or {}).get("latency", {"back-to-back reloads": None}).items():
        p99 = row and row["reloading"]["p99"]
        rows.append((f"p99 during reloads: {name}", "< 10 ms", p99 and f"{p99 / 1e3:.2f} ms", p99 and p99 < RELOAD_P99_US_MAX))
    saturated = data(results, "saturated") or {}
    for name, row in saturated.get("reads", {"reads": None}).items():
        ratio = row and row["saturated"]["p99"] / row["idle"]["p99"]
        rows.append((f"p99 while computations are queued: {name}", f"≤ {SATURATED_P99_RATIO_MAX} × at rest",
                     ratio and f"{ratio:.2f} ×", ratio and ratio <= SATURATED_P99_RATIO_MAX))
    for n, row in saturated.get("fibonacci", {}).get("n", {"34": None}).items():
        ratio = row and row["c"] and row["larder"] / row["c"]
        rows.append((f"`example.fibonacci` of {n}, request and all", f"≤ {FIBONACCI_RATIO_MAX} × C at -O2", ratio and f"{ratio:.2f} ×",
                     ratio and ratio <= FIBONACCI_RATIO_MAX))
    p99 = (follow := kept("follow.json")) and follow["stores"].get("PostgreSQL", {}).get("after_ack", {}).get("p99")
    rows.append(("a write, from its acknowledgement to another process of the same PostgreSQL: p99", f"< {FOLLOW_P99_MS_MAX} ms",
                 p99 and f"{p99:.1f} ms", p99 and p99 < FOLLOW_P99_MS_MAX))
    p99 = follow and follow["stores"].get("a follower", {}).get("after_ack", {}).get("p99")
    rows.append(("a write, from its acknowledgement to a follower: p99", f"< {FOLLOW_P99_MS_MAX} ms",
                 p99 and f"{p99:.1f} ms", p99 and p99 < FOLLOW_P99_MS_MAX))
    copied = follow and follow.get("catching_up", {}).get("records") == COPIED_RECORDS and follow["catching_up"]
    for what, key in (("the first copy", "first_copy_seconds"), ("taking them again", "catching_up_seconds")):
        seconds = copied and copied[key]
        rows.append((f"a follower and {COPIED_RECORDS:,} records: {what}", f"≤ {COPY_SECONDS_MAX} s",
                     seconds and f"{seconds:.1f} s", seconds and seconds <= COPY_SECONDS_MAX))
    growth = {row["packages"]: row for row in data(results, "growth") or []}
    small, large = growth.get(100_000), growth.get(1_000_000)
    both = small and large
    for what, key in (("memory", "rss_rested"), ("load time (CPU)", "cpu")):
        ratio = both and large["start"][key] / small["start"][key]
        rows.append((f"100 k → 1 M packages: {what}", f"≤ {GROWTH_MEMORY_RATIO_MAX} ×", ratio and f"{ratio:.1f} ×",
                     ratio and ratio <= GROWTH_MEMORY_RATIO_MAX))
    ratios = {work: (large["searches"][work]["cpu_us"] / row["cpu_us"], large["searches"][work]["alone_us"] / row["alone_us"])
              for work, row in small["searches"].items() if row and large["searches"].get(work)} if both else {}
    worst = max((max(pair), work) for work, pair in ratios.items()) if ratios else None
    rows.append(("100 k → 1 M packages: search time, equal result counts", f"≤ {GROWTH_SEARCH_RATIO_MAX} ×",
                 worst and f"{worst[0]:.1f} × at worst ({worst[1]})", worst and worst[0] <= GROWTH_SEARCH_RATIO_MAX))
    return [*rows, *build_targets()]


def tls_targets(results):
    rows, measured = [], {(work, protocol): servers for work, protocol, servers in tls_rows(results)}
    for work in ("info", "article_4k", "article_14k", "article_58k"):
        servers = measured.get((work, "h2"))
        ratio = servers and servers["larder"]["per_second"] / servers["nginx"]["per_second"]
        cpu = servers and servers["larder"]["cpu_us"] / servers["nginx"]["cpu_us"]
        rows.append((f"{title(work)}, HTTP/2: requests/s", f"≥ {HTTP2_RATIO_MIN} × nginx", ratio and f"{ratio:.2f} ×", ratio and ratio >= HTTP2_RATIO_MIN))
        rows.append((f"{title(work)}, HTTP/2: CPU per request", f"≤ {HTTP2_CPU_RATIO_MAX} × nginx", cpu and f"{cpu:.2f} ×",
                     cpu and cpu <= HTTP2_CPU_RATIO_MAX))
    for protocol in ("h2", "http/1.1"):
        servers = measured.get(("article_8m", protocol))
        ratio = servers and servers["larder"]["per_second"] / servers["nginx"]["per_second"]
        rows.append((f"{title('article_8m')}, TLS, {protocol}: requests/s", f"≥ {TLS_LARGE_RATIO_MIN} × nginx", ratio and f"{ratio:.2f} ×",
                     ratio and ratio >= TLS_LARGE_RATIO_MIN))
    return rows


def tls_table(results):
    measured = tls_rows(results)
    if not measured:
        return []
    each = lambda row: f"{row['per_second']:,.0f} · {row['cpu_us']:,.1f} µs"  # noqa: E731
    rows = [[title(work), protocol, each(servers["larder"]), each(servers["nginx"]),
             f"{servers['larder']['per_second'] / servers['nginx']['per_second']:.2f}", f"{servers['larder']['cpu_us'] / servers['nginx']['cpu_us']:.2f}"]
            for work, protocol, servers in measured]
    return ["## HTTP/2 and TLS", "",
            "`h2load -t1 -c10` over TLS 1.3, medians of the rounds; ten requests are open on each connection over HTTP/2, one over HTTP/1.1 and for 8 MB. nginx "
            "has the same certificate and serves the very bytes as static files. Each cell: requests/s · CPU per request.", "",
            *table(["work", "protocol", "larder", "nginx", "requests/s, larder ÷ nginx", "CPU, larder ÷ nginx"], rows)]


def build_targets():
    """The sizes of what packages carry."""
    dist = (kept("build.json") or {}).get("dist", {})
    return [(f"{what}, profile dist", f"≤ {most / 1e6:.0f} MB", megabytes(dist[key]) if key in dist else None, dist[key] <= most if key in dist else None)
            for what, key, most in (("binary without symbols", "binary_bytes", BINARY_BYTES_MAX), ("wheel", "wheel_bytes", WHEEL_BYTES_MAX))]


def build_table():
    builds = kept("build.json") or {}
    rows = [[profile, f"{row['cpu_seconds']:,.0f} s", f"{row['seconds']:,.0f} s", megabytes(row["binary_bytes"]),
             megabytes(row["wheel_bytes"]) if "wheel_bytes" in row else "–"] for profile, row in builds.items()]
    where = [f"{profile}: {row['date']}, {provenance.described(row)}." for profile, row in builds.items()]
    return ["## The first build", "", "In a new clone, crates downloaded before. By `bench/build`.", "", *where, "",
            *table(["profile", "CPU", "time", "binary without symbols", "wheel"], rows)] if rows else []


# -- text ---------------------------------------------------------------------------------------------------------


def text(results, quick):
    parts = ["# Measured", ""]
    if quick:
        parts += ["**A smoke test of the scripts: one short round on a small catalogue. No figure here means anything.**", ""]
    parts += [
        "Written by `bench/run` from `bench/results.json`; how and what is measured: [README.md](README.md).",
        "Absolute figures belong to one machine on one day; the ratios, taken in turn in one run, are what can be compared.", "",
        *circumstances(results), *([] if quick else ["## Targets", "", *tables.target_table(targets(results))]),
        "![requests per second and CPU per request](results.svg)", "",
        *throughput(results), *ab_tables(results), *tls_table(results), *saturated_tables(results), *memory_table(results), *reload_tables(results),
        *growth_tables(results), *build_table(), *follow_table(), *database_lines(), *report_python.summary(report_python.read(HERE / "python.json")),
        *report_large.lines(report_large.read(HERE / "large.json")),
        "## Instruction counts", "",
        *instruction_counts(), "",
        *drawn(results),
    ]
    return "\n".join(parts).rstrip() + "\n"


def kept(name):
    """What another script of this directory keeps; None if it has not been run."""
    file = HERE / name
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def database_lines():
    kept_sections = report_database.read(HERE / "database.json")["sections"]
    lines = [line for name, section in kept_sections.items() for line in report_database.said(name, section["data"]) if not line.startswith(" ")]
    return ["## Following aurweb's database", "", "By `bench/database`; the rest: [DATABASE.md](DATABASE.md).", "",
            *[f"- {line}" for line in lines], ""] if lines else []


def follow_table():
    follow = kept("follow.json")
    if not follow:
        return []
    rows = [[store, facts["writes"], *[f"{facts['after_ack'][key]:.1f} ms" for key in ("p50", "p90", "p99", "max")],
             f"{facts['whole']['p50']:.1f} ms"] for store, facts in follow["stores"].items()]
    return ["## A write, seen by another process", "",
            f"An article is written on one process and read from another of the same store. By `bench/follow`, {follow['date']}; the rest: "
            "[FOLLOW.md](FOLLOW.md).", "",
            *table(["store", "writes", "acknowledged until seen elsewhere: p50", "p90", "p99", "max", "from the write's start: p50"], rows)]


def saturated_tables(results):
    saturated = data(results, "saturated")
    if not saturated:
        return []
    lines = ["## While computations are queued", ""]
    if saturated.get("reads"):
        def computing(row):
            if "computing_cpu" not in row:
                return "not recorded"
            return f"{row['computing_cpu']:.0%} of a core · {row['computed_per_second']:.1f}/s"

        lines += [f"{saturated['clients']} clients ask for Fibonacci numbers without a pause, so that computations wait all the time for a thread (there is one "
                  "for each core but one, and at least one; they have the lowest priority, niceness 19); reads by `wrk -t1 -c10`, at rest and meanwhile in turn. "
                  "Each cell: requests/s · p50 · p99 (ms). The last column is what reads, and wrk, left to the computations: alone one thread would have "
                  "a whole core.", "",
                  *table(["reads", "at rest", "computations queued", "p99, queued ÷ at rest", "CPU and rate of the computations"], [
                      [name, *[f"{row[kind]['per_second']:,.0f} · {row[kind]['p50'] / 1e3:.2f} · {row[kind]['p99'] / 1e3:.2f}" for kind in ("idle", "saturated")],
                       f"{row['saturated']['p99'] / row['idle']['p99']:.2f}", computing(row["saturated"])] for name, row in saturated["reads"].items()]),
                  f"{saturated['computed']} computations were answered in all these rounds together. With an article and `example.fibonacci` of 34 in each request: "
                  f"{saturated['both']['per_second']:,.0f} requests/s, p50 {saturated['both']['p50'] / 1e3:.1f} ms. (The C article server that came "
                  "before answered 186 of such requests, and 228 without the computation, on a kept connection, on another day.)", ""]
    fibonacci = saturated["fibonacci"]
    compiler = f"gcc -O2 ({fibonacci['compiler']})" if fibonacci["compiler"] else "C (no compiler was found)"
    lines += [f"`example.fibonacci` as its client sees it, beside the same recursion in {compiler}, which takes the time of the recursion alone; in turn, "
              f"medians. A request that computes nothing takes {fibonacci['round_trip'] * 1e3:.2f} ms.", "",
              *table(["n", "times", "larder", "C", "larder ÷ C"], [
                  [n, row["times"], f"{row['larder'] * 1e3:.2f} ms", f"{row['c'] * 1e3:.2f} ms" if row["c"] else "–",
                   f"{row['larder'] / row['c']:.2f}" if row["c"] else "–"] for n, row in fibonacci["n"].items()])]
    return lines


def instruction_counts():
    """What `bench/instructions` keeps: counts do not depend on the day, and `./test` compares with them."""
    counts = kept("instructions.json")
    rows = [f"| {kind} | {work['instructions'] / (5000 if kind == 'load' else 1000):,.0f} |" for kind, work in counts["work"].items()]
    return [f"The engine alone, 5,000 generated packages, counted by `bench/instructions` ({counts['tools']}), which fails where one grows by 3 %.", "",
            "| work | instructions for one package or question |", "| --- | --- |", *rows]


def circumstances(results):
    groups = {}
    for section, kept in results["sections"].items():
        meta = kept["meta"]
        key = (provenance.described(meta), meta["command"], meta["date"][:10], meta["note"])
        groups.setdefault(key, []).append(section)
    lines = []
    for key, sections in groups.items():
        meta = results["sections"][sections[0]]["meta"]
        first = min(results["sections"][section]["meta"]["date"] for section in sections)
        lines += [
            f"- **{', '.join(sections)}**: {first}, {provenance.described(meta)}; {meta['rounds']} rounds of {meta['seconds']} s; load average {meta['load_average']:.1f} at the end.",
            f"  `{meta['command']}`" + (f" — settings {', '.join(meta['settings'])}" if meta["settings"] else ""),
        ]
        for name, peer in meta["peers"].items():
            lines.append(f"  Peer {name}: {peer['note'] or 'no note'}.")
        if meta["note"]:
            lines.append(f"  **{meta['note']}**")
    lines += ["", *tables.warnings(measured_rows(results))]
    wrong = problems(results)
    if wrong:
        lines += ["**Answers went wrong:**", *[f"- {problem}" for problem in wrong], ""]
    return lines


def measured_rows(results):
    """All that wrk measured, as {(work, server): row}."""
    rows = {(title(work), name): row for work, facts in works(results).items() for name, row in facts["servers"].items()}
    saturated = data(results, "saturated") or {}
    rows |= {(f"{name}, {'at rest' if kind == 'idle' else 'computations queued'}", "larder"): row
             for name, by_kind in saturated.get("reads", {}).items() for kind, row in by_kind.items()}
    for name, by_kind in (data(results, "reload") or {}).get("latency", {}).items():
        rows |= {(f"{name}, {'without reloads' if kind == 'resting' else 'through reloads'}", "larder"): by_kind[kind]
                 for kind in ("resting", "reloading")}
    starts = {"start": (data(results, "memory") or {}).get("starts", [])}
    starts |= {f"start with {size['packages']:,} packages": [size["start"]] for size in data(results, "growth") or []}
    rows |= {(name, "larder"): {"p99": 0, "steal": max(start["steal"] for start in some)}
             for name, some in starts.items() if some and "steal" in some[0]}
    return rows


def throughput(results):
    all_works = works(results)
    if not all_works:
        return []
    names = []
    for facts in all_works.values():
        names += [name for name in facts["servers"] if name not in names]
    reference = "larder" if "larder" in names else "nginx"
    others = [name for name in names if name != reference]
    lines = ["## Throughput", "",
             "`wrk -t1 -c10`, medians of the rounds. Each cell: requests/s · CPU per request · p99; beside it, how many times as many "
             f"requests/s {reference} answers. nginx serves the very bytes of each answer as static files (small ones without sendfile, which is cheaper for it); in the search mix one file of the mean size.", ""]
    head = ["work", "mean body", reference]
    for other in others:
        head += [other, f"{reference} ÷ {other}"]
    rows = []
    for work, facts in all_works.items():
        row = [title(work), size_text(facts["body_mean"]), cell(facts["servers"].get(reference))]
        for other in others:
            mine, theirs = facts["servers"].get(reference), facts["servers"].get(other)
            row += [cell(theirs), ratio_text(mine['per_second'] / theirs['per_second']) if mine and theirs and theirs["per_second"] else "–"]
        rows.append(row)
    lines += table(head, rows)
    lines += tables.spread({title(work): facts["servers"] for work, facts in all_works.items()})
    differing = [f"- {title(work)}, {name}: {answers['other_count']} of {answers['asked']} counts differ from a plain scan of the dump, "
                 f"{answers['broken']} answers broken, {answers['not_200']} not 200"
                 + (f", {answers['unchecked']} unchecked" if answers.get("unchecked") else "")
                 + (f"; such as {code(answers['examples'][0])}" if answers["examples"] else "")
                 for work, facts in all_works.items() for name, answers in facts["answers"].items()
                 if answers["other_count"] or answers["broken"] or answers["not_200"] or answers.get("unchecked")]
    if differing:
        lines += ["Each answer was fetched once before the timing and its number of results compared with a plain scan of the dump:", "",
                  *differing, ""]
    failing = [f"{title(work)}, {name}: {row['errors']}" for work, facts in all_works.items()
               for name, row in facts["servers"].items() if row["errors"]]
    lines += [f"Errors under load: {'; '.join(failing) or 'none'}.", ""]
    origins = {facts["bytes_from"] for facts in all_works.values()} - {"larder"}
    if origins:
        lines += [f"**nginx served the bytes of {', '.join(sorted(origins))} here, since larder was not measured.**", ""]
    return lines


def ab_tables(results):
    works_by_ab = data(results, "ab")
    if not works_by_ab:
        return []
    lines = ["## ab, as goaurrpc's published figures were taken", "",
             "`ab -n 1000 -c 10`, a new connection for each request unless `-k`; requests/s, medians. 1,000 requests last a moment: these "
             "figures scatter more than wrk's. (goaurrpc published 8,345 suggest, 9,326 info, 853 search on four cores over Gigabit Ethernet.)", ""]
    names = list(next(iter(works_by_ab.values()))["close"])
    rows = [[work, "-k" if kind == "keep-alive" else "", *[f"{by_name[name]['per_second']:,.0f}" + (
        f" ({by_name[name]['errors']} failed)" if by_name[name]["errors"] else "") if name in by_name else "–" for name in names]]
        for work, kinds in works_by_ab.items() for kind, by_name in kinds.items()]
    return [*lines, *table(["work", "", *names], rows)]


def memory_table(results):
    memory = data(results, "memory")
    lines = ["## Start and memory", ""]
    if memory:
        median = memory["median"]
        after = memory["after_searches"]
        lines += [f"{memory['packages']:,} packages, from `.json.gz`, page cache warm; medians of {len(memory['starts'])} starts on an empty data directory.", "",
                  *table(["", "larder"], [
                      ["start to ready, wall", f"{median['wall'] * 1e3:.0f} ms"], ["start to ready, CPU", f"{median['cpu'] * 1e3:.0f} ms"],
                      ["resident when ready", megabytes(median["rss"])], ["resident three seconds later", megabytes(median["rss_rested"])],
                      ["peak while loading", megabytes(median["peak"])],
                      ["resident after the search mix", megabytes(after["rss"]) if after else "–"]])]
    peers = {}
    for kept in results["sections"].values():
        for name, facts in kept["meta"]["peers"].items():
            if facts["begin"]["rss"]:
                seen = peers.setdefault(name, {"begin": facts["begin"]["rss"], "peak": 0, "end": 0})
                seen["begin"] = min(seen["begin"], facts["begin"]["rss"])
                seen["peak"] = max(seen["peak"], facts["end"]["peak"])
                seen["end"] = max(seen["end"], facts["end"]["rss"])
    if peers:
        lines += ["Peers run on when the benchmark begins, so what they need to start is not seen here:", "",
                  *table(["", *peers], [
                      ["resident before the first question", *[megabytes(peer["begin"]) for peer in peers.values()]],
                      ["resident at most after a section", *[megabytes(peer["end"]) for peer in peers.values()]],
                      ["peak", *[megabytes(peer["peak"]) for peer in peers.values()]]])]
    return lines if memory or peers else []


def reload_tables(results):
    reload = data(results, "reload")
    if not reload:
        return []
    checked, idle = reload["checked"], reload["idle"]
    client, resting = checked["client"], checked["client_idle"]
    failures = ", ".join(f"{kind} {count}" for kind, count in client["failures"].items()) or "none"
    lines = [
        "## Reloads", "",
        f"{checked['reloads']} reloads while 50 keep-alive clients searched the mix and checked every answer: {client['requests']:,} answers, "
        f"{client['failed']} failed ({failures}); {client['marker_answers']:,} of them listed {len(client['revisions'])} revisions of the catalogue, "
        "and none may mix two. "
        f"A new catalogue showed {statistics_text(checked['visible_after'])} after the rename. Peak memory since the start: "
        f"**{megabytes(reload['after']['peak'])}**, resident afterwards {megabytes(reload['after']['rss'])}.", "",
        f"One reload with nobody asking: {idle['cpu'] * 1e3:.0f} ms of CPU, visible after {idle['visible_after'] * 1e3:.0f} ms "
        f"(at most {idle['visible_after_max'] * 1e3:.0f} ms); watching the file costs {idle['resting_cpu_share']:.2%} of a core.", "",
        f"The checking client is Python and takes a core of its own; its latencies are for orientation: p50 {resting['p50'] / 1e3:.1f} ms and p99 "
        f"{resting['p99'] / 1e3:.1f} ms without reloads, {client['p50'] / 1e3:.1f} ms and {client['p99'] / 1e3:.1f} ms with.", ""]
    if reload.get("latency"):
        lines += ["wrk's figures, without and with back-to-back reloads (rename and SIGHUP, the next as soon as one is visible):", ""]
        rows = [[name, *[f"{row[kind]['per_second']:,.0f} · {row[kind]['p50'] / 1e3:.2f} · {row[kind]['p99'] / 1e3:.2f} · {row[kind]['max'] / 1e3:.0f}"
                         for kind in ("resting", "reloading")], row["reloads"], f"{row['visible_after'] * 1e3:.0f} ms",
                 row["reloading"]["errors"]] for name, row in reload["latency"].items()]
        lines += table(["load", "without: requests/s · p50 · p99 · max (ms)", "with: requests/s · p50 · p99 · max (ms)", "reloads",
                        "visible after", "errors"], rows)
    return lines


def growth_tables(results):
    growth = data(results, "growth")
    if not growth:
        return []
    lines = ["## Growth", "", "Generated catalogues (`larder demo-data`); medians of three starts.", ""]
    lines += table(["packages", "dump", "load, CPU", "load, wall", "resident when ready", "three seconds later", "peak"], [
        [f"{row['packages']:,}", size_text(row["dump_bytes"]), f"{row['start']['cpu']:.2f} s", f"{row['start']['wall']:.2f} s",
         megabytes(row["start"]["rss"]), megabytes(row["start"]["rss_rested"]), megabytes(row["start"]["peak"])] for row in growth])
    names = [name for name in growth[0]["searches"]]
    lines += ["Searches with equal result counts; each cell: CPU per request under ten connections · time of a request on one connection "
              "(that includes the loopback round trip).", ""]
    lines += table(["search by", *[f"{row['packages']:,}" for row in growth]], [
        [name, *[f"{row['searches'][name]['cpu_us']:.0f} µs · {row['searches'][name]['alone_us']:.0f} µs"
                 if row["searches"].get(name) else "no such question" for row in growth]] for name in names])
    return lines


def drawn(results):
    mix = (data(results, "search") or {}).get("mix")
    if not mix:
        return []
    facts = data(results, "search")["search_mix"]
    return [
        "## The search mix", "",
        f"{sum(mix['by'].values()):,} different questions drawn from the {mix['packages']:,} packages with seed {mix['seed']}; asked in one fixed random order. "
        f"{mix['missing']} find nothing, {mix['too_many']} are refused (\"Too many package results.\"); the others and the missing ones find "
        f"{mix['results_mean']:.0f} packages on average (median {mix['results_median']:.0f}, at most {mix['results_max']:,}). Bodies: mean "
        f"{size_text(facts['body_mean'])}, median {size_text(facts['body_median'])}, largest {size_text(facts['body_max'])}.", "",
        "By field: " + ", ".join(f"{by} {count}" for by, count in sorted(mix["by"].items())) + ". By kind: "
        + ", ".join(f"{kind} {count}" for kind, count in sorted(mix["kind"].items())) + ".", ""]


def code(value):
    return "`" + value.replace("|", "\\|").replace("`", "'") + "`"


def statistics_text(seconds):
    low, high = min(seconds) * 1e3, max(seconds) * 1e3
    return f"{low:.0f} to {high:.0f} ms"
