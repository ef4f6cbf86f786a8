"""What tasks make of lines, and what the page shows of it; Spark only carries the batches, so a test can."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from strandline.protocol.history.figures import Range, in_range
from strandline.protocol.history.lines import OF_PARTITIONS, Event
from strandline.protocol.history.lives import NEVER_MS, Run, lives
from strandline.protocol.history.summary import (
    Absence,
    BrokerSummary,
    Controller,
    HistorySummary,
    PartitionOutage,
    PartitionSummary,
    Sources,
    Totals,
    summarised,
)
from strandline.protocol.history.timeline import histories
from strandline.protocol.history.wanted import Wanted
from strandline.spark_connector.errors import InvalidOption, NoChangeLogs
from strandline.spark_connector.pipelines.history import HistoryOptions, span_of, told_histories
from strandline.spark_connector.pipelines.history_page import history_page
from strandline.spark_connector.pipelines.history_rows import (
    EVENTS,
    HISTORIES,
    RUN,
    UNREADABLE,
    event_of,
    read_lines,
    tell,
)
from strandline.spark_connector.pipelines.pictures import broker_colour
from strandline.testkit.disk import MemoryDisk

NASTY = '<script>&"'
MINUTE_MS = 60_000
ALL, WHOLE = Wanted(), Range(last_ms=MINUTE_MS)


def line(second: int, event: str, broker_id: int = 1, **fields: Any) -> str:
    moment = f"1970-01-01T00:{second // 60:02}:{second % 60:02}.000Z"
    return json.dumps({"broker_id": broker_id, **fields, "event": event, "timestamp": moment})


def state(partition: int, leader: int, epoch: int, isr: list[int], topic: str = "t") -> dict[str, Any]:
    known = {"topic": topic, "topic_id": f"id of {topic}", "partition": partition, "replicas": [1, 2]}
    return {**known, "leader": leader, "leader_epoch": epoch, "zk_version": epoch, "isr": isr, "min_isr": 2}


LINES = [
    line(0, "broker registered", 1, broker_epoch=5),
    line(0, "broker registered", 2, broker_epoch=6),
    *(line(10, "partition state changed", **state(number, 1, 0, [1, 2])) for number in range(3)),
    *(line(10, "became leader", **state(number, 1, 0, [1, 2])) for number in range(3)),
    line(30, "contact lost", 2, leader=1),
    line(36, "broker failed", 2, broker=1, broker_epoch=5, session_timeout_ms=6000),
    *(line(36, "partition state changed", 2, **state(number, 2, 1, [2])) for number in range(2)),
    line(37, "became leaders", 2, topic_ids={"t": "id of t"}, leading={"t": ["0 1", "1 1"]}),
    line(50, "broker alive", 2),
]


FILE = "/logs/a b.log"


def rows_of(texts: Iterable[str | bytes], wanted: Wanted = ALL, size: int = 5) -> list[dict[str, Any]]:
    data = [text.encode() if isinstance(text, str) else text for text in texts]
    parts = [data[first : first + size] for first in range(0, len(data), size)]
    found = list(read_lines(FILE, parts, wanted))
    assert all(batch.schema == EVENTS for batch in found)
    return [row for batch in found for row in batch.to_pylist()]


def events_of(rows: Iterable[dict[str, Any]]) -> list[Event]:
    return [event_of(row.values()) for row in rows if row["kind"] not in (RUN, UNREADABLE)]


def told(rows: list[dict[str, Any]], span: Range = WHOLE) -> list[dict[str, Any]]:
    """As the pipeline has it told: sorted by partition, in small batches."""
    found = lives(
        [event for event in events_of(rows) if event.kind not in OF_PARTITIONS],
        [Run(row["broker_id"], row["time_ms"], row["last_ms"], row["lines"]) for row in rows if row["kind"] == RUN],
    )
    own = [row for row in rows if row["kind"] in OF_PARTITIONS]
    own.sort(key=lambda row: (row["topic"], row["partition"]))
    sorted_batches = [pa.RecordBatch.from_pylist(own[at : at + 2], EVENTS) for at in range(0, len(own), 2)]
    result = list(tell(sorted_batches, found, span))
    assert all(batch.schema == HISTORIES for batch in result)
    return [row for batch in result for row in batch.to_pylist()]


def test_lines_become_the_history_of_each_partition() -> None:
    zero, one, two = told(rows_of(LINES))
    assert [(row["topic"], row["partition"], row["topic_id"]) for row in (zero, one, two)] == [
        ("t", number, "id of t") for number in range(3)
    ]
    assert [(each["from_ms"], each["to_ms"], each["leader"]) for each in zero["intervals"]] == [
        (10_000, 36_000, 1),
        (36_000, None, 2),
    ]
    outage = {"from_ms": 30_000, "to_ms": 37_000, "why": "broker 1 was gone", "leader_before": 1, "leader_after": 2}
    assert zero["outages"] == [{**outage, "length_ms": 7_000}] == one["outages"]
    assert two["outages"] == [{**outage, "to_ms": None, "leader_after": -1, "length_ms": 30_000}]
    assert (zero["elections"], zero["unavailable_ms"], zero["under_replicated_ms"]) == (1, 7_000, 24_000)
    assert [(each["broker_id"], each["led_ms"]) for each in zero["brokers"]] == [(1, 20_000), (2, 23_000)]


def test_neither_the_order_of_lines_nor_their_repetition_nor_the_size_of_batches_changes_it() -> None:
    expected = told(rows_of(LINES))
    own = {1: [text for text in LINES if '"broker_id": 1' in text], 2: [text for text in LINES if '"id": 2' in text]}
    own[2] = [text for text in LINES if text not in own[1]]
    for seed in range(5):
        files = [own[1], own[2], own[2], own[1]]
        random.Random(seed).shuffle(files)
        rows = [row for file in files for row in rows_of(file, size=1 + seed)]
        random.Random(seed).shuffle(rows)
        assert told(rows) == expected


def test_lines_that_are_cut_or_garbled_are_counted_and_spoil_nothing() -> None:
    spoilt: list[str | bytes] = [text for pair in zip(LINES, ["", "{", "\0" * 9] * 9, strict=False) for text in pair]
    spoilt[1] = b"\xff\xfe{"
    rows = rows_of(spoilt)
    unreadable = [row for row in rows if row["kind"] == UNREADABLE]
    assert sum(row["lines"] for row in unreadable) == len(LINES)
    assert {row["file"] for row in unreadable} == {FILE}
    assert told(rows) == told(rows_of(LINES))


def test_only_the_partitions_that_are_wanted_are_told() -> None:
    other = [line(11, "partition state changed", **state(0, 1, 0, [1], topic="orders"))]

    def names(wanted: Wanted) -> list[tuple[str, int]]:
        return [(row["topic"], row["partition"]) for row in told(rows_of([*LINES, *other], wanted))]

    assert names(Wanted("or.*")) == [("orders", 0)]
    assert names(Wanted("t", frozenset({0, 2}))) == [("t", 0), ("t", 2)]
    assert names(Wanted("o")) == []


def test_a_range_shows_how_things_stood_when_it_began() -> None:
    (zero, *_) = told(rows_of(LINES), Range(20_000, 33_000, MINUTE_MS))
    assert [(each["from_ms"], each["to_ms"], each["leader"]) for each in zero["intervals"]] == [(20_000, 33_000, 1)]
    assert (zero["unavailable_ms"], zero["elections"]) == (3_000, 0)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (HistoryOptions(()), NoChangeLogs, "log.folder"),
        (HistoryOptions(("a/b",)), InvalidOption, "absolute path"),
        (HistoryOptions(("/a",), topics="("), InvalidOption, "is no pattern"),
        (HistoryOptions(("/a",), since_ms=5, until_ms=5), InvalidOption, "ends before it begins"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_before_spark_does_anything(
    options: HistoryOptions, error: type[Exception], text: str
) -> None:
    spark: Any = None
    with pytest.raises(error, match=text), told_histories(spark, options, MemoryDisk()):
        pytest.fail("it was asked for")


RUNS = [Run(1, 5_000, 8_000, 3), Run(2, 6_000, 9_000, 3)]


def test_a_range_begins_with_the_first_line_and_goes_on_to_the_last() -> None:
    assert span_of(HistoryOptions(()), RUNS) == Range(5_000, NEVER_MS, 9_000)
    assert span_of(HistoryOptions((), since_ms=0, until_ms=5_001), RUNS) == Range(0, 5_001, 9_000)
    assert span_of(HistoryOptions((), since_ms=9_000), RUNS) == Range(9_000, NEVER_MS, 9_000)


@pytest.mark.parametrize(("since_ms", "until_ms"), [(9_001, None), (None, 5_000), (0, 1)])
def test_a_range_of_which_no_log_tells_is_refused(since_ms: int | None, until_ms: int | None) -> None:
    with pytest.raises(InvalidOption, match=r"tell of 1970-01-01 00:00:05.000 to 1970-01-01 00:00:09.000 UTC"):
        span_of(HistoryOptions((), since_ms, until_ms), RUNS)


# --- the page --------------------------------------------------------------------------------------------------


def summary_of(rows: list[dict[str, Any]], topic: str = "t", copies: int = 1) -> HistorySummary:
    partitions = [PartitionSummary.of({**row, "topic": topic, "intervals_count": 2}) for row in rows] * copies
    outages = [
        PartitionOutage(topic, each.topic_id, each.partition, **{k: getattr(o, k) for k in o.__slots__})
        for each in partitions
        for o in each.outages
    ]
    totals = Totals(len(partitions) + 7, 2, 2, 2, 0, 3, 44_000, 30_000, 48_000, 48_000, 3, 0, 0, 0)
    return HistorySummary(
        since_ms=0,
        until_ms=MINUTE_MS,
        files=2,
        lines=12,
        unreadable_lines=0,
        lines_too_long=0,
        cut_files=("/logs/x.gz",),
        totals=totals,
        controllers=(Controller(2, 1, 0, 500, 40_000, NASTY), Controller(1, 2, 41_000, None, None, "")),
        brokers=(
            BrokerSummary(1, 7, 0, 30_000, 40_000, 0, 2, 0, 30_000, (Absence(30_000, None, False),)),
            BrokerSummary(2, 0, None, None, 23_000, 2, 0, 0, 0, (Absence(1_000, 2_000, True),)),
        ),
        outages=tuple(outages),
        partitions=tuple(partitions),
    )


def body_of(page: str) -> ElementTree.Element:
    """Parsing fails where the page is not well-formed."""
    return ElementTree.fromstring("<body>" + page.split("<body>", 1)[1].split("</body>")[0] + "</body>")


def test_the_page_explains_every_stretch_of_every_picture() -> None:
    page = history_page(summary_of(told(rows_of(LINES))))
    titles = [each.text or "" for each in body_of(page).iter("title")]
    assert "t-0: broker 2, epoch 1, since 1970-01-01 00:00:36.000" in titles
    assert (
        "t-0: nobody led for 7.0 s: broker 1 was gone, 1970-01-01 00:00:30.000 to 1970-01-01 00:00:37.000 (7.0 s)"
        in titles
    )
    assert "t-1: 1 of 2 in sync (2), since 1970-01-01 00:00:36.000" in titles
    assert "controller epoch 2: broker 1, since 1970-01-01 00:00:41.000" in titles
    assert "broker 1 gone: since 1970-01-01 00:00:30.000" in titles
    assert any(title.startswith("broker 2 stopped: ") for title in titles)
    assert "12 lines of 2 files (1 cut)" in page
    assert "7 more are not shown" in page and "no logs" in page


def test_the_page_is_well_formed_whatever_names_there_are_and_however_many_partitions() -> None:
    page = history_page(summary_of(told(rows_of(LINES)), topic=NASTY, copies=200))
    body_of(page)
    assert "<script" not in page and not re.search(r"(src|href|url)\s*[=(]", page)
    assert len(page) < 3_000_000


def test_internal_topics_come_last_and_only_outages_are_called_so() -> None:
    summary = summary_of(told(rows_of(LINES)))
    internal = [replace(each, topic="__consumer_offsets") for each in summary.partitions]
    page = history_page(replace(summary, partitions=(*internal, *summary.partitions)))
    led = page.split("Who led")[1]
    assert led.index(">t-0<") < led.index(">__consumer_offsets-0<")
    assert "with the longest outages, internal topics last" in led
    calm = history_page(replace(summary, totals=replace(summary.totals, outages_count=0)))
    assert "longest outages" not in calm and "first, internal topics last; 7 more are not shown" in calm


def test_one_broker_has_one_colour_in_all_pictures() -> None:
    page = history_page(summary_of(told(rows_of(LINES))))
    for broker_id in (1, 2):
        colours = re.findall(rf'background:(#\w+)"></i>broker {broker_id}<', page)
        assert len(colours) == 2 and set(colours) == {broker_colour(broker_id)}


def test_who_adds_up_without_spark_gets_the_same() -> None:
    rows = rows_of(LINES)
    events = events_of(rows)
    runs = [Run(row["broker_id"], row["time_ms"], row["last_ms"], row["lines"]) for row in rows if row["kind"] == RUN]
    found = lives([event for event in events if event.kind not in OF_PARTITIONS], runs)
    by_partition: dict[int, list[Event]] = {}
    for event in events:
        if event.kind in OF_PARTITIONS:
            by_partition.setdefault(event.partition, []).append(event)
    cut = [in_range(each, WHOLE) for own in by_partition.values() for each in histories(own, found)]
    summary = summarised([each for each in cut if each], found, runs, WHOLE, Sources(1), shown=2)
    zero, _, two = (
        PartitionSummary.of({**row, "intervals_count": len(row["intervals"])}) for row in told(rows_of(LINES))
    )
    assert summary.partitions == (two, zero), "the worst first"
    assert (summary.totals.partitions, summary.totals.unavailable_ms) == (3, 44_000)
    assert (summary.totals.longest_outage_ms, summary.totals.elections) == (30_000, 2)
    assert [(each.partition, each.length_ms) for each in summary.outages] == [(2, 30_000), (0, 7_000)]
    assert [(each.broker_id, each.led_ms, each.elections, each.away_ms) for each in summary.brokers] == [
        (1, 60_000, 0, 30_000),
        (2, 46_000, 2, 0),
    ]
    assert "1 more are not shown" in history_page(summary)
