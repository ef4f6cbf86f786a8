"""Every API has an answer for a request that failed as a whole, with the code where its clients look."""

from __future__ import annotations

import pytest

from strandline.broker.network.error_responses import error_response, unreadable_response
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    REQUESTS,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    MetadataRequest,
    MetadataResponse,
    Request,
)
from strandline.protocol.native.frame import encode_head
from support.bad_input import error_codes


@pytest.mark.parametrize("request_class", REQUESTS.values(), ids=lambda cls: cls.__name__)
def test_every_api_can_refuse_a_request_that_it_could_not_read(request_class: type[Request]) -> None:
    response = unreadable_response(request_class, ErrorCode.INVALID_REQUEST, "why")
    assert type(response) is request_class.RESPONSE
    assert error_codes(response) == {ErrorCode.INVALID_REQUEST}
    assert encode_head(request_class.API_KEY, 0, 1, response)


def test_each_partition_of_the_request_gets_the_code() -> None:
    request = FetchRequest(0, 0, 0, [FetchTopic("a", [FetchPartition(3, 0, 1), FetchPartition(5, 0, 1)])])
    response = error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert isinstance(response, FetchResponse)
    [topic] = response.responses
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [(3, -1), (5, -1)]
    assert response.error_code == -1


def test_each_topic_of_the_request_gets_the_code() -> None:
    response = error_response(DeleteTopicsRequest(["a", "b"]), ErrorCode.NOT_CONTROLLER, "ask broker 2")
    assert isinstance(response, DeleteTopicsResponse)
    assert [(r.name, r.error_code, r.error_message) for r in response.responses] == [
        ("a", ErrorCode.NOT_CONTROLLER, "ask broker 2"),
        ("b", ErrorCode.NOT_CONTROLLER, "ask broker 2"),
    ]


def test_a_request_about_everything_still_gets_the_code() -> None:
    response = error_response(MetadataRequest(None), ErrorCode.UNKNOWN_SERVER_ERROR)
    assert isinstance(response, MetadataResponse)
    assert error_codes(response) == {ErrorCode.UNKNOWN_SERVER_ERROR}
