"""Znodes that say what there is: brokers, topics, partition states. See `znodes` for the table and the rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import msgspec

from strandline.protocol.keys_in_repr import repr_without_key
from strandline.protocol.types import NO_BROKER, NO_TOPIC_ID, Int16, Int32, TopicId
from strandline.protocol.znodes.base import (
    BROKER_IDS_PATH,
    BROKER_INCARNATIONS_PATH,
    DELETE_TOPICS_PATH,
    TOPICS_PATH,
    InvalidZnode,
    decode_uuid,
    encode_uuid,
    read_versioned,
)

# --- brokers -----------------------------------------------------------------------------------------------------


class BrokerEndpoint(NamedTuple):
    """Where a listener is reached: `PLAINTEXT://host:port` with its security protocol."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


_ENDPOINT = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([^\]]*)\]|([^:/\[\]]*)):([0-9]{1,5})")


class _BrokerJson(msgspec.Struct):
    host: str | None
    port: Int32
    jmx_port: Int32 = -1
    version: int = 1
    timestamp: str = "-1"
    endpoints: list[str] = []
    listener_security_protocol_map: dict[str, str] = {}
    features: dict[str, Any] = {}
    rack: str | msgspec.UnsetType | None = msgspec.UNSET  # Kafka's reader refuses null: left out if there is none
    lock_id: str = ""
    lossy_start: bool = False
    apis: dict[str, tuple[Int16, Int16]] = {}
    broker_key: str = ""

    def __repr__(self) -> str:
        return repr_without_key(self)


class BrokerIdZnode(msgspec.Struct, frozen=True, kw_only=True):
    """A live broker. host, port: of its first PLAINTEXT endpoint, for old tools (None, −1 where there is none)."""

    endpoints: tuple[BrokerEndpoint, ...]
    timestamp_ms: int = -1
    """When it registered, wall clock, ms."""
    rack: str | None = None
    jmx_port: int = -1
    lock_id: str = ""
    """Of the lock on its data folder: tells its own stale registration from that of another broker with the same id,
    be it one with a copy of the folder."""
    lossy_start: bool = False
    """It may have lost data at this start (invariant 22), and has changed the states of its partitions accordingly."""
    apis: Mapping[int, tuple[int, int]] = {}
    """API key → (lowest, highest) version that it serves."""
    broker_key: str = ""
    """Who knows it is one of the cluster, no client. "": of another kind of broker."""

    def __repr__(self) -> str:
        return repr_without_key(self)

    VERSION: ClassVar[int] = 5

    @staticmethod
    def path(broker_id: int) -> str:
        return f"{BROKER_IDS_PATH}/{broker_id}"

    @property
    def host(self) -> str | None:
        return next((e.host for e in self.endpoints if e.security_protocol == "PLAINTEXT"), None)

    @property
    def port(self) -> int:
        return next((e.port for e in self.endpoints if e.security_protocol == "PLAINTEXT"), -1)

    def encode(self) -> bytes:
        return msgspec.json.encode(
            _BrokerJson(
                host=self.host,
                port=self.port,
                jmx_port=self.jmx_port,
                version=self.VERSION,
                timestamp=str(self.timestamp_ms),
                endpoints=[str(endpoint) for endpoint in self.endpoints],
                listener_security_protocol_map={e.listener: e.security_protocol for e in self.endpoints},
                rack=msgspec.UNSET if self.rack is None else self.rack,
                lock_id=self.lock_id,
                lossy_start=self.lossy_start,
                apis={str(key): (lowest, highest) for key, (lowest, highest) in self.apis.items()},
                broker_key=self.broker_key,
            )
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> BrokerIdZnode:
        """Registrations of version 1 have no endpoints: host and port stand for one PLAINTEXT listener."""
        json = read_versioned(path, data, _BrokerJson, cls.VERSION)
        endpoints = tuple(_endpoint(path, text, json.listener_security_protocol_map) for text in json.endpoints)
        if not endpoints and json.host is not None:
            endpoints = (BrokerEndpoint("PLAINTEXT", json.host, json.port),)
        try:
            timestamp_ms = int(json.timestamp)
            apis = {int(key): versions for key, versions in json.apis.items()}
        except ValueError as error:
            raise InvalidZnode(path, str(error)) from None
        return cls(
            endpoints=endpoints,
            timestamp_ms=timestamp_ms,
            rack=json.rack or None,
            jmx_port=json.jmx_port,
            lock_id=json.lock_id,
            lossy_start=json.lossy_start,
            apis=apis,
            broker_key=json.broker_key,
        )


def _endpoint(path: str, text: str, security_protocols: dict[str, str]) -> BrokerEndpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[4]) > 65535:
        raise InvalidZnode(path, f"endpoint {text!r} is not LISTENER://host:port")
    return BrokerEndpoint(match[1], match[2] or match[3], int(match[4]), security_protocols.get(match[1], match[1]))


