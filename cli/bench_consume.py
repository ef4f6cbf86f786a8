"""`strandline bench consume`: how fast records are read from the beginning of a topic.

The latencies are those of calls: from asking for what is there until it is there, decoded as far as was asked for. A
topic of its own is filled first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from strandline.cli.bench_load import Schedule, load
from strandline.cli.bench_measure import Result
from strandline.cli.bench_produce import Sending
from strandline.cli.bench_run import Report, RunOptions, Told, finish, run_options, told_settings, topic_of
from strandline.cli.bench_text import (
    CONSUMER_HEADER,
    CONSUMER_INTERVAL_HEADER,
    consumer_interval,
    consumer_total,
    failure_line,
)
from strandline.cli.consume_settings import refuse_groups
from strandline.cli.options import client_settings
from strandline.cli.session import Session, bootstrap_of, session_of
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Consumer

FILLED_RECORDS = 1_000_000
"""Of a topic of its own, unless told otherwise."""
FILLED_AT_ONCE = 1_000
POLL_MS = 500
POLL_RECORDS = 5_000
QUIET_S = 10.0
"""Nothing came for so long: then it is over, as in Kafka's tool, and it is a failure where there was more to read."""


@click.command(
    epilog="Examples: strandline bench consume --records 1000000; strandline bench consume -t clicks --seconds 30; "
    "strandline bench consume -t clicks --decode records --output json"
)
@run_options
@click.option(
    "--decode",
    type=click.Choice(["columns", "records", "none"]),
    default="columns",
    show_default=True,
    help="columns: numpy arrays, of poll_columns(); records: an object each, of poll(); none: batches as bytes.",
)
@click.option("--show-detailed-stats", is_flag=True, help="A line for each interval instead of one at the end.")
@click.option("--hide-header", is_flag=True, help="Without the names of the columns.")
@click.pass_context
def consume(ctx: click.Context, /, **given: Any) -> None:
    """Measure how fast a topic is read, from its beginning to what is its end now.

    The lines are those of kafka-consumer-perf-test. Without --topic it reads what it has written before, a million
    records unless --records says otherwise. With --decode records it reads exactly so many; columns and batches come as
    they were fetched, so that the last fetch may have more."""
    options = RunOptions.taken(given)
    session = session_of(ctx)
    if options.topic is None and options.records is None:
        options = options._replace(records=FILLED_RECORDS)
    wanted = client_settings(options.settings)
    refuse_groups(wanted)
    with topic_of(ctx, options) as topic:
        if options.topic is None:
            _fill(session, options, topic)
        reading = Reading(session, options, given, session.now_ms())
        if options.output == "text" and not given["hide_header"]:
            click.echo(CONSUMER_INTERVAL_HEADER if given["show_detailed_stats"] else CONSUMER_HEADER)
        limits = {"max_poll_records": POLL_RECORDS, **wanted}
        with session.consumer(bootstrap_of(session, options.bootstrap), **limits) as consumer:
            result, interrupted = reading.run(consumer, topic, int(str(limits["max_poll_records"])))
    line = "" if given["show_detailed_stats"] else consumer_total(result.total, reading.began_ms, reading.preparing_s)
    settings = told_settings(options, topic, is_sending=options.topic is None, decode=given["decode"])
    told = Told("bench consume", "calls", line, settings, {"unread": [each._asdict() for each in reading.unread]})
    finish(ctx, options, result, told, is_interrupted=interrupted)
    if reading.unread:
        places = ", ".join(f"{each.topic}-{each.partition} at {each.position} of {each.end}" for each in reading.unread)
        raise click.ClickException(
            f"nothing came for {QUIET_S:.0f} s, so not all is read: {places}; see 'strandline topics describe'"
        )


def _fill(session: Session, options: RunOptions, topic: str) -> None:
    """Write what is to be read. ClickException where a record could not be written."""
    quiet = options._replace(seconds=None, output="json")
    report = Report(session, quiet, lambda interval, measurement: None)
    producer = session.producer(bootstrap_of(session, options.bootstrap))
    schedule = Schedule(options.records, None, None, FILLED_AT_ONCE)
    with report.shown():
        interrupted = Sending(producer, topic, load(options.size, 0), schedule, session, report).run()
    if interrupted:
        raise KeyboardInterrupt
    result = report.measurement.end(report.now_s())
    if result.failures:
        raise click.ClickException(f"the topic could not be filled: {failure_line(result)}")


class Unread(NamedTuple):
    """A partition that was read up to `position` only, the offset of the next record; `end` is behind the last."""

    topic: str
    partition: int
    position: int
    end: int


