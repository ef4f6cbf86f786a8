"""`strandline bench produce`: how many records a cluster takes, and how long an acknowledgement takes.

A record's latency is the time until it is acknowledged, from when it was handed over; with `--rate` from when it should
have been (`bench_load`). Records go over in lists: a latency is that of the list, which its last record decides.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.bench_load import Load, Schedule, load
from strandline.cli.bench_processes import ENDS_WITH_STDIN, of_processes
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
from strandline.cli.bench_text import producer_interval, producer_total
from strandline.cli.options import MOST_PER_SECOND, BoundedFloat, acks_option, client_settings, compression_option
from strandline.cli.session import EXIT_INTERRUPTED, Session, bootstrap_of, session_of
from strandline.runtime.processes.parent import end_with_stdin

if TYPE_CHECKING:
    from strandline import Producer

LOOK_EVERY_S = 0.1
"""How soon an interval is shown while there is nothing to send."""
FLUSH_S = 0.2
MAX_BLOCK_MS = 10_000
"""How long a person should wait to learn that the cluster takes nothing."""


@click.command(
    epilog="Examples: strandline bench produce --records 1000000; "
    "strandline bench produce --rate 5000 --seconds 30 --acks 1 --page bench.html; "
    "strandline bench produce -t clicks --size 1000 --compression zstd -X linger.ms=20 --output json"
)
@run_options
@click.option(
    "--rate",
    "--throughput",
    "rate",
    type=BoundedFloat(-1, MOST_PER_SECOND),
    help="Records per second; without it, or with -1 as in Kafka's tool, as many as may be.",
)
@acks_option
@compression_option
@click.option("--keys", type=click.IntRange(min=0), default=0, show_default=True, help="How many different ones.")
@click.option(
    "--per-call",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="Most records that are handed over at once; 1: each by itself, with send().",
)
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, help="So many producers.")
@click.option(ENDS_WITH_STDIN, is_flag=True, hidden=True)
@click.pass_context
def produce(ctx: click.Context, /, **given: Any) -> None:
    """Measure how fast records are taken, and how long it takes.

    The lines are those of kafka-producer-perf-test. Without --records and --seconds it takes ten seconds."""
    if given.pop("ends_with_stdin"):
        end_with_stdin(EXIT_INTERRUPTED)
    options = RunOptions.taken(given)
    session = session_of(ctx)
    if options.records is None and options.seconds is None:
        options = options._replace(seconds=DEFAULT_SECONDS)
    if options.records is not None:
        given["processes"] = min(given["processes"], options.records)  # nobody has nothing to do
    rate = given["rate"] if given["rate"] and given["rate"] > 0 else None  # −1 is Kafka's for none
    schedule = Schedule(options.records, options.seconds, rate, given["per_call"])
    with topic_of(ctx, options) as topic:
        if given["processes"] > 1:
            result, interrupted = of_processes(options, topic, bootstrap_of(session, options.bootstrap), given)
        else:
            result, interrupted = _of_one(session, options, topic, schedule, given)
        measured = {name: given[name] for name in ("acks", "compression", "keys", "per_call", "processes")}
        told = Told(
            "bench produce",
            "acknowledgements",
            producer_total(result.total),
            told_settings(options, topic, is_sending=True, rate=rate, **measured),
        )
        finish(ctx, options, result, told, is_interrupted=interrupted)


def _of_one(
    session: Session, options: RunOptions, topic: str, schedule: Schedule, given: dict[str, Any]
) -> tuple[Any, bool]:
    """With a producer in this process: the result, and whether it was interrupted."""
    report = Report(session, options, lambda interval, measurement: producer_interval(interval))
    producer = session.producer(
        bootstrap_of(session, options.bootstrap),
        **{
            "acks": given["acks"],
            "compression_type": given["compression"],
            "max_block_ms": MAX_BLOCK_MS,
            **client_settings(options.settings),
        },
    )
    sending = Sending(producer, topic, load(options.size, given["keys"]), schedule, session, report)
    with report.shown():
        interrupted = sending.run()
    return report.measurement.end(report.now_s()), interrupted


class Sending:
    """Sends what a schedule says, and counts what becomes of it."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        records: Load,
        schedule: Schedule,
        session: Session,
        report: Report,
        on_acknowledged: Callable[[int, int], None] = lambda first, count: None,
    ) -> None:
        """on_acknowledged: told of each call of which no record failed, the number of its first and how many."""
        self._producer = producer
        self._topic = topic
        self._records = records
        self._schedule = schedule
        self._session = session
        self._report = report
        self._measurement = report.measurement
        self._on_acknowledged = on_acknowledged
        self._settled: collections.deque[tuple[float, float, int, int, Any]] = collections.deque()
        """(when, when the first of them was due, its number, how many, their future); filled in the event loop's
        thread."""
        self._sent = 0

    def run(self) -> bool:
        """All of it; True where somebody interrupted it. Closes the producer. Raises what hinders every record."""
        from strandline.client.errors import ClientError

        interrupted = False
        try:
            self._producer.partitions_for(self._topic)  # the connections are there before time counts
            self._report.begin_anew()
            try:
                self._send_all()
                self._flush()
            except KeyboardInterrupt:
                interrupted = True
                with suppress(ClientError):
                    self._producer.flush(GIVE_UP_S)
            self._drain()
        finally:
            with suppress(ClientError):  # all that failed has been counted
                self._producer.close(timeout=GIVE_UP_S)
        return interrupted

    def _send_all(self) -> None:
        schedule, report = self._schedule, self._report
        while not schedule.is_over(self._sent, now_s := report.now_s()):
            count = schedule.due(self._sent, now_s)
            if count:
                self._send(count, schedule.intended_s(self._sent, now_s))
            else:
                self._session.sleep(min(schedule.intended_s(self._sent, now_s) - now_s, LOOK_EVERY_S))
            self._drain()
            report.look(now_s)

    def _send(self, count: int, due_s: float) -> None:
        from strandline.client.errors import ClientError

        first = self._sent
        pairs = self._records.slice(first, count)
        self._sent += count
        future: Any
        try:
            if count == 1:
                [(key, value)] = pairs
                future = self._producer.send(self._topic, value, key=key)
            else:
                future = self._producer.send_many(self._topic, pairs)
        except ClientError as error:
            self._measurement.failed(error, count)
            return
        future.add_done_callback(
            lambda future: self._settled.append((self._report.now_s(), due_s, first, count, future))
        )

    def _drain(self) -> None:
        """Count what is settled."""
        while self._settled:
            at_s, due_s, first, count, future = self._settled.popleft()
            error = future.exception()
            if error is not None:
                failed = getattr(future, "failed_records", count)
                self._measurement.failed(error, failed)
                self._measurement.note(count - failed, (count - failed) * self._records.size_bytes)
                continue
            self._measurement.note(count, count * self._records.size_bytes)
            self._on_acknowledged(first, count)
            step_s = self._schedule.step_s
            if not step_s:
                self._measurement.latency(round((at_s - due_s) * 1e6), count)
                continue
            for place in range(count):
                self._measurement.latency(round((at_s - due_s - place * step_s) * 1e6))

    def _flush(self) -> None:
        """Wait for all, and go on showing how far it is."""
        from strandline.client.errors import FlushTimedOut

        while True:
            try:
                self._producer.flush(FLUSH_S)
                return
            except FlushTimedOut:
                self._drain()
                self._report.look(self._report.now_s())
