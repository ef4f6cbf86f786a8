"""Unclean elections: an operator ends the wait for replicas that hold what was acknowledged and do not come back.

1 what each replica has is asked, as a recovery does; with `validate_only` that is the answer
2 where still nobody leads, the loss is accepted, once, and the recovery that follows elects the longest log of those
  who live. Where all who live refuse their logs, those begin anew whose log was put aside or may lie in a directory
  that could not be read: nothing of it is touched
3 the answer waits until somebody leads; one who has everything may have come back meanwhile, and nothing is lost
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from strandline.controller.controller_context import ControllerContext, LiveBroker
from strandline.controller.orders.broker_orders import OrderBuilder
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.planning.leader_elections import LogEnds, recovery_election
from strandline.controller.planning.planner import plan_losses
from strandline.controller.tools import Tools
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ElectLeadersPartitionResult, ReplicaStanding
from strandline.protocol.topic_name import shortened
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_OFFSET, TopicPartition

Results = dict[TopicPartition, ElectLeadersPartitionResult]


class AcceptedLosses:
    """One term's. `ask`: where logs end (`Recovery.ask`)."""

    def __init__(
        self,
        tools: Tools,
        settlement: Settlement,
        ask: Callable[[Mapping[TopicPartition, tuple[int, ...]]], Awaitable[LogEnds]],
    ) -> None:
        self._context, self._outbox, self._agenda = tools.context, tools.outbox, tools.agenda
        self._settlement = settlement
        self._ask = ask

    async def elect(self, asked: Sequence[TopicPartition], timeout_ms: int, *, validate_only: bool) -> Results:
        """Step by step as the module says. validate_only: what would be done. NotController."""
        context = self._context
        results: Results = {}
        live: dict[TopicPartition, tuple[int, ...]] = {}
        for tp in asked:
            live[tp] = context.able_replicas(tp)
            if refusal := _refusal(context, tp, live[tp], validate_only=validate_only):
                results[tp] = refusal
        # 1
        wanted = {tp: live[tp] for tp in asked if tp not in results}
        log_ends = await self._ask(wanted)
        standings = {tp: _standings(context, tp, log_ends) for tp in wanted}
        anew: dict[TopicPartition, None] = {}
        if not validate_only:
            # 2
            anew = await self._agenda.in_turn(partial(self._accept, list(wanted)))
            # 3
            await self._agenda.within(timeout_ms, lambda: all(map(context.has_live_leader, wanted)))
        for tp in wanted:
            if not validate_only and tp not in anew and (returned := _whole_leader(context, tp, standings[tp])):
                results[tp] = returned
                continue
            leader, failure = _outcome(context, tp, log_ends, validate_only=validate_only)
            code = ErrorCode.NONE if failure is None else ErrorCode.REQUEST_TIMED_OUT
            results[tp] = ElectLeadersPartitionResult(tp.partition, code, failure, leader, standings[tp])
        return results

    async def _accept(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, None]:
        """Returns those of which a replica may begin with an empty log."""
        context = self._context
        context.accepted_losses.update((tp, None) for tp in wanted if tp in context.states)
        await self._settlement.settle_and_announce(wanted)
        unled = [tp for tp in wanted if tp in context.states and not context.has_live_leader(tp)]
        anew = {tp: None for tp in unled if not context.able_replicas(tp)}
        for tp in [tp for tp in anew if any(replica in context.suspects for replica in context.replicas(tp))]:
            del anew[tp]  # it may live, and have everything: as long as its session does, it is waited for
        await self._let_begin_anew(list(anew))
        return anew

    async def _let_begin_anew(self, partitions: Sequence[TopicPartition]) -> None:
        """All who live refuse these logs. Nobody rests on them any more, which is written down before they may begin
        with empty ones."""
        context = self._context

        def is_refusing(broker: LiveBroker, tp: TopicPartition) -> bool:
            return not context.is_online(broker.broker_id, tp)

        await self._settlement.settle_and_announce(partitions, partial(plan_losses, context, is_refusing))
        builder = OrderBuilder(context)
        builder.leadership(partitions, anew=True)
        self._outbox.send(builder)


def _refusal(
    context: ControllerContext, tp: TopicPartition, live: tuple[int, ...], *, validate_only: bool
) -> ElectLeadersPartitionResult | None:
    if tp not in context.states or tp.topic in context.deleting:
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {shortened(tp.topic)}:{tp.partition}"
    elif context.has_live_leader(tp):
        return _not_needed(tp, context.states[tp].leader)
    elif not live and (validate_only or not context.refused_replicas_of(tp)):
        code, text = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {tp.topic}:{tp.partition} lives"
        if refused := _refused(context, tp):
            text += f" and is served; with the loss accepted, one that can be begins with an empty log{refused}"
    else:
        return None
    return ElectLeadersPartitionResult(tp.partition, code, text)


def _not_needed(tp: TopicPartition, leader: int) -> ElectLeadersPartitionResult:
    text = f"broker {leader} leads {tp.topic}:{tp.partition}: there is nothing to recover"
    return ElectLeadersPartitionResult(tp.partition, ErrorCode.ELECTION_NOT_NEEDED, text, leader)


def _whole_leader(
    context: ControllerContext, tp: TopicPartition, standings: Sequence[ReplicaStanding]
) -> ElectLeadersPartitionResult | None:
    """The answer where one leads by now who had everything."""
    if tp not in context.states or not context.has_live_leader(tp):
        return None
    leader = context.states[tp].leader
    whole = {standing.broker_id for standing in standings if standing.has_everything}
    return _not_needed(tp, leader) if leader in whole else None


def _standings(context: ControllerContext, tp: TopicPartition, log_ends: LogEnds) -> list[ReplicaStanding]:
    ends = log_ends[tp]
    state = context.states.get(tp)
    if context.replicas_with_later_epochs(tp):
        state = None  # of whom it says that they have everything proves nothing
    return [
        ReplicaStanding(
            replica,
            context.is_online(replica, tp),
            state is not None and replica in state.whole,
            ends[replica].end_offset if replica in ends else NO_OFFSET,
            ends[replica].epoch if replica in ends else NO_EPOCH,
        )
        for replica in context.replicas(tp)
    ]


def _outcome(
    context: ControllerContext, tp: TopicPartition, log_ends: LogEnds, *, validate_only: bool
) -> tuple[int, str | None]:
    """(who leads, or would, what is wrong with that)."""
    state = context.states.get(tp)
    if validate_only:
        last = state.last_known_leader if state is not None else NO_BROKER
        leader = recovery_election(context.replicas(tp), log_ends[tp], last)
        return (NO_BROKER if leader is None else leader), None
    if state is not None and context.has_live_leader(tp):
        return state.leader, None
    text = (
        f"nobody leads {tp.topic}:{tp.partition} yet; this controller goes on with the loss accepted: say it again if "
        "another broker becomes controller before somebody leads"
    )
    return NO_BROKER, text + _refused(context, tp)


def _refused(context: ControllerContext, tp: TopicPartition) -> str:
    return "".join(f"; broker {each.broker_id}: {each.why}" for each in context.refused_replicas_of(tp))
