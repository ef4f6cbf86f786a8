"""Bodies are walked over before kio reads them: no length that cannot be true gets there, all that is good does."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.kafka.lengths import MAX_ELEMENTS, checked
from strandline.protocol.kafka.primitives import uvarint
from support.kafka_entities import ALL_VERSIONS, class_of, draw, written

METADATA, DELETE_TOPICS, CREATE_TOPICS, LEAVE_GROUP, LEADER_EPOCH = 3, 20, 19, 13, 23
EACH_VERSION = pytest.mark.parametrize(("key", "version"), ALL_VERSIONS, ids=lambda number: str(number))

HOSTILE = [
    bytes.fromhex(text)
    for text in (
        "ffffffff",
        "fffffffe",
        "7fffffff",
        "80000000",
        "ffffffff0f",
        "ffffffff07",
        "808080808001",
        "ffff",
        "7fff",
    )
]
"""What stands in the place of a length: null, negative, of 2 GiB, of 4, a varint without end."""


def read(entity: Any, body: memoryview) -> Any:
    found, size = entity_reader(entity)(body.toreadonly(), 0)
    assert size == len(body)
    return found


@EACH_VERSION
def test_what_kio_wrote_passes_as_it_is_and_nothing_that_is_cut_off_does(key: int, version: int) -> None:
    entity, rng = class_of(key, version), random.Random(key * 100 + version)
    for nulls in (0.0, 0.3, 1.0):
        body = memoryview(written(draw(entity, rng, nulls)))
        assert checked(entity, body) is body
        for length in range(len(body)):
            with pytest.raises(RemoteProtocolError):
                checked(entity, body[:length])


@EACH_VERSION
def test_what_passes_is_read_by_kio_or_refused_with_an_exception(key: int, version: int) -> None:
    """kio's process would end here, otherwise."""
    entity, rng = class_of(key, version), random.Random(key * 100 + version)
    good = written(draw(entity, rng))
    for place in range(len(good)):
        for hostile in HOSTILE:
            for body in (good[:place] + hostile + good[place + len(hostile) :], good[:place] + hostile + good[place:]):
                try:
                    entity_reader(entity)(checked(entity, memoryview(body)).toreadonly(), 0)
                except (RemoteProtocolError, SerialError, ValueError, OverflowError):
                    pass


@pytest.mark.parametrize("length", ["ffffffff0f", "ffffffff07", "818080800"[:-1] + "08"])
def test_a_length_that_would_end_the_process_is_refused(length: str) -> None:
    with pytest.raises(RemoteProtocolError):
        checked(class_of(DELETE_TOPICS, 4), memoryview(bytes.fromhex(length)))


def test_kio_alone_would_end_the_process() -> None:
    """Where this fails kio was mended: what is walked over for its sake alone may go."""
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32));"
        "from kio.serial import entity_reader;"
        "from kio.schema.delete_topics.v4.request import DeleteTopicsRequest;"
        "entity_reader(DeleteTopicsRequest)(b'\\xff\\xff\\xff\\xff\\x0f', 0)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode < 0


@pytest.mark.parametrize(("version", "length"), [(1, (2 * MAX_ELEMENTS).to_bytes(4, "big")), (4, b"\xc1\x9a\x0c")])
def test_more_elements_than_a_request_may_have_are_refused_however_long_the_body(version: int, length: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="elements"):
        checked(class_of(DELETE_TOPICS, version), memoryview(length + bytes(5 * MAX_ELEMENTS)))


def names(entity: Any, body: bytes) -> int:
    """So much as has to be allowed."""
    for count in range(100):
        try:
            checked(entity, memoryview(body), max_named=count)
        except RemoteProtocolError as error:
            assert str(error) == f"a request that names more than {count} topics and partitions"
        else:
            return count
    raise AssertionError("more than anybody asked for")


def test_what_a_request_names_is_its_partitions_or_its_topics_where_it_names_none() -> None:
    assert names(class_of(METADATA, 1), bytes.fromhex("00000002 0001 61 0001 62")) == 2
    topic = bytes.fromhex("0001 61 00000003") + bytes(3 * 12)
    epochs = b"\0\0\0\2" + topic + topic
    assert names(class_of(LEADER_EPOCH, 2), epochs) == 6
    assert names(class_of(LEADER_EPOCH, 2), epochs[:4] + bytes.fromhex("0001 61 00000000") + topic) == 4


