"""What a task of a restore does: it brings partitions to what the archive holds of them, each record once.

The sequence of a record is its number in the partition, under an identity that belongs to the topic (`producer_id_of`),
and a leader takes only the number that follows. So of all that bring up one partition at the same time (a retry, a
speculative copy, tasks of a run before whose driver died) one writes each record, and the others are told
(SequenceTaken). All of them have the same records in the same order. An attempt

  1 looks where the partition ends now, and compares what is there with the beginning of the archive,
  2 writes what follows, chunk by chunk, until one is not acknowledged as a whole,
  3 where a number was taken, goes back to 1 with the records that have no answer.

Nothing follows a record that failed: its number is not taken, so leaders refuse those behind it; and a record that the
producer may refuse itself is the last one of its chunk. So the partition always holds a beginning of the archive.

It rests on leaders that remember the identity (producer.id.expiration.ms, a day): no attempt may sleep for longer
between looking and writing while others write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicId, TopicPartition
from strandline.spark_connector.errors import RestoreFailed, RestoreRefused
from strandline.spark_connector.options.request import SourceOptions
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.reading.planning import OffsetRange
from strandline.spark_connector.writing.identity import made_up_id
from strandline.spark_connector.writing.patience import PATIENCE_MS, Patience

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline import Producer
    from strandline.spark_connector.reading.cluster import ClusterClient

RECORDS_PER_CHUNK = 10_000
BYTES_PER_CHUNK = 8 << 20
"""So much is under way before its offsets are checked."""

HEADER_BYTES = 20
"""More than a header takes beside its key and value."""

PAUSE_S = 0.1

TASK_SCHEMA = "partition int, records bigint, data_bytes bigint"


class Row(NamedTuple):
    """What a record is, wherever it stands; as a producer takes it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class PartitionLog(Protocol):
    """One partition of the topic as one attempt sees it; `TopicLog` is the real one. Raises ClientError."""

    partition: TopicPartition
    chunk_bytes: int
    """A record that the producer may refuse for its size is at least as large."""

    def end(self) -> int:
        """The high watermark. RestoreRefused where the partition does not begin at 0."""

    def read(self, start: int, end: int) -> Iterator[Row]:
        """All records of [start, end). RestoreRefused where an offset has none."""

    def append(self, rows: Sequence[Row], first_number: int) -> int:
        """How many of them are acknowledged, from the first on; fewer: a number behind them is taken. RestoreFailed,
        and RestoreRefused where one stands at an offset that is not its number."""

    def now_ms(self) -> int:
        """Wall clock."""

    def pause(self) -> None:
        """Let others write, and leaders hear of it."""


def producer_id_of(topic: str, topic_id: TopicId) -> int:
    """The same for whoever restores into the topic, so that none of them can write a number that another has written;
    another one for a topic that is created anew."""
    return made_up_id(f"restore\0{topic}\0{topic_id.hex()}")


# --- The rule --------------------------------------------------------------------------------------------------


