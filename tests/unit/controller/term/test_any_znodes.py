"""Whatever stands in ZooKeeper: what contradicts itself is reported and set aside, and the rest is served.

Znodes are drawn as JSON whose fields are right or a little wrong. First through the planner alone, in many examples;
then through a whole controller, with brokers that come, go and stop, in a few.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from strandline.controller.controller_context import ControllerContext, LeaderAndIsr, LiveBroker, PartitionChange, Topic
from strandline.controller.orders.broker_orders import OrderBuilder, requests_of
from strandline.controller.planning.leader_elections import LogEnd
from strandline.controller.planning.planner import (
    plan_controlled_shutdown,
    plan_doubtful_eligibles,
    plan_partitions,
    plan_recovery,
    still_led,
)
from strandline.protocol import znodes
from strandline.protocol.messages import ControlledShutdownRequest, LeaderAndIsrRequest, Request
from strandline.protocol.native.frame import HEADER_BYTES, PREFIX_BYTES, decode_body
from strandline.protocol.reasons import reason_of
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.runtime.coordination import NodeExists
from strandline.runtime.network import Address
from support.raw_client import request_frame

LIMIT = 2**31 - 1
BROKERS = (1, 2, 3)
SOUND = "sound"

brokers_or_not = st.sampled_from([*BROKERS, *BROKERS, *BROKERS, 0, 4, -1, -2, LIMIT])
members = st.lists(st.sampled_from([*BROKERS, 4]), min_size=1, max_size=4, unique=True) | st.lists(
    brokers_or_not, max_size=4
)
junk = st.sampled_from([b"", b"{", b"null", b"[]", b"\xff", b'{"version":1}', b"7"])
partition_names = st.sampled_from(["0", "0", "1", "2", "7"])


@st.composite
def topic_data(draw: st.DrawFn) -> bytes:
    """What may stand at /brokers/topics/<t>."""
    if draw(st.integers(0, 7)) == 0:
        return draw(junk)
    names = draw(st.lists(partition_names, max_size=3, unique=True)) + draw(st.sampled_from([[]] * 9 + [["x"], ["01"]]))
    topic_id = draw(st.none() | st.binary(min_size=16, max_size=16).map(znodes.encode_uuid))
    fields = {"version": 3, "partitions": {name: draw(members) for name in names}, "topic_id": topic_id}
    return json.dumps(fields).encode()


@st.composite
def state_data(draw: st.DrawFn) -> bytes:
    """What may stand at …/partitions/<p>/state."""
    if draw(st.integers(0, 9)) == 0:
        return draw(junk)
    isr = draw(members)
    fields: dict[str, Any] = {
        "controller_epoch": draw(st.sampled_from([0, 1, 1, 1, 9, -1, LIMIT])),
        "leader": draw(st.sampled_from([*isr[:1] * 3, NO_BROKER, *isr]) | brokers_or_not),
        "version": draw(st.sampled_from([1] * 9 + [0, 2])),
        "leader_epoch": draw(st.sampled_from([0, 5, 5, 5, LIMIT - 2, LIMIT - 1, LIMIT, -1])),
        "isr": isr,
    }
    for extra in ("elr", "lossy"):
        if draw(st.booleans()):
            fields[extra] = draw(st.lists(st.sampled_from(BROKERS), max_size=2, unique=True) | members)
    if draw(st.booleans()):
        fields["last_known_leader"] = draw(brokers_or_not)
    return json.dumps(fields).encode()


# --- the planner alone -----------------------------------------------------------------------------------------------


@st.composite
def contexts(draw: st.DrawFn) -> ControllerContext:
    """A picture of what was decoded; what could not be is left out, as the store does."""
    context = ControllerContext(epoch=9, epoch_zk_version=8)
    for broker_id in draw(st.sets(st.sampled_from([*BROKERS, 4]))):
        lossy = draw(st.booleans())
        epoch = draw(st.integers(1, 9))
        context.brokers[broker_id] = LiveBroker(broker_id, epoch, (), Address("broker", 9000), lossy_start=lossy)
    leaving = draw(st.sets(st.sampled_from(BROKERS)))
    context.shutting_down = {b: context.brokers[b].epoch for b in leaving & context.brokers.keys()}
    for name in ("t", "u"):
        try:
            topic = znodes.TopicZnode.decode("/t", draw(topic_data()))
        except znodes.InvalidZnode:
            continue
        context.topics[name] = Topic(name, b"i" * 16, {p: tuple(r) for p, r in topic.partitions.items()})
    for tp in context.partitions():
        version, mzxid = draw(st.integers(0, 9)), draw(st.integers(0, 9))
        try:
            state = znodes.PartitionStateZnode.decode("", draw(state_data()))
            context.states[tp] = LeaderAndIsr.of(state, version, mzxid)
        except znodes.InvalidZnode:
            continue
    replicas = [(replica, tp) for tp in context.partitions() for replica in context.replicas(tp)]
    for replica in draw(st.lists(st.sampled_from(replicas), max_size=2)) if replicas else ():
        context.note_refusal(replica, reason_of(draw(st.text())))
    return context


def check_that_it_travels(request: Request) -> None:
    """A broker can read it."""
    assert decode_body(type(request), request_frame(request)[PREFIX_BYTES + HEADER_BYTES :]) == request


def apply(context: ControllerContext, changes: Sequence[PartitionChange]) -> None:
    """Each change can be read again and is what was meant; then it stands."""
    for change in changes:
        if change.after.leader_epoch > znodes.PartitionStateZnode.LAST_EPOCH:
            continue  # not written: nobody could read it
        tp, after = change.topic_partition, change.after
        state = znodes.PartitionStateZnode.decode("", after.to_znode().encode())
        assert LeaderAndIsr.of(state, after.zk_version, after.mzxid) == after
        assert after.leader == NO_BROKER or after.leader in context.replicas(tp)
        context.states[tp] = after


@given(contexts(), st.sampled_from(BROKERS), st.data())
def test_no_plan_fails_and_all_that_is_planned_can_be_read_again(
    context: ControllerContext, broker_id: int, data: st.DataObject
) -> None:
    partitions = list(context.partitions())
    event(f"{len(context.states)} readable states")
    for _ in range(3):
        apply(context, plan_partitions(context, partitions).changes)
        apply(context, plan_partitions(context, partitions, {"t"}).changes)
        for tp in partitions:
            answers = data.draw(st.sets(st.sampled_from([*BROKERS, 4])))
            ends = {b: LogEnd(data.draw(st.integers(-1, 3)), data.draw(st.integers(0, 3))) for b in sorted(answers)}
            change = plan_recovery(context, tp, ends)
            apply(context, [] if change is None else [change])
        if broker_id in context.brokers:
            context.shutting_down[broker_id] = context.brokers[broker_id].epoch
        silent = data.draw(st.sets(st.sampled_from(BROKERS)))
        apply(context, plan_controlled_shutdown(context, broker_id, silent, partitions))
        still_led(context, broker_id)
        apply(context, plan_doubtful_eligibles(context, partitions))
        context.offline_partitions()
        builder = OrderBuilder(context)
        builder.live_brokers()
        builder.metadata(partitions)
        builder.leadership(partitions)
        builder.stop(broker_id, partitions)
        for orders in builder.by_broker.values():
            for request in requests_of(
                orders,
                controller_id=1,
                controller_epoch=9,
                broker_epoch=1,
                cluster_wide=builder.cluster_wide,
                metadata_first=True,
                now_us=1,
            ):
                check_that_it_travels(request)
        context.remove_broker(broker_id)


# --- a whole controller ----------------------------------------------------------------------------------------------


@st.composite
def cluster_data(draw: st.DrawFn) -> dict[str, bytes]:
    """Path → what stands there before the first controller comes."""
    found: dict[str, bytes] = {}
    for name in ("t", "u", "a b", "x" * 250):
        found[znodes.TopicZnode.path(name)] = draw(topic_data())
        for partition in draw(st.sets(st.integers(0, 2))):
            found[znodes.PartitionStateZnode.path(name, partition)] = draw(state_data())
    for name in draw(st.sets(st.sampled_from(["7", "007", "x", "99999999999999", "\u0663", "9" * 5000]), max_size=2)):
        registration = znodes.BrokerIdZnode(endpoints=(znodes.BrokerEndpoint("PLAINTEXT", "nobody", 1),)).encode()
        is_a_broker = name == "7"  # one that does not answer is another matter
        found[f"{znodes.BROKER_IDS_PATH}/{name}"] = draw(junk if is_a_broker else st.just(registration) | junk)
    note = json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0}, {"topic": "?", "partition": -5}]})
    found[f"{znodes.ISR_CHANGE_NOTIFICATION_PATH}/isr_change_7"] = draw(junk | st.just(note.encode()))
    found[f"{znodes.LOG_DIR_EVENT_NOTIFICATION_PATH}/log_dir_event_7"] = draw(
        junk | st.just(b'{"version":1,"broker":-7,"event":1}')
    )
    return found


async def put(cluster: Any, found: dict[str, bytes]) -> None:
    for path, data in found.items():
        try:
            await cluster.admin.create(path, data, parents=True)
        except NodeExists:
            await cluster.admin.set(path, data, -1)


async def through_everything(cluster: Any, found: dict[str, bytes]) -> None:
    await cluster.start(*BROKERS)
    await put(cluster, found)
    for broker in cluster.brokers.values():
        broker.script = check_that_it_travels
    terms = []
    first = await cluster.controller_on(1)
    terms.append(first.term)
    await cluster.create(first, SOUND, [[2, 3, 1]])
    cluster.kill(2)
    await cluster.come_to_rest()
    assert (await cluster.state(SOUND)).leader == 3
    await first.ask(ControlledShutdownRequest(3, cluster.brokers[3].epoch))
    assert (await cluster.state(SOUND)).leader == 1
    await cluster.brokers[2].start(lossy=True)
    await cluster.come_to_rest()
    await put(cluster, {path: data for path, data in found.items() if path.endswith("/state")})
    note = znodes.IsrChangeNotificationZnode([TopicPartition(t, p) for t in ("t", "u") for p in range(3)])
    await cluster.admin.create(note.SEQUENCE_PATH, note.encode(), sequence=True)
    await cluster.leader_writes_isr(SOUND, 0, [1, 2])
    await trio.sleep(40)  # what is unreadable is looked at again
    assert terms[0].over is None
    cluster.kill(1)
    second = await cluster.controller_on(2)
    terms.append(second.term)
    await cluster.come_to_rest()
    assert (await cluster.state(SOUND)).leader == 2
    assert terms[1].over is None and [term.failed_events for term in terms] == [0, 0], cluster.logged("event failed")
    assert {tp.topic for broker in cluster.brokers.values() for tp in broker.logs} <= {"t", "u", SOUND}
    for path, data in found.items():
        if path.endswith("/state"):
            await assert_sound_or_untouched(cluster, path, data)


async def assert_sound_or_untouched(cluster: Any, path: str, put_there: bytes) -> None:
    stands = (await cluster.admin.get(path)).data
    try:
        znodes.PartitionStateZnode.decode(path, stands)
    except znodes.InvalidZnode:
        assert stands == put_there


@settings(max_examples=20, phases=[Phase.reuse, Phase.generate])  # to shrink whole clusters takes minutes
@given(found=cluster_data())
def test_a_controller_serves_what_is_sound_beside_anything_else(new_cluster: Any, found: dict[str, bytes]) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            await through_everything(cluster, found)

    trio.run(run, clock=MockClock(autojump_threshold=0))


# --- examples --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"leader": 1, "isr": [2, 3]}, "leader 1 is not in the ISR"),
        ({"leader": -2, "isr": [2, 3]}, "leader -2 is not in the ISR"),
        ({"leader": 2, "isr": [2, 3, 2]}, "each once"),
        ({"leader": -1, "isr": []}, "the ISR is empty"),
        ({"leader": 2, "isr": [2, -1]}, "ids of brokers"),
        ({"leader": 2, "isr": [2, 3], "leader_epoch": -1}, "leader epoch -1"),
        ({"leader": 2, "isr": [2, 3], "leader_epoch": LIMIT}, "leader epoch 2147483647"),
    ],
)
async def test_a_state_that_contradicts_itself_is_reported_and_the_others_are_served(
    state: dict[str, Any], why: str, autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(*BROKERS)
    first = await cluster.controller_on(1)
    await cluster.create(first, "t", [[2, 3]])
    await cluster.create(first, SOUND, [[2, 3]])
    broken = json.dumps({"controller_epoch": 1, "version": 1, "leader_epoch": 3, **state}).encode()
    await cluster.admin.set(znodes.PartitionStateZnode.path("t", 0), broken, 0)
    cluster.kill(1)
    second = await cluster.controller_on(3)
    cluster.kill(2)
    await cluster.until(lambda: cluster.brokers[3].roles[TopicPartition(SOUND, 0)].leader == 3)
    [line, *_] = cluster.logged("partition left out: its state cannot be read")
    assert line["partition"] == "t-0" and why in line["error"]
    assert (await cluster.admin.get(znodes.PartitionStateZnode.path("t", 0))).data == broken
    assert second.term.failed_events == 0


async def test_a_notification_that_cannot_be_read_may_mean_any_partition_and_any_broker(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """It goes like the others, so what it said must not be missed."""
    await cluster.start(*BROKERS)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    await cluster.leader_writes_isr("t", 0, [2], notify=False)
    await cluster.admin.create(znodes.IsrChangeNotificationZnode.SEQUENCE_PATH, b"{", sequence=True)
    await cluster.until(lambda: cluster.brokers[1].metadata[TopicPartition("t", 0)].isr == [2])
    told = len(cluster.brokers[2].told(LeaderAndIsrRequest))
    await cluster.admin.create(znodes.LogDirEventNotificationZnode.SEQUENCE_PATH, b"{", sequence=True)
    await cluster.until(lambda: len(cluster.brokers[2].told(LeaderAndIsrRequest)) > told)
    await cluster.come_to_rest()
    for folder in (znodes.ISR_CHANGE_NOTIFICATION_PATH, znodes.LOG_DIR_EVENT_NOTIFICATION_PATH):
        assert await cluster.admin.children(folder) == []


@pytest.mark.parametrize(
    ("leader", "isr", "expected"),
    [
        # A reassignment of Kafka's that was interrupted: who is no replica any more leads nothing and counts nowhere.
        (3, [3, 2], (2, [2])),
        (2, [2, 3], (2, [2])),
        (-1, [3, 2], (2, [2])),
        (-1, [3], (-1, [3])),
        (3, [3], (-1, [3])),
    ],
)
async def test_members_that_are_no_replicas_do_not_count(
    leader: int, isr: list[int], expected: tuple[int, list[int]], autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(*BROKERS)
    await cluster.admin.create("/brokers/topics/t", znodes.TopicZnode(b"i" * 16, {0: [2, 1]}).encode())
    state = znodes.PartitionStateZnode(controller_epoch=0, leader=leader, leader_epoch=3, isr=isr)
    await cluster.admin.create(znodes.PartitionStateZnode.path("t", 0), state.encode(), parents=True)
    await cluster.controller_on(1)
    await cluster.come_to_rest()
    after = await cluster.state("t")
    assert (after.leader, list(after.isr)) == expected
