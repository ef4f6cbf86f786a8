"""Oracles of the high watermark, at the moment when a broker goes by it (safety.md §1: 8, 9, 15, 16, 19).

| watched | must hold |
|---|---|
| a leader raises it | no further than the log of the next leader reached when he began, if there is one (16) |
| a leader raises it | with as many in sync as `min.insync.replicas` wants, or as there are replicas (15) |
| acks=all is acknowledged | by who leads, and not beyond it (15) |
| a client is told of it | no more than a leader has used (9), nor less than this one or one before him had told (8) |
| a consumer reads | no further (9) |
| a log begins elsewhere | not above the highest that a leader has ever used (19) |
| anything of these | log start ≤ high watermark ≤ log end, and no leader has used less (19) |

A leader that has been replaced and does not know it may go on with what it had: its followers' fetches of before may
still arrive, and what they acknowledge the next leader has. Nor does it know what that one told: so clients of two
leaders are not compared, but each leader with those before it. Where nobody else can be elected there is no next
leader, and a leader alone in sync may go on without ZooKeeper. What a disaster took is not promised any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from strandline.broker.handlers.fetch_reads import FetchReads
from strandline.broker.handlers.fetch_sessions import Read
from strandline.broker.handlers.produce import ACKS_ALL, ProduceOperation
from strandline.broker.handlers.queries import QueryHandler
from strandline.broker.replication.appends import Appends
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.purgatory import Waiter
from strandline.protocol.messages import (
    LATEST_TIMESTAMP,
    FetchPartitionData,
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
)
from strandline.protocol.types import TopicPartition
from strandline.storage.log import log_start
from strandline.storage.log.log import Log
from strandline.testkit.node_tasks import NODE
from strandline.testkit.simulation.god_view import ADVANCING, GodView
from strandline.testkit.simulation.world import World
from strandline.testkit.simulation.wrapping import Wrap, wrapped

CHANGING = ("learn_high_watermark", "truncate_to", "restart_at", "raise_log_start", "log_start_moved")
"""Methods of a partition, beside `ADVANCING`, that may move an end of its log, or its high watermark."""


class Watermarks:
    def __init__(self, world: World, god_view: GodView) -> None:
        self._world = world
        self._god_view = god_view
        self._answering: Partition | None = None
        """Of which acknowledgements are decided just now."""
        self._reading_below: int | None = None
        """What is committed for the consumer who is answered just now."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within `GodView.watching`, which is to know of what is committed first."""
        with wrapped(
            *(Wrap(Partition, name, self._advance) for name in ADVANCING),
            *(Wrap(Partition, name, self._change) for name in CHANGING),
            Wrap(log_start, "raise_log_start", self._begin_at),
            Wrap(Log, "truncate_fully_and_start_at", self._begin_at),
            Wrap(Partition, "complete_waiters", self._complete),
            Wrap(Appends, "_acknowledge", self._complete_of_appends),
            Wrap(ProduceOperation, "reached", self._acknowledge),
            Wrap(FetchReads, "read_one", self._read),
            Wrap(Log, "read", self._read_log),
            Wrap(QueryHandler, "_list_offset", self._list_offset),
        ):
            yield

    # --- who raises it, and what for ---------------------------------------------------------------------------------

    def _advance(self, original: Callable[..., Any], partition: Partition, *args: Any, **options: Any) -> Any:
        before = partition.high_watermark
        result = original(partition, *args, **options)
        if partition.leadership is not None and partition.high_watermark > before:
            epoch = partition.leader_epoch
            ends_at = self._god_view.committed_of(partition.log).ends_for(epoch)
            text = f"commits up to {partition.high_watermark} in epoch {epoch}"
            if ends_at is not None and partition.high_watermark > ends_at:
                self._violated(partition.log, f"{text}, and the next leader began at {ends_at}", 16)
            isr, needed = partition.leadership.isr, partition.leadership.required_isr_size
            if len(isr) < needed:
                self._violated(partition.log, f"{text}, with {list(isr)} in sync where {needed} are to be", 15)
        self._check_bounds(partition)
        return result

    def _complete(self, original: Callable[..., None], partition: Partition) -> None:
        """Of whom it acknowledges is told by `_acknowledge`."""
        answering, self._answering = self._answering, partition
        try:
            original(partition)
        finally:
            self._answering = answering

    def _complete_of_appends(
        self, original: Callable[..., None], appends: Appends, partition: Partition, *args: Any
    ) -> None:
        self._complete(lambda each: original(appends, each, *args), partition)

    def _acknowledge(
        self, original: Callable[..., None], operation: ProduceOperation, waiter: Waiter, log_start_offset: int
    ) -> None:
        original(operation, waiter, log_start_offset)
        partition = self._answering
        if partition is None or operation.request.message.acks != ACKS_ALL:
            return
        committed = partition.high_watermark
        if partition.leadership is None or waiter.required_offset > committed:
            text = f"acknowledges what ends at {waiter.required_offset}, and commits up to {committed}"
            self._violated(partition.log, f"{text} in epoch {partition.leader_epoch}", 15)

    # --- what clients are told ---------------------------------------------------------------------------------------

    def _read(
        self, original: Callable[..., Any], reads: FetchReads, read: Read, message: FetchRequest, *rest: Any
    ) -> tuple[FetchPartitionData, Any]:
        """A new leader that cannot know yet how far its predecessor went serves what lies below its own high watermark
        all the same: to refuse would keep it from clients for as long as too few are in sync."""
        if message.replica_id >= 0:
            followers: tuple[FetchPartitionData, Any] = original(reads, read, message, *rest)
            return followers
        partition = reads.replicas.partitions.get(TopicPartition(read.topic, read.wanted.partition))
        self._reading_below = partition.high_watermark if partition is not None else None
        try:
            answer: tuple[FetchPartitionData, Any] = original(reads, read, message, *rest)
        finally:
            self._reading_below = None
        data = answer[0]
        if not data.error_code:
            leadership = partition.leadership if partition is not None else None
            unsure_below = leadership.leading_since_offset if leadership is not None else 0
            if not read.wanted.fetch_offset < data.high_watermark < unsure_below:
                self._tell(partition, data.high_watermark, "a fetch")
        return answer

    def _read_log(self, original: Callable[..., Any], log: Log, offset: int, max_bytes: int, end_offset: int) -> Any:
        if self._reading_below is not None and end_offset > self._reading_below:
            text = f"lets a consumer read up to {end_offset}, and commits up to {self._reading_below}"
            self._violated(log, text, 9)
        return original(log, offset, max_bytes, end_offset)

    def _list_offset(
        self, original: Callable[..., Any], handler: QueryHandler, topic: str, wanted: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        answer: ListOffsetsPartitionResponse = original(handler, topic, wanted)
        if wanted.timestamp == LATEST_TIMESTAMP and not answer.error_code:
            tp = TopicPartition(topic, wanted.partition_index)
            self._tell(handler._replicas.partitions.get(tp), answer.offset, "who asks for the latest offset")
        return answer

    def _tell(self, partition: Partition | None, high_watermark: int, whom: str) -> None:
        """A follower that consumers read from learns late what is committed; so its word is not compared."""
        if partition is None or partition.leadership is None:
            return
        epoch, committed = partition.leader_epoch, self._god_view.committed_of(partition.log)
        if high_watermark > committed.ever_committed:
            text = f"tells {whom} that {high_watermark} is committed, and it is {committed.ever_committed}"
            self._violated(partition.log, text, 9)
        before = committed.show(epoch, high_watermark)
        if high_watermark < before:
            text = f"tells {whom} in epoch {epoch} that {high_watermark} is committed, and clients were told {before}"
            self._violated(partition.log, text, 8)

    # --- where a log begins ------------------------------------------------------------------------------------------

    def _change(self, original: Callable[..., Any], partition: Partition, *args: Any) -> Any:
        result = original(partition, *args)
        self._check_bounds(partition)
        return result

    def _begin_at(self, original: Callable[..., Any], log: Log, offset: int, *rest: Any) -> Any:
        committed = self._god_view.committed_of(log).ever_committed
        if offset > max(committed, log.log_start_offset):
            self._violated(log, f"begins at {offset}, and no more than {committed} was ever committed", 19)
        return original(log, offset, *rest)

    def _check_bounds(self, partition: Partition) -> None:
        log, high_watermark = partition.log, partition.high_watermark
        if not log.log_start_offset <= high_watermark <= log.log_end_offset:
            text = f"begins at {log.log_start_offset}, ends at {log.log_end_offset}, and takes {high_watermark} for"
            self._violated(log, f"{text} committed", 19)
        committed = self._god_view.committed_of(log).ever_committed
        if high_watermark > committed:
            text = f"takes {high_watermark} for committed, and no leader has gone further than {committed}"
            self._violated(log, text, 19)

    def _violated(self, log: Log, text: str, invariant: int) -> None:
        node = NODE.get()
        name = node.name if node is not None else ""
        self._world.violated(f"invariant {invariant}: {log.topic_partition}: {name} {text}")
