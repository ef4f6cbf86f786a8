"""One self-contained HTML page: headline numbers, bars, curves, timelines, tables. Strings in, a string out. Pure.

    page("Archive of clicks", [section("Per day", bars(days, {"0": [12, 5]}, unit="records"))])

Nothing is loaded from elsewhere and no script runs, so that a page can be sent around and opened years later. All texts
are escaped. Marks explain themselves when the mouse rests on them (SVG titles).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from typing import NamedTuple

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e")
REST_COLOUR = "#9498a0"
"""Of what is drawn together because there are not enough colours to tell it apart."""

_OF_BROKERS = [colour for colour in COLOURS if colour != "#ff725c"]
"""That one looks too much like what is wrong."""

WIDTH, LEFT, RIGHT = 960, 168, 12
BAR_HEIGHT, ROW_HEIGHT = 220, 22
WIDEST_BAR = 90
MOST_LABELS = 12
LONGEST_NAME = 20
"""Of a row of a timeline, beside which its end is shown: it has the number of the partition. In 11 px, LEFT has 8 for
each character: more than all but names in capitals need."""
MOST_MARKS = 20_000
"""Of one timeline; a browser draws so many at once without delay."""

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1e23;--soft:#6b7280;--line:#d9dce1;--ground:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#9aa1ab;--line:#3a3f47;--ground:#16181c}}
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem;
color:var(--ink);background:var(--ground)}
h1{margin:0;font-size:1.7rem}h2{margin:2.2rem 0 .5rem;font-size:1.15rem}p{margin:.3rem 0;color:var(--soft)}
.figures{display:flex;flex-wrap:wrap;gap:1rem 2.5rem;margin:1.5rem 0}
.figures div{color:var(--soft)}.figures b{display:block;font-size:1.5rem;color:var(--ink)}
svg{width:100%;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
svg line{stroke:var(--line)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .9rem;border-bottom:1px solid var(--line);text-align:left}
td.n,th.n{text-align:right}
.key span{margin-right:1rem;color:var(--soft)}
.key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.3em}
"""


class Span(NamedTuple):
    """A stretch of a timeline, in the unit of its axis; `kind` decides the colour, `title` explains it."""

    start: float
    end: float
    kind: str
    title: str = ""


def page(title: str, sections: Iterable[str], *, subtitle: str = "") -> str:
    """The whole document; `sections` are pieces that the functions below made."""
    under = f"<p>{escape(subtitle)}</p>" if subtitle else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>{under}\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def section(heading: str, *pieces: str, note: str = "") -> str:
    """A heading, a sentence under it, and pictures or tables."""
    under = f"<p>{escape(note)}</p>" if note else ""
    return f"<h2>{escape(heading)}</h2>{under}{''.join(pieces)}"


def figures(pairs: Iterable[tuple[str, str]]) -> str:
    """Headline numbers: (what, value)."""
    return (
        '<div class="figures">'
        + "".join(f"<div><b>{escape(value)}</b>{escape(what)}</div>" for what, value in pairs)
        + "</div>"
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[str] = ()) -> str:
    """`numbers`: the columns that stand to the right."""
    right = set(numbers)
    classes = [' class="n"' if column in right else "" for column in columns]
    head = "".join(f"<th{kind}>{escape(column)}</th>" for kind, column in zip(classes, columns, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(classes, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    unit: str,
    shown: Callable[[float], str] = lambda value: f"{value:,.0f}",
    colours: Mapping[str, str] | None = None,
) -> str:
    """A stacked bar per label; each series has a value for each label. The largest series keep their colours, the
    others are drawn together. `colours`: of series that do not take them in turn."""
    if not labels:
        return "<p>nothing to show</p>"
    stacked = _largest(series)
    given = colours or {}
    of_series = [given.get(name, colour) for name, colour in zip(stacked, _colours(stacked), strict=True)]
    highest = max(sum(values[place] for values in stacked.values()) for place in range(len(labels))) or 1
    step = (WIDTH - LEFT - RIGHT) / len(labels)
    width = min(max(step * 0.8, 0.5), WIDEST_BAR)
    marks = []
    for value in (0, highest / 2, highest):
        y = BAR_HEIGHT - value / highest * (BAR_HEIGHT - 15)
        marks.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        marks.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(shown(value))}</text>')
    every = math.ceil(len(labels) / MOST_LABELS)
    for place, label in enumerate(labels):
        x = LEFT + place * step
        y = float(BAR_HEIGHT)
        for colour, (name, values) in zip(of_series, stacked.items(), strict=True):
            height = values[place] / highest * (BAR_HEIGHT - 15)
            if height <= 0:
                continue
            y -= height
            title = escape(f"{label}, {name}: {shown(values[place])} {unit}".rstrip())
            marks.append(
                f'<rect x="{x + (step - width) / 2:.2f}" y="{y:.2f}" width="{width:.2f}" '
                f'height="{height:.2f}" fill="{colour}"><title>{title}</title></rect>'
            )
        if place % every == 0:
            marks.append(
                f'<text x="{x + step / 2:.1f}" y="{BAR_HEIGHT + 16}" text-anchor="middle">{escape(label)}</text>'
            )
    return _key(stacked, of_series) + _svg(BAR_HEIGHT + 24, unit, marks)


def about_zero(
    values: Mapping[str, float], *, limit: float, unit: str, shown: Callable[[float], str], wrong: str = "#ff725c"
) -> str:
    """A bar up or down for each name, with a line at `limit` on both sides; bars beyond it have the colour `wrong`."""
    if not values:
        return "<p>nothing to show</p>"
    highest = max(limit, *map(abs, values.values())) * 1.05 or 1
    middle = BAR_HEIGHT / 2
    scale = (middle - 8) / highest
    step = (WIDTH - LEFT - RIGHT) / len(values)
    width = min(max(step * 0.8, 0.5), WIDEST_BAR)
    every = math.ceil(len(values) / MOST_LABELS)
    marks = []
    for value in (-limit, 0.0, limit):
        y = middle - value * scale
        dashes = ' stroke-dasharray="4 3"' if value else ""
        marks.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"{dashes}/>')
        marks.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(shown(value))}</text>')
    for place, (name, value) in enumerate(values.items()):
        x = LEFT + place * step
        top = middle - max(value, 0.0) * scale
        colour = wrong if abs(value) > limit else COLOURS[0]
        marks.append(
            f'<rect x="{x + (step - width) / 2:.2f}" y="{top:.2f}" width="{width:.2f}" '
            f'height="{abs(value) * scale:.2f}" fill="{escape(colour)}">'
            f"<title>{escape(f'{name}: {shown(value)}')}</title></rect>"
        )
        if place % every == 0:
            marks.append(
                f'<text x="{x + step / 2:.1f}" y="{BAR_HEIGHT + 16}" text-anchor="middle">{escape(name)}</text>'
            )
    return _svg(BAR_HEIGHT + 24, unit, marks)


