"""What a coordinator says of a group, asked in Kafka's protocol by kio's schemas: no client's own idea of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strandline.client.sync import Consumer
from strandline.protocol.api import ApiKey
from strandline.protocol.consumer_protocol import decode_assignment
from strandline.protocol.types import TopicPartition
from support.kafka_socket import KafkaSocket

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class GroupView:
    """`assigned`: partitions of the topic by member."""

    state: str
    assigned: dict[str, list[int]]

    def shares(self, members: int, partitions: int) -> bool:
        """Is it stable, with so many members who have all partitions among them, each once and nobody none?"""
        shared = sorted(number for numbers in self.assigned.values() for number in numbers)
        is_whole = shared == list(range(partitions)) and all(self.assigned.values())
        return self.state == "Stable" and len(self.assigned) == members and is_whole


class GroupObserver:
    """Asks about one group that reads one topic. Between brokers that come and go each question may fail: None."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]

    def view(self) -> GroupView | None:
        answer = self._ask_coordinator(ApiKey.DESCRIBE_GROUPS, 5, groups=[self._group])
        if answer is None or answer.groups[0].error_code:
            return None
        (group,) = answer.groups
        assigned = {each.member_id: _partitions(bytes(each.member_assignment), self._topic) for each in group.members}
        return GroupView(group.group_state, assigned)

    def committed(self) -> dict[int, int] | None:
        """Offset by partition, of those that have one."""
        wanted = [{"name": self._topic, "partition_indexes": [each.partition for each in self._partitions]}]
        answer = self._ask_coordinator(ApiKey.OFFSET_FETCH, 5, group_id=self._group, topics=wanted)
        if answer is None or answer.error_code:
            return None
        found = [each for topic in answer.topics for each in topic.partitions]
        return {each.partition_index: each.committed_offset for each in found if each.committed_offset >= 0}

    def has_no_lag(self) -> bool:
        """Is everything committed that stands in the topic?"""
        with Consumer(self._bootstrap) as consumer:
            ends = {each.partition: end for each, end in consumer.end_offsets(self._partitions).items()}
        return self.committed() == {number: end for number, end in ends.items() if end}

    def _ask_coordinator(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        for address in self._bootstrap.split(","):
            host, port = address.rsplit(":", 1)
            found = _ask((host, int(port)), ApiKey.FIND_COORDINATOR, 2, key=self._group, key_type=0)
            if found is not None and not found.error_code:
                return _ask((found.host, found.port), api_key, version, **fields)
        return None


def _ask(address: tuple[str, int], api_key: ApiKey, version: int, **fields: Any) -> Any:
    """The answer, on a connection of its own; None: there is none."""
    try:
        with KafkaSocket(address, _TIMEOUT_S) as connection:
            return connection.ask(api_key, version, **fields)
    except OSError:
        return None


def _partitions(assignment: bytes, topic: str) -> list[int]:
    if not assignment:
        return []
    return [each.partition for each in decode_assignment(assignment).partitions if each.topic == topic]
