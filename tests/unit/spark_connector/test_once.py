"""Exactly once, without Spark and without a cluster: attempts of one task that die, live side by side and come back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from strandline.client.accumulator import ToSend
from strandline.client.errors import DeliveryTimeout, SequenceTaken
from strandline.protocol.types import NO_TOPIC_ID, TopicPartition
from strandline.spark_connector.errors import RowsChanged, SupersededWrite, WriteFailed, WrittenRowsGone
from strandline.spark_connector.writing.division import check_tasks
from strandline.spark_connector.writing.identity import TaskIdentity
from strandline.spark_connector.writing.once import REACH, OnceWriter, Written
from strandline.spark_connector.writing.patience import PATIENCE_MS
from strandline.spark_connector.writing.placing import placed
from support.memory_sink import DAY_MS, Delivery, Entry, Killed, Log, MemorySink, Topics, Turns
from support.sink_rows import sink_rows

T = "t"
ME = TaskIdentity("query.q", 7, 0)
T0 = TopicPartition(T, 0)


class Site:
    """Topics, and attempts to write rows to them."""

    def __init__(self, seed: int = 0, **partitions: int) -> None:
        self.topics = Topics(partitions or {T: 3})
        self.turns = Turns(seed)
        self.random = random.Random(seed)
        self.finished: dict[str, OnceWriter] = {}
        self.failed: dict[str, Exception] = {}
        self.sinks: dict[str, MemorySink] = {}

    def attempt(
        self,
        name: str,
        rows: Sequence[tuple[str, ToSend]],
        identity: TaskIdentity = ME,
        *,
        chunk: int = 4,
        answers_lost: float = 0.0,
        has_timestamps: bool = False,
        run: str = "run-1",
        partitions: Sequence[int | None] | None = None,
    ) -> Callable[[], None]:
        def write() -> None:
            sink = self.sinks[name] = MemorySink(self.topics, self.turns, name, identity, answers_lost)
            sink.has_timestamps = has_timestamps
            writer = OnceWriter(sink, identity, run, has_timestamps=has_timestamps)
            try:
                for begin in range(0, len(rows), chunk):
                    part = rows[begin : begin + chunk]
                    named = partitions[begin : begin + chunk] if partitions else None
                    batch = sink_rows([topic for topic, _ in part], [record for _, record in part], named)
                    writer.write(placed(batch, writer.room_of))
                writer.finish()
                self.finished[name] = writer
            except Exception as error:
                self.failed[name] = error
            finally:
                with suppress(Killed):
                    sink.close_producer()

        return write

    def run(self, rows: Sequence[tuple[str, ToSend]], identity: TaskIdentity = ME, **options: Any) -> OnceWriter:
        """One attempt alone; raises what it raises."""
        name = f"attempt-{len(self.sinks)}"
        self.turns.run({name: self.attempt(name, rows, identity, **options)}, {})
        if name in self.failed:
            raise self.failed[name]
        return self.finished[name]

    def counts(self) -> Counter[tuple[str, bytes | None, bytes | None]]:
        topics = {at.topic for at in self.topics.logs}
        return Counter((topic, *record[:2]) for topic in topics for record in self.topics.records(topic))


def rows(*numbers: int, topic: str = T) -> list[tuple[str, ToSend]]:
    """Some with a key, some without."""
    return [(topic, (b"k%d" % (n % 5) if n % 3 else None, b"v%d" % n)) for n in numbers]


def counted(given: Sequence[tuple[str, ToSend]]) -> Counter[tuple[str, bytes | None, bytes | None]]:
    return Counter((topic, *record[:2]) for topic, record in given)


@pytest.mark.parametrize("seed", range(300))
def test_each_row_stands_once_however_attempts_die_and_meet(seed: int) -> None:
    """Two tasks, of each up to two attempts at a time in orders of their own, of which some die at any call, until one
    of each has come to its end."""
    site = Site(seed, t=3, u=2)
    numbers = [[site.random.randrange(40) for _ in range(site.random.randrange(1, 40))] for _ in range(2)]
    given = [rows(*own) + rows(*own[: len(own) // 3], topic="u") for own in numbers]  # some rows are equal
    mortality = site.random.choice([0.0, 0.02, 0.1])
    left = {0, 1}
    for round_ in range(200):
        attempts = {}
        for task in sorted(left):
            for letter in "ab"[: site.random.randint(1, 2)]:
                order = list(given[task])
                if site.random.random() < 0.7:
                    site.random.shuffle(order)
                attempts[f"{task}{letter}{round_}"] = site.attempt(
                    f"{task}{letter}{round_}",
                    order,
                    TaskIdentity("query.q", 7, task),
                    chunk=site.random.randint(1, 9),
                    answers_lost=site.random.choice([0.0, 0.05]),
                    run=f"run-{round_}",
                )
        site.turns.run(attempts, dict.fromkeys(attempts, mortality if round_ < 20 else 0.0))
        assert not site.failed
        left -= {int(name[0]) for name in site.finished}
        if not left:
            break
    assert not left
    assert site.counts() == counted(given[0] + given[1])


def test_a_first_attempt_reads_nothing_back() -> None:
    site = Site()
    site.run(rows(*range(50)))
    assert "read_back" not in site.sinks["attempt-0"].calls
    assert site.counts() == counted(rows(*range(50)))


def test_a_repeated_write_finds_its_rows_in_another_order_and_says_so() -> None:
    site = Site()
    site.run(rows(*range(50)))
    again = site.run(rows(*reversed(range(50))), run="run-2")
    assert (again.found_rows, again.is_repeated) == (50, True)
    assert site.counts() == counted(rows(*range(50)))


def test_the_next_version_writes_equal_rows_again() -> None:
    site = Site()
    site.run(rows(1, 2, 3))
    following = site.run(rows(1, 2, 3), TaskIdentity("query.q", 8, 0), run="run-2")
    assert (following.found_rows, following.is_repeated) == (0, False)
    assert site.counts() == counted(rows(1, 2, 3, 1, 2, 3))


def test_epochs_that_are_used_up_go_on_with_another_producer_id() -> None:
    site = Site()
    for version in (2**15 - 1, 2**15, 2**15 + 1):
        site.run(rows(1), TaskIdentity("query.q", version, 0))
    assert len(site.topics.records(T)) == 3


def test_tasks_of_one_write_have_rows_of_their_own_though_one_has_set_the_marks() -> None:
    site = Site()
    for task in range(3):
        found = site.run(rows(1, 2, 3), TaskIdentity("query.q", 7, task))
        assert (found.found_rows, found.is_repeated) == (0, False)
    assert site.counts() == counted(rows(1, 2, 3) * 3)


def test_a_task_that_begins_beside_another_does_not_move_the_marks_past_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one begins and ends between the two questions of this one."""
    site, other = Site(t=1), Site()
    other.topics = site.topics
    called = MemorySink._called
    asked: list[str] = []

    def and_the_other_writes(self: MemorySink, call: str) -> None:
        if self.identity.task == 1 and call in ("ends", "marks"):
            asked.append(call)
            if len(asked) == 2:
                other.run(rows(1, 2, 3))
        called(self, call)

    monkeypatch.setattr(MemorySink, "_called", and_the_other_writes)
    site.run(rows(4, 5), TaskIdentity("query.q", 7, 1))
    assert other.run(rows(1, 2, 3)).found_rows == 3


