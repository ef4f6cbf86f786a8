"""The admin client against scripted brokers."""

from __future__ import annotations

import pytest
import trio

from strandline.client import NewTopic, TrioAdmin
from strandline.client.errors import (
    ClientClosed,
    InvalidTopicSettings,
    NoBrokerReachable,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopic,
)
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from unit.client.fake_broker import ApiKey, FakeBroker, FakeCluster, Fault


def admin(cluster: FakeCluster, **settings: object) -> TrioAdmin:
    return TrioAdmin(cluster.bootstrap, environment=cluster.environment(), **settings)


async def test_topics_are_created_described_listed_and_deleted(autojump_clock: object) -> None:
    cluster = FakeCluster(3)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with admin(cluster) as client:
            created = await client.create_topic("t", num_partitions=3, replication_factor=1)
            assert (created.name, created.num_partitions) == ("t", 3)
            with pytest.raises(TopicAlreadyExists, match="'t'"):
                await client.create_topic("t")
            assert await client.list_topics() == ["t"]
            topic = (await client.describe_topics(["t"]))["t"]
            assert [part.leader for part in topic.partitions.values()] == [0, 1, 2]
            with pytest.raises(UnknownTopic, match="'absent'"):
                await client.describe_topics(["absent"])
            view = await client.describe_cluster()
            assert (view.cluster_id, view.controller_id, sorted(view.brokers)) == ("fake-cluster", 0, [0, 1, 2])
            results = await client.create_topics([NewTopic("t", 1, 1), NewTopic("u", 2, 1)])
            assert isinstance(results["t"], TopicAlreadyExists)
            assert not isinstance(results["u"], Exception)
            await client.delete_topic("t")
            with pytest.raises(UnknownTopic):
                await client.delete_topic("t")
            assert await client.list_topics() == ["u"]
        with pytest.raises(ClientClosed):
            await client.list_topics()
        nursery.cancel_scope.cancel()


