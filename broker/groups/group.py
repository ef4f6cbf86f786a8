"""One group of the classic protocol: a pure state machine. Events come in as calls, effects go out by `take_effects`.

A rebalance, by the states of `states`:

    1 somebody comes, leaves, is late or says something new: PreparingRebalance. All members have to join again; a
      heartbeat tells them.
    2 when all have, or after the longest of their rebalance timeouts (without those that have not): the next
      generation begins, CompletingRebalance. Each join is answered, the leader's with what everybody said.
    3 the leader's SyncGroup brings the assignments. They are written down (`Write`) before anybody is told.
    4 `written`: Stable. Each SyncGroup is answered; one that comes later is answered at once.

Rules:
* Each request that is parked here (`join`, `sync`) is answered once, whatever becomes of the group.
* The generation never goes back; what names another one, or a member that is none, changes nothing (invariant 40).
* Times are monotonic seconds and come from outside. `look_at`: when the group wants `expire` to be called at the
  latest; deadlines that move on later do not move it, so a heartbeat costs no more than its own.

Source of the rules: Kafka's GroupCoordinator, KIP-62, 134 (initial delay), 345 (static members), 389 (sizes), 394
(member ids), 559 (names are checked), 814 (the leader that comes back assigns nothing).
"""

from __future__ import annotations

import math

from strandline.broker.groups.effects import Answer, Effect, GroupSettings, Rejoined, Write
from strandline.broker.groups.members import NEVER, Client, Member, Members
from strandline.broker.groups.states import COMMIT, HEARTBEAT, GroupState, check_move
from strandline.broker.groups.views import joined
from strandline.protocol.errors import ErrorCode
from strandline.protocol.group_records import GroupMember, GroupMetadata
from strandline.protocol.messages import (
    NO_GENERATION,
    NO_MEMBER,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)

NEW_MEMBER_JOIN_TIMEOUT_S = 300.0
"""A new member whose first join is not answered by then is let go (Kafka's figure): it does not know its id, so it
would come back as another one."""
MAX_PENDING = 10_000
"""Ids that are given out and that nobody has joined with: more than members start at once. Each is a name that anybody
can have kept for as long as a session may be."""
LEAST_PHASE_S = 1.0
"""A phase of a rebalance lasts so long, even where a member's rebalance timeout is 0: else a group of static members
that are away would begin anew without end."""


