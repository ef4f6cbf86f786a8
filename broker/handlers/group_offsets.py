"""Requests about what groups have committed: OffsetCommit, OffsetFetch, OffsetDelete. All inline; see `groups`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from strandline.broker.groups.coordinator import GroupCoordinator, Outcomes
from strandline.broker.groups.group import Group
from strandline.broker.groups.shards import Coordinated, cost_of_finding
from strandline.broker.groups.states import GroupState
from strandline.broker.groups.views import subscriptions
from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import PARTITIONS_PER_STEP, at_once_or_in_steps, in_pieces
from strandline.protocol.consumer_protocol import CONSUMER
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.group_records import NO_TIMESTAMP_MS, CommittedOffset
from strandline.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from strandline.protocol.messages.base import MAX_NAMED

LATEST_MS = 2**63 - 1

_Part = tuple[str, OffsetCommitRequestPartition]
"""Of a commit: a topic, and what is said of one of its partitions."""


class OffsetHandlers:
    def __init__(self, coordinator: GroupCoordinator, replicas: Replicas) -> None:
        self._coordinator = coordinator
        self._replicas = replicas

    # --- OffsetCommit ------------------------------------------------------------------------------------------

    def commit(self, request: RequestInHand[OffsetCommitRequest]) -> Remainder | None:
        """Answered once it is committed. Topics that do not exist and metadata that is too long are refused each by
        itself, the others are kept."""
        parts = [(topic.name, part) for topic in request.message.topics for part in topic.partitions]
        return at_once_or_in_steps(self._commit(request, parts), len(parts), self._coordinator.burst.end)

    def _commit(self, request: RequestInHand[OffsetCommitRequest], parts: list[_Part]) -> Iterator[int]:
        """In pieces, each of which is a commit by itself."""
        pieces = list(in_pieces(parts))
        answer = _CommitAnswer(request, len(pieces))
        for some in pieces:
            self._commit_some(request.message, some, answer)
            yield len(some)

    def _commit_some(self, asked: OffsetCommitRequest, parts: Sequence[_Part], answer: _CommitAnswer) -> None:
        found = self._who_may_commit(asked)
        if isinstance(found, ErrorCode):
            answer.ended(parts, found)
            return
        offsets: dict[str, dict[int, CommittedOffset]] = {}
        now_ms = self._coordinator.burst.wall_ms()
        expires_ms = NO_TIMESTAMP_MS
        if asked.retention_time_ms >= 0:  # may be so long that the sum is no int64 any more
            expires_ms = min(now_ms + asked.retention_time_ms, LATEST_MS)
        for topic, part in parts:
            code = self._why_not(topic, part)
            if code is not ErrorCode.NONE:
                answer.codes[topic, part.partition_index] = code
                continue
            offsets.setdefault(topic, {})[part.partition_index] = CommittedOffset(
                part.committed_offset,
                part.committed_leader_epoch,
                part.committed_metadata or "",
                now_ms,
                expires_ms,
            )
        if offsets:
            self._coordinator.commit(found, offsets, partial(answer.ended, parts))
        else:
            answer.ended(parts, ErrorCode.NONE)
            self._coordinator.carry_out(found)

    def _who_may_commit(self, asked: OffsetCommitRequest) -> Coordinated | ErrorCode:
        found = self._coordinator.find(asked.group_id, is_needed=False)
        generation = asked.generation_id_or_member_epoch
        if found is ErrorCode.GROUP_ID_NOT_FOUND:
            if generation >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            found = self._coordinator.find_or_make(asked.group_id, is_needed=False)
        if isinstance(found, ErrorCode):
            return found
        now = self._coordinator.burst.now()
        code = found.group.commit(generation, asked.member_id, asked.group_instance_id, now, asked.commit_number)
        return found if code is ErrorCode.NONE else code

    def _why_not(self, topic: str, part: OffsetCommitRequestPartition) -> ErrorCode:
        metadata = part.committed_metadata
        if self._replicas.metadata.partition(topic, part.partition_index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if metadata and len(metadata.encode()) > self._replicas.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    # --- OffsetFetch -------------------------------------------------------------------------------------------

    def fetch(self, request: RequestInHand[OffsetFetchRequest]) -> Remainder | None:
        asked = request.message
        groups = [OffsetFetchRequestGroup(asked.group_id, asked.topics)] if asked.groups is None else asked.groups
        named = sum(len(topic.partition_indexes) for group in groups for topic in group.topics or ())
        if named > MAX_NAMED:  # they stand one list deeper than those that are counted before a request is made
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"an OffsetFetch of {named} partitions, {MAX_NAMED} at most")
        merged = _merged(groups)
        cost = 0
        for group in merged:
            cost += self._cost(group)
            if cost > PARTITIONS_PER_STEP:
                break
        return at_once_or_in_steps(self._fetch(request, merged), cost)

    def _cost(self, asked: OffsetFetchRequestGroup) -> int:
        cost = cost_of_finding(asked.group_id)
        if asked.topics is not None:
            return cost + sum(1 + len(topic.partition_indexes) for topic in asked.topics)
        found = self._coordinator.find(asked.group_id, is_needed=False)
        return cost + (found.offsets.count if isinstance(found, Coordinated) else 0)

    def _fetch(
        self, request: RequestInHand[OffsetFetchRequest], groups: list[OffsetFetchRequestGroup]
    ) -> Iterator[int]:
        answers: list[OffsetFetchResponseGroup] = []
        for asked in groups:
            found = self._coordinator.find(asked.group_id, is_needed=False)
            topics: list[OffsetFetchResponseTopic] = []
            if isinstance(found, Coordinated):
                yield from _read(found, asked.topics, topics)
                if (
                    self._coordinator.find(asked.group_id, is_needed=False) is not found
                ):  # it ended meanwhile, and others may have committed since
                    found = ErrorCode.NOT_COORDINATOR
            elif found is ErrorCode.GROUP_ID_NOT_FOUND:
                topics = _nothing(asked.topics or [], ErrorCode.NONE)
            if found is ErrorCode.GROUP_ID_NOT_FOUND or isinstance(found, Coordinated):
                answers.append(OffsetFetchResponseGroup(asked.group_id, topics))
            else:
                answers.append(OffsetFetchResponseGroup(asked.group_id, _nothing(asked.topics or [], found), found))
            yield cost_of_finding(asked.group_id)
        if request.message.groups is None:
            request.respond(OffsetFetchResponse(answers[0].error_code, answers[0].topics))
        else:
            request.respond(OffsetFetchResponse(0, groups=answers))

    # --- OffsetDelete ------------------------------------------------------------------------------------------

    def delete(self, request: RequestInHand[OffsetDeleteRequest]) -> Remainder | None:
        """Of topics that nobody in the group is subscribed to."""
        parts = [(topic.name, part.partition_index) for topic in request.message.topics for part in topic.partitions]
        return at_once_or_in_steps(self._delete(request, parts), len(parts), self._coordinator.burst.end)

    def _delete(self, request: RequestInHand[OffsetDeleteRequest], parts: list[tuple[str, int]]) -> Iterator[int]:
        """In pieces; members may have joined since the last one, and what they are subscribed to is kept."""
        topics, coordinator = request.message.topics, self._coordinator
        kept: set[tuple[str, int]] = set()
        outcomes = Outcomes(lambda code: request.respond(_deleted(topics, kept, code)))
        for place, some in enumerate(in_pieces(parts)):
            found = coordinator.find(request.message.group_id)
            subscribed = _subscribed(found.group) if isinstance(found, Coordinated) else found
            if subscribed is ErrorCode.GROUP_ID_NOT_FOUND and place:  # with its last offsets: there are none to delete
                break
            if isinstance(subscribed, ErrorCode):
                outcomes.one_more()(subscribed)
                break
            assert isinstance(found, Coordinated)
            removed: dict[str, list[int]] = {}
            for topic, index in some:
                if subscribed is None or topic in subscribed:
                    kept.add((topic, index))
                else:
                    removed.setdefault(topic, []).append(index)
            records = [
                record for topic, indexes in removed.items() for record in coordinator.remove(found, topic, indexes)
            ]
            coordinator.bury(found.shard, request.message.group_id, records, outcomes.one_more())
            yield len(some)
        outcomes.last()(ErrorCode.NONE)


def _subscribed(group: Group) -> frozenset[str] | ErrorCode | None:
    """The topics whose offsets stay; None: those of all. NON_EMPTY_GROUP: its members are no consumers."""
    if group.state is GroupState.EMPTY:
        return frozenset()
    return subscriptions(group) if group.protocol_type == CONSUMER else ErrorCode.NON_EMPTY_GROUP


class _CommitAnswer:
    """Given when the last of some pieces has ended. `codes`: of those that failed, by topic and partition."""

    def __init__(self, request: RequestInHand[OffsetCommitRequest], pieces: int) -> None:
        self.codes: dict[tuple[str, int], ErrorCode] = {}
        self._request = request
        self._open = pieces

    def ended(self, parts: Sequence[_Part], code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            for topic, part in parts:
                self.codes.setdefault((topic, part.partition_index), code)
        self._open -= 1
        if not self._open:
            self._request.respond(_committed(self._request.message, self.codes))


def _deleted(
    topics: Sequence[OffsetDeleteRequestTopic], kept: set[tuple[str, int]], code: ErrorCode
) -> OffsetDeleteResponse:
    if code is not ErrorCode.NONE:
        return OffsetDeleteResponse(code)
    answers = []
    for topic in topics:
        codes = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if (topic.name, part.partition_index) in kept else ErrorCode.NONE
            for part in topic.partitions
        ]
        parts = [
            OffsetDeleteResponsePartition(part.partition_index, each)
            for part, each in zip(topic.partitions, codes, strict=True)
        ]
        answers.append(OffsetDeleteResponseTopic(topic.name, parts))
    return OffsetDeleteResponse(0, answers)


def _committed(asked: OffsetCommitRequest, codes: dict[tuple[str, int], ErrorCode]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        [
            OffsetCommitResponseTopic(
                topic.name,
                [
                    OffsetCommitResponsePartition(
                        part.partition_index, codes.get((topic.name, part.partition_index), ErrorCode.NONE)
                    )
                    for part in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
    )


def _merged(groups: list[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Each group, topic and partition once: else naming one again and again multiplies the answer. A group that is
    asked for all of its offsets in one place is asked for all."""
    topics: dict[str, dict[str, dict[int, None]] | None] = {}
    for group in groups:
        known = topics.setdefault(group.group_id, {})
        if group.topics is None or known is None:
            topics[group.group_id] = None
            continue
        for topic in group.topics:
            known.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return [
        OffsetFetchRequestGroup(
            group_id,
            None if known is None else [OffsetFetchRequestTopic(name, list(parts)) for name, parts in known.items()],
        )
        for group_id, known in topics.items()
    ]


