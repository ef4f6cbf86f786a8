"""One term of a controller: from a won election to its end. A new term is a new object, so nothing of an old one
survives (safety.md 28).

Rules:
* One event at a time. ZooKeeper first (fenced), then the context, then the brokers: the next controller can take over
  at any point.
* Handlers are level triggered: they set the watch, read, and plan from how things stand; so an event that failed half
  way is simply handled again.
* The term ends at once, without waiting for the event in hand, when the session is gone, when ZooKeeper was silent for
  a session timeout, or when anything shows that another controller was elected.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

import structlog
import trio

from strandline.controller.context import ControllerContext, LeaderAndIsr, LiveBroker
from strandline.controller.orders.batches import BatchBuilder
from strandline.controller.orders.outbox import Outbox, Progress
from strandline.controller.orders.sender import BrokerSender, ConnectToBroker
from strandline.controller.planning.planner import PartitionChange
from strandline.controller.planning.planning import Planning
from strandline.controller.store import ClusterStore, ControllerFenced
from strandline.controller.term.broker_changes import BrokerChanges
from strandline.controller.term.controller_election import Won
from strandline.controller.term.events import Event, EventQueue, Trigger
from strandline.controller.term.recovery import Recovery
from strandline.controller.topics.changes import TopicChanges
from strandline.controller.topics.requests import ControllerRequests
from strandline.controller.topics.topic_store import TopicStore
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import (
    LeaderAndIsrResponse,
    Message,
    Request,
    StopReplicaRequest,
    StopReplicaResponse,
)
from strandline.protocol.types import TopicPartition
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.coordination import ConnectionLost, Coordination, CoordinationError, SessionExpired, WatchEvent

RETRY_SECONDS = 1.0
"""Before what a broker refused, or what failed for a reason unknown, is tried again."""
AMBIGUITY_BACKOFF_SECONDS = 0.05
MENDED_CHECK_SECONDS = 30.0
"""Between two looks at znodes that could not be understood, and at partitions that nobody leads."""
STOPPED = "this broker stops"
DETAILED_CHANGES = 1000
"""Above so many changes in a wave the state-change log gets them at debug level: no line per partition at scale."""

Planner = Callable[[Sequence[TopicPartition]], Awaitable[Sequence[PartitionChange]]]


class Term:
    """The acting controller. `context` is its picture of the cluster; `active` from step 9 of the fail-over on.
    `SENDER`: a search over many orders of moves has one without a task."""

    SENDER: type[BrokerSender] = BrokerSender

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
    ) -> None:
        self.broker_id = broker_id
        self.config = config
        self.random = rng
        self.log = log.bind(controller_epoch=won.epoch)
        self._follows_ours = won.follows_ours
        self.context = ControllerContext(epoch=won.epoch, epoch_zk_version=won.epoch_zk_version)
        self.store = ClusterStore(
            coordination, won.epoch, won.epoch_zk_version, config.inter_broker_listener_name, self.log
        )
        self.topic_store = TopicStore(coordination, self.store, partial(rng.randbytes, 16), self.log)
        self.events = EventQueue()
        self.progress = Progress()
        self.outbox = Outbox(self._make_sender, self._start_sender)
        self.active = False
        self.was_active = False
        self.over: str | None = None
        """Why the term ended; None while it lasts."""
        self.failed_events = 0
        self.unannounced: dict[TopicPartition, None] = {}
        """Settled in ZooKeeper and not announced yet: survives an event that broke off."""
        self.elections = 0
        self.unclean_elections = 0
        self._state_change_log = state_change_log.bind(controller=broker_id, controller_epoch=won.epoch)
        self._coordination = coordination
        self._connect = connect
        self._nursery: trio.Nursery | None = None
        self.broker_changes = BrokerChanges(self)
        self.topic_changes = TopicChanges(self)
        self.requests = ControllerRequests(self)
        self.recovery = Recovery(self)
        self.planning = Planning(self)
        self._handlers: dict[Trigger, Callable[[], Awaitable[None]]] = {
            Trigger.CONTROLLER: self._on_controller,
            Trigger.BROKERS: self.broker_changes.on_brokers,
            Trigger.TOPICS: self.topic_changes.on_topics,
            Trigger.DELETE_TOPICS: self.topic_changes.on_delete_topics,
            Trigger.ISR_CHANGES: self.broker_changes.on_isr_changes,
            Trigger.LOG_DIR_EVENTS: self.broker_changes.on_log_dir_events,
            Trigger.REASSIGN_PARTITIONS: partial(self._not_served, Trigger.REASSIGN_PARTITIONS),
            Trigger.PREFERRED_REPLICA_ELECTION: partial(self._not_served, Trigger.PREFERRED_REPLICA_ELECTION),
            Trigger.DELETION_PROGRESS: self.topic_changes.on_deletion_progress,
            Trigger.OFFLINE_PARTITIONS: self._on_offline_partitions,
            Trigger.UNREADABLE: self.topic_changes.on_unreadable,
        }

    # --- The term ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fail over, then handle events until the term ends; `over` says why."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._watch_contact)
                nursery.start_soon(self._look_for_mended)
                try:
                    await self._fail_over()
                    while True:
                        await self._handle(await self.events.get())
                except (ControllerFenced, CoordinationError) as error:
                    self.resign(str(error))
                except Exception as error:
                    self.log.exception("fail-over failed")
                    self.resign(f"fail-over failed: {error!r}")
        finally:
            self.resign(STOPPED)

    def resign(self, why: str) -> None:
        """End the term now: nothing more is written or sent. Idempotent, callable from anywhere on the event loop."""
        if self.over is not None:
            return
        self.over = why
        self.active = False
        (self.log.info if why == STOPPED else self.log.warning)("no longer controller", why=why)
        self.outbox.close_all()
        self.progress.poke()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def may_act(self) -> bool:
        """ZooKeeper vouched for this session within the session timeout. A process that was paused finds out here,
        before its next byte, whichever of its tasks runs first; the term is over then."""
        if self.over is None and self._silence_left_s() <= 0:
            self.resign("no contact with ZooKeeper for a session timeout")
        return self.over is None

    def _silence_left_s(self) -> float:
        return self.config.zookeeper_session_timeout_ms / 1000 - self._coordination.seconds_since_contact()

    async def _watch_contact(self) -> None:
        while self.may_act():  # noqa: ASYNC110 (silence makes no event)
            await trio.sleep(max(self._silence_left_s(), 0.01))

    async def _look_for_mended(self) -> None:
        """What no watch tells of: znodes that can be understood again (it is set on the folder that names them), and
        topics that allow an unclean election by now."""
        while True:
            await trio.sleep(MENDED_CHECK_SECONDS)
            if self.store.unreadable_states or self.topic_store.unreadable:
                self.events.put(Trigger.UNREADABLE)
            if self.active and self.context.offline_partitions():
                self.events.put(Trigger.OFFLINE_PARTITIONS)

    async def _handle(self, event: Event) -> None:
        """One event. A failure is reported and repeated, and never ends the loop (safety.md 39)."""
        try:
            await (self._handlers[event]() if isinstance(event, Trigger) else event())
        except (ControllerFenced, SessionExpired) as error:
            self.resign(str(error))
            await trio.lowlevel.checkpoint()
        except ConnectionLost as error:
            # Perhaps applied, perhaps not: the conditional writes are repeated from what ZooKeeper says then.
            self.log.warning("connection to ZooKeeper lost, event is repeated", event_kind=str(event), error=str(error))
            await trio.sleep(AMBIGUITY_BACKOFF_SECONDS)
            self.events.put_first(event)
        except Exception:
            self.failed_events += 1
            self.log.exception("event failed", event_kind=str(event))
            self.later(event)

    def later(self, event: Event, seconds: float = RETRY_SECONDS) -> None:
        """Put an event into the queue after a while."""

        async def put() -> None:
            await trio.sleep(seconds)
            self.events.put(event)

        self.start(put)

    def start(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run something beside the events, within this term."""
        assert self._nursery is not None
        self._nursery.start_soon(function)

    def configurations_changed(self, config: BrokerConfig) -> None:
        self.config = config
        if self.active:
            self.events.put(Trigger.OFFLINE_PARTITIONS)

    def watch(self, trigger: Trigger) -> Callable[[WatchEvent], None]:
        return lambda _: self.events.put(trigger)

    def _make_sender(self, broker: LiveBroker) -> BrokerSender:
        return self.SENDER(
            broker,
            controller_id=self.broker_id,
            controller_epoch=self.context.epoch,
            connect=self._connect,
            timeout_ms=self.config.controller_socket_timeout_ms,
            may_send=self.may_act,
            on_response=self._on_response,
            on_told=self.progress.poke,
            log=self.log,
        )

    def _start_sender(self, sender: BrokerSender) -> None:
        self.start(sender.run)

    # --- Fail-over ---------------------------------------------------------------------------------------------

    async def _fail_over(self) -> None:
        """The twelve steps of the reference text (000, "Controller Failover")."""
        context, store = self.context, self.store
        # 1. Read and raise the controller epoch: done, in the transaction that won the election.
        await store.sync()  # a lagging server must not show us the past
        await self._on_controller()
        # 2. Watch /admin/reassign_partitions.
        await self._not_served(Trigger.REASSIGN_PARTITIONS)
        # 3. Watch /admin/preferred_replica_election.
        await self._not_served(Trigger.PREFERRED_REPLICA_ELECTION)
        # 4. Watch /brokers/topics.
        topic_names = await store.children(Trigger.TOPICS.value, self.watch(Trigger.TOPICS))
        # 5. Watch /admin/delete_topics, if topics may be deleted.
        doomed = []
        if self.config.delete_topic_enable:
            doomed = await store.children(Trigger.DELETE_TOPICS.value, self.watch(Trigger.DELETE_TOPICS))
        # 6. Watch /brokers/ids.
        brokers = await store.brokers(self.watch(Trigger.BROKERS))
        # 7. The context: topics, live brokers, leader and ISR of every partition.
        context.topics = await self.topic_store.topics(topic_names)
        context.states = await store.states(list(context.partitions()))
        context.brokers = brokers
        context.deleting = {name: None for name in doomed if name in context.topics}
        for broker in brokers.values():
            self.outbox.open(broker)
        if not self._follows_ours:
            await self.planning.drop_doubtful_eligibles()
        # 8. Start the state machines: replicas are online where their broker lives; partitions without a live leader,
        #    and those that never had one, get one.
        await self.settle(list(context.partitions()))
        # 9. Running as controller.
        self.active = self.was_active = True
        self.log.info("controller", brokers=sorted(brokers), topics=len(context.topics), partitions=len(context.states))
        # 10. Send every partition's leadership to all live brokers. A sender's first word is the metadata: brokers know
        #     where leaders live before they are told to follow them.
        builder = BatchBuilder(context)
        builder.live_brokers()
        builder.metadata(context.partitions())
        builder.leadership(context.partitions())
        self.outbox.send(builder)
        # 11. (Automatic rebalance of preferred leaders is not served by this version.)
        # 12. Go on with the topics that are being deleted.
        self.events.put(Trigger.DELETE_TOPICS)
        self.events.put(Trigger.ISR_CHANGES)
        self.events.put(Trigger.LOG_DIR_EVENTS)

    # --- Planning and doing ------------------------------------------------------------------------------------

    async def settle(
        self, partitions: Sequence[TopicPartition], planner: Planner | None = None
    ) -> dict[TopicPartition, None]:
        """Plan and write until nothing of it is upset by somebody else's write. Returns what is to be announced.
        Leaders write ISR changes all the time: a partition that moved is planned again."""
        changed: dict[TopicPartition, None] = {}
        while partitions:
            changes = self.planning.without_doubtful_states(await (planner or self.planning.plan)(partitions))
            if not changes:
                break
            changes = await self.planning.without_needless_eligibles(changes)
            result = await self.store.write_states(changes)
            for change in changes:
                tp = change.topic_partition
                if tp in result.written:
                    self.context.states[tp] = result.written[tp]
                    changed[tp] = self.unannounced[tp] = None
                    self._report(change, detailed=len(changes) <= DETAILED_CHANGES)
            for tp, state in result.moved.items():
                self.adopt(tp, state)
                changed[tp] = self.unannounced[tp] = None
            partitions = list(result.moved)
        return changed

    def adopt(self, topic_partition: TopicPartition, state: LeaderAndIsr | None) -> None:
        """Take over what ZooKeeper says."""
        if state is None:
            self.context.states.pop(topic_partition, None)
        else:
            self.context.states[topic_partition] = state
            if self.context.has_live_leader(topic_partition):
                self.recovery.is_led(topic_partition)

    def take_in(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        """States that were not known before: what they say is to be announced, whether it is changed or not."""
        for tp, state in states.items():
            self.adopt(tp, state)
            self.unannounced[tp] = None

    def announce(self, changed: Mapping[TopicPartition, None], builder: BatchBuilder | None = None) -> None:
        """Tell the replicas and the metadata caches what was settled. `builder` may hold more to be said with it.

        What an earlier event settled and could not announce any more (its connection broke in between) goes with it."""
        builder = builder or BatchBuilder(self.context)
        changed = {tp: None for tp in {**self.unannounced, **changed} if tp in self.context.states}
        self.unannounced = {}
        builder.leadership(changed)
        builder.metadata(changed)
        self.outbox.send(builder)
        self.progress.poke()

    async def settle_and_announce(self, partitions: Sequence[TopicPartition], planner: Planner | None = None) -> None:
        self.announce(await self.settle(partitions, planner))

    def _report(self, change: PartitionChange, detailed: bool) -> None:
        before, after = change.before, change.after
        if after.has_leader:
            self.recovery.is_led(change.topic_partition)
        if before is None or before.leader != after.leader:
            self.elections += 1
        fields = {
            "topic": change.topic_partition.topic,
            "partition": change.topic_partition.partition,
            "leader": after.leader,
            "leader_epoch": after.leader_epoch,
            "isr": list(after.isr),
            "eligible": list(after.elr),
            "previous_leader": None if before is None else before.leader,
            "previous_isr": None if before is None else list(before.isr),
            "zk_version": after.zk_version,
            "why": change.why,
        }
        if change.unclean:
            self.unclean_elections += 1
            self.log.error("unclean election, acknowledged records may be lost", **fields)
        report = self._state_change_log.info if detailed else self._state_change_log.debug
        report("partition state changed", **fields)

    async def refresh(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Read states again; returns the partitions that had moved. A broker that gave up what it might betray
        (`broker/membership/loss_reports`) raised the epoch: nobody else has told the leader. Nor does anybody else tell
        a broker that refused its role while others rested on its log that they do no more: it may play it now
        (`StrayLog`)."""
        known = [tp for tp in dict.fromkeys(partitions) if tp in self.context.states]
        moved = []
        for tp, state in (await self.store.states(known)).items():
            before = self.context.states[tp]
            if state.zk_version != before.zk_version:
                moved.append(tp)
            released = {*before.isr, *before.elr}.difference(state.isr, state.elr)
            may_play = any((broker_id, tp) in self.context.offline_replicas for broker_id in released)
            if may_play or state.leader_epoch != before.leader_epoch:
                self.unannounced[tp] = None
            self.adopt(tp, state)
        return moved

    # --- Events that need no more than this --------------------------------------------------------------------

    async def _on_controller(self) -> None:
        if not await self.store.holds_controller(self.watch(Trigger.CONTROLLER)):
            raise ControllerFenced("/controller is gone or belongs to another session")

    async def _not_served(self, trigger: Trigger) -> None:
        if await self.store.exists(trigger.value, self.watch(trigger)):
            self.log.warning("not served by this version, left alone", path=trigger.value)

    async def _on_offline_partitions(self) -> None:
        await self.settle_and_announce(self.context.offline_partitions())

    def _on_response(self, broker: LiveBroker, request: Request, response: Message) -> None:
        if error_code(getattr(response, "error_code", 0)) is ErrorCode.STALE_CONTROLLER_EPOCH:
            self.resign(f"broker {broker.broker_id} knows a later controller")
        elif isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
            self.events.put(partial(self.topic_changes.on_stopped, broker, request, response))
        elif isinstance(response, LeaderAndIsrResponse):
            self.events.put(partial(self.broker_changes.on_roles_answered, broker, response.partition_errors))
