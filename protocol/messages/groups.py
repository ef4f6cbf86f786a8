"""Groups of consumers, and what they have committed: the classic protocol (KIP-62, 345, 394, 559, 699, 709, 814).

Names are those of Kafka's schemas. A field that only some of their versions have has its schema's default; where two
versions say the same in two shapes, both stand here, and which one was used is told by the later one being None.
"""

from __future__ import annotations

from strandline.protocol.messages.base import Message, Named, Request
from strandline.protocol.messages.operations import OPERATIONS_NOT_ASKED_FOR
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_OFFSET, Int8, Int16, Int32, Int64

NO_MEMBER = ""
"""The member id of who has none yet, or commits without being a member."""
NO_GENERATION = -1
NO_COMMIT_NUMBER = -1
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1

# --- FindCoordinator -------------------------------------------------------------------------------------------


class Coordinator(Message, frozen=True, array_like=True, gc=False):
    """Which broker coordinates the group `key`, at the address that the asking listener advertises."""

    key: str
    node_id: Int32
    host: str
    port: Int32
    error_code: Int16 = 0
    error_message: str | None = None


class FindCoordinatorResponse(Message, frozen=True, array_like=True, gc=False):
    """`coordinators`: one per key of a request with `coordinator_keys`; the rest is the answer to one with `key`."""

    error_code: Int16 = 0
    error_message: str | None = None
    node_id: Int32 = NO_BROKER
    host: str = ""
    port: Int32 = -1
    coordinators: list[Coordinator] = []
    throttle_time_ms: Int32 = 0


class FindCoordinatorRequest(Request, frozen=True, array_like=True, gc=False):
    """Any broker answers. One `key` (Kafka's versions 0 to 3), or `coordinator_keys`."""

    key: str = ""
    key_type: Int8 = GROUP_KEY_TYPE
    coordinator_keys: Named[str] | None = None


# --- JoinGroup -------------------------------------------------------------------------------------------------


class JoinGroupRequestProtocol(Message, frozen=True, array_like=True, gc=False):
    """A way of assigning that the member knows, and what it has to say to it; the first one it prefers."""

    name: str
    metadata: bytes


class JoinGroupResponseMember(Message, frozen=True, array_like=True, gc=False):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(Message, frozen=True, array_like=True, gc=False):
    """The next generation; the leader alone is told the `members`."""

    error_code: Int16
    generation_id: Int32 = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    member_id: str = NO_MEMBER
    members: list[JoinGroupResponseMember] = []
    skip_assignment: bool = False
    """The leader assigns nothing: the group is stable, and only this member's id is a new one."""
    throttle_time_ms: Int32 = 0


class JoinGroupRequest(Request, frozen=True, array_like=True, gc=False):
    """Answered when all members have joined or the rebalance timeout is over."""

    group_id: str
    session_timeout_ms: Int32
    member_id: str
    protocol_type: str
    protocols: Named[JoinGroupRequestProtocol]
    rebalance_timeout_ms: Int32 = -1
    """−1: as the session timeout."""
    group_instance_id: str | None = None
    reason: str | None = None
    joins_again_with_its_id: bool = True
    """It understands MEMBER_ID_REQUIRED (of Kafka's versions: 4 and later)."""
    understands_skip_assignment: bool = True
    """Of Kafka's versions: 9 and later."""


# --- SyncGroup -------------------------------------------------------------------------------------------------


class SyncGroupRequestAssignment(Message, frozen=True, array_like=True, gc=False):
    member_id: str
    assignment: bytes


class SyncGroupResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
    throttle_time_ms: Int32 = 0


class SyncGroupRequest(Request, frozen=True, array_like=True, gc=False):
    """The leader brings everybody's assignment, the others ask for theirs; answered once they are kept."""

    group_id: str
    generation_id: Int32
    member_id: str
    assignments: Named[SyncGroupRequestAssignment]
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


# --- Heartbeat, LeaveGroup -------------------------------------------------------------------------------------


class HeartbeatResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    throttle_time_ms: Int32 = 0


class HeartbeatRequest(Request, frozen=True, array_like=True, gc=False):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = None


