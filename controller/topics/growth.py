"""Topics that get more partitions: CreatePartitions, and what another tool writes into a topic's znode.

1 in its turn among the events: how many, with which replicas; validate_only ends here
2 each topic's znode is written, on the condition that it is as it was read
3 new partitions get their first leaders, as those do that another tool added
4 the answer waits until all live brokers know who leads

What is new in a znode is taken in, whoever wrote it. What it has no more, or has elsewhere, is not: a partition never
goes, and to move one is a reassignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import trio

from strandline.controller.controller_context import Topic
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.tools import Tools
from strandline.controller.topics.creation_checks import check_topics_count
from strandline.controller.topics.first_leaders import FirstLeaders, Standing
from strandline.controller.topics.growth_checks import GrowthPlanner, PlannedGrowth
from strandline.controller.topics.topic_store import TopicStore
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from strandline.protocol.znodes import TopicZnode
from strandline.runtime.coordination import Watch, WatchEvent

TOPICS_AT_ONCE = 50
"""Looked at in one event, one roundtrip to ZooKeeper each; then other events take their turn."""

Plans = dict[str, PlannedGrowth | BrokerError]


class Growth:
    """One term's."""

    def __init__(self, tools: Tools, topic_store: TopicStore, settlement: Settlement) -> None:
        self._tools = tools
        self._context, self._agenda = tools.context, tools.agenda
        self._topic_store = topic_store
        self._settlement = settlement
        self._leaders = FirstLeaders(tools)
        self._watches: dict[str, Watch] = {}
        """Of the topics whose znodes were looked at."""
        self._due: dict[str, None] = {}
        """Those of them that may have changed since."""

    # --- what stands in znodes -----------------------------------------------------------------------------------

    async def look(self) -> None:
        """At topics that are new, and at those whose znode changed."""
        topics = self._context.topics
        # A watch that outlived its topic makes due what is not watched here any more.
        for gone in [name for name in (*self._watches, *self._due) if name not in topics]:
            self._watches.pop(gone, None)
            self._due.pop(gone, None)
        for name in topics:
            if name not in self._watches:
                self._watches[name] = partial(self._changed, name)
                self._due[name] = None
        some = list(islice(self._due, TOPICS_AT_ONCE))
        for name in some:
            del self._due[name]  # the watch puts it back
        try:
            for name in some:
                await self._tools.store.watch(TopicZnode.path(name), self._watches[name])
            await self.take_in(some)
        except BaseException:
            self._due.update(dict.fromkeys(some))
            raise
        if self._due:
            self._agenda.put(self.look)

    def _changed(self, name: str, _: WatchEvent) -> None:
        self._due[name] = None
        self._agenda.put(self.look)

    async def take_in(self, names: Sequence[str]) -> dict[str, Topic]:
        """New partitions of these topics get their first leader. Returns the topics as their znodes are, but for those
        that are gone, or made anew."""
        context = self._context
        found = await self._topic_store.topics([name for name in names if name in context.topics])
        found = {name: topic for name, topic in found.items() if topic.topic_id == context.topics[name].topic_id}
        grown = [name for name in found if name not in context.deleting]
        for name in grown:
            topic = context.topics[name]
            added = {p: replicas for p, replicas in found[name].assignment.items() if p not in topic.assignment}
            context.topics[name] = replace(topic, assignment=dict(sorted((topic.assignment | added).items())))
            if added:
                self._tools.log.info("partitions found", topic=name, partitions=len(added), first=min(added))
        stateless = [tp for tp in context.partitions(grown) if tp not in context.states]
        await self._settlement.read_new(stateless)
        await self._settlement.settle_and_announce(stateless)
        return found

    # --- CreatePartitions ----------------------------------------------------------------------------------------

    async def answer(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """Add partitions (or, with validate_only, only check); done when each has a leader and all live brokers know.
        NotController; BrokerError for more topics than one request may be about."""
        check_topics_count("enlarges", len(request.topics))
        begun: dict[str, PlannedGrowth] = {}
        plans, standing = await self._agenda.in_turn(partial(self._begin, request, begun))
        # 4
        partitions = [tp for plan in _planned(plans) for tp in plan.partitions]
        done = request.validate_only or await self._leaders.are_led(partitions, standing, request.timeout_ms)
        return CreatePartitionsResponse([self._result(topic, plans[topic.name], done) for topic in request.topics])

    async def _begin(self, request: CreatePartitionsRequest, begun: dict[str, PlannedGrowth]) -> tuple[Plans, Standing]:
        # 1
        names = list(dict.fromkeys(topic.name for topic in request.topics))
        planner = GrowthPlanner(self._context, request.topics, await self.take_in(names), begun)
        for _ in planner.steps():
            await trio.lowlevel.checkpoint()  # events take their turns: the context stays as it is
        plans = planner.plans
        if not request.validate_only:
            # 2
            for plan in _planned(plans):
                name = plan.topic.name
                if begun.get(name) is plan:
                    continue  # it stands there
                begun[name] = plan
                if not await self._topic_store.grow(plan.topic, plan.added):
                    text = f"topic {name} was changed by somebody else meanwhile: repeat"
                    plans[name] = BrokerError(ErrorCode.REQUEST_TIMED_OUT, text)
            # 3
            await self.take_in([plan.topic.name for plan in _planned(plans)])
        return plans, self._leaders.standing([tp for plan in _planned(plans) for tp in plan.partitions])

    def _result(
        self, asked: CreatePartitionsTopic, plan: PlannedGrowth | BrokerError, done: bool
    ) -> CreatePartitionsTopicResult:
        if isinstance(plan, BrokerError):
            return CreatePartitionsTopicResult(asked.name, plan.code, str(plan.args[0]))
        if done:
            return CreatePartitionsTopicResult(asked.name, ErrorCode.NONE)
        text = f"topic {asked.name} gets its partitions, but {self._leaders.why_not_led(plan.partitions)}"
        return CreatePartitionsTopicResult(asked.name, ErrorCode.REQUEST_TIMED_OUT, text)


def _planned(plans: Plans) -> list[PlannedGrowth]:
    return [plan for plan in plans.values() if isinstance(plan, PlannedGrowth)]
