"""A restore: what is there is compared, the rest appended in order; whatever could double is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import RestoreRefused
from strandline.spark_connector.options.request import COLUMNS, HEADERS
from strandline.spark_connector.pipelines import restore
from strandline.spark_connector.pipelines.restore import (
    PartitionWriter,
    RestoreOptions,
    Row,
    append_rest,
    check_present,
)
from strandline.spark_connector.reading.arrow import arrow_schema, timestamps
from strandline.spark_connector.reading.planning import Held

T0 = TopicPartition("t", 0)
ROWS = [Row(None, b"%d" % number, (("h", None),) if number % 2 else (), number) for number in range(25)]


@given(some.integers(0, 25), some.integers(1, 30))
def test_what_is_there_counts_and_the_rest_follows_in_order(present: int, per_flush: int) -> None:
    appended: dict[int, list[Row]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restore, "RECORDS_PER_FLUSH", per_flush)
        done = append_rest(T0, iter(ROWS), iter(ROWS[:present]), lambda rows, at: appended.update({at: list(rows)}))
    assert done == (present, 25 - present)
    assert [row for _, rows in sorted(appended.items()) for row in rows] == ROWS[present:]
    assert all(rows == ROWS[at : at + len(rows)] and 0 < len(rows) <= per_flush for at, rows in appended.items())


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
    with pytest.raises(RestoreRefused, match="t-0 holds something else at offset 1"):
        append_rest(T0, iter(ROWS), iter([ROWS[0], other]), lambda rows, at: pytest.fail("written"))
    with pytest.raises(RestoreRefused, match="something else at offset 1"):
        append_rest(T0, iter(ROWS[:1]), iter(ROWS[:2]), lambda rows, at: pytest.fail("written"))


def test_columns_become_rows_and_nulls_stay() -> None:
    columns = {
        "key": [row.key for row in ROWS],
        "value": [row.value for row in ROWS],
        "timestamp": timestamps([row.timestamp_ms for row in ROWS]),
        "headers": [[{"key": key, "value": value} for key, value in row.headers] or None for row in ROWS],
    }
    schema = arrow_schema((*COLUMNS, HEADERS))
    batch = pa.RecordBatch.from_pydict(columns, pa.schema([schema.field(name) for name in columns]))
    assert list(restore.rows_of(batch)) == ROWS


class Broker:
    """Gives out offsets from `first` on; stands for a producer."""

    def __init__(self, first: int) -> None:
        self.offsets: Iterator[int] = iter(range(first, first + 100))
        self.sent: list[Any] = []

    def send(self, topic: str, value: bytes, **fields: Any) -> Future[Any]:
        self.sent.append((topic, value, fields))
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=next(self.offsets)))
        return answer


def test_each_record_must_get_the_offset_that_follows() -> None:
    broker = Broker(5)
    writer = PartitionWriter(broker, T0)
    writer.append(ROWS[5:10], 5)
    topic, value, fields = broker.sent[0]
    assert (topic, value, fields) == (
        "t",
        b"5",
        {"key": None, "partition": 0, "headers": (("h", None),), "timestamp_ms": 5},
    )
    assert writer.data_bytes == 5
    with pytest.raises(RestoreRefused, match="was to get offset 10 and got 12: somebody else writes"):
        PartitionWriter(Broker(12), T0).append(ROWS[10:12], 10)


@pytest.mark.parametrize(
    ("held", "resume", "told"),
    [
        (Held(0, 1), False, "t-0 is not empty"),
        (Held(3, 3), False, "t-0 is not empty"),
        (Held(3, 3), True, "begins at offset 3"),
        (Held(0, 4), True, "holds 4 records, the archive only 3"),
        (Held(0, 3), True, None),
        (Held(0, 0), False, None),
    ],
)
def test_only_an_empty_topic_or_the_beginning_of_the_archive_is_taken(
    held: Held, resume: bool, told: str | None
) -> None:
    options = RestoreOptions("localhost:1", "/d", "t", resume=resume)
    if told is None:
        check_present({0: held}, {0: 3}, options)
    else:
        with pytest.raises(RestoreRefused, match=told):
            check_present({0: held}, {0: 3}, options)
