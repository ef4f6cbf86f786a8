"""A task of a restore: however many attempts bring up one partition, each record stands there once and in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from strandline.client.errors import ClientError, DeliveryFailed, RecordTooLarge, SequenceTaken, error_for
from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import RestoreFailed, RestoreRefused
from strandline.spark_connector.options.request import COLUMNS, HEADERS
from strandline.spark_connector.pipelines import restore_task
from strandline.spark_connector.pipelines.restore_task import (
    PutBack,
    Row,
    TopicLog,
    bring_up,
    producer_id_of,
    rows_of,
    size_of,
    source_options,
)
from strandline.spark_connector.reading.arrow import arrow_schema, timestamps
from strandline.spark_connector.writing.identity import MAX_TASKS, TaskIdentity
from strandline.spark_connector.writing.patience import PATIENCE_MS

T0 = TopicPartition("t", 0)
ROWS = [Row(None, b"%d" % number, (("h", None),) if number % 2 else (), number) for number in range(25)]


class Log:
    """A partition that some attempts write. `others`: how many records other attempts write before each chunk of ours,
    and within it; where that runs out they are dead. `unseen`: of the last records, not committed yet."""

    partition = T0
    chunk_bytes = 1_000

    def __init__(self, present: Sequence[Row] = (), others: Sequence[tuple[int, int]] = (), unseen: int = 0) -> None:
        self.rows = list(present)
        self.others = list(others)
        self.unseen = unseen
        self.paused_ms = 0
        self.refuses = False

    def end(self) -> int:
        return max(0, len(self.rows) - self.unseen)

    def read(self, start: int, end: int) -> Iterator[Row]:
        yield from self.rows[start:end]

    def append(self, rows: Sequence[Row], first_number: int) -> int:
        before, within = self.others.pop(0) if self.others else (0, 0)
        self._others_write(before)
        if self.refuses or first_number != len(self.rows):
            return 0
        taken = len(rows) if not within else max(0, len(rows) - within)
        self.rows += rows[:taken]
        self._others_write(within)
        return taken

    def _others_write(self, count: int) -> None:
        self.rows += ROWS[len(self.rows) : len(self.rows) + count]

    def now_ms(self) -> int:
        return self.paused_ms

    def pause(self) -> None:
        self.paused_ms += 100
        self.unseen = max(0, self.unseen - 1)


@given(
    some.integers(0, 25),
    some.integers(1, 30),
    some.lists(some.tuples(some.integers(0, 8), some.integers(0, 8)), max_size=12),
    some.integers(0, 3),
)
def test_whatever_other_attempts_write_meanwhile_each_record_stands_once(
    present: int, per_chunk: int, others: list[tuple[int, int]], unseen: int
) -> None:
    log = Log(ROWS[:present], others, unseen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restore_task, "RECORDS_PER_CHUNK", per_chunk)
        assert bring_up(iter(ROWS), log) == 25
    assert log.rows == ROWS


@pytest.mark.parametrize(
    "other",
    [
        Row(b"", b"1", (("h", None),), 1),
        Row(None, None, (("h", None),), 1),
        Row(None, b"1", (), 1),
        Row(None, b"1", (("h", None),), 2),
    ],
)
def test_a_difference_in_anything_is_refused_before_anything_is_written(other: Row) -> None:
    for archived, present in ((ROWS, [ROWS[0], other]), (ROWS[:1], ROWS[:2])):
        log = Log(present)
        with pytest.raises(RestoreRefused, match="t-0 holds something else at offset 1"):
            bring_up(iter(archived), log)
        assert log.rows == present


def test_numbers_that_stay_refused_end_in_an_error() -> None:
    log = Log(ROWS[:3])
    log.refuses = True
    with pytest.raises(RestoreFailed, match="refuses number 3 of this restore as taken, though nothing could be read"):
        bring_up(iter(ROWS), log)
    assert log.rows == ROWS[:3] and log.paused_ms > PATIENCE_MS


def test_a_record_that_may_be_refused_for_its_size_ends_its_chunk() -> None:
    large = Row(b"k", b"x" * 100, (("h", b"y" * 50),), 1)
    rows = PutBack([ROWS[0], large, ROWS[1]])
    assert rows.chunk(size_of(large)) == [ROWS[0], large]
    assert rows.chunk(size_of(large)) == [ROWS[1]]
    assert rows.chunk(size_of(large)) == []


def test_who_restores_into_a_topic_has_its_identity_and_no_sink_has_it() -> None:
    mine = producer_id_of("t", b"\1" * 16)
    assert mine == producer_id_of("t", b"\1" * 16) >= 2**62
    assert mine % MAX_TASKS == 0 and mine not in (producer_id_of("t", b"\2" * 16), producer_id_of("u", b"\1" * 16))
    assert mine != TaskIdentity("restore", 0, 0).producer_id


def test_columns_become_rows_and_nulls_stay() -> None:
    columns = {
        "key": [row.key for row in ROWS],
        "value": [row.value for row in ROWS],
        "timestamp": timestamps([row.timestamp_ms for row in ROWS]),
        "headers": [[{"key": key, "value": value} for key, value in row.headers] or None for row in ROWS],
    }
    schema = arrow_schema((*COLUMNS, HEADERS))
    batch = pa.RecordBatch.from_pydict(columns, pa.schema([schema.field(name) for name in columns]))
    assert list(rows_of(batch)) == ROWS


# --- What a producer says --------------------------------------------------------------------------------------


class Opened(TopicLog):
    """Its producer answers with the batches (first offset, records) and the error that it is given."""

    def __init__(self, *batches: tuple[int, int], error: Exception | None = None) -> None:
        options = source_options("localhost:1", "t")
        super().__init__(T0, options, None, 7, {"bootstrap_servers": "localhost:1"})
        self.answer = SimpleNamespace(
            batches=[SimpleNamespace(base_offset=first, records_count=count) for first, count in batches],
            delivered_records=sum(count for _, count in batches),
            exception=lambda: error,
        )
        self.sent: list[Any] = []
        self.opened_at: list[int] = []
        self.closed = 0

    def _open(self, first_number: int) -> Any:
        self.opened_at.append(first_number)
        return self

    def send_many(self, topic: str, rows: Sequence[Row], partition: int) -> Any:
        self.sent.append((topic, partition, rows))
        return self.answer

    def close(self, timeout: float | None = None) -> None:
        self.closed += 1
        self._producer = None


def test_records_that_stand_where_they_should_are_acknowledged() -> None:
    log = Opened((7, 3), (5, 2))
    assert log.append(ROWS[5:10], 5) == 5
    assert log.sent == [("t", 0, ROWS[5:10])] and log.opened_at == [5] and not log.closed


def test_each_record_must_get_the_offset_that_follows() -> None:
    with pytest.raises(RestoreRefused, match="was to get offset 10 and got 12: somebody else writes"):
        Opened((12, 2)).append(ROWS[10:12], 10)


def test_behind_a_number_that_is_taken_the_next_producer_begins_where_the_partition_ends() -> None:
    log = Opened((5, 2), error=SequenceTaken("taken", outcome_unknown=False))
    assert log.append(ROWS[5:10], 5) == 2 and log.closed == 1
    log.append(ROWS[8:10], 5)
    assert log.opened_at == [5, 5]


TOO_LARGE = DeliveryFailed("too large", outcome_unknown=False, cause=error_for(10, "producing"))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TOO_LARGE, "'strandline configs alter --topic t --add max.message.bytes=…'), and resume the restore"),
        (DeliveryFailed("too late", outcome_unknown=True), "too late; resume the restore"),
        (RecordTooLarge("larger than max_request_size"), "larger than max_request_size; resume the restore"),
    ],
)
def test_a_record_that_fails_ends_the_partition_with_the_remedy(error: ClientError, told: str) -> None:
    log = Opened((5, 2), error=error)
    with pytest.raises(RestoreFailed) as caught:
        log.append(ROWS[5:10], 5)
    assert told in str(caught.value) and "from number 7 on" in str(caught.value) and log.closed == 1
