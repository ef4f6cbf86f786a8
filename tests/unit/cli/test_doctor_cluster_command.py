"""`strandline doctor --cluster` as it is typed: what is asked, what is printed, exit codes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import get_ident
from typing import Any

import pytest

from strandline.cli.cluster_checks import CLUSTER_CHECKS
from strandline.cli.cluster_facts import MIN_ISR, cluster_facts
from strandline.cli.options import LOOK_TIMEOUT_MS
from strandline.client.errors import ClientError
from strandline.client.groups.administration import GroupOffset, GroupView
from strandline.client.metadata import BrokerView
from strandline.client.reassignments import OngoingReassignment
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from strandline.runtime import http_client
from strandline.runtime.network import Address, CannotConnect
from unit.cli.conftest import NOW_MS
from unit.cli.test_doctor_cluster import ORDERS, T0, led, told


def test_a_reassignment_that_ends_between_two_answers_leaves_nothing_under_replicated(site: Any) -> None:
    """The topics are described while a replica is added, and it is there when the controller is asked afterwards."""
    moves = site.cluster.moves
    site.cluster.add_topic("t", {0: led(1, 2, 3, in_sync=(1, 2))})
    moves.ongoing[T0], moves.looks = OngoingReassignment((1, 2, 3), (3,), ()), 1
    assert "ok    under-replicated partitions" in site("doctor", "--cluster", "-b", "h:1").out.splitlines()
    assert not moves.ongoing


@pytest.fixture
def site(shell: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three brokers, of which the third is 5 s ahead, with a topic and a group."""

    def get(address: Address, path: str, *_: object) -> tuple[int, bytes]:
        broker_id = address.port - 1000
        if broker_id == 2:
            raise CannotConnect("nobody answers")
        time_ms = shell.session.now_ms() + (5_000 if broker_id == 3 else 0)
        told = {"broker_id": broker_id, "cluster_id": "id", "time_ms": time_ms, "waits": [], "controller_id": 1}
        return 200, json.dumps(told).encode()

    monkeypatch.setattr(http_client, "get", get)
    moves = shell.cluster.moves
    moves.racks = dict.fromkeys((1, 2, 3))
    for broker_id in (1, 2, 3):
        moves.configs[ConfigResource.BROKER, str(broker_id)] = {"admin.listener": f"127.0.0.1:{1000 + broker_id}"}
    shell.cluster.add_topic("t", dict(enumerate(led(*order) for order in ORDERS)))
    shell.cluster.fill("t", 0, [b"1", b"2"])
    shell.cluster.groups["g"] = GroupView("g", "Stable", "consumer", "", 1, ())
    shell.cluster.committed["g"] = {T0: GroupOffset(1)}
    moves.configs[ConfigResource.TOPIC, "t"] = {MIN_ISR: "2"}
    return shell


def test_the_command_prints_a_line_for_each_check_and_fails_by_the_faults(site: Any) -> None:
    ran = site("doctor", "--cluster", "-b", "h:1")
    lines = ran.out.splitlines()
    assert (ran.code, ran.err, len(lines)) == (1, "", len(CLUSTER_CHECKS))
    assert [line for line in lines if line.startswith("FAIL  clocks: broker 3 is 5.0 s ahead of broker 1; have NTP")]
    assert "ok    offline partitions" in lines
    assert site.session.clock >= 5


def test_the_command_says_since_when(site: Any, monkeypatch: Any) -> None:
    get = http_client.get

    def with_problem(address: Address, *more: Any) -> tuple[int, bytes]:
        code, body = get(address, *more)
        return code, json.dumps({**json.loads(body), "problems": [told("log", "t-0")]}).encode()

    monkeypatch.setattr(http_client, "get", with_problem)
    line = next(each for each in site("doctor", "--cluster", "-b", "h:1").out.splitlines() if "refused" in each)
    assert "t-0 on broker 3: it broke; since 2023-11-14 22:09:20 UTC (5 min); mend what the message" in line
    shown = json.loads(site("doctor", "--cluster", "-b", "h:1", "--output", "json").out)["checks"]
    assert [each["since_ms"] for each in shown if each["check"] == "refused replicas"] == [NOW_MS - 300_000]


def pass_in_each_thread(session: Any, step_ms: int) -> None:
    """Brokers are asked at once: each who asks sees time go on as if nobody else looked at the clock."""
    of_thread: dict[int, Iterator[int]] = {}

    def now_ms() -> int:
        begin_ms = NOW_MS + 7_000 * len(of_thread)
        return next(of_thread.setdefault(get_ident(), itertools.count(begin_ms, step_ms)))

    session.now_ms = now_ms


def test_clocks_are_compared_though_brokers_are_asked_at_other_times(site: Any) -> None:
    pass_in_each_thread(site.session, 1_000)
    ran = site("doctor", "--cluster", "-b", "h:1")
    assert "FAIL  clocks: broker 3 is 5.0 s ahead of broker 1" in ran.out


