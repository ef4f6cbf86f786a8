"""`strandline load`: who has how much of the load, and the plan that evens it out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.json_files import read_assignment
from strandline.client.errors import ClientError
from strandline.client.metadata import PartitionView
from strandline.client.reassignments import OngoingReassignment
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from strandline.runtime import http_client
from strandline.runtime.network import Address, CannotConnect

METRICS = """# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total {cpu}
process_open_fds 100
strandline_node_cpu_seconds_total{{mode="iowait"}} 0
strandline_node_cpu_seconds_total{{mode="user"}} {looks}
kafka_server_brokertopicmetrics_bytesin_total{{topic="t"}} {written}
"""


class AdminPorts:
    """One for each broker, at port 1000 + id; `cpu`: processors that each uses; `written`: bytes in 5 s."""

    def __init__(self) -> None:
        self.cpu = {1: 0.5, 2: 0.5, 3: 0.5}
        self.written = 1_000_000
        self.status = {broker_id: {"broker_id": broker_id, "cluster_id": "id"} for broker_id in (1, 2, 3)}
        self.looks: dict[int, int] = {}
        self.asked: list[tuple[Address, str]] = []
        self.answers: dict[tuple[int, str], Callable[[], tuple[int, bytes]]] = {}

    def get(self, address: Address, path: str, timeout_s: float, max_body_bytes: int = 2**20) -> tuple[int, bytes]:
        self.asked.append((address, path))
        broker_id = address.port - 1000
        if (broker_id, path) in self.answers:
            return self.answers[broker_id, path]()
        if path == "/status":
            return 200, json.dumps(self.status[broker_id]).encode()
        looks = self.looks[broker_id] = self.looks.get(broker_id, 0) + 1
        cpu = 100 + looks * self.cpu[broker_id] * 5
        return 200, METRICS.format(cpu=cpu, looks=looks, written=looks * self.written).encode()


def refuse() -> tuple[int, bytes]:
    raise CannotConnect("nobody answers at http://127.0.0.1:1002/status: refused")


@pytest.fixture
def ports(shell: Any, monkeypatch: pytest.MonkeyPatch) -> AdminPorts:
    """Three brokers and six partitions, two led by each."""
    found = AdminPorts()
    monkeypatch.setattr(http_client, "get", found.get)
    shell.session.step_s = 0.0  # time goes on in between, and not while somebody looks
    moves = shell.cluster.moves
    moves.racks = dict.fromkeys((1, 2, 3))
    for broker_id in (1, 2, 3):
        moves.configs[ConfigResource.BROKER, str(broker_id)] = {"admin.listener": f"127.0.0.1:{1000 + broker_id}"}
    lead(shell, 1, 2, 3, 1, 2, 3)
    return found


def lead(shell: Any, *leaders: int) -> None:
    """A partition for each, whose replicas begin with its leader."""
    order = {1: (1, 2, 3), 2: (2, 3, 1), 3: (3, 1, 2)}
    views = {number: PartitionView(leader, 1, order[leader], order[leader]) for number, leader in enumerate(leaders)}
    shell.cluster.add_topic("t", views)


def test_an_even_cluster_is_exit_code_0(shell: Any, ports: AdminPorts) -> None:
    ran = shell("load", "-b", "h:1")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].split() == ["BROKER", "SHARE", "DEVIATION", "PARTITIONS", "LEADERS", "CPUUSED", "NWBYTESIN", "FD"]
    assert lines[1].split()[:6] == ["1", "33.3%", "+0.0%", "6", "2", "0.50"]
    assert "left out: iowait, 0 everywhere" in lines and "left out: ioRead, no broker tells it" in lines
    assert lines[-1].startswith("The load is even: no broker deviates by more than 10 % (σ 0.0000, at most 0.0333)")
    assert shell.session.clock == 5


def test_what_idle_brokers_do_now_and_then_is_no_load(shell: Any, ports: AdminPorts) -> None:
    ports.cpu, ports.written = {1: 0.01, 2: 0.02, 3: 0.04}, 1_000
    ran = shell("load", "-b", "h:1")
    assert ran.code == 0, ran.out
    assert {"left out: cpuUsed, idle everywhere", "left out: nwBytesIn, idle everywhere"} <= set(ran.out.splitlines())
    ports.cpu[3] = 0.4
    assert shell("load", "-b", "h:1").code == 1, "one that is at work is compared with those that are not"


def test_an_uneven_one_says_what_to_move_and_writes_the_plan(shell: Any, ports: AdminPorts, tmp_path: Path) -> None:
    lead(shell, 1, 1, 1, 1, 1, 1)
    plan = tmp_path / "even plan.json"
    ran = shell("load", "-b", "h:1", "--reassignment-file", str(plan), "--weights", "cpu=0,nwBytesIn=0,fd=0,part=0")
    assert ran.code == 1
    assert "The load is UNEVEN: broker 1 +200.0%" in ran.out
    assigned = read_assignment(plan)
    assert len(assigned) == 4 and sorted(replicas[0] for replicas in assigned.values()) == [2, 2, 3, 3]
    assert all(sorted(replicas) == [1, 2, 3] for replicas in assigned.values())
    assert "4 partitions to change, 0 replicas to copy: 0 B; then the farthest" in ran.out
    named = " ".join(f"t:{tp.partition}" for tp in assigned)
    assert ran.out.endswith(
        f"  strandline reassign execute '{plan}' --wait -b h:1\n  strandline elect-leaders {named} -b h:1\n"
    )


def test_what_it_prints_can_be_run(shell: Any, ports: AdminPorts, tmp_path: Path) -> None:
    lead(shell, 1, 1, 1, 1, 1, 1)
    plan = str(tmp_path / "even.json")
    shell("load", "-b", "h:1", "--reassignment-file", plan)
    ran = shell("reassign", "execute", plan, "-b", "h:1")
    assert ran.code == 0, ran.err
    [asked] = shell.cluster.moves.asked
    assert asked == dict(read_assignment(Path(plan)))


def test_without_a_controller_the_load_is_told_and_no_plan(shell: Any, ports: AdminPorts, tmp_path: Path) -> None:
    def refuse() -> None:
        raise ClientError("the controller is not known")

    lead(shell, 1, 1, 1, 1, 1, 1)
    shell.cluster.moves.on_look = [refuse]
    ran = shell("load", "-b", "h:1")
    assert ran.code == 1 and "The load is UNEVEN: broker 1" in ran.out.splitlines()[-1]
    assert ran.err == (
        "strandline: what to move is not said: what is under way is not known: the controller is not known\n"
    )
    plan = tmp_path / "even.json"
    plan.write_text("an older one")
    shell.cluster.moves.on_look = [refuse]
    ran = shell("load", "-b", "h:1", "--reassignment-file", str(plan))
    assert ran.out.endswith(f"What may be moved is not known: {plan} is as it was.\n")
    assert plan.read_text() == "an older one"


def test_what_is_under_way_somewhere_is_left_alone(shell: Any, ports: AdminPorts) -> None:
    lead(shell, 1, 1, 1, 1, 1, 1)
    shell.cluster.moves.looks = None
    for number in range(4):
        shell.cluster.moves.ongoing[TopicPartition("t", number)] = OngoingReassignment((1, 2, 3), (), ())
    told = json.loads(shell("load", "-b", "h:1", "--output", "json").out)
    assert {each["partition"] for each in told["moves"]} == {4, 5}


def test_leaders_that_are_away_from_their_preferred_replicas_need_no_plan(
    shell: Any, ports: AdminPorts, tmp_path: Path
) -> None:
    views = {0: PartitionView(1, 1, (2, 1), (2, 1)), 1: PartitionView(1, 1, (1, 2), (1, 2))}
    shell.cluster.add_topic("t", views)
    plan = tmp_path / "even.json"
    weights = "leaders=1,part=0,cpu=0,nwBytesIn=0,fd=0"
    shell.cluster.moves.racks = dict.fromkeys((1, 2))
    ran = shell("load", "-b", "h:1", "--reassignment-file", str(plan), "--weights", weights, "--output", "json")
    told = json.loads(ran.out)
    assert told["next"] == ["strandline elect-leaders t:0 -b h:1"]
    assert told["reassignment_file"] is None and not plan.exists()


def test_an_old_plan_does_not_stay_where_there_is_nothing_to_reassign(
    shell: Any, ports: AdminPorts, tmp_path: Path
) -> None:
    plan = tmp_path / "even.json"
    plan.write_text("an older one")
    ran = shell("load", "-b", "h:1", "--reassignment-file", str(plan))
    assert ran.out.endswith(f"Nothing to reassign: no file written, the old {plan} is removed.\n")
    assert ran.code == 0 and not plan.exists()
    assert shell("load", "-b", "h:1", "--reassignment-file", str(plan)).out.endswith("no file written.\n")


def test_commands_name_the_cluster_as_it_was_named(shell: Any, ports: AdminPorts) -> None:
    lead(shell, 1, 1, 1, 1, 1, 1)
    shell.cluster.folders["my data"] = "h:1"
    told = json.loads(shell("load", "--data", "my data", "-X", "client.id=me", "--output", "json").out)
    assert len(told["next"]) == 2 and all(each.endswith(" --data 'my data' -X client.id=me") for each in told["next"])
    shell.cluster.folders["strandline-data"] = "h:1"
    told = json.loads(shell("load", "--output", "json").out)
    assert told["next"][0].endswith(" --wait")


def test_one_broker_alone_is_not_called_even(shell: Any, ports: AdminPorts) -> None:
    for broker_id in (1, 3):
        ports.answers[broker_id, "/metrics"] = lambda: (404, b"")
    ran = shell("load", "-b", "h:1")
    assert ran.code == 1 and "is even" not in ran.out
    assert "No verdict: only broker 2 tells its figures" in ran.out
    assert json.loads(shell("load", "-b", "h:1", "--output", "json").out)["even"] is None


def test_programs_get_all_of_it(shell: Any, ports: AdminPorts) -> None:
    ports.cpu[3] = 2.0
    ran = shell("load", "-b", "h:1", "--output", "json", "--threshold", "12.5", "--weights", "cpuUsed=2")
    told = json.loads(ran.out)
    assert (ran.code, told["even"], told["threshold"], told["interval_s"]) == (1, False, 0.125, 5.0)
    assert told["weights"] == {"partitions": 1, "leaders": 1, "cpuUsed": 2, "nwBytesIn": 1, "fd": 1}
    heaviest = told["brokers"][0]
    assert (heaviest["broker"], heaviest["uneven"]) == (3, True)
    assert heaviest["indicators"]["cpuUsed"] == pytest.approx(2.0)
    assert heaviest["shares"]["cpuUsed"] == pytest.approx(2 / 3)
    assert heaviest["deviation"] == pytest.approx((4 / 3 + 2 * 2 / 3) / 6 * 3 - 1)
    assert told["sigma_bound"] == pytest.approx(0.125 / 3) and told["sigma"] > told["sigma_bound"]
    assert told["untold"] == []


@pytest.mark.parametrize(
    ("path", "answer", "why"),
    [
        ("/status", refuse, "nobody answers at http://127.0.0.1:1002/status: refused; say where it is reached"),
        (
            "/status",
            lambda: (200, b'{"broker_id": 2, "cluster_id": "x"}'),
            "1002 is broker 2 of cluster x",
        ),
        ("/status", lambda: (200, b"<html>"), "127.0.0.1:1002 is no broker's admin port"),
        ("/metrics", lambda: (404, b"{}"), "http://127.0.0.1:1002/metrics answered 404"),
        ("/metrics", lambda: (200, b"process_open_fds many\n"), "no metrics in the format of Prometheus"),
        ("/metrics", lambda: (200, b""), "http://127.0.0.1:1002/metrics: there are no figures of a broker"),
    ],
)
def test_a_broker_that_does_not_tell_is_named_and_left_out(
    shell: Any, ports: AdminPorts, path: str, answer: Callable[[], tuple[int, bytes]], why: str
) -> None:
    ports.answers[2, path] = answer
    ran = shell("load", "-b", "h:1")
    assert ran.code == 1 and ran.err.count("\n") == 1
    assert ran.err.startswith("strandline: broker 2 is left out: ") and why in ran.err
    assert [line.split()[0] for line in ran.out.splitlines()[1:3]] == ["1", "3"]
    assert "The load is even" in ran.out


def test_what_a_broker_that_was_started_anew_has_counted_is_left_out(shell: Any, ports: AdminPorts) -> None:
    ports.cpu[2] = -1.0  # its counter went down, while its machine's did not
    ran = shell("load", "-b", "h:1")
    assert ran.code == 0 and "left out: cpuUsed, not told by 2" in ran.out


def test_what_one_broker_alone_does_not_tell_counts_for_none(shell: Any, ports: AdminPorts) -> None:
    ports.answers[2, "/metrics"] = lambda: (200, b"process_cpu_seconds_total 5\nprocess_open_fds -5\n")
    ran = shell("load", "-b", "h:1", "--weights", "cpu=0")
    assert ran.code == 0 and "left out: fd, not told by 2" in ran.out


def uneven_on_two(shell: Any, in_sync: tuple[int, ...]) -> None:
    """Six partitions on brokers 1 and 2, none on broker 3."""
    shell.cluster.add_topic("t", {number: PartitionView(1, 1, (1, 2), in_sync) for number in range(6)})


HELD_UP = (
    "Replicas of 6 partitions (t-0, t-1, t-2, t-3, t-4 and 1 more) stay where they are: "
    "no move of them ends before broker 2 is in sync again."
)


def test_beside_a_replica_whose_broker_does_not_run_nothing_is_copied_and_that_is_said(
    shell: Any, ports: AdminPorts, tmp_path: Path
) -> None:
    uneven_on_two(shell, in_sync=(1,))
    del shell.cluster.moves.racks[2]
    plan, page = tmp_path / "even.json", tmp_path / "load.html"
    ran = shell("load", "-b", "h:1", "--reassignment-file", str(plan), "--page", str(page))
    assert (ran.code, plan.exists()) == (1, False)
    assert ran.out.splitlines()[-4:-2] == ["Nothing that can be moved makes it more even.", HELD_UP]
    assert "What stays where it is" in page.read_text()
    told = json.loads(shell("load", "-b", "h:1", "--output", "json").out)
    assert (told["moves"], told["next"]) == ([], [])
    assert told["held_up"] == [{"topic": "t", "partition": number, "brokers": [2]} for number in range(6)]


def test_a_broker_that_is_gone_and_not_yet_missed_holds_up_what_it_has(shell: Any, ports: AdminPorts) -> None:
    """Its ZooKeeper session lasts, so that it is still called in sync."""
    uneven_on_two(shell, in_sync=(1, 2))
    ports.answers[2, "/status"] = refuse
    assert json.loads(shell("load", "-b", "h:1", "--output", "json").out)["moves"]
    shell.cluster.moves.unheard[2] = ClientError("refused")
    ran = shell("load", "-b", "h:1")
    assert HELD_UP in ran.out.splitlines() and "To do it" not in ran.out


def test_a_broker_that_does_not_run_is_named_too(shell: Any, ports: AdminPorts) -> None:
    del shell.cluster.moves.racks[3]
    ran = shell("load", "-b", "h:1")
    assert (ran.code, ran.err) == (1, "strandline: broker 3 is left out: it does not run\n")


def test_a_broker_whose_port_is_switched_off_is_named_with_the_remedy(shell: Any, ports: AdminPorts) -> None:
    shell.cluster.moves.configs[ConfigResource.BROKER, "3"]["admin.listener"] = ""
    ran = shell("load", "-b", "h:1")
    assert ran.code == 1 and "broker 3 is left out: its admin port is switched off" in ran.err
    assert "--admin 3=HOST:PORT" in ran.err


def test_a_port_that_listens_everywhere_is_asked_where_the_broker_is(shell: Any, ports: AdminPorts) -> None:
    shell.cluster.moves.configs[ConfigResource.BROKER, "3"]["admin.listener"] = "0.0.0.0:1003"
    assert shell("load", "-b", "h:1").code == 0
    assert {address.host for address, _ in ports.asked if address.port == 1003} == {"localhost"}


def test_a_port_that_is_named_counts_and_may_be_an_exporters(shell: Any, ports: AdminPorts) -> None:
    shell.cluster.moves.configs[ConfigResource.BROKER, "3"]["admin.listener"] = ""
    ports.answers[3, "/status"] = lambda: (404, b"")
    ran = shell("load", "-b", "h:1", "--admin", "3=exporter:1003")
    assert ran.code == 0, ran.err
    assert (Address("exporter", 1003), "/metrics") in ports.asked


def test_where_no_broker_tells_anything_that_is_one_line(shell: Any, ports: AdminPorts) -> None:
    for broker_id in (1, 2, 3):
        ports.answers[broker_id, "/metrics"] = lambda: (404, b"")
    ran = shell("load", "-b", "h:1")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "no broker tells its figures: broker 1: http://127.0.0.1:1001/metrics answered 404" in ran.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--threshold", "ten"), "--threshold 'ten' is no share"),
        (("--threshold", "0%"), "--threshold '0%'"),
        (("--threshold", "nan"), "--threshold 'nan'"),
        (("--interval", "soon"), "--interval 'soon' is no duration"),
        (("--interval", "1ms"), "too short"),
        (("--interval", "86401"), "--interval '86401' is longer than a day"),
        (("--interval", "1000000000000h"), "is longer than a day"),
        (("--interval", "9" * 400 + "h"), "is no duration"),
        (("--weights", "nw=2"), "nw may be nwBytesIn or nwBytesOut"),
        (("--weights", "heat=2"), "heat is none of partitions, leaders"),
        (("--weights", "cpu=-1"), "no number from 0 on"),
        (("--weights", "cpu"), "no number from 0 on"),
        (("--weights", "cpu=1,cpuUsed=2"), "names cpuUsed twice"),
        (("--weights", "=1"), "an empty name"),
        (("--admin", "host:9644"), "--admin 'host:9644'"),
        (("--admin", "x=host:9644"), "is not ID=HOST:PORT"),
        (("--admin", "1=host"), "must be host:port"),
        (("--admin", "1=h:0"), "names no port"),
        (("--admin", "1=h:1", "--admin", "1=h:2"), "names broker 1 twice"),
        (("--admin", "9=h:1"), "there is no broker 9 that runs; those are 1, 2, 3"),
    ],
)
def test_a_wrong_option_is_a_usage_error(shell: Any, ports: AdminPorts, words: tuple[str, ...], text: str) -> None:
    ran = shell("load", "-b", "h:1", *words)
    assert (ran.code, ran.err.count("\n")) == (2, 1) and text in ran.err


def test_weights_of_nothing_leave_nothing_to_go_by(shell: Any, ports: AdminPorts) -> None:
    ran = shell("load", "-b", "h:1", "--weights", "part=0,lead=0,cpu=0,nwBytesIn=0,fd=0")
    assert ran.code == 1 and "no indicator is left" in ran.err


def test_the_page_has_the_pie_the_deviations_and_why_somebody_is_left_out(
    shell: Any, ports: AdminPorts, tmp_path: Path
) -> None:
    ports.cpu[1] = 9.0
    ports.answers[3, "/metrics"] = lambda: (404, b"<script>")
    path = tmp_path / "load.html"
    ran = shell("load", "-b", "h:1", "--page", str(path))
    text = path.read_text()
    assert ran.code == 1 and f"page: {path}" in ran.out
    assert text.count("<circle") == 2 and "broker 1: 58.9%" in text
    assert "stroke-dasharray" in text and "What to move" in text and "Brokers that are left out" in text
    assert "<script" not in text
