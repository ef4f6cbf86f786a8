"""The controller without tasks and connections: its own `Term`, whose requests arrive when they are queued for nobody.

What a term would do in tasks beside its events waits in `BareTerm.beside` and `postponed` until whoever moves the
cluster has it done; orders wait in the `BareSender` of each broker until they are delivered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from strandline.client.errors import ClientError
from strandline.controller.controller import Controller
from strandline.controller.orders.sender import BrokerChannel, BrokerSender, BrokerUnreachable
from strandline.controller.store import ControllerFenced
from strandline.controller.term.controller_election import try_to_be_elected
from strandline.controller.term.events import Event, Trigger
from strandline.controller.term.term import RETRY_SECONDS, Term
from strandline.protocol.messages import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    Message,
    Request,
)
from strandline.runtime.coordination import CoordinationError, Watch, WatchEvent
from strandline.runtime.network import Address

Deliver = Callable[[int, Request], Awaitable[Message]]
"""Takes a request to a broker and its answer back. BrokerUnreachable."""


class _Channel:
    """`BrokerChannel`: a request is delivered at once."""

    def __init__(self, deliver: Deliver, broker_id: int) -> None:
        self._deliver = deliver
        self._broker_id = broker_id

    async def request(self, message: Request) -> Message:
        return await self._deliver(self._broker_id, message)

    def close(self) -> None: ...


class Delivery:
    """`ConnectToBroker` without a network."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver

    async def __call__(self, address: Address, broker_id: int) -> BrokerChannel:
        return _Channel(self._deliver, broker_id)


class BareSender(BrokerSender):
    """`tell` does what its task would do now."""

    async def ask(self, question: Request) -> Message:
        return await self._roundtrip(question)

    async def tell(self) -> bool:
        """Deliver what waits. Whether there was something, and it arrived."""
        if not self._waiting or self.closed:
            return False
        try:
            await self._tell()
        except BrokerUnreachable:
            self._hang_up()
            return False
        return True


class BareTerm(Term):
    """`senders`: by broker; those that are closed may stand there, too."""

    SENDER = BareSender

    def __init__(self, **facts: Any) -> None:
        self.senders: dict[int, BareSender] = {}
        self.beside: list[Callable[[], Awaitable[None]]] = []
        self.postponed: dict[Event, None] = {}
        super().__init__(**facts)

    def _start_sender(self, sender: BrokerSender) -> None:
        """Whoever moves the cluster calls `tell`."""
        assert isinstance(sender, BareSender)
        self.senders[sender.broker.broker_id] = sender

    def start(self, function: Callable[[], Awaitable[None]]) -> None:
        self.beside.append(function)

    def later(self, event: Event, seconds: float = RETRY_SECONDS) -> None:
        self.postponed[event] = None

    def watch(self, trigger: Trigger) -> Watch:
        return partial(self._seen, trigger)

    def _seen(self, trigger: Trigger, _: WatchEvent) -> None:
        self.events.put(trigger)

    def may_act(self) -> bool:
        return self.over is None

    async def begin(self) -> None:
        try:
            await self._fail_over()
        except (ControllerFenced, CoordinationError) as error:
            self.resign(str(error))

    async def step(self) -> bool:
        """Do one thing that waits. Whether there was one."""
        if self.over is not None:
            return False
        if self.beside:
            await self.beside.pop(0)()
            return True
        if len(self.events):
            await self._handle(await self.events.get())
            return True
        return any([await sender.tell() for sender in list(self.senders.values())])

    def look_again(self) -> bool:
        """What was postponed is due, and so is the look at partitions without a leader. Whether there is anything."""
        if self.over is not None or not self.active:
            return False
        for event in self.postponed:
            self.events.put(event)
        self.postponed = {}
        if self.context.offline_partitions():
            self.events.put(Trigger.OFFLINE_PARTITIONS)
        return bool(len(self.events))


class ActingController:
    """`ControlPlane` of every broker: whoever acts as controller now is asked, without a network. ClientError: nobody
    does."""

    def __init__(self, acting: Callable[[], Controller | None]) -> None:
        self._acting = acting
        self.is_active = True

    def _controller(self) -> Controller:
        controller = self._acting()
        if controller is None:
            raise ClientError("there is no controller")
        return controller

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        return await self._controller().create_topics(request)

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        return await self._controller().delete_topics(request)

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        return await self._controller().elect_leaders(request)

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        return await self._controller().controlled_shutdown(request)


class BareController(Controller):
    """Stands for election when it is told to."""

    TERM = BareTerm

    async def stand(self) -> bool:
        """Be elected if nobody is. Whether it was."""
        if self.term is not None or not await self._is_registered():
            return False
        won = await try_to_be_elected(self._coordination, self.broker_id, 0, self._on_change, self._log)
        if won is None:
            return False
        self._term = term = self._new_term(won)
        assert isinstance(term, BareTerm)
        await term.begin()
        return True
