"""A group as its members, the log and tools are told of it."""

from __future__ import annotations

from typing import Protocol

from strandline.broker.groups.effects import Write
from strandline.broker.groups.members import Member, Members
from strandline.broker.groups.states import GroupState
from strandline.protocol.consumer_protocol import CONSUMER, subscribed_topics
from strandline.protocol.group_records import GroupMember, GroupMetadata
from strandline.protocol.messages import (
    OPERATIONS_NOT_ASKED_FOR,
    DescribedGroup,
    DescribedGroupMember,
    JoinGroupResponse,
    JoinGroupResponseMember,
)


class Viewed(Protocol):
    """What is looked at of a group."""

    group_id: str
    state: GroupState
    generation: int
    protocol_type: str | None
    protocol: str | None
    members: Members


def joined(
    group: Viewed,
    member: Member,
    *,
    leader: str | None = None,
    skip_assignment: bool = False,
    is_told_members: bool | None = None,
) -> JoinGroupResponse:
    """The answer to a member of this generation. `leader`, `is_told_members`: where they are not what they are."""
    if is_told_members is None:
        is_told_members = group.members.leader == member.member_id
    everybody = [
        JoinGroupResponseMember(known.member_id, known.group_instance_id, known.metadata(group.protocol))
        for known in (group.members if is_told_members else ())
    ]
    return JoinGroupResponse(
        0,
        group.generation,
        group.protocol_type,
        group.protocol,
        leader or group.members.leader or "",
        member.member_id,
        everybody,
        skip_assignment,
    )


def metadata(group: Viewed, write: Write, wall_ms: int) -> GroupMetadata:
    """What `write`, which was just taken, is to write. `wall_ms`: now, since 1970."""
    given = write.assignments
    return GroupMetadata(
        group.group_id,
        group.protocol_type or "",
        group.generation,
        group.protocol,
        group.members.leader,
        wall_ms,
        [
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client.client_id,
                member.client.host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(group.protocol),
                given.get(member.member_id, b""),
            )
            for member in group.members
        ],
    )


def described(group: Viewed, authorized_operations: int = OPERATIONS_NOT_ASKED_FOR) -> DescribedGroup:
    """What the members say and have only while that is settled."""
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        0,
        group.group_id,
        group.state.value,
        group.protocol_type or "",
        (group.protocol or "") if is_stable else "",
        [
            DescribedGroupMember(
                member.member_id,
                member.group_instance_id,
                member.client.client_id,
                member.client.host,
                member.metadata(group.protocol) if is_stable else b"",
                member.assignment if is_stable else b"",
            )
            for member in group.members
        ],
        authorized_operations,
    )


def subscriptions(group: Viewed) -> frozenset[str] | None:
    """The topics of a group of consumers, whose members say so; None: they cannot be told."""
    if group.protocol_type != CONSUMER or group.protocol is None:
        return None
    found: set[str] = set()
    for member in group.members:
        topics = subscribed_topics(member.metadata(group.protocol))
        if topics is None:
            return None
        found |= topics
    return frozenset(found)