def test_an_earlier_version_is_over_once_a_later_one_began() -> None:
    site = Site()
    site.run(rows(1))
    site.run(rows(2), TaskIdentity("query.q", 8, 0))
    with pytest.raises(SupersededWrite, match=r"has begun version 8 .* so 7 is over.*exactlyOnce to false"):
        site.run(rows(1, 3))
    assert site.counts() == counted(rows(1, 2))


def test_other_rows_than_the_first_time_are_an_error() -> None:
    site = Site()
    site.run(rows(1, 2, 3, 4))
    with pytest.raises(RowsChanged, match=r"wrote 1 rows to t-\d that this one does not have"):
        site.run(rows(1, 2, 3))


@pytest.mark.parametrize("deleted", [1, 2, 3])
def test_rows_that_were_deleted_before_the_write_was_repeated_are_an_error(deleted: int) -> None:
    site = Site(t=1)
    site.run(rows(1, 2, 3))
    site.topics.logs[T0].start = deleted
    with pytest.raises(WrittenRowsGone, match=rf"of which only {3 - deleted} are left"):
        site.run(rows(1, 2, 3, 4))


def test_rows_that_compaction_took_before_the_write_was_repeated_are_an_error() -> None:
    site = Site(t=1)
    site.run(rows(1, 2, 3))
    for place in (0, 1, 2):
        kept, log = site.topics.logs[T0].entries[place], site.topics.logs[T0]
        log.entries[place] = None
        with pytest.raises(WrittenRowsGone, match="of which only 2 are left"):
            site.run(rows(1, 2, 3, 4))
        log.entries[place] = kept


