"""What is configured for many topics: how brokers are asked for it, and what they may answer."""

from __future__ import annotations

import pytest

from strandline.broker.handlers.configs import MAX_RESOURCES
from strandline.client.configurations import MAX_DESCRIBED, describe_configs
from strandline.client.errors import AnsweredError, BrokerMisbehaved, UnknownTopic
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    Message,
    Request,
)

TOPIC = ConfigResource.TOPIC
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def result(name: str, error: int = 0) -> DescribeConfigsResult:
    return DescribeConfigsResult(error, None, TOPIC, name)


async def test_no_request_names_more_topics_than_brokers_take() -> None:
    sizes: list[int] = []

    async def ask(request: Request, answer: type[Message]) -> Message:
        assert isinstance(request, DescribeConfigsRequest)
        sizes.append(len(request.resources))
        return DescribeConfigsResponse([result(each.resource_name) for each in request.resources])

    names = [f"t{number}" for number in range(MAX_DESCRIBED + 1)]
    assert list(await describe_configs(TOPIC, names, ["cleanup.policy"], ask)) == names
    assert sizes == [MAX_DESCRIBED, 1] and MAX_DESCRIBED <= MAX_RESOURCES


@pytest.mark.parametrize(
    ("results", "error"),
    [
        ([result("", ErrorCode.INVALID_REQUEST)], AnsweredError),
        ([result("t")], BrokerMisbehaved),
        ([], BrokerMisbehaved),
    ],
)
async def test_an_answer_that_is_not_about_all_that_was_asked_is_an_error(
    results: list[DescribeConfigsResult], error: type[Exception]
) -> None:
    async def ask(request: Request, answer: type[Message]) -> Message:
        return DescribeConfigsResponse(results)

    with pytest.raises(error):
        await describe_configs(TOPIC, ["t", "u"], (), ask)


async def test_a_topic_that_is_unknown_does_not_spoil_the_others() -> None:
    async def ask(request: Request, answer: type[Message]) -> Message:
        return DescribeConfigsResponse([result("t", UNKNOWN), result("u")])

    found = await describe_configs(TOPIC, ["t", "u"], (), ask)
    assert isinstance(found["t"], UnknownTopic) and found["u"] == []
