"""Produced batches of topics with rules of their own: sent to a worker where they must be decoded or encoded.

    RuledBatches  what one partition of a request brought, checked as far as the event loop does
    Converter     the worker's part: job after job, bounded in bytes, until each partition is done or refused

Rules:
* Some megabytes of batches are one job: small ones of a request travel together, and a request of 100 MiB neither holds
  the loop while it is packed nor a worker for long.
* What a request decodes to is bounded in all, whatever its single batches are allowed: a bomb is refused.
* What all requests hold at once of converted batches is bounded, too: a request waits in line for as much as may come
  back to it, holds what did until that is written, and is alone where it is larger than the whole. Workers decode one
  batch at a time each, so what they hold is bounded by their number.
* Nothing here looks at roles. Whoever awaits `convert` checks anew whether this broker still leads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import structlog

from strandline.broker.network.limits import ByteBudget
from strandline.broker.replication.partition import Partition
from strandline.protocol.errors import ErrorCode
from strandline.protocol.records.batch import InvalidBatch
from strandline.protocol.records.conversion import convert_all, stamp, take_over
from strandline.protocol.records.rules import BatchRules
from strandline.protocol.records.validation import ProducedBatch
from strandline.protocol.types import TopicId
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.environment import Computing, ComputingFailed

JOB_BYTES = 4 * 2**20
"""Of batches in one job, as they were sent or may come back; a larger batch is a job of its own."""
MAX_DECODED_BYTES = 256 * 2**20
"""Of all batches of one request."""
CONVERTED_BYTES = 256 * 2**20
"""Of all requests at once."""


class RuledBatches:
    """One partition of a produce request whose topic has rules. `position`: its place in the request. `refusal`: what
    the worker found wrong."""

    __slots__ = ("batches", "needs_worker", "partition", "position", "refusal", "rules", "topic_id")

    def __init__(
        self, partition: Partition, topic_id: TopicId, position: int, batches: list[ProducedBatch], rules: BatchRules
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.position = position
        self.batches = batches
        self.rules = rules
        self.needs_worker = any(rules.needs_worker(batch.attributes) for batch in batches)
        self.refusal: InvalidBatch | None = None

    def move_to(self, records: memoryview | None) -> None:
        """The request left its burst: the same bytes lie in memory of its own now."""
        assert records is not None
        position = 0
        for batch in self.batches:
            batch.view = records[position : position + batch.size_bytes]
            position += batch.size_bytes

    def stamp(self, now_ms: int) -> None:
        """Give every batch the broker's time, where the topic wants it."""
        if self.rules.stamps:
            for batch in self.batches:
                stamp(batch, now_ms)


class Converter:
    """Has batches converted."""

    def __init__(self, computing: Computing, config: CurrentConfig, log: structlog.typing.FilteringBoundLogger) -> None:
        self._computing = computing
        self._config = config
        self._log = log
        self.budget = ByteBudget(CONVERTED_BYTES)
        """What may come back, until it did; then what came back, until it is written."""

    @asynccontextmanager
    async def converted(self, parts: Sequence[RuledBatches], wall_ms: Callable[[], int]) -> AsyncIterator[None]:
        """`convert`, once there is room for its results, which are to be used within."""
        held_bytes = min(_bytes_at_most(parts), MAX_DECODED_BYTES)
        await self.budget.reserve(held_bytes)
        try:
            await self.convert(parts, wall_ms())
            came_bytes = min(sum(batch.size_bytes for part in parts for batch in part.batches), held_bytes)
            self.budget.release(held_bytes - came_bytes)
            held_bytes = came_bytes
            yield
        finally:
            self.budget.release(held_bytes)

    async def convert(self, parts: Sequence[RuledBatches], now_ms: int) -> None:
        """Convert what needs it; a part that breaks its rules gets its `refusal`, the others go on."""
        decoded_bytes, limit_bytes = 0, self._config.value.max_decompressed_message_bytes
        for job in _jobs(parts):
            wanted = [(part, batch) for part, batch in job if part.refusal is None]
            if not wanted:
                continue
            try:
                outcomes, size = await self._computing.run(
                    convert_all,
                    [batch.view for _, batch in wanted],
                    [part.rules for part, _ in wanted],
                    [(part.partition.config.max_message_bytes, limit_bytes) for part, _ in wanted],
                    now_ms,
                    MAX_DECODED_BYTES - decoded_bytes,
                )
            except ComputingFailed as error:
                self._fail(wanted, error)
                continue
            decoded_bytes += size
            for (part, batch), outcome in zip(wanted, outcomes, strict=True):
                if isinstance(outcome, bytes):
                    take_over(batch, outcome)
                elif outcome is not None and part.refusal is None:
                    part.refusal = InvalidBatch(ErrorCode(outcome[0]), outcome[1], outcome[2])

    def _fail(self, wanted: Sequence[tuple[RuledBatches, ProducedBatch]], error: ComputingFailed) -> None:
        """Not the producer's fault: without a worker (it died, or none could be started) another try may succeed."""
        self._log.error("batches not converted", error=str(error))
        code = ErrorCode.REQUEST_TIMED_OUT if error.may_succeed_later else ErrorCode.UNKNOWN_SERVER_ERROR
        for part, _ in wanted:
            part.refusal = InvalidBatch(code, f"the broker could not convert the batch, nothing was appended: {error}")


def _bytes_at_most(parts: Sequence[RuledBatches]) -> int:
    """What the batches that need a worker may come back as."""
    return sum(
        batch.size_bytes if part.rules.codec is None else _batch_bytes_at_most(part, batch)
        for part in parts
        for batch in part.batches
        if part.rules.needs_worker(batch.attributes)
    )


def _batch_bytes_at_most(part: RuledBatches, batch: ProducedBatch) -> int:
    return max(batch.size_bytes, part.partition.config.max_message_bytes)


def _jobs(parts: Sequence[RuledBatches]) -> Iterator[list[tuple[RuledBatches, ProducedBatch]]]:
    """Batches that need a worker, some megabytes at a time."""
    job: list[tuple[RuledBatches, ProducedBatch]] = []
    size_bytes = 0
    for part in parts:
        for batch in part.batches:
            if part.rules.needs_worker(batch.attributes):
                batch_bytes = batch.size_bytes
                if part.rules.codec == 0:  # a few KB of them might come back as 256 MB, and hold the loop for 0.3 s
                    batch_bytes = _batch_bytes_at_most(part, batch)
                if job and size_bytes + batch_bytes > JOB_BYTES:
                    yield job
                    job, size_bytes = [], 0
                job.append((part, batch))
                size_bytes += batch_bytes
    if job:
        yield job
