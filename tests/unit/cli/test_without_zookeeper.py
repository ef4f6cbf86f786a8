"""ZooKeeper does not answer: `status -b`, `doctor --cluster` and `load` say so, and do not wait for each broker anew.

Brokers go on naming the last controller, which does not act any more.
"""

from __future__ import annotations

import json
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest

from strandline.cli.cluster_checks import CLUSTER_CHECKS
from strandline.cli.cluster_facts import UNLIKELY_TIMEOUT_MS
from strandline.cli.doctor_cluster import Verdict, said_once, verdicts_on
from strandline.client.errors import AnsweredError, ClientError, RequestTimedOut
from strandline.protocol.errors import ErrorCode
from strandline.runtime import http_client
from strandline.runtime.network import Address
from unit.cli.fake_moves import FakeMovingAdmin
from unit.cli.test_doctor_cluster import HEALTHY, on_each, told
from unit.cli.test_doctor_cluster_command import site
from unit.cli.test_load import AdminPorts, ports
from unit.cli.test_status import WITHOUT_ZOOKEEPER, Brokers, brokers, status

__all__ = ["brokers", "ports", "site", "status"]


def nobody_acts() -> None:
    """As an admin client says it when its time is over."""
    cause = AnsweredError(ErrorCode.NOT_CONTROLLER, "no broker acts as the controller now")
    raise RequestTimedOut(f"not done within 5000 ms; last cause: {cause}") from cause


def by_name(verdicts: list[Verdict]) -> dict[str, Verdict]:
    return {each.check: each for each in verdicts}


# --- status ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def headless(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """All three are well otherwise, and tell of ZooKeeper."""
    brokers.problems = {each: [WITHOUT_ZOOKEEPER] for each in (1, 2, 3)}
    monkeypatch.setattr(brokers, "list_partition_reassignments", lambda *_, **__: nobody_acts(), raising=False)
    return brokers


def test_status_is_not_well_where_nobody_acts_as_the_controller(status: Any, headless: Brokers) -> None:
    ran = status()
    assert ran.code == 1 and "(controller)" not in ran.out
    assert "error: brokers 1, 2, 3, ZooKeeper: the session is not connected; since" in ran.out
    assert ran.out.splitlines()[-1] == "not healthy: see the 1 line above"
    assert json.loads(status("--output", "json").out)["controller_id"] == -1


def test_status_is_not_well_where_one_broker_has_lost_zookeeper(status: Any, brokers: Brokers) -> None:
    """As it is where ZooKeeper does not answer whoever asks it from here."""
    brokers.problems = {1: [], 2: [WITHOUT_ZOOKEEPER], 3: []}
    ran = status()
    assert (ran.code, ran.out.splitlines()[-1]) == (1, "not healthy: see the 1 line above")


def test_status_says_so_also_where_no_broker_tells_what_is_wrong(status: Any, headless: Brokers) -> None:
    headless.problems = {}
    ran = status()
    assert (ran.code, ran.out.splitlines()[-1]) == (1, "no broker is the controller; see controller.log of all brokers")


def test_status_is_well_but_for_what_is_not_told(status: Any, brokers: Brokers) -> None:
    brokers.problems = {1: [], 2: []}
    ran = status()
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "healthy, but for the 1 line above: 1 topic, 1 partition")
    assert "broker 3 does not tell what is wrong with it" in ran.out


# --- doctor ----------------------------------------------------------------------------------------------------------

CUT = {**HEALTHY.statuses[1], "problems": [told("zookeeper", "ZooKeeper")]}
HEADLESS = replace(HEALTHY, is_led=False)


def test_what_brokers_tell_of_zookeeper_is_one_fault() -> None:
    found = by_name(verdicts_on(replace(HEADLESS, statuses={1: CUT, 2: CUT, 3: HEALTHY.statuses[3]})))
    assert (found["ZooKeeper"].level, found["ZooKeeper"].text) == ("FAIL", "brokers 1, 2: it broke")
    assert found["ZooKeeper"].since_ms is not None
    assert (found["controller"].level, found["controller"].text) == ("?", "see ZooKeeper")
    assert [each.check for each in found.values() if each.level == "FAIL"] == ["ZooKeeper"]


def test_without_a_controller_zookeeper_is_at_fault_unless_all_brokers_have_it() -> None:
    found = by_name(verdicts_on(replace(HEADLESS, statuses={}, untold=on_each("its port is off"))))
    assert found["ZooKeeper"].level == "FAIL" and found["ZooKeeper"].text.startswith("no broker acts as the controller")
    assert found["controller"].level == "?"
    found = by_name(verdicts_on(HEADLESS))
    assert (found["ZooKeeper"].level, found["controller"].level) == ("ok", "FAIL")
    assert found["controller"].text == "no broker acts as it"


def test_why_something_is_not_known_is_said_to_people_once() -> None:
    facts = replace(HEALTHY, statuses={}, skews={}, untold=on_each("its port is off"), topic_configs={})
    unknown = [each for each in said_once(verdicts_on(facts)) if each.level == "?"]
    assert sum("its port is off" in each.text for each in unknown) == 1
    assert sum("nobody tells the configuration" in each.text for each in unknown) == 1
    assert {each.check: each.text for each in unknown}["clocks"] == "see brokers are ready"
    assert len(unknown) > 6


def test_doctor_names_zookeeper_and_does_not_wait_for_what_stands_there(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = http_client.get
    barrier = Barrier(3, timeout=30)
    limits_ms: list[float] = []

    def tell(address: Address, *more: Any) -> tuple[int, bytes]:
        """The barrier lets nobody through until all have been asked."""
        barrier.wait()
        code, body = get(Address(address.host, 1001), *more)
        whole = {**json.loads(body), "broker_id": address.port - 1000, "problems": CUT["problems"]}
        return code, json.dumps(whole).encode()

    def unanswered(_: object, names: Any, keys: Any, *, timeout_ms: float) -> Any:
        limits_ms.append(timeout_ms)
        raise ClientError("no answer in time")

    site.cluster.moves.on_look = [nobody_acts]
    monkeypatch.setattr(http_client, "get", tell)
    monkeypatch.setattr(FakeMovingAdmin, "describe_topic_configs", unanswered)
    ran = site("doctor", "--cluster", "-b", "h:1")
    lines = ran.out.splitlines()
    assert (ran.code, ran.err, len(lines)) == (1, "", len(CLUSTER_CHECKS))
    assert lines[0].startswith("FAIL  ZooKeeper: brokers 1, 2, 3: it broke; since ")
    assert "?     controller: see ZooKeeper" in lines
    assert "controller" not in {line[6:].partition(":")[0] for line in lines if line.startswith("FAIL")}
    assert limits_ms == [UNLIKELY_TIMEOUT_MS]


# --- load ------------------------------------------------------------------------------------------------------------


def test_load_tells_the_figures_and_asks_all_brokers_at_once(
    shell: Any, ports: AdminPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, barrier = ports.get, Barrier(3, timeout=30)

    def wait(*asked: Any) -> tuple[int, bytes]:
        barrier.wait()
        return get(*asked)

    shell.cluster.moves.on_look = [nobody_acts]
    monkeypatch.setattr(http_client, "get", wait)
    ran = shell("load", "-b", "h:1")
    assert ran.code == 0 and "The load is even" in ran.out
    assert "what is under way is not known" in ran.err and "no broker acts as the controller" in ran.err
    assert "left out" not in ran.err
