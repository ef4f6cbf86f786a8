"""Proving that a cluster kept its promises: a producer that records every outcome, and what must hold at the end.

Every value is unique (`<partition>:<number>:<checksum>`), every outcome is one of three: *ok* (acknowledged, at an
offset), *failed* (definitely not written), *unknown* (a timeout or lost connection after sending). At the end
everything is read back (`check`), and then:

* what was acknowledged stands at its offset, unaltered; what definitely failed stands nowhere
* nothing stands twice unless its batch was sent again after an attempt without an answer
* per partition, values stand in the order in which they were sent (repetitions apart)
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from strandline.client import TrioConsumer, TrioProducer
from strandline.client.delivery import Delivery
from strandline.client.errors import ClientError, DeliveryFailed
from strandline.protocol.types import TopicPartition
from strandline.runtime.client_environment import ClientEnvironment


class PromiseBroken(AssertionError):
    """What a client was told does not hold; the text names the record."""


def make_value(partition: int, number: int) -> bytes:
    body = b"%d:%d" % (partition, number)
    return b"%s:%08x" % (body, zlib.crc32(body))


def read_value(value: bytes) -> tuple[int, int]:
    """(partition, number). PromiseBroken for bytes that were never sent."""
    body, _, checksum = value.rpartition(b":")
    if b"%08x" % zlib.crc32(body) != checksum:
        raise PromiseBroken(f"a record holds {value[:80]!r}, which nobody sent")
    partition, number = body.split(b":")
    return int(partition), int(number)


@dataclass(slots=True)
class Outcomes:
    """Of one partition: number → offset of what was acknowledged; numbers by what else became of them."""

    acked: dict[int, int] = field(default_factory=dict)
    retried: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)


class VerifyingLoad:
    """Produces to every partition of a topic until `stop`, at a bounded rate; `outcomes` fills as answers come."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        *,
        environment: ClientEnvironment | None = None,
        pause_s: float = 0.005,
        on_acked: Callable[[int], None] = lambda partition: None,
        **settings: object,
    ) -> None:
        """pause_s: between two records of a partition. on_acked: hears of each acknowledgement, by its partition.
        settings: of the producer."""
        self.outcomes = {partition: Outcomes() for partition in range(partitions)}
        self.errors: list[Exception] = []
        """Every error that a record ended with."""
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._environment = environment
        self._pause_s = pause_s
        self._on_acked = on_acked
        self._settings: dict[str, Any] = {"acks": "all", "linger_ms": 0, "delivery_timeout_ms": 60_000, **settings}
        self._stopping = False
        self._progress = trio.Event()

    @property
    def acked(self) -> int:
        return sum(len(outcomes.acked) for outcomes in self.outcomes.values())

    async def read_everything(self) -> dict[int, list[tuple[int, bytes]]]:
        """What the topic holds now, as the function of this name says."""
        return await read_everything(self._bootstrap_servers, self._topic, len(self.outcomes), self._environment)

    def stop(self) -> None:
        """Send nothing more; `run` returns when every outcome is known."""
        self._stopping = True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with TrioProducer(self._bootstrap_servers, environment=self._environment, **self._settings) as producer:
            task_status.started()
            number = 0
            while not self._stopping:
                for partition in self.outcomes:
                    await self._send(producer, partition, number)
                number += 1
                await trio.sleep(self._pause_s)
            await producer.flush()

    async def _send(self, producer: TrioProducer, partition: int, number: int) -> None:
        try:
            delivery = await producer.send(self._topic, make_value(partition, number), partition=partition)
            delivery.add_done_callback(partial(self._note, partition, number))
        except ClientError as error:  # not accepted: nothing was sent
            self.outcomes[partition].failed.add(number)
            self.errors.append(error)

    def _note(self, partition: int, number: int, delivery: Delivery) -> None:
        outcomes = self.outcomes[partition]
        error = delivery.exception()
        if error is None:
            metadata = delivery.result()
            outcomes.acked[number] = metadata.offset
            if metadata.retried:
                outcomes.retried.add(number)
            self._on_acked(partition)
        elif isinstance(error, DeliveryFailed) and error.outcome_unknown:
            outcomes.unknown.add(number)
            self.errors.append(error)
        else:
            outcomes.failed.add(number)
            self.errors.append(error)
        self._progress.set()
        self._progress = trio.Event()

    async def wait_acked(self, more: int) -> None:
        """Until `more` further records are acknowledged."""
        target = self.acked + more
        while self.acked < target:
            await self._progress.wait()


async def read_everything(
    bootstrap_servers: str, topic: str, partitions: int, environment: ClientEnvironment | None = None
) -> dict[int, list[tuple[int, bytes]]]:
    """partition → (offset, value) of every committed record, in the order of the log."""
    wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(partitions)}
    async with TrioConsumer(bootstrap_servers, environment=environment, auto_offset_reset="earliest") as consumer:
        await consumer.assign(wanted)
        ends = await consumer.end_offsets(wanted)
        while any((found[tp.partition][-1][0] + 1 if found[tp.partition] else 0) < ends[tp] for tp in wanted):
            for tp, records in (await consumer.poll(timeout_ms=1000)).items():
                found[tp.partition].extend((record.offset, record.value or b"") for record in records)
    return found


def check(outcomes: Mapping[int, Outcomes], found: Mapping[int, Sequence[tuple[int, bytes]]]) -> None:
    """PromiseBroken unless everything above holds; see the module."""
    for partition, told in outcomes.items():
        _check_partition(partition, told, found[partition])


def _check_partition(partition: int, told: Outcomes, records: Sequence[tuple[int, bytes]]) -> None:
    where: dict[int, list[int]] = {}
    highest = -1
    for offset, value in records:
        source, number = read_value(value)
        if source != partition:
            raise PromiseBroken(f"{value!r} stands in partition {partition}")
        if number not in where:
            if number < highest:
                raise PromiseBroken(f"partition {partition}: {number} stands behind {highest} at offset {offset}")
            highest = number
        where.setdefault(number, []).append(offset)
    for number, offset in told.acked.items():
        if offset not in where.get(number, ()):
            raise PromiseBroken(
                f"partition {partition}: {number} was acknowledged at offset {offset}, found at {where.get(number)}"
            )
    for number, offsets in where.items():
        if number in told.failed:
            raise PromiseBroken(f"partition {partition}: {number} failed for sure and stands at {offsets}")
        if len(offsets) > 1 and number not in told.retried and number not in told.unknown:
            raise PromiseBroken(f"partition {partition}: {number} stands at {offsets} and was never sent again")


@asynccontextmanager
async def proven(load: VerifyingLoad, wait_whole: Callable[[], Awaitable[object]]) -> AsyncIterator[VerifyingLoad]:
    """Produce while the body does something to the cluster; records are acknowledged before it and after it. In the end
    `wait_whole` returns once every replica is in sync, and every promise is checked."""
    async with trio.open_nursery() as nursery:
        await nursery.start(load.run)
        await load.wait_acked(100)
        yield load
        await load.wait_acked(100)
        load.stop()
    await wait_whole()
    check(load.outcomes, await load.read_everything())
