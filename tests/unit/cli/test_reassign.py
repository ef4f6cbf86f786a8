"""`strandline reassign`: plans, what execution asks of the cluster and shows, verify, cancel, throttles."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.json_files import read_assignment, write_assignment
from strandline.client.errors import NoBrokerReachable, error_for
from strandline.client.metadata import PartitionView
from strandline.client.reassignments import OngoingReassignment
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from unit.cli.conftest import FakeAdmin
from unit.cli.fake_moves import FakeMovingAdmin

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
GIB = 2**30
RATES = {"leader.replication.throttled.rate": "5000", "follower.replication.throttled.rate": "5000"}


@pytest.fixture
def moving(shell: Any) -> Any:
    """Broker 3 is new: t has two partitions on 1 and 2, u has one."""
    shell.cluster.moves.racks = {1: None, 2: None, 3: None}
    shell.cluster.add_topic("t", {0: PartitionView(1, 4, (1, 2), (1, 2)), 1: PartitionView(2, 4, (2, 1), (2, 1))})
    shell.cluster.add_topic("u", {0: PartitionView(1, 4, (1, 2), (1, 2))})
    shell.cluster.moves.size_bytes = {T0: 3 * GIB, T1: 2 * GIB, U0: GIB}
    return shell


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    write_assignment(path, {T0: (3, 2), U0: (1, 3)})
    return path


# --- generate --------------------------------------------------------------------------------------------------------


def test_a_plan_is_shown_with_the_way_back_and_what_it_costs(moving: Any) -> None:
    ran = moving("reassign", "generate", "--all")
    assert (ran.code, ran.err) == (0, "")
    *_, title, last = ran.out.splitlines()
    assert title == "Proposed partition reassignment configuration", "the last line is the plan, as in Kafka's tool"
    entries = json.loads(last)["partitions"]
    assert {each["topic"] for each in entries} <= {"t", "u"} and all(len(each["replicas"]) == 2 for each in entries)
    assert '"topic":"t","partition":1,"replicas":[2,1]' in ran.out.split("Proposed")[0]
    [third] = [line for line in ran.out.splitlines() if line.startswith("3 ")]
    assert "0 -> 2" in third and "0 -> 1" in third
    assert "2 replicas to copy: 3.0 GiB" in ran.out, "the smaller ones move"
    assert moving.cluster.moves.asked == [], "nothing is changed"


def test_a_plan_goes_into_a_file_that_execute_takes(moving: Any, tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    ran = moving("reassign", "generate", "--topic", "t", "--brokers", "2,3", "--plan-file", str(path))
    assert ran.code == 0 and f"strandline reassign execute {path}" in ran.out
    assert {tp: set(replicas) for tp, replicas in read_assignment(path).items()} == {T0: {2, 3}, T1: {2, 3}}
    shown = json.loads(moving("reassign", "generate", "--topic", "t", "--brokers", "2,3", "--output", "json").out)
    assert (shown["_command"], shown["bytes_to_move"], shown["replicas_to_move"]) == ("reassign.generate", 5 * GIB, 2)
    assert [each["present"] for each in shown["partitions"]] == [[1, 2], [2, 1]]
    first, *_, third = shown["brokers"]
    assert first["before"] == {"replicas": 3, "leaders": 2, "size_bytes": 6 * GIB}
    assert first["after"] == {"replicas": 1, "leaders": 1, "size_bytes": GIB}
    assert third["receives_bytes"] == 5 * GIB


def test_topics_come_from_kafkas_file_and_the_factor_may_change(moving: Any, tmp_path: Path) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text('{"topics":[{"topic":"u"}],"version":1}')
    ran = moving(
        "reassign", "generate", "--topics-to-move-json-file", str(topics), "--replication-factor", "3",
        "--broker-list", "1,2,3", "--output", "json",
    )  # fmt: skip
    [row] = json.loads(ran.out)["partitions"]
    assert row["topic"] == "u" and set(row["replicas"]) == {1, 2, 3}


def test_what_is_even_stays_and_fewest_moves_only_empties(moving: Any, plan: Path) -> None:
    before = plan.read_text()
    ran = moving("reassign", "generate", "--topic", "t", "--brokers", "1,2", "--plan-file", str(plan))
    assert ran.code == 0 and f"there is nothing to move, and {plan} was not written." in ran.out
    assert plan.read_text() == before
    assert "there is nothing to move" in moving("reassign", "generate", "--all", "--fewest-moves").out


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ((), 2, "give one of --topic NAME"),
        (("--all", "--topic", "t"), 2, "give one of --topic NAME"),
        (("--topic", "absent"), 2, "there is no topic absent"),
        (("--all", "--brokers", "1,x"), 2, "is no list of broker ids"),
        (("--all", "--brokers", "1,1"), 2, "names 1 twice"),
        (("--all", "--brokers", "1,9"), 2, "there is no broker 9 that runs; those are 1, 2, 3"),
        (("--all", "--brokers", "3"), 1, "too few brokers, 1, for t (2 replicas), u (2 replicas)"),
    ],
)
def test_what_cannot_be_planned_is_named(moving: Any, arguments: tuple[str, ...], code: int, complaint: str) -> None:
    ran = moving("reassign", "generate", *arguments)
    assert ran.code == code and complaint in ran.err
    assert ran.err.count("\n") == 1


def test_partitions_on_their_way_count_where_they_go(moving: Any) -> None:
    moving.cluster.add_topic("t", {0: PartitionView(1, 4, (3, 2, 1), (1, 2)), 1: PartitionView(2, 4, (2, 1), (2, 1))})
    moving.cluster.moves.ongoing = {T0: OngoingReassignment((3, 2, 1), (3,), (1,))}
    moving.cluster.moves.looks = None
    shown = json.loads(moving("reassign", "generate", "--all", "--output", "json").out)
    assert all(len(each["replicas"]) == 2 for each in shown["partitions"])
    [first, *_] = shown["brokers"]
    assert first["before"]["replicas"] == 2


def test_what_ends_during_a_look_counts_where_it_goes(moving: Any, plan: Path) -> None:
    """Its description still has the old replicas beside the new ones."""
    moving.cluster.moves.looks = None
    moving("reassign", "execute", str(plan))
    moving.cluster.moves.on_look = [lambda: None, moving.cluster.moves.ongoing.clear]
    shown = json.loads(moving("reassign", "generate", "--all", "--output", "json").out)
    assert sum(each["before"]["replicas"] for each in shown["brokers"]) == 6
    assert all(len(each["replicas"]) == 2 for each in shown["partitions"])


# --- execute ---------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_cost_and_asks_for_nothing(moving: Any, plan: Path) -> None:
    ran = moving("reassign", "execute", str(plan), "--dry-run")
    assert ran.code == 0 and "2 replicas to copy: 4.0 GiB" in ran.out
    assert moving.cluster.moves.asked == [] and len(list(plan.parent.iterdir())) == 1
    shown = json.loads(moving("reassign", "execute", str(plan), "--dry-run", "--output", "json").out)
    assert (shown["dry_run"], shown["bytes_to_move"], shown["done"]) == (True, 4 * GIB, False)
    done = json.loads(moving("reassign", "execute", str(plan), "--wait", "--output", "json").out)
    assert done["done"] and done.keys() == shown.keys(), "one shape"


def test_execution_writes_the_way_back_first_and_gives_the_plan_to_the_controller(moving: Any, plan: Path) -> None:
    ran = moving("reassign", "execute", "--reassignment-json-file", str(plan))
    assert (ran.code, ran.err) == (0, "")
    assert moving.cluster.moves.asked == [{T0: (3, 2), U0: (1, 3)}]
    assert read_assignment(plan.with_name("plan.rollback.json")) == {T0: (1, 2), U0: (1, 2)}
    assert f"strandline reassign verify {plan}" in ran.out


def test_running_it_again_says_what_is_under_way_and_keeps_the_first_way_back(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = None
    assert "Began to move t-0, u-0." in moving("reassign", "execute", str(plan)).out
    FakeAdmin(moving.cluster).finish(U0)
    ran = moving("reassign", "execute", str(plan))
    assert ran.code == 0 and "Under way already: t-0." in ran.out and "Began" not in ran.out
    assert "1 partition to change (1 under way already), 1 replica to copy: 1.5 GiB" in ran.out, "the other half"
    FakeAdmin(moving.cluster).finish()
    ran = moving("reassign", "execute", str(plan))
    assert ran.code == 0 and "Done: 2 partitions lie as planned." in ran.out and "Began" not in ran.out
    assert len(moving.cluster.moves.asked) == 2, "there was nothing left to ask for"
    assert [path.name for path in plan.parent.glob("*.rollback*")] == ["plan.rollback.json"]
    assert read_assignment(plan.with_name("plan.rollback.json")) == {T0: (1, 2), U0: (1, 2)}


def test_another_plan_of_that_name_has_a_way_back_of_its_own(moving: Any, plan: Path) -> None:
    moving("reassign", "execute", str(plan), "--wait")
    write_assignment(plan, {T0: (1, 2), U0: (1, 2)})
    ran = moving("reassign", "execute", str(plan))
    assert "strandline reassign execute " + str(plan.with_name("plan.rollback-2.json")) in ran.out
    assert read_assignment(plan.with_name("plan.rollback-2.json")) == {T0: (3, 2), U0: (1, 3)}


def test_no_way_back_is_written_over(moving: Any, plan: Path) -> None:
    back = plan.with_name("back.json")
    back.write_text("mine")
    ran = moving("reassign", "execute", str(plan), "--rollback-file", str(back))
    assert ran.code == 2 and "back.json is there already" in ran.err
    assert back.read_text() == "mine" and moving.cluster.moves.asked == []


def test_what_the_controller_refuses_is_told_and_the_rest_goes_on(moving: Any, plan: Path) -> None:
    refusal = error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "reassigning t-0", detail="why")
    moving.cluster.moves.refused = {T0: refusal}
    ran = moving("reassign", "execute", str(plan), "--wait")
    assert ran.code == 1 and "reassigning t-0: INVALID_REPLICA_ASSIGNMENT: why" in ran.err
    assert "Began to move u-0." in ran.out
    shown = json.loads(moving("reassign", "execute", str(plan), "--wait", "--output", "json").out)
    assert [each["topic"] for each in shown["errors"]] == ["t"] and not shown["done"]


def test_waiting_shows_how_far_it_is_and_ends_when_it_is_done(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = 30
    ran = moving("reassign", "execute", str(plan), "--wait")
    assert ran.code == 0 and "Done: 2 partitions lie as planned." in ran.out
    assert "0 of 2 partitions done, 2.0 GiB of 4.0 GiB" in ran.err
    assert 1 <= ran.err.count("\n") <= 4, "a line now and then"
    assert moving.cluster.topics["t"].partitions[0].replicas == (3, 2)


def test_a_look_that_fails_is_told_once_and_tried_again(moving: Any, plan: Path) -> None:
    def fail() -> None:
        raise NoBrokerReachable("no broker answers")

    moving.cluster.moves.looks = 6
    moving.cluster.moves.on_look = [lambda: None] * 2 + [fail] * 3
    ran = moving("reassign", "execute", str(plan), "--wait")
    assert ran.code == 0 and ran.err.count("no broker answers") == 1


def test_ctrl_c_ends_the_looking_and_says_how_to_look_again(moving: Any, plan: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    moving.cluster.moves.looks = None
    moving.cluster.moves.on_look = [lambda: None] * 3 + [interrupt]
    ran = moving("reassign", "execute", str(plan), "--wait", "--throttle", "5000")
    assert ran.code == 130
    assert "The cluster goes on with it." in ran.err and f"strandline reassign verify {plan}" in ran.err
    assert set(moving.cluster.moves.ongoing) == {T0, U0}
    assert (ConfigResource.BROKER, "1") in moving.cluster.moves.configs, "the throttle stays as long"


@pytest.mark.parametrize("output", ["text", "json"])
def test_what_somebody_else_cancels_meanwhile_is_not_done(moving: Any, plan: Path, output: str) -> None:
    def cancel() -> None:
        moving.cluster.moves.ongoing.pop(T0)
        topic = moving.cluster.topics["t"]
        before = replace(topic.partitions[0], replicas=(2, 1))
        moving.cluster.topics["t"] = replace(topic, partitions={**topic.partitions, 0: before})

    moving.cluster.moves.looks = 6
    moving.cluster.moves.on_look = [lambda: None] * 3 + [cancel]
    ran = moving("reassign", "execute", str(plan), "--wait", "--throttle", "5000", "--output", output)
    assert ran.code == 1 and not any(moving.cluster.moves.configs.values())
    if output == "json":
        shown = json.loads(ran.out)
        assert not shown["done"]
        assert [(each["topic"], each["partition"]) for each in shown["errors"]] == [("t", 0)]
    else:
        assert "t-0: cancelled, or sent elsewhere, before it was done" in ran.err
        assert "Done: 1 partition lies as planned." in ran.out


def test_who_is_waited_for_is_named(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = 8
    moving.cluster.moves.on_look = [lambda: None] * 3 + [lambda: moving.cluster.moves.racks.pop(3)]
    ran = moving("reassign", "execute", str(plan), "--wait")
    assert "broker 3 does not run, and t-0, u-0 cannot be done without it" in ran.err


def test_partitions_on_their_way_elsewhere_are_not_taken_over_unasked(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = None
    moving("reassign", "execute", str(plan))
    write_assignment(plan, {T0: (2, 1), U0: (3, 1)})
    ran = moving("reassign", "execute", str(plan))
    assert ran.code == 1 and "t-0 is on the way to other brokers; --additional" in ran.err
    assert moving("reassign", "execute", str(plan), "--additional").code == 0
    assert moving.cluster.moves.asked[-1] == {T0: (2, 1), U0: (3, 1)}


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ({TopicPartition("absent", 0): (1,)}, "there is no topic absent"),
        ({TopicPartition("t", 7): (1,)}, "topic t has no partition 7"),
        ({T0: (1, 9)}, "(t-0): there is no broker 9 that runs; those are 1, 2, 3"),
    ],
)
def test_a_plan_that_does_not_fit_the_cluster_is_refused(
    moving: Any, plan: Path, wanted: dict[TopicPartition, tuple[int, ...]], complaint: str
) -> None:
    write_assignment(plan, wanted)
    ran = moving("reassign", "execute", str(plan))
    assert ran.code == 2 and complaint in ran.err and "plan.json" in ran.err
    assert moving.cluster.moves.asked == [] and ran.err.count("\n") == 1


def test_what_is_under_way_to_a_broker_that_died_since_can_be_looked_at_again(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = None
    moving("reassign", "execute", str(plan))
    del moving.cluster.moves.racks[3]
    ran = moving("reassign", "execute", str(plan))
    assert ran.code == 0 and "Under way already: t-0, u-0." in ran.out
    write_assignment(plan, {T1: (2, 3)})
    assert moving("reassign", "execute", str(plan)).code == 2


def test_a_broker_that_is_dead_may_keep_what_it_has(moving: Any, plan: Path) -> None:
    del moving.cluster.moves.racks[2]
    assert moving("reassign", "execute", str(plan)).code == 0


def test_a_file_is_wanted(moving: Any, plan: Path) -> None:
    assert moving("reassign", "execute").code == 2
    assert moving("reassign", "execute", str(plan), "--reassignment-json-file", str(plan)).code == 2
    plan.write_text("{")
    ran = moving("reassign", "execute", str(plan))
    assert ran.code == 2 and "is no JSON" in ran.err


# --- throttles -------------------------------------------------------------------------------------------------------


def test_a_throttle_is_set_for_who_takes_part_and_removed_when_it_is_done(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = None
    ran = moving("reassign", "execute", str(plan), "--throttle", "5000")
    assert ran.code == 0 and "at 4.9 KiB/s" in ran.out
    configs = moving.cluster.moves.configs
    assert {name: configs[ConfigResource.BROKER, name] for name in ("1", "2", "3")} == dict.fromkeys("123", RATES)
    assert configs[ConfigResource.TOPIC, "t"] == {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert configs[ConfigResource.TOPIC, "u"]["follower.replication.throttled.replicas"] == "0:3"
    assert moving("reassign", "verify", str(plan)).code == 1
    assert configs[ConfigResource.BROKER, "1"] == RATES, "while it is under way"
    moving.cluster.moves.looks = 0
    kept = moving("reassign", "verify", str(plan), "--preserve-throttles")
    assert kept.code == 0 and configs[ConfigResource.BROKER, "1"] == RATES
    ran = moving("reassign", "verify", str(plan))
    assert ran.code == 0 and not any(configs.values())
    assert "Removed the throttle of topic t, topic u, broker 1, broker 2, broker 3." in ran.out


def test_without_a_plan_a_throttle_is_not_removed_and_told(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = None
    moving("reassign", "execute", str(plan), "--throttle", "5000")
    assert "still set" not in moving("reassign", "verify").out, "it is for what is under way"
    moving.cluster.moves.looks = 0
    ran = moving("reassign", "verify")
    assert ran.code == 0 and moving.cluster.moves.configs[ConfigResource.BROKER, "1"] == RATES
    assert "A throttle is still set for broker 1, broker 2, broker 3; to remove it: strandline reassign" in ran.out
    assert "still set" not in moving("reassign", "verify", "--preserve-throttles").out
    assert "still set" not in moving("reassign", "verify", str(plan)).out
    assert moving("reassign", "verify").out == "Nothing is under way.\n"


def test_what_is_under_way_in_the_same_topic_stays_throttled(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = None
    write_assignment(plan, {T1: (3, 1)})
    moving("reassign", "execute", str(plan), "--throttle", "7")
    write_assignment(plan, {T0: (1, 3)})
    moving("reassign", "execute", str(plan), "--throttle", "5000")
    followers = moving.cluster.moves.configs[ConfigResource.TOPIC, "t"]["follower.replication.throttled.replicas"]
    assert followers == "0:3,1:3"


def test_waiting_removes_the_throttle_of_a_run_before(moving: Any, plan: Path) -> None:
    moving("reassign", "execute", str(plan), "--throttle", "5000")
    topic = moving.cluster.moves.configs[ConfigResource.TOPIC, "u"]
    topic["leader.replication.throttled.replicas"] = "*"
    ran = moving("reassign", "execute", str(plan), "--wait")
    assert ran.code == 0 and "Removed the throttle of topic t, topic u, broker 1" in ran.out
    assert topic == {"leader.replication.throttled.replicas": "*"}, "which no reassignment sets"


def test_a_throttle_that_stays_is_told(moving: Any, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise NoBrokerReachable("no broker answers")

    with monkeypatch.context() as patch:
        patch.setattr(FakeMovingAdmin, "alter_partition_reassignments", fail)
        ran = moving("reassign", "execute", str(plan), "--throttle", "5000")
    assert ran.code == 1 and f"set already; to remove it: strandline reassign verify {plan}" in ran.err
    moving.cluster.moves.looks = None
    write_assignment(plan, {T1: (3, 1)})
    moving("reassign", "execute", str(plan))
    write_assignment(plan, {U0: (1, 3)})
    moving.cluster.moves.on_look = [lambda: None] * 2 + [lambda: FakeAdmin(moving.cluster).finish(U0)]
    ran = moving("reassign", "execute", str(plan), "--throttle", "5000", "--wait")
    assert ran.code == 0 and "The throttle stays, since other partitions are under way" in ran.out


def test_what_is_refused_as_a_whole_leaves_no_throttle(moving: Any, plan: Path) -> None:
    refusal = error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "reassigning", detail="why")
    moving.cluster.moves.refused = {T0: refusal, U0: refusal}
    assert moving("reassign", "execute", str(plan), "--throttle", "5000").code == 1
    assert not any(moving.cluster.moves.configs.values())


def test_waiting_removes_its_own_throttle(moving: Any, plan: Path) -> None:
    ran = moving("reassign", "execute", str(plan), "--throttle", "5000", "--wait")
    assert ran.code == 0 and "Removed the throttle" in ran.out
    assert not any(moving.cluster.moves.configs.values())


# --- verify and cancel -----------------------------------------------------------------------------------------------


def test_verify_tells_what_is_done_under_way_and_elsewhere(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = None
    write_assignment(plan, {T0: (3, 2)})
    moving("reassign", "execute", str(plan))
    write_assignment(plan, {T0: (3, 2), T1: (2, 1), U0: (1, 3), TopicPartition("gone", 0): (1,)})
    ran = moving("reassign", "verify", str(plan))
    assert ran.code == 1 and "1 of 4 partitions done" in ran.out
    assert "broker 3: 1.5 GiB of 3.0 GiB" in ran.out
    shown = json.loads(moving("reassign", "verify", str(plan), "--output", "json").out)
    assert [each["status"] for each in shown["partitions"]] == ["under way", "done", "elsewhere", "gone"]
    assert shown["partitions"][0]["copies"] == [
        {"broker": 3, "bytes": 3 * GIB // 2, "of_bytes": 3 * GIB, "in_sync": False}
    ]


@pytest.mark.parametrize("looks", range(4))
def test_what_is_done_while_verify_looks_lies_nowhere_else(moving: Any, plan: Path, looks: int) -> None:
    moving.cluster.moves.looks = None
    moving("reassign", "execute", str(plan))
    moving.cluster.moves.looks = looks
    shown = json.loads(moving("reassign", "verify", str(plan), "--output", "json").out)
    assert not moving.cluster.moves.ongoing
    assert {each["status"] for each in shown["partitions"]} == {"under way" if looks else "done"}


def test_without_a_file_whatever_is_under_way_is_shown(moving: Any, plan: Path) -> None:
    ran = moving("reassign", "verify")
    assert (ran.code, ran.out) == (0, "Nothing is under way.\n")
    moving.cluster.moves.looks = None
    moving("reassign", "execute", str(plan))
    ran = moving("reassign", "verify")
    assert ran.code == 1 and "0 of 2 partitions done" in ran.out


def test_cancel_leads_back_and_leaves_what_is_done(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = None
    moving("reassign", "execute", str(plan), "--throttle", "5000")
    del moving.cluster.moves.ongoing[U0]
    ran = moving("reassign", "cancel", str(plan))
    assert ran.code == 0 and "Cancelled the move of t-0: it stays where it was." in ran.out
    assert moving.cluster.moves.asked[-1] == {T0: None}
    assert set(moving.cluster.topics["t"].partitions[0].replicas) == {1, 2}
    assert not any(moving.cluster.moves.configs.values())
    ran = moving("reassign", "cancel", "--all")
    assert ran.code == 0 and "Nothing of it is under way." in ran.out


def test_a_cancelled_partition_that_waits_for_a_leader_is_told(
    moving: Any, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(self: Any, targets: Any) -> dict[TopicPartition, None]:
        for tp in targets:
            moving.cluster.moves.ongoing[tp] = OngoingReassignment((1, 2, 3), (3,), (3,))
        moving.cluster.moves.on_look = [lambda: None] * 4 + [lambda: moving.cluster.moves.ongoing.pop(U0)]
        return dict.fromkeys(targets)

    moving.cluster.moves.looks = None
    moving("reassign", "execute", str(plan), "--throttle", "5000")
    monkeypatch.setattr(FakeMovingAdmin, "alter_partition_reassignments", keep)
    ran = moving("reassign", "cancel", str(plan))
    assert ran.code == 1 and "t-0: cancelled, and not done with before somebody leads it" in ran.err
    assert "Cancelled the move of u-0: it stays where it was." in ran.out and "Removed" not in ran.out
    assert "broker 3:" not in moving("reassign", "verify").out, "nothing is copied any more"
    moving.cluster.moves.ongoing.clear()
    assert "Removed the throttle of topic t, topic u" in moving("reassign", "cancel", "--all").out


def test_cancel_tells_what_failed(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = None
    moving("reassign", "execute", str(plan))
    moving.cluster.moves.refused = {
        T0: error_for(ErrorCode.NOT_CONTROLLER, "cancelling the reassignment of t-0"),
        U0: error_for(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "cancelling the reassignment of u-0"),
    }
    ran = moving("reassign", "cancel", "--all")
    assert ran.code == 1 and "cancelling the reassignment of t-0" in ran.err
    assert "u-0" not in ran.err, "it was done before it could be cancelled"
    shown = json.loads(moving("reassign", "cancel", "--all", "--output", "json").out)
    assert [bool(each["message"]) for each in shown["partitions"]] == [True, False]
    assert moving("reassign", "cancel").code == 2


# --- topics describe -------------------------------------------------------------------------------------------------


def test_topics_tell_what_is_being_moved_and_count_it_as_nothing_that_lacks(moving: Any, plan: Path) -> None:
    moving.cluster.moves.looks = None
    moving("reassign", "execute", str(plan))
    shown = moving("topics", "describe", "t").out.splitlines()
    assert "\tReplicationFactor: 2\t" in shown[0], "who is being added does not count yet"
    assert shown[1].endswith("Replicas: 3,2,1\tIsr: 1,2\tAdding Replicas: 3\tRemoving Replicas: 1")
    assert shown[2].endswith("Isr: 2,1")
    assert moving("topics", "describe", "--under-replicated-partitions").out == ""
    [topic] = json.loads(moving("topics", "describe", "t", "--output", "json").out)["topics"]
    assert [each["adding_replicas"] for each in topic["partitions"]] == [[3], []]
    assert [each["removing_replicas"] for each in topic["partitions"]] == [[1], []]


def test_topics_are_shown_where_no_controller_says_what_is_being_moved(moving: Any) -> None:
    def fail() -> None:
        raise NoBrokerReachable("no controller")

    moving.cluster.moves.on_look = [fail]
    ran = moving("topics", "describe", "u")
    assert ran.code == 0 and "Replicas: 1,2\tIsr: 1,2\n" in ran.out
