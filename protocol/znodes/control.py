"""Znodes that say who decides and what is asked for: controller, requests, announcements, configuration, cluster id.

See `znodes` for the table and the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, TypeVar
from uuid import UUID

import msgspec

from strandline.protocol.types import Int32, TopicPartition
from strandline.protocol.znodes.base import (
    CLUSTER_ID_PATH,
    CONFIG_CHANGES_PATH,
    CONFIG_PATH,
    CONTROLLER_EPOCH_PATH,
    CONTROLLER_PATH,
    ISR_CHANGE_NOTIFICATION_PATH,
    LATEST_PRODUCER_ID_BLOCK_PATH,
    LOG_DIR_EVENT_NOTIFICATION_PATH,
    PREFERRED_REPLICA_ELECTION_PATH,
    REASSIGN_PARTITIONS_PATH,
    InvalidZnode,
    encode_uuid,
    read_json,
    read_versioned,
)

# --- controller --------------------------------------------------------------------------------------------------


class _ControllerJson(msgspec.Struct):
    brokerid: Int32
    version: int = 1
    timestamp: str = "-1"
    kraftControllerEpoch: Int32 = -1


class ControllerZnode(msgspec.Struct, frozen=True):
    """Ephemeral: which broker is the controller since when (wall clock, ms)."""

    broker_id: int
    timestamp_ms: int = -1

    PATH: ClassVar[str] = CONTROLLER_PATH
    VERSION: ClassVar[int] = 2

    def encode(self) -> bytes:
        return msgspec.json.encode(
            _ControllerJson(brokerid=self.broker_id, version=self.VERSION, timestamp=str(self.timestamp_ms))
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> ControllerZnode:
        json = read_versioned(path, data, _ControllerJson, cls.VERSION)
        try:
            return cls(json.brokerid, int(json.timestamp))
        except ValueError as error:
            raise InvalidZnode(path, str(error)) from None


class ControllerEpochZnode(msgspec.Struct, frozen=True):
    """A bare integer, unlike the others; the znode's own version fences what a replaced controller writes."""

    epoch: int

    PATH: ClassVar[str] = CONTROLLER_EPOCH_PATH

    def encode(self) -> bytes:
        return str(self.epoch).encode()

    @classmethod
    def decode(cls, path: str, data: bytes) -> ControllerEpochZnode:
        return cls(read_json(path, data, Int32))


# --- requests and announcements ----------------------------------------------------------------------------------


class _PartitionJson(msgspec.Struct):
    topic: str
    partition: Int32


class _PartitionsJson(msgspec.Struct):
    partitions: list[_PartitionJson]
    version: int = 1


class _PartitionListZnode(msgspec.Struct, frozen=True):
    """{"version": 1, "partitions": [{"topic": …, "partition": …}]}"""

    partitions: list[TopicPartition]

    VERSION: ClassVar[int] = 1

    def encode(self) -> bytes:
        return msgspec.json.encode(_PartitionsJson([_PartitionJson(*tp) for tp in self.partitions], self.VERSION))

    @classmethod
    def decode(cls: type[P], path: str, data: bytes) -> P:
        json = read_versioned(path, data, _PartitionsJson, cls.VERSION)
        return cls([TopicPartition(item.topic, item.partition) for item in json.partitions])


P = TypeVar("P", bound=_PartitionListZnode)


class _LogDirEventJson(msgspec.Struct):
    broker: Int32
    event: Int32 = 1
    version: int = 1


class LogDirEventNotificationZnode(msgspec.Struct, frozen=True):
    """A broker tells the controller that logs of it failed. Sequential: create it at `SEQUENCE_PATH`."""

    broker_id: int

    FOLDER: ClassVar[str] = LOG_DIR_EVENT_NOTIFICATION_PATH
    SEQUENCE_PATH: ClassVar[str] = f"{FOLDER}/log_dir_event_"
    VERSION: ClassVar[int] = 1

    def encode(self) -> bytes:
        return msgspec.json.encode(_LogDirEventJson(self.broker_id, version=self.VERSION))

    @classmethod
    def decode(cls, path: str, data: bytes) -> LogDirEventNotificationZnode:
        json = read_versioned(path, data, _LogDirEventJson, cls.VERSION)
        return cls(json.broker)


class IsrChangeNotificationZnode(_PartitionListZnode, frozen=True):
    """A leader tells the controller which partition states it changed. Sequential: create it at `SEQUENCE_PATH`."""

    FOLDER: ClassVar[str] = ISR_CHANGE_NOTIFICATION_PATH
    SEQUENCE_PATH: ClassVar[str] = f"{FOLDER}/isr_change_"


