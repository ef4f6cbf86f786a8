"""A group under any order of what members do, of what becomes of writes, and of time (invariant 40).

The model knows what was answered, and nothing of the machine's own state:

* each request that was parked is answered once;
* the generation never goes back, and in one generation nobody else owns a slot that somebody was given;
* who was told that it is no member, or that the group has gone on, never commits;
* when nobody does anything any more, everybody is told and the group is empty, in the log, too.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strandline.broker.groups.effects import GroupSettings
from strandline.broker.groups.group import Group
from strandline.broker.groups.states import GroupState
from strandline.protocol.errors import ErrorCode
from support.group_site import DELAY_S, REBALANCE_S, SESSION_S, Asked, GroupSite

CLIENTS = 4
OUT = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
clients = st.integers(0, CLIENTS - 1)


class Client:
    """A process that takes part. Those with an odd number are static; `lives` tells one start from the next."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instance = f"i{number}" if number % 2 else None
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.told: list[str] = []
        self.join: Asked | None = None
        self.sync: Asked | None = None

    def forget(self) -> None:
        self.member_id, self.generation, self.leads = "", -1, False


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.site = GroupSite(max_size=3)
        self.site.holds_writes = True
        self.clients = [Client(number) for number in range(CLIENTS)]
        self.past: list[tuple[str, int, str | None]] = []
        """(member id, generation, instance) that must not commit any more."""
        self.owners: dict[tuple[int, bytes], str] = {}
        """(generation, slot) → member id, or the instance."""
        self.last_generation = 0

    # --- what clients do ---------------------------------------------------------------------------------------

    @rule(
        number=clients,
        said=st.sampled_from([b"a", b"b"]),
        protocols=st.sampled_from(["r", "rs", "sr"]),
        rebalance_s=st.sampled_from([REBALANCE_S, REBALANCE_S, 0.0]),
    )
    def join(self, number: int, said: bytes, protocols: str, rebalance_s: float) -> None:
        client = self.clients[number]
        client.join = self.site.join(
            client.member_id,
            instance=client.instance,
            protocols=dict.fromkeys(protocols, said),
            rebalance_s=rebalance_s,
        )
        client.sync = None
        self.hear()

    @rule(number=clients)
    def restart(self, number: int) -> None:
        """It comes back without its id, and no longer listens to what its past life asked."""
        client = self.clients[number]
        client.forget()
        client.join = client.sync = None

    @rule(number=clients)
    def ask_for_its_assignment(self, number: int) -> None:
        client = self.clients[number]
        if client.generation < 0:
            return
        slots = {each: f"slot-{place}".encode() for place, each in enumerate(client.told)} if client.leads else {}
        client.sync = self.site.sync(client.member_id, client.generation, slots, instance=client.instance)
        self.hear()

    @rule(number=clients)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        code = self.site.heartbeat(client.member_id, client.generation, client.instance)
        self.told(client, code)

    @rule(number=clients)
    def commit(self, number: int) -> None:
        client = self.clients[number]
        if client.member_id:
            code = self.site.commit(client.member_id, client.generation, client.instance)
            if code is ErrorCode.NONE and client.generation >= 0:
                assert client.generation == self.last_generation, "a stale member commits"
            self.told(client, code)

    @rule(number=clients)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.member_id:
            self.site.leave(client.member_id, client.instance)
            self.is_out(client)
            self.hear()

    # --- what happens to them ----------------------------------------------------------------------------------

    @precondition(lambda self: self.site.writes)
    @rule(code=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def write_ends(self, code: ErrorCode) -> None:
        self.site.written(code)
        self.hear()

    @rule(seconds=st.sampled_from([1.0, DELAY_S, SESSION_S - 1, REBALANCE_S]))
    def pass_time(self, seconds: float) -> None:
        self.site.pass_time(seconds)
        self.hear()

    @precondition(lambda self: self.site.log and not self.site.writes)
    @rule()
    def move(self) -> None:
        """Another coordinator loads what is written down."""
        self.site.end(ErrorCode.NOT_COORDINATOR)
        self.hear()
        self.site.group = Group.loaded(self.site.log[-1], GroupSettings(3, DELAY_S), self.site.now)
        known = {member.member_id for member in self.site.group.members}
        for client in self.clients:
            client.join = client.sync = None
            if client.member_id not in known or client.generation != self.site.group.generation:
                client.forget()
        # A generation that nobody wrote down has not been: who was in the one before it is in again.
        now = self.site.group.generation
        self.past = [past for past in self.past if past[0] not in known or past[1] != now]
        self.last_generation = now
        self.owners = {key: owner for key, owner in self.owners.items() if key[0] <= self.last_generation}

    # --- the model ---------------------------------------------------------------------------------------------

    def hear(self) -> None:
        for client in self.clients:
            if client.join is not None and client.join.answer() is not None:
                answer, client.join = client.join.answer(), None
                self.heard_join(client, answer)
            if client.sync is not None and client.sync.answer() is not None:
                answer, client.sync = client.sync.answer(), None
                self.heard_sync(client, answer)

    def heard_join(self, client: Client, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error_code == 0:
            assert answer.generation_id >= self.last_generation, "the generation goes back"
            self.last_generation = answer.generation_id
            if 0 <= client.generation < answer.generation_id:
                self.past.append((client.member_id, client.generation, client.instance))
            client.member_id, client.generation = answer.member_id, answer.generation_id
            client.leads = answer.leader == answer.member_id and not answer.skip_assignment
            client.told = [each.member_id for each in answer.members]
        else:
            self.told(client, ErrorCode(answer.error_code))

    def heard_sync(self, client: Client, answer: Any) -> None:
        if answer.error_code == 0 and answer.assignment:
            owner = client.instance or client.member_id
            assert self.owners.setdefault((client.generation, answer.assignment), owner) == owner, "two own a slot"
        else:
            self.told(client, ErrorCode(answer.error_code))

    def told(self, client: Client, code: ErrorCode) -> None:
        if code in OUT:
            self.is_out(client)

    def is_out(self, client: Client) -> None:
        if client.generation >= 0:
            self.past.append((client.member_id, client.generation, client.instance))
        client.forget()

    # --- always ------------------------------------------------------------------------------------------------

    @invariant()
    def who_is_out_never_commits(self) -> None:
        for member_id, generation, instance in self.past[-5:]:
            assert self.site.commit(member_id, generation, instance) is not ErrorCode.NONE

    @invariant()
    def nobody_is_answered_twice(self) -> None:
        for asked in self.site.asked:
            assert len(asked.answers) <= 1

    @invariant()
    def who_waits_is_known_and_will_be_looked_at(self) -> None:
        group, members = self.site.group, self.site.group.members
        parked = [asked for member in members for asked in (member.join, member.sync) if asked is not None]
        waiting = [asked for asked in self.site.asked if not asked.answers]
        assert sorted(map(id, parked)) == sorted(map(id, waiting))
        assert members.joining == sum(member.join is not None for member in members)
        assert members.leader in members.by_id or not len(members)
        if len(members) and not self.site.writes:
            assert group.look_at <= self.site.now + max(REBALANCE_S, SESSION_S, DELAY_S)

    def teardown(self) -> None:
        for _ in range(50):
            while self.site.writes:
                self.site.written()
            self.site.pass_time(REBALANCE_S)
            if self.site.group.is_over:
                break
        assert self.site.group.is_over
        assert all(asked.answers for asked in self.site.asked), "everybody is told"
        if self.site.log:
            assert self.site.log[-1].members == []
            assert self.site.group.state is GroupState.EMPTY


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40)