def test_rows_that_compaction_took_after_leaders_forgot_them_are_an_error() -> None:
    """The last ones leave no gap in the numbers, only one in the log."""
    site = Site(t=1)
    site.run(rows(1, 2, 3))
    log = site.topics.logs[T0]
    log.entries[2:] = [None, Entry(-1, -1, -1, (None, b"another"))]
    log.states.clear()
    site.topics.now_ms += DAY_MS
    with pytest.raises(WrittenRowsGone, match="of which only 2 are left"):
        site.run(rows(1, 2, 3))


@pytest.mark.parametrize("others", [0, 1, REACH, 3 * REACH])
@pytest.mark.parametrize("version", [6, 7])
def test_rows_before_a_mark_that_was_set_late_are_found(others: int, version: int) -> None:
    """By an attempt that a deposed coordinator told of no mark, or by one that woke up after the next version began."""
    site = Site(t=1)
    site.topics.logs[T0].entries += [Entry(-1, -1, -1, (None, b"another"))] * others
    site.run(rows(1, 2, 3))
    site.topics.logs[T0].entries += [Entry(-1, -1, -1, (None, b"another"))] * others
    marks = site.topics.marks[ME.group]
    marks[T0] = marks[T0]._replace(version=version, end_offset=2 * others + 3)
    assert site.run(rows(3, 2, 1, 4)).found_rows == 3


def test_a_leader_that_tells_of_rows_which_are_not_there_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deposed, and has not heard so: its last records are not in the log, but others are."""
    site = Site(t=1)
    site.run(rows(1, 2, 3))
    site.topics.logs[T0].entries += [Entry(-1, -1, -1, (None, b"another"))] * 9
    written = MemorySink.written
    told: list[Written] = []

    def of_the_deposed(self: MemorySink, partitions: Sequence[TopicPartition]) -> Any:
        known = written(self, partitions)
        if len(told) < 5:
            told.append(Written(ME.epoch, 8, 8))
            return {T0: told[-1]}
        return known

    monkeypatch.setattr(MemorySink, "written", of_the_deposed)
    assert site.run(rows(1, 2, 3, 4)).found_rows == 3


def test_a_broker_that_has_not_heard_how_much_a_topic_grew_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are placed among fewer partitions are not found where they stand."""
    site = Site()
    site.run(rows(*range(20)))
    partitions_count = MemorySink.partitions_count
    asked: list[int] = []

    def of_the_broker(self: MemorySink, topic: str) -> int:
        asked.append(partitions_count(self, topic))
        return 1 if len(asked) < 5 else asked[-1]

    monkeypatch.setattr(MemorySink, "partitions_count", of_the_broker)
    assert site.run(rows(*range(20))).found_rows == 20


def test_numbers_that_are_refused_for_no_reason_that_can_be_seen_are_an_error_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(t=1)

    def refuse(*_: object) -> None:
        raise SequenceTaken("for no reason", outcome_unknown=False)

    monkeypatch.setattr(Log, "append", refuse)
    with pytest.raises(WriteFailed, match="numbers of t-0 are refused as taken"):
        site.run(rows(1))


def test_what_was_deleted_before_the_write_began_does_not_matter() -> None:
    site = Site(t=1)
    site.run(rows(9, 8), TaskIdentity("query.q", 6, 0))
    site.run(rows(1, 2, 3))
    site.topics.logs[T0].start = 2
    assert site.run(rows(1, 2, 3, 4)).found_rows == 3


def test_what_leaders_have_forgotten_is_found_in_the_log() -> None:
    site = Site(t=1)
    site.run(rows(1, 2, 3))
    site.topics.logs[T0].states.clear()
    site.topics.now_ms += DAY_MS
    assert site.run(rows(3, 2, 1, 4)).found_rows == 3
    site.topics.logs[T0].states.clear()
    site.topics.logs[T0].start = 4
    with pytest.raises(WrittenRowsGone):
        site.run(rows(1, 2, 3, 4))


