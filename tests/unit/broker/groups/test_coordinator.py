"""The coordinator and its handlers, without a broker: what is kept for whom, and what requests may cost."""

from __future__ import annotations

import pytest

from strandline.broker.groups.group import Group
from strandline.protocol.group_records import GroupMetadata, group_key, read_offset_value
from strandline.protocol.messages import (
    DeleteGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from support.coordinator_site import CoordinatorSite


@pytest.fixture
def site() -> CoordinatorSite:
    return CoordinatorSite()


def commit(topic: str = "t", *, retention_ms: int = -1) -> OffsetCommitRequest:
    topics = [OffsetCommitRequestTopic(topic, [OffsetCommitRequestPartition(0, 5)])]
    return OffsetCommitRequest("g", topics, retention_time_ms=retention_ms)


def test_an_offset_that_is_to_stay_for_ever_can_be_written(site: CoordinatorSite) -> None:
    answer = site.ask(site.offsets.commit, commit(retention_ms=2**63 - 1))
    assert answer.topics[0].partitions[0].error_code == 0
    ((_, value),) = site.appends.records
    assert read_offset_value(value).expire_timestamp_ms == 2**63 - 1


def test_a_member_id_can_be_written_however_long_the_client_s_name_is(site: CoordinatorSite) -> None:
    assert len(site.coordinator.fresh_id("c" * 32_767)) < 300
    assert site.coordinator.fresh_id("client").startswith("client-")


def test_a_group_of_a_log_gets_a_tombstone_also_in_generation_0(site: CoordinatorSite) -> None:
    group = Group.loaded(GroupMetadata("g", "", 0, None, None, -1, []), site.settings, site.now)
    site.add(group)
    assert site.ask(site.groups.delete_groups, DeleteGroupsRequest(["g"])).results[0].error_code == 0
    assert site.appends.records == [(group_key("g"), None)]


def test_a_group_that_no_log_has_gets_none(site: CoordinatorSite) -> None:
    site.ask(site.offsets.commit, commit())
    site.appends.records.clear()
    assert site.ask(site.groups.delete_groups, DeleteGroupsRequest(["g"])).results[0].error_code == 0
    assert (group_key("g"), None) not in site.appends.records and len(site.appends.records) == 1
