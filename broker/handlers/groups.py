"""Requests about groups: who may ask, what is answered where there is no group, and how a group's word is answered.

All inline. JoinGroup and SyncGroup are answered by the group when it is time, commits and deletions when they are
committed in the log. What a group decides is in `broker/groups`; the order of checks is Kafka's, here and there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from strandline.broker.groups.coordinator import GroupCoordinator
from strandline.broker.groups.members import Client
from strandline.broker.groups.shards import (
    MAX_ID_BYTES,
    OFFSETS_TOPIC,
    Coordinated,
    cost_of_finding,
    may_be_a_group,
)
from strandline.broker.groups.states import GroupState
from strandline.broker.groups.views import described
from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import at_once_or_in_steps, in_pieces
from strandline.client.errors import CannotReachBroker
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    ALL_GROUP_OPERATIONS,
    GROUP_KEY_TYPE,
    NO_MEMBER,
    OPERATIONS_NOT_ASKED_FOR,
    TRANSACTION_KEY_TYPE,
    Coordinator,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from strandline.protocol.types import NO_BROKER

CLASSIC = "classic"
"""The type of every group here, as tools are told it."""


class GroupHandlers:
    """FindCoordinator, and what members and tools ask of a group; offsets: `group_offsets`."""

    def __init__(
        self, coordinator: GroupCoordinator, replicas: Replicas, create_topic: Callable[[str, str], None]
    ) -> None:
        """`create_topic(name, who asked)` starts a creation and returns at once."""
        self._coordinator = coordinator
        self._replicas = replicas
        self._metadata = replicas.metadata
        self._create_topic = create_topic

    # --- FindCoordinator ---------------------------------------------------------------------------------------

    def find_coordinator(self, request: RequestInHand[FindCoordinatorRequest]) -> Remainder | None:
        """The topic of offsets is made when somebody first asks."""
        asked = request.message
        if asked.coordinator_keys is not None:
            cost = sum(map(cost_of_finding, asked.coordinator_keys))
            return at_once_or_in_steps(self._find_all(request, asked.coordinator_keys), cost)
        one = self._find(request, asked.key)
        request.respond(FindCoordinatorResponse(one.error_code, one.error_message, one.node_id, one.host, one.port))
        return None

    def _find_all(self, request: RequestInHand[FindCoordinatorRequest], keys: list[str]) -> Iterator[int]:
        found: list[Coordinator] = []
        for key in keys:
            found.append(self._find(request, key))
            yield cost_of_finding(key)
        request.respond(FindCoordinatorResponse(0, None, coordinators=found))

    def _find(self, request: RequestInHand[FindCoordinatorRequest], key: str) -> Coordinator:
        key_type = request.message.key_type
        if key_type == TRANSACTION_KEY_TYPE:  # not one that clients repeat
            return _no_coordinator(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served")
        if key_type != GROUP_KEY_TYPE:
            return _no_coordinator(key, ErrorCode.INVALID_REQUEST, f"no coordinators of type {key_type} are here")
        if not may_be_a_group(key):
            return _no_coordinator(key, ErrorCode.INVALID_GROUP_ID, f"a group's name has at most {MAX_ID_BYTES} bytes")
        if OFFSETS_TOPIC not in self._metadata.topics and self._metadata.version > 0:
            self._create_topic(OFFSETS_TOPIC, str(request.context.peer))
        index = self._coordinator.partition_of(key)
        state = None if index is None else self._metadata.partition(OFFSETS_TOPIC, index)
        if state is None:
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being created")
        try:
            address = self._metadata.address_of(state.leader, request.context.listener_name)
        except CannotReachBroker:
            return _no_coordinator(
                key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody leads partition {index} of {OFFSETS_TOPIC}"
            )
        return Coordinator(key, state.leader, address.host, address.port)

    # --- members -----------------------------------------------------------------------------------------------

    def join_group(self, request: RequestInHand[JoinGroupRequest]) -> None:
        asked, coordinator = request.message, self._coordinator
        found = coordinator.find(asked.group_id)
        config = self._replicas.config
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        is_unknown = found is ErrorCode.GROUP_ID_NOT_FOUND
        if (is_unknown or isinstance(found, Coordinated)) and not shortest <= asked.session_timeout_ms <= longest:
            found = ErrorCode.INVALID_SESSION_TIMEOUT
        elif is_unknown:
            found = (
                ErrorCode.UNKNOWN_MEMBER_ID
                if asked.member_id != NO_MEMBER
                else coordinator.find_or_make(asked.group_id)
            )
        if isinstance(found, ErrorCode):
            request.respond(JoinGroupResponse(found, member_id=asked.member_id))
            return
        context = request.context
        client = Client(context.client_id, f"/{context.peer.host}")  # as Java writes addresses
        fresh_id = coordinator.fresh_id(asked.group_instance_id or context.client_id)
        if found.group.members.can_keep(asked, found.shard.partition.config.max_message_bytes):
            found.group.join(asked, client, request, fresh_id, coordinator.burst.now())
        else:  # what Kafka says once it fails to write it; it would be kept for nothing until then
            request.respond(JoinGroupResponse(ErrorCode.UNKNOWN_SERVER_ERROR, member_id=asked.member_id))
        coordinator.carry_out(found)

    def sync_group(self, request: RequestInHand[SyncGroupRequest]) -> None:
        found = self._coordinator.find(request.message.group_id)
        if isinstance(found, ErrorCode):
            # A coordinator that loads knows no rebalance: whoever syncs joins again.
            is_loading = found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            code = ErrorCode.REBALANCE_IN_PROGRESS if is_loading else _of_a_member(found)
            request.respond(SyncGroupResponse(code))
            return
        found.group.sync(request.message, request, self._coordinator.burst.now())
        self._coordinator.carry_out(found)

    def heartbeat(self, request: RequestInHand[HeartbeatRequest]) -> None:
        found = self._coordinator.find(request.message.group_id)
        if isinstance(found, ErrorCode):
            # Nobody is told to join anew by a coordinator that has yet to learn who is a member.
            is_loading = found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            code = ErrorCode.NONE if is_loading else _of_a_member(found)
        else:
            code = found.group.heartbeat(request.message, self._coordinator.burst.now())
        request.respond(HeartbeatResponse(code))

    def leave_group(self, request: RequestInHand[LeaveGroupRequest]) -> Remainder | None:
        asked = request.message
        leaving = [MemberIdentity(asked.member_id)] if asked.members is None else asked.members
        return at_once_or_in_steps(self._leave(request, leaving), len(leaving), self._coordinator.burst.end)

    def _leave(self, request: RequestInHand[LeaveGroupRequest], leaving: Sequence[MemberIdentity]) -> Iterator[int]:
        asked, coordinator = request.message, self._coordinator
        codes: list[ErrorCode] = []
        for some in in_pieces(leaving):
            found = coordinator.find(asked.group_id)
            if isinstance(found, Coordinated):
                now = coordinator.burst.now()
                codes += [found.group.leave(who, now) for who in some]
                coordinator.carry_out(found)
            elif found is ErrorCode.GROUP_ID_NOT_FOUND:
                codes += [ErrorCode.UNKNOWN_MEMBER_ID for _ in some]
            else:
                request.respond(LeaveGroupResponse(found))
                return
            yield len(some)
        if asked.members is None:
            request.respond(LeaveGroupResponse(codes[0]))
            return
        left = [
            MemberResponse(who.member_id, who.group_instance_id, code) for who, code in zip(leaving, codes, strict=True)
        ]
        request.respond(LeaveGroupResponse(0, left))

    # --- tools -------------------------------------------------------------------------------------------------

    def describe_groups(self, request: RequestInHand[DescribeGroupsRequest]) -> Remainder | None:
        names = list(dict.fromkeys(request.message.groups))  # else naming one again and again multiplies its answer
        return at_once_or_in_steps(self._describe(request, names), sum(map(cost_of_finding, names)))

    def _describe(self, request: RequestInHand[DescribeGroupsRequest], names: list[str]) -> Iterator[int]:
        """Each group once."""
        tells_operations = request.message.include_authorized_operations
        operations = ALL_GROUP_OPERATIONS if tells_operations else OPERATIONS_NOT_ASKED_FOR
        answers: list[DescribedGroup] = []
        for group_id in names:
            found = self._coordinator.find(group_id, is_needed=False)
            if isinstance(found, Coordinated):
                answers.append(described(found.group, operations))
            elif found is ErrorCode.GROUP_ID_NOT_FOUND:
                dead = GroupState.DEAD.value
                answers.append(DescribedGroup(0, group_id, dead, authorized_operations=operations))
            else:
                answers.append(DescribedGroup(found, group_id))
            yield cost_of_finding(group_id) + len(answers[-1].members)
        request.respond(DescribeGroupsResponse(answers))

    def list_groups(self, request: RequestInHand[ListGroupsRequest]) -> Remainder | None:
        return at_once_or_in_steps(self._list(request), self._coordinator.count)

    def _list(self, request: RequestInHand[ListGroupsRequest]) -> Iterator[int]:
        asked = request.message
        states = {state.lower() for state in asked.states_filter}
        types = {each.lower() for each in asked.types_filter}
        listed: list[ListedGroup] = []
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._coordinator.is_loading else ErrorCode.NONE
        for group in self._coordinator.groups():
            if (not states or group.state.value.lower() in states) and (not types or CLASSIC in types):
                listed.append(ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC))
            yield 1
        request.respond(ListGroupsResponse(code, listed))

    def delete_groups(self, request: RequestInHand[DeleteGroupsRequest]) -> Remainder | None:
        """Answered when all that is to go has gone from the log."""
        names = list(dict.fromkeys(request.message.groups_names))
        count = 0
        for name in names:
            found = self._coordinator.find(name, is_needed=False)
            count += 1 + (found.offsets.count if isinstance(found, Coordinated) else 0)
        return at_once_or_in_steps(self._delete(request, names), count, self._coordinator.burst.end)

    def _delete(self, request: RequestInHand[DeleteGroupsRequest], names: list[str]) -> Iterator[int]:
        codes: dict[str, ErrorCode] = {}

        def told(group_id: str, code: ErrorCode) -> None:
            codes[group_id] = code
            if len(codes) == len(names):
                request.respond(DeleteGroupsResponse([DeletableGroupResult(name, codes[name]) for name in names]))

        if not names:
            request.respond(DeleteGroupsResponse([]))
        for name in names:
            found = self._coordinator.find(name, is_needed=False)
            if found is ErrorCode.GROUP_ID_NOT_FOUND:
                yield from self._coordinator.delete_the_rest(name, _of(told, name))
            elif isinstance(found, ErrorCode):
                told(name, found)
            elif found.group.state is not GroupState.EMPTY:
                told(name, ErrorCode.NON_EMPTY_GROUP)
            else:
                yield from self._coordinator.delete(found, _of(told, name))
            yield 1


def _of(told: Callable[[str, ErrorCode], None], name: str) -> Callable[[ErrorCode], None]:
    return lambda code: told(name, code)


def _of_a_member(code: ErrorCode) -> ErrorCode:
    """A group that does not exist has no members."""
    return ErrorCode.UNKNOWN_MEMBER_ID if code is ErrorCode.GROUP_ID_NOT_FOUND else code


def _no_coordinator(key: str, code: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key, NO_BROKER, "", -1, code, text)
