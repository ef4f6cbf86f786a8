"""The controller's word to each broker: a queue of its own, one request at a time, repeated until the broker is gone;
and the outbox of a term, which has them all.

Rules:
* One `BrokerSender` per life of a broker (broker epoch) and term of the controller: another life gets another sender,
  and what was queued for the old one is dropped with it.
* The queue is one value, `BrokerOrders`: a newer word on a partition replaces an older one, so a broker that does not
  answer costs memory by its partitions, not by time.
* Nothing is sent once the term is over or ZooKeeper was out of reach for a session timeout (`may_send`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog
import trio

from strandline.controller.controller_context import LiveBroker
from strandline.controller.orders.broker_orders import BrokerOrders, ClusterWide, OrderBuilder, requests_of
from strandline.controller.orders.channel import BrokerChannel, BrokerUnreachable, ConnectToBroker
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import Message, Request
from strandline.runtime.recent_times import RecentTimes

RETRY_BACKOFF_SECONDS = 0.1


class BrokerSender:
    """Queue and task of one life of one broker."""

    def __init__(
        self,
        broker: LiveBroker,
        *,
        controller_id: int,
        controller_epoch: int,
        connect: ConnectToBroker,
        timeout_ms: float,
        may_send: Callable[[], bool],
        on_response: Callable[[LiveBroker, Request, Message], None],
        on_told: Callable[[], None],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self.broker = broker
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._connect = connect
        self._timeout_seconds = timeout_ms / 1000
        self._may_send = may_send
        self._on_response = on_response
        self._on_told = on_told
        self._log = log.bind(broker=broker.broker_id)
        self._waiting = BrokerOrders()
        self._cluster_wide = ClusterWide((broker,))
        self._questions: dict[trio.MemorySendChannel[Message], Request] = {}
        self._wake = trio.Event()
        self._scope = trio.CancelScope()
        self._channel: BrokerChannel | None = None
        self._metadata_first = True
        self.closed = False
        self.enqueued = 0
        """How often orders were put in; compare with `told`."""
        self.told = 0
        """Those up to this number were answered, or replaced by others that were."""
        self.queue_times = RecentTimes()
        """How long the oldest order of each request had waited when it was sent."""
        self._waits_since_s = 0.0

    @property
    def queue_size(self) -> int:
        """Orders that are not answered yet, though one request may bring several, and questions."""
        return self.enqueued - self.told + len(self._questions)

    def put(self, orders: BrokerOrders, cluster_wide: ClusterWide) -> None:
        """Queue what this broker has to be told. Never waits."""
        if not self._waiting:
            self._waits_since_s = trio.current_time()
        self._waiting.add(orders)
        self._cluster_wide = cluster_wide
        self.enqueued += 1
        self._wake.set()

    async def ask(self, question: Request) -> Message:
        """Put one question between the orders and wait for its answer. BrokerUnreachable when the broker is gone.
        Who waits no longer (a time limit is the caller's) takes its question back."""
        answer, result = trio.open_memory_channel[Message](1)
        self._questions[answer] = question
        self._wake.set()
        if self.closed:
            answer.close()
        try:
            return await result.receive()
        except trio.EndOfChannel:
            raise BrokerUnreachable(f"broker {self.broker.broker_id} is gone") from None
        finally:
            self._questions.pop(answer, None)

    def close(self) -> None:
        """End the task; whatever is queued is dropped. Idempotent, never waits."""
        self.closed = True
        self._scope.cancel()
        self._on_told()
        for answer in self._questions:
            answer.close()
        self._questions.clear()

    async def run(self) -> None:
        """Send until closed."""
        try:
            with self._scope:
                while True:
                    await self._wake.wait()
                    self._wake = trio.Event()
                    await self._until_done(self._work)
        finally:
            self.close()
            self._hang_up()

    async def _until_done(self, step: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            try:
                await step()
                return
            except (BrokerUnreachable, trio.TooSlowError) as error:
                self._hang_up()
                failures += 1
                # Once per outage: a dead broker is refused ten times a second until its session ends.
                report = self._log.warning if failures == 1 else self._log.debug
                report("broker does not answer, trying again", failures=failures, error=str(error) or "timed out")
                await trio.sleep(RETRY_BACKOFF_SECONDS)

    async def _work(self) -> None:
        """Orders first, also before a question is asked again."""
        await self._tell()
        await self._answer_questions()

    async def _tell(self) -> None:
        """Send all that waits; what was not answered waits again, below what came meanwhile."""
        while self._waiting:
            orders, self._waiting = self._waiting, BrokerOrders()
            up_to, since_s = self.enqueued, self._waits_since_s
            told = False
            try:
                for request in requests_of(
                    orders,
                    controller_id=self._controller_id,
                    controller_epoch=self._controller_epoch,
                    broker_epoch=self.broker.epoch,
                    cluster_wide=self._cluster_wide,
                    metadata_first=self._metadata_first,
                    now_us=round(trio.current_time() * 1e6),
                ):
                    self.queue_times.record_s(trio.current_time() - since_s)
                    await self._exchange(request)
                told = True
            finally:
                if not told:
                    orders.add(self._waiting)
                    self._waiting, self._waits_since_s = orders, since_s
            self._metadata_first = False
            self.told = up_to
            self._on_told()

    async def _exchange(self, request: Request) -> None:
        response = await self._roundtrip(request)
        code = error_code(getattr(response, "error_code", 0))
        if code not in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH):
            # STALE_BROKER_EPOCH: it lives another life than this sender's, or does not know its own registration yet;
            # the registrations will tell. Whatever it is, the broker has not done what it was told: say it again.
            what = f"{type(request).__name__} with {code.name}"
            raise BrokerUnreachable(f"broker {self.broker.broker_id} answered {what}")
        self._on_response(self.broker, request, response)
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            await self._stop_for_good()

    async def _roundtrip(self, request: Request) -> Message:
        with trio.fail_after(self._timeout_seconds):
            if self._channel is None:
                self._channel = await self._connect(self.broker)
            if not self._may_send():
                await self._stop_for_good()
            return await self._channel.request(request)

    async def _stop_for_good(self) -> None:
        """Whoever is controller now, it is not this one: not a byte more."""
        self.close()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _answer_questions(self) -> None:
        """Ask what waits, one after the other. A question that fails goes behind the others."""
        while self._questions:
            answer, question = next(iter(self._questions.items()))
            try:
                response = await self._roundtrip(question)
            except (BrokerUnreachable, trio.TooSlowError):
                if self._questions.pop(answer, None) is not None:
                    self._questions[answer] = question
                raise
            if self._questions.pop(answer, None) is not None:
                answer.send_nowait(response)

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


Mark = dict[int, tuple[BrokerSender, int]]
"""What had been queued for each broker at some moment."""


class Outbox:
    """broker id → the sender of its present life. `start` runs a sender's task in the term's nursery."""

    def __init__(
        self, make_sender: Callable[[LiveBroker], BrokerSender], start: Callable[[BrokerSender], None]
    ) -> None:
        self._make_sender = make_sender
        self._start = start
        self._senders: dict[int, BrokerSender] = {}

    @property
    def senders(self) -> Sequence[BrokerSender]:
        """Of the brokers that live, in the order of their ids."""
        return [self._senders[broker_id] for broker_id in sorted(self._senders)]

    def open(self, broker: LiveBroker) -> None:
        """A broker appeared. Its earlier life, if any, gets nothing more."""
        self.close(broker.broker_id)
        sender = self._senders[broker.broker_id] = self._make_sender(broker)
        self._start(sender)

    def close(self, broker_id: int) -> None:
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.close()

    def close_all(self) -> None:
        for broker_id in list(self._senders):
            self.close(broker_id)

    def send(self, builder: OrderBuilder) -> None:
        """Queue every broker's orders. Never waits."""
        for broker_id, orders in builder.by_broker.items():
            if broker_id in self._senders and orders:
                self._senders[broker_id].put(orders, builder.cluster_wide)

    async def ask(self, broker_id: int, question: Request) -> Message:
        """One question to one broker. BrokerUnreachable when it is gone."""
        sender = self._senders.get(broker_id)
        if sender is None:
            raise BrokerUnreachable(f"broker {broker_id} is not registered")
        return await sender.ask(question)

    def mark(self) -> Mark:
        return {broker_id: (sender, sender.enqueued) for broker_id, sender in self._senders.items()}

    @staticmethod
    def told(mark: Mark) -> bool:
        """Has every broker that still lives answered all that was queued at `mark`?"""
        return all(sender.closed or sender.told >= enqueued for sender, enqueued in mark.values())
