"""The plot: requests per second and CPU per request of each work and server, as one plain SVG.

works (as report.works gives them) -> SVG text. Both axes are logarithmic, since the works differ a thousandfold.
"""

import math
from html import escape

COLOURS = ["#1f6f54", "#9aa5b1", "#d08c3c", "#8a5fa8", "#4a7fb5"]
WIDTH, LEFT, GAP, RIGHT = 1080, 250, 70, 70
BAR, BETWEEN_BARS, BETWEEN_WORKS, TOP, BOTTOM = 13, 2, 14, 74, 34


def draw(works):
    works = {work: facts for work, facts in works.items() if facts["servers"]}
    names = []
    for facts in works.values():
        names += [name for name in facts["servers"] if name not in names]
    if not works:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"/>\n'
    colours = dict(zip(names, COLOURS * len(names)))
    panel = (WIDTH - LEFT - GAP - RIGHT) / 2
    height = TOP + BOTTOM + sum(len(facts["servers"]) * (BAR + BETWEEN_BARS) + BETWEEN_WORKS for facts in works.values())
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           'font-family="system-ui, sans-serif" font-size="12" fill="#222">',
           "<title>Requests per second and CPU per request</title>",
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>']
    at = LEFT
    for name in names:
        out.append(f'<rect x="{at}" y="14" width="13" height="13" fill="{colours[name]}"/>'
                   f'<text x="{at + 19}" y="25">{escape(name)}</text>')
        at += 40 + 8 * len(name)
    panels = [("requests/s (more is better)", "per_second", LEFT, lambda value: f"{value:,.0f}"),
              ("CPU per request, µs (less is better)", "cpu_us", LEFT + panel + GAP,
               lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.1f}")]
    for caption, key, x, label in panels:
        values = [row[key] for facts in works.values() for row in facts["servers"].values() if row[key]]
        if not values:
            continue
        low, high = math.floor(math.log10(min(values)) - 0.3), math.ceil(math.log10(max(values)))
        scale = panel / max(high - low, 1)
        out.append(f'<text x="{x}" y="{TOP - 24}" font-weight="600">{escape(caption)}</text>')
        for power in range(low, high + 1):
            tick = x + (power - low) * scale
            out.append(f'<line x1="{tick:.1f}" y1="{TOP - 6}" x2="{tick:.1f}" y2="{height - BOTTOM}" stroke="#e3e6e9"/>'
                       f'<text x="{tick:.1f}" y="{height - BOTTOM + 16}" text-anchor="middle" fill="#666">{10 ** power:,g}</text>')
        y = TOP
        for work, facts in works.items():
            if key == "per_second":
                middle = y + len(facts["servers"]) * (BAR + BETWEEN_BARS) / 2 + 3
                out.append(f'<text x="{LEFT - 10}" y="{middle:.1f}" text-anchor="end">{escape(caption_of(work))}</text>')
            for name, row in facts["servers"].items():
                if row[key]:
                    width = max(1.0, (math.log10(row[key]) - low) * scale)
                    out.append(f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colours[name]}"/>'
                               f'<text x="{x + width + 4:.1f}" y="{y + BAR - 2}" font-size="11" fill="#444">{label(row[key])}</text>')
                y += BAR + BETWEEN_BARS
            y += BETWEEN_WORKS
    out.append("</svg>")
    return "\n".join(out) + "\n"


def caption_of(work):
    import report  # here, since report imports this module
    return report.title(work).replace("`", "")
