"""One term of a controller: from a won election to its end. A new term is a new object, so nothing of an old one
survives (invariant 28).

Rules:
* One event at a time. ZooKeeper first (fenced), then the context, then the brokers: the next controller can take over
  at any point.
* Handlers are level triggered: they set the watch, read, and plan from how things stand; so an event that failed half
  way is simply handled again.
* The term ends at once, without waiting for the event in hand, when the session is gone, when ZooKeeper was silent for
  a session timeout, or when anything shows that another controller was elected.

What it does in detail, and who is called for what, is in `duties`.
"""

from __future__ import annotations

import random
from functools import partial

import structlog
import trio

from strandline.controller.agenda import Agenda, ControllerFenced, Event
from strandline.controller.controller_context import ControllerContext, LiveBroker
from strandline.controller.counts import ControllerCounts, ControllerState
from strandline.controller.liveness.refusals import FalseAlarms
from strandline.controller.liveness.suspects import Suspects
from strandline.controller.orders.channel import ConnectToBroker
from strandline.controller.orders.sender import BrokerSender, Outbox
from strandline.controller.reassignments.reassignment_store import ReassignmentStore
from strandline.controller.standing_watches import StandingWatches
from strandline.controller.store import ClusterStore
from strandline.controller.term.controller_election import Won
from strandline.controller.term.duties import Duties
from strandline.controller.term.event_states import name_of, state_of
from strandline.controller.term.fail_over import fail_over
from strandline.controller.tools import Tools
from strandline.controller.topics.topic_store import TopicStore
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import (
    Message,
    Request,
)
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.coordination import ConnectionLost, Coordination, CoordinationError, SessionExpired

AMBIGUITY_BACKOFF_SECONDS = 0.05
MENDED_CHECK_SECONDS = 30.0
"""Between two looks at znodes that could not be understood, and at partitions that nobody leads."""
STOPPED = "this broker stops"


