"""Oracles of what must not get past a fence (safety.md §1: 13, 14, 27): orders to a past life or of a former
controller, fetches of another epoch, answers to them.

Each is asked where the product decides, by what it knew when it was asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from strandline.broker.handlers.fetch_reads import FetchReads
from strandline.broker.handlers.orders import OrderHandlers
from strandline.broker.replication.follower import Fetcher
from strandline.broker.replication.partition import Partition
from strandline.protocol.messages import FetchPartitionData, FetchRequest
from strandline.testkit.node_tasks import NODE
from strandline.testkit.simulation.world import World
from strandline.testkit.simulation.wrapping import Wrap, wrapped

ORDERS = ("leader_and_isr", "stop_replica", "update_metadata")


class Fences:
    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: Any = {}
        """What the answer that is taken just now was asked for, and in which epochs."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        with wrapped(
            *(Wrap(OrderHandlers, name, self._obey) for name in ORDERS),
            Wrap(FetchReads, "read_one", self._serve),
            Wrap(Fetcher, "_process", self._hear),
            Wrap(Fetcher, "_process_partition", self._take),
        ):
            yield

    async def _obey(self, original: Callable[..., Awaitable[Any]], handlers: OrderHandlers, request: Any) -> Any:
        order = request.message
        broker_epoch, controller_epoch = handlers._registration.broker_epoch, handlers._replicas.controller_epoch
        response = await original(handlers, request)
        if response.error_code:
            return response
        if order.broker_epoch != broker_epoch or broker_epoch < 0:
            self._violated(27, f"obeys an order to its life {order.broker_epoch}, and is in {broker_epoch}")
        if order.controller_epoch < controller_epoch:
            self._violated(27, f"obeys controller {order.controller_epoch}, and knows of {controller_epoch}")
        return response

    def _serve(
        self, original: Callable[..., Any], reads: FetchReads, read: Any, message: FetchRequest, *rest: Any
    ) -> Any:
        answer = data, _ = original(reads, read, message, *rest)
        if message.replica_id < 0 or data.error_code:
            return answer
        epoch, replica = read.wanted.current_leader_epoch, message.replica_id
        partition = reads.replicas.partitions[read.topic, read.wanted.partition]
        if epoch != partition.leader_epoch:
            text = f"serves a fetch of epoch {epoch} of {replica} in epoch {partition.leader_epoch}"
            self._violated(13, f"{text}, of {partition.topic_partition}")
        if partition.leadership is None or replica not in partition.leadership.followers:
            self._violated(13, f"serves {replica}, which follows nobody here, of {partition.topic_partition}")
        return answer

    def _hear(self, original: Callable[..., None], fetcher: Fetcher, response: Any, records: Any, asked: Any) -> None:
        self._asked = asked
        original(fetcher, response, records, asked)

    def _take(
        self,
        original: Callable[..., None],
        fetcher: Fetcher,
        partition: Partition,
        data: FetchPartitionData,
        *rest: Any,
    ) -> None:
        _, epoch, _ = self._asked[partition.topic_partition.topic, data.partition_index]
        if epoch != partition.leader_epoch:
            text = f"takes an answer to what it asked in epoch {epoch} in {partition.leader_epoch}"
            self._violated(14, f"{text}, of {partition.topic_partition}")
        original(fetcher, partition, data, *rest)

    def _violated(self, invariant: int, text: str) -> None:
        node = NODE.get()
        self._world.violated(f"invariant {invariant}: {node.name if node is not None else 'somebody'}: {text}")
