"""What hostile, broken and lost peers send to a broker's port, and what must happen: a table of raw bytes.

The same rows run against the pipeline in memory (unit tests) and against a live broker (integration tests). After each
row a second connection must be served as if nothing had happened. Rows are independent: one connection each.
"""

from __future__ import annotations

import enum
import random
import struct
from dataclasses import dataclass

import msgpack
import msgspec

from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    ApiVersionsRequest,
    ControlledShutdownRequest,
    FetchRequest,
    ListOffsetsRequest,
    Message,
    MetadataRequest,
    PartitionProduceData,
    ProduceRequest,
    StopReplicaRequest,
    TopicProduceData,
    UpdateMetadataRequest,
)
from strandline.protocol.native.frame import MAX_FRAME_BYTES
from support.raw_client import RawClient, frame_of, request_frame

CORRELATION_ID = 41


class Outcome(enum.Enum):
    """What the broker does with the connection."""

    CLOSED = "closed at once, without a byte"
    CLOSED_AT_DEADLINE = "closed when the frame's deadline has passed"
    ANSWERED_AND_CLOSED = "a typed error, then closed"
    ANSWERED = "a typed error, and the connection goes on"


@dataclass(frozen=True, slots=True)
class BadInput:
    """One row. `code`: of the answer, where there is one."""

    name: str
    data: bytes
    outcome: Outcome
    code: ErrorCode = ErrorCode.NONE

    def __str__(self) -> str:
        return self.name


def _prefix(length: int) -> bytes:
    return struct.pack(">I", length & 0xFFFFFFFF)


def _closed(name: str, data: bytes) -> BadInput:
    return BadInput(name, data, Outcome.CLOSED)


def _unreadable(name: str, body: bytes, api_key: int = ApiKey.METADATA, rest: bytes = b"") -> BadInput:
    frame = frame_of(api_key, 0, CORRELATION_ID, body, rest)
    return BadInput(name, frame, Outcome.ANSWERED_AND_CLOSED, ErrorCode.INVALID_REQUEST)


def _produce(*sizes: int, topic: str = "t") -> ProduceRequest:
    data = [PartitionProduceData(number, size) for number, size in enumerate(sizes)]
    return ProduceRequest(-1, 1000, [TopicProduceData(topic, data)])


def _attached(name: str, *sizes: int, attachments: bytes) -> BadInput:
    frame = request_frame(_produce(*sizes), correlation_id=CORRELATION_ID, attachments=attachments)
    return BadInput(name, frame, Outcome.ANSWERED_AND_CLOSED, ErrorCode.INVALID_REQUEST)


_GOOD = request_frame(MetadataRequest([]), correlation_id=CORRELATION_ID)
_GOOD_BODY = msgspec.msgpack.encode(MetadataRequest(["t"]))
_TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + random.Random(1).randbytes(189)

LENGTHS = [
    _closed(name, _prefix(length) + b"\x94")  # from the first byte on a length is judged, by the dialect
    for name, length in (
        ("length 0", 0),
        ("length -1", -1),
        ("length shorter than a header", 16),
        ("length one over the limit", MAX_FRAME_BYTES + 1),
        ("length 2 GiB", 2**31 - 1),
        ("length -2 GiB", 2**31),
        ("length 4 GiB", 2**32 - 1),
    )
] + [_closed("length 3", _prefix(3) + b"\x94\xcd\x00")]

