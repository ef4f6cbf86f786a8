"""How a row of the six scenarios is run: a topic of its own, one producer, and what becomes of its records.

The producer sends as `bench produce` does, after a few records that do not count. Where brokers are killed, every value
says which record it is, only some are under way (`window`), so that sending never blocks and most are still to be sent
when it happens, and in the end all is read again: what was acknowledged must be there. Killed are only brokers of a
cluster that was started for this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.cli.bench_load import Load, Numbered, Schedule, Windowed, load
from strandline.cli.bench_measure import Result
from strandline.cli.bench_produce import MAX_BLOCK_MS, Sending
from strandline.cli.bench_round_trips import RoundTrips
from strandline.cli.bench_run import Report, RunOptions, delete
from strandline.cli.bench_scenario_tables import RECORDS, ROUND_TRIPS, VALUE_BYTES, Row, Scenario
from strandline.cli.options import LOOK_TIMEOUT_MS
from strandline.cli.process import ProcessFailed
from strandline.cli.session import Session
from strandline.cli.wording import sized
from strandline.protocol.types import TopicPartition
from strandline.runtime.histogram import Histogram

if TYPE_CHECKING:
    from strandline import Consumer
    from strandline.cli.cluster import EmbeddedCluster

PER_CALL = 500
WARM_UP = 1_000
FEWEST_RECORDS = 100
MOST_UNDER_WAY = 5_000
BLOW_AT = 1 / 3
"""Of the records are settled when brokers are killed."""
DOWN_S = 5.0
"""How long brokers that are started again are away."""
LOOK_AT_MEMBERS_S = 1.0
"""How often it is looked whether a broker has ended by itself."""
MOST_RECORD_BYTES = VALUE_BYTES + 100
"""On a disk: a batch of one record has a head of its own."""
OTHER_BYTES = 256 * 1024 * 1024
"""For logs, and for topics of few records that are deleted faster than they are unlinked."""
INTERVAL_S = 0.5
QUIET_S = 10.0
POLL_MS = 100


class Landed(NamedTuple):
    """What was read again. lost: acknowledged, and not there; doubled: there more than once; unacknowledged: there,
    though the producer was not told so. unread: the partitions of which not all could be read."""

    acknowledged: int
    lost: int
    doubled: int
    unacknowledged: int
    unread: tuple[int, ...] = ()


class Outcome(NamedTuple):
    """What became of a row. skipped: why it was not run; error: why it ended. pause_s: the longest time without an
    acknowledgement. killed: so many brokers were killed; is_restarted: and started again before all was settled."""

    row: Row
    skipped: str = ""
    error: str = ""
    result: Result | None = None
    landed: Landed | None = None
    pause_s: float | None = None
    acknowledgements: Histogram | None = None
    killed: int = 0
    is_restarted: bool = False

    @property
    def tps(self) -> float | None:
        return None if self.result is None else self.result.total.records_per_second

    @property
    def has_failed(self) -> bool:
        """Something is not as it should be. Where brokers are killed and nothing is retried, records may fail."""
        landed = self.landed
        if self.error or (landed is not None and (landed.lost or landed.unread or not landed.acknowledged)):
            return True
        may_fail = self.row.killed and not self.row.retries
        return self.result is not None and self.result.failed > 0 and not may_fail


class Blows:
    """Kills the brokers of a row that asks for it once a third of its records is settled, and starts them again later,
    if it asks for that. Tells what it did: a row whose records were settled before has shown nothing."""

    def __init__(self, cluster: EmbeddedCluster, row: Row, records: int) -> None:
        self._cluster = cluster
        self._row = row
        self._records = records
        self._killed_s: float | None = None
        self.is_restarted = False

    @property
    def victims(self) -> list[int]:
        return self._cluster.broker_ids[-self._row.killed :]

    @property
    def killed(self) -> int:
        """How many were."""
        return len(self.away)

    @property
    def away(self) -> list[int]:
        """Who ended because of it."""
        return [] if self._killed_s is None else self.victims

    @property
    def lacking(self) -> str:
        """What the row asks for and has not had; empty: nothing."""
        if not self.killed:
            return "all records were settled before a broker was killed"
        if self._row.is_restarted and not self.is_restarted:
            return "all records were settled before the killed brokers were started again"
        return ""

    def deal(self, settled: int, now_s: float) -> None:
        """What is due by now. ProcessFailed where one cannot be started again."""
        if settled >= self._records:
            return
        if self._killed_s is None:
            if settled >= self._records * BLOW_AT:
                self._killed_s = now_s
                for broker_id in self.victims:
                    self._cluster.kill_broker(broker_id)
        elif self._row.is_restarted and not self.is_restarted and now_s - self._killed_s >= DOWN_S:
            for broker_id in self.victims:
                self._cluster.start_broker(broker_id, wait=False)
            self.is_restarted = True

    def heal(self) -> None:
        """All brokers serve again. ProcessFailed where one does not."""
        for broker_id in self.victims:
            if not self._cluster.brokers[broker_id].is_alive:
                self._cluster.start_broker(broker_id, wait=False)
        self._cluster.wait_ready()


def window(records: int) -> int:
    """How many may be under way: of few records few, so that they are not all sent before anything can happen."""
    return min(MOST_UNDER_WAY, records // 10)


def records_of(scenario: Scenario, scale: float) -> int:
    """Of each of its rows."""
    return max(FEWEST_RECORDS, round((ROUND_TRIPS if scenario.number == 6 else RECORDS) * scale))


def room_bytes(scenarios: Sequence[Scenario], scale: float) -> int:
    """What brokers of this machine need for these, together: while the largest row is run, the one before may not have
    been unlinked yet."""
    rows = ((records_of(scenario, scale), row) for scenario in scenarios for row in scenario.rows)
    largest = max((records + WARM_UP) * row.replicas for records, row in rows)
    return 2 * largest * MOST_RECORD_BYTES + OTHER_BYTES


class RowReport(Report):
    """Shows nothing itself; `on_look` is called often, with the time and how many records are settled."""

    def __init__(self, session: Session, on_look: Callable[[float, int], None]) -> None:
        options = RunOptions(None, None, None, None, False, None, None, VALUE_BYTES, INTERVAL_S, None, "json", ())
        super().__init__(session, options, lambda interval, measurement: None)
        self._on_look = on_look

    @property
    def settled(self) -> int:
        """Records that are acknowledged or have failed."""
        failures = self.measurement.failures.values()
        return self.measurement.total.records + sum(each.records for each in failures)

    def look(self, now_s: float) -> None:
        self.measurement.next_interval(now_s)
        self._on_look(now_s, self.settled)


class Runner:
    """Runs rows one after the other. cluster: the one that was started for this, None: that of somebody else, of which
    nothing is killed. tell: shown meanwhile, how many records are settled and how many there are."""

    def __init__(
        self,
        session: Session,
        servers: str,
        cluster: EmbeddedCluster | None,
        scale: float,
        tell: Callable[[int, int], None],
    ) -> None:
        self._session = session
        self._servers = servers
        self._cluster = cluster
        self._scale = scale
        self._tell = tell
        self._topics = 0
        self._looked_s = 0.0

    def ended(self, away: Sequence[int] = ()) -> str:
        """Who of the cluster that was started for this has ended by itself, with the last line of its log; empty: none
        has. away: brokers that were killed."""
        if self._cluster is None:
            return ""
        brokers = [daemon for broker_id, daemon in self._cluster.brokers.items() if broker_id not in away]
        for daemon in (self._cluster.zookeeper.process, *brokers):
            if not daemon.is_alive:
                folder, free_bytes = self._session.temporary_room()
                return f"{daemon.name} ended: {daemon.last_log_line()}; {sized(free_bytes)} are free in {folder}"
        return ""

    def run(self, scenario: Scenario, row: Row, brokers: int) -> Outcome:
        """What became of it; brokers: how many live. KeyboardInterrupt."""
        from strandline.client.errors import ClientError

        if row.replicas > brokers:
            return Outcome(row, skipped=f"needs {row.replicas} brokers, here are {brokers}")
        if row.killed and self._cluster is None:
            return Outcome(row, skipped="kills brokers, so it needs a cluster of its own: --embedded")
        records = records_of(scenario, self._scale)
        blows = Blows(self._cluster, row, records) if row.killed and self._cluster is not None else None
        try:
            with self._topic(row) as topic:
                if scenario.number == 6:
                    outcome = self._round_trips(row, topic, records)
                elif blows is None:
                    outcome = self._sent(row, topic, records)
                else:
                    outcome = self._broken(row, topic, records, blows)
        except (ClientError, ProcessFailed) as error:  # a broker that is started again may end at once
            outcome = Outcome(row, error=self.ended() or str(error))
        return outcome if blows is None else outcome._replace(killed=blows.killed, is_restarted=blows.is_restarted)

    @contextmanager
    def _topic(self, row: Row) -> Iterator[str]:
        from strandline.client.errors import ClientError

        self._topics += 1
        name = f"bench-{self._session.now_ms()}-{self._topics}"
        configs = {} if row.min_insync is None else {"min.insync.replicas": str(row.min_insync)}
        with self._session.admin(self._servers, default_api_timeout_ms=LOOK_TIMEOUT_MS) as admin:
            is_there = True  # unless it was refused: who interrupts the call may leave one
            try:
                try:
                    admin.create_topic(
                        name, row.partitions, row.replicas, configs, assignments=None, validate_only=False
                    )
                except ClientError:
                    is_there = False
                    raise
                yield name
            finally:
                if is_there and not self.ended():  # else nobody answers, and it goes with the cluster
                    delete(admin, name)

    def _look(self, settled: int, records: int, away: Sequence[int] = ()) -> None:
        """While records are sent. ProcessFailed where a broker has ended by itself."""
        self._tell(settled, records)
        if (now_s := self._session.monotonic()) - self._looked_s >= LOOK_AT_MEMBERS_S:
            self._looked_s = now_s
            if why := self.ended(away):
                raise ProcessFailed(why)

    # --- Scenarios 1 to 4 --------------------------------------------------------------------------------------

    def _sent(self, row: Row, topic: str, records: int) -> Outcome:
        what = load(VALUE_BYTES, 0)
        warm_up = min(WARM_UP, records // 10)
        self._send(row._replace(retries=None), topic, what, Schedule(warm_up, None, None, PER_CALL), RowReport(
            self._session, lambda now_s, settled: self._look(0, records)
        ))  # fmt: skip
        report = RowReport(self._session, lambda now_s, settled: self._look(settled, records))
        result = self._send(row, topic, what, Schedule(records, None, None, PER_CALL), report)
        return Outcome(row, result=result)

    def _send(
        self,
        row: Row,
        topic: str,
        what: Load,
        schedule: Schedule,
        report: RowReport,
        on_acknowledged: Callable[[int, int], None] = lambda first, count: None,
    ) -> Result:
        settings: dict[str, Any] = {"acks": row.acks, "max_block_ms": MAX_BLOCK_MS}
        if row.retries is not None:
            settings["retries"] = row.retries
        producer = self._session.producer(self._servers, **settings)
        if Sending(producer, topic, what, schedule, self._session, report, on_acknowledged).run():
            raise KeyboardInterrupt
        return report.measurement.end(report.now_s())

    # --- Scenario 5 --------------------------------------------------------------------------------------------

    def _broken(self, row: Row, topic: str, records: int, blows: Blows) -> Outcome:
        moved_s = pause_s = 0.0
        moved_at = -1

        def look(now_s: float, settled: int) -> None:
            nonlocal moved_s, moved_at, pause_s
            if settled != moved_at:
                moved_s, moved_at = now_s, settled
            pause_s = max(pause_s, now_s - moved_s)
            blows.deal(settled, now_s)
            self._look(settled, records, blows.away)

        report = RowReport(self._session, look)
        what = Numbered(self._session.run_id(), VALUE_BYTES)
        schedule = Windowed(records, None, None, 1, window(records), lambda: report.settled)
        acknowledged = bytearray(records)

        def note(first: int, count: int) -> None:
            acknowledged[first : first + count] = b"\x01" * count

        try:
            result = self._send(row, topic, what, schedule, report, note)
            if blows.lacking:
                return Outcome(row, error=blows.lacking)
            with self._session.consumer(self._servers) as consumer:
                landed = count_landed(self._session, consumer, topic, what, acknowledged)
        finally:
            blows.heal()
        return Outcome(row, result=result, landed=landed, pause_s=pause_s)

    # --- Scenario 6 --------------------------------------------------------------------------------------------

    def _round_trips(self, row: Row, topic: str, records: int) -> Outcome:
        report = RowReport(self._session, lambda now_s, settled: self._look(settled, records))
        with self._session.consumer(self._servers) as consumer:
            producer = self._session.producer(self._servers, acks=row.acks, linger_ms=0)
            schedule = Schedule(records, None, None, 1)
            trips = RoundTrips(producer, consumer, topic, schedule, report, VALUE_BYTES, self._session.run_id())
            if trips.run():
                raise KeyboardInterrupt
        result = report.measurement.end(report.now_s())
        return Outcome(row, result=result, acknowledgements=trips.acknowledgements)


def count_landed(
    session: Session, consumer: Consumer, topic: str, what: Numbered, acknowledged: bytes | bytearray
) -> Landed:
    """Reads the topic to its end. acknowledged: a byte for each record, 1 where the producer was told so."""
    partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic, timeout_ms=10_000)]
    left = {partition: end for partition, end in consumer.end_offsets(partitions).items() if end}
    consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, 0)
    copies = bytearray(len(acknowledged))
    heard_s = session.monotonic()
    while left and session.monotonic() - heard_s < QUIET_S:
        for partition, records in consumer.poll(timeout_ms=POLL_MS).items():
            heard_s = session.monotonic()
            for record in records:
                number = what.number_of(record.value)
                if number is not None:
                    copies[number] = min(copies[number] + 1, 255)
            if records and records[-1].offset + 1 >= left.get(partition, 0):
                left.pop(partition, None)
    lost = doubled = unacknowledged = 0
    for told, count in zip(acknowledged, copies, strict=True):
        lost += bool(told) and not count
        doubled += count > 1
        unacknowledged += count > 0 and not told
    unread = tuple(sorted(partition.partition for partition in left))
    return Landed(sum(acknowledged), lost, doubled, unacknowledged, unread)
