"""What the admin client does with configurations: they are described and altered, of one topic or broker at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from strandline.client.errors import BrokerMisbehaved, error_for
from strandline.protocol.messages import (
    ConfigOperation,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    Message,
    Request,
)

Ask = Callable[[Request, type[Message]], Awaitable[Message]]


async def describe_configs(kind: ConfigResource, name: str, ask: Ask) -> list[DescribeConfigsResourceResult]:
    """AnsweredError."""
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name)], True, True)
    answer = await ask(request, DescribeConfigsResponse)
    if not isinstance(answer, DescribeConfigsResponse) or len(answer.results) != 1:
        raise BrokerMisbehaved("describing configurations: the answer is incomplete")
    [result] = answer.results
    if result.error_code:
        raise error_for(result.error_code, _what("describing", kind, name), detail=result.error_message)
    return result.configs


async def alter_configs(
    kind: ConfigResource, name: str, changes: Mapping[str, str | None], validate_only: bool, ask: Ask
) -> None:
    """changes: key → value, None: it is no longer set. AnsweredError."""
    configs = [
        IncrementalAlterableConfig(key, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
        for key, value in changes.items()
    ]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(kind, name, configs)], validate_only)
    answer = await ask(request, IncrementalAlterConfigsResponse)
    if not isinstance(answer, IncrementalAlterConfigsResponse) or len(answer.responses) != 1:
        raise BrokerMisbehaved("altering configurations: the answer is incomplete")
    [result] = answer.responses
    if result.error_code:
        raise error_for(result.error_code, _what("altering", kind, name), detail=result.error_message)


def _what(verb: str, kind: ConfigResource, name: str) -> str:
    if kind == ConfigResource.BROKER:
        return f"{verb} what is configured for " + (f"broker {name}" if name else "all brokers")
    return f"{verb} what is configured for topic {name!r}"