def test_a_difference_that_the_time_of_asking_explains_is_no_fault(site: Any) -> None:
    pass_in_each_thread(site.session, 4_000)
    ran = site("doctor", "--cluster", "-b", "h:1")
    late = "its answer took 8.0 s, too long to compare"
    told = [line for line in ran.out.splitlines() if line.startswith("?     clocks: no broker tells: ")]
    assert told and f"broker 1: {late}" in told[0] and f"broker 3: {late}" in told[0]


def test_rates_are_over_the_time_between_the_readings(site: Any, monkeypatch: Any) -> None:
    """Disks are read before groups are listed, however long that takes."""
    with site.session.admin("h:1") as admin, site.session.consumer("h:1") as consumer:
        listed = admin.list_groups

        def slow(*, timeout_ms: float) -> Any:
            assert timeout_ms == LOOK_TIMEOUT_MS
            site.session.clock += 20
            return listed()

        monkeypatch.setattr(admin, "list_groups", slow)
        facts = cluster_facts(site.session, admin, consumer, {})
    assert 25 <= facts.lasted_s < 30
    assert 25 <= facts.after.disks_at_s - facts.before.disks_at_s < 30
    assert 25 <= facts.after.groups_at_s - facts.before.groups_at_s < 30


def test_advice_alone_is_exit_code_0_and_programs_see_the_difference(site: Any, monkeypatch: Any) -> None:
    fine = {each: Address(f"host-{each}", 9092) for each in (1, 2, 3)}
    view: Callable[[], Any] = site.cluster.moves.view
    monkeypatch.setattr(
        site.cluster.moves,
        "view",
        lambda: replace(view(), brokers={each: BrokerView(each, address) for each, address in fine.items()}),
    )
    monkeypatch.setattr(http_client, "get", lambda *_: (404, b""))
    site.cluster.moves.configs[ConfigResource.TOPIC, "t"] = {MIN_ISR: "1"}
    ran = site("doctor", "--cluster", "-b", "h:1", "--output", "json")
    told = {each["check"]: each for each in json.loads(ran.out)["checks"]}
    assert ran.code == 0, ran.out
    assert (told["min.insync.replicas 1"]["level"], told["min.insync.replicas 1"]["ok"]) == ("warn", True)
    assert (told["clocks"]["level"], told["clocks"]["ok"]) == ("?", None)
    assert "is no broker's admin port" in told["clocks"]["text"]


def test_a_broker_that_does_not_answer_is_named_at_its_address(site: Any) -> None:
    site.cluster.moves.unheard[3] = ClientError("timed out")
    ran = site("doctor", "--cluster", "-b", "h:1")
    assert ran.code == 1 and "FAIL  brokers answer: broker 3 at localhost:9092: timed out; start it" in ran.out


def test_a_cluster_without_a_controller_is_told_so_and_the_rest_is_looked_at(site: Any) -> None:
    def refuse() -> None:
        raise ClientError("the controller is not known")

    site.cluster.moves.on_look = [refuse]
    ran = site("doctor", "--cluster", "-b", "h:1")
    lines = ran.out.splitlines()
    assert (ran.code, ran.err, len(lines)) == (1, "", len(CLUSTER_CHECKS))
    assert "?     reassignments: what is under way is not known: the controller is not known" in lines
    assert "ok    under-replicated partitions" in lines


def test_the_lag_of_a_group_whose_leader_is_gone_is_unknown(site: Any) -> None:
    views = dict(site.cluster.topics["t"].partitions)
    site.cluster.add_topic("t", {**views, 0: replace(views[0], leader=-1)})
    ran = site("doctor", "--cluster", "-b", "h:1")
    assert "?     growing lag: g: nobody tells where t-0 ends" in ran.out.splitlines()


def test_what_is_committed_of_a_deleted_topic_is_no_lag(site: Any) -> None:
    site.cluster.committed["g"][TopicPartition("deleted", 0)] = GroupOffset(7)
    ran = site("doctor", "--cluster", "-b", "h:1")
    assert "ok    growing lag" in ran.out.splitlines()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--admin", "1=h:1"), "--admin is for --cluster"),
        (("--cluster", "--admin", "9=h:1"), "there is no broker 9 that runs"),
        (("--cluster", "--admin", "h:1"), "is not ID=HOST:PORT"),
    ],
)
def test_a_wrong_option_is_a_usage_error(site: Any, words: tuple[str, ...], text: str) -> None:
    ran = site("doctor", "-b", "h:1", *words)
    assert (ran.code, ran.err.count("\n")) == (2, 1) and text in ran.err


def test_a_cluster_that_nobody_reaches_is_one_line(site: Any) -> None:
    site.cluster.is_reachable = False
    ran = site("doctor", "--cluster", "-b", "h:1")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
