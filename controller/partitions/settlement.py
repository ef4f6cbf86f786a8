"""Partition states, settled: planned, written to ZooKeeper until nobody else's write upsets them, taken into the
context, announced to the brokers. Whoever changes a state, and be it by a new API, does it through here.

Each change takes a new leader epoch: a broker that knows a state's epoch already has applied it, so a change of the
replicas alone would not reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from strandline.controller.controller_context import LeaderAndIsr, PartitionChange
from strandline.controller.orders.broker_orders import OrderBuilder
from strandline.controller.partitions.state_lines import StateLines
from strandline.controller.partitions.waits import LATER_EPOCHS, Waits
from strandline.controller.planning.planner import Plan, plan_partitions
from strandline.controller.tools import Tools
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import IsrChangeNotificationZnode
from strandline.runtime.config.topic import TopicConfig, read_topic_config

Planner = Callable[[Sequence[TopicPartition]], Sequence[PartitionChange]]
"""What to write for these partitions, from how things stand."""
OnUndecided = Callable[[Mapping[TopicPartition, tuple[int, ...]], set[str]], None]
"""Told of partitions that only a comparison of logs can decide, with whom to ask, and of topics that allow an unclean
election."""


class Settlement:
    """One term's.

    unannounced: partitions of which something is settled in ZooKeeper that nobody was told yet. stale_metadata: those
        whose ISR changed, or of which a replica went with its broker, was refused or is well again, which may call for
        another state and is news in any case. Both survive an event that broke off.
    on_undecided: a `Recovery` listens here. on_change: called whenever states are known to be other ones; it neither
        waits nor raises."""

    def __init__(self, tools: Tools, waits: Waits, state_change_log: structlog.typing.FilteringBoundLogger) -> None:
        self._tools = tools
        self._context, self._store, self._outbox = tools.context, tools.store, tools.outbox
        self._agenda, self._log = tools.agenda, tools.log
        self._state_lines = StateLines(tools.context, state_change_log)
        self._waits = waits
        self.unannounced: dict[TopicPartition, None] = {}
        self.stale_metadata: dict[TopicPartition, None] = {}
        self.on_undecided: OnUndecided = _nobody_listens
        self.on_change: Callable[[], None] = _nobody_cares

    # --- Planning and writing ----------------------------------------------------------------------------------

    async def plan(self, partitions: Sequence[TopicPartition]) -> tuple[Plan, set[str]]:
        """The best that live replicas allow, and the topics in it that allow an unclean election; reads their
        configuration where that helps."""
        plan = plan_partitions(self._context, partitions)
        lossy_topics: set[str] = set()
        if plan.unclean_candidates:
            configs = await self.topic_configs(list(plan.unclean_candidates))
            lossy_topics = {name for name, config in configs.items() if config.unclean_leader_election_enable}
            if lossy_topics:
                plan = plan_partitions(self._context, partitions, lossy_topics)
        return plan, lossy_topics

    async def settle(
        self, partitions: Sequence[TopicPartition], planner: Planner | None = None
    ) -> dict[TopicPartition, None]:
        """Plan (without a planner, the best that live replicas allow) and write until nothing of it is upset by
        somebody else's write. Returns what is to be announced. Leaders write ISR changes all the time: a partition that
        moved is planned again."""
        changed: dict[TopicPartition, None] = {}
        while partitions:
            planned = await self._plan_best(partitions) if planner is None else planner(partitions)
            changes = self._without_doubtful_states(planned)
            if not changes:
                break
            changes = await self._without_needless_eligibles(changes)
            result = await self._store.write_states(changes)
            for change in changes:
                tp = change.topic_partition
                if tp in result.written:
                    self._context.states[tp] = result.written[tp]
                    changed[tp] = self.unannounced[tp] = None
            self._report([change for change in changes if change.topic_partition in result.written])
            for tp, state in result.moved.items():
                self._adopt(tp, state)
                changed[tp] = self.unannounced[tp] = None
            partitions = list(result.moved)
        if changed:
            self.on_change()
        return changed

    async def _plan_best(self, partitions: Sequence[TopicPartition]) -> Sequence[PartitionChange]:
        """What only a recovery can decide is begun beside that, and who is missed is named."""
        for tp in [tp for tp in self._context.accepted_losses if self._context.has_live_leader(tp)]:
            self._is_led(tp)  # an accepted loss must not wait for the death of one who leads, or leads on
        plan, lossy_topics = await self.plan(partitions)
        self.on_undecided(plan.recover, lossy_topics)
        self._waits.note(plan.waits)
        return plan.changes

    async def topic_configs(self, names: Sequence[str]) -> dict[str, TopicConfig]:
        """What is unknown or unusable in them is read as what loses nothing."""
        standing = await self._store.topic_configs(names)
        return {name: read_topic_config(self._tools.config, overrides).config for name, overrides in standing.items()}

    def _without_doubtful_states(self, changes: Sequence[PartitionChange]) -> list[PartitionChange]:
        """Where a replica's log has a later leader epoch than the state, that one is an old copy or was made anew: whom
        it names in sync proves nothing, and each further epoch would bring it nearer to where that log is taken for a
        copy of the leader's, and cut. It is left as it is, for an operator; who leads goes on. Where the operator has
        accepted the loss, that is decided."""
        context = self._context
        doubtful = {c.topic_partition: context.replicas_with_later_epochs(c.topic_partition) for c in changes}
        accepted = context.accepted_losses
        doubtful = {tp: replicas for tp, replicas in doubtful.items() if replicas and tp not in accepted}
        self._waits.note({tp: them for tp, them in doubtful.items() if not context.has_live_leader(tp)}, LATER_EPOCHS)
        return [change for change in changes if change.topic_partition not in doubtful]

    async def _without_needless_eligibles(self, changes: Sequence[PartitionChange]) -> list[PartitionChange]:
        """Where the ISR keeps the minimum nobody else need be remembered: spare the leader the write that says so. A
        minimum that is not known, or not up to date, costs that write and nothing else."""
        concerned = dict.fromkeys(c.topic_partition.topic for c in changes if c.after.elr and c.after.has_leader)
        if not concerned:
            return list(changes)
        configs = await self.topic_configs(list(concerned))

        def is_needless(change: PartitionChange) -> bool:
            if not (change.after.elr and change.after.has_leader):
                return False
            config = configs[change.topic_partition.topic]
            replicas = self._context.replicas_of(change.topic_partition)
            factor = 0 if replicas is None else replicas.replication_factor
            return len(change.after.isr) >= min(config.min_insync_replicas, factor)

        return [
            replace(change, after=replace(change.after, elr=())) if is_needless(change) else change
            for change in changes
        ]

    def _report(self, changes: Sequence[PartitionChange]) -> None:
        self._state_lines.write(changes)
        for change in changes:
            if change.after.has_leader:
                self._is_led(change.topic_partition)
            if change.unclean:
                self._tools.counts.unclean_elections += 1
                fields = self._state_lines.fields(change)
                self._log.error("unclean election, acknowledged records may be lost", **fields)

    def _is_led(self, topic_partition: TopicPartition) -> None:
        """What was accepted, or said, of a partition that nobody led is of the time before."""
        self._context.accepted_losses.pop(topic_partition, None)
        self._waits.is_led(topic_partition)

    # --- Reading -----------------------------------------------------------------------------------------------

    def _adopt(self, topic_partition: TopicPartition, state: LeaderAndIsr | None) -> None:
        """Take over what ZooKeeper says."""
        if state is None:
            self._context.states.pop(topic_partition, None)
        else:
            self._context.states[topic_partition] = state
            if self._context.has_live_leader(topic_partition):
                self._is_led(topic_partition)

    async def read_new(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Read states that were not known before: what they say is to be announced, whether it is changed or not.
        Returns the partitions that have one."""
        states = await self._store.states(partitions)
        for tp, state in states.items():
            self._adopt(tp, state)
            self.unannounced[tp] = None
        return list(states)

    async def read_again(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Read states again; returns the partitions that had moved, which is news for all: what the leader's own word
        of its change brings later is known by then. A broker that gave up what it might betray
        (`broker/membership/loss_reports`) raised the epoch: nobody else has told the leader. Nor does anybody else tell
        a broker that refused its role while others rested on its log that they do no more: it may play it now
        (`StrayLog`)."""
        known = [tp for tp in dict.fromkeys(partitions) if tp in self._context.states]
        moved = []
        for tp, state in (await self._store.states(known)).items():
            before = self._context.states[tp]
            if state.zk_version != before.zk_version:
                moved.append(tp)
                self.stale_metadata[tp] = None
            released = {*before.isr, *before.elr}.difference(state.isr, state.elr)
            may_play = any((broker_id, tp) in self._context.offline_replicas for broker_id in released)
            if may_play or state.leader_epoch != before.leader_epoch:
                self.unannounced[tp] = None
            self._adopt(tp, state)
        if moved:
            self.on_change()
        return moved

    # --- Announcing --------------------------------------------------------------------------------------------

    def announce(self, changed: Mapping[TopicPartition, None], builder: OrderBuilder | None = None) -> None:
        """Tell the replicas and the metadata caches what was settled. `builder` may hold more to be said with it.

        What an earlier event settled and could not announce any more (its connection broke in between) goes with it."""
        builder = builder or OrderBuilder(self._context)
        changed = {tp: None for tp in {**self.unannounced, **changed} if tp in self._context.states}
        self.unannounced = {}
        builder.leadership(changed)
        builder.metadata(changed)
        self._outbox.send(builder)
        self._agenda.poke()

    def note_announced(self, changed: Mapping[TopicPartition, None]) -> None:
        """Somebody has queued the orders for these himself."""
        for tp in changed:
            self.unannounced.pop(tp, None)

    async def settle_and_announce(
        self,
        partitions: Sequence[TopicPartition] = (),
        planner: Planner | None = None,
        builder: OrderBuilder | None = None,
    ) -> None:
        """Without a planner also what has stale metadata, which is told anew. `builder` holds more to be said with
        it."""
        stale = {} if planner else self.stale_metadata
        changed = await self.settle(list(dict.fromkeys([*partitions, *stale])), planner)
        builder = builder or OrderBuilder(self._context)
        builder.metadata(stale)
        self.announce(changed, builder)
        if planner is None:
            self.stale_metadata = {}

    async def on_isr_changes(self, notes: Sequence[IsrChangeNotificationZnode] | None) -> None:
        """Leaders wrote these states: read them, take out who died before this was heard, tell everybody."""
        named = self._context.partitions() if notes is None else (tp for note in notes for tp in note.partitions)
        await self.refresh(named)

    async def refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Read states again that may have moved, and do what follows from that."""
        await self.read_again(partitions)
        await self.settle_and_announce()

    async def settle_offline(self) -> None:
        """What nobody leads may have a leader by now."""
        await self.settle_and_announce(self._context.offline_partitions())

    async def settle_by_topics(self) -> None:
        """The same, since the configuration of a topic has changed: it may allow an unclean election now."""
        await self.settle_offline()


def _nobody_listens(_: Mapping[TopicPartition, tuple[int, ...]], __: set[str]) -> None: ...


def _nobody_cares() -> None: ...