def pie(parts: Mapping[str, float], *, label: str, colours: Mapping[str, str] | None = None) -> str:
    """A slice for each name, clockwise from the top; the parts need not sum up to one."""
    whole = sum(parts.values())
    if not whole > 0:
        return "<p>nothing to show</p>"
    given = colours or {}
    of_parts = [given.get(name, colour) for name, colour in zip(parts, _colours(parts), strict=True)]
    radius = BAR_HEIGHT / 2 - 4
    marks, turned = [], 0.0
    for colour, (name, part) in zip(of_parts, parts.items(), strict=True):
        # As the stroke of a circle of half the radius: one slice may be all of it, which an arc cannot draw.
        around = math.pi * radius
        marks.append(
            f'<circle cx="{WIDTH / 2:.0f}" cy="{BAR_HEIGHT / 2:.0f}" r="{radius / 2:.2f}" fill="none" '
            f'stroke="{escape(colour)}" stroke-width="{radius:.2f}" '
            f'stroke-dasharray="{around * part / whole:.3f} {around:.3f}" '
            f'transform="rotate({turned * 360 - 90:.3f} {WIDTH / 2:.0f} {BAR_HEIGHT / 2:.0f})">'
            f"<title>{escape(f'{name}: {part / whole:.1%}')}</title></circle>"
        )
        turned += part / whole
    return _key([f"{name}: {part / whole:.1%}" for name, part in parts.items()], of_parts) + _svg(
        BAR_HEIGHT, label, marks
    )


def curves(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    unit: str,
    shown: Callable[[float], str] = lambda value: f"{value:,.0f}",
    ticks: Mapping[float, str],
) -> str:
    """A line through (x, y) points for each name, x growing. ticks: x → what stands below the axis there; they decide
    where the axis begins and ends."""
    if not any(lines.values()):
        return "<p>nothing to show</p>"
    first, last = min(ticks), max(ticks)
    highest = max(y for points in lines.values() for _, y in points) or 1
    scale_x = (WIDTH - LEFT - RIGHT) / ((last - first) or 1)
    scale_y = (BAR_HEIGHT - 15) / highest
    marks = []
    for value in (0, highest / 2, highest):
        at = BAR_HEIGHT - value * scale_y
        marks.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        marks.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{escape(shown(value))}</text>')
    for tick, label in ticks.items():
        x = LEFT + (tick - first) * scale_x
        anchor = "end" if tick == last else "middle"
        marks.append(f'<text x="{x:.1f}" y="{BAR_HEIGHT + 16}" text-anchor="{anchor}">{escape(label)}</text>')
    colours = _colours(lines)
    for colour, (name, points) in zip(colours, lines.items(), strict=True):
        drawn = " ".join(f"{LEFT + (x - first) * scale_x:.1f},{BAR_HEIGHT - y * scale_y:.1f}" for x, y in points)
        title = escape(f"{name}: at most {shown(max((y for _, y in points), default=0))} {unit}".rstrip())
        marks.append(
            f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2">'
            f"<title>{title}</title></polyline>"
        )
    return _key(lines, colours) + _svg(BAR_HEIGHT + 24, unit, marks)