class PutBack(Iterator[Row]):
    """Rows of which the last ones can be put back."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = iter(rows)
        self._back: deque[Row] = deque()

    def __next__(self) -> Row:
        return self._back.popleft() if self._back else next(self._rows)

    def put_back(self, rows: Sequence[Row]) -> None:
        self._back.extendleft(reversed(rows))

    def chunk(self, most_bytes: int) -> list[Row]:
        """The next ones, as many as are written together; empty at the end."""
        chunk: list[Row] = []
        size = 0
        while len(chunk) < RECORDS_PER_CHUNK and size < most_bytes:
            row = next(self, None)
            if row is None:
                break
            chunk.append(row)
            size += size_of(row)
        return chunk


def bring_up(archived: Iterable[Row], log: PartitionLog) -> int:
    """Until the partition holds all of `archived`; returns how many records that are. RestoreRefused where it holds
    something else, RestoreFailed, ClientError."""
    rows, number, patience = PutBack(archived), 0, Patience(log)
    while True:
        before = number
        for there in log.read(number, log.end()):
            if next(rows, None) != there:
                raise RestoreRefused(
                    f"{log.partition} holds something else at offset {number} than the archive; restore into another "
                    "topic"
                )
            number += 1
        while chunk := rows.chunk(log.chunk_bytes):
            acknowledged = log.append(chunk, number)
            number += acknowledged
            if acknowledged < len(chunk):
                rows.put_back(chunk[acknowledged:])
                break
        else:
            return number
        if number > before:
            patience.end()
        else:  # what another attempt wrote is not committed yet, or who told us of the end was just deposed
            patience.wait(
                RestoreFailed(
                    f"{log.partition} refuses number {number} of this restore as taken, though nothing could be read "
                    f"at offset {number} for {PATIENCE_MS // 1000} s. If replicas are away ('strandline topics "
                    f"--describe --topic {log.partition.topic}'), bring them back and resume the restore (--resume); "
                    "else somebody else wrote to the topic between two restores: restore into another one"
                )
            )


# --- On an executor --------------------------------------------------------------------------------------------


class RestoreTask:
    """Runs on executors: some partitions one after another. `found`: partition → how many records it held when the
    driver planned; they do not count in `data_bytes`."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        producer_id: int,
        producer_settings: Mapping[str, Any],
        found: Mapping[int, int],
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._producer_id = producer_id
        self._producer_settings = dict(producer_settings)
        self._found = dict(found)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from strandline.spark_connector.reading.cluster import ClusterClient

        options = source_options(self._bootstrap_servers, self._topic)
        settings = {"bootstrap_servers": self._bootstrap_servers, **self._producer_settings}
        with ClusterClient(options) as cluster:
            for partition, numbered in groupby(_rows(batches), key=lambda each: each[0]):
                sizes = _Sizes((row for _, row in numbered), self._found.get(partition, 0))
                at = TopicPartition(self._topic, partition)
                with closing(TopicLog(at, options, cluster, self._producer_id, settings)) as log:
                    records = bring_up(sizes, log)
                answer = {
                    "partition": pa.array([partition], pa.int32()),
                    "records": pa.array([records], pa.int64()),
                    "data_bytes": pa.array([sizes.data_bytes], pa.int64()),
                }
                yield pa.RecordBatch.from_pydict(answer)


def source_options(bootstrap_servers: str, topic: str) -> SourceOptions:
    """For reading back."""
    return parse_options({"servers": bootstrap_servers, "subscribe": topic, "includeHeaders": "true"})


class _Sizes:
    """Rows, and how many bytes of keys and values came by behind the first ones."""

    def __init__(self, rows: Iterable[Row], first_number: int) -> None:
        self._rows = rows
        self._first_number = first_number
        self.data_bytes = 0

    def __iter__(self) -> Iterator[Row]:
        for number, row in enumerate(self._rows):
            if number >= self._first_number:
                self.data_bytes += len(row.key or b"") + len(row.value or b"")
            yield row