def test_rows_behind_what_leaders_have_forgotten_go_on_with_its_numbers() -> None:
    site = Site(t=1, u=1)
    site.run(rows(1, 2, 3) + rows(1, 2, 3, topic="u"))
    for log in site.topics.logs.values():
        log.states.clear()
    site.topics.now_ms += DAY_MS
    site.run(rows(3, 2, 1, 4) + rows(3, 2, 1, 4, topic="u"), chunk=4)
    for log in site.topics.logs.values():
        assert [each.sequence for each in log.entries] == [0, 1, 2, 3]


def test_a_topic_created_anew_is_written_from_the_beginning() -> None:
    site = Site(t=1)
    site.topics.ids[T] = b"1" * 16
    site.run(rows(*range(10)), TaskIdentity("query.q", 6, 0))
    site.run(rows(1, 2, 3))
    site.topics.logs[T0] = Log()
    site.topics.ids[T] = b"2" * 16
    assert site.run(rows(1, 2, 3)).found_rows == 0
    assert site.run(rows(1, 2, 3, 4)).found_rows == 3
    assert site.counts() == counted(rows(1, 2, 3, 4))


@pytest.mark.parametrize("is_ever_known", [True, False])
def test_the_id_of_a_topic_is_asked_for_until_brokers_have_heard_of_it(
    is_ever_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a mark without it, one that is created anew under that name would count as the same."""
    site, real = Site(t=1), MemorySink.topic_id
    site.topics.ids[T] = b"1" * 16
    unknown_until_ms = site.topics.now_ms + (1_000 if is_ever_known else DAY_MS)

    def ask(sink: MemorySink, topic: str) -> bytes | None:
        return real(sink, topic) if sink.topics.now_ms >= unknown_until_ms else None

    monkeypatch.setattr(MemorySink, "topic_id", ask)
    site.run(rows(1, 2, 3))
    [marks] = site.topics.marks.values()
    assert marks[T0].topic_id == (b"1" * 16 if is_ever_known else NO_TOPIC_ID)


def test_a_topic_that_grew_meanwhile_keeps_its_placing_until_the_next_version() -> None:
    site = Site(t=2)
    site.run(rows(*range(30)))
    site.topics.logs[TopicPartition(T, 2)] = Log()
    assert site.run(rows(*range(40))).found_rows == 30
    assert not site.topics.logs[TopicPartition(T, 2)].entries
    site.run(rows(*range(40)), TaskIdentity("query.q", 8, 0))
    assert site.topics.logs[TopicPartition(T, 2)].entries


def test_a_row_may_name_a_partition_that_was_added_since_its_write_began() -> None:
    """Who is told that there is no such partition adds it, and repeats the write."""
    site = Site(t=2)
    given, third = rows(*range(6)), TopicPartition(T, 2)
    with pytest.raises(WriteFailed, match="topic 't' has no partition 2, only 2 of them"):
        site.run(given, partitions=[None, None, None, None, None, 2])
    site.topics.logs[third] = Log()
    site.run(given, partitions=[None, None, None, None, None, 2])
    assert site.run(given, partitions=[None, None, None, None, None, 2]).found_rows == 6
    assert site.counts() == counted(given)
    assert [each.record for each in site.topics.logs[third].entries] == [given[5][1]]


def test_a_topic_that_grows_between_the_marks_of_two_tasks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Task 1 finds more partitions than task 0, which had not set its marks yet, and ends before it does."""
    site, other = Site(t=2), Site()
    other.topics = site.topics
    called = MemorySink._called

    def and_the_topic_grows(self: MemorySink, call: str) -> None:
        if self.identity.task == 0 and call == "set_marks":
            site.topics.logs |= {TopicPartition(T, number): Log() for number in (2, 3)}
            other.run(rows(*range(4)), TaskIdentity("query.q", 7, 1))
        called(self, call)

    monkeypatch.setattr(MemorySink, "_called", and_the_topic_grows)
    site.run(rows(8, 9))
    for task, again in enumerate([rows(8, 9), rows(*range(4))]):
        with pytest.raises(RowsChanged, match="grew from 2 to 4 partitions while this write began"):
            other.run(again, TaskIdentity("query.q", 7, task))
    assert site.counts() == counted(rows(8, 9, *range(4)))


@pytest.mark.parametrize("seed", range(200))
def test_rows_stand_once_or_there_is_an_error_where_a_topic_grows_while_tasks_begin(seed: int) -> None:
    site = Site(seed, t=2)
    given = [rows(*(site.random.randrange(1000) for _ in range(5))) for _ in range(2)]
    left, is_grown = {0, 1}, []

    def grow() -> None:
        for _ in range(site.random.randrange(6)):
            site.turns.pass_on("grow")
        for number in (2, 3, 4):
            site.topics.logs[TopicPartition(T, number)] = Log()
        is_grown.append(True)

    while left and not site.failed:
        round_ = len(site.sinks)
        attempts = {
            f"{task}r{round_}": site.attempt(f"{task}r{round_}", given[task], TaskIdentity("query.q", 7, task))
            for task in left
        }
        mortality = dict.fromkeys(attempts, 0.15 if round_ < 20 else 0.0)
        site.turns.run(attempts if is_grown else attempts | {"grow": grow}, mortality)
        left -= {int(name[0]) for name in site.finished}
    if site.failed:
        assert {type(error) for error in site.failed.values()} == {RowsChanged}
    else:
        assert site.counts() == counted(given[0] + given[1])


def test_timestamps_tell_rows_apart_unless_the_topic_puts_its_own() -> None:
    given = [(T, (b"k", b"v", (), at)) for at in (5, 6, 7)]
    for uses_append_time in (False, True):
        site = Site(t=1)
        site.topics.logs[T0].uses_append_time = uses_append_time
        site.run(given[1:], has_timestamps=True)
        assert site.run(given, has_timestamps=True).found_rows == 2
        stamps = sorted(each.record[3] for each in site.topics.logs[T0].entries)
        assert stamps == ([6, 7, 7] if uses_append_time else [5, 6, 7])


def test_rows_that_are_not_committed_yet_are_waited_for() -> None:
    site = Site(t=1)
    site.run(rows(1, 2, 3))
    site.topics.logs[T0].uncommitted = 2
    assert site.run(rows(1, 2, 3)).found_rows == 3


def test_a_leader_that_lost_acknowledged_rows_is_an_error_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(t=1)
    began_ms = site.topics.now_ms
    land = Delivery.land

    def land_and_lose(self: Delivery) -> None:
        land(self)
        if len(self._cluster.topics.logs[T0].entries) >= 8:
            self._cluster.topics.logs[T0].states[ME.producer_id] = (ME.epoch, 2)

    monkeypatch.setattr(Delivery, "land", land_and_lose)
    with pytest.raises(WriteFailed, match=r"t-0 lacks \d+ rows of task 0 that it has acknowledged"):
        site.run(rows(*range(30)))
    assert site.topics.now_ms - began_ms > PATIENCE_MS


def test_what_is_not_acknowledged_in_time_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(t=1)
    monkeypatch.setattr(
        Delivery, "exception", lambda self: DeliveryTimeout("not acknowledged in 5 ms", outcome_unknown=True)
    )
    with pytest.raises(WriteFailed, match="not acknowledged in 5 ms"):
        site.run(rows(1))


# --- how the rows are divided ---


def driver(site: Site) -> MemorySink:
    sink = MemorySink(site.topics, site.turns, "driver", ME)
    sink.turn = lambda: None  # it is alone
    return sink


def run_both_topics(site: Site, *, run: str = "run-1") -> OnceWriter:
    return site.run(rows(1, 2, 3) + rows(4, 5, topic="u"), run=run)


@pytest.mark.parametrize("are_forgotten", [False, True])
def test_rows_that_moved_from_one_task_to_another_between_two_runs_are_an_error(are_forgotten: bool) -> None:
    site = Site()
    for task in range(2):
        site.run(rows(task), TaskIdentity("query.q", 7, task))
    if are_forgotten:
        for log in site.topics.logs.values():
            log.states.clear()
        site.topics.now_ms += DAY_MS
    site.run(rows(0, 1), run="run-2")
    sink = driver(site)
    with pytest.raises(RowsChanged, match="task 1 of an earlier run wrote rows to 't' and has none of it now"):
        check_tasks(sink, ME, {0: [T]})
    check_tasks(sink, ME, {0: [T], 1: [T]})


def test_nobody_can_tell_how_rows_were_divided_that_leaders_have_forgotten_and_the_log_has_lost() -> None:
    site = Site(t=1)
    site.run(rows(1, 2, 3))
    sink = driver(site)
    log = site.topics.logs[T0]
    log.start = 1
    check_tasks(sink, ME, {0: [T]})
    site.topics.now_ms += DAY_MS
    with pytest.raises(WrittenRowsGone, match="t-0 does not have all records from offset 0 on any more"):
        check_tasks(sink, ME, {0: [T]})
    log.start, log.entries[1] = 0, None
    with pytest.raises(WrittenRowsGone):
        check_tasks(sink, ME, {0: [T]})


@pytest.mark.parametrize("are_forgotten", [False, True])
def test_rows_that_went_to_another_topic_the_last_time_are_an_error(are_forgotten: bool) -> None:
    """The option or the column that names the topic was changed: both topics have the rows now."""
    site = Site(t=3, u=1)
    assert not site.run(rows(1, 2, 3)).is_repeated
    if are_forgotten:
        for log in site.topics.logs.values():
            log.states.clear()
        site.topics.now_ms += DAY_MS
    again = site.run(rows(1, 2, 3, topic="u"), run="run-2")
    assert site.counts() == counted(rows(1, 2, 3) + rows(1, 2, 3, topic="u"))
    assert again.is_repeated
    with pytest.raises(RowsChanged, match="task 0 of an earlier run wrote rows to 't' and has none of it now"):
        check_tasks(driver(site), ME, {0: again.topics})


def test_a_write_that_has_no_row_any_more_is_an_error() -> None:
    site = Site(t=3, u=1)
    check_tasks(driver(site), ME, {0: []})
    site.run(rows(1, 2, 3), TaskIdentity("query.q", 6, 0))
    site.topics.now_ms += DAY_MS
    for log in site.topics.logs.values():
        log.start = len(log.entries)
    check_tasks(driver(site), ME, {0: []})
    site.run(rows(1, 2, 3))
    with pytest.raises(RowsChanged, match="task 0 of an earlier run wrote rows to 't' and has none of it now"):
        check_tasks(driver(site), ME, {0: []})


def test_one_topic_fewer_than_the_last_time_is_an_error() -> None:
    site = Site(t=3, u=1)
    run_both_topics(site)
    again = site.run(rows(1, 2, 3), run="run-2")
    with pytest.raises(RowsChanged, match="wrote rows to 'u' and has none of it now"):
        check_tasks(driver(site), ME, {0: again.topics})
    check_tasks(driver(site), ME, {0: run_both_topics(site, run="run-3").topics})


def test_marks_of_a_run_that_died_before_it_wrote_are_no_error() -> None:
    site = Site(t=3, u=1)
    site.run(rows(1, 2, 3))
    for log in site.topics.logs.values():
        log.entries, log.states = [], {}
    again = site.run(rows(1, 2, 3, topic="u"), run="run-2")
    assert again.is_repeated
    check_tasks(driver(site), ME, {0: again.topics})
    site.topics.now_ms += DAY_MS
    check_tasks(driver(site), ME, {0: again.topics})


@pytest.mark.parametrize("is_created_anew", [False, True])
def test_a_topic_that_was_deleted_since_its_rows_were_written_does_not_matter(is_created_anew: bool) -> None:
    """Its marks may stay behind. The other topic has the rows once."""
    site = Site(t=3, u=1)
    site.topics.ids[T] = b"1" * 16
    site.run(rows(1, 2, 3))
    for at in [each for each in site.topics.logs if each.topic == T]:
        del site.topics.logs[at]
    if is_created_anew:
        site.topics.ids[T] = b"2" * 16
        site.topics.logs[T0] = Log(start=3, entries=[Entry(-1, -1, -1, (None, b"another"))] * 5)
    topics = {at.topic for at in site.topics.logs}
    again = site.run(rows(1, 2, 3, topic="u"), run="run-2")
    check_tasks(driver(site), ME, {0: again.topics})
    site.topics.now_ms += DAY_MS
    check_tasks(driver(site), ME, {0: again.topics})
    assert {at.topic for at in site.topics.logs} == topics


def test_all_marks_are_asked_for_with_the_first_topic_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task may write to thousands of topics, and each has marks."""
    site = Site(t=2, u=1)
    asked: list[Any] = []
    marks = MemorySink.marks

    def noted(self: MemorySink, partitions: Sequence[TopicPartition] | None) -> Any:
        asked.append(partitions)
        return marks(self, partitions)

    monkeypatch.setattr(MemorySink, "marks", noted)
    run_both_topics(site)
    assert asked == [None, [TopicPartition("u", 0)]]
