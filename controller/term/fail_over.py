"""Fail-over: what a broker does that was elected controller, in the steps of the reference text (000, "Controller
Failover").

1. Read and raise the controller epoch: done, in the transaction that won the election (`controller_election`).
2. Watch /admin/reassign_partitions, and 3. /admin/preferred_replica_election: with what step 12 looks at.
9. Running as controller, 11. automatic rebalance of preferred leaders (`partitions/rebalance.py`), 12. go on with the
   topics that are being deleted and with what else was asked for meanwhile, as preferred leaders in that znode: `Term`,
   once the others are done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from strandline.controller.agenda import Event
from strandline.controller.controller_context import LiveBroker
from strandline.controller.orders.broker_orders import OrderBuilder
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.planning.planner import plan_doubtful_eligibles
from strandline.controller.tools import Tools
from strandline.controller.topics.topic_store import TopicStore
from strandline.protocol.znodes import DELETE_TOPICS_PATH, TOPICS_PATH


async def fail_over(
    tools: Tools,
    topic_store: TopicStore,
    settlement: Settlement,
    *,
    look_at_topics: Event,
    look_at_deletions: Event,
    look_at_brokers: Event,
    live: Callable[[Mapping[int, LiveBroker]], dict[int, LiveBroker]],
    follows_ours: bool,
) -> None:
    """`look_at_…`: the events that the watches put. live: those of the registered brokers whose processes are not gone
    (`Suspects.live`).

    follows_ours: no real Kafka's controller was in charge since the states were judged last. It leaves eligible
    replicas in what it writes otherwise, so after its terms nobody counts as one."""
    context, store, watch = tools.context, tools.store, tools.agenda.watch
    # 4. Watch /brokers/topics.
    topic_names = await store.children(TOPICS_PATH, watch(look_at_topics))
    # 5. Watch /admin/delete_topics, if topics may be deleted.
    doomed = []
    if tools.config.delete_topic_enable:
        doomed = await store.children(DELETE_TOPICS_PATH, watch(look_at_deletions))
    # 6. Watch /brokers/ids.
    brokers = live(await store.brokers(watch(look_at_brokers)))
    # 7. The context: topics, live brokers, leader and ISR of every partition.
    context.topics = await topic_store.topics(topic_names)
    context.states = await store.states(list(context.partitions()))
    context.brokers = brokers
    context.deleting = {name: None for name in doomed if name in context.topics}
    for broker in brokers.values():
        tools.outbox.open(broker)
    if not follows_ours:
        await settlement.settle(list(context.partitions()), partial(plan_doubtful_eligibles, context))
        await store.note_our_epoch(context.epoch)
    # 8. Start the state machines: replicas are online where their broker lives; partitions without a live leader, and
    #    those that never had one, get one.
    await settlement.settle(list(context.partitions()))
    # 10. Send every partition's leadership to all live brokers. A sender's first word is the metadata: brokers know
    #     where leaders live before they are told to follow them.
    builder = OrderBuilder(context)
    builder.live_brokers()
    builder.metadata(context.partitions())
    builder.leadership(context.partitions())
    for broker_id in brokers:
        builder.all_topics(broker_id, topic_store.unreadable)
    tools.outbox.send(builder)