class Group:
    """See the module."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = Members()
        self.written_at_ms = -1
        """When what it is now was last written down, ms since 1970; of an empty group: when it became empty."""
        self.is_in_log = False
        """Whether the log knows it, or may: forgetting it takes a tombstone."""
        self.look_at = NEVER
        self._pending: dict[str, float] = {}
        """Ids that were given out and that nobody has joined with yet → until when they are good."""
        self._unsynced: dict[str, None] = {}
        """Members of this generation that have not asked for their assignment."""
        self._being_written = NO_GENERATION
        """The generation whose assignments are under way to the log."""
        self._join_ends_at = self._sync_ends_at = NEVER
        self._more_delay_s = 0.0
        """How much longer the members of a group that was empty may be waited for, if more come."""
        self._grew = False
        self._effects: list[Effect] = []

    @classmethod
    def loaded(cls, found: GroupMetadata, settings: GroupSettings, now: float) -> Group:
        """As the log has it: stable or empty. All sessions begin anew."""
        group = cls(found.group, settings)
        group.is_in_log = True
        group.generation = found.generation
        group.protocol_type = found.protocol_type or None
        group.written_at_ms = found.current_state_timestamp_ms
        if not found.members:
            return group
        group.state, group.protocol = GroupState.STABLE, found.protocol
        for known in found.members:
            if known.member_id in group.members.by_id or group.members.id_of(known.group_instance_id) is not None:
                continue  # stands there twice, which nobody writes
            member = Member(
                known.member_id,
                known.group_instance_id,
                Client(known.client_id, known.client_host),
                known.session_timeout_ms,
                _rebalance_timeout_ms(known),
                [JoinGroupRequestProtocol(found.protocol or "", known.subscription)],
                known.assignment,
                is_new=False,
            )
            group.members.add(member)
            group._begin_session(member, now)
        if found.leader in group.members.by_id:
            group.members.leader = found.leader
        if len(group.members) > settings.max_size:
            group._prepare(now)
        return group

    def take_effects(self) -> list[Effect]:
        """What is to be done for the calls since the last time, in this order."""
        effects, self._effects = self._effects, []
        return effects

    # --- 1: join -----------------------------------------------------------------------------------------------

    def join(self, asked: JoinGroupRequest, client: Client, request: object, fresh_id: str, now: float) -> None:
        """A JoinGroup whose session timeout is allowed. `fresh_id`: nobody's yet. Answered now or later."""
        refusal = self._why_not_join(asked)
        if refusal is not ErrorCode.NONE:
            self._refuse_join(request, refusal, asked.member_id)
        elif asked.member_id in self.members.by_id:
            self._join_again(asked, client, request, now)
        elif (replaced := self.members.id_of(asked.group_instance_id)) is not None:
            self._come_back(self.members.by_id[replaced], asked, client, request, fresh_id, now)
        elif asked.member_id == NO_MEMBER and asked.group_instance_id is None and asked.joins_again_with_its_id:
            if len(self._pending) >= MAX_PENDING:
                self._refuse_join(request, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
                return
            self._pending[fresh_id] = self._wants_look(now + asked.session_timeout_ms / 1000)
            self._refuse_join(request, ErrorCode.MEMBER_ID_REQUIRED, fresh_id)
        else:
            self._add(asked, client, request, asked.member_id or fresh_id, now)
        self._complete_join_if_all_are_there(now)

    def _why_not_join(self, asked: JoinGroupRequest) -> ErrorCode:
        """In Kafka's order: room, state, protocols, identity."""
        member_id, state = asked.member_id, self.state
        if state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._has_room_for(member_id or self.members.id_of(asked.group_instance_id) or NO_MEMBER):
            if member_id in self.members.by_id:  # the limit was lowered: who comes last finds no place
                self._let_go(self.members.by_id[member_id])
            self._pending.pop(member_id, None)
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._understands(asked):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if member_id == NO_MEMBER or (member_id in self._pending and asked.group_instance_id is None):
            return ErrorCode.NONE
        return self.members.check(member_id, asked.group_instance_id)

    def _has_room_for(self, member_id: str) -> bool:
        """While a rebalance is prepared, those count that have joined it."""
        if self.state is GroupState.EMPTY:
            return True
        known = self.members.by_id.get(member_id)
        if self.state is GroupState.PREPARING:
            return (known is not None and known.join is not None) or self.members.joining < self.settings.max_size
        return known is not None or len(self.members) < self.settings.max_size

    def _understands(self, asked: JoinGroupRequest) -> bool:
        if not asked.protocol_type or not asked.protocols:
            return False
        return not len(self.members) or (
            asked.protocol_type == self.protocol_type and self.members.share(asked.protocols)
        )

    def _add(self, asked: JoinGroupRequest, client: Client, request: object, member_id: str, now: float) -> None:
        self._pending.pop(member_id, None)
        rebalance_timeout_ms = _rebalance_timeout_ms(asked)
        member = Member(
            member_id,
            asked.group_instance_id,
            client,
            asked.session_timeout_ms,
            rebalance_timeout_ms,
            asked.protocols,
            expires_at=self._wants_look(now + NEW_MEMBER_JOIN_TIMEOUT_S),
        )
        if not len(self.members):
            self.protocol_type = asked.protocol_type
        self.members.add(member)
        self.members.park_join(member, request)
        self._grew = True
        self._rebalance(now)

    def _join_again(self, asked: JoinGroupRequest, client: Client, request: object, now: float) -> None:
        """A member joins. In a generation that it need not leave it is told of that one again."""
        member = self.members.by_id[asked.member_id]
        says_the_same = member.protocols == asked.protocols
        is_leader = self.members.leader == member.member_id
        if says_the_same and (
            self.state is GroupState.COMPLETING or (self.state is GroupState.STABLE and not is_leader)
        ):
            self._begin_session(member, now)
            self._effects.append(Answer(request, joined(self, member)))
            return
        self._update(member, asked, client)
        self._refuse_parked(member, ErrorCode.REBALANCE_IN_PROGRESS)  # it has given that request up
        self.members.park_join(member, request)
        self._rebalance(now)

    def _come_back(
        self, member: Member, asked: JoinGroupRequest, client: Client, request: object, fresh_id: str, now: float
    ) -> None:
        """A static member was started anew, and gets a new id (KIP-345). The old one is fenced. A stable group goes on
        as it is, once the new id is written down, unless that changes its protocol."""
        led_by = self.members.leader
        self._refuse_parked(member, ErrorCode.FENCED_INSTANCE_ID)
        self._unsynced.pop(member.member_id, None)
        self.members.rename(member, fresh_id)
        self._begin_session(member, now)
        self._update(member, asked, client)
        self.members.park_join(member, request)
        if self.state is not GroupState.STABLE or self.members.elect_protocol() != self.protocol:
            self._rebalance(now)
            return
        if asked.understands_skip_assignment:
            answer = joined(self, member, skip_assignment=self.members.leader == fresh_id)
        else:  # it would assign if it believed that it leads
            answer = joined(self, member, leader=led_by, is_told_members=False)
        assignments = {known.member_id: known.assignment for known in self.members}
        self._effects.append(Write(self.generation, assignments, Rejoined(member, request, answer)))

    def _update(self, member: Member, asked: JoinGroupRequest, client: Client) -> None:
        self.members.set_protocols(member, asked.protocols)
        member.client = client
        member.session_timeout_ms = asked.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout_ms(asked)

    def _rebalance(self, now: float) -> None:
        if self.state is not GroupState.PREPARING:
            self._prepare(now)

    def _prepare(self, now: float) -> None:
        was_empty = self.state is GroupState.EMPTY
        for member in self.members:
            self._refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._move_to(GroupState.PREPARING)
        self._unsynced.clear()
        self._sync_ends_at = NEVER
        timeout_s = self._phase_s()
        if was_empty:
            delay_s = self.settings.initial_delay_s
            self._more_delay_s, self._grew = max(timeout_s - delay_s, 0.0), False
            self._join_ends_at = self._wants_look(now + delay_s)
        else:
            self._more_delay_s = math.nan
            self._join_ends_at = self._wants_look(now + timeout_s)

    # --- 2: the next generation --------------------------------------------------------------------------------

    def _complete_join_if_all_are_there(self, now: float) -> None:
        if (
            self.state is GroupState.PREPARING
            and math.isnan(self._more_delay_s)
            and self.members.joining == len(self.members)
            and not self._pending
        ):
            self._complete_join(now)

    def _join_time_is_over(self, now: float) -> None:
        """A group that was empty waits on for as long as members come, up to their rebalance timeout."""
        if self._grew and self._more_delay_s > 0:
            delay_s = min(self.settings.initial_delay_s, self._more_delay_s)
            self._more_delay_s, self._grew = self._more_delay_s - delay_s, False
            self._join_ends_at = self._wants_look(now + delay_s)
        else:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        members = self.members
        for member in [late for late in members if late.join is None and late.group_instance_id is None]:
            self._let_go(member)
        if len(members) and not members.elect_leader_that_joined():
            self._more_delay_s = math.nan  # static members only, and none is there: until their sessions end
            self._join_ends_at = self._wants_look(now + self._phase_s())
            return
        self._join_ends_at = NEVER
        self.generation += 1
        if not len(members):
            self.protocol = None
            self._move_to(GroupState.EMPTY)
            self._effects.append(Write(self.generation, {}))
            return
        self.protocol = members.elect_protocol()
        self._move_to(GroupState.COMPLETING)
        for member in members:
            request = members.take_join(member)
            member.is_new = False
            self._begin_session(member, now)
            self._unsynced[member.member_id] = None
            if request is not None:
                self._effects.append(Answer(request, joined(self, member)))
        self._sync_ends_at = self._wants_look(now + self._phase_s())

    # --- 3, 4: sync --------------------------------------------------------------------------------------------

    def sync(self, asked: SyncGroupRequest, request: object, now: float) -> None:
        """A SyncGroup; answered now or later."""
        refusal = self._why_not_sync(asked)
        if refusal is not ErrorCode.NONE:
            self._effects.append(Answer(request, SyncGroupResponse(refusal)))
            return
        member = self.members.by_id[asked.member_id]
        self._unsynced.pop(member.member_id, None)
        self._begin_session(member, now)
        if self.state is GroupState.STABLE:
            self._effects.append(Answer(request, self._synced(member)))
            return
        self._refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, now)  # it has given that request up
        member.sync = request
        if self.members.leader == member.member_id and self._being_written != self.generation:
            given = {each.member_id: each.assignment for each in asked.assignments}
            self._being_written = self.generation
            assignments = {known.member_id: given.get(known.member_id, b"") for known in self.members}
            self._effects.append(Write(self.generation, assignments))

    def _why_not_sync(self, asked: SyncGroupRequest) -> ErrorCode:
        refusal = self._why_no_member(asked.member_id, asked.group_instance_id, asked.generation_id)
        if refusal is not ErrorCode.NONE:
            return refusal
        if asked.protocol_type not in (None, self.protocol_type) or (
            self.protocol is not None and asked.protocol_name not in (None, self.protocol)
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def written(self, write: Write, code: ErrorCode, now: float) -> None:
        """A `Write` is committed (NONE), or failed with what members are to be told. What it was for may be over."""
        is_of_this_generation = write.generation == self.generation
        if write.rejoined is not None:
            member, request, answer = write.rejoined
            if member.join is request and self.state is GroupState.STABLE:
                # After a failure the log has the old id: whoever coordinates next fences this member, which joins anew.
                self.members.take_join(member)
                self._begin_session(member, now)
                message = answer if code is ErrorCode.NONE else JoinGroupResponse(code, self.generation)
                self._effects.append(Answer(request, message))
        elif is_of_this_generation and self.state is GroupState.COMPLETING:
            self._being_written = NO_GENERATION
            if code is not ErrorCode.NONE:
                for member in self.members:
                    self._refuse_sync(member, code, now)
                self._rebalance(now)
                return
            self._move_to(GroupState.STABLE)
            for member in self.members:
                member.assignment = write.assignments[member.member_id]
                request, member.sync = member.sync, None
                if request is not None:
                    self._begin_session(member, now)
                    self._effects.append(Answer(request, self._synced(member)))

    def _synced(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(0, self.protocol_type, self.protocol, member.assignment)

    # --- members that stay, and that go ------------------------------------------------------------------------

    def heartbeat(self, asked: HeartbeatRequest, now: float) -> ErrorCode:
        """Called for every member every few seconds."""
        refusal = self._why_no_member(asked.member_id, asked.group_instance_id, asked.generation_id)
        if refusal is not ErrorCode.NONE:
            return refusal
        member = self.members.by_id[asked.member_id]
        member.expires_at = now + member.session_timeout_ms / 1000
        return HEARTBEAT[self.state]

    def commit(self, generation: int, member_id: str, instance_id: str | None, now: float, number: int) -> ErrorCode:
        """Whether who says to be that may commit; counts as a heartbeat of a member. number: see
        `OffsetCommitRequest`."""
        if generation < 0 and member_id == NO_MEMBER and instance_id is None:  # who is no member
            if self.state is GroupState.DEAD:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return ErrorCode.NONE if self.state is GroupState.EMPTY else ErrorCode.UNKNOWN_MEMBER_ID
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        refusal = self._why_no_member(member_id, instance_id, generation)
        if refusal is not ErrorCode.NONE:
            return refusal
        member = self.members.by_id[member_id]
        if not member.goes_on(number):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        member.expires_at = now + member.session_timeout_ms / 1000
        return COMMIT[self.state]

    def leave(self, who: MemberIdentity, now: float) -> ErrorCode:
        """One member of a LeaveGroup; an operator names a static one by its instance alone."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        member_id: str | None = who.member_id
        if member_id == NO_MEMBER:
            member_id = self.members.id_of(who.group_instance_id)
        elif member_id in self._pending:
            del self._pending[member_id]
            self._complete_join_if_all_are_there(now)
            return ErrorCode.NONE
        if member_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        refusal = self.members.check(member_id, who.group_instance_id)
        if refusal is ErrorCode.NONE:
            self._let_go(self.members.by_id[member_id])
            self._after_a_departure(now)
        return refusal

    def expire(self, now: float) -> None:
        """Let go of who is late, and end phases whose time is over."""
        if self.state is not GroupState.DEAD:
            for member_id in [each for each, until in self._pending.items() if until <= now]:
                del self._pending[member_id]
            late = [member for member in self.members if member.is_late(now)]
            if self._sync_ends_at <= now:
                self._sync_ends_at = NEVER
                late += [member for each in self._unsynced if not (member := self.members.by_id[each]).is_late(now)]
            for member in late:
                self._let_go(member)
            if late:
                self._after_a_departure(now)
            self._complete_join_if_all_are_there(now)
            if self._join_ends_at <= now:
                self._join_time_is_over(now)
        self.look_at = min(
            (member.expires_at for member in self.members if member.may_expire),
            default=NEVER,
        )
        self._wants_look(min((*self._pending.values(), self._join_ends_at, self._sync_ends_at)))

    def end(self, code: ErrorCode) -> None:
        """It is deleted, or its coordinator moves: who waits is told so."""
        for member in self.members:
            self._refuse_parked(member, code)
        self._move_to(GroupState.DEAD)
        self.look_at = NEVER

    def _why_no_member(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """NONE for a member of this generation."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group_instance_id is not None or member_id not in self.members.by_id:
            refusal = self.members.check(member_id, group_instance_id)
            if refusal is not ErrorCode.NONE:
                return refusal
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def _let_go(self, member: Member) -> None:
        self._refuse_parked(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._unsynced.pop(member.member_id, None)
        self.members.remove(member)

    def _after_a_departure(self, now: float) -> None:
        if self.state is not GroupState.EMPTY:
            self._rebalance(now)
        self._complete_join_if_all_are_there(now)

    # --- answers and times -------------------------------------------------------------------------------------

    def _refuse_join(self, request: object, code: ErrorCode, member_id: str) -> None:
        self._effects.append(Answer(request, JoinGroupResponse(code, member_id=member_id)))

    def _refuse_parked(self, member: Member, code: ErrorCode) -> None:
        """Both requests that it may have here."""
        request = self.members.take_join(member)
        if request is not None:
            is_unknown = code is ErrorCode.UNKNOWN_MEMBER_ID
            self._refuse_join(request, code, NO_MEMBER if is_unknown else member.member_id)
        request, member.sync = member.sync, None
        if request is not None:
            self._effects.append(Answer(request, SyncGroupResponse(code)))

    def _refuse_sync(self, member: Member, code: ErrorCode, now: float) -> None:
        request, member.sync = member.sync, None
        if request is not None:
            self._begin_session(member, now)
            self._effects.append(Answer(request, SyncGroupResponse(code)))

    def _begin_session(self, member: Member, now: float) -> None:
        member.expires_at = self._wants_look(now + member.session_timeout_ms / 1000)

    def _phase_s(self) -> float:
        """How long its members are waited for."""
        return max(self.members.rebalance_timeout_ms / 1000, LEAST_PHASE_S)

    def _wants_look(self, at: float) -> float:
        if at < self.look_at:
            self.look_at = at
        return at

    def _move_to(self, state: GroupState) -> None:
        check_move(self.state, state)
        self.state = state

    # --- what it is --------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Nobody is in it, or about to be."""
        return self.state is GroupState.EMPTY and not self._pending


def _rebalance_timeout_ms(said: JoinGroupRequest | GroupMember) -> int:
    return said.rebalance_timeout_ms if said.rebalance_timeout_ms >= 0 else said.session_timeout_ms
