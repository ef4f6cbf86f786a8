"""The answer to Metadata in Kafka's protocol, versions 0 to 12, by hand: who follows topics by a pattern asks for all
of them again and again, which kio takes 20 µs a partition for (by hand a tenth).

```
response   [3+ int32 throttle_time_ms] | array of brokers | [2+ string? cluster_id] | [1+ int32 controller_id]
           | array of topics | [8 to 10 int32 cluster_authorized_operations] | tagged
broker     int32 node_id | string host | int32 port | [1+ string? rack] | tagged
topic      int16 error_code | string name, from 12 string? | [10+ uuid topic_id] | [1+ bool is_internal]
           | array of partitions | [8+ int32 topic_authorized_operations] | tagged
partition  int16 error_code | int32 partition_index | int32 leader_id | [7+ int32 leader_epoch]
           | array of int32 replica_nodes | the same of isr_nodes | [5+ the same of offline_replicas] | tagged
```
Version 9 and later are flexible (`primitives`).

Source: MetadataResponse.json of Kafka 3.9.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from strandline.protocol.kafka.primitives import (
    DOES_NOT_FIT,
    INT16,
    INT32,
    NO_TAGS,
    frame_of,
    length_of,
    nullable_string,
    string,
    unwritable,
)
from strandline.protocol.messages import MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic

FIRST_FLEXIBLE = 9
FIRST_WITH_OPERATIONS = 8
LAST_WITH_OPERATIONS_OF_CLUSTER = 10
FIRST_WITH_IDS = 10
FIRST_WITH_NULL_NAMES = 12

_PARTITION = struct.Struct(">hii")
_PARTITION_WITH_EPOCH = struct.Struct(">hiii")
_BOOL = struct.Struct(">?")


def encode_metadata_response(version: int, correlation_id: int, message: MetadataResponse) -> bytes:
    """The whole frame, with its length and header. LocalProtocolError: a value does not fit its place."""
    flexible = version >= FIRST_FLEXIBLE
    out: list[bytes] = []
    try:
        if version >= 3:
            out.append(INT32.pack(message.throttle_time_ms))
        out.append(length_of(len(message.brokers), flexible))
        for broker in message.brokers:
            _add_broker(out, version, broker)
        if version >= 2:
            out.append(nullable_string(message.cluster_id, flexible))
        if version >= 1:
            out.append(INT32.pack(message.controller_id))
        out.append(length_of(len(message.topics), flexible))
        for topic in message.topics:
            _add_topic(out, version, topic)
        if FIRST_WITH_OPERATIONS <= version <= LAST_WITH_OPERATIONS_OF_CLUSTER:
            out.append(INT32.pack(message.cluster_authorized_operations))
        if flexible:
            out.append(NO_TAGS)
        return frame_of(correlation_id, flexible, b"".join(out))
    except DOES_NOT_FIT as error:
        raise unwritable(message, error) from error


def _add_broker(out: list[bytes], version: int, broker: MetadataBroker) -> None:
    flexible = version >= FIRST_FLEXIBLE
    out += (INT32.pack(broker.node_id), string(broker.host, flexible), INT32.pack(broker.port))
    if version >= 1:
        out.append(nullable_string(broker.rack, flexible))
    if flexible:
        out.append(NO_TAGS)


def _add_topic(out: list[bytes], version: int, topic: MetadataTopic) -> None:
    flexible = version >= FIRST_FLEXIBLE
    out.append(INT16.pack(topic.error_code))
    has_null_names = version >= FIRST_WITH_NULL_NAMES
    out.append(nullable_string(topic.name if has_null_names else topic.name or "", flexible))
    if version >= FIRST_WITH_IDS:
        out.append(topic.topic_id)
    if version >= 1:
        out.append(_BOOL.pack(topic.is_internal))
    out.append(length_of(len(topic.partitions), flexible))
    for partition in topic.partitions:
        _add_partition(out, version, flexible, partition)
    if version >= FIRST_WITH_OPERATIONS:
        out.append(INT32.pack(topic.topic_authorized_operations))
    if flexible:
        out.append(NO_TAGS)


def _add_partition(out: list[bytes], version: int, flexible: bool, part: MetadataPartition) -> None:
    if version >= 7:
        out.append(_PARTITION_WITH_EPOCH.pack(part.error_code, part.partition_index, part.leader_id, part.leader_epoch))
    else:
        out.append(_PARTITION.pack(part.error_code, part.partition_index, part.leader_id))
    out += (_ids(tuple(part.replica_nodes), flexible), _ids(tuple(part.isr_nodes), flexible))
    if version >= 5:
        out.append(_ids(tuple(part.offline_replicas), flexible))
    if flexible:
        out.append(NO_TAGS)


@lru_cache(4096)
def _ids(brokers: tuple[int, ...], flexible: bool) -> bytes:
    """Most partitions of a cluster share few lists of brokers."""
    return length_of(len(brokers), flexible) + struct.pack(f">{len(brokers)}i", *brokers)
