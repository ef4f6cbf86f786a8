"""Who may commit in a group, and which of a member's commits count."""

from __future__ import annotations

import pytest

from strandline.protocol.errors import ErrorCode
from support.group_site import SESSION_S, GroupSite


@pytest.fixture
def site() -> GroupSite:
    return GroupSite()


def test_who_is_no_member_commits_while_the_group_has_none(site: GroupSite) -> None:
    assert site.commit("", -1) == ErrorCode.NONE
    (only,) = site.stable(1)
    assert site.commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert site.commit("who", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    site.leave(only)
    assert site.commit("", -1) == ErrorCode.NONE
    assert site.commit("", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_commits_in_its_generation_only(site: GroupSite) -> None:
    ids = site.stable(2)
    assert site.commit(ids[0], 1) == ErrorCode.NONE
    assert site.commit(ids[0], 0) == site.commit(ids[0], 2) == ErrorCode.ILLEGAL_GENERATION
    assert site.commit(ids[0], -1) == ErrorCode.ILLEGAL_GENERATION
    assert site.commit("who", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    site.join(ids[0])
    assert site.commit(ids[1], 1) == ErrorCode.NONE, "the next generation is being prepared: it still has its own"
    site.join(ids[1])
    assert site.commit(ids[0], 1) == ErrorCode.ILLEGAL_GENERATION
    assert site.commit(ids[0], 2) == ErrorCode.REBALANCE_IN_PROGRESS, "it does not know yet what is its own"


def test_a_commit_that_comes_behind_a_later_one_of_its_member_is_refused(site: GroupSite) -> None:
    ids = site.stable(2, instances=True)
    codes = [site.commit(ids[0], 1, "i0", number) for number in (0, 2, 2, 1, 3)]
    late = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, late, ErrorCode.NONE]
    assert site.commit(ids[1], 1, "i1", 0) == ErrorCode.NONE, "each counts for itself"
    assert site.commit(ids[0], 1, "i0") == ErrorCode.NONE, "a client of Kafka counts nothing"
    assert site.commit(ids[0], 1, "i0", 2) == late
    renewed = site.join(instance="i0").answer().member_id
    assert site.commit(renewed, 1, "i0", 0) == ErrorCode.NONE, "it was started anew"


def test_a_late_commit_is_no_sign_of_life(site: GroupSite) -> None:
    (only,) = site.stable(1)
    assert site.commit(only, 1, number=1) == ErrorCode.NONE
    site.pass_time(SESSION_S - 1)
    site.commit(only, 1, number=0)
    site.pass_time(2)
    assert site.commit(only, 1, number=2) == ErrorCode.UNKNOWN_MEMBER_ID
