"""What operators do with groups: list, describe and delete them, look at what they have committed and set it.

A group lives at its coordinator, which is looked for and asked anew while it moves or loads, within the time of the
call; then the last cause is the result. All brokers together know all groups, so a listing says who did not answer.
What is repeated after an answer was lost changes nothing more; "no such group" after a lost deletion counts as done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

import trio

from strandline.client.errors import (
    BrokerMisbehaved,
    ClientError,
    GroupNotEmpty,
    UnknownGroup,
    error_for,
)
from strandline.client.metadata import ClusterView
from strandline.client.owners import Attempts, R, T, cause, is_open, of_each
from strandline.client.request_bounds import ALL_ASKED, in_parts, of
from strandline.protocol.consumer_protocol import CONSUMER, InvalidConsumerData, decode_assignment
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    Message,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    Request,
)
from strandline.protocol.types import NO_EPOCH, NO_OFFSET, TopicPartition

DEAD = "Dead"
"""The state of a group that does not exist."""
_HAS_MEMBERS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.NON_EMPTY_GROUP,
}
"""What a group with members says to who is none of them and wants to commit."""
_REASON = "removed by an operator"


class GroupSummary(NamedTuple):
    """`protocol_type`: "consumer", or empty for a group that only ever committed."""

    group_id: str
    state: str
    protocol_type: str


class GroupListing(NamedTuple):
    """`failures`: brokers that did not answer; their groups may be missing."""

    groups: list[GroupSummary]
    failures: dict[int, ClientError]


class GroupMemberView(NamedTuple):
    """`assignment` None: it is not what consumers are given, or cannot be read."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] | None


class GroupView(NamedTuple):
    """`protocol`: the assignor's name; only while the group is stable, and so for assignments. `coordinator`: the id of
    its broker."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[GroupMemberView, ...]


class GroupOffset(NamedTuple):
    """`offset`: the next one to read. `leader_epoch` −1: not known."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


