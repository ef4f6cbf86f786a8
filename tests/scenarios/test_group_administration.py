"""What operators do with groups, by the admin client on whole brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio

from strandline.broker.groups.shards import OFFSETS_TOPIC
from strandline.client import TrioAdmin
from strandline.client.errors import ClientError, GroupNotEmpty, UnknownGroup, UnknownTopic
from strandline.client.groups.administration import GroupMemberView, GroupOffset, GroupSummary, GroupView
from strandline.protocol.consumer_protocol import Assignment, encode_assignment
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from support.group_client import GroupClient
from support.scenario import BOTH_WAYS, SESSIONS_ALONE, T0, cluster_with_topic

PROPERTIES = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
ABSENT = TopicPartition("absent", 0)


class Member(GroupClient):
    """Its leader gives partition n of `t` to the member of that number."""

    def slot(self, number: int) -> bytes:
        return encode_assignment(Assignment([TopicPartition("t", number)]))


@asynccontextmanager
async def a_site(properties: Mapping[str, str] | None = None) -> AsyncIterator[tuple[MemoryCluster, TrioAdmin]]:
    async with (
        cluster_with_topic(properties={**PROPERTIES, **(properties or {})}) as (cluster, *_),
        cluster.admin() as admin,
    ):
        yield cluster, admin


async def a_member(cluster: MemoryCluster, group: str = "g", instance: str | None = None) -> Member:
    member = Member(cluster, group, instance=instance)
    await member.join()
    return member


async def test_groups_of_all_brokers_are_listed_with_their_states(autojump_clock: object) -> None:
    async with a_site() as (cluster, admin):
        names = [f"g{number}" for number in range(6)]
        for name in names:
            await admin.alter_group_offsets(name, {T0: GroupOffset(1)})
        await a_member(cluster, "running")
        listing = await admin.list_groups()
        assert [group.group_id for group in listing.groups] == [*names, "running"]
        assert listing.failures == {}
        views = (await admin.describe_groups(names)).values()
        assert len({view.coordinator for view in views if isinstance(view, GroupView)}) == 3
        stable = await admin.list_groups(["stable"])
        assert stable.groups == [GroupSummary("running", "Stable", "consumer")]


@pytest.mark.parametrize("is_machine_off", [True, False], ids=["its machine is off", "its process is gone"])
async def test_a_broker_out_of_reach_is_named_beside_the_groups_of_the_others(
    is_machine_off: bool, autojump_clock: object
) -> None:
    """While it counts among the living: a process that is gone would not for long, where refusals tell."""
    async with a_site({} if is_machine_off else SESSIONS_ALONE) as (cluster, admin):
        for number in range(6):
            await admin.alter_group_offsets(f"g{number}", {T0: GroupOffset(1)})
        before = (await admin.describe_groups([f"g{number}" for number in range(6)])).values()
        elsewhere = sum(isinstance(view, GroupView) and view.coordinator != 3 for view in before)
        cluster.vanish(3) if is_machine_off else cluster.crash(3)
        listing = await admin.list_groups(timeout_ms=2_000)
        assert list(listing.failures) == [3] and "3" in str(listing.failures[3])
        assert len(listing.groups) == elsewhere < 6


async def test_a_group_is_described_with_what_its_members_have(autojump_clock: object) -> None:
    async with a_site() as (cluster, admin):
        member = await a_member(cluster, instance="one")
        described = await admin.describe_groups(["g", "nobody"])
        host = f"/{member_host(described['g'])}"
        assert described["g"] == GroupView(
            "g",
            "Stable",
            "consumer",
            "range",
            member.coordinator_id,
            (GroupMemberView(member.member_id, "one", "", host, (T0,)),),
        )
        assert isinstance(described["nobody"], UnknownGroup) and "'nobody'" in str(described["nobody"])


def member_host(view: GroupView | ClientError) -> str:
    assert isinstance(view, GroupView)
    return view.members[0].host.removeprefix("/")


async def test_what_an_empty_group_has_committed_is_set_and_forgotten(autojump_clock: object) -> None:
    async with a_site() as (_, admin):
        assert await admin.list_group_offsets("g") == {}
        results = await admin.alter_group_offsets("g", {T0: GroupOffset(7, 3, "by hand"), ABSENT: GroupOffset(1)})
        assert results[T0] is None and isinstance(results[ABSENT], UnknownTopic)
        assert await admin.list_group_offsets("g") == {T0: GroupOffset(7, 3, "by hand")}
        assert await admin.list_group_offsets("g", [T0, ABSENT]) == {T0: GroupOffset(7, 3, "by hand")}
        known = {"g": {T0: GroupOffset(7, 3, "by hand")}, "other": {}}
        assert await admin.list_offsets_of_groups(["g", "other"]) == known
        assert await admin.delete_group_offsets("g", [T0]) == {T0: None}
        assert await admin.list_group_offsets("g") == {}


async def test_an_offset_is_kept_as_long_as_it_is_asked_for(autojump_clock: object) -> None:
    config = {"offsets.retention.minutes": "2", "offsets.retention.check.interval.ms": "10000"}
    async with MemoryCluster(1, config=config).running() as cluster, cluster.admin() as admin:
        await admin.create_topic(T0.topic, 1, 1)
        minute_ms = 60_000
        await admin.alter_group_offsets("short", {T0: GroupOffset(1)}, retention_time_ms=minute_ms)
        await admin.alter_group_offsets("usual", {T0: GroupOffset(2)})
        await admin.alter_group_offsets("long", {T0: GroupOffset(3, -1, "x" * 900)}, retention_time_ms=3 * minute_ms)
        for left in ({"usual", "long"}, {"long"}, set()):
            await trio.sleep(75)
            kept = await admin.list_offsets_of_groups(["short", "usual", "long"])
            assert {group for group, offsets in kept.items() if offsets} == left


async def test_a_group_with_members_is_left_as_it_is(autojump_clock: object) -> None:
    async with a_site() as (cluster, admin):
        member = await a_member(cluster)
        await member.commit({T0: 5})
        for change in (
            lambda: admin.alter_group_offsets("g", {T0: GroupOffset(0)}),
            lambda: raised(admin.delete_groups(["g"]), "g"),
            lambda: raised(admin.delete_group_offsets("g", [T0]), T0),
        ):
            try:
                await change()
            except GroupNotEmpty as error:
                assert "'g'" in str(error) and "\n" not in str(error)
            else:
                raise AssertionError("it was changed under its members")
        assert await admin.list_group_offsets("g") == {T0: GroupOffset(5, 3)}


async def raised(call, key: object) -> None:
    error = (await call)[key]
    if error is not None:
        raise error


async def test_groups_are_deleted_each_with_its_own_result(autojump_clock: object) -> None:
    async with a_site() as (_, admin):
        await admin.alter_group_offsets("g", {T0: GroupOffset(7)})
        results = await admin.delete_groups(["g", "nobody"])
        assert results["g"] is None and isinstance(results["nobody"], UnknownGroup)
        assert (await admin.list_groups()).groups == []


async def test_members_are_removed_by_instance_and_all_together(autojump_clock: object) -> None:
    async with a_site() as (cluster, admin):
        await a_member(cluster, instance="one")
        results = await admin.remove_members("g", ["one", "two"])
        assert results["one"] is None and isinstance(results["two"], ClientError)
        member = await a_member(cluster)
        assert await admin.remove_members("g") == {member.member_id: None}
        assert (await admin.list_groups(["Empty"])).groups == [GroupSummary("g", "Empty", "consumer")]


@BOTH_WAYS
async def test_a_coordinator_that_moves_is_asked_where_it_went(
    properties: Mapping[str, str], autojump_clock: object
) -> None:
    async with a_site(properties) as (cluster, admin), trio.open_nursery() as nursery:
        await admin.alter_group_offsets("g", {T0: GroupOffset(7)})
        view = (await admin.describe_groups(["g"]))["g"]
        assert isinstance(view, GroupView)
        cluster.crash(view.coordinator)
        found = {}

        async def look() -> None:
            found.update(await admin.list_group_offsets("g"))

        nursery.start_soon(look)
        if properties == SESSIONS_ALONE:
            await trio.sleep(1)
            assert found == {}
            cluster.expire_session(view.coordinator)
        index = cluster.broker(next(n for n, node in cluster.nodes.items() if node.is_up)).groups.partition_of("g")
        partition = TopicPartition(OFFSETS_TOPIC, index or 0)
        await cluster.until(lambda: cluster.leader(partition) not in (view.coordinator, -1), "another one coordinates")
        await trio.sleep(20)
        assert found == {T0: GroupOffset(7)}
