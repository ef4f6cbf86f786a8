"""Owners are asked until all is known, or the time is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from strandline.client.errors import (
    BrokerMisbehaved,
    ClientError,
    InvalidTopic,
    NotAssigned,
    RequestTimedOut,
    error_for,
)
from strandline.client.owners import of_each
from strandline.protocol.errors import ErrorCode

MOVED = error_for(ErrorCode.NOT_COORDINATOR, "it")


class Call:
    """One call with so many attempts."""

    def __init__(self, attempts: int) -> None:
        self.attempts = attempts
        self.last_error: Exception | None = None
        self.asked: list[tuple[int, list[str]]] = []

    async def learn(self) -> None:
        self.attempts -= 1
        if self.attempts == 0:
            raise RequestTimedOut("the time is over")


async def known(call: Any, rounds: list[dict[str, int | ClientError]], answers: list[Any]) -> Mapping[str, Any]:
    async def owners(left: list[str]) -> Mapping[str, int | ClientError]:
        now = rounds.pop(0)
        return {key: now[key] for key in left}

    async def ask(owner: int, owned: list[str]) -> Mapping[str, int | ClientError]:
        call.asked.append((owner, owned))
        answer = answers.pop(0)
        await trio.lowlevel.checkpoint()
        if isinstance(answer, ClientError):
            raise answer
        return answer

    return await of_each(rounds[0], call, owners, ask)


async def test_what_moved_is_looked_up_and_asked_for_again_and_what_is_known_is_not() -> None:
    call = Call(3)
    rounds: list[dict[str, int | ClientError]] = [{"a": 1, "b": 1, "c": MOVED}, {"b": 2, "c": 2}]
    assert await known(call, rounds, [{"a": 0, "b": MOVED}, {"b": 5, "c": 6}]) == {"a": 0, "b": 5, "c": 6}
    assert call.asked == [(1, ["a", "b"]), (2, ["b", "c"])]


async def test_a_result_that_is_final_is_not_asked_for_again() -> None:
    refused = NotAssigned("for good")
    nobody = InvalidTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, "no such name")
    assert await known(Call(3), [{"a": 1, "b": nobody}], [refused]) == {"a": refused, "b": nobody}


async def test_when_the_time_is_over_what_is_known_stays_known() -> None:
    call = Call(2)
    found = await known(call, [{"a": 1, "b": 1}, {"b": 1}], [{"a": 1}, {}])
    assert found["a"] == 1
    assert isinstance(found["b"], RequestTimedOut)
    assert isinstance(call.last_error, BrokerMisbehaved), "an answer was incomplete"
    assert call.asked == [(1, ["a", "b"]), (1, ["b"])]


async def test_an_owner_is_asked_for_many_in_parts(monkeypatch) -> None:
    monkeypatch.setattr("strandline.client.request_bounds.MAX_ASKED", 2)
    call = Call(1)
    found = await known(call, [dict.fromkeys("abc", 1)], [{"a": 1, "b": 2}, {"c": 3}])
    assert (found, call.asked) == ({"a": 1, "b": 2, "c": 3}, [(1, ["a", "b"]), (1, ["c"])])
