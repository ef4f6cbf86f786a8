"""`strandline status` of a cluster that `up` did not start: by what its brokers say."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.broker.admin import remedies
from strandline.cli import cluster_probe
from strandline.client.errors import ClientError, NoBrokerReachable
from strandline.client.metadata import BrokerView, ClusterView
from strandline.protocol.messages import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
    UnfinishedDeletion,
)
from strandline.runtime import http_client
from strandline.runtime.network import Address, CannotConnect
from unit.cli.conftest import NOW_MS
from unit.cli.test_cluster_problems import FOUND, NONE_LED

GONE = {**FOUND, "remedy": "start it"}
WITHOUT_ZOOKEEPER = {
    **GONE,
    "level": "error",
    "kind": "zookeeper",
    "subject": "",
    "what": "the session is not connected",
    "where": "ZooKeeper",
    "led": NONE_LED,
}


class Brokers:
    """Brokers 1 and 2 run, and hold a partition with broker 3; the admin port of each has the number 9000 + its id.
    silent: do not answer at their advertised addresses."""

    def __init__(self) -> None:
        self.problems: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
        self.isr = [1, 2, 3]
        self.controller = 1
        self.registered = [1, 2, 3]
        self.silent: list[int] = []
        self.deletions: list[UnfinishedDeletion] = []
        self.is_reachable = True
        self.servers = ""

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None: ...

    def describe_cluster(self, **_: object) -> ClusterView:
        if not self.is_reachable:
            raise NoBrokerReachable("no broker answers at localhost:9092")
        return ClusterView("c", 1, {each: BrokerView(each, Address("host", each)) for each in self.registered})

    def describe_configs(self, kind: object, name: str, *_: object, **__: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="admin.listener", value=f"0.0.0.0:{9000 + int(name)}")]

    def list_partition_reassignments(self, *_: object, **__: object) -> Any:
        raise ClientError("nobody is the controller")

    def answer(self) -> MetadataResponse:
        brokers = [MetadataBroker(each, "host", each) for each in self.registered]
        topics = [MetadataTopic(0, "t", [MetadataPartition(0, 0, 1, 1, [1, 2, 3], self.isr)])]
        return MetadataResponse(brokers, topics, self.controller, "c", unfinished_deletions=self.deletions)

    def ask(self, addresses: dict[int, Address], **_: object) -> dict[int, MetadataResponse]:
        return {each: self.answer() for each in addresses if each not in self.silent}

    def get(self, address: Address, path: str, *_: object) -> tuple[int, bytes]:
        broker_id = address.port - 9000
        if address.host == "nowhere" or broker_id not in self.problems:
            raise CannotConnect(f"cannot connect to {address}")
        told = {"broker_id": broker_id, "cluster_id": "c", "problems": self.problems[broker_id]}
        return 200, b"an exporter" if address.host == "exporter" else json.dumps(told).encode()


@pytest.fixture
def brokers(shell: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Brokers:
    monkeypatch.chdir(tmp_path)
    made = Brokers()

    def admin(servers: str, **_: object) -> Brokers:
        made.servers = servers
        return made

    monkeypatch.setattr(shell.session, "admin", admin)
    monkeypatch.setattr(cluster_probe, "ask_brokers", made.ask)
    monkeypatch.setattr(http_client, "get", made.get)
    return made


@pytest.fixture
def status(shell: Any, brokers: Brokers) -> Callable[..., Any]:
    return lambda *arguments: shell("status", "-b", "host:1", *arguments)


def test_a_cluster_that_is_well_is_healthy(status: Any, brokers: Brokers) -> None:
    brokers.problems[3] = []
    ran = status()
    assert (ran.code, brokers.servers) == (0, "host:1")
    assert "cluster at host:1" in ran.out and "broker 1 (controller)" in ran.out and "pid" not in ran.out
    assert "host:9001" in ran.out, "where it can be scraped"
    assert ran.out.endswith("\nhealthy: 1 topic, 1 partition\n")


def test_the_brokers_are_asked_at_their_admin_ports_and_what_they_tell_is_told_once(
    status: Any, brokers: Brokers
) -> None:
    brokers.registered, brokers.isr, brokers.problems[1] = [1, 2], [1, 2], [GONE]
    ran = status()
    assert ran.code == 1
    assert "warning: broker 1, t-0: 1 partition is under-replicated: broker 3 does not run; since 20" in ran.out
    assert ran.out.splitlines()[-1] == "not healthy: see the 1 line above"
    assert [each for each in ran.out.splitlines() if "broker 3 " in each and "gone" in each], "a row of the table"


def test_what_no_broker_tells_is_in_the_verdict(status: Any, brokers: Brokers) -> None:
    brokers.registered, brokers.isr = [1, 2], [1, 2]
    brokers.deletions = [UnfinishedDeletion("old", "broker 3 does not run")]
    assert status().out.splitlines()[-3:] == [
        f"broker 3, which holds replicas, does not run; {remedies.START} 3",
        "0 partitions without a leader, 1 under-replicated of 1; strandline topics describe shows them",
        "topic old is being deleted and goes as soon as it can: broker 3 does not run",
    ]


def test_a_cluster_without_a_controller_is_not_healthy(status: Any, brokers: Brokers) -> None:
    brokers.controller, brokers.problems[3] = -1, []
    ran = status()
    assert (ran.code, ran.out.splitlines()[-1]) == (
        1,
        "no broker is the controller; see controller.log of all brokers",
    )
    assert "(controller)" not in ran.out
    brokers.problems[1] = [{**WITHOUT_ZOOKEEPER, "kind": "controller", "where": "controller"}]
    ran = status()
    assert (ran.code, ran.out.splitlines()[-1]) == (1, "not healthy: see the 1 line above"), "told by a broker"


def test_a_deletion_that_a_broker_tells_of_is_told_once(status: Any, brokers: Brokers) -> None:
    brokers.problems[3] = []
    brokers.deletions = [UnfinishedDeletion("old", "it is held"), UnfinishedDeletion("other", "it is held, too")]
    brokers.problems[1] = [
        {**GONE, "kind": "deletion", "subject": "old", "where": "topic old", "what": "is held up", "led": NONE_LED}
    ]
    ran = status()
    assert ran.out.splitlines()[-1] == "topic other is being deleted and goes as soon as it can: it is held, too"
    assert "topic old is being deleted" not in ran.out and "topic old: is held up" in ran.out


def test_a_broker_that_does_not_answer_is_named_with_its_address(status: Any, brokers: Brokers) -> None:
    brokers.silent = [2]
    ran = status()
    assert ran.code == 1
    assert "broker 2 runs and does not answer at host:2; mend advertised.listeners" in ran.out
    assert "broker 3 does not tell what is wrong with it: cannot connect to host:9003; say where" in ran.out


def test_what_cannot_be_asked_leaves_the_verdict_to_tell_of_partitions(status: Any, brokers: Brokers) -> None:
    brokers.isr, brokers.problems[1] = [1], [GONE]
    ran = status()
    assert "broker 3 does not tell" in ran.out, "and leads some, perhaps"
    assert "1 under-replicated of 1" in ran.out


def test_an_admin_port_can_be_named_also_of_a_broker_that_is_silent(status: Any, brokers: Brokers) -> None:
    brokers.silent = [2]
    brokers.problems[2] = [WITHOUT_ZOOKEEPER]
    ran = status("--admin", "2=elsewhere:9002", "--admin", "1=nowhere:9001")
    assert "error: broker 2, ZooKeeper: the session is not connected" in ran.out
    assert "broker 1 does not tell what is wrong with it: cannot connect to nowhere:9001" in ran.out


def test_what_listens_there_and_tells_of_no_problems_is_not_taken_for_well(status: Any, brokers: Brokers) -> None:
    ran = status("--admin", "1=exporter:9001")
    assert (
        "broker 1 does not tell what is wrong with it: the /status of exporter:9001 says nothing of problems" in ran.out
    )


def test_what_several_brokers_say_alike_is_one_line_with_the_first_moment(status: Any, brokers: Brokers) -> None:
    first = {**WITHOUT_ZOOKEEPER, "kind": "cleaner", "where": "t-0"}
    brokers.problems = {1: [first], 2: [{**first, "since_ms": NOW_MS - 120_000}], 3: []}
    ran = status()
    [line] = [line for line in ran.out.splitlines() if "t-0" in line]
    assert line.startswith("error: brokers 1, 2, t-0: ") and "(4 min)" in line
    assert ran.out.splitlines()[-1] == "healthy, but for the 1 line above: 1 topic, 1 partition"


def test_what_each_leader_tells_of_a_missing_broker_is_one_line_with_all_their_partitions(
    status: Any, brokers: Brokers
) -> None:
    brokers.registered, brokers.isr = [1, 2], [1, 2]
    more = {"count": 5, "first": ["a-0", "a-1", "a-2"]}
    other = {**GONE, "led": more, "what": "5 partitions are under-replicated: broker 3 does not run", "where": "a-0, …"}
    lagging = {**other, "subject": "broker 4 lags", "what": "5 partitions are under-replicated: broker 4 lags"}
    brokers.problems = {1: [GONE, lagging], 2: [{**other, "since_ms": NOW_MS - 480_000}]}
    told, apart = [line for line in status().out.splitlines() if line.startswith("warning")]
    assert told.startswith(
        "warning: brokers 1, 2, a-0, a-1, a-2 and 3 more: 6 partitions are under-replicated: broker 3 "
    )
    assert "(8 min)" in told and apart.startswith("warning: broker 1, a-0, …: 5 partitions are")


def test_an_admin_port_of_a_broker_that_there_is_not_is_a_usage_error(status: Any, brokers: Brokers) -> None:
    brokers.registered = [1, 2]
    ran = status("--admin", "9=nowhere:1")
    assert (ran.code, ran.out) == (2, "") and "--admin: there is no broker 9 that runs; those are 1, 2" in ran.err
    ran = status("--admin", "3=nowhere:1")
    assert ran.code == 1 and "broker 3, which holds replicas, does not run" in ran.out, "the ports of all may be named"


def test_programs_get_every_broker_and_each_problem_with_its_moment(status: Any, brokers: Brokers) -> None:
    brokers.registered, brokers.isr, brokers.problems[1] = [1, 2], [1, 2], [GONE]
    document = json.loads(status("--output", "json").out)
    assert {each["id"]: each["state"] for each in document["brokers"]} == {1: "up", 2: "up", 3: "gone"}
    assert document["problems"] == [{"broker": 1, **GONE}]
    assert [each["admin_address"] for each in document["brokers"]] == ["host:9001", "host:9002", None]
    assert (document["data_dir"], document["zookeeper"], document["healthy"]) == (None, None, False)


def test_where_nobody_answers_that_is_all(status: Any, brokers: Brokers) -> None:
    brokers.is_reachable = False
    ran = status()
    assert (ran.code, ran.out) == (1, "") and ran.err == "strandline: no broker answers at localhost:9092\n"


def test_which_cluster_is_meant_is_found_as_by_other_commands(
    shell: Any, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.problems[3] = []
    shell.cluster.folders.clear()
    assert shell("status").code == 0 and brokers.servers == "localhost:9092"
    monkeypatch.setenv("STRANDLINE_BOOTSTRAP", "other:1")
    assert shell("status").code == 0 and brokers.servers == "other:1"
    ran = shell("status", "--data", "folder")
    assert ran.code == 1 and ran.err.startswith("strandline: no cluster is up in ")
    assert shell("status", "--data", "folder", "-b", "host:1").code == 2