class GroupAdministration(ABC):
    """The part of `TrioAdmin` that is about groups."""

    @abstractmethod
    def _attempts(self, timeout_ms: float | None) -> Attempts:
        """Begin a call; None: with the time that calls have by default."""

    @abstractmethod
    async def describe_cluster(self, *, timeout_ms: float | None = None) -> ClusterView:
        """Live brokers, at least."""

    # --- groups ----------------------------------------------------------------------------------------------------

    async def list_groups(self, states: Iterable[str] = (), *, timeout_ms: float | None = None) -> GroupListing:
        """All groups, sorted, or those in one of these states (Stable, Empty, PreparingRebalance,
        CompletingRebalance). Every live broker is asked; the last cause if none answered within
        `timeout_ms`."""
        attempts, filtered = self._attempts(timeout_ms), list(states)
        found: dict[str, GroupSummary] = {}
        results: dict[int, ClientError | None] = {}

        async def one(broker_id: int) -> None:
            try:
                answer = await attempts.ask(broker_id, ListGroupsRequest(filtered), ListGroupsResponse)
            except ClientError as error:
                results[broker_id] = error
                return
            if answer is None or answer.error_code:
                what = f"listing the groups of broker {broker_id}"
                results[broker_id] = cause(attempts, what) if answer is None else error_for(answer.error_code, what)
                return
            results[broker_id] = None
            for each in answer.groups:
                found[each.group_id] = GroupSummary(each.group_id, each.group_state, each.protocol_type)

        try:
            while True:
                brokers = (await self.describe_cluster(timeout_ms=attempts.left_ms())).brokers
                results = {broker_id: results.get(broker_id, _not_asked(broker_id)) for broker_id in sorted(brokers)}
                async with trio.open_nursery() as nursery:
                    for broker_id, result in list(results.items()):
                        if is_open(result):
                            nursery.start_soon(one, broker_id)
                if brokers and not any(map(is_open, results.values())):
                    break
                attempts.last_error = next(filter(None, results.values()), None)
                await attempts.learn()
        except ClientError:
            if None not in results.values():
                raise
        failures = {broker_id: error for broker_id, error in results.items() if error is not None}
        return GroupListing([found[group_id] for group_id in sorted(found)], failures)

    async def describe_groups(
        self, groups: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, GroupView | ClientError]:
        """Each group, or its error: UnknownGroup where it does not exist; the last cause after `timeout_ms`."""
        attempts = self._attempts(timeout_ms)

        async def ask(coordinator: int, names: list[str]) -> Mapping[str, GroupView | ClientError]:
            answer = await attempts.ask(coordinator, DescribeGroupsRequest(names), DescribeGroupsResponse)
            return {each.group_id: _view(each, coordinator) for each in (answer.groups if answer is not None else ())}

        return await _of_each(groups, attempts, ask)

    async def delete_groups(
        self, groups: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, ClientError | None]:
        """Delete groups that have no members, and what they have committed; None where it went well, else UnknownGroup,
        GroupNotEmpty or the last cause."""
        attempts = self._attempts(timeout_ms)

        async def ask(coordinator: int, names: list[str]) -> Mapping[str, ClientError | bool]:
            answer = await attempts.ask(coordinator, DeleteGroupsRequest(names), DeleteGroupsResponse)
            codes = {each.group_id: each.error_code for each in (answer.results if answer is not None else ())}
            return {
                name: code == ErrorCode.NONE
                or (code == ErrorCode.GROUP_ID_NOT_FOUND and attempts.outcome_was_lost)
                or error_for(code, f"deleting group {name!r}")
                for name, code in codes.items()
            }

        results = await _of_each(groups, attempts, ask)
        return {name: result if isinstance(result, ClientError) else None for name, result in results.items()}

    async def remove_members(
        self, group: str, instances: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, ClientError | None]:
        """Take static members out of a group by their `group.instance.id`s, or (None) all members; the others share
        what they had. Returns what became of each, by instance or else member id. UnknownGroup or the last cause. Where
        earlier requests of many removed somebody, that is a result, too."""
        attempts = self._attempts(timeout_ms)
        if instances is None:
            view = (await self.describe_groups([group], timeout_ms=attempts.left_ms()))[group]
            if isinstance(view, ClientError):
                raise view
            leaving = [MemberIdentity(each.member_id, each.group_instance_id, _REASON) for each in view.members]
        else:
            leaving = [MemberIdentity("", instance, _REASON) for instance in dict.fromkeys(instances)]
        by_name = {each.group_instance_id or each.member_id: each for each in leaving}

        async def remove(part: list[str]) -> Mapping[str, ClientError | None]:
            request = LeaveGroupRequest(group, members=[by_name[name] for name in part])
            answer = await _of_one(group, attempts, request, LeaveGroupResponse, _code)
            results: dict[str, ClientError | None] = {}
            for each in answer.members:
                name = each.group_instance_id or each.member_id
                is_gone = each.error_code == ErrorCode.NONE or (
                    each.error_code == ErrorCode.UNKNOWN_MEMBER_ID and attempts.outcome_was_lost
                )
                results[name] = None if is_gone else error_for(each.error_code, f"removing {name!r} from {group!r}")
            return results

        return await _part_by_part(by_name, remove)

    # --- offsets ---------------------------------------------------------------------------------------------------

    async def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """What a group has committed, of these partitions or of all. A partition of which nothing is committed is left
        out, and a group that does not exist has committed nothing. AnsweredError where one partition could not be read:
        left out, it would look as if nothing were committed. Or the last cause."""
        attempts = self._attempts(timeout_ms)
        found: dict[TopicPartition, GroupOffset] = {}
        for part in [None] if partitions is None else in_parts(partitions):
            topics = None
            if part is not None:
                by_topic = _by_topic(dict.fromkeys(part))
                topics = [OffsetFetchRequestTopic(name, list(numbers)) for name, numbers in by_topic.items()]
            answer = await _of_one(group, attempts, OffsetFetchRequest(group, topics), OffsetFetchResponse, _read_code)
            found |= _committed(group, answer)
        return {tp: found[tp] for tp in sorted(found)}

    async def list_offsets_of_groups(
        self, groups: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, dict[TopicPartition, GroupOffset] | ClientError]:
        """All that each of these groups has committed, or the error that `list_group_offsets` would raise. Coordinators
        are asked side by side, each for one of its groups after the other, for `timeout_ms`."""
        attempts = self._attempts(timeout_ms)

        async def ask(coordinator: int, names: list[str]) -> Mapping[str, OffsetFetchResponse | ClientError]:
            found: dict[str, OffsetFetchResponse | ClientError] = {}
            for name in names:
                try:
                    answer = await attempts.ask(coordinator, OffsetFetchRequest(name, None), OffsetFetchResponse)
                except ClientError as error:
                    return found | dict.fromkeys(names[len(found) :], error)
                if answer is None:
                    break  # the others are asked for again, too, perhaps elsewhere
                code = _read_code(answer)
                found[name] = _error(code, f"group {name!r}") if code else answer
            return found

        answers = await _of_each(groups, attempts, ask)
        results: dict[str, dict[TopicPartition, GroupOffset] | ClientError] = {}
        for name, answer in answers.items():
            try:
                results[name] = answer if isinstance(answer, ClientError) else _committed(name, answer)
            except ClientError as error:  # of one partition
                results[name] = error
        return results

    async def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, GroupOffset],
        *,
        retention_time_ms: int = -1,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, ClientError | None]:
        """Set what a group without members has committed; the group is made where it does not exist. Returns what
        became of each partition: None, UnknownTopic or another AnsweredError. GroupNotEmpty: it has members, who would
        not hear of it; or the last cause. Where earlier requests of many changed something, that is a result, too.

        retention_time_ms: kept for so long from now on; −1: as `offsets.retention.minutes` says. A metadata text longer
        than `offset.metadata.max.bytes` is refused: OFFSET_METADATA_TOO_LARGE."""
        attempts = self._attempts(timeout_ms)

        async def change(part: list[TopicPartition]) -> Mapping[TopicPartition, ClientError | None]:
            topics = [
                OffsetCommitRequestTopic(
                    name, [OffsetCommitRequestPartition(number, *committed) for number, committed in numbers.items()]
                )
                for name, numbers in _by_topic({tp: offsets[tp] for tp in part}).items()
            ]
            request = OffsetCommitRequest(group, topics, retention_time_ms=retention_time_ms)
            answer = await _of_one(group, attempts, request, OffsetCommitResponse, _first_code)
            return _of_partitions(answer, part, f"setting the offset of group {group!r}")

        return await _part_by_part(offsets, change)

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, ClientError | None]:
        """Forget what a group has committed of partitions that no member subscribes to. Returns what became of each
        partition: None or GroupNotEmpty. UnknownGroup or the last cause."""
        attempts = self._attempts(timeout_ms)

        async def change(part: list[TopicPartition]) -> Mapping[TopicPartition, ClientError | None]:
            topics = [
                OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(number) for number in numbers])
                for name, numbers in _by_topic(dict.fromkeys(part)).items()
            ]
            answer = await _of_one(group, attempts, OffsetDeleteRequest(group, topics), OffsetDeleteResponse, _code)
            return _of_partitions(answer, part, f"deleting the offset of group {group!r}")

        return await _part_by_part(partitions, change)


