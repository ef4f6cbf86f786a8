"""The planner with what it needs to know beside the context: the configuration of topics, read when it matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.controller.planning.planner import PartitionChange, Plan, plan_doubtful_eligibles, plan_partitions
from strandline.controller.term.waits import LATER_EPOCHS
from strandline.protocol.types import TopicPartition
from strandline.runtime.config.topic import TopicConfig, read_topic_config

if TYPE_CHECKING:
    from strandline.controller.term.term import Term


class Planning:
    """Of one term."""

    def __init__(self, term: Term) -> None:
        self._term = term

    async def plan(self, partitions: Sequence[TopicPartition]) -> Sequence[PartitionChange]:
        """What to write for these partitions. What only a recovery can decide is begun beside that, and who is missed
        is named."""
        plan, lossy_topics = await self.plan_for(partitions)
        self._term.recovery.begin(plan.recover, lossy_topics)
        self._term.recovery.waits.note(plan.waits)
        return plan.changes

    async def plan_for(self, partitions: Sequence[TopicPartition]) -> tuple[Plan, set[str]]:
        """The plan, and the topics in it that allow an unclean election; reads their configuration where that helps."""
        accepted = self._term.recovery.accepted
        plan: Plan = plan_partitions(self._term.context, partitions, (), accepted)
        lossy_topics: set[str] = set()
        if plan.unclean_candidates:
            lossy_topics = await self._topics_that_allow_unclean(list(plan.unclean_candidates))
            if lossy_topics:
                plan = plan_partitions(self._term.context, partitions, lossy_topics, accepted)
        return plan, lossy_topics

    async def _topics_that_allow_unclean(self, names: Sequence[str]) -> set[str]:
        configs = await self._topic_configs(names)
        return {name for name, config in configs.items() if config.unclean_leader_election_enable}

    async def _topic_configs(self, names: Sequence[str]) -> dict[str, TopicConfig]:
        """What is unknown or unusable in them is read as what loses nothing."""
        standing = await self._term.store.topic_configs(names)
        return {name: read_topic_config(self._term.config, overrides).config for name, overrides in standing.items()}

    def without_doubtful_states(self, changes: Sequence[PartitionChange]) -> list[PartitionChange]:
        """Where a replica's log has a later leader epoch than the state, that one is an old copy or was made anew: whom
        it names in sync proves nothing, and each further epoch would bring it nearer to where that log is taken for a
        copy of the leader's, and cut. It is left as it is, for an operator; who leads goes on. Where the operator has
        accepted the loss, that is decided."""
        term = self._term
        doubtful = {c.topic_partition: term.context.replicas_with_later_epochs(c.topic_partition) for c in changes}
        accepted = term.recovery.accepted
        doubtful = {tp: replicas for tp, replicas in doubtful.items() if replicas and tp not in accepted}
        offline = {tp: replicas for tp, replicas in doubtful.items() if not term.context.has_live_leader(tp)}
        term.recovery.waits.note(offline, LATER_EPOCHS)
        return [change for change in changes if change.topic_partition not in doubtful]

    async def without_needless_eligibles(self, changes: Sequence[PartitionChange]) -> list[PartitionChange]:
        """Where the ISR keeps the minimum nobody else need be remembered: spare the leader the write that says so. A
        minimum that is not known, or not up to date, costs that write and nothing else."""
        concerned = dict.fromkeys(c.topic_partition.topic for c in changes if c.after.elr and c.after.has_leader)
        if not concerned:
            return list(changes)
        configs = await self._topic_configs(list(concerned))

        def is_needless(change: PartitionChange) -> bool:
            if not (change.after.elr and change.after.has_leader):
                return False
            config = configs[change.topic_partition.topic]
            replicas = len(self._term.context.replicas(change.topic_partition))
            return len(change.after.isr) >= min(config.min_insync_replicas, replicas)

        return [
            replace(change, after=replace(change.after, elr=())) if is_needless(change) else change
            for change in changes
        ]

    async def drop_doubtful_eligibles(self) -> dict[TopicPartition, None]:
        """After a term of a real Kafka's controller: it leaves the list in what it writes otherwise."""
        term = self._term

        async def planner(partitions: Sequence[TopicPartition]) -> Sequence[PartitionChange]:
            return plan_doubtful_eligibles(term.context, partitions)

        changed = await term.settle(list(term.context.partitions()), planner)
        await term.store.note_our_epoch(term.context.epoch)
        return changed
