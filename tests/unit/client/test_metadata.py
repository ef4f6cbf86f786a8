"""The cluster view: epochs never go back, lagging and dead brokers are passed over."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from strandline.client import TrioProducer
from strandline.client.errors import InvalidTopic, UnknownTopic
from strandline.client.metadata import ClusterView, Metadata
from strandline.client.settings import ClientSettings
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    RefusedReplica,
)
from strandline.protocol.types import NO_BROKER, TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

T0 = TopicPartition("t", 0)
ONE, OTHER = b"1" * 16, b"2" * 16


def answer(leader: int, epoch: int, topic_id: bytes = ONE, error: int = 0) -> MetadataResponse:
    parts = [] if error else [MetadataPartition(0, 0, leader, epoch, [1, 2], [leader])]
    brokers = [MetadataBroker(node, f"b{node}", 1) for node in (1, 2)]
    return MetadataResponse(brokers, [MetadataTopic(error, "t", parts, topic_id)], 1, "c")


def leader_after(*answers: MetadataResponse) -> tuple[int, int] | None:
    view = ClusterView()
    for item in answers:
        view = view.merged(item)
    part = view.partition(T0)
    return (part.leader, part.leader_epoch) if part else None


def test_the_leader_epoch_of_a_partition_never_goes_back() -> None:
    assert leader_after(answer(1, 5), answer(2, 4)) == (1, 5)
    assert leader_after(answer(1, 5), answer(2, 6)) == (2, 6)
    assert leader_after(answer(1, 5), answer(-1, 5)) == (-1, 5)
    assert leader_after(answer(1, 5), answer(2, 4, bytes(16))) == (1, 5), "an answer without topic id proves nothing"


def test_a_topic_made_anew_counts_its_epochs_from_the_start() -> None:
    assert leader_after(answer(1, 5), answer(2, 0, OTHER)) == (2, 0)


def test_a_deleted_topic_goes_and_passing_trouble_keeps_it() -> None:
    assert leader_after(answer(1, 5), answer(1, 5, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)) is None
    assert leader_after(answer(1, 5), answer(1, 5, error=ErrorCode.LEADER_NOT_AVAILABLE)) == (1, 5)


@pytest.mark.parametrize(
    ("alive", "refused", "controller", "expected"),
    [
        ((1, 2), (), 1, "partition t-0 has no leader"),
        ((1,), (), 1, "partition t-0 has no leader (of its replicas 1, 2 gone: 2)"),
        ((1, 2), (1,), 1, "partition t-0 has no leader; broker 1 does not serve its replica: its log is damaged"),
        (
            (1,),
            (1,),
            -1,
            "partition t-0 has no leader (of its replicas 1, 2 gone: 2), and no controller is known that could elect "
            "one; broker 1 does not serve its replica: its log is damaged",
        ),
    ],
)
def test_why_a_partition_has_no_leader(
    alive: tuple[int, ...], refused: tuple[int, ...], controller: int, expected: str
) -> None:
    gone = [number for number in (1, 2) if number not in alive]
    reasons = [RefusedReplica(number, "its log is damaged") for number in refused]
    partition = MetadataPartition(ErrorCode.LEADER_NOT_AVAILABLE, 0, -1, 5, [1, 2], [1], gone, reasons)
    brokers = [MetadataBroker(node, f"b{node}", 1) for node in alive]
    told = MetadataResponse(brokers, [MetadataTopic(0, "t", [partition], ONE)], controller, "c")
    error = ClusterView().merged(told).no_leader(T0)
    assert (str(error), error.code, error.retriable) == (expected, ErrorCode.LEADER_NOT_AVAILABLE, True)
    assert str(ClusterView().no_leader(T0)) == "no broker has told of partition t-0 yet"


def test_only_the_first_refusals_are_named() -> None:
    reasons = [RefusedReplica(number, "its log is damaged") for number in range(1, 10)]
    partition = MetadataPartition(0, 0, -1, 5, list(range(1, 10)), [1], [], reasons)
    view = ClusterView().merged(MetadataResponse([], [MetadataTopic(0, "t", [partition], ONE)], 1, "c"))
    assert str(view.no_leader(T0)).count("its log is damaged") == 3


def test_a_hint_counts_only_if_it_is_newer_and_names_a_known_broker() -> None:
    view = ClusterView().merged(answer(1, 5))
    for leader, epoch, expected in ((2, 6, (2, 6)), (2, 5, (1, 5)), (2, 4, (1, 5)), (9, 6, (1, 5))):
        part = view.with_leader(T0, leader, epoch).partition(T0)
        assert part is not None
        assert (part.leader, part.leader_epoch) == expected


def metadata(cluster: FakeCluster, **settings: object) -> Metadata:
    return Metadata(ClientSettings(bootstrap_servers=cluster.bootstrap, **settings), cluster.environment())


async def test_one_living_bootstrap_server_is_enough(autojump_clock: object) -> None:
    for alive in range(3):
        cluster = FakeCluster(3)
        cluster.add_topic("t")
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.brokers[alive].run)
            known = metadata(cluster)
            nursery.start_soon(known.run)
            assert (await known.topic("t", timeout_ms=5000, setting="x")).name == "t"
            nursery.cancel_scope.cancel()


async def test_a_silent_broker_is_passed_over(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        known = metadata(cluster)
        nursery.start_soon(known.run)
        await known.topic("t", timeout_ms=5000, setting="x")
        for broker in cluster.brokers:
            broker.faults[ApiKey.METADATA].append(Fault(hang=True))
        cluster.move(T0, 1)
        while (part := known.view.partition(T0)) is None or part.leader != 1:
            assert await known.wait_for_answer(trio.current_time() + 60)
        assert trio.current_time() < 30
        nursery.cancel_scope.cancel()


async def test_who_did_not_answer_is_not_asked_again_while_others_answer(autojump_clock: object) -> None:
    cluster = FakeCluster(3)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        known = metadata(cluster)
        nursery.start_soon(known.run)
        await known.topic("t", timeout_ms=5000, setting="x")
        silent = next(broker for broker in cluster.brokers if broker.seen(MetadataRequest))
        before = len(silent.seen(MetadataRequest))
        for _ in range(20):
            silent.faults[ApiKey.METADATA].append(Fault(hang=True))
        for _ in range(20):  # each in a hurry: a broker that knows nothing new is left for another one
            assert await known.wait_for_answer(trio.current_time() + 60)
        assert len(silent.seen(MetadataRequest)) == before + 1
        assert known.last_error is None
        nursery.cancel_scope.cancel()


async def test_a_broker_that_believes_in_an_old_leader_is_not_asked_for_ever(autojump_clock: object) -> None:
    cluster = FakeCluster(3)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        known = metadata(cluster)
        nursery.start_soon(known.run)
        await known.topic("t", timeout_ms=5000, setting="x")
        asked = next(broker for broker in cluster.brokers if broker.seen(MetadataRequest))
        asked.stale_view = asked.cluster.brokers[0].metadata(MetadataRequest(["t"]))
        cluster.move(T0, 1)
        while (part := known.view.partition(T0)) is None or part.leader != 1:
            assert await known.wait_for_answer(60)
        assert trio.current_time() < 10
        nursery.cancel_scope.cancel()


async def test_a_leader_that_stays_away_is_asked_for_less_often_than_one_that_may_be_elected_any_moment(
    autojump_clock: object,
) -> None:
    cluster = FakeCluster(3)
    cluster.add_topic("t")
    cluster.move(T0, NO_BROKER)

    def asked() -> int:
        return sum(len(broker.seen(MetadataRequest)) for broker in cluster.brokers)

    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioProducer(cluster.bootstrap, environment=cluster.environment()) as client:
            sent = await client.send("t", b"x")
            await trio.sleep(18)
            assert asked() > 150, "as long as a session may last"
            await trio.sleep(12)
            before = asked()
            await trio.sleep(60)
            assert 45 <= asked() - before <= 80
            cluster.move(T0, 1)
            assert (await sent).offset == 0
            assert trio.current_time() < 95
        nursery.cancel_scope.cancel()


async def test_a_broker_of_another_cluster_is_not_believed(autojump_clock: object) -> None:
    cluster = FakeCluster(1)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        known = metadata(cluster)
        nursery.start_soon(known.run)
        await known.topic("t", timeout_ms=5000, setting="x")
        cluster.cluster_id = "another"
        cluster.move(T0, -1)
        await known.wait_for_answer(trio.current_time() + 1)
        assert "another" in str(known.last_error)
        assert known.view.cluster_id == "fake-cluster"
        part = known.view.partition(T0)
        assert part is not None
        assert part.leader == 0
        nursery.cancel_scope.cancel()


async def test_the_view_is_refreshed_when_it_is_old(autojump_clock: object) -> None:
    cluster = FakeCluster(1)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        known = metadata(cluster, metadata_max_age_ms=10_000)
        nursery.start_soon(known.run)
        await known.topic("t", timeout_ms=5000, setting="x")
        cluster.topics["t"] = 2
        cluster.leaders[TopicPartition("t", 1)] = (0, 0)
        await trio.sleep(12)
        assert len(known.view.topics["t"].partitions) == 2
        assert len(cluster.brokers[0].seen(MetadataRequest)) == 2
        nursery.cancel_scope.cancel()


async def test_a_topic_that_is_read_is_asked_about_also_after_somebody_has_waited_for_it_in_vain(
    autojump_clock: object,
) -> None:
    cluster = FakeCluster(1)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        known = metadata(cluster, metadata_max_age_ms=1000)
        nursery.start_soon(known.run)
        known.expect(["t"])
        with pytest.raises(UnknownTopic):
            await known.topic("t", timeout_ms=0, setting="x")
        cluster.add_topic("t")
        await trio.sleep(5)
        assert known.view.topics["t"].partitions
        nursery.cancel_scope.cancel()


async def test_a_refresh_does_not_bring_back_what_was_deleted(autojump_clock: object) -> None:
    cluster = FakeCluster(1)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        settings = ClientSettings(bootstrap_servers=cluster.bootstrap)
        known = Metadata(settings, cluster.environment(), allow_auto_topic_creation=True)
        nursery.start_soon(known.run)
        await known.topic("t", timeout_ms=5000, setting="x")
        known.request_update()
        await trio.sleep(5)
        asked = cluster.brokers[0].seen(MetadataRequest)
        may_create = [isinstance(each, MetadataRequest) and each.allow_auto_topic_creation for each in asked]
        assert may_create == [True, False]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("may_create", [True, False])
async def test_brokers_are_asked_to_create_a_topic_unless_the_program_forbids_it(
    may_create: bool, autojump_clock: object
) -> None:
    cluster = FakeCluster(1)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        settings: dict[str, Any] = {} if may_create else {"allow.auto.create.topics": "false"}
        async with TrioProducer(
            cluster.bootstrap, environment=cluster.environment(), max_block_ms=1000, **settings
        ) as client:
            await (await client.send("t", b"x"))
            with pytest.raises(UnknownTopic):
                await client.send("missing", b"x")
        found: dict[str, set[bool]] = {"t": set(), "missing": set()}
        for request in cluster.brokers[0].seen(MetadataRequest):
            assert isinstance(request, MetadataRequest)
            for name in request.topics or ():
                found[name].add(request.allow_auto_topic_creation)
        assert True in found["missing"] if may_create else found == {"t": {False}, "missing": {False}}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 250, "caf\u00e9", "\ud800"], ids=ascii)
async def test_a_topic_name_that_can_never_be_is_not_asked_about(name: str, autojump_clock: object) -> None:
    cluster = FakeCluster(1)
    cluster.topics["t"] = 1
    cluster.leaders[TopicPartition("t", 0)] = (0, 0)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioProducer(cluster.bootstrap, environment=cluster.environment()) as client:
            with pytest.raises(InvalidTopic):
                await client.send(name, b"x")
            assert trio.current_time() == 0
            await client.partitions_for("t")
        assert all(
            isinstance(request, MetadataRequest) and name not in (request.topics or ())
            for request in cluster.brokers[0].seen(MetadataRequest)
        )
        nursery.cancel_scope.cancel()


async def test_a_name_that_the_broker_refuses_is_refused_at_once(autojump_clock: object) -> None:
    cluster = FakeCluster(1)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[0].stale_view = MetadataResponse(
            [], [MetadataTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, "a_b", [])]
        )
        known = metadata(cluster)
        nursery.start_soon(known.run)
        with pytest.raises(InvalidTopic):
            await known.topic("a_b", timeout_ms=50_000, setting="x")
        assert trio.current_time() < 5
        nursery.cancel_scope.cancel()


async def test_errors_leave_a_client_block_as_they_are(autojump_clock: object) -> None:
    cluster = FakeCluster(1)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        with pytest.raises(UnknownTopic):
            async with TrioProducer(cluster.bootstrap, environment=cluster.environment(), max_block_ms=100) as client:
                await client.send("absent", b"x")
        nursery.cancel_scope.cancel()
