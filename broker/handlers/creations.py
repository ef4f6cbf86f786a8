"""Topics that clients named and that do not exist: the controller is asked for them (`auto.create.topics.enable`).

    Metadata ──asked for──> waiting ──up to NAMES_PER_REQUEST──> one of REQUESTS_AT_A_TIME tasks ──CreateTopics──> over

Whoever asked was told to ask again, so nobody waits for the outcome. A controller that cannot be reached, or topics
whose leaders do not come, take a request's whole timeout: no handler task is held by that. A name is asked for once at
a time, and `MAX_CREATIONS` names at a time are remembered: one Metadata request may name thousands.

    1 check    of those that count for somebody, which can be created: what cannot is charged to nobody
    2 charge   the others, for as long as their quota allows; the rest are left to who asks again
    3 create   these; what is charged is given back where nothing comes of it
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
Charge = Callable[[], Refund | None]
"""Called where a topic is about to be created; None: it is not to be, so much is owed."""


class AutomaticCreations:
    """See the module. `run` asks for what `add` is given, until cancelled."""

    def __init__(
        self,
        ask_controller: Callable[[CreateTopicsRequest], Awaitable[Message]],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._ask_controller = ask_controller
        self._log = log
        self._waiting: dict[str, Charge | None] = {}
        self._asked: set[str] = set()
        self._came = trio.lowlevel.ParkingLot()

    def add(self, name: str, asked_by: str, charge: Charge | None = None) -> None:
        """Have it created, unless that is under way or too much is. Returns at once. charge: None for what counts for
        nobody, as what brokers need themselves."""
        if name in self._waiting or name in self._asked:
            return
        if len(self._waiting) + len(self._asked) >= MAX_CREATIONS:
            return
        self._waiting[name] = charge
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
            charges = {name: self._waiting.pop(name) for name in names}
            self._asked.update(names)
            try:
                await self._create(charges)
            finally:
                self._asked.difference_update(names)

    async def _create(self, charges: dict[str, Charge | None]) -> None:
        refunds: dict[str, Refund] = {}
        try:
            # 1
            failed = await self._ask([name for name, charge in charges.items() if charge], validate_only=True)
            # 2
            for name, charge in charges.items():
                refund = None if name in failed else charge() if charge else _nothing
                if refund is not None:
                    refunds[name] = refund
            # 3
            for name in await self._ask(list(refunds)):
                refunds[name]()
        except (BrokerError, ClientError, RemoteProtocolError) as error:
            self._log.warning("automatic creation failed", topics=list(charges), error=str(error))
            if isinstance(error, BrokerError | CannotReachBroker):  # else the controller may be at it
                for refund in refunds.values():
                    refund()
        except Exception as error:  # a bug here or in the controller: no reason for a broker to end
            self._log.error("automatic creation failed", topics=list(charges), error=repr(error), exc_info=error)

    async def _ask(self, names: list[str], *, validate_only: bool = False) -> list[str]:
        """Of which of them nothing comes."""
        if not names:
            return []
        topics = [CreatableTopic(name) for name in names]
        request = CreateTopicsRequest(topics, timeout_ms=TIMEOUT_MS, validate_only=validate_only)
        response = cast(CreateTopicsResponse, await self._ask_controller(request))
        for result in response.topics:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._log.warning("automatic creation failed", topic=result.name, error=result.error_message)
        goes_on = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        failed = {result.name for result in response.topics if result.error_code not in goes_on}
        return [name for name in names if name in failed]  # whatever else a controller names


def _nothing() -> None:
    """Nothing was charged."""
