"""Metrics as files: one each, whole lines, and nothing that a disk does can disturb the broker."""

from __future__ import annotations

import csv
import errno
import io
from collections.abc import Iterator

import pytest
import structlog
import trio
from prometheus_client.core import CounterMetricFamily, Metric
from structlog.testing import LogCapture
from trio.testing import MockClock

from strandline.broker.metrics.csv_reporter import REPORTER, CsvReporter, Lines
from strandline.broker.metrics.families import counter, gauges
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.disk import read_file
from strandline.runtime.environment import Environment
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.environment import InlineBlocking, InlineComputing, SeededRandom, VirtualWallClock
from strandline.testkit.network import MemoryNetwork

SET = "/metrics/csv"
FOLDER = f"{SET}/broker-1"
ON = {"kafka.metrics.reporters": REPORTER, "kafka.csv.metrics.reporter.enabled": "true"}


class Site:
    """A reporter of two families; the first grows with each report."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.disk, self.blocking, self.logs = MemoryDisk(), InlineBlocking(), LogCapture()
        environment = Environment(
            disk=self.disk,
            network=MemoryNetwork().node("n"),
            blocking=self.blocking,
            computing=InlineComputing(self.disk),
            wall_clock=VirtualWallClock(),
            random=SeededRandom(1, "n"),
        )
        config = load_broker_config(
            {"broker.id": "1", "zookeeper.connect": "m:1", "kafka.csv.metrics.dir": SET, **properties}
        )
        log = structlog.wrap_logger(structlog.PrintLogger(), processors=[self.logs])
        self.reports = 0
        self.reporter = CsvReporter(self.collect, config, environment, log)

    def collect(self) -> Iterator[Metric]:
        self.reports += 1
        yield counter("requests", "How many", self.reports)
        yield from gauges("lag", "How far", ("topic", "partition"), [(('a,"b"', "0"), 1.5), (("c", "1"), 7)])

    def events(self) -> list[str]:
        return [entry["event"] for entry in self.logs.entries]

    def rows(self, name: str) -> list[list[str]]:
        return list(csv.reader(read_file(self.disk, f"{FOLDER}/{name}.csv").decode().splitlines()))


async def test_each_metric_is_a_file_with_a_line_per_series_and_time(autojump_clock: MockClock) -> None:
    site = Site({**ON, "kafka.metrics.polling.interval.secs": "3"})
    with trio.move_on_after(7):
        await site.reporter.run()
    assert site.disk.listdir(FOLDER) == ["lag.topic.partition.csv", "requests_total.csv"]
    head, first, second = site.rows("requests_total")
    assert head == ["time", "value"] and (first[1], second[1]) == ("1", "2")
    assert int(second[0]) - int(first[0]) == 3
    assert [row[1:] for row in site.rows("lag.topic.partition")] == [
        ["topic", "partition", "value"],
        *[['a,"b"', "0", "1.5"], ["c", "1", "7"]] * 2,
    ]


def test_what_is_told_of_all_and_of_each_has_a_file_for_either() -> None:
    lines = Lines(5)
    lines.add(CounterMetricFamily("bytes", "", 9))
    each = CounterMetricFamily("bytes", "", labels=["topic"])
    each.add_metric(["orders"], 7)
    lines.add(each)
    assert lines.files() == {
        "bytes_total.csv": (b"time,value\n", b"5,9\n"),
        "bytes_total.topic.csv": (b"time,topic,value\n", b"5,orders,7\n"),
    }


async def test_the_files_go_on_after_a_restart(autojump_clock: MockClock) -> None:
    site = Site(ON)
    await site.reporter.report()
    other = Site(ON)
    other.reporter._environment = site.reporter._environment
    await other.reporter.report()
    assert [row[-1] for row in site.rows("requests_total")] == ["value", "1", "1"]


@pytest.mark.parametrize("properties", [{}, {"kafka.metrics.reporters": REPORTER}])
async def test_nothing_is_written_unless_it_is_on(autojump_clock: MockClock, properties: dict[str, str]) -> None:
    site = Site(properties)
    await site.reporter.run()
    assert site.reports == 0


async def test_a_full_disk_is_one_line_and_cuts_no_line_of_a_file(autojump_clock: MockClock) -> None:
    site = Site({**ON, "kafka.metrics.polling.interval.secs": "10"})
    await site.reporter.report()
    before = site.rows("lag.topic.partition")
    site.disk.shorten_next_write(f"{FOLDER}/lag.topic.partition.csv", 5)
    fault = site.disk.fail("pwritev", f"{FOLDER}/lag.topic.partition.csv", errno.ENOSPC, after=1)
    with trio.move_on_after(65):
        await site.reporter.run()
    assert site.rows("lag.topic.partition") == before
    [line] = site.logs.entries  # six reports have one cause
    assert line["folder"] == FOLDER and "room" in line["event"]
    assert fault.hits == 6, "each report tries again"
    fault.cancel()
    await site.reporter.report()
    assert len(site.rows("lag.topic.partition")) == len(before) + 2
    assert site.events()[1:] == ["metrics are written again"]


async def test_a_file_that_cannot_be_written_is_named_and_keeps_no_other_from_growing(
    autojump_clock: MockClock,
) -> None:
    site = Site(ON)
    await site.reporter.report()
    faults = []
    for name, number in (("requests_total", errno.EIO), ("lag.topic.partition", errno.ENOSPC)):
        faults.append(site.disk.fail("pwritev", f"{FOLDER}/{name}.csv", number))
        for _ in range(3):
            await site.reporter.report()
    assert len(site.rows("requests_total")) == 2
    assert len(site.rows("lag.topic.partition")) == 1 + 2 * 4
    for fault in faults[::-1]:
        fault.cancel()
        await site.reporter.report()
    one, full, mended, end = site.logs.entries
    assert (one["first_file"], one["files"]) == (f"{FOLDER}/requests_total.csv", 1)
    assert "room" in full["event"] and "some metrics" in mended["event"]
    assert "again" in end["event"]
    assert len(site.rows("requests_total")) == 3


def test_a_name_with_control_characters_is_a_row_in_a_line_and_like_no_other() -> None:
    names = ["cr\rrow", "nl\nrow", "nul\0", "line\u2028", "a\\nb", "a\nb", 'q"\r\n,', "é"]
    lines = Lines(5)
    for family in gauges("lag", "How far", ("group",), [((name,), 1) for name in names]):
        lines.add(family)
    head, text = lines.files()["lag.group.csv"]
    rows = list(csv.reader(io.StringIO((head + text).decode(), newline="")))
    assert rows[0] == ["time", "group", "value"] and {len(row) for row in rows} == {3}
    assert len((head + text).decode().splitlines()) == len(rows) == 1 + len({row[1] for row in rows[1:]})
    assert [row[1] for row in rows[1:4]] == ["cr\\rrow", "nl\\nrow", "nul\\x00"]
