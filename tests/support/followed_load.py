"""A verifying producer and a reader who follows it: what was acknowledged stands where it was said and once, and the
reader saw the same, without a gap and never sent back.

Stricter than `verification.check` alone, which allows a record that was sent again to stand twice: an idempotent
producer's does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from strandline.client import TrioConsumer
from strandline.protocol.types import TopicPartition
from strandline.testkit.verification import PromiseBroken, VerifyingLoad, check, read_value
from support.lasting import Reading
from support.pauses import Pauses

PATIENCE_S = 120
"""Of the reader, once nothing more is written."""
LOOK_INTERVAL_S = 0.05


class FollowedLoad:
    """Over all partitions of a topic that is there and empty. `acks`, `reads`: pauses of either, by trio's clock."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, **settings: object) -> None:
        """settings: of `VerifyingLoad`."""
        self.acks, self.reads = Pauses(partitions), Pauses(partitions)
        self.writer = VerifyingLoad(bootstrap_servers, topic, partitions, on_acked=self._note_ack, **settings)
        self._bootstrap_servers = bootstrap_servers
        self._readings = {TopicPartition(topic, number): Reading() for number in range(partitions)}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Both run meanwhile; in the end the reader has everything that was acknowledged. PromiseBroken by the reader,
        in a group."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            async with trio.open_nursery() as writing:
                await writing.start(self.writer.run)
                yield
                self.writer.stop()
            with trio.fail_after(PATIENCE_S):
                while not self._has_read_all():
                    await trio.sleep(LOOK_INTERVAL_S)
            nursery.cancel_scope.cancel()

    async def until_acks_flow(self) -> None:
        """Until every partition has acknowledged something that is newer than this call. The caller bounds it."""
        since_s = trio.current_time()
        while not self.acks.flow_since(since_s):
            await trio.sleep(LOOK_INTERVAL_S)

    async def check_kept(self) -> None:
        """Read everything anew, when nothing runs any more. PromiseBroken."""
        found = await self.writer.read_everything()
        check(self.writer.outcomes, found)
        for tp, reading in self._readings.items():
            check_once(tp, found[tp.partition], reading)

    def _note_ack(self, partition: int) -> None:
        self.acks.came(partition, trio.current_time())

    async def _follow(self) -> None:
        async with TrioConsumer(self._bootstrap_servers, auto_offset_reset="none") as consumer:
            await consumer.assign(list(self._readings))
            for tp in self._readings:
                consumer.seek(tp, 0)
            while True:
                for tp, records in (await consumer.poll(timeout_ms=1000)).items():
                    for record in records:
                        self._readings[tp].note(record.offset, read_value(record.value or b"")[1])
                    if records:
                        self.reads.came(tp.partition, trio.current_time())

    def _has_read_all(self) -> bool:
        return all(
            reading.next_offset > max(self.writer.outcomes[tp.partition].acked.values(), default=-1)
            for tp, reading in self._readings.items()
        )


def check_once(tp: TopicPartition, found: Sequence[tuple[int, bytes]], reading: Reading) -> None:
    """PromiseBroken where a record of `found` (offset, value) stands twice, or a reader saw something else there."""
    first: dict[bytes, int] = {}
    for offset, value in found:
        if value in first:
            raise PromiseBroken(f"{tp}: {value!r} stands at offsets {first[value]} and {offset}")
        first[value] = offset
    stands: Mapping[int, int] = {offset: read_value(value)[1] for offset, value in found}
    for offset, number in enumerate(reading.numbers):
        if stands.get(offset) != number:
            raise PromiseBroken(f"{tp}: a reader saw {number} at offset {offset}, where {stands.get(offset)} stands")