async def test_a_broker_that_was_told_nothing_yet_is_passed_over_for_one_that_knows(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told_nothing(request: MetadataRequest) -> MetadataResponse:
        topics = [MetadataTopic(ErrorCode.LEADER_NOT_AVAILABLE, name, []) for name in request.topics or ()]
        return MetadataResponse([], topics, -1, "fake-cluster")

    cluster = FakeCluster(3)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with admin(cluster) as client:
            await client.describe_cluster()
            monkeypatch.setattr(cluster.brokers[0], "metadata", told_nothing)  # the controller, started anew
            assert (await client.describe_topics(["t"]))["t"].partitions
            assert await client.list_topics() == ["t"]
            assert sorted((await client.describe_cluster()).brokers) == [0, 1, 2]
            for broker in cluster.brokers:
                monkeypatch.setattr(broker, "metadata", told_nothing)
            with pytest.raises(RequestTimedOut, match="none has reached them yet"):
                await client.describe_topics(["t"])
        nursery.cancel_scope.cancel()


async def test_a_controller_that_moved_is_found(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with admin(cluster) as client:
            await client.describe_cluster()
            cluster.controller_id = -1
            nursery.start_soon(_elect_later, cluster)
            await client.create_topic("t", 1, 1)
            assert cluster.brokers[1].seen(CreateTopicsRequest)
        nursery.cancel_scope.cancel()


async def _elect_later(cluster: FakeCluster) -> None:
    await trio.sleep(5)
    cluster.controller_id = 1


@pytest.mark.parametrize("fault", [Fault(apply=True, close=True), Fault(apply=True, hang=True)])
async def test_a_creation_whose_answer_was_lost_counts_as_done(autojump_clock: object, fault: Fault) -> None:
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[0].faults[ApiKey.CREATE_TOPICS].append(fault)
        async with admin(cluster, request_timeout_ms=1000) as client:
            await client.create_topic("t", 1, 1)
            cluster.brokers[0].faults[ApiKey.DELETE_TOPICS].append(Fault(apply=True, close=True))
            await client.delete_topic("t")
        nursery.cancel_scope.cancel()
    assert cluster.topics == {}


async def test_a_topic_is_deleted_by_its_id_and_one_that_is_made_anew_meanwhile_stays(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 1)
    cluster.topic_ids["t"] = b"1" * 16
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[0].faults[ApiKey.DELETE_TOPICS] += [Fault(close=True), Fault(), Fault(apply=True, close=True)]
        async with admin(cluster) as client:
            nursery.start_soon(_make_anew_once_gone, cluster)
            await client.delete_topic("t")
        nursery.cancel_scope.cancel()
    assert cluster.topic_ids["t"] == b"2" * 16, "the attempt that was repeated is about the first one"
    asked, repeated, *attempts = cluster.brokers[0].seen(DeleteTopicsRequest)
    assert asked == repeated == DeleteTopicsRequest(["t"], validate_only=True)
    for attempt in attempts:
        assert isinstance(attempt, DeleteTopicsRequest) and not attempt.validate_only
        assert attempt.asked() == [DeleteTopicState(topic_id=b"1" * 16)]


async def test_that_a_question_was_lost_makes_no_deletion_of_ours(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster()
    delete = FakeBroker._delete

    def gone_just_before(broker: FakeBroker, request: DeleteTopicsRequest, fault: Fault) -> DeleteTopicsResponse:
        """By somebody else's hand."""
        if not request.validate_only:
            cluster.topic_ids.clear()
        return delete(broker, request, fault)

    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[0].faults[ApiKey.DELETE_TOPICS].append(Fault(close=True))
        async with admin(cluster) as client:
            with pytest.raises(UnknownTopic, match="'t'"):
                await client.delete_topic("t")
            cluster.add_topic("u", 1)
            cluster.topic_ids["u"] = b"1" * 16
            cluster.brokers[0].faults[ApiKey.DELETE_TOPICS] += [
                Fault(close=True),
                Fault(error=ErrorCode.NOT_CONTROLLER),
            ]
            monkeypatch.setattr(FakeBroker, "_delete", gone_just_before)
            with pytest.raises(UnknownTopic, match="'u'"):
                await client.delete_topic("u")
        nursery.cancel_scope.cancel()


async def test_a_deletion_that_a_controller_began_and_the_next_one_ended_is_done(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t", 1)
    cluster.topic_ids["t"] = b"1" * 16
    delete = FakeBroker._delete

    def resigned(broker: FakeBroker, request: DeleteTopicsRequest, fault: Fault) -> DeleteTopicsResponse:
        answer = delete(broker, request, fault)
        if broker.broker_id == 0 and not request.validate_only:
            cluster.controller_id = 1
            cluster.add_topic("t", 1)
            cluster.topic_ids["t"] = b"2" * 16
            answer = delete(broker, request, fault)
        return answer

    monkeypatch.setattr(FakeBroker, "_delete", resigned)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with admin(cluster) as client:
            await client.delete_topic("t")
        nursery.cancel_scope.cancel()
    assert cluster.topic_ids == {"t": b"2" * 16}, "it was made anew by somebody else"


async def _make_anew_once_gone(cluster: FakeCluster) -> None:
    while "t" in cluster.topics:
        await trio.sleep(0.001)
    cluster.add_topic("t", 1)
    cluster.topic_ids["t"] = b"2" * 16


async def test_a_topic_that_somebody_makes_anew_before_it_goes_stays(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 1)
    cluster.topic_ids["t"] = b"1" * 16
    delete = FakeBroker._delete

    def made_anew_just_before(broker: FakeBroker, request: DeleteTopicsRequest, fault: Fault) -> object:
        if not request.validate_only:
            cluster.topic_ids["t"] = b"2" * 16
        return delete(broker, request, fault)

    monkeypatch.setattr(FakeBroker, "_delete", made_anew_just_before)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with admin(cluster) as client:
            results = await client.delete_topics(["t", "absent"])
        nursery.cancel_scope.cancel()
    assert cluster.topic_ids == {"t": b"2" * 16}
    assert all(isinstance(error, UnknownTopic) for error in results.values()) and len(results) == 2


async def test_refusals_are_not_repeated(autojump_clock: object) -> None:
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[0].faults[ApiKey.CREATE_TOPICS].append(Fault(error=ErrorCode.INVALID_REPLICATION_FACTOR))
        async with admin(cluster) as client:
            with pytest.raises(InvalidTopicSettings, match=r"'t'.*INVALID_REPLICATION_FACTOR"):
                await client.create_topic("t", 1, 9)
        nursery.cancel_scope.cancel()
    assert len(cluster.brokers[0].seen(CreateTopicsRequest)) == 1


async def test_nobody_answers_in_time(autojump_clock: object) -> None:
    cluster = FakeCluster()
    async with admin(cluster, default_api_timeout_ms=3000) as client:
        with pytest.raises(NoBrokerReachable, match=r"broker-0:9092.*3000 ms \(default_api_timeout_ms\)"):
            await client.list_topics()
        assert trio.current_time() == pytest.approx(3, abs=0.01)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.controller_id = -1
        async with admin(cluster) as client:
            with pytest.raises(RequestTimedOut, match="no broker acts as the controller now"):
                await client.create_topic("t", timeout_ms=2000)
        nursery.cancel_scope.cancel()


async def test_a_named_controller_that_is_none_is_explained_with_what_a_user_can_look_at(
    autojump_clock: object,
) -> None:
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[0].faults[ApiKey.CREATE_TOPICS] += [Fault(error=ErrorCode.NOT_CONTROLLER)] * 100
        async with admin(cluster) as client:
            with pytest.raises(
                RequestTimedOut, match=r"NOT_CONTROLLER: no broker acts .* is ZooKeeper reachable"
            ) as got:
                await client.create_topic("t", timeout_ms=2000)
        nursery.cancel_scope.cancel()
    assert "refresh the metadata" not in str(got.value)


async def test_brokers_that_have_not_heard_from_a_controller_are_not_called_slow(autojump_clock: object) -> None:
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[0].metadata = lambda request: MetadataResponse([], [], -1, cluster.cluster_id)
        async with admin(cluster) as client:
            with pytest.raises(RequestTimedOut, match="know no controller and no living broker"):
                await client.create_topic("t", timeout_ms=2000)
        nursery.cancel_scope.cancel()