class TopicLog:
    """Implements `PartitionLog` over the synchronous clients; to be closed. Nothing is decided here."""

    def __init__(
        self,
        partition: TopicPartition,
        options: SourceOptions,
        cluster: ClusterClient,
        producer_id: int,
        producer_settings: Mapping[str, Any],
    ) -> None:
        """The cluster stays open. InvalidClientConfig."""
        from strandline.client.settings import ProducerSettings, from_mapping
        from strandline.runtime.client_environment import production_client_environment

        self.partition = partition
        self._options = options
        self._cluster = cluster
        self._producer_id = producer_id
        self._settings = dict(producer_settings)
        self.chunk_bytes = min(BYTES_PER_CHUNK, from_mapping(ProducerSettings, self._settings).max_request_size // 2)
        self._producer: Producer | None = None
        self._clock = production_client_environment().wall_clock

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            from strandline.client.errors import FlushTimedOut, SendsFailed

            with suppress(FlushTimedOut, SendsFailed):  # who is under way is known to have failed
                producer.close(timeout=0.0)

    def end(self) -> int:
        held = self._cluster.held([self.partition])[self.partition]
        if held.earliest:
            raise RestoreRefused(
                f"{self.partition} begins at offset {held.earliest}: its first records were deleted, so it cannot be "
                "compared with the archive; restore into another topic"
            )
        return held.latest

    def read(self, start: int, end: int) -> Iterator[Row]:
        from strandline.spark_connector.reading.reader import read

        wanted = OffsetRange(*self.partition, start, end)
        expected = start
        for batch in read(self._options, wanted, self._cluster, print):
            for offset, row in zip(batch["offset"].to_pylist(), rows_of(batch), strict=True):
                if offset != expected:
                    break
                expected += 1
                yield row
        if expected < end:
            raise RestoreRefused(
                f"{self.partition} holds no record at offset {expected}: it was compacted, or written by somebody "
                "else; restore into another topic"
            )

    def append(self, rows: Sequence[Row], first_number: int) -> int:
        from strandline.client.errors import SequenceTaken

        topic, number = self.partition
        if self._producer is None:
            self._producer = self._open(first_number)
        # All together: what keeps one out keeps out those behind it, but for a record that is too large.
        sent = self._producer.send_many(topic, rows, number)
        error = sent.exception()
        expected = first_number
        for batch in sorted(sent.batches, key=lambda each: each.base_offset):
            if batch.base_offset != expected:
                raise RestoreRefused(
                    f"A record of {self.partition} was to get offset {expected} and got {batch.base_offset}: somebody "
                    "else writes to the topic. Delete it, and restore again while nobody writes"
                )
            expected += batch.records_count
        if error is not None:
            self.close()
            if not isinstance(error, SequenceTaken):
                raise _failure(self.partition, error, expected) from error
        return int(sent.delivered_records)

    def _open(self, first_number: int) -> Producer:
        from strandline import Producer
        from strandline.client import ProducerIdentity
        from strandline.client.identity import SEQUENCES

        identity = ProducerIdentity(self._producer_id, 0, {self.partition: first_number % SEQUENCES})
        return Producer(**{**self._settings, "identity": identity})

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def pause(self) -> None:
        from strandline.runtime.clock import pause

        pause(PAUSE_S)


def _failure(partition: TopicPartition, error: BaseException, number: int) -> BaseException:
    """Of records from this number on."""
    from strandline.client.errors import ClientError

    if not isinstance(error, ClientError):
        return error
    remedy = "resume the restore (--resume) once that is mended"
    code = getattr(getattr(error, "cause", None), "code", None)
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        remedy = (
            f"raise that ('strandline configs alter --topic {partition.topic} --add max.message.bytes=…'), and resume "
            "the restore (--resume)"
        )
    return RestoreFailed(
        f"Records from number {number} on could not be written to {partition}, and nothing was written behind them: "
        f"{error}; {remedy}"
    )


# --- Rows ------------------------------------------------------------------------------------------------------


def size_of(row: Row) -> int:
    """Of a record, but for what it has beside key, value and headers."""
    headers = sum(4 * len(key) + len(value or b"") + HEADER_BYTES for key, value in row.headers)
    return len(row.key or b"") + len(row.value or b"") + headers


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Row]]:
    """(partition, row), in order."""
    for batch in batches:
        yield from zip(batch["partition"].to_pylist(), rows_of(batch), strict=True)


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """The records of a batch that has the columns of the source."""
    import pyarrow as pa

    columns = (
        batch["key"].to_pylist(),
        batch["value"].to_pylist(),
        batch["headers"].to_pylist(),
        batch["timestamp"].cast(pa.int64()).to_pylist(),
    )
    for key, value, headers, timestamp_us in zip(*columns, strict=True):
        listed = tuple((each["key"], each["value"]) for each in headers or ())
        yield Row(key, value, listed, timestamp_us // 1000)
