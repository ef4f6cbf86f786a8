"""Topics that clients named and that do not exist: the controller is asked for them (`auto.create.topics.enable`).

    Metadata ──asked for──> waiting ──up to NAMES_PER_REQUEST──> one of REQUESTS_AT_A_TIME tasks ──CreateTopics──> over

Whoever asked was told to ask again, so nobody waits for the outcome. A controller that cannot be reached, or topics
whose leaders do not come, take a request's whole timeout: no handler task is held by that. A name is asked for once at
a time, and `MAX_CREATIONS` names at a time are remembered: one Metadata request may name thousands. Who is charged for
a topic is when its creation begins, and gets that back where nothing comes of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import islice
from typing import cast

import structlog
import trio

from strandline.client.errors import CannotReachBroker, ClientError
from strandline.protocol.errors import BrokerError, ErrorCode, RemoteProtocolError
from strandline.protocol.messages import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse, Message

MAX_CREATIONS = 100
NAMES_PER_REQUEST = 10
"""So that 1000 partitions each, by default, fit one request
(`controller/topics/creation_checks.MAX_PARTITIONS_PER_REQUEST`)."""
REQUESTS_AT_A_TIME = 4
"""One topic that is long in coming does not keep the next ones; each holds a handler task of the controller."""
TIMEOUT_MS = 30_000

Refund = Callable[[], None]
"""Called where a topic was not created after all."""


def free_of_charge() -> Refund:
    """What brokers need themselves counts for nobody."""
    return lambda: None


class AutomaticCreations:
    """See the module. `run` asks for what `add` is given, until cancelled."""

    def __init__(
        self,
        ask_controller: Callable[[CreateTopicsRequest], Awaitable[Message]],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._ask_controller = ask_controller
        self._log = log
        self._waiting: dict[str, Refund] = {}
        self._asked: set[str] = set()
        self._came = trio.lowlevel.ParkingLot()

    def add(self, name: str, asked_by: str, charge: Callable[[], Refund] = free_of_charge) -> None:
        """Have it created, unless that is under way or too much is. Returns at once. charge: called if it begins."""
        if name in self._waiting or name in self._asked:
            return
        if len(self._waiting) + len(self._asked) >= MAX_CREATIONS:
            return
        self._waiting[name] = charge()
        self._came.unpark()
        self._log.info("creating topic automatically", topic=name, asked_by=asked_by)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(REQUESTS_AT_A_TIME):
                nursery.start_soon(self._work, name=f"automatic creations {number}")

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                await self._came.park()
            names = list(islice(self._waiting, NAMES_PER_REQUEST))
            refunds = {name: self._waiting.pop(name) for name in names}
            self._asked.update(names)
            try:
                await self._create(refunds)
            finally:
                self._asked.difference_update(names)

    async def _create(self, refunds: dict[str, Refund]) -> None:
        names = list(refunds)
        request = CreateTopicsRequest([CreatableTopic(name) for name in names], timeout_ms=TIMEOUT_MS)
        try:
            response = cast(CreateTopicsResponse, await self._ask_controller(request))
        except (BrokerError, ClientError, RemoteProtocolError) as error:
            self._log.warning("automatic creation failed", topics=names, error=str(error))
            if isinstance(error, BrokerError | CannotReachBroker):  # else the controller may be at it
                for refund in refunds.values():
                    refund()
        except Exception as error:  # a bug here or in the controller: no reason for a broker to end
            self._log.error("automatic creation failed", topics=names, error=repr(error), exc_info=error)
        else:
            for result in response.topics:
                goes_on = result.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
                if not goes_on and result.name in refunds:  # whatever else a controller names
                    refunds[result.name]()
                if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self._log.warning("automatic creation failed", topic=result.name, error=result.error_message)