def grid(
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Mapping[tuple[str, str], tuple[str, str]],
    colours: Mapping[str, str],
) -> str:
    """A table whose cells, (row, column) → (text, kind), have the colour of their kind on the side."""
    if not rows:
        return "<p>nothing to show</p>"

    def cell(row: str, column: str) -> str:
        if (row, column) not in cells:
            return "<td></td>"
        text, kind = cells[row, column]
        colour = escape(colours.get(kind, REST_COLOUR))
        return f'<td style="border-left:.6em solid {colour}">{escape(text)}</td>'

    head = "<th></th>" + "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr><th>{escape(row)}</th>{''.join(cell(row, column) for column in columns)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def timeline(
    rows: Mapping[str, Sequence[Span]],
    *,
    colours: Mapping[str, str] | None = None,
    shown: Callable[[float], str] = lambda value: f"{value:g}",
    unit: str = "time",
    axis: tuple[float, float] | None = None,
) -> str:
    """A row of spans for each name, on one axis; later spans are drawn over earlier ones. `colours`: kind → colour, in
    the order of the key; else they are taken in turn. `axis`: where it begins and ends; else with the spans. ValueError
    for more spans than a browser draws well."""
    spans = [span for row in rows.values() for span in row]
    if not spans:
        return "<p>nothing to show</p>"
    if len(spans) > MOST_MARKS:
        raise ValueError(f"{len(spans)} spans are more than the {MOST_MARKS} that one picture can show")
    given = dict(colours or {})
    found = dict.fromkeys(span.kind for span in spans)
    kinds = [*(kind for kind in given if kind in found), *(kind for kind in found if kind not in given)]
    of_kind = {kind: given.get(kind, colour) for kind, colour in zip(kinds, _colours(kinds), strict=True)}
    first, last = axis or (min(span.start for span in spans), max(span.end for span in spans))
    scale = (WIDTH - LEFT - RIGHT) / ((last - first) or 1)
    bottom = len(rows) * ROW_HEIGHT
    marks = []
    for part in range(5):
        moment = first + (last - first) * part / 4
        x = LEFT + (moment - first) * scale
        anchor = "start" if part == 0 else "end" if part == 4 else "middle"
        marks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{bottom}"/>')
        marks.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="{anchor}">{escape(shown(moment))}</text>')
    for number, (name, row) in enumerate(rows.items()):
        y = number * ROW_HEIGHT
        marks.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{_short(name)}</text>')
        for span in row:
            title = escape(span.title or f"{name}: {span.kind}, {shown(span.start)} to {shown(span.end)}")
            marks.append(
                f'<rect x="{LEFT + (span.start - first) * scale:.2f}" y="{y + 3}" '
                f'width="{max((span.end - span.start) * scale, 1):.2f}" height="{ROW_HEIGHT - 6}" '
                f'fill="{escape(of_kind[span.kind])}"><title>{title}</title></rect>'
            )
    return _key(of_kind, list(of_kind.values())) + _svg(bottom + 24, unit, marks)


def broker_colour(broker_id: int) -> str:
    """A broker has the same one on all pages."""
    return _OF_BROKERS[(broker_id - 1) % len(_OF_BROKERS)]


def size_text(size_bytes: float) -> str:
    """1536 → `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def duration_text(duration_ms: float) -> str:
    """850 → `850 ms`, 6100 → `6.1 s`, 7_500_000 → `2 h 5 min`."""
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.1f} s"
    seconds = round(duration_ms / 1000)
    units = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    place = next(place for place, (_, length_s) in enumerate(units) if seconds >= length_s)
    (unit, length_s), (smaller, smaller_s) = units[place : place + 2]
    rest = seconds % length_s // smaller_s
    return f"{seconds // length_s} {unit}" + (f" {rest} {smaller}" if rest else "")


def time_text(time_ms: float) -> str:
    """Milliseconds since 1970 as `2026-11-24 12:05:10.250`, in UTC."""
    return (datetime(1970, 1, 1) + timedelta(milliseconds=time_ms)).isoformat(" ", "milliseconds")


def _short(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return escape(name)
    return f"{escape('…' + name[1 - LONGEST_NAME :])}<title>{escape(name)}</title>"


def _largest(series: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """At most as many series as there are colours, in the given order, and the sum of the others."""
    kept = set(sorted(series, key=lambda name: sum(series[name]), reverse=True)[: len(COLOURS)])
    result: dict[str, Sequence[float]] = {name: values for name, values in series.items() if name in kept}
    rest = [values for name, values in series.items() if name not in kept]
    if rest:
        result[f"{len(rest)} others"] = [sum(column) for column in zip(*rest, strict=True)]
    return result


def _colours(names: Iterable[str]) -> list[str]:
    return [COLOURS[place] if place < len(COLOURS) else REST_COLOUR for place, _ in enumerate(names)]


def _key(names: Iterable[str], colours: Sequence[str] | None = None) -> str:
    listed = list(names)
    pairs = zip(listed, colours or _colours(listed), strict=True)
    return (
        '<p class="key">'
        + "".join(f'<span><i style="background:{escape(colour)}"></i>{escape(name)}</span>' for name, colour in pairs)
        + "</p>"
    )


def _svg(height: int, label: str, marks: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">{"".join(marks)}</svg>'
