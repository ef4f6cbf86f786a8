"""Invariant 40: whatever becomes of leaderships, what was acknowledged or shown is found again, or what came later.

One broker's replica leads, loses the leadership, is cut above the high watermark or not, and leads again. Each time its
groups are loaded, and go on.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.groups.offsets import GroupOffsets, PendingCommit
from strandline.protocol.errors import ErrorCode
from strandline.protocol.group_records import CommittedOffset
from support.replica_site import ReplicaSite

PARTITIONS = 4
MOVES = 60


class Play:
    """`asked`: the numbers of all commits of a partition. `known`: the last one that was acknowledged or read."""

    def __init__(self, site: ReplicaSite, seed: int) -> None:
        self.site = site
        self.random = random.Random(seed)
        self.epoch = 0
        self.offsets = GroupOffsets("g")
        self.asked: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.known: dict[int, int] = dict.fromkeys(range(PARTITIONS), -1)
        self.number = 0
        self.acknowledgements = self.time_outs = 0

    def commit(self) -> None:
        self.number += 1
        partitions = self.random.sample(range(PARTITIONS), self.random.randint(1, 3))
        offsets = self.offsets
        pending, records = offsets.begin({"t": {each: CommittedOffset(self.number) for each in partitions}})
        for partition in partitions:
            self.asked[partition].append(self.number)
        done = self._settler(offsets, pending, partitions, self.number)
        self.site.data.group_log.append(self.site.partition(), records, done, late=done)

    def _settler(
        self, offsets: GroupOffsets, pending: PendingCommit, partitions: list[int], number: int
    ) -> Callable[[ErrorCode], None]:
        def settle(code: ErrorCode) -> None:
            if code is ErrorCode.REQUEST_TIMED_OUT:
                self.time_outs += 1
                return
            offsets.settle(pending, is_committed=code is ErrorCode.NONE)
            if code is ErrorCode.NONE:
                self.acknowledgements += 1
                for partition in partitions:
                    self.known[partition] = number

        return settle

    def end_burst(self) -> None:
        self.site.data.burst.end()

    def follow(self, broker_id: int) -> None:
        self.site.follow(broker_id, self.site.partition().log.log_end_offset)

    async def lose_and_lead_again(self) -> None:
        self.epoch += 1
        partition = await self.site.follow_leader(epoch=self.epoch)
        if self.random.random() < 0.5:
            partition.log.truncate_to(self.random.randint(partition.high_watermark, partition.log.log_end_offset))
        self.epoch += 1
        await self.site.lead(epoch=self.epoch)
        await self.load()

    async def time_out(self) -> None:
        await trio.sleep(10)
        self.site.data.deadlines.expire(trio.current_time())

    async def check_against_log(self) -> None:
        """All are in sync again: whoever coordinates next finds what is read here."""
        self.end_burst()
        for broker_id in (2, 3):
            self.follow(broker_id)
        read = {partition: each.offset for partition, each in self.offsets.committed.get("t", {}).items()}
        await self.load()
        assert read == {partition: each.offset for partition, each in self.offsets.committed.get("t", {}).items()}

    async def load(self) -> None:
        """While the followers fetch all there is."""
        async with trio.open_nursery() as nursery:

            async def load() -> None:
                groups = await self.site.data.group_loader.load(self.site.partition())
                assert groups is not None
                self.offsets = GroupOffsets("g", groups["g"].offsets if "g" in groups else None)
                nursery.cancel_scope.cancel()

            nursery.start_soon(load)
            while True:
                await trio.sleep(1)
                for broker_id in (2, 3):
                    self.follow(broker_id)

    def check(self) -> None:
        for partition, asked in self.asked.items():
            committed = self.offsets.get("t", partition)
            found = -1 if committed is None else committed.offset
            later = [number for number in asked if number > self.known[partition]]
            assert found in (self.known[partition], *later), f"{partition}: {found} after {self.known[partition]}"
            self.known[partition] = found


@pytest.mark.parametrize("seed", range(12))
async def test_what_was_acknowledged_is_found_again(autojump_clock: MockClock, seed: int) -> None:
    site = ReplicaSite(config={"offsets.load.buffer.size": "300"})
    play = Play(site, seed)
    await site.lead()
    for _ in range(MOVES):
        move = play.random.random()
        if move < 0.4:
            play.commit()
        elif move < 0.6:
            play.end_burst()
        elif move < 0.85:
            play.follow(play.random.choice((2, 3)))
        elif move < 0.92:
            await play.time_out()
        else:
            await play.lose_and_lead_again()
        play.check()
    play.commit()
    play.end_burst()
    await play.time_out()
    await play.check_against_log()
    await play.lose_and_lead_again()
    play.check()
    assert play.acknowledgements > 0 and play.time_outs > 0
