"""The way to a group's coordinator: whichever broker leads the group's partition of `__consumer_offsets`.

It is looked for when it is not known, and forgotten by whatever says that it may be another one. Who asks repeats.
"""

from __future__ import annotations

import math
from typing import TypeVar

import trio

from strandline.client.errors import ClientError, NoBrokerReachable, RequestTimedOut, error_for
from strandline.client.links import Links
from strandline.client.lookup import BrokerCalls
from strandline.client.metadata import Metadata
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse, Message, Request
from strandline.protocol.types import NO_BROKER

R = TypeVar("R", bound=Message)

MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""Answers after which it has to be looked for."""

LOOK_AGAIN_S = 5.0
"""So often it is asked, while a join waits for its answer, whether the broker that it waits for still coordinates. A
stopped process, or one behind a cut network, never says that it does not."""


class Coordinator:
    """Of one group."""

    def __init__(self, group_id: str, links: Links, metadata: Metadata, calls: BrokerCalls) -> None:
        self.group_id = group_id
        self._links = links
        self._metadata = metadata
        self._calls = calls
        self._quick_calls = BrokerCalls(links)
        """For what is answered at once, and keeps a member in its group: it does not wait behind commits and lookups,
        least of all behind those that a stopped process never answers."""
        self._waiting_calls = BrokerCalls(links)
        """For requests that are answered when others have come: nothing else may wait behind them."""
        self._broker_id = NO_BROKER
        self._doubtful = NO_BROKER
        """Who did not answer, or not yet: another one is asked who coordinates."""

    def close(self) -> None:
        self._quick_calls.close()
        self._waiting_calls.close()

    @property
    def is_cluster_out_of_reach(self) -> bool:
        """No broker has ever answered, and the time for that is over."""
        return self._metadata.bootstrap.is_over(trio.current_time())

    def heard(self, code: int) -> None:
        """What it answered, which may mean that it is another one now, or that the cluster's layout is."""
        if code in MOVED:
            self._broker_id = NO_BROKER
        elif error_code(code).invalid_metadata:
            self._metadata.request_update()

    async def ask(self, request: Request, answer: type[R], *, timeout_ms: float) -> R:
        """One attempt within `timeout_ms`. ClientError; after a retriable one another attempt may go to another
        broker."""
        return await self._ask(self._calls, request, answer, timeout_ms)

    async def ask_quickly(self, request: Request, answer: type[R], *, timeout_ms: float) -> R:
        """As `ask`, past everything else that is under way."""
        return await self._ask(self._quick_calls, request, answer, timeout_ms)

    async def _ask(self, calls: BrokerCalls, request: Request, answer: type[R], timeout_ms: float) -> R:
        with trio.move_on_after(timeout_ms / 1000):
            broker_id = await self._find()
            try:
                return await calls.call(broker_id, request, answer, timeout_ms=timeout_ms)
            except (ClientError, trio.Cancelled):
                self._forget(broker_id)
                raise
        raise RequestTimedOut(f"the coordinator of group {self.group_id!r} did not answer within {timeout_ms:g} ms")

    async def ask_and_wait(self, request: Request, answer: type[R], *, timeout_ms: float) -> R:
        """As `ask`, for what is answered late: given up once another broker coordinates."""
        broker_id = await self._find()
        found: list[R] = []
        error: ClientError = error_for(ErrorCode.NOT_COORDINATOR, f"group {self.group_id!r}", f"broker {broker_id}")

        async def watch(scope: trio.CancelScope) -> None:
            while True:
                await trio.sleep(LOOK_AGAIN_S)
                self._forget(broker_id)
                try:
                    if await self._find() != broker_id:
                        scope.cancel()
                except ClientError:
                    pass  # nobody knows now

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nursery.cancel_scope)
            try:
                found.append(await self._waiting_calls.call(broker_id, request, answer, timeout_ms=timeout_ms))
            except ClientError as failure:  # here: out of a nursery errors come in groups
                self._forget(broker_id)
                error = failure
            nursery.cancel_scope.cancel()
        if not found:
            raise error
        return found[0]

    async def _find(self) -> int:
        """NoBrokerReachable, AnsweredError and what asking a broker raises."""
        if self._broker_id != NO_BROKER:
            return self._broker_id
        settings = self._links.settings
        brokers = list(self._metadata.view.brokers)
        if not brokers:
            limit_s = settings.request_timeout_ms / 1000
            await self._metadata.wait_for_answer(trio.current_time() + limit_s)
            brokers = list(self._metadata.view.brokers)
        if not brokers:
            raise self._metadata.last_error or NoBrokerReachable("no broker is known yet")
        others = [broker_id for broker_id in brokers if broker_id != self._doubtful]
        asked = self._links.environment.random.choice(others or brokers)
        who = f"broker {asked}"
        try:
            found = await self._quick_calls.call(
                asked,
                FindCoordinatorRequest(self.group_id),
                FindCoordinatorResponse,
                timeout_ms=min(settings.request_timeout_ms, LOOK_AGAIN_S * 1000),
            )
        except (ClientError, trio.Cancelled):
            self._doubtful = asked
            self._metadata.request_update()
            raise
        if found.error_code:
            what = f"looking for the coordinator of group {self.group_id!r}"
            raise error_for(found.error_code, what, who, found.error_message)
        if found.node_id not in self._metadata.view.brokers:
            await self._metadata.wait_for_answer(trio.current_time() + math.ceil(LOOK_AGAIN_S))
        self._broker_id = found.node_id
        return found.node_id

    def _forget(self, broker_id: int) -> None:
        self._doubtful = broker_id
        if self._broker_id == broker_id:
            self._broker_id = NO_BROKER