class BrokerIncarnationZnode:
    """Persistent and empty: its version goes up at each start of the broker and travels in its fetches (KIP-903)."""

    @staticmethod
    def path(broker_id: int) -> str:
        return f"{BROKER_INCARNATIONS_PATH}/{broker_id}"


# --- topics ------------------------------------------------------------------------------------------------------


class _TopicJson(msgspec.Struct):
    partitions: dict[str, list[Int32]]
    version: int = 1
    topic_id: str | None = None
    adding_replicas: dict[str, list[Int32]] = {}
    removing_replicas: dict[str, list[Int32]] = {}


class TopicZnode(msgspec.Struct, frozen=True):
    """Partition → assigned replicas, preferred first. `topic_id` is None where another tool made the topic without."""

    topic_id: TopicId | None
    partitions: Mapping[int, list[int]]
    adding_replicas: Mapping[int, list[int]] = {}
    removing_replicas: Mapping[int, list[int]] = {}

    VERSION: ClassVar[int] = 3

    @staticmethod
    def path(topic: str) -> str:
        return f"{TOPICS_PATH}/{topic}"

    def encode(self) -> bytes:
        return msgspec.json.encode(
            _TopicJson(
                partitions=_by_text(self.partitions),
                version=self.VERSION,
                topic_id=None if self.topic_id is None else encode_uuid(self.topic_id),
                adding_replicas=_by_text(self.adding_replicas),
                removing_replicas=_by_text(self.removing_replicas),
            )
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> TopicZnode:
        json = read_versioned(path, data, _TopicJson, cls.VERSION)
        topic_id = None if json.topic_id is None else decode_uuid(path, json.topic_id)
        for partition, replicas in json.partitions.items():
            _check_brokers(path, f"the replicas of partition {partition}", replicas)
        return cls(
            None if topic_id == NO_TOPIC_ID else topic_id,
            _by_number(path, json.partitions),
            _by_number(path, json.adding_replicas),
            _by_number(path, json.removing_replicas),
        )


def _by_text(partitions: Mapping[int, list[int]]) -> dict[str, list[int]]:
    return {str(partition): list(replicas) for partition, replicas in partitions.items()}


def _by_number(path: str, partitions: dict[str, list[int]]) -> dict[int, list[int]]:
    """In order of the numbers, however the JSON had them."""
    for text in partitions:
        if not (text.isascii() and text.isdecimal() and len(text) <= 9 and text == str(int(text))):
            raise InvalidZnode(path, f"{text!r} is no partition number")
    return {int(text): partitions[text] for text in sorted(partitions, key=int)}


def _check_brokers(path: str, what: str, broker_ids: Sequence[int]) -> None:
    """InvalidZnode unless these are ids of brokers, each named once."""
    if min(broker_ids, default=0) < 0 or len(set(broker_ids)) < len(broker_ids):
        raise InvalidZnode(path, f"{what} are {broker_ids}: ids of brokers, each once, are expected")


class TopicIdZnode:
    """Empty; its name tells this topic from another one that had or will have its name. Created with the topic, or by
    the controller for what another tool made, and gone with it (Kafka lists only `partitions` below a topic, and
    deletes all that is there). The versions of all other znodes of a topic begin at 0 again when it is made anew."""

    @staticmethod
    def path(topic: str, topic_id: TopicId) -> str:
        return f"{TOPICS_PATH}/{topic}/{encode_uuid(topic_id)}"

    @staticmethod
    def among(topic: str, children: Iterable[str]) -> list[TopicId]:
        """The ids of the topic that its `children` name."""
        ids: list[TopicId] = []
        for child in children:
            with suppress(InvalidZnode):
                ids.append(decode_uuid(f"{TOPICS_PATH}/{topic}/{child}", child))
        return ids


class _PartitionStateJson(msgspec.Struct, kw_only=True):
    """The fields after `isr` are ours: Kafka's tools do not mind them, and where they say nothing they are left out."""

    controller_epoch: Int32
    leader: Int32
    version: int = 1
    leader_epoch: Int32
    isr: list[Int32]
    elr: list[Int32] | msgspec.UnsetType = msgspec.UNSET
    lossy: list[Int32] | msgspec.UnsetType = msgspec.UNSET
    last_known_leader: Int32 | msgspec.UnsetType = msgspec.UNSET


class PartitionStateZnode(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads, who is in sync, who else has all that is committed. Only written on condition of its version
    (invariant 12). What Kafka wrote has none of the last three fields: then nobody is eligible, and nobody
    suspected."""

    controller_epoch: int
    leader: int
    """−1: nobody."""
    leader_epoch: int
    isr: list[int]
    elr: list[int] = []
    """Eligible leader replicas (KIP-966): who left the ISR while it fell below the minimum. The high watermark stands
    still from then on, so they have everything that is committed; it moves again only once this list is empty."""
    lossy: list[int] = []
    """Members of the ISR that may have lost what they acknowledged, while there is no other member to take over: they
    do not lead before somebody else did, or the longest log of all replicas was chosen."""
    last_known_leader: int = NO_BROKER
    """Who led last, while nobody does."""

    VERSION: ClassVar[int] = 1
    LAST_EPOCH: ClassVar[int] = 2**31 - 2
    """A leader epoch that still has a successor: each change of the controller needs one."""

    @staticmethod
    def path(topic: str, partition: int) -> str:
        return f"{TOPICS_PATH}/{topic}/partitions/{partition}/state"

    def without_claim(self, broker_id: int) -> PartitionStateZnode | None:
        """The state where this broker may have lost data; None where it is not credited with any (invariant 22)."""
        elr = [member for member in self.elr if member != broker_id]
        if broker_id not in self.isr:
            return msgspec.structs.replace(self, elr=elr) if elr != self.elr else None
        others = [member for member in self.isr if member != broker_id]
        if not others and broker_id in self.lossy and self.leader != broker_id:
            return None
        leads = self.leader == broker_id
        return msgspec.structs.replace(
            self,
            leader=NO_BROKER if leads else self.leader,
            leader_epoch=self.leader_epoch + 1,
            isr=others or self.isr,
            elr=elr,
            lossy=[*(member for member in self.lossy if member != broker_id), *(() if others else (broker_id,))],
            last_known_leader=broker_id if leads else self.last_known_leader,
        )

    def encode(self) -> bytes:
        return msgspec.json.encode(
            _PartitionStateJson(
                controller_epoch=self.controller_epoch,
                leader=self.leader,
                leader_epoch=self.leader_epoch,
                isr=self.isr,
                version=self.VERSION,
                elr=self.elr or msgspec.UNSET,
                lossy=self.lossy or msgspec.UNSET,
                last_known_leader=msgspec.UNSET if self.last_known_leader == NO_BROKER else self.last_known_leader,
            )
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> PartitionStateZnode:
        """InvalidZnode also for what contradicts itself: everything that is elected and written rests on it."""
        json = read_versioned(path, data, _PartitionStateJson, cls.VERSION)
        elr, lossy = json.elr or [], json.lossy or []
        _check_brokers(path, "the members of the ISR", json.isr)
        _check_brokers(path, "the eligible replicas", elr)
        _check_brokers(path, "those who may have lost data", lossy)
        if not json.isr:
            raise InvalidZnode(path, "the ISR is empty")
        if json.leader != NO_BROKER and (json.leader not in json.isr or json.leader in lossy):
            raise InvalidZnode(path, f"leader {json.leader} is not in the ISR {json.isr}, or may have lost data")
        if not 0 <= json.leader_epoch <= cls.LAST_EPOCH:
            raise InvalidZnode(path, f"leader epoch {json.leader_epoch}: 0 to {cls.LAST_EPOCH} is expected")
        return cls(
            controller_epoch=json.controller_epoch,
            leader=json.leader,
            leader_epoch=json.leader_epoch,
            isr=json.isr,
            elr=elr,
            lossy=lossy,
            last_known_leader=NO_BROKER if json.last_known_leader is msgspec.UNSET else json.last_known_leader,
        )


class DeleteTopicZnode:
    """Empty; its name asks the controller to delete that topic, and stands until it is gone."""

    @staticmethod
    def path(topic: str) -> str:
        return f"{DELETE_TOPICS_PATH}/{topic}"
