"""Where records without a key go: to one partition until it got a batch's worth of bytes, then to another (KIP-794).

Counted are bytes, not batches: batches that leave early, because nothing is under way or nobody sends more, would have
a partition of a quick broker left sooner, so that slow brokers got most of the records. What is chosen is decided in
`partitioner`: partitions for which many batches wait get less, and those that nobody can reach now none.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from strandline.client.accumulator import Accumulator, PartitionQueue
from strandline.client.links import Links
from strandline.client.metadata import TopicView
from strandline.client.partitioner import choose_partition
from strandline.protocol.types import NO_BROKER, TopicPartition

CONSIDERED = 16
"""Of more partitions so many, drawn at random, are looked at: each gets its share all the same."""


@dataclass(slots=True)
class _Stint:
    """One topic's records go to `queue` for a while."""

    queue: PartitionQueue
    number: int
    """Of the batch that was open when it was looked at, or is opened next."""
    until_bytes: int
    """… of all that was ever put into the queue."""


class KeylessPartitions:
    """The partition of the moment of each topic of one producer."""

    def __init__(self, accumulator: Accumulator, links: Links, chance: random.Random) -> None:
        self._accumulator = accumulator
        self._links = links
        self._chance = chance
        self._stints: dict[str, _Stint] = {}

    def current(self, layout: TopicView) -> PartitionQueue:
        """Where the next record goes. The topic has partitions. Hot: once per record."""
        stint = self._stints.get(layout.name)
        if stint is not None:
            queue = stint.queue
            if queue.builder is not None and queue.number == stint.number:
                return queue
            if queue.filled_bytes < stint.until_bytes and self._is_led(layout, queue.topic_partition.partition):
                stint.number = self._number(queue)
                return queue
        queue = self._accumulator.queue(TopicPartition(layout.name, self._choose(layout)))
        until_bytes = queue.filled_bytes + self._accumulator.settings.batch_limit_bytes
        self._stints[layout.name] = _Stint(queue, self._number(queue), until_bytes)
        return queue

    def after_full(self, layout: TopicView, queue: PartitionQueue) -> PartitionQueue:
        """The batch that is open in `queue` has no room for the next record: close it, and say where that goes."""
        self._accumulator.close_batch(queue, is_full=True)
        return self.current(layout)

    def _number(self, queue: PartitionQueue) -> int:
        return queue.number if queue.builder is not None else self._accumulator.next_number()

    def _choose(self, layout: TopicView) -> int:
        numbers = list(layout.partitions)
        if len(numbers) > CONSIDERED:
            drawn = self._chance.sample(numbers, CONSIDERED)
            numbers = drawn if any(self._is_led(layout, number) for number in drawn) else numbers
        led: dict[int, int] = {}
        reached: dict[int, int] = {}
        for number in numbers:
            if not self._is_led(layout, number):
                self._links.metadata.look_again()  # nobody else asks, since no record waits for it
                continue
            partition = TopicPartition(layout.name, number)
            queue = self._accumulator.queues.get(partition)
            led[number] = 0 if queue is None else len(queue.ready) + len(queue.in_flight)
            if self._links.hindrance(partition) is None:
                reached[number] = led[number]
            else:  # tried again, for the same reason
                self._links.to(layout.partitions[number].leader).want()
        return choose_partition(reached or led or dict.fromkeys(numbers, 0), self._chance.random())

    @staticmethod
    def _is_led(layout: TopicView, number: int) -> bool:
        known = layout.partitions.get(number)
        return known is not None and known.leader != NO_BROKER