# --- asking coordinators ---------------------------------------------------------------------------------------------


async def _of_each(
    groups: Iterable[str],
    attempts: Attempts,
    ask: Callable[[int, list[str]], Awaitable[Mapping[str, T | ClientError]]],
) -> dict[str, T | ClientError]:
    """`ask(coordinator, its groups)` until each group has a result that another attempt would not mend."""

    async def coordinators(names: list[str]) -> Mapping[str, int | ClientError]:
        found: dict[str, int | ClientError] = {}
        for part in in_parts(names):
            request = FindCoordinatorRequest(coordinator_keys=part)
            broker_id, answer = await attempts.ask_any(request, FindCoordinatorResponse)
            if answer.error_code:
                raise error_for(answer.error_code, "finding coordinators", f"broker {broker_id}", answer.error_message)
            said = {each.key: each for each in answer.coordinators}
            for name in part:
                each = said.get(name)
                if each is None:
                    found[name] = BrokerMisbehaved(f"broker {broker_id} answered nothing about group {name!r}")
                elif each.error_code:
                    what = f"finding the coordinator of group {name!r}"
                    found[name] = error_for(each.error_code, what, detail=each.error_message)
                else:
                    found[name] = each.node_id
        return found

    return await of_each(groups, attempts, coordinators, ask)


