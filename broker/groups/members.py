"""The members of one group, by their ids and by their instances: who waits for what, and what they all understand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import msgspec

from strandline.protocol.errors import ErrorCode
from strandline.protocol.group_records import can_hold
from strandline.protocol.messages import NO_COMMIT_NUMBER, JoinGroupRequest, JoinGroupRequestProtocol

NEVER = math.inf
PROTOCOLS_KEPT = 8
"""What members say with all their protocols may be so many times what one record holds: it holds what they say with one
of them, and clients know two or three."""
PROTOCOL_OVERHEAD_BYTES = 150
"""What a protocol takes in memory beside its name and what is said with it."""


class Client(msgspec.Struct, frozen=True, gc=False):
    """Who asks, as groups are described."""

    client_id: str
    host: str


class Member(msgspec.Struct, eq=False):
    """`expires_at`: monotonic seconds, moved by each heartbeat. `last_commit_number`: of its requests, as far as it
    counts them and this coordinator has heard since it loaded the group. `is_new`: it has not had the answer to its
    first join. `join`, `sync`: its requests that wait for their answers."""

    member_id: str
    group_instance_id: str | None
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: list[JoinGroupRequestProtocol]
    assignment: bytes = b""
    expires_at: float = NEVER
    last_commit_number: int = NO_COMMIT_NUMBER
    is_new: bool = True
    join: object | None = None
    sync: object | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """What it says with that protocol; nothing where it does not know it."""
        return next((known.metadata for known in self.protocols if known.name == protocol), b"")

    @property
    def may_expire(self) -> bool:
        """Who waits for an answer cannot send heartbeats. Of a new member nobody knows whether it still waits: it has
        no id yet, so it would come back as another one."""
        return self.is_new or (self.join is None and self.sync is None)

    def goes_on(self, commit_number: int) -> bool:
        """Whether it comes behind the last commit of this member, or belongs to it, or is not counted."""
        if commit_number == NO_COMMIT_NUMBER:
            return True
        goes_on = commit_number >= self.last_commit_number
        self.last_commit_number = max(commit_number, self.last_commit_number)
        return goes_on

    def is_late(self, now: float) -> bool:
        return self.expires_at <= now and self.may_expire


def size_of(protocols: list[JoinGroupRequestProtocol]) -> int:
    """In bytes, about."""
    return sum(len(known.name) + len(known.metadata) + PROTOCOL_OVERHEAD_BYTES for known in protocols)


class Members:
    """See the module. `leader` is the first member, or another one once that has left."""

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.joining = 0
        """How many wait for the answer to a join."""
        self.leader: str | None = None
        self._ids: dict[str, str] = {}
        """Instance → member id."""
        self._supporters: Counter[str] = Counter()
        """Protocol → how many know it."""
        self.size_bytes = 0
        """What they all say with all their protocols."""

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def id_of(self, group_instance_id: str | None) -> str | None:
        """Of the static member with that instance."""
        return None if group_instance_id is None else self._ids.get(group_instance_id)

    def check(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether that is a member: NONE, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where another one has taken the
        instance over (KIP-345)."""
        if group_instance_id is not None:
            known = self._ids.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.by_id else ErrorCode.UNKNOWN_MEMBER_ID

    # --- changes -----------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        assert member.member_id not in self.by_id
        self.by_id[member.member_id] = member
        self._learn_protocols(member)
        if member.group_instance_id is not None:
            self._ids[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Its requests have been answered by now."""
        assert member.join is None and member.sync is None
        del self.by_id[member.member_id]
        self._forget_protocols(member)
        if member.group_instance_id is not None:
            del self._ids[member.group_instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.by_id), None)

    def rename(self, member: Member, member_id: str) -> None:
        """A static member has come back, under a new id."""
        was_leader = self.leader == member.member_id
        self.remove(member)
        member.member_id = member_id
        member.last_commit_number = NO_COMMIT_NUMBER
        self.add(member)
        if was_leader:
            self.leader = member_id

    def set_protocols(self, member: Member, protocols: list[JoinGroupRequestProtocol]) -> None:
        self._forget_protocols(member)
        member.protocols = protocols
        self._learn_protocols(member)

    def _learn_protocols(self, member: Member) -> None:
        self.size_bytes += size_of(member.protocols)
        self._supporters.update({known.name for known in member.protocols})

    def _forget_protocols(self, member: Member) -> None:
        self.size_bytes -= size_of(member.protocols)
        for name in dict.fromkeys(known.name for known in member.protocols):
            self._supporters[name] -= 1
            if not self._supporters[name]:  # else every name that was ever said would be kept
                del self._supporters[name]

    def park_join(self, member: Member, request: object) -> None:
        assert member.join is None
        member.join = request
        self.joining += 1

    def take_join(self, member: Member) -> object | None:
        """Its join, which is to be answered now; None where it waits for none."""
        request, member.join = member.join, None
        self.joining -= request is not None
        return request

    def can_keep(self, asked: JoinGroupRequest, max_record_bytes: int) -> bool:
        """Whether what is said there may be kept, in place of what this member has said before: a record that the log
        takes could hold it."""
        if any(len(each.metadata) > max_record_bytes or not can_hold(each.name) for each in asked.protocols):
            return False
        if not can_hold(asked.protocol_type) or not can_hold(asked.group_instance_id or ""):
            return False
        known = self.by_id.get(self.id_of(asked.group_instance_id) or asked.member_id)
        others_bytes = self.size_bytes - (0 if known is None else size_of(known.protocols))
        return others_bytes + size_of(asked.protocols) <= PROTOCOLS_KEPT * max_record_bytes

    # --- what they have in common ------------------------------------------------------------------------------

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that one of them wants."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def share(self, protocols: list[JoinGroupRequestProtocol]) -> bool:
        """Whether one of these is known to all members."""
        return any(self._supporters[known.name] == len(self) for known in protocols)

    def elect_protocol(self) -> str:
        """Of those that all know, the one that most members like best."""
        votes: Counter[str] = Counter()
        for member in self:
            votes[next(known.name for known in member.protocols if self._supporters[known.name] == len(self))] += 1
        return votes.most_common(1)[0][0]

    def elect_leader_that_joined(self) -> bool:
        """Have one lead that takes part in the rebalance. False: nobody does."""
        if self.leader is None:
            return False
        if self.by_id[self.leader].join is not None:
            return True
        joined = next((member.member_id for member in self if member.join is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True
