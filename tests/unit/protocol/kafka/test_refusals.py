"""What nobody serves is answered all the same: readable for who asked, with the error where it looks for one."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.kafka.lengths import MAX_ELEMENTS
from strandline.protocol.kafka.refusals import refusal
from strandline.testkit.kafka_client import CORRELATION_ID
from support.kafka_entities import ALL_VERSIONS, class_of, draw, written
from support.kafka_frames import answer_in, codes

REFUSED = [(key, version) for key, version in ALL_VERSIONS if key not in set(ApiKey) or APIS[key].kafka is None]
CODES = {
    29: ErrorCode.SECURITY_DISABLED,
    30: ErrorCode.SECURITY_DISABLED,
    31: ErrorCode.SECURITY_DISABLED,
    38: ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    39: ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    40: ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    41: ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    17: ErrorCode.ILLEGAL_SASL_STATE,
    36: ErrorCode.ILLEGAL_SASL_STATE,
}


def drawn(key: int, version: int) -> Any:
    return draw(class_of(key, version), random.Random(key * 100 + version), 0.0)


def body_of(entity: Any) -> memoryview:
    """As it follows the client's id: a flexible header ends with its tagged fields, of which it has none."""
    return memoryview((b"\0" if entity.__flexible__ else b"") + written(entity))


def answer_to(key: int, version: int, body: memoryview) -> Any:
    """As a client reads it."""
    frame = refusal(key, version, CORRELATION_ID, body)
    assert frame is not None
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return answer_in(frame[4:], key, version)


@pytest.mark.parametrize(("key", "version"), REFUSED, ids=str)
def test_every_api_that_is_not_served_is_refused_in_each_version_where_its_clients_look(key: int, version: int) -> None:
    found = codes(answer_to(key, version, body_of(drawn(key, version))))
    assert found == {CODES.get(key, ErrorCode.UNSUPPORTED_VERSION)}


@pytest.mark.parametrize(("key", "version"), REFUSED, ids=str)
def test_a_body_that_cannot_be_read_is_refused_without_it_or_not_answered(key: int, version: int) -> None:
    body = body_of(drawn(key, version))
    for bad in (body[:-1], memoryview(b""), memoryview(b"\xff" * 40), memoryview(bytes([*body, 0]))):
        frame = refusal(key, version, CORRELATION_ID, bad)
        if frame is not None:
            assert codes(answer_to(key, version, bad))


@pytest.mark.parametrize(
    ("key", "version"), [(4, 0), (5, 0), (6, 0), (7, 0), (7, 3), (0, 2), (24, 99), (29, 0), (999, 0), (-1, 0), (24, -1)]
)
def test_what_has_no_schema_is_not_answered(key: int, version: int) -> None:
    assert refusal(key, version, CORRELATION_ID, memoryview(b"")) is None


def test_partitions_of_a_transaction_are_refused_one_by_one() -> None:
    entity = class_of(24, 3)
    topic = entity.__dataclass_fields__["v3_and_below_topics"].type.__args__[0]
    request = entity(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=(topic(name="a", partitions=(0, 4)), topic(name="b", partitions=(1,))),
    )
    answer = answer_to(24, 3, body_of(request))
    assert [
        (topic.name, [part.partition_index for part in topic.results_by_partition])
        for topic in answer.results_by_topic_v3_and_below
    ] == [("a", [0, 4]), ("b", [1])]


def test_each_thing_that_was_asked_about_is_named() -> None:
    for key, version, response_field, request_field, named in (
        (28, 3, "topics", "topics", lambda topic: (topic.name, [part.partition_index for part in topic.partitions])),
        (75, 0, "topics", "topics", lambda topic: topic.name),
        (49, 1, "entries", "entries", lambda entry: [(part.entity_type, part.entity_name) for part in entry.entity]),
        (90, 1, "groups", "groups", lambda group: group.group_id),
    ):
        request = drawn(key, version)
        answer = answer_to(key, version, body_of(request))
        assert list(map(named, getattr(answer, response_field))) == list(map(named, getattr(request, request_field)))


def test_groups_and_transactions_are_named_that_were_asked_about_by_nothing_but_their_names() -> None:
    groups = class_of(69, 0)(group_ids=("a", "b"), include_authorized_operations=False)
    assert [each.group_id for each in answer_to(69, 0, body_of(groups)).groups] == ["a", "b"]
    transactions = class_of(65, 0)(transactional_ids=("a", "b"))
    answer = answer_to(65, 0, body_of(transactions))
    assert [each.transactional_id for each in answer.transaction_states] == ["a", "b"]


def test_acls_are_refused_one_by_one() -> None:
    for key, asked, answered in ((30, "creations", "results"), (31, "filters", "filter_results")):
        request = drawn(key, 2)
        answer = answer_to(key, 2, body_of(request))
        assert len(getattr(answer, answered)) == len(getattr(request, asked))
        assert all(each.error_message for each in getattr(answer, answered))


def test_users_are_refused_whether_credentials_were_to_be_set_or_deleted() -> None:
    request = drawn(51, 0)
    answer = answer_to(51, 0, body_of(request))
    assert [each.user for each in answer.results] == [each.name for each in (*request.deletions, *request.upsertions)]


def test_moves_between_directories_are_refused_partition_by_partition() -> None:
    request = drawn(34, 2)
    answer = answer_to(34, 2, body_of(request))
    assert [(each.topic_name, [part.partition_index for part in each.partitions]) for each in answer.results] == [
        (topic.name, list(topic.partitions)) for each in request.dirs for topic in each.topics
    ]


def test_an_answer_names_so_many_things_and_no_more() -> None:
    bodies = [
        body_of(class_of(69, 0)(group_ids=("g",) * count, include_authorized_operations=False)) for count in (200, 201)
    ]
    assert refusal(69, 0, CORRELATION_ID, bodies[0]) is not None
    assert refusal(69, 0, CORRELATION_ID, bodies[1]) is None


def test_what_names_too_much_is_not_answered_and_takes_no_memory() -> None:
    ids = b"\x00\x01x" * MAX_ELEMENTS
    many = class_of(69, 0)(group_ids=("g",) * MAX_ELEMENTS, include_authorized_operations=False)
    bodies = [body_of(many), memoryview(b"\0" + ids), memoryview(b"\0\xff\xff\xff\xff\x0f" + ids)]
    answer_to(69, 0, body_of(drawn(69, 0)))
    tracemalloc.start()
    for body in bodies:
        assert refusal(69, 0, CORRELATION_ID, body) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * MAX_ELEMENTS * 3  # a copy of a body without tagged fields