def _read(
    found: Coordinated, asked: list[OffsetFetchRequestTopic] | None, topics: list[OffsetFetchResponseTopic]
) -> Iterator[int]:
    """Adds to `topics`; None: all that is committed. Yields as `steps` counts."""
    offsets = found.offsets
    wanted = [OffsetFetchRequestTopic(name, []) for name in offsets.committed] if asked is None else asked
    for topic in wanted:
        parts: list[OffsetFetchResponsePartition] = []
        topics.append(OffsetFetchResponseTopic(topic.name, parts))
        indexes = topic.partition_indexes if asked is not None else sorted(offsets.committed.get(topic.name, ()))
        for some in in_pieces(indexes):
            known = [(index, offsets.get(topic.name, index)) for index in some]
            parts += [_partition(*each) for each in known if asked is not None or each[1] is not None]
            yield 1 + len(some)


def _partition(index: int, committed: CommittedOffset | None) -> OffsetFetchResponsePartition:
    if committed is None:
        return OffsetFetchResponsePartition(index)
    return OffsetFetchResponsePartition(index, committed.offset, committed.leader_epoch, committed.metadata)


def _nothing(asked: list[OffsetFetchRequestTopic], code: ErrorCode) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            topic.name, [OffsetFetchResponsePartition(index, error_code=code) for index in topic.partition_indexes]
        )
        for topic in asked
    ]
