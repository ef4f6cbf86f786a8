"""How one client of Kafka's dialect reaches the brokers: who leads, one connection to each broker, deadlines.

It repeats nothing by itself: whoever asks knows what a repetition does. As Kafka's clients do, it believes no leader
epoch below one that it knows of (invariant 37), so that a broker that has been replaced can be fenced by it.
"""

from __future__ import annotations

from collections import defaultdict
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import UUID

import trio

from strandline.protocol.api import ApiKey
from strandline.protocol.types import TopicPartition
from strandline.runtime.network import Address, CannotConnect, TransportClosed
from strandline.testkit.clock import common_time
from strandline.testkit.cluster import CLIENT, PORT, MemoryCluster, node_name
from strandline.testkit.kafka_client import KafkaClient

REQUEST_TIMEOUT_S = 2.0
REFRESH_PAUSE_S = 0.1
METADATA_VERSION = 12


class Unanswered(Exception):
    """No answer came. was_sent: the broker may have got the request, or may still get it."""

    def __init__(self, was_sent: bool) -> None:
        super().__init__("a request was not answered" if was_sent else "a request could not be sent")
        self.was_sent = was_sent


class Leader(NamedTuple):
    broker_id: int
    epoch: int


class KafkaAccess:
    """Of one client and one topic; connected within a `with` block, of which there may be several. topic_id: None while
    nothing is known of the topic."""

    def __init__(self, cluster: MemoryCluster, topic: str) -> None:
        self.topic = topic
        self.topic_id: UUID | None = None
        self._cluster = cluster
        self._leaders: dict[int, Leader] = {}
        self._connections: dict[int, KafkaClient] = {}
        self._connecting: dict[int, trio.Lock] = defaultdict(trio.Lock)
        self._refreshing = trio.Lock()
        self._refreshed_s = -REFRESH_PAUSE_S
        self._told_by = 0
        """How many brokers were asked for metadata; each is asked in its turn, where one does not answer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def leader(self, tp: TopicPartition) -> Leader | None:
        """As far as it is known; its broker may be −1, nobody."""
        return self._leaders.get(tp.partition)

    async def refresh(self) -> None:
        """Ask one broker who leads, unless that was asked a moment ago. It may not answer, or know less than is known
        here."""
        async with self._refreshing:
            if common_time() < self._refreshed_s + REFRESH_PAUSE_S:
                await trio.sleep(REFRESH_PAUSE_S)
            brokers = list(self._cluster.nodes)
            broker_id = brokers[self._told_by % len(brokers)]
            asked = [{"name": self.topic, "topic_id": None}]
            try:
                answer = await self.ask(
                    broker_id, ApiKey.METADATA, METADATA_VERSION, topics=asked, allow_auto_topic_creation=False
                )
            except Unanswered:
                self._told_by += 1
            else:
                self._learn(answer.topics[0])
            self._refreshed_s = common_time()

    def _learn(self, topic: Any) -> None:
        if topic.error_code:
            self._told_by += 1
            return
        if topic.topic_id != self.topic_id:
            self.topic_id = topic.topic_id
            self._leaders.clear()
        for part in topic.partitions:
            known = self._leaders.get(part.partition_index)
            if known is None or part.leader_epoch >= known.epoch:
                self._leaders[part.partition_index] = Leader(part.leader_id, part.leader_epoch)
            else:
                self._told_by += 1  # that broker is behind

    async def ask(
        self, broker_id: int, api_key: ApiKey, version: int, timeout_s: float = REQUEST_TIMEOUT_S, /, **fields: Any
    ) -> Any:
        """That broker's answer. Unanswered: none came in time, or at all."""
        return await self._do("ask", broker_id, api_key, version, fields, timeout_s)

    async def tell(self, broker_id: int, api_key: ApiKey, version: int, **fields: Any) -> None:
        """What nobody answers. Unanswered: it was not sent, or not all of it."""
        await self._do("tell", broker_id, api_key, version, fields, REQUEST_TIMEOUT_S)

    async def _do(
        self, what: str, broker_id: int, api_key: ApiKey, version: int, fields: dict[str, Any], timeout_s: float
    ) -> Any:
        connection = None
        with trio.move_on_after(timeout_s):
            try:
                connection = await self._connection(broker_id)
                return await getattr(connection, what)(api_key, version, **fields)
            except (CannotConnect, TransportClosed):
                pass
        if connection is not None:
            connection.close()
            if self._connections.get(broker_id) is connection:
                del self._connections[broker_id]
        raise Unanswered(connection is not None)

    async def _connection(self, broker_id: int) -> KafkaClient:
        """The one that there is, or a new one. CannotConnect."""
        async with self._connecting[broker_id]:
            known = self._connections.get(broker_id)
            if known is not None and not known.transport.has_ended():
                return known
            if known is not None:
                known.close()
            node = self._cluster.network.node(CLIENT)
            made = KafkaClient(await node.connect(Address(node_name(broker_id), PORT)))
            self._connections[broker_id] = made
            return made