class Term:
    """The acting controller. `context` is its picture of the cluster; `active` from step 9 of the fail-over on.
    `SENDER`, `AGENDA`: a search over many orders of moves has them without tasks."""

    SENDER: type[BrokerSender] = BrokerSender
    AGENDA: type[Agenda] = Agenda

    def __init__(
        self,
        *,
        broker_id: int,
        won: Won,
        config: BrokerConfig,
        coordination: Coordination,
        connect: ConnectToBroker,
        rng: random.Random,
        log: structlog.typing.FilteringBoundLogger,
        state_change_log: structlog.typing.FilteringBoundLogger,
        false_alarms: FalseAlarms,
        counts: ControllerCounts,
        watches: StandingWatches,
    ) -> None:
        self.broker_id = broker_id
        self.log = log.bind(controller_epoch=won.epoch)
        self._follows_ours = won.follows_ours
        self._coordination = coordination
        self._connect = connect
        self.active = False
        self.was_active = False
        self.failed_events = 0
        self.context = ControllerContext(epoch=won.epoch, epoch_zk_version=won.epoch_zk_version)
        self.store = ClusterStore(
            *(coordination, watches, won.epoch, won.epoch_zk_version),
            *(config.inter_broker_listener_name, self.log),
        )
        self.agenda = self.AGENDA(counts.queue_times)
        outbox = Outbox(self._make_sender, self._start_sender)
        draw_id = partial(rng.randbytes, 16)
        tools = self.tools = Tools(config, self.context, self.store, outbox, self.agenda, counts, self.log)
        self.duties = Duties(
            tools,
            TopicStore(coordination, self.store, draw_id, self.log),
            ReassignmentStore(coordination, self.store, self.log),
            Suspects(tools, broker_id, connect, false_alarms, won.found_gone),
            draw_id,
            state_change_log.bind(controller=broker_id, controller_epoch=won.epoch),
        )

    @property
    def over(self) -> str | None:
        """Why the term ended; None while it lasts."""
        return self.agenda.over

    async def run(self) -> None:
        """Fail over, then handle events until the term ends; `over` says why."""
        try:
            async with trio.open_nursery() as nursery:
                self.agenda.nursery = nursery
                nursery.start_soon(self._watch_contact)
                nursery.start_soon(self._keep_looking)
                try:
                    await self._fail_over()
                    nursery.start_soon(self.duties.rebalance.run)
                    while True:
                        await self._handle(await self.agenda.get())
                except (ControllerFenced, CoordinationError) as error:
                    self.resign(str(error))
                except Exception as error:
                    self.log.exception("fail-over failed")
                    self.resign(f"fail-over failed: {error!r}")
        finally:
            self.resign(STOPPED)

    async def _fail_over(self) -> None:
        self.tools.counts.begin(ControllerState.CONTROLLER_CHANGE)
        try:
            await self._take_over()
        finally:
            self.tools.counts.end()

    async def _take_over(self) -> None:
        await self.store.sync()  # a lagging server must not show us the past
        await self._check_role()
        await fail_over(
            self.tools,
            self.duties.topic_store,
            self.duties.settlement,
            look_at_topics=self.duties.topic_changes.look,
            look_at_deletions=self.duties.deletion.look,
            look_at_brokers=self.duties.broker_changes.look,
            live=self.duties.suspects.live,
            follows_ours=self._follows_ours,
        )
        context = self.context
        self.active = self.was_active = True
        self.log.info(
            "controller", brokers=sorted(context.brokers), topics=len(context.topics), partitions=len(context.states)
        )
        for look in self.duties.first_looks:
            self.agenda.put(look)

    def resign(self, why: str) -> None:
        """End the term now: nothing more is written or sent. Idempotent, callable from anywhere on the event loop."""
        if self.over is not None:
            return
        self.active = False
        (self.log.info if why == STOPPED else self.log.warning)("no longer controller", why=why)
        self.tools.outbox.close_all()
        self.agenda.end(why)

    def may_act(self) -> bool:
        """ZooKeeper vouched for this session within the session timeout. A process that was paused finds out here,
        before its next byte, whichever of its tasks runs first; the term is over then."""
        if self.over is None and self._silence_left_s() <= 0:
            self.resign("no contact with ZooKeeper for a session timeout")
        return self.over is None

    def _silence_left_s(self) -> float:
        return self.tools.config.zookeeper_session_timeout_ms / 1000 - self._coordination.seconds_since_contact()

    async def _watch_contact(self) -> None:
        while self.may_act():  # noqa: ASYNC110 (silence makes no event)
            await trio.sleep(max(self._silence_left_s(), 0.01))

    async def _check_role(self) -> None:
        if not await self.store.holds_controller(self.agenda.watch(self._check_role)):
            raise ControllerFenced("/controller is gone or belongs to another session")

    # --- Events ------------------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Message:
        """What a client or a broker asks of the controller. NotController when the term ends before the answer is
        known; BrokerError for a request that is refused as a whole."""
        if not self.active:
            await self.agenda.in_turn(trio.lowlevel.checkpoint)  # before the fail-over nothing is known
        return await self.duties.answers[type(request)](request)

    async def _handle(self, event: Event) -> None:
        """One event. A failure is reported and repeated, and never ends the loop (invariant 39)."""
        self.tools.counts.begin(state_of(event))
        try:
            await event()
        except (ControllerFenced, SessionExpired) as error:
            self.resign(str(error))
            await trio.lowlevel.checkpoint()
        except ConnectionLost as error:
            # Perhaps applied, perhaps not: the conditional writes are repeated from what ZooKeeper says then.
            name = name_of(event)
            self.log.warning("connection to ZooKeeper lost, event is repeated", event_kind=name, error=str(error))
            await trio.sleep(AMBIGUITY_BACKOFF_SECONDS)
            self.agenda.put_first(event)
        except Exception:
            self.failed_events += 1
            self.log.exception("event failed", event_kind=name_of(event))
            self.agenda.later(event)
        finally:
            self.tools.counts.end()

    async def _keep_looking(self) -> None:
        while True:
            await trio.sleep(MENDED_CHECK_SECONDS)
            self.look_around()

    def look_around(self) -> None:
        """At what no watch tells of: znodes that can be understood again (it is set on the folder that names them), and
        topics that allow an unclean election by now."""
        if self.store.unreadable_states or self.store.mended_states or self.duties.topic_store.unreadable:
            self.agenda.put(self.duties.topic_changes.look_for_mended)
        if self.active and self.context.offline_partitions():
            self.agenda.put(self.duties.settlement.settle_offline)

    def configurations_changed(self, config: BrokerConfig) -> None:
        settlement, is_of_topic = self.duties.settlement, config == self.tools.config
        self.tools.config = config
        if self.active:
            self.agenda.put(settlement.settle_by_topics if is_of_topic else settlement.settle_offline)

    # --- Brokers -----------------------------------------------------------------------------------------------

    def _make_sender(self, broker: LiveBroker) -> BrokerSender:
        return self.SENDER(
            broker,
            controller_id=self.broker_id,
            controller_epoch=self.context.epoch,
            connect=self._connect,
            timeout_ms=self.tools.config.controller_socket_timeout_ms,
            may_send=self.may_act,
            on_response=self._on_response,
            on_told=self.agenda.poke,
            log=self.log,
        )

    def _start_sender(self, sender: BrokerSender) -> None:
        self.agenda.start(sender.run)

    def _on_response(self, broker: LiveBroker, request: Request, response: Message) -> None:
        if error_code(getattr(response, "error_code", 0)) is ErrorCode.STALE_CONTROLLER_EPOCH:
            self.resign(f"broker {broker.broker_id} knows a later controller")
        elif type(request) in self.duties.on_answers:
            self.agenda.put(partial(self.duties.on_answers[type(request)], broker, request, response))
