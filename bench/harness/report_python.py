"""The Python index's report: python.json -> PYTHON.md, and the lines that RESULTS.md has of it.

Reads nothing but the results, so that the text can be improved without measuring again. A target that is missed is
written as missed; one whose section has not been measured says so.
"""

import json
from pathlib import Path

import provenance
import tables
from tables import cell, megabytes, ratio_text, table

HERE = Path(__file__).resolve().parents[1]
NGINX_RATIO_MIN = 0.95
NGINX_CPU_RATIO_MAX = 1.15
DEVPI_RATIO_MIN = 550
DEVPI_GZIP_RATIO_MIN = 1500
MIRROR_RATIO_MIN = 0.95
MILLION_BYTES_MAX = 700e6
MILLION_SECONDS_MAX = 10.0
# The mean answer under load, header included, beside the body that was seen before: outside these it is another answer.
ANSWER_RATIO = (0.85, 1.5)
HEADER_BYTES_MAX = 2048
TITLES = {"html": "HTML", "html_gzip": "HTML, gzip", "json": "JSON", "json_gzip": "JSON, gzip"}


def read(path):
    """The results kept in `path`; empty ones if there is no such file."""
    if not Path(path).exists():
        return {"format": 2, "sections": {}}
    return json.loads(Path(path).read_text())