class Reading:
    """One consumer that reads all partitions."""

    def __init__(self, session: Session, options: RunOptions, given: dict[str, Any], began_ms: int) -> None:
        self.preparing_s = 0.0
        """Until the first fetch."""
        self.unread: list[Unread] = []
        """Where nothing came any more."""
        self.began_ms = began_ms
        self._options = options
        self._is_detailed = given["show_detailed_stats"]
        self._fetch = FETCHES[given["decode"]]
        self._report = Report(session, options, lambda interval, measurement: self._line(interval, measurement.total))

    def run(self, consumer: Consumer, topic: str, most: int) -> tuple[Result, bool]:
        """The result, and whether somebody interrupted it. most: records of a poll."""
        report, measurement = self._report, self._report.measurement
        ends = self._begin(consumer, topic)
        self.preparing_s = report.now_s()
        report.begin_anew()
        interrupted = False
        with report.shown():
            try:
                self._read(consumer, ends, most)
            except KeyboardInterrupt:
                interrupted = True
        before = len(measurement.intervals)
        result = measurement.end(report.now_s())
        if self._is_detailed and self._options.output == "text":
            for interval in result.intervals[before:]:
                click.echo(self._line(interval, result.total))
        return result, interrupted

    def _begin(self, consumer: Consumer, topic: str) -> dict[TopicPartition, int]:
        """Partition → where it ends now, of those that have records."""
        partitions = [
            TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic, timeout_ms=10_000)
        ]
        beginnings, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, beginnings[partition])
        return {partition: ends[partition] for partition in partitions if ends[partition] > beginnings[partition]}

    def _read(self, consumer: Consumer, ends: dict[TopicPartition, int], most: int) -> None:
        """Until all is read, enough, or the time is over."""
        report, measurement, options = self._report, self._report.measurement, self._options
        asked_s = heard_s = 0.0
        while ends:
            left = most if options.records is None else options.records - measurement.total.records
            records, size_bytes, positions = self._fetch(consumer, min(most, left))
            now_s = report.now_s()
            if records:
                heard_s = now_s
                measurement.note(records, size_bytes)
                measurement.latency(round((now_s - asked_s) * 1e6))
            report.look(now_s)
            if options.records is not None and measurement.total.records >= options.records:
                return
            if options.seconds is not None and now_s >= options.seconds:
                return
            if not records:  # a position moves without records, too: over a gap that compaction has left
                positions = {partition: consumer.position(partition) for partition in ends}
            for partition, position in positions.items():
                if position >= ends.get(partition, 0):
                    ends.pop(partition, None)
            if now_s - heard_s > QUIET_S:
                self.unread = [Unread(*each, positions[each], end) for each, end in ends.items()]
                return
            asked_s = now_s

    def _line(self, interval: Any, so_far: Any) -> str | None:
        if not self._is_detailed:
            return None
        return consumer_interval(interval, so_far, self.began_ms, self.preparing_s)


Fetched = tuple[int, int, dict[TopicPartition, int]]
"""Records, bytes, and where each partition goes on."""


def _records(consumer: Consumer, most: int) -> Fetched:
    polled = consumer.poll(max_records=most, timeout_ms=POLL_MS)
    count = size_bytes = 0
    for records in polled.values():
        count += len(records)
        size_bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)
    return count, size_bytes, {partition: records[-1].offset + 1 for partition, records in polled.items()}


def _columns(consumer: Consumer, most: int) -> Fetched:
    polled = consumer.poll_columns(timeout_ms=POLL_MS)
    strings = [each for columns in polled for each in (columns.keys, columns.values)]
    size_bytes = sum(int((each.ends - each.starts).sum()) for each in strings)
    positions = {TopicPartition(each.topic, each.partition): int(each.offsets[-1]) + 1 for each in polled}
    return sum(each.records_count for each in polled), size_bytes, positions


def _batches(consumer: Consumer, most: int) -> Fetched:
    """Records by the headers of their batches; bytes as they are in the log."""
    from strandline.protocol.records import scan

    fetched = consumer.fetch_batches(timeout_ms=POLL_MS)
    count = sum(header.records_count for each in fetched for _, header in scan(each.records))
    positions = {TopicPartition(each.topic, each.partition): each.next_offset for each in fetched}
    return count, sum(len(each.records) for each in fetched), positions


FETCHES: dict[str, Callable[[Consumer, int], Fetched]] = {"columns": _columns, "records": _records, "none": _batches}
"""Each way of --decode, with at most how many records at once; columns and batches come as they were fetched, whole."""