def test_a_topic_to_create_names_its_partitions_or_its_settings_whichever_are_more() -> None:
    entity = class_of(CREATE_TOPICS, 5)
    body = b"\2\2t" + bytes(6) + b"\3" + 2 * (bytes(4) + b"\3" + bytes(8) + b"\0") + b"\4" + 3 * b"\2k\2v\0" + b"\0"
    assert names(entity, body + bytes(6)) == 3


@pytest.mark.parametrize(("version", "head"), [(1, bytes.fromhex("00000064 0001 61")), (4, b"\x65\x02a")])
def test_what_names_too_much_is_refused_before_it_is_looked_at(version: int, head: bytes) -> None:
    """By the length of its list alone: the elements behind the first one are none."""
    with pytest.raises(RemoteProtocolError, match="names more than 99"):
        checked(class_of(DELETE_TOPICS, version), memoryview(head + b"\xff" * 200), max_named=99)


def test_a_string_is_as_long_as_one_of_an_older_version_at_most() -> None:
    entity = class_of(DELETE_TOPICS, 4)
    for length, is_allowed in ((2**15 - 1, True), (2**15, False)):
        body = memoryview(b"\2" + uvarint(length + 1) + b"x" * length + bytes(5))
        if is_allowed:
            assert checked(entity, body) is body
        else:
            with pytest.raises(RemoteProtocolError, match="a string of 32768 bytes"):
                checked(entity, body)


@pytest.mark.parametrize(("version", "null"), [(1, b"\xff\xff\xff\xff"), (4, b"\0")])
def test_null_is_refused_where_an_array_has_to_be(version: int, null: bytes) -> None:
    """A handler would meet it as a bug of its own."""
    rest = bytes(4 if version == 1 else 5)
    with pytest.raises(RemoteProtocolError, match="null"):
        checked(class_of(DELETE_TOPICS, version), memoryview(null + rest))
    metadata = class_of(3, 1)
    assert read(metadata, checked(metadata, memoryview(b"\xff\xff\xff\xff"))).topics is None


def test_tagged_fields_without_number_are_refused() -> None:
    body = b"\x01" + bytes(4) + b"\xc1\x9a\x0c" + bytes(4 * MAX_ELEMENTS)
    with pytest.raises(RemoteProtocolError, match="tagged"):
        checked(class_of(DELETE_TOPICS, 4), memoryview(body))


def test_tagged_fields_of_a_later_version_are_skipped() -> None:
    entity = class_of(LEAVE_GROUP, 4)
    body = written(draw(entity, random.Random(1), 0.0))
    expected = read(entity, memoryview(body))
    assert body.endswith(b"\x00")
    tagged = body[:-1] + b"\x02" + b"\x07\x03abc" + b"\x81\x01\x00"  # 7: abc; 129: empty
    assert read(entity, checked(entity, memoryview(tagged))) == expected


def test_tagged_fields_of_a_later_version_are_skipped_within_structs_and_beside_known_ones() -> None:
    fetch = class_of(1, 12)
    body = written(replace(draw(fetch, random.Random(2), 0.0), cluster_id="here"))
    expected = read(fetch, memoryview(body))
    known = b"\x01\x00\x05\x05here"
    assert body.endswith(known)
    more = body[: -len(known)] + b"\x02\x00\x05\x05here\x63\x01x"
    assert read(fetch, checked(fetch, memoryview(more))) == expected
    inner = class_of(LEAVE_GROUP, 4)
    group = b"\x02g" + b"\x02" + b"\x02m" + b"\x02i" + b"\x01\x09\x02no" + b"\x01\x09\x01x"
    found = read(inner, checked(inner, memoryview(group)))
    assert (found.group_id, found.members[0].member_id) == ("g", "m")


def test_a_tagged_field_is_as_long_as_it_says() -> None:
    fetch = class_of(1, 12)
    body = written(replace(draw(fetch, random.Random(2), 0.0), cluster_id="here"))
    wrong = body[:-8] + b"\x01\x00\x06\x05here!"
    with pytest.raises(RemoteProtocolError, match="tagged field"):
        checked(fetch, memoryview(wrong))
