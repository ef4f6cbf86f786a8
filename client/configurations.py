"""What the admin client does with configurations: they are described, of many topics at once, and altered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from strandline.client.errors import BrokerMisbehaved, ClientError, error_for
from strandline.client.request_bounds import in_parts
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


MAX_DESCRIBED = 500
"""Topics or brokers in one request; brokers take a thousand."""

Described = list[DescribeConfigsResourceResult]


async def describe_configs(
    kind: ConfigResource, names: Iterable[str], keys: Sequence[str], ask: Ask
) -> dict[str, Described | ClientError]:
    """Of each its keys, all or these, or why it has none. AnsweredError: the request as a whole is refused."""
    found: dict[str, Described | ClientError] = {}
    for part in in_parts(names, MAX_DESCRIBED):
        resources = [DescribeConfigsResource(kind, name, list(keys)) for name in part]
        answer = await ask(DescribeConfigsRequest(resources, True, True), DescribeConfigsResponse)
        for result in answer.results if isinstance(answer, DescribeConfigsResponse) else ():
            name = result.resource_name
            if not result.error_code:
                found[name] = result.configs
                continue
            error = error_for(result.error_code, _what("describing", kind, name), detail=result.error_message)
            if name not in part:
                raise error
            found[name] = error
        if not found.keys() >= set(part):
            raise BrokerMisbehaved("describing configurations: the answer is incomplete")
    return found


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
