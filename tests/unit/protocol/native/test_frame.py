"""Frames: what is encoded comes back, byte by byte or at once, and nothing that a peer sends does worse than
RemoteProtocolError."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.api import APIS
from strandline.protocol.errors import LocalProtocolError, RemoteProtocolError
from strandline.protocol.messages import (
    ApiVersionsRequest,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    MetadataRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from strandline.protocol.messages.base import Message
from strandline.protocol.native.frame import (
    HEADER_BYTES,
    MAX_BODY_BYTES,
    MAX_FRAME_BYTES,
    PREFIX_AND_HEADER_BYTES,
    FrameHeader,
    cut_records,
    decode_body,
    encode_head,
    read_header,
)

PRODUCE = ProduceRequest(-1, 30_000, [TopicProduceData("t", [PartitionProduceData(3, 16)])])


def message_classes() -> list[type[Message]]:
    """Everything that travels as a whole: requests and their responses."""
    found: dict[str, type[Message]] = {}
    for api in APIS.values():
        found[api.request.__name__] = api.request
        found[api.response.__name__] = api.response
    return [found[name] for name in sorted(found)]


def values(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Any value that a message field of this type allows."""
    kinds = msgspec.inspect
    match info:
        case kinds.IntType(ge=lowest, le=highest):
            return st.integers(-(2**63) if lowest is None else lowest, 2**63 - 1 if highest is None else highest)
        case kinds.FloatType():
            return st.floats(allow_nan=False)  # which equals nothing, itself included
        case kinds.BoolType():
            return st.booleans()
        case kinds.StrType():
            return st.text(max_size=12)
        case kinds.BytesType():
            return st.binary(max_size=20)
        case kinds.NoneType():
            return st.none()
        case kinds.ListType(item_type=item):
            return st.lists(values(item), max_size=3)
        case kinds.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=3)
        case kinds.TupleType(item_types=items):
            return st.tuples(*(values(item) for item in items))
        case kinds.UnionType(types=types):
            return st.one_of(*(values(one) for one in types))
        case kinds.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: values(field.type) for field in fields})
    raise AssertionError(f"no strategy for {info}: a message has a field of a new type")


every_message_class = pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)


