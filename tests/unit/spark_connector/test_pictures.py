"""Pages: well-formed, self-contained, every text escaped, every value drawn."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from strandline.spark_connector.pipelines.pictures import (
    COLOURS,
    LEFT,
    LONGEST_NAME,
    MOST_MARKS,
    Span,
    bars,
    broker_colour,
    curves,
    duration_text,
    figures,
    grid,
    page,
    section,
    size_text,
    table,
    time_text,
    timeline,
)

NASTY = '<script>&"'


def titles(piece: str) -> list[str]:
    """The explanations of the marks; parsing fails where the piece is not well-formed."""
    root = ElementTree.fromstring(f"<div>{piece}</div>")
    return [each.text for each in root.iter("title")]


def test_a_page_escapes_every_text_and_loads_nothing() -> None:
    pieces = [
        figures([(NASTY, NASTY)]),
        section(NASTY, table([NASTY, "n"], [[NASTY, "1"]], ["n"]), note=NASTY),
        bars([NASTY], {NASTY: [1]}, unit=NASTY),
        timeline({NASTY: [Span(0, 1, NASTY, NASTY)]}, unit=NASTY),
        grid([NASTY], [NASTY], {(NASTY, NASTY): (NASTY, NASTY)}, {NASTY: NASTY}),
    ]
    whole = page(NASTY, pieces, subtitle=NASTY)
    for piece in pieces:
        ElementTree.fromstring(f"<div>{piece}</div>")
    assert "<script" not in whole and not re.search(r"(src|href|url)\s*[=(]", whole)


def test_bars_show_every_value_that_is_there() -> None:
    drawn = bars(["mon", "tue"], {"0": [3, 0], "1": [1, 4]}, unit="records")
    assert titles(drawn) == ["mon, 0: 3 records", "mon, 1: 1 records", "tue, 1: 4 records"]
    heights = [float(height) for height in re.findall(r'height="([\d.]+)" fill', drawn)]
    assert heights[0] == pytest.approx(3 * heights[1], abs=0.05)
    assert bars([], {}, unit="records") == "<p>nothing to show</p>"
    assert titles(bars(["mon"], {"0": [0]}, unit="records")) == []


def test_series_beyond_the_colours_are_drawn_together() -> None:
    series = {str(number): [number + 1] for number in range(len(COLOURS) + 2)}
    drawn = titles(bars(["mon"], series, unit="records"))
    assert len(drawn) == len(COLOURS) + 1
    assert drawn[-1] == "mon, 2 others: 3 records"


def test_a_series_may_have_a_colour_of_its_own_in_the_picture_and_in_the_key() -> None:
    drawn = bars(["mon"], {"a": [1], "b": [1]}, unit="records", colours={"b": "#123456"})
    assert drawn.count("#123456") == 2 and drawn.count(COLOURS[0]) == 2


def test_neighbouring_brokers_have_different_colours() -> None:
    assert len({broker_colour(broker_id) for broker_id in range(1, 9)}) == 8
    assert broker_colour(0) != broker_colour(1)


def test_the_longest_name_of_a_row_has_room() -> None:
    assert LEFT - 8 >= 7.5 * LONGEST_NAME
    assert ">__consumer_offsets-0</text>" in timeline({"__consumer_offsets-0": [Span(0, 1, "a")]})


def test_a_timeline_may_have_an_axis_that_is_longer_than_its_spans() -> None:
    drawn = timeline({"p-0": [Span(50, 100, "up")]}, axis=(0, 200))
    short = timeline({"p-0": [Span(50, 100, "up")]})
    assert [float(re.findall(r'width="([\d.]+)"', each)[0]) for each in (drawn, short)] == [195.0, 780.0]
    assert ">200</text>" in drawn


def test_the_key_of_a_timeline_has_the_order_that_was_asked_for() -> None:
    drawn = timeline(
        {"p": [Span(0, 1, "c"), Span(1, 2, "b"), Span(2, 3, "a")]}, colours={"a": "#1", "b": "#2", "z": "#3"}
    )
    assert re.findall(r'background:(\S+)"></i>(\w)', drawn)[:2] == [("#1", "a"), ("#2", "b")]
    assert drawn.index("</i>b") < drawn.index("</i>c") and "</i>z" not in drawn


def test_of_a_long_name_the_end_is_shown_and_the_whole_told() -> None:
    drawn = timeline({"a-very-long-name-of-a-topic-17": [Span(0, 1, "up", "told")]})
    assert titles(drawn) == ["a-very-long-name-of-a-topic-17", "told"] and ">…-name-of-a-topic-17<title>" in drawn


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (6_100, "6.1 s"),
        (59_960, "60.0 s"),
        (60_000, "1 min"),
        (65_000, "1 min 5 s"),
        (7_500_000, "2 h 5 min"),
        (86_400_000 * 3 + 3_600_000, "3 d 1 h"),
    ],
)
def test_durations_are_told_in_units_that_fit(duration_ms: float, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_times_are_told_in_utc_to_the_millisecond() -> None:
    assert time_text(1_700_006_399_950) == "2023-11-14 23:59:59.950"


def test_a_timeline_places_spans_on_one_axis() -> None:
    drawn = timeline(
        {"p-0": [Span(0, 50, "broker 1"), Span(50, 100, "none", "nobody leads")], "p-1": [Span(0, 100, "broker 1")]},
        colours={"none": "#f00"},
    )
    assert titles(drawn) == ["p-0: broker 1, 0 to 50", "nobody leads", "p-1: broker 1, 0 to 100"]
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height', drawn)]
    assert widths[0] == widths[1] == pytest.approx(widths[2] / 2, abs=0.01)
    assert drawn.count('fill="#f00"') == 1
    with pytest.raises(ValueError, match="more than"):
        timeline({"p": [Span(0, 1, "k")] * (MOST_MARKS + 1)})


def test_a_grid_has_a_coloured_cell_where_there_is_something() -> None:
    drawn = grid(["p", "q"], ["a", "b"], {("p", "a"): ("fine", "good"), ("q", "b"): ("gone", "odd")}, {"good": "#0f0"})
    cells = [(each.get("style"), each.text) for each in ElementTree.fromstring(drawn).iter("td")]
    assert cells == [
        ("border-left:.6em solid #0f0", "fine"),
        (None, None),
        (None, None),
        ("border-left:.6em solid #9498a0", "gone"),
    ]
    assert grid([], [], {}, {}) == "<p>nothing to show</p>"


def test_sizes_are_short() -> None:
    assert [size_text(size) for size in (0, 1023, 1536, 3 << 30, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 GiB",
        "5.0 TiB",
    ]


def test_curves_go_through_their_points_on_one_scale() -> None:
    drawn = curves({"a": [(0, 0), (10, 5)], "b": [(10, 10)]}, unit="ms", ticks={0: "0 s", 10: NASTY})
    ElementTree.fromstring(f"<div>{drawn}</div>")
    first, second = re.findall(r'points="([^"]*)"', drawn)
    assert first.split()[0] == f"{LEFT:.1f},220.0" and first.split()[1].split(",")[0] == second.split(",")[0]
    assert titles(drawn) == ["a: at most 5 ms", "b: at most 10 ms"]
    assert curves({"a": []}, unit="ms", ticks={0: ""}) == "<p>nothing to show</p>"