def write(results, out):
    """Writes python.json and PYTHON.md into the directory `out`."""
    (out / "python.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    (out / "PYTHON.md").write_text("\n".join(text(results)) + "\n", encoding="utf-8")


def data(results, section):
    return results["sections"].get(section, {}).get("data")


def works(results):
    """All works that were compared by wrk, in the order of the table."""
    found = {}
    for section in ("page", "file", "large", "mirror", "connections", "many"):
        found |= (data(results, section) or {}).get("works", {})
    return found


def problems(results):
    """Where requests failed, or got another answer than the one that was seen before, one phrase each."""
    found = [f"{work}, {name}: {row['errors']} errors" for work, facts in works(results).items()
             for name, row in facts["servers"].items() if row["errors"]]
    for work, facts in works(results).items():
        for name, row in facts["servers"].items():
            body, mean = facts.get("sizes", {}).get(name, facts["bytes"]), row.get("answer_bytes")
            if mean is not None and not ANSWER_RATIO[0] * body <= mean <= ANSWER_RATIO[1] * body + HEADER_BYTES_MAX:
                found.append(f"{work}, {name}: answers of {mean:,.0f} bytes on average, expected {body:,} and a header")
    for section in ("million", "names"):
        if (facts := data(results, section)) and facts["wrk"]["errors"]:
            found.append(f"{section}: {facts['wrk']['errors']} errors")
    if (facts := data(results, "write")) and facts["errors"]:
        found.append(f"write: {facts['errors']} errors")
    return found


def targets(results):
    """Rows (what, target, measured, met): met is None where nothing was measured."""
    rows, all_works = [], works(results)

    def add(what, target, value, shown, met):
        rows.append((what, target, None if value is None else shown(value), None if value is None else met(value)))

    def page(work):
        facts = all_works.get(work)
        return f"simple page, {TITLES[work]}" + (f", {tables.size_text(facts['bytes'])}" if facts else "")

    def ratio(work, other, key="per_second"):
        servers = all_works.get(work, {}).get("servers", {})
        return servers["larder"][key] / servers[other][key] if other in servers else None

    for work in ("html", "html_gzip", "json", "json_gzip"):
        add(f"{page(work)}: requests/s", f"≥ {NGINX_RATIO_MIN} × nginx", ratio(work, "nginx"), lambda it: f"{it:.2f} ×",
            lambda it: it >= NGINX_RATIO_MIN)
        add(f"{page(work)}: CPU per request", f"≤ {NGINX_CPU_RATIO_MAX} × nginx", ratio(work, "nginx", "cpu_us"), lambda it: f"{it:.2f} ×",
            lambda it: it <= NGINX_CPU_RATIO_MAX)
    for work, least in (("html", DEVPI_RATIO_MIN), ("html_gzip", DEVPI_GZIP_RATIO_MIN)):
        add(f"{page(work)}: requests/s", f"≥ {least:,} × devpi-server", ratio(work, "devpi"), lambda it: f"{it:,.0f} ×",
            lambda it, least=least: it >= least)
    for kind in ("own", "mirrored"):
        for length in (1, 5, 20):
            work = f"file_{kind}_{length}_mb"
            add(f"{'a release file' if kind == 'own' else 'a file of a mirror'} of {length} MB: CPU per request",
                f"≤ {NGINX_CPU_RATIO_MAX} × nginx", ratio(work, "nginx", "cpu_us"), lambda it: f"{it:.2f} ×",
                lambda it: it <= NGINX_CPU_RATIO_MAX)
    for kind, title in (("mirror", "a mirror's page"), ("policy", "a mirror's page, with a policy that hides a file")):
        for form in ("html", "json", "json_gzip"):
            larder = [all_works[work]["servers"]["larder"]["per_second"]
                      for work in (f"warm_{kind}_{form}", f"warm_own_{form}") if work in all_works]
            add(f"{title}, {TITLES[form]}: requests/s", f"≥ {MIRROR_RATIO_MIN} × own page", larder[0] / larder[1] if larder else None,
                lambda it: f"{it:.2f} ×", lambda it: it >= MIRROR_RATIO_MIN)
    million = data(results, "million")
    resident = million and max(million["median"]["rss"], million["median"]["rss_rested"])
    size = f"{million['files']:,} release files in {million['projects']:,} projects" if million else "a million release files"
    add(f"{size}: memory when ready", "≤ 700 MB", resident, megabytes, lambda it: it <= MILLION_BYTES_MAX)
    add(f"{size}: start to ready", "≤ 10 s", million and million["median"]["wall"], lambda it: f"{it:.2f} s",
        lambda it: it <= MILLION_SECONDS_MAX)
    return rows


def text(results):
    """PYTHON.md, line by line."""
    lines = ["# The Python index, measured", "",
             "Written by `bench/python` from `bench/python.json`; how: [README.md](README.md). One project with many release files "
             "in a stage over many bases; `wrk -t1`, medians of rounds in turn, load on the same machine. nginx serves the same bytes as "
             "static files; devpi-server has the same stages, NORA the same files in its one index.", "",
             *circumstances(results), "## Targets", "", *tables.target_table(targets(results))]
    lines += throughput(results) + mirror_lines(results)
    lines += many_lines(results) + million_lines(results) + names_lines(results)
    return "\n".join(lines).rstrip().split("\n")


def circumstances(results):
    groups = {}
    for section, kept in results["sections"].items():
        meta = kept["meta"]
        key = (provenance.described(meta), meta.get("command"), meta["date"][:10], meta["files"], meta["bases"], meta["seconds"],
               meta["rounds"], meta["note"])
        groups.setdefault(key, []).append(section)
    lines = []
    for sections in groups.values():
        meta = results["sections"][sections[0]]["meta"]
        first = min(results["sections"][section]["meta"]["date"] for section in sections)
        loads = [results["sections"][section]["meta"]["load_average"] for section in sections]
        load = "" if None in loads else f"; load average at most {max(loads):.1f} at the end of a section"
        peers = "".join(f"; {name} {note}" for name, note in meta["peers"].items())
        lines.append(f"- **{', '.join(sections)}**: {first}, {provenance.described(meta)}; {meta['files']} files over {meta['bases']} bases; {meta['rounds']} rounds of "
                     f"{meta['seconds']} s{load}{peers}." + (f" **{meta['note']}**" if meta["note"] else ""))
        if meta.get("command"):
            lines.append(f"  `{meta['command']}`")
    rows = {(work, name): row for work, facts in works(results).items() for name, row in facts["servers"].items()}
    rows |= {(section, "larder"): facts["wrk"] for section in ("million", "names") if (facts := data(results, section))}
    lines += ["", *tables.warnings(rows)]
    if wrong := problems(results):
        lines += [f"**Answers went wrong:** {'; '.join(wrong)}.", ""]
    return lines


def throughput(results):
    all_works = works(results)
    if not all_works:
        return []
    lines = ["## Throughput", "",
             "Each cell: requests/s · CPU per request · p99; beside it, how many times as many requests/s larder answers. Ten connections "
             "unless the name says otherwise.", ""]
    beside = beside_mirrors(results)
    lines += side_by_side({work: {**facts, "servers": {"larder": facts["servers"]["larder"]}} if work in beside else facts
                           for work, facts in all_works.items()}, ("nginx", "nora", "devpi"))
    lines += tables.spread({work: facts["servers"] for work, facts in all_works.items()})
    others = [f"{work}: " + ", ".join(f"{name} {size:,}" for name, size in facts["sizes"].items() if name != "larder")
              for work, facts in all_works.items() if len(set(facts.get("sizes", {}).values())) > 1]
    if others:
        lines += [f"Bytes of the peers' answers, which list the same files: {'; '.join(others)}.", ""]
    if memory := (data(results, "page") or {}).get("memory"):
        lines += ["Resident after these rounds: " + ", ".join(
            f"{name} {megabytes(row['rss'])} (peak {megabytes(row['peak'])})" for name, row in memory.items()) + ".", ""]
    if burst := data(results, "burst"):
        lines += [f"A burst of {burst['projects']} projects over 50 connections: {burst['cold_ms']:.0f} ms when every page is made "
                  f"first, {burst['not_modified_ms']:.0f} ms with 304s (a Python client, which is most of that time).", ""]
    if write := data(results, "write"):
        upload = f"{write['upload_ms']:.0f} ms" if write["upload_ms"] is not None else "unknown"
        lines += [f"An upload a second into the stage while 50 connections read its page: {write['per_second']:,.0f} pages/s, "
                  f"p99 {write['p99_us'] / 1e3:.1f} ms, {write['errors']} errors; an upload takes {upload} "
                  f"(median of {write['uploads']}) and is on the page when it is acknowledged.", ""]
    return lines


def side_by_side(all_works, peers):
    """A table of works: larder's figures, those of each peer that was measured in some of them, and the ratio of requests/s."""
    names = [name for name in peers if any(name in facts["servers"] for facts in all_works.values())]
    head = ["work", "bytes", "larder"]
    for name in names:
        head += [name, f"larder ÷ {name}"]
    rows = []
    for work, facts in all_works.items():
        larder = facts["servers"]["larder"]
        row = [work, f"{facts['bytes']:,}", cell(larder)]
        for name in names:
            other = facts["servers"].get(name)
            row += [cell(other), ratio_text(larder["per_second"] / other["per_second"])] if other else ["–", "–"]
        rows.append(row)
    return table(head, rows)


def beside_mirrors(results):
    """The works of a mirror, if other mirrors of the same upstream were measured in any of them as well."""
    kept = (data(results, "mirror") or {}).get("works", {})
    found = {work: facts for work, facts in kept.items() if work.startswith("warm_mirror_")}
    return found if any(len(facts["servers"]) > 1 for facts in found.values()) else {}


def mirror_lines(results):
    beside = beside_mirrors(results)
    if not beside:
        return []
    return ["## A mirror beside other mirrors", "",
            "The page of the many files, and a wheel of 1 MB, as a mirror has them once they are there: devpi-server's own mirror and proxpi "
            "(gunicorn, one process with two threads, as its container image starts it) have the same upstream, and were asked in the same "
            "rounds. Cells as above; a dash: the peer has no such page.", "", *side_by_side(beside, ("devpi", "proxpi"))]


def many_lines(results):
    many = data(results, "many")
    if not many:
        return []
    return [f"A project of {many['files']:,} files in the stage itself: its first page as JSON, which has to be made, takes "
            f"{many['first']['whole_ms']:.0f} ms; it was filled with {many['uploads_per_second']:.0f} uploads a second over 16 connections.", ""]


def started(facts):
    median = facts["median"]
    return [["start to ready, wall", f"{median['wall']:.2f} s"], ["start to ready, CPU", f"{median['cpu']:.2f} s"],
            ["resident when ready", megabytes(median["rss"])], ["resident three seconds later", megabytes(median["rss_rested"])],
            ["peak until ready", megabytes(median["peak"])], ["records on disk", megabytes(facts["database_bytes"])]]


def million_lines(results):
    facts = data(results, "million")
    if not facts:
        return []
    lines = [f"## {facts['files']:,} release files in {facts['projects']:,} projects", "",
             f"One stage on SQLite, page cache warm; medians of {len(facts['starts'])} starts.", "", *table(["", "larder"], started(facts))]
    rows = []
    for work, title in (("html", "HTML"), ("json_gzip", "JSON, gzip")):
        cold, warm = facts[work]["cold"], facts[work]["warm"]
        rows.append([title, f"{facts[work]['pages']:,}", f"{facts[work]['bytes']:,.0f}"]
                    + [f"{row['p50']:.2f} · {row['p99']:.2f} · {row['max']:.2f}" for row in (cold, warm)])
    lines += ["Pages of projects drawn at random, one after the other by a Python client (some tenths of a millisecond are its own); "
              "p50 · p99 · max in ms:", "", *table(["page", "pages", "mean bytes", "first answer", "second answer"], rows)]
    wrk = facts["wrk"]
    lines += [f"`wrk -t1 -c10` over these pages once they are ready: {wrk['per_second']:,.0f}/s, {wrk['cpu_us']:.1f} µs of CPU a request, "
              f"p99 {wrk['p99'] / 1e3:.2f} ms. Resident afterwards {megabytes(facts['after']['rss'])}, peak {megabytes(facts['after']['peak'])}.", ""]
    return lines


def names_lines(results):
    facts = data(results, "names")
    if not facts:
        return []
    lines = [f"## The list of {facts['projects']:,} projects", "",
             f"One release file each; medians of {len(facts['starts'])} starts.", "", *table(["", "larder"], started(facts))]
    rows = []
    titles = {"html": "HTML", "json": "JSON", "html_gzip": "HTML, gzip", "json_gzip": "JSON, gzip"}
    for work, row in facts["lists"].items():
        rows.append([titles[work], megabytes(row["bytes"])] + [f"{it['first_ms']:.0f} · {it['whole_ms']:.0f}" for it in (row["first"], row["again"])])
    lines += ["Milliseconds until the header · until all is read, by a Python client; in this order, each form for the first time and again:", "",
              *table(["list", "size", "first answer", "then"], rows)]
    after, wrk = facts["after_one_more"], facts["wrk"]
    lines += [f"`wrk -t1 -c10` on the JSON with gzip: {wrk['per_second']:,.0f}/s, {wrk['cpu_us']:,.0f} µs of CPU a request. Resident with all "
              f"four lists made {megabytes(facts['after']['rss'])}, peak {megabytes(facts['after']['peak'])}. One more project: its upload takes "
              f"{facts['upload_ms']:.0f} ms, and the list after it {after['whole_ms']:.0f} ms (JSON, gzip).", ""]
    return lines


def summary(results):
    """What RESULTS.md says of the Python index: a list of lines."""
    if not results["sections"]:
        return []
    return ["## The Python index", "", "By `bench/python`; its targets are among those above. Circumstances, all forms and sizes: "
            "[PYTHON.md](PYTHON.md).", ""]