async def _part_by_part(
    items: Iterable[T], change: Callable[[list[T]], Awaitable[Mapping[T, ClientError | None]]]
) -> dict[T, ClientError | None]:
    """What became of each item. The error of the first part is raised; that of a later one is the result of its items,
    since those before it have been changed."""
    results: dict[T, ClientError | None] = {}
    for part in in_parts(items):
        try:
            results |= await change(part)
        except ClientError as error:
            if not results:
                raise
            results |= dict.fromkeys(part, error)
    return results


async def _of_one(group: str, attempts: Attempts, request: Request, answer: type[R], code_of: Callable[[R], int]) -> R:
    """The coordinator's answer, once it has one without an error of the whole. UnknownGroup, GroupNotEmpty, another
    AnsweredError, or the last cause."""

    async def ask(coordinator: int, names: list[str]) -> Mapping[str, R | ClientError]:
        found = await attempts.ask(coordinator, request, answer)
        if found is None:
            return {}
        code = code_of(found)
        return {group: _error(code, f"group {group!r}") if code else found}

    result = (await _of_each([group], attempts, ask))[group]
    if isinstance(result, ClientError):
        raise result
    return result


def _code(answer: Message) -> int:
    return int(getattr(answer, "error_code", 0))


def _read_code(answer: OffsetFetchResponse) -> int:
    """Of the whole, or of a partition that another attempt may read."""
    codes = (each.error_code for topic in answer.topics for each in topic.partitions)
    return answer.error_code or next((code for code in codes if error_code(code).retriable), 0)


def _first_code(answer: OffsetCommitResponse) -> int:
    """What is wrong with the commit as a whole, if something is: it is said of every partition that exists."""
    codes = sorted({each.error_code for topic in answer.topics for each in topic.partitions})
    of_partitions = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    whole = [code for code in codes if code in _HAS_MEMBERS or error_code(code).retriable]
    return next((code for code in whole if code not in of_partitions), 0)


def _error(code: int, what: str) -> ClientError:
    if code in _HAS_MEMBERS:
        return GroupNotEmpty(ErrorCode.NON_EMPTY_GROUP, f"{what} has members; stop them first")
    return error_for(code, what)


def _of_partitions(
    answer: OffsetCommitResponse | OffsetDeleteResponse, asked: Iterable[TopicPartition], what: str
) -> dict[TopicPartition, ClientError | None]:
    codes = {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }
    detail = getattr(answer, "error_message", None)
    results: dict[TopicPartition, ClientError | None] = {}
    for tp in asked:
        code = codes.get(tp, codes.get(ALL_ASKED))
        if code is None:
            results[tp] = BrokerMisbehaved(f"{what} in {tp}: the answer is incomplete")
        else:
            results[tp] = error_for(code, f"{what} in {tp}", detail=detail) if code else None
    return results


def _committed(group: str, answer: OffsetFetchResponse) -> dict[TopicPartition, GroupOffset]:
    """AnsweredError of a partition that could not be read."""
    found: dict[TopicPartition, GroupOffset] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                raise error_for(each.error_code, f"reading the offset of group {group!r}{of(tp)}")
            if each.committed_offset != NO_OFFSET:
                found[tp] = GroupOffset(each.committed_offset, each.committed_leader_epoch, each.metadata or "")
    return {tp: found[tp] for tp in sorted(found)}


def _by_topic(partitions: Mapping[TopicPartition, T]) -> dict[str, dict[int, T]]:
    found: dict[str, dict[int, T]] = {}
    for (topic, number), value in partitions.items():
        found.setdefault(topic, {})[number] = value
    return found


def _not_asked(broker_id: int) -> ClientError:
    return BrokerMisbehaved(f"broker {broker_id} was not asked in time")


def _view(group: DescribedGroup, coordinator: int) -> GroupView | ClientError:
    if group.error_code:
        return error_for(group.error_code, f"describing group {group.group_id!r}")
    if group.group_state == DEAD:
        return UnknownGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id!r} does not exist")
    members = tuple(
        GroupMemberView(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            _assignment(each) if group.protocol_type == CONSUMER else None,
        )
        for each in group.members
    )
    return GroupView(group.group_id, group.group_state, group.protocol_type, group.protocol_data, coordinator, members)


def _assignment(member: DescribedGroupMember) -> tuple[TopicPartition, ...] | None:
    if not member.member_assignment:  # it has none yet
        return ()
    try:
        return tuple(sorted(decode_assignment(member.member_assignment).partitions))
    except InvalidConsumerData:
        return None
