"""What operators do with groups, where coordinators move, load, stay silent or say half: answers are scripted."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from strandline.client.errors import (
    AnsweredError,
    BrokerMisbehaved,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    UnknownGroup,
    UnknownTopic,
)
from strandline.client.groups.administration import GroupAdministration, GroupOffset, GroupSummary, GroupView
from strandline.client.metadata import ClusterView
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    Coordinator,
    DeletableGroupResult,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsResponse,
    MemberResponse,
    Message,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    Request,
)
from strandline.protocol.types import TopicPartition

T0, T1 = (TopicPartition("t", number) for number in range(2))
LOST = ConnectionLost("the connection to broker 1 broke")
Answer = Message | ClientError


class Script(GroupAdministration):
    """An admin client of scripted brokers: `answers` by broker, one after the other; `coordinators` is who coordinates
    at each time that somebody asks, the last one from then on. The time is over after `rounds` waits."""

    def __init__(self, answers: dict[int, list[Answer]], coordinators: tuple[int, ...] = (1,), rounds: int = 5) -> None:
        self.answers = answers
        self.coordinators = list(coordinators)
        self.rounds = rounds
        self.last_error: Exception | None = None
        self.outcome_was_lost = False

    def _attempts(self, timeout_ms: float | None) -> Any:
        return self

    async def describe_cluster(self, *, timeout_ms: float | None = None) -> ClusterView:
        return ClusterView("cluster", brokers=dict.fromkeys(self.answers))

    def left_ms(self) -> float:
        return 1000.0

    async def ask(self, broker_id: int, request: Request, answer: type[Message]) -> Any:
        found = self.answers[broker_id].pop(0)
        if isinstance(found, RequestTimedOut):
            raise found
        if isinstance(found, ClientError):
            self.last_error, self.outcome_was_lost = found, True
            return None
        assert isinstance(found, answer)
        return found

    async def ask_any(self, request: Request, answer: type[Message]) -> Any:
        assert isinstance(request, FindCoordinatorRequest) and request.coordinator_keys is not None
        now = self.coordinators.pop(0) if len(self.coordinators) > 1 else self.coordinators[0]
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if now == -1 else ErrorCode.NONE
        found = [Coordinator(key, now, "host", 9092, code) for key in request.coordinator_keys]
        return 9, FindCoordinatorResponse(coordinators=found)

    async def learn(self) -> None:
        self.rounds -= 1
        if self.rounds < 0:
            raise RequestTimedOut(f"not done in time; last cause: {self.last_error}")


def committed(code: ErrorCode, partition: TopicPartition = T0) -> OffsetCommitResponse:
    topic, number = partition
    return OffsetCommitResponse([OffsetCommitResponseTopic(topic, [OffsetCommitResponsePartition(number, code)])])


def forgotten(partition: TopicPartition) -> OffsetDeleteResponse:
    topic, number = partition
    return OffsetDeleteResponse(0, [OffsetDeleteResponseTopic(topic, [OffsetDeleteResponsePartition(number, 0)])])


def fetched(code: ErrorCode) -> OffsetFetchResponse:
    """5 is committed of t-0; of t-1 there is 7, or an error."""
    parts = [
        OffsetFetchResponsePartition(0, 5),
        OffsetFetchResponsePartition(1, -1 if code else 7, error_code=code),
    ]
    return OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", parts)])


def described(group: str = "g", code: int = 0, state: str = "Empty") -> DescribeGroupsResponse:
    return DescribeGroupsResponse([DescribedGroup(code, group, state)])


def deleted(code: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse([DeletableGroupResult("g", code)])


@pytest.mark.parametrize(
    "first", [committed(ErrorCode.NOT_COORDINATOR), committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), LOST]
)
async def test_a_commit_goes_to_where_the_group_moved(first: Answer) -> None:
    script = Script({1: [first], 2: [committed(ErrorCode.NONE)]}, coordinators=(1, -1, 2))
    assert await script.alter_group_offsets("g", {T0: GroupOffset(1)}) == {T0: None}


@pytest.mark.parametrize("asked", [None, [T0, T1]])
async def test_a_partition_that_cannot_be_read_does_not_look_as_if_nothing_were_committed(asked: Any) -> None:
    script = Script({1: [fetched(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]})
    with pytest.raises(AnsweredError, match="'g' of t-1: TOPIC_AUTHORIZATION_FAILED"):
        await script.list_group_offsets("g", asked)
    script = Script({1: [fetched(ErrorCode.UNSTABLE_OFFSET_COMMIT), fetched(ErrorCode.NONE)]})
    assert await script.list_group_offsets("g", asked) == {T0: GroupOffset(5), T1: GroupOffset(7)}


async def test_what_is_wrong_with_one_partition_is_not_asked_again() -> None:
    script = Script({1: [committed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]})
    result = (await script.alter_group_offsets("g", {T0: GroupOffset(1)}))[T0]
    assert isinstance(result, UnknownTopic) and "t-0" in str(result) and "'g'" in str(result)


async def test_what_many_groups_have_committed_is_asked_of_their_coordinators_side_by_side(autojump_clock) -> None:
    class Busy(Script):
        """Each broker takes a second; group "gN" is at broker N % 3. Broker 0 does not answer."""

        under_way, most = 0, 0

        async def ask(self, broker_id: int, request: Request, answer: type[Message]) -> Any:
            assert isinstance(request, OffsetFetchRequest) and int(request.group_id[1:]) % 3 == broker_id
            Busy.under_way += 1
            Busy.most = max(Busy.most, Busy.under_way)
            await trio.sleep(30 if broker_id == 0 else 1)
            Busy.under_way -= 1
            if broker_id == 0:
                raise RequestTimedOut("not done within 30 s")
            if request.group_id == "g4":
                return fetched(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if request.group_id == "g5" and self.rounds == 1:
                return OffsetFetchResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return OffsetFetchResponse() if request.group_id == "g7" else fetched(ErrorCode.NONE)

        async def ask_any(self, request: Request, answer: type[Message]) -> Any:
            assert isinstance(request, FindCoordinatorRequest)
            keys = request.coordinator_keys or []
            return 9, FindCoordinatorResponse(coordinators=[Coordinator(key, int(key[1:]) % 3, "h", 1) for key in keys])

    names = [f"g{number}" for number in range(9)]
    with trio.fail_after(70):  # two rounds
        found = await Busy({}, rounds=1).list_offsets_of_groups(names)
    assert list(found) == names
    assert Busy.most == 3, "each broker is asked for one of its groups at a time"
    assert all(isinstance(found[name], RequestTimedOut) for name in ("g0", "g3", "g6"))
    assert isinstance(found["g4"], AnsweredError) and "'g4' of t-1" in str(found["g4"])
    assert found["g7"] == {}
    assert all(found[name] == {T0: GroupOffset(5), T1: GroupOffset(7)} for name in ("g1", "g2", "g5", "g8"))


@pytest.mark.parametrize("change", ["alter", "delete", "remove"])
async def test_what_the_first_of_many_requests_changed_is_told_when_the_next_one_fails(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.client.request_bounds.MAX_ASKED", 1)
    left = LeaveGroupResponse(0, [MemberResponse("", "one", 0)])
    done = {"alter": committed(ErrorCode.NONE), "delete": forgotten(T0), "remove": left}[change]

    async def changed(*answers: Answer) -> list[ClientError | None]:
        script = Script({1: [*answers, *[LOST] * 9]}, rounds=3)
        if change == "alter":
            return [*(await script.alter_group_offsets("g", {T0: GroupOffset(1), T1: GroupOffset(1)})).values()]
        if change == "delete":
            return [*(await script.delete_group_offsets("g", [T0, T1])).values()]
        results = await script.remove_members("g", ["one", "two"])
        assert list(results) == ["one", "two"]
        return [*results.values()]

    first, second = await changed(done)
    assert first is None and isinstance(second, RequestTimedOut)
    with pytest.raises(RequestTimedOut):
        await changed()


async def test_a_refusal_of_the_whole_is_the_result_of_each_partition() -> None:
    refused = committed(ErrorCode.INVALID_REQUEST, TopicPartition("", -1))
    result = (await Script({1: [refused]}).alter_group_offsets("g", {T0: GroupOffset(1)}))[T0]
    assert isinstance(result, AnsweredError) and result.code == ErrorCode.INVALID_REQUEST
    missing = OffsetCommitResponse([])
    assert isinstance(
        (await Script({1: [missing]}).alter_group_offsets("g", {T0: GroupOffset(1)}))[T0], BrokerMisbehaved
    )


async def test_a_group_that_an_answer_leaves_out_is_asked_for_again() -> None:
    script = Script({1: [DescribeGroupsResponse([]), described(code=ErrorCode.NOT_COORDINATOR), described()]})
    assert await script.describe_groups(["g"]) == {"g": GroupView("g", "Empty", "", "", 1, ())}


async def test_the_last_cause_is_the_result_when_the_time_is_over() -> None:
    script = Script({1: [LOST] * 9}, rounds=3)
    result = (await script.describe_groups(["g"]))["g"]
    assert isinstance(result, RequestTimedOut) and "broke" in str(result)
    with pytest.raises(RequestTimedOut, match="COORDINATOR_NOT_AVAILABLE"):
        await Script({}, coordinators=(-1,)).list_group_offsets("g")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([deleted(ErrorCode.NONE)], type(None)),
        ([deleted(ErrorCode.GROUP_ID_NOT_FOUND)], UnknownGroup),
        ([LOST, deleted(ErrorCode.GROUP_ID_NOT_FOUND)], type(None)),
    ],
)
async def test_a_group_that_is_gone_after_a_lost_deletion_was_deleted(answers: list[Answer], expected: type) -> None:
    assert type((await Script({1: answers}).delete_groups(["g"]))["g"]) is expected


async def test_a_broker_that_loads_groups_is_asked_again_and_one_that_is_silent_is_named() -> None:
    loading = ListGroupsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    one, two = (ListGroupsResponse(0, [ListedGroup(name, "consumer", "Empty")]) for name in ("b", "a"))
    listing = await Script({1: [loading, one], 2: [two]}).list_groups()
    assert listing.groups == [GroupSummary("a", "Empty", "consumer"), GroupSummary("b", "Empty", "consumer")]
    assert listing.failures == {}
    listing = await Script({1: [LOST] * 9, 2: [two]}, rounds=3).list_groups()
    assert [each.group_id for each in listing.groups] == ["a"] and listing.failures == {1: LOST}
    with pytest.raises(RequestTimedOut):
        await Script({1: [LOST] * 9}, rounds=3).list_groups()


@pytest.mark.parametrize(
    ("protocol_type", "data", "expected"), [("consumer", b"", ()), ("consumer", b"\0", None), ("connect", b"\0", None)]
)
async def test_an_assignment_that_is_no_consumers_is_told_as_such(
    protocol_type: str, data: bytes, expected: object
) -> None:
    member = DescribedGroupMember("m", None, "client", "/host", b"", data)
    answer = DescribeGroupsResponse([DescribedGroup(0, "g", "Stable", protocol_type, "range", [member])])
    view = (await Script({1: [answer]}).describe_groups(["g"]))["g"]
    assert isinstance(view, GroupView) and view.members[0].assignment == expected
