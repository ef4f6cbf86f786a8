"""Requests that can be read and must not be obeyed: a table of messages and the error codes that answer them.

Each row is one request about `TOPIC` (one partition, plain settings) and the codes of which exactly one must be in the
answer, and no other code. Nothing of a row may reach a log: the topic's end offset is the same afterwards.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from crc32c import crc32c

from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeProducersRequest,
    DescribeProducersTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    PartitionProduceData,
    ProduceRequest,
    Request,
    TopicProduceData,
)
from strandline.protocol.records import build_batch
from strandline.protocol.topic_name import INTERNAL_TOPICS

TOPIC = "bad-input"
OTHER_ID = b"\x01" * 16
_LONGEST_NAME = 249

_CORRUPT = frozenset({ErrorCode.CORRUPT_MESSAGE})
_INVALID = frozenset({ErrorCode.INVALID_RECORD})
_DAMAGED = _CORRUPT | _INVALID
_TIMESTAMP = frozenset({ErrorCode.INVALID_TIMESTAMP})
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_BAD_NAME = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION})


@dataclass(frozen=True, slots=True)
class BadRequest:
    """One row."""

    name: str
    message: Request
    codes: frozenset[ErrorCode]
    attachments: bytes = b""

    def __str__(self) -> str:
        return self.name


GOOD_BATCH = build_batch([(1_700_000_000_000 + number, b"key", b"value %d" % number) for number in range(3)])


def _produce(batches: bytes, *, topic: str = TOPIC, partition: int = 0, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(acks, 5000, [TopicProduceData(topic, [PartitionProduceData(partition, len(batches))])])


def _changed(position: int, form: str, value: int, *, batch: bytes = GOOD_BATCH, right_crc: bool = True) -> bytes:
    """The batch with one field of its header replaced."""
    changed = bytearray(batch)
    struct.pack_into(form, changed, position, value)
    if right_crc:
        struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


def _batch(name: str, records: bytes, codes: frozenset[ErrorCode]) -> BadRequest:
    return BadRequest(name, _produce(records), codes, records)


def _with_records(records: bytes, count: int = 1) -> bytes:
    """A batch around any bytes as its records, right in everything else."""
    batch = bytearray(GOOD_BATCH[:61] + records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


BATCHES = [
    _batch("wrong CRC", _changed(17, ">I", 12345, right_crc=False), _CORRUPT),
    _batch("a flipped bit in a value", GOOD_BATCH[:-2] + bytes([GOOD_BATCH[-2] ^ 1]) + GOOD_BATCH[-1:], _CORRUPT),
    _batch("magic 0", _changed(16, ">b", 0), _DAMAGED),
    _batch("magic 1", _changed(16, ">b", 1), _DAMAGED),
    _batch("magic 3", _changed(16, ">b", 3), _DAMAGED),
    _batch("a length beyond the bytes", _changed(8, ">i", len(GOOD_BATCH)), _CORRUPT),
    _batch("a length below a header", _changed(8, ">i", 10), _CORRUPT),
    _batch("length 0", _changed(8, ">i", 0), _CORRUPT),
    _batch("a negative length", _changed(8, ">i", -1), _CORRUPT),
    _batch("a length of 2 GiB", _changed(8, ">i", 2**31 - 1), _CORRUPT),
    _batch("a truncated batch", GOOD_BATCH[:-1], _CORRUPT),
    _batch("half a header", GOOD_BATCH[:30], _CORRUPT),
    _batch("a good batch and half of another", GOOD_BATCH + GOOD_BATCH[:70], _CORRUPT),
    _batch("random bytes", bytes(range(256)) * 4, _DAMAGED),
    _batch("count 0", _changed(57, ">i", 0), _INVALID),
    _batch("a negative count", _changed(57, ">i", -5), _INVALID),
    _batch("a count that contradicts the offsets", _changed(57, ">i", 2), _INVALID),
    _batch("a negative last offset delta", _changed(23, ">i", -1), _INVALID),
    _batch("a control batch", _changed(21, ">h", 0x20), _INVALID),
    _batch("reserved codec 5", _changed(21, ">h", 5), _INVALID),
    _batch("reserved codec 7", _changed(21, ">h", 7), _INVALID),
    _batch("unused attribute bits", _changed(21, ">h", 0x4000), _INVALID),
    _batch(
        "a transactional batch without a producer", _changed(21, ">h", 0x10), _INVALID | {ErrorCode.INVALID_TXN_STATE}
    ),
    _batch("a producer id without a sequence", _changed(43, ">q", 7), _INVALID),
    _batch("a timestamp of 2**63 - 1", _changed(27, ">q", 2**63 - 1), _TIMESTAMP),
    _batch("a timestamp of -2**63", _changed(27, ">q", -(2**63)), _TIMESTAMP),
    _batch("a record length beyond its batch", _with_records(b"\xfe\xff\xff\xff\x0f" + bytes(20)), _INVALID),
    _batch("a record length that never ends", _with_records(b"\xff" * 15), _INVALID),
    _batch("no records where one is counted", _with_records(b""), _INVALID),
    _batch("a negative record length", _with_records(b"\x01" + bytes(20)), _INVALID),
    _batch("a negative headers count", _with_records(bytes.fromhex("0e 00 00 00 01 01 01 00")), _INVALID),
    _batch("an offset delta out of order", _with_records(bytes.fromhex("0c 00 00 02 01 01 00")), _INVALID),
    _batch("bytes after the last record", _with_records(bytes.fromhex("0c 00 00 00 01 01 00") + bytes(9)), _INVALID),
    _batch(
        "larger than max.message.bytes",
        build_batch([(1, None, bytes(3_000_000))]),
        frozenset({ErrorCode.MESSAGE_TOO_LARGE}),
    ),
]

PRODUCE = [
    BadRequest("acks 5", _produce(GOOD_BATCH, acks=5), frozenset({ErrorCode.INVALID_REQUIRED_ACKS}), GOOD_BATCH),
    BadRequest("produce to partition -1", _produce(GOOD_BATCH, partition=-1), _UNKNOWN, GOOD_BATCH),
    BadRequest("produce to partition 2**31 - 1", _produce(GOOD_BATCH, partition=2**31 - 1), _UNKNOWN, GOOD_BATCH),
    *[
        BadRequest(f"produce to topic {name!r:.20}", _produce(GOOD_BATCH, topic=name), _UNKNOWN | _BAD_NAME, GOOD_BATCH)
        for name in ("", ".", "..", "../../etc/passwd", "a/b", "a\x00b", "x" * 10_000, "topic-that-is-not-there")
    ],
]


def _fetch(
    partition: int = 0, offset: int = 0, *, topic: str = TOPIC, topic_id: bytes = bytes(16), epoch: int = -1
) -> Request:
    wanted = FetchPartition(partition, offset, 1000, epoch)
    return FetchRequest(0, 0, 1000, [FetchTopic(topic, [wanted], topic_id)])


def _list_offsets(partition: int, timestamp: int) -> Request:
    return ListOffsetsRequest([ListOffsetsTopic(TOPIC, [ListOffsetsPartition(partition, timestamp)])])


INTERNAL = [
    row
    for name in sorted(INTERNAL_TOPICS)
    for row in (
        BadRequest(f"produce to {name}", _produce(GOOD_BATCH, topic=name), _BAD_NAME, GOOD_BATCH),
        BadRequest(f"automatic creation of {name}", MetadataRequest([name], True), _BAD_NAME),
        BadRequest(f"create {name}", CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5000), _BAD_NAME),
        BadRequest(f"delete {name}", DeleteTopicsRequest([name], 5000), _BAD_NAME),
        BadRequest(
            f"delete records of {name}",
            DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)])], 1000),
            _BAD_NAME,
        ),
    )
]

TWICE = [
    BadRequest(
        "fetch from a partition twice",
        FetchRequest(0, 0, 1000, [FetchTopic(TOPIC, [FetchPartition(0, 0, 1000)] * 2)]),
        frozenset({ErrorCode.INVALID_REQUEST}),
    ),
    BadRequest(
        "delete the records of a partition twice",
        DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 0)])] * 2, 1000),
        frozenset({ErrorCode.INVALID_REQUEST}),
    ),
    BadRequest(
        "describe the producers of a partition twice",
        DescribeProducersRequest([DescribeProducersTopic(TOPIC, [0, 0])]),
        frozenset({ErrorCode.INVALID_REQUEST}),
    ),
]

READS = [
    BadRequest("fetch from partition -1", _fetch(-1), _UNKNOWN),
    BadRequest("fetch from partition 2**31 - 1", _fetch(2**31 - 1), _UNKNOWN),
    BadRequest("fetch from a negative offset", _fetch(0, -5), frozenset({ErrorCode.OFFSET_OUT_OF_RANGE})),
    BadRequest("fetch from offset 2**63 - 1", _fetch(0, 2**63 - 1), frozenset({ErrorCode.OFFSET_OUT_OF_RANGE})),
    BadRequest(
        "fetch with an epoch of the future", _fetch(0, 0, epoch=2**31 - 1), frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH})
    ),
    BadRequest(
        "fetch with another topic's id",
        _fetch(0, 0, topic_id=OTHER_ID),
        frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}),
    ),
    BadRequest("fetch from a topic that is not there", _fetch(topic="nowhere"), _UNKNOWN),
    BadRequest("offsets of partition -1", _list_offsets(-1, -1), _UNKNOWN),
    *[
        BadRequest(
            f"the producers of partition {index}",
            DescribeProducersRequest([DescribeProducersTopic(TOPIC, [index])]),
            _UNKNOWN,
        )
        for index in (-1, 2**31 - 1)
    ],
    BadRequest(
        "the controllers of the cluster",
        DescribeClusterRequest(endpoint_type=2),
        frozenset({ErrorCode.MISMATCHED_ENDPOINT_TYPE}),
    ),
    BadRequest(
        "what the cluster has of a kind that is not known",
        DescribeClusterRequest(endpoint_type=-1),
        frozenset({ErrorCode.UNSUPPORTED_ENDPOINT_TYPE}),
    ),
    BadRequest(
        "end of an epoch of partition -1",
        OffsetForLeaderEpochRequest([OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(-1, 0)])]),
        _UNKNOWN,
    ),
    *[
        BadRequest(f"metadata of topic {name!r:.20}", MetadataRequest([name], True), _BAD_NAME | _UNKNOWN)
        for name in ("", ".", "..", "a/b", "a\\b", "a\x00b", "x" * (_LONGEST_NAME + 1))
    ],
]


def _create(name: str, codes: frozenset[ErrorCode], topic: CreatableTopic) -> BadRequest:
    return BadRequest(name, CreateTopicsRequest([topic], 5000), codes)


def _code(code: ErrorCode) -> frozenset[ErrorCode]:
    return frozenset({code})


_BAD_ASSIGNMENT = frozenset({ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.INVALID_REPLICATION_FACTOR})
_BAD_PARTITIONS = frozenset({ErrorCode.INVALID_PARTITIONS, ErrorCode.POLICY_VIOLATION})

CREATE_TOPICS = [
    *[
        _create(f"create topic {name!r:.20}", _BAD_NAME, CreatableTopic(name, 1, 1))
        for name in (
            "",
            ".",
            "..",
            "a/b",
            "a\\b",
            "a\x00b",
            "é",
            "主题",
            "a b",
            "x" * (_LONGEST_NAME + 1),
            "x" * 100_000,
        )
    ],
    _create("create a topic that exists", _code(ErrorCode.TOPIC_ALREADY_EXISTS), CreatableTopic(TOPIC, 1, 1)),
    _create("replication factor 0", _code(ErrorCode.INVALID_REPLICATION_FACTOR), CreatableTopic("rf", 1, 0)),
    _create("replication factor -2", _code(ErrorCode.INVALID_REPLICATION_FACTOR), CreatableTopic("rf", 1, -2)),
    _create("more replicas than brokers", _code(ErrorCode.INVALID_REPLICATION_FACTOR), CreatableTopic("rf", 1, 1000)),
    _create("0 partitions", _BAD_PARTITIONS, CreatableTopic("parts", 0, 1)),
    _create("-2 partitions", _BAD_PARTITIONS, CreatableTopic("parts", -2, 1)),
    _create("a million partitions", _BAD_PARTITIONS, CreatableTopic("parts", 1_000_000, 1)),
    _create("2**31 - 1 partitions", _BAD_PARTITIONS, CreatableTopic("parts", 2**31 - 1, 1)),
    BadRequest(
        "more topics than one request creates",
        CreateTopicsRequest([CreatableTopic(f"n{number}", 1, 1) for number in range(1001)], 5000),
        _code(ErrorCode.POLICY_VIOLATION),
    ),
    BadRequest(
        "more topics than one request deletes",
        DeleteTopicsRequest([f"n{number}" for number in range(1001)], 5000),
        _code(ErrorCode.POLICY_VIOLATION),
    ),
    _create("a replica twice", _BAD_ASSIGNMENT, CreatableTopic("a", assignments={0: [1, 1]})),
    _create("an unknown replica", _BAD_ASSIGNMENT, CreatableTopic("a", assignments={0: [77]})),
    _create("a gap in the assignment", _BAD_ASSIGNMENT, CreatableTopic("a", assignments={1: [1]})),
    _create("no replicas", _BAD_ASSIGNMENT, CreatableTopic("a", assignments={0: []})),
    _create(
        "a manual assignment and a number",
        _BAD_ASSIGNMENT | {ErrorCode.INVALID_REQUEST},
        CreatableTopic("a", 3, 1, assignments={0: [1]}),
    ),
    _create(
        "an unknown configuration", _code(ErrorCode.INVALID_CONFIG), CreatableTopic("c", 1, 1, configs={"no.such": "1"})
    ),
    _create(
        "a configuration of the wrong type",
        _code(ErrorCode.INVALID_CONFIG),
        CreatableTopic("c", 1, 1, configs={"retention.ms": "soon"}),
    ),
    _create(
        "a configuration out of range",
        _code(ErrorCode.INVALID_CONFIG),
        CreatableTopic("c", 1, 1, configs={"segment.bytes": "-7"}),
    ),
]

EVERYWHERE = [*BATCHES, *PRODUCE, *INTERNAL, *TWICE, *READS, *CREATE_TOPICS]

ON_CLIENT_LISTENERS = [
    BadRequest(
        "fetch as a follower",
        FetchRequest(0, 0, 1000, [FetchTopic(TOPIC, [FetchPartition(0, 0, 1000)])], replica_id=1),
        frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED}),
    ),
]
"""Rows for a listener that is not the inter-broker one."""
