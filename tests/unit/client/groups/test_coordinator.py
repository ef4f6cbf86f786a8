"""The way to a coordinator: what goes wrong on it is one error of the client."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
import trio.testing

from strandline.client.errors import ConnectionLost, RequestTimedOut
from strandline.client.groups.coordinator import Coordinator
from strandline.client.links import Links
from strandline.client.lookup import BrokerCalls
from strandline.client.metadata import Metadata
from strandline.protocol.messages import HeartbeatRequest, HeartbeatResponse

REQUEST = HeartbeatRequest("g", 1, "m", None)


class Lost:
    """In place of calls to brokers: the connection is lost, and whoever asks is cancelled in the same moment."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope

    async def call(self, *_: object, **__: object) -> Any:
        self._scope.cancel()
        raise ConnectionLost("it ended")


class Silent:
    """Connections that never come about."""

    async def open(self, broker_id: int) -> Any:
        await trio.sleep_forever()


def a_coordinator(links: object) -> Coordinator:
    coordinator = Coordinator("g", cast(Links, links), cast(Metadata, None), BrokerCalls(cast(Links, links)))
    coordinator._broker_id = 1
    return coordinator


async def test_who_is_cancelled_as_the_connection_is_lost_is_cancelled(autojump_clock) -> None:
    coordinator = a_coordinator(None)
    with trio.CancelScope() as scope:
        coordinator._waiting_calls = cast(BrokerCalls, Lost(scope))
        await coordinator.ask_and_wait(REQUEST, HeartbeatResponse, timeout_ms=1000)
    assert scope.cancelled_caught


async def test_the_wait_for_others_and_for_a_connection_counts(autojump_clock) -> None:
    coordinator, ended = a_coordinator(Silent()), []

    async def ask(timeout_ms: float) -> None:
        with pytest.raises(RequestTimedOut):
            await coordinator.ask(REQUEST, HeartbeatResponse, timeout_ms=timeout_ms)
        ended.append(timeout_ms)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for timeout_ms in (50_000, 1_000):
                coordinator._broker_id = 1
                nursery.start_soon(ask, timeout_ms)
                await trio.testing.wait_all_tasks_blocked()
    assert ended == [1_000, 50_000]
