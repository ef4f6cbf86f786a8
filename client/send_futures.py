"""What becomes of records, as threads ask for it: the futures of `Producer.send` and `send_many`.

There is one future per record, so little is done for each. It is its own letter to the loop: it brings key and value
along, and where they go. Records that were sent one after the other to the same place, with the same headers and in the
same millisecond are accepted together, as a run. When a batch is acknowledged each of its futures is given the batch
and its index there; where the record stands is worked out when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from strandline.client.accumulator import Header, KeyAndValue
from strandline.client.delivery import DeliveredBatch, RecordMetadata, RecordsSink, record_metadata
from strandline.client.elsewhere import OF_FUTURES, answers_names_of_others
from strandline.client.errors import NotSettledYet
from strandline.client.record_sizes import content_bytes
from strandline.client.unread_failures import Tally, Unread
from strandline.runtime.processes.outcomes import Outcome


class Where(NamedTuple):
    """What records of one run have in common."""

    topic: str
    timestamp_ms: int
    partition: int | None
    is_keyed: bool
    headers: tuple[Header, ...]
    deadline_s: float
    """How long who asks for the outcome waits."""
    overhead_bytes: int
    """What each takes while it waits, beside key and value."""


@answers_names_of_others(OF_FUTURES)
class SendFuture(Outcome[RecordMetadata]):
    """What becomes of one record: a `concurrent.futures.Future` of where it stands.

    `result` raises DeliveryFailed (DeliveryTimeout, …) or what else kept the record out; `exception` returns that. Both
    wait `timeout` seconds (default: as long as delivery can take), then NotSettledYet. Callbacks run in the event
    loop's thread: they must be quick. They may send, which never waits there; what would wait for a client raises a
    RuntimeError."""

    __slots__ = ("_batch", "_index", "_is_settled", "pair", "where")
    where: Where
    pair: KeyAndValue | None
    """Key and value, until it is encoded."""
    _batch: DeliveredBatch
    """Once it is delivered."""
    _index: int

    @property
    def _result(self) -> RecordMetadata | None:  # type: ignore[override]
        if not self._is_settled or self._exception is not None:
            return None
        return record_metadata(self._batch, self._index, self.where.timestamp_ms)

    @property
    def _patience_s(self) -> float:  # type: ignore[override]
        return self.where.deadline_s

    def _too_late(self, timeout: float | None) -> Exception:
        return NotSettledYet(f"the record's outcome is not known after {timeout:g} s; it is still on its way")


_make: Callable[[type[SendFuture]], SendFuture] = SendFuture.__new__


def send_future(where: Where, pair: KeyAndValue) -> SendFuture:
    """A new one; quicker than a call of the class."""
    future = _make(SendFuture)
    future.where = where
    future.pair = pair
    future._is_settled = False
    return future


class Run:
    """Futures of records of one run, or of those of them that go to one partition."""

    __slots__ = ("futures",)

    def __init__(self, futures: Sequence[SendFuture]) -> None:
        self.futures = futures

    def __len__(self) -> int:
        return len(self.futures)

    def records(self) -> list[KeyAndValue]:
        """To be encoded, in order."""
        return [future.pair for future in self.futures]  # type: ignore[misc]  # not settled yet

    def forget_records(self) -> None:
        """They are encoded, or refused."""
        for future in self.futures:
            future.pair = None

    @property
    def waiting_bytes(self) -> int:
        """What they take until they are encoded."""
        return content_bytes(self.records()) + len(self.futures) * self.futures[0].where.overhead_bytes

    def delivered(self, batch: DeliveredBatch, first_index: int, count: int, start: int) -> None:
        for index, future in enumerate(self.futures[start : start + count], first_index):
            future._batch = batch
            future._index = index
            future._is_settled = True
            if future._listeners:
                future.tell()

    def failed(self, error: Exception, count: int, start: int) -> None:
        for future in self.futures[start : start + count]:
            future.settle(None, error)

    def count_as_told(self, count: int, start: int) -> None:
        for future in self.futures[start : start + count]:
            future._is_read = True

    def take_unread(self) -> Unread:
        return self._counted(self._take())

    def move_unread(self, tally: Tally) -> None:
        taken = self._take()
        tally.add(self._counted(taken))
        for each in taken:
            each._on_read = tally.forget

    def has_unread(self) -> bool:
        return any(each._exception is not None and not each._is_read for each in self.futures)

    def _take(self) -> list[SendFuture]:
        """Those that failed, and for which nobody has asked or is waiting; they count as read."""
        unread = [each for each in self.futures if each._exception is not None and not (each._is_read or each._asking)]
        for each in unread:
            each._is_read = True
        return unread

    @staticmethod
    def _counted(unread: Sequence[SendFuture]) -> Unread:
        first = unread[0]._exception if unread else None
        return Unread(len(unread), first if isinstance(first, Exception) else None)


def waiting_bytes(where: Where | None, letters: Sequence[Any]) -> int:
    """What they take until they are encoded: futures of one run, or one letter of another kind."""
    size_bytes: int = letters[0].size_bytes if where is None else Run(letters).waiting_bytes
    return size_bytes


class SendManyFuture(RecordsSink, Outcome[list[DeliveredBatch]]):
    """What becomes of the records of one `send_many`: the batches that hold them, once all are settled; the first
    failure is raised. Otherwise as `SendFuture`."""

    def __init__(self, deadline_s: float, expected: int) -> None:
        self._patience_s = deadline_s
        super().__init__(expected)

    def _settle(self) -> None:
        self.settle(self.batches, self.error)

    def _too_late(self, timeout: float | None) -> Exception:
        return NotSettledYet(f"{self.open_records} records are not settled after {timeout:g} s")
