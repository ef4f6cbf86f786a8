"""`strandline bench e2e`: how long a record takes from who sends it to who reads it.

Producer and consumer are in this process, so one clock measures both ends. One record is under way at a time, or, with
`--rate`, as many as are due; then a latency counts from when the record should have been sent (`bench_load`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from strandline.cli.bench_load import HEAD, Schedule, value_of
from strandline.cli.bench_run import (
    DEFAULT_SECONDS,
    GIVE_UP_S,
    Report,
    RunOptions,
    Told,
    finish,
    run_options,
    told_settings,
    topic_of,
)
from strandline.cli.bench_text import round_trips_interval, round_trips_total
from strandline.cli.consume_settings import refuse_groups
from strandline.cli.options import MOST_PER_SECOND, BoundedFloat, acks_option, client_settings, setting_name
from strandline.cli.session import bootstrap_of, session_of
from strandline.client.settings import ConsumerSettings, ProducerSettings
from strandline.protocol.types import TopicPartition
from strandline.runtime.histogram import Histogram

if TYPE_CHECKING:
    from strandline import Consumer, Producer

POLL_MS = 100
LOST_AFTER_S = 10.0
"""A record that was not read by then is counted as failed, and not waited for."""


class NotRead(Exception):
    """A record was acknowledged, or its outcome is not known, and nobody read it for `LOST_AFTER_S`."""


@click.command(
    epilog="Examples: strandline bench e2e --records 10000; "
    "strandline bench e2e --rate 1000 --seconds 30 --page e2e.html"
)
@run_options
@click.option(
    "--rate", type=BoundedFloat(0, MOST_PER_SECOND, min_open=True), help="Records per second; without it one at a time."
)
@acks_option
@click.pass_context
def round_trips(ctx: click.Context, /, **given: Any) -> None:
    """Measure how long a record takes from sending to reading.

    The lines are those of Kafka's EndToEndLatency, with decimals. Without --records and --seconds it takes ten
    seconds."""
    options = RunOptions.taken(given)
    session = session_of(ctx)
    if options.size < HEAD.size:
        raise click.UsageError(f"--size {options.size}: a record says which it is, which takes {HEAD.size} bytes", ctx)
    if options.records is None and options.seconds is None:
        options = options._replace(seconds=DEFAULT_SECONDS)
    schedule = Schedule(options.records, options.seconds, given["rate"], 1)
    settings = client_settings(options.settings)
    refuse_groups(settings)
    report = Report(session, options, lambda interval, so_far: round_trips_interval(interval, so_far.total.records))
    with topic_of(ctx, options) as topic:
        servers = bootstrap_of(session, options.bootstrap)
        sending = {"acks": given["acks"], "linger_ms": 0, **_of(ProducerSettings, settings)}
        with session.consumer(servers, **_of(ConsumerSettings, settings)) as consumer:
            producer = session.producer(servers, **sending)
            trips = RoundTrips(producer, consumer, topic, schedule, report, options.size, session.run_id())
            with report.shown():
                interrupted = trips.run()
        result = report.measurement.end(report.now_s())
        said = told_settings(options, topic, is_sending=True, rate=given["rate"], acks=given["acks"])
        told = Told("bench e2e", "round trips", round_trips_total(result.total), said)
        finish(ctx, options, result, told, is_interrupted=interrupted)


def _of(kind: type[ProducerSettings] | type[ConsumerSettings], settings: dict[str, object]) -> dict[str, object]:
    """Those that such a client has; what neither has is given to both, which refuse it by name."""
    mine, others = (set(each.__dataclass_fields__) for each in _both(kind))
    return {key: value for key, value in settings.items() if (name := setting_name(key)) in mine or name not in others}


def _both(kind: type[ProducerSettings] | type[ConsumerSettings]) -> tuple[type[Any], type[Any]]:
    return kind, ConsumerSettings if kind is ProducerSettings else ProducerSettings


class _UnderWay(NamedTuple):
    """When a record was due, and what the producer says of it."""

    due_s: float
    future: Any


class RoundTrips:
    """Sends records and reads them again, in one thread."""

    def __init__(
        self,
        producer: Producer,
        consumer: Consumer,
        topic: str,
        schedule: Schedule,
        report: Report,
        size_bytes: int,
        run_id: int,
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._topic = topic
        self._schedule = schedule
        self._report = report
        self._run_id = run_id
        self._rest = value_of(0, size_bytes - HEAD.size)
        self._under_way: dict[int, _UnderWay] = {}
        """By number, the oldest first."""
        self._sent = 0
        self.acknowledgements = Histogram()
        """How long those took, of all that were."""

    def run(self) -> bool:
        """All of them; True where somebody interrupted it. Closes the producer."""
        from strandline.client.errors import ClientError

        interrupted = False
        try:
            self._producer.partitions_for(self._topic)
            self._read_from_the_end()
            self._report.begin_anew()
            while self._step():
                pass
        except KeyboardInterrupt:
            interrupted = True
        finally:
            with suppress(ClientError):  # what failed has been counted
                self._producer.close(timeout=GIVE_UP_S)
        return interrupted

    def _read_from_the_end(self) -> None:
        numbers = self._consumer.partitions_for_topic(self._topic, timeout_ms=10_000)
        partitions = [TopicPartition(self._topic, number) for number in numbers]
        ends = self._consumer.end_offsets(partitions)
        self._consumer.assign(partitions)
        for partition in partitions:
            self._consumer.seek(partition, ends[partition])

    def _step(self) -> bool:
        """Send what is due, read what is there; False once nothing is left to do."""
        now_s = self._report.now_s()
        wait_s = POLL_MS / 1000
        is_over = self._schedule.is_over(self._sent, now_s)
        if is_over and not self._under_way:
            return False
        if not is_over and (self._schedule.rate is not None or not self._under_way):
            while self._schedule.due(self._sent, now_s):
                self._send(self._schedule.intended_s(self._sent, now_s))
                if self._schedule.rate is None:
                    break
            if self._schedule.rate is not None:
                wait_s = min(wait_s, max(self._schedule.intended_s(self._sent, now_s) - self._report.now_s(), 0.0))
        self._read(self._consumer.poll(timeout_ms=wait_s * 1000))
        self._report.look(self._report.now_s())
        return True

    def _send(self, due_s: float) -> None:
        from strandline.client.errors import ClientError

        number = self._sent
        self._sent += 1
        try:
            future = self._producer.send(self._topic, HEAD.pack(self._run_id, number) + self._rest)
        except ClientError as error:
            self._report.measurement.failed(error)
            return
        self._under_way[number] = _UnderWay(due_s, future)
        future.add_done_callback(lambda future: self._acknowledged(future, due_s))

    def _acknowledged(self, future: Any, due_s: float) -> None:
        """Called in the event loop's thread, which alone touches these counts until the producer is closed."""
        if future.exception() is None:
            self.acknowledgements.record(round((self._report.now_s() - due_s) * 1e6))

    def _read(self, polled: dict[TopicPartition, list[Any]]) -> None:
        now_s, measurement = self._report.now_s(), self._report.measurement
        for records in polled.values():
            for record in records:
                value = record.value or b""
                if len(value) != HEAD.size + len(self._rest) or value[HEAD.size :] != self._rest:
                    continue  # somebody else writes here, too
                run_id, number = HEAD.unpack_from(value)
                found = self._under_way.pop(number, None) if run_id == self._run_id else None
                if found is not None:
                    measurement.note(1, len(value))
                    measurement.latency(round((now_s - found.due_s) * 1e6))
        for number in list(self._under_way):
            late = self._under_way[number]
            error = late.future.exception() if late.future.done() else None
            if error is None and now_s - late.due_s < LOST_AFTER_S:
                return
            del self._under_way[number]
            measurement.failed(error or NotRead(f"a record was not read within {LOST_AFTER_S:g} s"))
