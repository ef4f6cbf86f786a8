"""The state machine of one member: alone, and many of them with the coordinator's own, in any order of events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strandline.broker.groups.effects import Answer, GroupSettings, Write
from strandline.broker.groups.group import Group
from strandline.broker.groups.members import Client
from strandline.broker.groups.states import GroupState
from strandline.client.errors import AnsweredError, FencedInstance
from strandline.client.groups.assignors import ASSIGNORS, RebalanceProtocol
from strandline.client.groups.membership import Change, Identity, Membership, Phase, Told, Wish
from strandline.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from strandline.protocol.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
HEARTBEAT_S, POLL_S = 3.0, 60.0


def a_membership(*, cooperative: bool = False) -> Membership:
    return Membership(["t"], is_cooperative=cooperative, heartbeat_interval_s=HEARTBEAT_S, max_poll_interval_s=POLL_S)


def granted(generation: int, *, member_id: str = "m", leader: str = "m") -> JoinGroupResponse:
    return JoinGroupResponse(0, generation, "consumer", "range", leader, member_id)


def in_group(*partitions: TopicPartition, cooperative: bool = False) -> Membership:
    """A member of generation 1 that has been told what it owns."""
    member = a_membership(cooperative=cooperative)
    member.polled(0.0)
    member.join()
    member.joined(granted(1))
    member.synced(partitions, 0.0)
    tell(member)
    return member


def tell(member: Membership) -> list[Change]:
    """Everything that there is to tell."""
    told = []
    while (change := member.begin()) is not None:
        told.append(change)
        member.finish()
    return told


def test_nobody_joins_before_the_first_poll() -> None:
    member = a_membership()
    assert member.wish(0.0) is None
    member.waits_in_poll()
    assert member.wish(0.0) is Wish.JOIN


def test_heartbeats_go_on_whatever_the_program_does() -> None:
    member = in_group(A)
    assert member.wish(HEARTBEAT_S - 0.1) is None
    assert member.next_time(0.0) == HEARTBEAT_S
    assert member.wish(HEARTBEAT_S) is Wish.HEARTBEAT
    member.beat(HEARTBEAT_S)
    assert member.wish(HEARTBEAT_S) is None
    member.refused(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.wish(2 * HEARTBEAT_S) is Wish.HEARTBEAT, "the program has yet to be told"


def test_eager_gives_all_up_before_it_joins_and_cooperative_only_what_is_anothers() -> None:
    eager = in_group(A, B)
    eager.refused(ErrorCode.REBALANCE_IN_PROGRESS)
    assert eager.wish(0.0) is None
    assert tell(eager) == [Change(Told.REVOKED, (A, B))]
    assert eager.wish(0.0) is Wish.JOIN
    assert eager.join()[1:] == ((), (A, B), 1), "it had them"

    cooperative = in_group(A, B, cooperative=True)
    cooperative.refused(ErrorCode.REBALANCE_IN_PROGRESS)
    assert tell(cooperative) == []
    assert cooperative.wish(0.0) is Wish.JOIN
    assert cooperative.join()[1:3] == ((A, B), (A, B))
    cooperative.joined(granted(2))
    cooperative.synced([B, C], 0.0)
    assert tell(cooperative) == [Change(Told.REVOKED, (A,)), Change(Told.ASSIGNED, (C,))]
    assert cooperative.wish(0.0) is Wish.JOIN, "so that the other one gets it"
    assert cooperative.join()[1:] == ((B, C), (B, C), 2)


@pytest.mark.parametrize(
    ("code", "identity"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, Identity("", -1)),
        (ErrorCode.ILLEGAL_GENERATION, Identity("m", -1)),
    ],
)
def test_who_was_let_go_loses_what_it_had_and_joins_again(code: ErrorCode, identity: Identity) -> None:
    member = in_group(A, cooperative=True)
    member.refused(code)
    assert (member.identity, member.wish(0.0)) == (identity, None), "first the program is told"
    assert tell(member) == [Change(Told.LOST, (A,))]
    assert member.wish(0.0) is Wish.JOIN
    assert member.join().owned == ()


def test_what_was_to_be_revoked_may_be_lost_before_it_is() -> None:
    member = in_group(A, B)
    member.refused(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.begin() == Change(Told.REVOKED, (A, B))
    member.refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert tell(member) == [Change(Told.LOST, (A, B))]


def test_what_is_assigned_while_the_member_is_let_go_is_lost() -> None:
    member = in_group()
    member.refused(ErrorCode.REBALANCE_IN_PROGRESS)
    member.join()
    member.joined(granted(2))
    member.synced([A], 0.0)
    assert member.begin() == Change(Told.ASSIGNED, (A,))
    member.refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.wish(0.0) is None, "the callback runs"
    member.finish()
    assert tell(member) == [Change(Told.LOST, (A,))]


def test_who_does_not_poll_leaves_and_joins_by_the_next_poll() -> None:
    member = in_group(A)
    member.polled(1.0)
    assert member.next_time(HEARTBEAT_S) == 1.0 + POLL_S
    assert member.wish(1.0 + POLL_S) is Wish.LEAVE
    member.left()
    assert member.wish(1.0 + POLL_S) is None
    member.waits_in_poll()
    assert member.wish(1.0 + POLL_S) is None
    assert tell(member) == [Change(Told.LOST, (A,))]
    assert member.wish(10 * POLL_S) is Wish.JOIN, "a poll may last"


def test_topics_that_change_meanwhile_are_joined_for_again() -> None:
    member = in_group(A, cooperative=True)
    member.refused(ErrorCode.REBALANCE_IN_PROGRESS)
    member.join()
    member.subscribe(["u"])
    member.joined(granted(2))
    member.synced([A], 0.0)
    assert tell(member) == [Change(Told.ASSIGNED, ()), Change(Told.REVOKED, (A,))]
    assert member.wish(0.0) is Wish.JOIN
    assert member.join().topics == ("u",)


def test_the_program_is_told_what_it_has_to_mend_once_and_of_a_fenced_instance_always() -> None:
    member = in_group(A)
    member.refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert member.wish(0.0) is None
    assert isinstance(member.take_failure(), AnsweredError)
    assert tell(member) == [Change(Told.LOST, (A,))]
    assert member.wish(0.0) is Wish.JOIN
    member.refused(ErrorCode.FENCED_INSTANCE_ID)
    assert [type(member.take_failure()) for _ in range(2)] == [FencedInstance] * 2
    assert member.wish(0.0) is None


def test_the_leader_assigns_again_when_topics_have_other_partitions() -> None:
    for leader, wish in (("m", Wish.JOIN), ("other", None)):
        member = in_group(cooperative=True)
        member.join()
        member.joined(granted(2, leader=leader))
        member.synced([], 0.0)
        tell(member)
        member.layout_changed()
        assert member.wish(0.0) is wish


# --- many members and their coordinator ------------------------------------------------------------------------------

PARTITIONS = {"t": 5}
SESSION_S = 10.0
CLIENT = Client("client", "/host")


class Process:
    """A program with a member, and what is under way between it and the coordinator."""

    def __init__(self, strategies: tuple[str, ...]) -> None:
        self.strategies = strategies
        self.member = Membership(
            ["t"],
            is_cooperative=all(ASSIGNORS[n].protocol is RebalanceProtocol.COOPERATIVE for n in strategies),
            heartbeat_interval_s=HEARTBEAT_S,
            max_poll_interval_s=POLL_S,
        )
        self.waits_for: object | None = None
        self.answer: JoinGroupResponse | SyncGroupResponse | None = None
        self.members: list = []
        self.is_dead = False


class ManyMembers(RuleBasedStateMachine):
    """Rules: time passes, programs poll or do not, requests are carried out, answered, or lost with a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.group = Group("g", GroupSettings(initial_delay_s=1.0, max_size=100))
        self.processes: list[Process] = []
        self.writes: list[Write] = []
        self.fresh_ids = 0
        self.is_cooperative = False

    @property
    def alive(self) -> list[Process]:
        return [each for each in self.processes if not each.is_dead]

    @rule(cooperative=st.booleans())
    @precondition(lambda self: len(self.alive) < 4)
    def start(self, cooperative: bool) -> None:
        if not self.processes:
            self.is_cooperative = cooperative
        self.processes.append(Process(("cooperative-sticky",) if self.is_cooperative else ("sticky", "range")))

    @rule(data=st.data())
    @precondition(lambda self: self.alive)
    def kill(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.alive)).is_dead = True

    @rule(data=st.data())
    @precondition(lambda self: self.alive)
    def poll(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from(self.alive))
        process.member.waits_in_poll()
        process.member.take_failure()
        tell(process.member)
        process.member.polled(self.now)

    @rule(data=st.data())
    @precondition(lambda self: self.alive)
    def ask(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from(self.alive))
        if process.waits_for is None and process.answer is None:
            self._ask(process, process.member.wish(self.now))

    @rule(data=st.data())
    @precondition(lambda self: any(each.answer is not None for each in self.alive))
    def hear(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from([each for each in self.alive if each.answer is not None]))
        answer, process.answer = process.answer, None
        if isinstance(answer, JoinGroupResponse):
            process.members = answer.members
            process.member.joined(answer)
        elif isinstance(answer, SyncGroupResponse):
            if answer.error_code:
                process.member.not_synced(answer.error_code)
            else:
                process.member.synced(decode_assignment(answer.assignment).partitions, self.now)

    @rule(data=st.data())
    @precondition(lambda self: any(each.waits_for is not None for each in self.alive))
    def lose_connection(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from([each for each in self.alive if each.waits_for is not None]))
        process.waits_for = None
        if process.member.phase is Phase.SYNCING:
            process.member.not_synced()

    @rule(is_well=st.booleans())
    @precondition(lambda self: self.writes)
    def written(self, is_well: bool) -> None:
        code = ErrorCode.NONE if is_well else ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.group.written(self.writes.pop(0), code, self.now)
        self._carry_out()

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 11.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.group.expire(self.now)
        self._carry_out()

    def _ask(self, process: Process, wish: Wish | None) -> None:
        member, request = process.member, object()
        if wish is Wish.JOIN:
            self._join(process, request)
        elif wish is Wish.SYNC:
            process.waits_for = request
            identity = member.identity
            slots = list(self._assigned(process))
            self.group.sync(SyncGroupRequest("g", identity.generation, identity.member_id, slots), request, self.now)
        elif wish is Wish.HEARTBEAT:
            identity = member.identity
            code = self.group.heartbeat(HeartbeatRequest("g", identity.generation, identity.member_id), self.now)
            member.beat(self.now)
            if code is not ErrorCode.NONE:
                member.refused(code)
        elif wish is Wish.LEAVE:
            self.group.leave(MemberIdentity(member.identity.member_id), self.now)
            member.left()
        self._carry_out()

    def _join(self, process: Process, request: object) -> None:
        said = process.member.join()
        self.fresh_ids += 1
        process.waits_for = request
        protocols = [
            JoinGroupRequestProtocol(
                name,
                encode_subscription(
                    Subscription(
                        said.topics,
                        ASSIGNORS[name].user_data(said.had, said.generation),
                        said.owned,
                        said.generation,
                    )
                ),
            )
            for name in process.strategies
        ]
        asked = JoinGroupRequest(
            "g", int(SESSION_S * 1000), process.member.identity.member_id, "consumer", protocols, int(POLL_S * 1000)
        )
        self.group.join(asked, CLIENT, request, f"m{self.fresh_ids}", self.now)

    def _assigned(self, process: Process) -> Iterator[SyncGroupRequestAssignment]:
        if process.members:
            said = {each.member_id: decode_subscription(each.metadata) for each in process.members}
            for member_id, given in ASSIGNORS[process.member.protocol].assign(said, PARTITIONS).items():
                yield SyncGroupRequestAssignment(member_id, encode_assignment(Assignment(given)))

    def _carry_out(self) -> None:
        for effect in self.group.take_effects():
            if isinstance(effect, Write):
                self.writes.append(effect)
            else:
                assert isinstance(effect, Answer)
                for process in self.processes:
                    if process.waits_for is effect.request:
                        process.waits_for, process.answer = None, effect.message

    def _is_current(self, process: Process) -> bool:
        """The group takes it for a member of this generation, so that it may commit."""
        identity = process.member.identity
        return self.group.generation == identity.generation and identity.member_id in self.group.members.by_id

    @invariant()
    def nothing_has_two_owners_of_one_generation(self) -> None:
        owned = [
            partition
            for process in self.alive
            if self._is_current(process) and process.member.phase is Phase.IN
            for partition in process.member.owned
        ]
        assert len(owned) == len(set(owned))

    @invariant()
    def what_is_owned_is_told_and_a_member_that_may_own_is_in(self) -> None:
        for process in self.processes:
            member = process.member
            if member.phase is Phase.OUT and member.owned:
                assert member._is_lost or member.in_hand is not None

    def teardown(self) -> None:
        """In peace everybody ends with something, and everything has an owner."""
        for _ in range(200):
            self.now += 1.0
            self.group.expire(self.now)
            self._carry_out()
            while self.writes:
                self.group.written(self.writes.pop(0), ErrorCode.NONE, self.now)
                self._carry_out()
            for process in self.alive:
                process.member.waits_in_poll()
                tell(process.member)
                if process.answer is not None:
                    answer, process.answer = process.answer, None
                    if isinstance(answer, JoinGroupResponse):
                        process.members = answer.members
                        process.member.joined(answer)
                    elif answer.error_code:
                        process.member.not_synced(answer.error_code)
                    else:
                        process.member.synced(decode_assignment(answer.assignment).partitions, self.now)
                elif process.waits_for is None:
                    self._ask(process, process.member.wish(self.now))
        owned = [partition for process in self.alive for partition in process.member.owned]
        if self.alive:
            assert self.group.state is GroupState.STABLE
            assert sorted(owned) == [TopicPartition("t", number) for number in range(PARTITIONS["t"])]
            assert all(process.member.owned for process in self.alive)


ManyMembers.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
test_many_members_and_their_coordinator = ManyMembers.TestCase
