"""Reassignments, carried out: one event, which looks at every partition that moves and takes each as far as it can go.
Nothing but the topics' znodes and the partitions' states says how far that is (`steps` has the steps and their order).

The event comes when a state has changed, when something new is asked for, with each term, and now and then while
something moves, since the minimum in sync may have become smaller. Before anybody goes, those who are to lead
afterwards are asked, beside the events, whether they answer; then it comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import trio

from strandline.controller.agenda import RETRY_SECONDS
from strandline.controller.controller_context import LeaderAndIsr, PartitionChange
from strandline.controller.orders.broker_orders import OrderBuilder
from strandline.controller.orders.silent import silent_brokers
from strandline.controller.partition_replicas import PartitionReplicas
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.reassignments.reassignment_lines import ReassignmentLines
from strandline.controller.reassignments.reassignment_store import Move, ReassignmentStore, Written
from strandline.controller.reassignments.steps import (
    has_left,
    is_over_without_leader,
    may_go,
    needs_minimum,
    plan_departures,
    plan_new_epochs,
    plan_target_leaders,
    would_lead,
)
from strandline.controller.tools import Tools
from strandline.protocol.types import NO_EPOCH, TopicPartition

PARTITIONS_PER_WAVE = 2000
"""Taken through the steps together; then other tasks of the broker take their turn."""
LOOK_INTERVAL_S = 30.0

Moving = Mapping[TopicPartition, PartitionReplicas]


class Reassignments:
    """One term's. `on_done` is called when partitions have arrived; it neither waits nor raises."""

    def __init__(self, tools: Tools, settlement: Settlement, store: ReassignmentStore) -> None:
        self._tools = tools
        self._context, self._agenda = tools.context, tools.agenda
        self._settlement = settlement
        self.store = store
        self.lines = ReassignmentLines(tools.log)
        self._seen: dict[TopicPartition, tuple[PartitionReplicas, int]] = {}
        """What was found to move, with the leader epoch that it had then: the leader knows of it by a later one."""
        self._stuck: dict[TopicPartition, None] = {}
        """Those that have arrived, which cannot be written down: their topic's znode is gone, or nobody understands it.
        They are tried again after a while, since each attempt costs leader epochs."""
        self._arriving: dict[TopicPartition, tuple[Move, LeaderAndIsr]] = {}
        """Those that nobody has to leave any more by that state; whether step 10 stands nobody knows, since the answer
        was lost. Until it is known no leader may hear of that state: it would let those who have left come back."""
        self._answering: frozenset[int] | None = None
        """Who answered a moment ago, for the next event: whether that has use for it or not."""
        self._is_asking = False
        self._will_look = False
        self._will_ask_again = False
        self.on_done: Callable[[], None] = _nobody_cares
        settlement.on_change = self.states_changed

    def states_changed(self) -> None:
        """Something may be due. Never waits."""
        if any(topic.adding_replicas or topic.removing_replicas for topic in self._context.topics.values()):
            self._agenda.put(self.go_on)

    # --- 1 -----------------------------------------------------------------------------------------------------

    async def begin(self, moves: Mapping[TopicPartition, Move], *, overrules_tools: bool) -> Written:
        """Write down where these are to go (step 1), and take them as far as they can go now. overrules_tools: whatever
        `/admin/reassign_partitions` asks for them counts no more."""
        await self._arrive_once_more()
        written = await self.store.write(moves, overrules_tools=overrules_tools)
        begun = {tp: moves[tp] for tp in written.stands if moves[tp].before != moves[tp].after}
        self.lines.begun(begun)
        at_once = {tp: move for tp, move in begun.items() if not move.after.is_moving}
        unheard = self._ended(written.found)
        self._context.set_replicas({**written.stands, **written.found})
        self._tell_done({**at_once, **unheard})
        await self.go_on()
        return written

    def _ended(self, found: Moving) -> dict[TopicPartition, Move]:
        """What this term ended, and did not hear of, since the answer of ZooKeeper was lost."""
        ended = {}
        for tp, after in found.items():
            before = self._context.replicas_of(tp)
            if before is not None and before.is_moving and before.done == after:
                ended[tp] = Move(self._context.topics[tp.topic].topic_id, before, after)
        return ended

    # --- 2 to 10 -----------------------------------------------------------------------------------------------

    async def go_on(self) -> None:
        """See the module. One wave of partitions at a time; what is left is an event of its own."""
        await self._arrive_once_more()
        moving = self._context.moving()
        answering, self._answering = self._answering, None  # of a moment ago, used or not
        self._seen = {tp: seen for tp, seen in self._seen.items() if moving.get(tp) == seen[0]}
        ready: list[TopicPartition] = []
        fresh: list[TopicPartition] = []
        over: list[TopicPartition] = []
        minimums = await self._minimums(moving)
        for number, (tp, replicas) in enumerate(moving.items(), 1):
            state = self._context.states.get(tp)
            _, epoch = self._seen.setdefault(tp, (replicas, NO_EPOCH if state is None else state.leader_epoch))
            if state is not None and self._context.has_live_leader(tp):
                if may_go(replicas, state, minimums.get(tp.topic)):
                    if tp not in self._stuck:
                        ready.append(tp)
                elif state.leader_epoch == epoch:
                    fresh.append(tp)
            elif state is not None and is_over_without_leader(replicas, state) and tp not in self._stuck:
                over.append(tp)
            if number % PARTITIONS_PER_WAVE == 0:
                await trio.lowlevel.checkpoint()  # events take their turns: the context stays as it is
        is_progress = False
        # 2, 3
        if fresh:
            some = fresh[:PARTITIONS_PER_WAVE]
            await self._settlement.settle_and_announce(some, partial(plan_new_epochs, self._context))
            states = self._context.states
            is_progress = any(tp not in states or states[tp].leader_epoch != self._seen[tp][1] for tp in some)
        if ready:
            if answering is None:
                self._ask_who_answers(ready)
            else:
                is_progress = await self._finish_where_led(ready, minimums, answering) or is_progress
        if over:
            some = over[:PARTITIONS_PER_WAVE]
            left = {tp: Move(self._context.topics[tp.topic].topic_id, moving[tp], moving[tp].done) for tp in some}
            is_progress = await self._arrive(left) or is_progress
        if is_progress and max(len(fresh), len(ready), len(over)) > PARTITIONS_PER_WAVE:
            self._agenda.put(self.go_on)
        if moving and not self._will_look:
            self._will_look = True
            self._agenda.later(self._look_again, LOOK_INTERVAL_S)

    async def _look_again(self) -> None:
        self._will_look = False
        self._stuck.clear()
        await self.go_on()

    def _ask_who_answers(self, ready: Sequence[TopicPartition]) -> None:
        if self._is_asking:
            return  # the event comes again, and asks about those that are left
        self._is_asking = True
        asked = sorted(would_lead(self._context, ready))

        async def ask() -> None:
            try:
                silent = await silent_brokers(self._tools.outbox, asked)
            finally:
                self._is_asking = False
            self._answering = frozenset(asked) - {*silent}
            self._agenda.put(self.go_on)

        self._agenda.start(ask)

    async def _finish_where_led(
        self, ready: Sequence[TopicPartition], minimums: Mapping[str, int], answering: frozenset[int]
    ) -> bool:
        able = [tp for tp in ready if would_lead(self._context, [tp]) & answering]
        if len(able) < len(ready) and not self._will_ask_again:
            self._will_ask_again = True  # who is silent answers again, or its session ends
            self._agenda.later(self._ask_again, RETRY_SECONDS)
        return await self._finish(able[:PARTITIONS_PER_WAVE], minimums, answering)

    async def _ask_again(self) -> None:
        self._will_ask_again = False
        await self.go_on()

    async def _minimums(self, moving: Moving) -> dict[str, int]:
        """`min.insync.replicas` of the topics where something depends on it."""
        states = self._context.states
        names = {
            tp.topic: None for tp, replicas in moving.items() if tp in states and needs_minimum(replicas, states[tp])
        }
        configs = await self._settlement.topic_configs(list(names)) if names else {}
        return {name: config.min_insync_replicas for name, config in configs.items()}

    async def _finish(
        self, partitions: Sequence[TopicPartition], minimums: Mapping[str, int], answering: Collection[int]
    ) -> bool:
        """Steps 7 to 11 of those that may go. A leader may change the ISR at any time, so each step looks again.
        Returns whether any of them is done."""
        context, settlement = self._context, self._settlement
        planned: dict[TopicPartition, int] = {}

        def still(some: Sequence[TopicPartition]) -> list[TopicPartition]:
            moving = ((tp, context.replicas_of(tp), context.states.get(tp)) for tp in some)
            return [
                tp
                for tp, replicas, state in moving
                if replicas is not None and state is not None and may_go(replicas, state, minimums.get(tp.topic))
            ]

        def plan_departures_once_more(some: Sequence[TopicPartition]) -> Sequence[PartitionChange]:
            for tp in some:
                planned.pop(tp, None)
            changes = plan_departures(context, answering, still(some))
            planned.update({change.topic_partition: change.after.leader_epoch for change in changes})
            return changes

        # 7
        await settlement.settle(partitions, lambda some: plan_target_leaders(context, answering, still(some)))
        # 8
        await settlement.settle(partitions, plan_departures_once_more)
        left: dict[TopicPartition, Move] = {}
        for tp, leader_epoch in planned.items():
            topic, replicas, state = context.topics.get(tp.topic), context.replicas_of(tp), context.states.get(tp)
            if topic is None or replicas is None or state is None or state.leader_epoch != leader_epoch:
                continue  # it was not written, for a reason that was logged
            if has_left(replicas, state):
                left[tp] = Move(topic.topic_id, replicas, replicas.done)
        return await self._arrive(left)

    async def _arrive_once_more(self) -> None:
        """What was under way when the connection broke, and is as it was then."""
        arriving, self._arriving, context = self._arriving, {}, self._context
        left = {
            tp: move
            for tp, (move, state) in arriving.items()
            if context.states.get(tp) == state and context.replicas_of(tp) == move.before
        }
        if left:
            await self._arrive(left)

    async def _arrive(self, left: Mapping[TopicPartition, Move]) -> bool:
        """Steps 10 to 11 of those that nobody has to leave any more. Returns whether any of them is done."""
        # 10, then 6
        self._arriving = {tp: (move, self._context.states[tp]) for tp, move in left.items()}
        written = await self.store.write(left)
        self._arriving = {}
        self._context.set_replicas({**written.stands, **written.found})
        self._stuck.update(dict.fromkeys(tp for tp in left if tp not in written.stands and tp not in written.found))
        done = {tp: left[tp] for tp in written.stands}
        self._tell_done(done)
        return bool(done)

    def _tell_done(self, done: Mapping[TopicPartition, Move]) -> None:
        """8, 9 and 11: who stays hears it, who goes deletes its log, but while nobody leads, and everybody has the
        metadata. What was settled before and not said is said with it."""
        self.lines.done(done)
        context = self._context
        builder = OrderBuilder(context)
        for tp, move in done.items():
            for broker_id in move.before.removing:
                if broker_id not in move.after.assigned:
                    builder.stop(broker_id, [tp], delete=context.has_live_leader(tp))
        self._settlement.announce(dict.fromkeys(done), builder)
        if done:
            self.on_done()


def _nobody_cares() -> None: ...
