"""The controller without tasks and connections: its own `Term`, whose requests arrive when they are queued for nobody.

What a term would do in tasks beside its events waits in the `BareAgenda` until whoever moves the cluster has it done;
orders wait in the `BareSender` of each broker until they are delivered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from strandline.client.errors import ClientError
from strandline.controller.agenda import RETRY_SECONDS, Agenda, ControllerFenced, Event
from strandline.controller.controller import Controller
from strandline.controller.controller_context import LiveBroker
from strandline.controller.orders.channel import BrokerChannel, BrokerUnreachable
from strandline.controller.orders.sender import BrokerSender
from strandline.controller.term.controller_election import try_to_be_elected
from strandline.controller.term.term import Term
from strandline.protocol.messages import Message, Request
from strandline.runtime.coordination import CoordinationError
from strandline.runtime.recent_times import RecentTimes

Deliver = Callable[[int, Request], Awaitable[Message]]
"""Takes a request to a broker and its answer back. BrokerUnreachable."""


class _Channel:
    """`BrokerChannel`: a request is delivered at once."""

    def __init__(self, deliver: Deliver, broker_id: int) -> None:
        self._deliver = deliver
        self._broker_id = broker_id

    async def request(self, message: Request) -> Message:
        return await self._deliver(self._broker_id, message)

    async def until_broken(self) -> None:
        raise AssertionError("nobody watches processes here")

    def close(self) -> None: ...


class Delivery:
    """`ConnectToBroker` without a network."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver

    async def __call__(self, broker: LiveBroker) -> BrokerChannel:
        return _Channel(self._deliver, broker.broker_id)


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


class BareAgenda(Agenda):
    """What would be done beside the events waits in `beside`, what would be due later in `postponed`."""

    def __init__(self, queue_times: RecentTimes | None = None) -> None:
        super().__init__(queue_times)
        self.beside: list[Event] = []
        self.postponed: dict[Event, None] = {}

    def start(self, function: Event) -> None:
        self.beside.append(function)

    def later(self, event: Event, seconds: float = RETRY_SECONDS) -> None:
        self.postponed[event] = None


class BareTerm(Term):
    """`senders`: by broker; those that are closed may stand there, too."""

    SENDER = BareSender
    AGENDA = BareAgenda
    agenda: BareAgenda

    def __init__(self, **facts: Any) -> None:
        self.senders: dict[int, BareSender] = {}
        super().__init__(**facts)

    def _start_sender(self, sender: BrokerSender) -> None:
        """Whoever moves the cluster calls `tell`."""
        assert isinstance(sender, BareSender)
        self.senders[sender.broker.broker_id] = sender

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
        if self.agenda.beside:
            await self.agenda.beside.pop(0)()
            return True
        if len(self.agenda):
            await self._handle(await self.agenda.get())
            return True
        return any([await sender.tell() for sender in list(self.senders.values())])

    def look_again(self) -> bool:
        """What was postponed is due, and so is what no watch tells of. Whether there is anything."""
        if self.over is not None or not self.active:
            return False
        for event in self.agenda.postponed:
            self.agenda.put(event)
        self.agenda.postponed = {}
        self.look_around()
        return bool(len(self.agenda))


class ActingController:
    """`ControlPlane` of every broker: whoever acts as controller now is asked, without a network. ClientError: nobody
    does."""

    def __init__(self, acting: Callable[[], Controller | None]) -> None:
        self._acting = acting
        self.is_active = True

    async def ask(self, request: Request) -> Message:
        controller = self._acting()
        if controller is None:
            raise ClientError("there is no controller")
        return await controller.ask(request)


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
        self._term = term = self._begin_term(won=won, config=self._config)
        assert isinstance(term, BareTerm)
        await term.begin()
        return True
