"""What both reports are written with: tables, figures for people, and what makes a row not worth comparing.

Rows are the summaries of `load.summary`; results of earlier versions of the scripts lack some of their figures, which
are left out then.
"""

# Above this share of the machine's CPU time in other hands, a figure is not worth comparing.
OTHER_CPU_MAX = 0.05
# The same for time that the machine was kept from using.
STEAL_MAX = 0.01
# A p99 above this is seldom work on an answer: something waits, or many wait for their turn.
TAIL_US_MAX = 20_000


def table(head, rows):
    if not rows:
        return []
    return ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head),
            *["| " + " | ".join(str(value) for value in row) + " |" for row in rows], ""]


def target_table(targets):
    """The targets (what, target, measured, met), after a sentence that counts them and names those that were missed."""
    missed = [f"{what} ({measured}, target {target})" for what, target, measured, met in targets if met is False]
    unmeasured = sum(met is None for *_, met in targets)
    counted = f"**{len(targets)} targets: {len(targets) - len(missed) - unmeasured} met, {len(missed)} missed, {unmeasured} not measured.**"
    return [counted + (f" Missed: {'; '.join(missed)}." if missed else ""), "",
            *table(["what", "target", "measured", "met"],
                   [(what, target, measured or "not measured", {None: "–", True: "yes", False: "**no**"}[met])
                    for what, target, measured, met in targets])]


def warnings(rows):
    """Sentences on rows, given as {(work, server): row}, that were disturbed or that wait for something."""
    def above(key, bound):
        return sorted({work for (work, _), row in rows.items() if (row.get(key) or 0) > bound})

    lines = []
    if noisy := above("other_cpu", OTHER_CPU_MAX):
        lines += [f"**Not a quiet machine:** other processes took more than {OTHER_CPU_MAX:.0%} of its CPU time in some round of: "
                  f"{'; '.join(noisy)}.", ""]
    stolen = [row["steal"] for row in rows.values() if row.get("steal") is not None]
    if kept_from := above("steal", STEAL_MAX):
        lines += [f"**Steal:** the machine was kept from using more than {STEAL_MAX:.0%} of its CPU time in some round of: {'; '.join(kept_from)}.", ""]
    elif stolen:
        lines += [f"Steal: the machine was kept from using at most {max(stolen):.1%} of its CPU time in a round"
                  + ("" if len(stolen) == len(rows) else f" ({len(rows) - len(stolen)} rows were taken before that was recorded)") + ".", ""]
    elif rows:
        lines += ["Steal was not recorded.", ""]
    tails = [f"{work}, {server} {row['p99'] / 1e3:.1f} ms" for (work, server), row in rows.items()
             if server in ("larder", "nginx") and row["p99"] > TAIL_US_MAX]
    if tails:
        lines += [f"**Long tails:** p99 is above {TAIL_US_MAX // 1000} ms in: {'; '.join(tails)}. Some 40 ms is what a receiver may put off an "
                  "acknowledgement for: there some answers waited for one. wrk counts the requests that a waiting connection could not send as "
                  "slow, too, so a few such waits in a second show in p99, and cost some percent of requests/s. A thousand connections have a "
                  "queue of their own.", ""]
    return lines


def spread(works):
    """How far apart the rounds of a row were: a sentence and a table. `works` is {work: {server: row}}."""
    known = {work: {name: row for name, row in rows.items() if row.get("rounds", 0) > 1 and row["per_second"]}
             for work, rows in works.items()}
    widths = sorted(((row["highest"] - row["lowest"]) / row["per_second"], work, name)
                    for work, rows in known.items() for name, row in rows.items())
    if not widths:
        return []
    names = list(dict.fromkeys(name for rows in known.values() for name in rows))
    width, work, name = widths[-1]
    lines = [f"Requests/s of the lowest and the highest round: half of the rows have them within {widths[len(widths) // 2][0]:.0%} of the median, "
             f"the widest within {width:.0%} ({work}, {name}). The last column divides the lowest round of larder by the highest of nginx, "
             "and the other way round: a ratio within these bounds may be chance.", ""]
    rows = []
    for work, by_name in known.items():
        row = [work] + [f"{by_name[name]['lowest']:,.0f}–{by_name[name]['highest']:,.0f}" if name in by_name else "–" for name in names]
        mine, theirs = by_name.get("larder"), by_name.get("nginx")
        rows.append([*row, f"{mine['lowest'] / theirs['highest']:.2f}–{mine['highest'] / theirs['lowest']:.2f}" if mine and theirs and theirs["lowest"] else "–"])
    return [*lines, *table(["work", *names, "larder ÷ nginx"], rows)]


def cell(row):
    """Requests/s · CPU per request · p99."""
    if not row:
        return "–"
    cpu = f" · {significant(row['cpu_us'])} µs" if row["cpu_us"] is not None else ""
    return f"{row['per_second']:,.0f}{cpu} · {row['p99'] / 1e3:.2f} ms"


def significant(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def ratio_text(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size_text(size):
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB" if size >= 1e3 else f"{size:,.0f} B"


def megabytes(size):
    return f"{size / 1e6:.1f} MB"
