"""What `up` writes down is what `down` finds, and damage is said instead of guessed round."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strandline.cli.cluster import (
    ClusterAlreadyUp,
    ClusterNotUp,
    DataOfMoreBrokers,
    EmbeddedCluster,
    down,
    running_bootstrap,
    up,
)
from strandline.cli.cluster_state import (
    STATE_FILE,
    ClusterBusy,
    Member,
    StateUnreadable,
    check_folder,
    locked,
    read_state,
    write_state,
)
from strandline.cli.main import run
from strandline.cli.process import ProcessId, identify
from strandline.cli.zookeeper import java_property

GONE = ProcessId(2**22 - 1, "an earlier boot:1")
MEMBERS = {"zookeeper": Member("zookeeper", GONE, 2181), "broker-1": Member("broker-1", GONE, 9092)}


def test_the_state_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_state(tmp_path, MEMBERS)
    assert read_state(tmp_path) == MEMBERS


def test_an_empty_state_leaves_no_file(tmp_path: Path) -> None:
    write_state(tmp_path, MEMBERS)
    write_state(tmp_path, {})
    assert read_state(tmp_path) is None
    assert not (tmp_path / STATE_FILE).exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "processes": {"broker-1": {}}}'])
def test_a_damaged_state_names_the_file_and_the_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / STATE_FILE).write_text(text)
    with pytest.raises(StateUnreadable, match=r"cluster\.json is not readable .* remove the file"):
        read_state(tmp_path)


@pytest.mark.parametrize("command", ["up", "demo"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a,b", "a,b' has a comma in its path, where log.dirs would end; name a folder without one"),
        ("a\nb", "a\\nb' has a control character in its path; name a folder without one"),
        ("a\udce9b", "a\\udce9b': the path is not UTF-8; name another folder, or set LC_ALL=C.UTF-8 if it is"),
    ],
)
def test_a_path_that_brokers_cannot_be_told_is_refused_by_name(
    command: str, name: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--data", str(tmp_path / name)]) == 2
    error = capfd.readouterr().err
    assert said in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_path_with_blanks_and_foreign_letters_is_taken(tmp_path: Path) -> None:
    check_folder(tmp_path / "josé \\ #1 日本")


@pytest.mark.parametrize(
    ("path", "written"), [("/a b", "/a b"), ("/é\\n", r"/\u00e9\\n"), ("/😀\u2028", r"/\ud83d\ude00\u2028")]
)
def test_a_path_reaches_javas_properties_in_ascii(path: str, written: str) -> None:
    assert java_property(path) == written


def test_two_commands_do_not_change_one_cluster_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ClusterBusy), locked(tmp_path):
        pytest.fail("the second one got in")


def test_a_recorded_cluster_knows_its_addresses_and_its_dead(tmp_path: Path) -> None:
    write_state(tmp_path, MEMBERS)
    cluster = EmbeddedCluster.recorded(tmp_path)
    assert cluster.bootstrap_servers == "127.0.0.1:9092"
    assert cluster.zookeeper.address == "127.0.0.1:2181"
    assert cluster.dead_members() == ["zookeeper", "broker-1"]
    assert running_bootstrap(tmp_path) is None


def test_a_living_broker_gives_the_bootstrap_address(tmp_path: Path) -> None:
    myself = identify(os.getpid())
    assert myself is not None
    write_state(tmp_path, {**MEMBERS, "broker-1": Member("broker-1", myself, 9092)})
    assert running_bootstrap(tmp_path) == "127.0.0.1:9092"


def test_up_refuses_where_somebody_else_runs_one(tmp_path: Path) -> None:
    myself = identify(os.getpid())
    assert myself is not None
    write_state(tmp_path, {"broker-1": Member("broker-1", myself, 9092)})
    with pytest.raises(ClusterAlreadyUp, match="strandline down stops it"):
        EmbeddedCluster(tmp_path, 1).start()


def test_stop_leaves_alone_what_somebody_else_started(tmp_path: Path) -> None:
    myself = identify(os.getpid())
    assert myself is not None
    members = {"broker-1": Member("broker-1", myself, 9092)}
    write_state(tmp_path, members)
    EmbeddedCluster(tmp_path, 3).stop(timeout_s=0.1)
    assert read_state(tmp_path) == members


def test_a_folder_without_a_cluster_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ClusterNotUp, match="strandline up"):
        EmbeddedCluster.recorded(tmp_path)


def test_down_clears_away_a_cluster_that_died(tmp_path: Path) -> None:
    write_state(tmp_path, MEMBERS)
    down(tmp_path)
    assert read_state(tmp_path) is None
    with pytest.raises(ClusterNotUp):
        down(tmp_path)


def leave_data(data_dir: Path, brokers: int) -> None:
    for broker_id in range(1, brokers + 1):
        (data_dir / f"broker-{broker_id}").mkdir()
        (data_dir / f"broker-{broker_id}" / "server.properties").touch()


def test_up_does_not_leave_data_of_brokers_behind(tmp_path: Path) -> None:
    leave_data(tmp_path, 3)
    with pytest.raises(DataOfMoreBrokers, match="data of 3 brokers; give --brokers 3 or another --data"):
        up(tmp_path, brokers=2)


@pytest.mark.parametrize(
    ("recorded", "with_data", "asked_for", "expected"),
    [
        (("zookeeper",), 0, None, 3),
        (("zookeeper",), 0, 2, 2),
        (("zookeeper",), 2, None, 2),
        (("zookeeper",), 2, 4, 4),
        (("zookeeper", "broker-1"), 2, None, 2),
        (("zookeeper", "broker-1"), 2, 2, 2),
    ],
)
def test_up_starts_brokers_that_a_failed_start_left_without_a_record(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorded: tuple[str, ...],
    with_data: int,
    asked_for: int | None,
    expected: int,
) -> None:
    myself = identify(os.getpid())
    assert myself is not None
    leave_data(tmp_path, with_data)
    write_state(tmp_path, {name: Member(name, myself, 2181 + at) for at, name in enumerate(recorded)})
    monkeypatch.setattr(EmbeddedCluster, "start", lambda *_: None)
    cluster = up(tmp_path, asked_for)
    assert cluster.broker_ids == list(range(1, expected + 1))
    missing = [name for name in map("broker-{}".format, cluster.broker_ids) if name not in recorded]
    assert cluster.dead_members() == missing
    assert cluster.zookeeper.address == "127.0.0.1:2181"


def test_up_refuses_another_number_of_brokers_while_one_is_recorded(tmp_path: Path) -> None:
    myself = identify(os.getpid())
    assert myself is not None
    leave_data(tmp_path, 3)
    write_state(tmp_path, {"broker-1": Member("broker-1", myself, 9092)})
    with pytest.raises(ClusterAlreadyUp, match="a cluster of 3 brokers is recorded"):
        up(tmp_path, brokers=4)


def test_two_clusters_side_by_side_get_their_own_ports(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(tmp_path, 3, base_port=9092)
    ports = {cluster._choose_port(broker_id, tmp_path / "none") for broker_id in (1, 2, 3)}
    assert len(ports) == 3
    cluster._ports = {1: 20001}
    (tmp_path / "server.properties").write_text("broker.id=2\nlisteners=PLAINTEXT://127.0.0.1:20001\n")
    assert cluster._choose_port(2, tmp_path / "server.properties") != 20001