@every_message_class
@settings(max_examples=25)
@given(data=st.data())
def test_every_message_comes_back_as_it_was(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(values(msgspec.inspect.type_info(cls)))
    head = encode_head(18, 3, 2**31 - 1, message, 77)
    expected = FrameHeader(len(head) + 77, 18, 3, 2**31 - 1, len(head) - PREFIX_AND_HEADER_BYTES)
    assert read_header(head, 0, len(head)) == expected
    assert decode_body(cls, memoryview(head)[PREFIX_AND_HEADER_BYTES:]) == message


@every_message_class
@settings(max_examples=5)
@given(data=st.data())
def test_a_newer_senders_message_is_understood_and_an_older_ones_completed(
    cls: type[Message], data: st.DataObject
) -> None:
    fields = msgspec.structs.fields(cls)
    required = [data.draw(values(msgspec.inspect.type_info(field.type))) for field in fields if field.required]
    newer = [*msgspec.structs.astuple(cls(*required)), "a field of the future"]
    plain = msgpack.packb(newer, default=msgspec.structs.astuple)
    assert decode_body(cls, plain) == cls(*required)
    older = msgpack.packb(required, default=msgspec.structs.astuple)
    assert decode_body(cls, older) == cls(*required)


def test_the_bytes_of_a_header_are_what_the_specification_says() -> None:
    head = encode_head(0, 1, 7, PRODUCE, 16)
    body = msgpack.packb([-1, 30_000, [["t", [[3, 16]], bytes(16)]], None])
    assert head == (
        struct.pack(">i", 17 + len(body) + 16)
        + b"\x94\xcd\x00\x00\xcd\x00\x01\xce\x00\x00\x00\x07\xce"
        + struct.pack(">I", len(body))
        + body
    )
    assert msgpack.unpackb(head[4:21]) == [0, 1, 7, len(body)]


def test_a_frame_that_arrives_byte_by_byte_is_known_from_its_header_on() -> None:
    frame = encode_head(0, 0, 1, PRODUCE, 16) + bytes(16)
    stream = b"before" + frame
    for available in range(len(frame) + 1):
        seen = stream[: 6 + available]
        header = read_header(seen, 6, available)
        assert (header and header.size_bytes) == (None if available < PREFIX_AND_HEADER_BYTES else len(frame))


def test_a_body_never_ends_beyond_its_frame() -> None:
    frame = bytearray(encode_head(0, 0, 1, PRODUCE))
    assert read_header(frame, 0, len(frame)) is not None
    frame[20] += 1
    with pytest.raises(RemoteProtocolError, match="body of"):
        read_header(frame, 0, len(frame))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, HEADER_BYTES - 1, MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_a_length_that_no_frame_has_is_refused_at_the_prefix(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match="frame length"):
        read_header(struct.pack(">i", length), 0, 4)


@pytest.mark.parametrize("length", [HEADER_BYTES, MAX_FRAME_BYTES])
def test_the_shortest_and_the_longest_frame_are_allowed(length: int) -> None:
    frame = struct.pack(">i", length) + encode_head(0, 0, 1, PRODUCE)[4:17] + bytes(4)
    assert read_header(frame, 0, 4) is None
    header = read_header(frame, 0, len(frame))
    assert header is not None and header.size_bytes == length + 4


@pytest.mark.parametrize(
    "first_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20),
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
    ids=["http", "tls", "ssh"],
)
def test_other_protocols_are_noticed_at_the_prefix_or_the_header(first_bytes: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_header(first_bytes, 0, len(first_bytes))


def test_a_header_is_refused_where_any_tag_is_wrong_or_bytes_are_missing() -> None:
    head = bytearray(encode_head(0, 0, 1, PRODUCE))
    for position in (4, 5, 8, 11, 16):
        damaged = bytearray(head)
        damaged[position] ^= 0x01
        with pytest.raises(RemoteProtocolError, match="native header"):
            read_header(damaged, 0, len(damaged))
    assert read_header(head, 0, PREFIX_AND_HEADER_BYTES - 1) is None


@settings(max_examples=200)
@given(data=st.binary(max_size=80))
def test_garbage_never_raises_anything_else(data: bytes) -> None:
    for attempt in (
        lambda: read_header(data, 0, len(data)),
        lambda: read_header(bytes(4) + data, 0, 4 + len(data)),
        lambda: decode_body(ProduceRequest, data),
        lambda: decode_body(FetchRequest, memoryview(data)),
    ):
        try:
            attempt()
        except RemoteProtocolError as error:
            assert "\n" not in str(error)


@settings(max_examples=60)
@given(position=st.integers(0, 200), bit=st.integers(0, 7), data=st.data())
def test_a_flipped_bit_in_a_body_gives_a_message_or_a_typed_error(position: int, bit: int, data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(message_classes()))
    message = data.draw(values(msgspec.inspect.type_info(cls)))
    body = bytearray(encode_head(0, 0, 0, message)[PREFIX_AND_HEADER_BYTES:])
    body[position % len(body)] ^= 1 << bit
    try:
        assert isinstance(decode_body(cls, body), cls)
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize(
    "body",
    [
        b"\xdd\x06\x40\x00\x00",
        b"\x94\x00\x00\xdd\x7f\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\x91" * 100_000,
        b"\xc1",
        b"\x94\xc3\x00\x90\xc0",
        b"\x94\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x00\x90\xc0",
        b"\x94\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00\x00\x90\xc0",
        b"\x94\x00\x00\x90\xa1\xff",
        b"\x94\x00\x00\x90\xc0\xc0",
        b"\x94\x00\x00\x82\x01\x02\x01\x03\xc0",
        b"\x94\x00\x00\xd4\x01\x00\xc0",
        b"",
    ],
    ids=[
        "array32 of 100 M",
        "nested array32",
        "map32",
        "bin32",
        "str32",
        "ext32",
        "deep nesting",
        "0xc1",
        "bool for int",
        "above int64",
        "NaN",
        "bad UTF-8",
        "extra data",
        "map with a key twice",
        "extension type",
        "nothing",
    ],
)
def test_a_hostile_body_is_refused_before_its_lengths_are_believed(body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            decode_body(ProduceRequest, body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_a_body_above_its_limit_is_refused_by_its_header_alone() -> None:
    header = struct.pack(">iBBHBHBIBI", MAX_FRAME_BYTES, 0x94, 0xCD, 0, 0xCD, 0, 0xCE, 0, 0xCE, MAX_BODY_BYTES + 1)
    with pytest.raises(RemoteProtocolError, match="allowed"):
        read_header(header, 0, len(header))


def test_a_message_that_cannot_travel_is_a_local_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode_head(0, 0, 0, MetadataRequest(["\ud800"]))
    with pytest.raises(LocalProtocolError):
        encode_head(-1, 0, 0, ApiVersionsRequest())
    with pytest.raises(LocalProtocolError):
        encode_head(0, 0, 2**32, ApiVersionsRequest())
    with pytest.raises(LocalProtocolError, match="split it"):
        encode_head(0, 0, 0, MetadataRequest(["x" * MAX_BODY_BYTES]))


def records_of(sizes: list[int], attached: bytearray) -> list[memoryview | None]:
    """The same by a request and by an answer."""
    parts = [PartitionProduceData(index, size) for index, size in enumerate(sizes)]
    data = [FetchPartitionData(index, 0, 0, size) for index, size in enumerate(sizes)]
    answer = FetchResponse([FetchTopicResponse("t", data[:1]), FetchTopicResponse("u", data[1:])])
    cut = cut_records(ProduceRequest(-1, 0, [TopicProduceData("t", parts)]), memoryview(attached))
    assert cut == cut_records(answer, memoryview(attached))
    return cut


def test_attachments_are_cut_without_copying_and_minus_one_means_none() -> None:
    buffer = bytearray(b"aaabb")
    first, missing, empty, second = records_of([3, -1, 0, 2], buffer)
    assert first is not None and second is not None and empty is not None
    assert (bytes(first), missing, bytes(empty), bytes(second)) == (b"aaa", None, b"", b"bb")
    first[0] = ord("x")
    assert buffer == b"xaabb"


@pytest.mark.parametrize("sizes", [[4], [6], [5, 1], [], [5, -2], [2**31 - 1, -1], [-5]])
def test_attachments_that_do_not_add_up_are_refused(sizes: list[int]) -> None:
    with pytest.raises(RemoteProtocolError, match="attachment"):
        records_of(sizes, bytearray(5))
