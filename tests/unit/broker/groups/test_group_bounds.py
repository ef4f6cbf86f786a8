"""A group's bounds: what it waits for, and what it keeps of anybody who asks."""

from __future__ import annotations

import msgspec
import pytest

from strandline.broker.groups.effects import GroupSettings
from strandline.broker.groups.group import MAX_PENDING, Group
from strandline.protocol.errors import ErrorCode
from support.group_site import DELAY_S, SESSION_S, GroupSite


@pytest.fixture
def site() -> GroupSite:
    return GroupSite()


def test_static_members_without_a_rebalance_timeout_are_waited_for(site: GroupSite) -> None:
    away = site.join(instance="a", rebalance_s=0)
    leaves = site.join(instance="b")
    site.wait_for(away, leaves)
    ids = [join.answer().member_id for join in (away, leaves)]
    site.sync(ids[1], 1, instance="b")
    site.sync(ids[0], 1, instance="a")
    assert site.leave(ids[1], "b") is ErrorCode.NONE
    site.pass_time(1.0)
    assert len(site.group.members) == 1, "its session goes on"
    site.pass_time(SESSION_S)
    assert site.group.is_over


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_a_rebalance_timeout_of_a_log_may_be_anything(timeout_ms: int, site: GroupSite) -> None:
    site.stable(2, instances=True)
    found = site.log[-1]
    found = msgspec.structs.replace(
        found, members=[msgspec.structs.replace(each, rebalance_timeout_ms=timeout_ms) for each in found.members]
    )
    site.group = Group.loaded(found, GroupSettings(1000, DELAY_S), site.now)
    new = site.join(instance="new", rebalance_s=0)
    site.wait_for(new)
    assert new.answer().error_code == 0
    site.pass_time(10 * SESSION_S)
    assert site.group.is_over


def test_what_nobody_understands_any_more_is_not_kept(site: GroupSite) -> None:
    (member,) = site.stable(1)
    for number in range(100):
        names = ("range", "p0") if number == 0 else (f"p{number - 1}", f"p{number}")
        join = site.join(member, protocols=dict.fromkeys(names, b""))
        site.wait_for(join)
        assert join.answer().error_code == 0
    assert sorted(site.group.members._supporters) == ["p98", "p99"]
    site.leave(member)
    assert not site.group.members._supporters and site.group.members.size_bytes == 0


# --- what it keeps -------------------------------------------------------------------------------------------------


def test_ids_that_nobody_joins_with_are_bounded(site: GroupSite) -> None:
    for _ in range(MAX_PENDING):
        assert site.join().answer().error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert site.join().answer().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert site.join("m1").answer() is None, "who has one joins with it"
    assert site.join().answer().error_code == ErrorCode.MEMBER_ID_REQUIRED
