"""A group's state machine in a test's hands: what members ask and are answered, the log, and the time."""

from __future__ import annotations

from typing import Any

from strandline.broker.groups.effects import Answer, GroupSettings, Write
from strandline.broker.groups.group import Group
from strandline.broker.groups.members import Client
from strandline.broker.groups.views import metadata
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    NO_COMMIT_NUMBER,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

SESSION_S = 10.0
REBALANCE_S = 60.0
DELAY_S = 3.0


class Asked:
    """A request, and its answers: there is to be one."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def answer(self) -> Any:
        """None while it waits."""
        assert len(self.answers) <= 1, "answered twice"
        found: Any = self.answers[0] if self.answers else None
        return found


class GroupSite:
    """Writes succeed at once unless `holds_writes`; then they wait in `writes`."""

    def __init__(self, *, max_size: int = 1000, delay_s: float = DELAY_S, group: Group | None = None) -> None:
        self.group = group or Group("g", GroupSettings(max_size, delay_s))
        self.now = 1000.0
        self.holds_writes = False
        self.writes: list[Write] = []
        self.log: list[Any] = []
        self.asked: list[Asked] = []
        self._ids = 0

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        given_id: bool = False,
        skips: bool = True,
        session_s: float = SESSION_S,
        rebalance_s: float = REBALANCE_S,
    ) -> Asked:
        """given_id: the client does not know MEMBER_ID_REQUIRED."""
        said = {"range": b"all"} if protocols is None else protocols
        request = JoinGroupRequest(
            "g",
            int(session_s * 1000),
            member_id,
            protocol_type,
            [JoinGroupRequestProtocol(*each) for each in said.items()],
            int(rebalance_s * 1000),
            instance,
            None,
            not given_id,
            skips,
        )
        asked = self._ask()
        self._ids += 1
        self.group.join(request, Client("client", "/host"), asked, f"m{self._ids}", self.now)
        self.carry_out()
        return asked

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Asked:
        given = [SyncGroupRequestAssignment(*each) for each in (assignments or {}).items()]
        asked = self._ask()
        request = SyncGroupRequest("g", generation, member_id, given, instance, protocol_type, protocol)
        self.group.sync(request, asked, self.now)
        self.carry_out()
        return asked

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        code = self.group.heartbeat(HeartbeatRequest("g", generation, member_id, instance), self.now)
        self.carry_out()
        return code

    def commit(
        self, member_id: str, generation: int, instance: str | None = None, number: int = NO_COMMIT_NUMBER
    ) -> ErrorCode:
        return self.group.commit(generation, member_id, instance, self.now, number)

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        code = self.group.leave(MemberIdentity(member_id, instance), self.now)
        self.carry_out()
        return code

    def pass_time(self, seconds: float) -> None:
        """The group is looked at whenever it wants to be."""
        until = self.now + seconds
        while self.group.look_at <= until:
            self.now = max(self.now, self.group.look_at)
            self.group.expire(self.now)
            assert self.group.look_at > self.now, "it would be looked at again and again"
            self.carry_out()
        self.now = until

    def wait_for(self, *asked: Asked) -> None:
        """Until they are answered."""
        while any(each.answer() is None for each in asked):
            self.pass_time(1)

    def written(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest write that is held is done."""
        self.group.written(self.writes.pop(0), code, self.now)
        self.carry_out()

    def end(self, code: ErrorCode) -> None:
        self.group.end(code)
        self.carry_out()

    def carry_out(self) -> None:
        for effect in self.group.take_effects():
            if isinstance(effect, Answer):
                assert isinstance(effect.request, Asked)
                effect.request.answers.append(effect.message)
                continue
            self.log.append(metadata(self.group, effect, int(self.now * 1000)))
            self.writes.append(effect)
        if not self.holds_writes and self.writes:
            self.written()

    def _ask(self) -> Asked:
        self.asked.append(Asked())
        return self.asked[-1]

    # --- longer ways -------------------------------------------------------------------------------------------

    def stable(self, count: int, *, instances: bool = False) -> list[str]:
        """That many members of a stable group; the first leads."""
        joins = [self.join(given_id=True, instance=f"i{number}" if instances else None) for number in range(count)]
        self.wait_for(*joins)
        ids = [join.answer().member_id for join in joins]
        generation = self.group.generation
        syncs = [self.sync(each, generation) for each in ids[1:]]
        syncs.append(self.sync(ids[0], generation, {each: each.encode() for each in ids}))
        assert all(sync.answer().error_code == 0 for sync in syncs)
        return ids
