"""Asking each owner until all is known: partitions have leaders, groups have coordinators, and both move.

The owners are looked up and asked side by side, each for one part of what it owns after the other. Whatever has failed
in a way that another attempt may mend is looked up and asked for again, until the time of the call is over; what is
known by then stays known, and the last cause is the result of the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeVar

import trio

from strandline.client.errors import AnsweredError, BrokerMisbehaved, ClientError, error_for
from strandline.client.lookup import is_retriable
from strandline.client.metadata import ClusterView
from strandline.client.request_bounds import in_parts
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import Message, Request
from strandline.protocol.types import NO_BROKER, TopicPartition

R = TypeVar("R", bound=Message)
K = TypeVar("K")
T = TypeVar("T")


class Attempts(Protocol):
    """One call of the admin client: its deadline, its attempts, its last cause."""

    last_error: Exception | None
    outcome_was_lost: bool

    def left_ms(self) -> float: ...

    async def ask(self, broker_id: int, request: Request, answer: type[R]) -> R | None:
        """None: it failed in a way that another attempt may mend. The last cause once the time is over."""

    async def ask_any(self, request: Request, answer: type[R]) -> tuple[int, R]:
        """Who answered, and what. The last cause once the time is over."""

    async def learn(self) -> None:
        """Wait a moment. The last cause once the time is over."""


def is_open(result: object) -> bool:
    """Worth another attempt."""
    return isinstance(result, ClientError) and is_retriable(result)


def is_open_if_known(result: object) -> bool:
    """The same, but a topic that is not there is taken at its word: what is asked is for those who know it."""
    unknown = isinstance(result, AnsweredError) and result.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return is_open(result) and not unknown


def cause(attempts: Attempts, what: str) -> ClientError:
    """Why there is no answer."""
    error = attempts.last_error
    return error if isinstance(error, ClientError) else BrokerMisbehaved(f"{what}: the answer is incomplete")


def leaders(
    describe: Callable[[Iterable[str]], Awaitable[ClusterView]],
) -> Callable[[list[TopicPartition]], Awaitable[Mapping[TopicPartition, int | ClientError]]]:
    """The owners of partitions, for `of_each`. `describe` gives the topics as a broker sees them now."""

    async def owners(left: list[TopicPartition]) -> Mapping[TopicPartition, int | ClientError]:
        view = await describe(dict.fromkeys(tp.topic for tp in left))
        return {tp: _leader(view, tp) for tp in left}

    return owners


def _leader(view: ClusterView, tp: TopicPartition) -> int | AnsweredError:
    topic = view.topics.get(tp.topic)
    if topic is not None and topic.error_code:
        return error_for(topic.error_code, f"topic {tp.topic!r}")
    if topic is None or tp.partition not in topic.partitions:
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp}")
    leader = topic.partitions[tp.partition].leader
    if leader == NO_BROKER:
        return view.no_leader(tp)
    return leader


async def of_each(
    items: Iterable[K],
    attempts: Attempts,
    owners: Callable[[list[K]], Awaitable[Mapping[K, int | ClientError]]],
    ask: Callable[[int, list[K]], Awaitable[Mapping[K, T | ClientError]]],
    *,
    is_open: Callable[[object], bool] = is_open,
) -> dict[K, T | ClientError]:
    """What becomes of each item. `owners` gives the broker of each, or why it has none; `ask(owner, its items)` what
    that says of them. What it leaves out has failed for the last cause."""
    keys = list(dict.fromkeys(items))
    results: dict[K, T | ClientError] = {}

    async def one(owner: int, owned: list[K]) -> None:
        for part in in_parts(owned):
            try:
                answers = await ask(owner, part)
            except ClientError as error:
                answers = dict.fromkeys(part, error)
            for key in part:
                results[key] = answers[key] if key in answers else cause(attempts, str(key))

    left = keys
    try:
        while left:
            by_owner: dict[int, list[K]] = {}
            for key, owner in (await owners(left)).items():
                if isinstance(owner, ClientError):
                    results[key] = owner
                else:
                    by_owner.setdefault(owner, []).append(key)
            async with trio.open_nursery() as nursery:
                for owner, owned in by_owner.items():
                    nursery.start_soon(one, owner, owned)
            left = [key for key in left if is_open(results[key])]
            if left:
                attempts.last_error = next(error for error in map(results.get, left) if isinstance(error, Exception))
                await attempts.learn()
    except ClientError as error:  # the time is over
        for key in left:
            results[key] = error
    return {key: results[key] for key in keys}
