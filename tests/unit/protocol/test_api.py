"""Every API has an answer for a request that failed as a whole, with the code where its clients look."""

from __future__ import annotations

import pytest

from strandline.protocol.api import API_OF, APIS, Api, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    Message,
    MetadataRequest,
    MetadataResponse,
    Request,
)
from strandline.protocol.native.frame import encode_head
from support.bad_input import error_codes


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name)
def test_every_api_can_refuse_a_request_that_it_could_not_read(api: Api) -> None:
    response = api.failure(None, ErrorCode.INVALID_REQUEST, "why")
    assert type(response) is api.response
    assert error_codes(response) == {ErrorCode.INVALID_REQUEST}
    assert encode_head(api.key, 0, 1, response)


def refused(request: Request, code: ErrorCode, text: str | None = None) -> Message:
    return API_OF[type(request)].failure(request, code, text)


def test_each_partition_of_the_request_gets_the_code() -> None:
    request = FetchRequest(0, 0, 0, [FetchTopic("a", [FetchPartition(3, 0, 1), FetchPartition(5, 0, 1)])])
    response = refused(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert isinstance(response, FetchResponse)
    [topic] = response.responses
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [(3, -1), (5, -1)]
    assert response.error_code == -1


def test_each_topic_of_the_request_gets_the_code() -> None:
    response = refused(DeleteTopicsRequest(["a", "b"]), ErrorCode.NOT_CONTROLLER, "ask broker 2")
    assert isinstance(response, DeleteTopicsResponse)
    assert [(r.name, r.error_code, r.error_message) for r in response.responses] == [
        ("a", ErrorCode.NOT_CONTROLLER, "ask broker 2"),
        ("b", ErrorCode.NOT_CONTROLLER, "ask broker 2"),
    ]


def test_each_topic_that_is_named_by_its_id_gets_the_code() -> None:
    topic_id = b"i" * 16
    response = refused(MetadataRequest([], topic_ids=[topic_id]), ErrorCode.UNKNOWN_SERVER_ERROR)
    assert isinstance(response, MetadataResponse)
    assert [(t.name, t.topic_id, t.error_code) for t in response.topics] == [(None, topic_id, -1)]
    request = DeleteTopicsRequest(["a"], topics=[DeleteTopicState(topic_id=topic_id)])
    answer = refused(request, ErrorCode.NOT_CONTROLLER)
    assert isinstance(answer, DeleteTopicsResponse)
    assert [(t.name, t.topic_id) for t in answer.responses] == [("a", bytes(16)), (None, topic_id)]


def test_a_request_about_everything_still_gets_the_code() -> None:
    response = refused(MetadataRequest(None), ErrorCode.UNKNOWN_SERVER_ERROR)
    assert isinstance(response, MetadataResponse)
    assert error_codes(response) == {ErrorCode.UNKNOWN_SERVER_ERROR}


def test_every_api_has_one_row() -> None:
    assert [api.key for api in APIS.values()] == sorted(ApiKey)
    assert set(APIS) == {api.key for api in API_OF.values()}