OTHER_PROTOCOLS = [
    _closed("HTTP", b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"),
    _closed("TLS hello", _TLS_HELLO),
    _closed("SSH banner", b"SSH-2.0-OpenSSH_9.6\r\n"),
    _closed("zeros", bytes(64)),
    _closed("0xff", b"\xff" * 64),
    *[_closed(f"random bytes {seed}", b"\x7f" + random.Random(seed).randbytes(200)) for seed in range(5)],
    _closed("a plausible length, then random bytes", _prefix(200) + b"\x00" + random.Random(9).randbytes(199)),
]

HEADERS = [
    _closed("array of 3", _GOOD[:4] + b"\x93" + _GOOD[5:]),
    _closed("api key of another width", _GOOD[:5] + b"\xcc" + _GOOD[6:]),
    _closed("version of another width", _GOOD[:8] + b"\xce" + _GOOD[9:]),
    _closed("correlation id of another width", _GOOD[:11] + b"\xcd" + _GOOD[12:]),
    _closed("body length of another width", _GOOD[:16] + b"\xcf" + _GOOD[17:]),
    _closed("body longer than its frame", _GOOD[:17] + struct.pack(">I", len(_GOOD)) + _GOOD[21:]),
    _closed("body of 4 GiB", _GOOD[:17] + b"\xff\xff\xff\xff" + _GOOD[21:]),
    _closed("unknown api key", frame_of(999, 0, CORRELATION_ID, _GOOD_BODY)),
    _closed("unknown api key of a large frame, at its header", _prefix(50_000_000) + frame_of(999, 0, 1, b"")[4:21]),
    BadInput("prefix, then silence", _GOOD[:4], Outcome.CLOSED_AT_DEADLINE),
    BadInput("one byte, then silence", _GOOD[:1], Outcome.CLOSED_AT_DEADLINE),
    BadInput("half a header, then silence", _GOOD[:12], Outcome.CLOSED_AT_DEADLINE),
    BadInput("half a body, then silence", _GOOD[:-1], Outcome.CLOSED_AT_DEADLINE),
]

VERSIONS = [
    BadInput(
        f"{type(message).__name__} of version {version}",
        request_frame(message, correlation_id=CORRELATION_ID, version=version),
        Outcome.ANSWERED,
        ErrorCode.UNSUPPORTED_VERSION,
    )
    for message in (MetadataRequest(["t"]), FetchRequest(0, 0, 0, []), ListOffsetsRequest([]))
    for version in (1000, 65_535)
] + [
    BadInput(
        "an unreadable body of an unknown version",
        frame_of(ApiKey.METADATA, 1000, CORRELATION_ID, b"\xc1"),
        Outcome.ANSWERED,
        ErrorCode.UNSUPPORTED_VERSION,
    )
]

API_VERSIONS_OF_THE_FUTURE = request_frame(ApiVersionsRequest("x", "9"), correlation_id=CORRELATION_ID, version=999)
"""Not bad input: ApiVersions is answered whatever its version."""

BODIES = [
    _unreadable("empty body", b""),
    _unreadable("truncated body", _GOOD_BODY[:-1]),
    _unreadable("bytes after the body's message", _GOOD_BODY + b"\x00"),
    _unreadable("a reserved byte", b"\xc1"),
    _unreadable("array32 of 100 million", bytes.fromhex("dd06400000")),
    _unreadable("array32 of 4 G", bytes.fromhex("ddffffffff")),
    _unreadable("map32 of 4 G", bytes.fromhex("dfffffffff")),
    _unreadable("string of 4 G", bytes.fromhex("91dbffffffff")),
    _unreadable("bytes of 4 G", bytes.fromhex("91c6ffffffff")),
    _unreadable("nested 100 000 deep", b"\x91" * 100_000 + b"\xc0"),
    _unreadable("a map instead of an array", msgpack.packb({"topics": ["t"]})),
    _unreadable("a string instead of a list", msgpack.packb(["topics"])),
    _unreadable("a number in a list of names", msgpack.packb([[1]])),
    _unreadable("an extension type", msgpack.packb([msgpack.ExtType(5, b"payload")])),
    _unreadable("a timestamp extension", msgpack.packb([[msgpack.Timestamp(1, 2)]])),
    _unreadable("a name that is not UTF-8", bytes.fromhex("9191a2fffe")),
    _unreadable("null where a value must be", msgpack.packb([[None]])),
    _unreadable("NaN for an integer", msgpack.packb([float("nan"), 0, []]), ApiKey.PRODUCE),
    _unreadable("a float for an integer", msgpack.packb([1.5, 0, []]), ApiKey.PRODUCE),
    _unreadable("true for an integer", msgpack.packb([True, 0, []]), ApiKey.PRODUCE),
    _unreadable("acks beyond 16 bits", msgpack.packb([40_000, 0, []]), ApiKey.PRODUCE),
    _unreadable("an integer beyond 64 bits", msgpack.packb([-1, 2**64 - 1, []]), ApiKey.PRODUCE),
    _unreadable("an offset of 2**63", msgpack.packb([0, 0, 0, [["t", [[0, 2**63, 1]]]]]), ApiKey.FETCH),
    _unreadable("a partition beyond 32 bits", msgpack.packb([0, 0, 0, [["t", [[2**31, 0, 1]]]]]), ApiKey.FETCH),
    _unreadable("missing fields", msgpack.packb([0]), ApiKey.FETCH),
]

_MANY = 10_001
"""Topics or partitions: one more than a request may name."""

BREADTH = [
    _unreadable("metadata of too many topics", msgpack.packb([["t"] * _MANY])),
    _unreadable("the creation of too many topics", msgpack.packb([[["t"]] * _MANY]), ApiKey.CREATE_TOPICS),
    *[
        _unreadable(f"the creation of topics with too many {what}", msgpack.packb([topics]), ApiKey.CREATE_TOPICS)
        for what, topics in (
            ("assignments", [["t", -1, -1, {n: [1] for n in range(5000)}]] * 3),
            ("settings", [["t", 1, 1, {}, {f"k{n}": "" for n in range(5000)}]] * 3),
        )
    ],
    _unreadable("the deletion of too many topics", msgpack.packb([["t"] * _MANY, 1]), ApiKey.DELETE_TOPICS),
    _unreadable(
        "an assignment of too many",
        msgpack.packb([[["t", -1, -1, {n: [1] for n in range(_MANY)}]]]),
        ApiKey.CREATE_TOPICS,
    ),
    *[
        _unreadable(f"{key.name} of too many partitions: {counts}", msgpack.packb([*before, topics, *after]), key)
        for key, before, element, after in (
            (ApiKey.PRODUCE, [1, 1000], [0, 0], []),
            (ApiKey.FETCH, [0, 1, 1000], [0, 0, 100], []),
            (ApiKey.LIST_OFFSETS, [], [0, -1], []),
            (ApiKey.OFFSET_FOR_LEADER_EPOCH, [], [0, 0], []),
            (ApiKey.DELETE_RECORDS, [], [0, 0], [1000]),
        )
        for counts, topics in (
            ("of one topic", [["t", [element] * _MANY]]),
            ("of several topics", [["t", [element] * (_MANY // 3 + 1)]] * 3),
            ("of many topics", [["t", [element]]] * _MANY),
            ("with topics without any", [["t", [element] * (_MANY - 10)], *[["t", []]] * 10]),
        )
    ],
    *[
        _unreadable(f"{key.name} of too many partitions", msgpack.packb([[["t", [0] * (_MANY // 2 + 1)]] * 2]), key)
        for key in (ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_PRODUCERS)
    ],
    _unreadable("a body of more than 2 MiB", msgpack.packb([["t" * 250] * 9000])),
    BadInput(
        "an unknown version that names too much",
        frame_of(ApiKey.METADATA, 1000, CORRELATION_ID, msgpack.packb([["t"] * _MANY])),
        Outcome.ANSWERED,
        ErrorCode.UNSUPPORTED_VERSION,
    ),
]

NOT_AWAITED = [
    BadInput(
        f"the header of a {name} of 90 MB",
        _prefix(90_000_000) + frame_of(key, 0, CORRELATION_ID, bytes(body))[4:21],
        Outcome.ANSWERED_AND_CLOSED,
        ErrorCode.INVALID_REQUEST,
    )
    for name, key, body in (("question", ApiKey.METADATA, 0), ("fetch", ApiKey.FETCH, 10))
]
"""Requests without record batches: they are refused by their lengths."""

ATTACHMENTS = [
    _attached("fewer bytes attached than named", 100, attachments=bytes(99)),
    _attached("more bytes attached than named", 100, attachments=bytes(101)),
    _attached("attachments that are not there", 100, attachments=b""),
    _attached("attachments that nobody named", -1, attachments=bytes(10)),
    _attached("a size of -2", -2, attachments=b""),
    _attached("a size of -2 GiB", -(2**31), attachments=b""),
    _attached("sizes of 2 GiB", 2**31 - 1, 2**31 - 1, attachments=bytes(100)),
]

EVERYWHERE = [*LENGTHS, *OTHER_PROTOCOLS, *HEADERS, *VERSIONS, *BODIES, *BREADTH, *NOT_AWAITED, *ATTACHMENTS]
"""Rows for any listener."""

ON_CLIENT_LISTENERS = [
    BadInput(
        f"{type(message).__name__} of version {version} from a client",
        request_frame(message, correlation_id=CORRELATION_ID, version=version),
        Outcome.ANSWERED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
    for message in (
        StopReplicaRequest(0, 0, 0, []),
        UpdateMetadataRequest(0, 0, 0, [], []),
        ControlledShutdownRequest(0),
    )
    for version in (0, 1000)
]
"""Rows for a listener that is not the inter-broker one."""


def error_codes(message: Message) -> set[int]:
    """Every error code other than 0 in a response, however deep."""
    codes: set[int] = set()
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name == "error_code" and value:
            codes.add(value)
        for element in value if isinstance(value, list) else [value]:
            if isinstance(element, Message):
                codes |= error_codes(element)
    return codes


async def check(row: BadInput, client: RawClient) -> None:
    """Send the row and compare what happens with what must. AssertionError says what was different. For rows of
    CLOSED_AT_DEADLINE it returns when the broker has closed: the caller knows the deadline."""
    await client.send(row.data)
    if row.outcome in (Outcome.CLOSED, Outcome.CLOSED_AT_DEADLINE):
        assert await client.is_closed_by_peer(), f"{row.name}: answered instead of closed"
        return
    response = await client.response()
    assert response is not None, f"{row.name}: closed without an answer"
    assert response.header.correlation_id == CORRELATION_ID
    assert error_codes(response.message) == {row.code}, f"{row.name}: answered {response.message}"
    if row.outcome is Outcome.ANSWERED_AND_CLOSED:
        assert await client.is_closed_by_peer(), f"{row.name}: not closed after the error"
    else:
        assert await client.request(MetadataRequest([])) is not None, f"{row.name}: closed after the error"