class PreferredReplicaElectionZnode(_PartitionListZnode, frozen=True):
    """Asks for the preferred replica of these partitions as leader."""

    PATH: ClassVar[str] = PREFERRED_REPLICA_ELECTION_PATH


class _ReassignmentJson(msgspec.Struct):
    topic: str
    partition: Int32
    replicas: list[Int32]


class _ReassignmentsJson(msgspec.Struct):
    partitions: list[_ReassignmentJson]
    version: int = 1


class ReassignPartitionsZnode(msgspec.Struct, frozen=True):
    """Asks for these replicas, preferred first, for each partition."""

    reassignments: Mapping[TopicPartition, list[int]]

    PATH: ClassVar[str] = REASSIGN_PARTITIONS_PATH
    VERSION: ClassVar[int] = 1

    def encode(self) -> bytes:
        items = [_ReassignmentJson(*tp, list(replicas)) for tp, replicas in self.reassignments.items()]
        return msgspec.json.encode(_ReassignmentsJson(items, self.VERSION))

    @classmethod
    def decode(cls, path: str, data: bytes) -> ReassignPartitionsZnode:
        json = read_versioned(path, data, _ReassignmentsJson, cls.VERSION)
        reassignments = {TopicPartition(item.topic, item.partition): item.replicas for item in json.partitions}
        if len(reassignments) != len(json.partitions):
            raise InvalidZnode(path, "a partition is named twice")
        return cls(reassignments)


# --- configuration and identity ----------------------------------------------------------------------------------


class ConfigZnode(msgspec.Struct, frozen=True):
    """Overrides of a topic (or, by `entity_type`, of a broker, client, user): key → value, both text."""

    config: dict[str, str]
    version: int = 1

    VERSION: ClassVar[int] = 1

    @staticmethod
    def path(name: str, entity_type: str = "topics") -> str:
        return f"{CONFIG_PATH}/{entity_type}/{name}"

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, path: str, data: bytes) -> ConfigZnode:
        return read_versioned(path, data, cls, cls.VERSION)


class ConfigChangeZnode(msgspec.Struct, frozen=True):
    """Announces that overrides changed; `entity_path` is relative to /config, for example `topics/clicks`."""

    entity_path: str
    version: int = 2

    SEQUENCE_PATH: ClassVar[str] = f"{CONFIG_CHANGES_PATH}/config_change_"
    VERSION: ClassVar[int] = 2

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, path: str, data: bytes) -> ConfigChangeZnode:
        return read_versioned(path, data, cls, cls.VERSION)


class ClusterIdZnode(msgspec.Struct, frozen=True):
    """{"version": "1", "id": …}: created once by whoever comes first, never changed."""

    id: str
    version: str = "1"

    PATH: ClassVar[str] = CLUSTER_ID_PATH

    @classmethod
    def new(cls, uuid: UUID) -> ClusterIdZnode:
        return cls(encode_uuid(uuid.bytes))

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, path: str, data: bytes) -> ClusterIdZnode:
        cluster = read_json(path, data, cls)
        if not cluster.id:
            raise InvalidZnode(path, "the cluster id is empty")
        return cluster


MAX_PRODUCER_ID = 2**63 - 1


class _ProducerIdBlockJson(msgspec.Struct):
    broker: Int32
    block_start: str
    block_end: str
    version: int = 1


class ProducerIdBlockZnode(msgspec.Struct, frozen=True):
    """The producer ids that were given out last, [first_id, last_id], and to which broker; null before the first."""

    broker_id: int
    first_id: int
    last_id: int

    PATH: ClassVar[str] = LATEST_PRODUCER_ID_BLOCK_PATH
    VERSION: ClassVar[int] = 1

    def encode(self) -> bytes:
        return msgspec.json.encode(
            _ProducerIdBlockJson(self.broker_id, str(self.first_id), str(self.last_id), self.VERSION)
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> ProducerIdBlockZnode:
        """The ids are texts there, since JSON's numbers are doubles to many readers."""
        json = read_versioned(path, data, _ProducerIdBlockJson, cls.VERSION)
        block = cls(json.broker, _producer_id(path, json.block_start), _producer_id(path, json.block_end))
        if block.last_id < block.first_id:
            raise InvalidZnode(path, f"the block ends with {block.last_id}, before its start {block.first_id}")
        return block


def _producer_id(path: str, text: str) -> int:
    if re.fullmatch("[0-9]{1,19}", text) is None or int(text) > MAX_PRODUCER_ID:
        raise InvalidZnode(path, f"{text!r} is no producer id")
    return int(text)
