# SPDX-License-Identifier: Apache-2.0
"""Curves as a small SVG, for the scripts of bench/*: lines(path, curves, ...)."""
import html
import math

COLOURS = ["#2563c9", "#d9690b", "#168a5b", "#8a3fbf", "#c2255c", "#0b8f9c", "#8a6d0b", "#667080", "#e39a00", "#5b7cfa", "#3b3f46", "#b5541c"]
STYLE = "text{font:11px system-ui,sans-serif;fill:#667080}.g{stroke:#e3e6eb}.m{stroke:#667080;stroke-dasharray:4 3}.l{fill:none;stroke-width:1.5}"
LEFT, RIGHT, HIGH = 56, 600, 220


def _ticks(low, high, about):
    """Round numbers from low to high."""
    raw = (high - low) / about
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * k for k in (1, 2, 2.5, 5, 10) if unit * k >= raw)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, last + 1)]


def lines(path, curves, what, form="{:g}", at=(), marks=()):
    """Draws curves, a dict of name -> [(x, y)], in the order of the dict; `what` says below what is drawn. `form` prints a number of the
    y axis, `at` are the numbers of the x axis, `marks` those of vertical lines."""
    xs = [x for c in curves.values() for x, _ in c]
    ticks = _ticks(min(y for c in curves.values() for _, y in c), max(y for c in curves.values() for _, y in c), 5)
    rows = (len(curves) + 3) // 4
    top = 10 + 16 * rows

    def px(x):
        return LEFT + (x - min(xs)) / (max(xs) - min(xs)) * (RIGHT - LEFT)

    def py(y):
        return top + 8 + (ticks[-1] - y) / (ticks[-1] - ticks[0]) * HIGH

    height = top + HIGH + 52
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 {height}"><style>{STYLE}</style><rect width="620" height="{height}" fill="#fff"/>']
    for y in ticks:
        out.append(f'<path class="g" d="M{LEFT} {py(y):.1f}H{RIGHT}"/><text x="{LEFT - 6}" y="{py(y) + 4:.1f}" text-anchor="end">{form.format(y)}</text>')
    for x in at or _ticks(min(xs), max(xs), 5)[1:-1]:
        out.append(f'<text x="{px(x):.1f}" y="{top + HIGH + 24}" text-anchor="middle">{x:g}</text>')
    for x in marks:
        out.append(f'<path class="m" d="M{px(x):.1f} {top + 8}v{HIGH}"/>')
    for i, (name, curve) in enumerate(curves.items()):
        colour, x, y = COLOURS[i % len(COLOURS)], LEFT + 140 * (i % 4), 8 + 16 * (i // 4)
        out.append(f'<path class="l" stroke="{colour}" d="M' + "L".join(f"{px(a):.1f} {py(b):.1f}" for a, b in curve) + '"/>')
        out.append(f'<rect x="{x}" y="{y}" width="10" height="10" rx="3" fill="{colour}"/><text x="{x + 14}" y="{y + 9}">{html.escape(name)}</text>')
    out.append(f'<text x="{(LEFT + RIGHT) // 2}" y="{height - 8}" text-anchor="middle">{html.escape(what)}</text></svg>')
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")