class MemberIdentity(Message, frozen=True, array_like=True, gc=False):
    """A static member may be removed by its instance alone: then `member_id` is empty."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class MemberResponse(Message, frozen=True, array_like=True, gc=False):
    member_id: str
    group_instance_id: str | None
    error_code: Int16


class LeaveGroupResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    members: list[MemberResponse] = []
    throttle_time_ms: Int32 = 0


class LeaveGroupRequest(Request, frozen=True, array_like=True, gc=False):
    """`member_id` (Kafka's versions 0 to 2), or `members`."""

    group_id: str
    member_id: str = NO_MEMBER
    members: Named[MemberIdentity] | None = None


# --- DescribeGroups, ListGroups, DeleteGroups ------------------------------------------------------------------


class DescribedGroupMember(Message, frozen=True, array_like=True, gc=False):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribedGroup(Message, frozen=True, array_like=True, gc=False):
    """`protocol_data`: the protocol's name. A group that does not exist is described as Dead. `authorized_operations`:
    as in `operations`."""

    error_code: Int16
    group_id: str
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Int32 = OPERATIONS_NOT_ASKED_FOR


class DescribeGroupsResponse(Message, frozen=True, array_like=True, gc=False):
    groups: list[DescribedGroup]
    throttle_time_ms: Int32 = 0


class DescribeGroupsRequest(Request, frozen=True, array_like=True, gc=False):
    """Answered by the coordinator of each group."""

    groups: Named[str]
    include_authorized_operations: bool = False


class ListedGroup(Message, frozen=True, array_like=True, gc=False):
    group_id: str
    protocol_type: str
    group_state: str = ""
    group_type: str = ""


class ListGroupsResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    groups: list[ListedGroup] = []
    throttle_time_ms: Int32 = 0


class ListGroupsRequest(Request, frozen=True, array_like=True, gc=False):
    """Answered by every broker for the groups that it coordinates. An empty filter lets everything pass."""

    states_filter: Named[str] = []
    types_filter: Named[str] = []


class DeletableGroupResult(Message, frozen=True, array_like=True, gc=False):
    group_id: str
    error_code: Int16


class DeleteGroupsResponse(Message, frozen=True, array_like=True, gc=False):
    results: list[DeletableGroupResult]
    throttle_time_ms: Int32 = 0


class DeleteGroupsRequest(Request, frozen=True, array_like=True, gc=False):
    """Groups without members, and what they have committed."""

    groups_names: Named[str]


# --- OffsetCommit ----------------------------------------------------------------------------------------------


class OffsetCommitRequestPartition(Message, frozen=True, array_like=True, gc=False):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = NO_EPOCH
    committed_metadata: str | None = None


class OffsetCommitRequestTopic(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: Named[OffsetCommitRequestPartition]


class OffsetCommitResponsePartition(Message, frozen=True, array_like=True, gc=False):
    partition_index: Int32
    error_code: Int16


class OffsetCommitResponseTopic(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Message, frozen=True, array_like=True, gc=False):
    topics: list[OffsetCommitResponseTopic]
    throttle_time_ms: Int32 = 0
    error_message: str | None = None
    """Of an answer that refuses the request as a whole."""


class OffsetCommitRequest(Request, frozen=True, array_like=True, gc=False):
    """Answered once it is committed in `__consumer_offsets`. Without a generation and a member: of who assigns its
    partitions by itself, while the group has no members. `commit_number`: by the count of the member that asks. One
    with a lower number than the last is refused (OUT_OF_ORDER_SEQUENCE_NUMBER): it was sent over a connection that the
    member had given up, and arrived late. The coordinator forgets the number when it moves, and takes none of who is no
    member. Kafka's requests have no such thing."""

    group_id: str
    topics: Named[OffsetCommitRequestTopic]
    generation_id_or_member_epoch: Int32 = NO_GENERATION
    member_id: str = NO_MEMBER
    group_instance_id: str | None = None
    retention_time_ms: Int64 = -1
    """−1: as `offsets.retention.minutes` says."""
    commit_number: Int64 = NO_COMMIT_NUMBER


# --- OffsetFetch -----------------------------------------------------------------------------------------------


class OffsetFetchRequestTopic(Message, frozen=True, array_like=True, gc=False):
    name: str
    partition_indexes: Named[Int32]


class OffsetFetchRequestGroup(Message, frozen=True, array_like=True, gc=False):
    """`topics` None: all that it has committed."""

    group_id: str
    topics: Named[OffsetFetchRequestTopic] | None = None
    member_id: str | None = None
    member_epoch: Int32 = NO_EPOCH


class OffsetFetchResponsePartition(Message, frozen=True, array_like=True, gc=False):
    """`committed_offset` −1: nothing is committed."""

    partition_index: Int32
    committed_offset: Int64 = NO_OFFSET
    committed_leader_epoch: Int32 = NO_EPOCH
    metadata: str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponseGroup(Message, frozen=True, array_like=True, gc=False):
    group_id: str
    topics: list[OffsetFetchResponseTopic]
    error_code: Int16 = 0


class OffsetFetchResponse(Message, frozen=True, array_like=True, gc=False):
    """`groups`: one per group of a request with `groups`; `topics` answer one with `group_id`."""

    error_code: Int16 = 0
    topics: list[OffsetFetchResponseTopic] = []
    groups: list[OffsetFetchResponseGroup] = []
    throttle_time_ms: Int32 = 0


class OffsetFetchRequest(Request, frozen=True, array_like=True, gc=False):
    """`group_id` and `topics` (Kafka's versions 1 to 7; None: all that it has committed), or `groups`."""

    group_id: str = ""
    topics: Named[OffsetFetchRequestTopic] | None = None
    groups: Named[OffsetFetchRequestGroup] | None = None
    require_stable: bool = False


# --- OffsetDelete ----------------------------------------------------------------------------------------------


class OffsetDeleteRequestPartition(Message, frozen=True, array_like=True, gc=False):
    partition_index: Int32


class OffsetDeleteRequestTopic(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: Named[OffsetDeleteRequestPartition]


class OffsetDeleteResponsePartition(Message, frozen=True, array_like=True, gc=False):
    partition_index: Int32
    error_code: Int16


class OffsetDeleteResponseTopic(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    topics: list[OffsetDeleteResponseTopic] = []
    throttle_time_ms: Int32 = 0


class OffsetDeleteRequest(Request, frozen=True, array_like=True, gc=False):
    """Refused for topics that a member has subscribed to (GROUP_SUBSCRIBED_TO_TOPIC)."""

    group_id: str
    topics: Named[OffsetDeleteRequestTopic]
