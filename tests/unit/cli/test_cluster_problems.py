"""`strandline status` shows what brokers tell that somebody must act on."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline import Admin
from strandline.cli import cluster
from strandline.cli import status as status_command
from strandline.cli.cluster_problems import problem_lines, problems_of
from strandline.client.metadata import BrokerView
from strandline.runtime import http_client
from strandline.runtime.network import Address, CannotConnect
from unit.cli.conftest import NOW_MS

NONE_LED = {"count": 0, "first": []}
FOUND = {
    "level": "warning",
    "kind": "under-replicated",
    "subject": "broker 3 is gone",
    "what": "1 partition is under-replicated: broker 3 does not run",
    "where": "t-0",
    "since_ms": NOW_MS - 240_000,
    "led": {"count": 1, "first": ["t-0"]},
    "remedy": "start it; gone for good: strandline broker-decommission 3",
}
OFFLINE = {**FOUND, "led": NONE_LED, "level": "error", "where": "/data", "since_ms": NOW_MS - 1000}
HEALTHY = {
    "data_dir": "d",
    "zookeeper": {"state": "up", "address": "h:2181", "pid": 1, "resident_bytes": None},
    "brokers": [],
    "controller_id": 1,
    "topics": 1,
    "partitions": 1,
    "without_leader": 0,
    "under_replicated": 0,
    "refused_replicas": [],
    "unfinished_deletions": [],
    "healthy": True,
}


class Listening:
    """An admin client: each broker's admin port has the number 9000 + its id."""

    def describe_configs(self, kind: object, name: str, *_: object, **__: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="admin.listener", value=f"localhost:{9000 + int(name)}")]


def answers(monkeypatch: pytest.MonkeyPatch, of_broker: dict[int, list[dict[str, object]]]) -> None:
    def get(address: Address, *_: object) -> tuple[int, bytes]:
        broker_id = address.port - 9000
        if broker_id not in of_broker:
            raise CannotConnect(f"cannot connect to {address}")
        status = {"broker_id": broker_id, "cluster_id": "c", "problems": of_broker[broker_id]}
        return 200, json.dumps(status).encode()

    monkeypatch.setattr(http_client, "get", get)


def test_brokers_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where their ports are, then what they have to say: the barrier lets nobody through until all have come."""
    barrier = Barrier(3, timeout=30)
    answers(monkeypatch, {1: [], 2: [FOUND], 3: []})
    get, describe = http_client.get, Listening.describe_configs

    def waiting(ask: Any) -> Any:
        def wait(*arguments: Any, **more: Any) -> Any:
            barrier.wait()
            return ask(*arguments, **more)

        return wait

    monkeypatch.setattr(http_client, "get", waiting(get))
    monkeypatch.setattr(Listening, "describe_configs", waiting(describe))
    brokers = {each: BrokerView(each, Address("localhost", 9091 + each)) for each in (1, 2, 3)}
    found, untold, _ = problems_of(cast(Admin, Listening()), brokers, "c", {})
    assert (found, untold) == ([{"broker": 2, **FOUND}], [])


def test_every_broker_is_asked_and_errors_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, {1: [FOUND], 2: [OFFLINE]})
    brokers = {each: BrokerView(each, Address("localhost", 9091 + each)) for each in (1, 2, 3)}
    found, untold, _ = problems_of(cast(Admin, Listening()), brokers, "c", {})
    assert found == [{"broker": 2, **OFFLINE}, {"broker": 1, **FOUND}]
    [silent] = untold
    assert silent["broker"] == 3 and silent["why"].startswith("cannot connect to localhost:9003; say where it is")


@pytest.mark.parametrize(
    "problem",
    [
        "disk full",
        None,
        {},
        {**FOUND, "led": [1]},
        {**FOUND, "led": {"count": 1, "first": [1]}},
        {**FOUND, "where": ["t-0"]},
        {**FOUND, "since_ms": "yesterday"},
        {**FOUND, "since_ms": 10**18},
        {**FOUND, "subject": None},
    ],
)
def test_what_cannot_be_understood_is_untold_and_the_others_stand(
    monkeypatch: pytest.MonkeyPatch, problem: object
) -> None:
    answers(monkeypatch, {1: cast(Any, [problem, FOUND])})
    brokers = {1: BrokerView(1, Address("localhost", 9001))}
    found, untold, _ = problems_of(cast(Admin, Listening()), brokers, "c", {})
    assert found == [{"broker": 1, **FOUND}]
    assert [(each["broker"], "in another form" in each["why"]) for each in untold] == [(1, True)]
    assert len(problem_lines({"problems": found, "problems_untold": untold}, NOW_MS)) == 2


@pytest.mark.parametrize("problems", [None, {}, 3, "none"])
def test_problems_that_are_no_list_are_untold(monkeypatch: pytest.MonkeyPatch, problems: object) -> None:
    answers(monkeypatch, {1: cast(Any, problems)})
    found, untold, _ = problems_of(cast(Admin, Listening()), {1: BrokerView(1, Address("localhost", 9001))}, "c", {})
    assert (found, len(untold)) == ([], 1)


def test_a_problem_without_kind_subject_and_those_it_leads_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = {key: value for key, value in FOUND.items() if key not in ("kind", "subject", "led")}
    answers(monkeypatch, {1: [bare]})
    found, untold, _ = problems_of(cast(Admin, Listening()), {1: BrokerView(1, Address("localhost", 9001))}, "c", {})
    assert untold == []
    [line] = problem_lines({"problems": found, "problems_untold": untold}, NOW_MS)
    assert line.startswith("warning: broker 1, t-0: 1 partition is under-replicated: broker 3 does not run; since 20")


@pytest.fixture
def status(shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `strandline status` on a report."""

    def run(report: dict[str, Any], *arguments: str) -> Any:
        monkeypatch.setattr(status_command, "embedded_report", lambda *_: report)
        monkeypatch.setattr(cluster.EmbeddedCluster, "recorded", lambda folder: cluster.EmbeddedCluster(folder))
        return shell("status", "--data", str(tmp_path), *arguments)

    return run


def test_a_line_says_what_where_since_when_and_what_to_do(status: Any) -> None:
    ran = status({**HEALTHY, "problems": [{"broker": 1, **FOUND}], "problems_untold": []})
    [line] = [line for line in ran.out.splitlines() if "t-0" in line]
    assert line.startswith("warning: broker 1, t-0: 1 partition is under-replicated: broker 3 does not run; since 20")
    assert line.endswith(" UTC (4 min); start it; gone for good: strandline broker-decommission 3")


def test_the_exit_code_goes_by_the_cluster_as_before(status: Any) -> None:
    report = {**HEALTHY, "problems": [{"broker": 1, **OFFLINE}], "problems_untold": []}
    assert status(report).code == 0
    assert status({**report, "healthy": False}).code == 1


def test_programs_get_them_whole(status: Any) -> None:
    told = {"problems": [{"broker": 1, **FOUND}], "problems_untold": [{"broker": 2, "why": "refused"}]}
    document = json.loads(status({**HEALTHY, **told}, "--output", "json").out)
    assert {key: document[key] for key in told} == told


def test_a_broker_that_does_not_tell_is_named(status: Any) -> None:
    ran = status({**HEALTHY, "problems": [], "problems_untold": [{"broker": 2, "why": "refused"}]})
    assert "broker 2 does not tell what is wrong with it: refused" in ran.out
