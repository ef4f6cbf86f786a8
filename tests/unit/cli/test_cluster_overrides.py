"""`strandline up --override`: keys of the user's own reach every broker, stay for later starts, and cannot break what
the cluster relies on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.cluster import ClusterAlreadyUp, EmbeddedCluster, up
from strandline.cli.cluster_overrides import (
    OVERRIDES_FILE,
    OverrideRefused,
    checked,
    keep_overrides,
    kept_overrides,
    property_lines,
)
from strandline.cli.cluster_state import Member, write_state
from strandline.cli.main import run
from strandline.cli.process import ProcessId, identify
from strandline.runtime.config.properties import parse_properties

GONE = ProcessId(2**22 - 1, "an earlier boot:1")


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters have addresses as if they had started, and no processes."""

    def start(self: EmbeddedCluster, timeout_s: float = 0) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.zookeeper.fix_port(2181)
        self._ports = {broker_id: 9091 + broker_id for broker_id in self.broker_ids}
        self._admin_ports = dict.fromkeys(self.broker_ids)

    monkeypatch.setattr(EmbeddedCluster, "start", start)


def properties(cluster: EmbeddedCluster) -> list[dict[str, str]]:
    return [cluster._broker_properties(broker_id) for broker_id in cluster.broker_ids]


@pytest.mark.usefixtures("nothing_starts")
def test_overrides_reach_every_broker_and_stay_until_they_are_overridden_anew(tmp_path: Path) -> None:
    first = up(tmp_path, 2, overrides={"num.partitions": "3", "log.retention.ms": "1000"})
    assert [own["num.partitions"] for own in properties(first)] == ["3", "3"]
    assert [own["listeners"] for own in properties(first)] == [f"PLAINTEXT://127.0.0.1:{p}" for p in (9092, 9093)]
    assert [own["broker.id"] for own in properties(first)] == ["1", "2"]
    again = up(tmp_path, 2)
    assert properties(again) == properties(first)
    other = up(tmp_path, 2, overrides={"num.partitions": "4"})
    assert other.properties == up(tmp_path).properties == {"num.partitions": "4", "log.retention.ms": "1000"}
    (tmp_path / OVERRIDES_FILE).unlink()
    assert up(tmp_path).properties == {}


def test_what_did_not_start_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: EmbeddedCluster, timeout_s: float = 0) -> None:
        raise OSError("no start")

    monkeypatch.setattr(EmbeddedCluster, "start", fail)
    with pytest.raises(OSError, match="no start"):
        up(tmp_path, 1, overrides={"num.partitions": "3"})
    assert kept_overrides(tmp_path) == {}


@pytest.mark.usefixtures("nothing_starts")
def test_dead_brokers_get_the_overrides_of_the_living_and_no_others(tmp_path: Path) -> None:
    myself = identify(os.getpid())
    assert myself is not None
    keep_overrides(tmp_path, {"num.partitions": "3"})
    write_state(tmp_path, {"broker-1": Member("broker-1", myself, 9092), "broker-2": Member("broker-2", GONE, 9093)})
    assert up(tmp_path).properties == {"num.partitions": "3"}
    with pytest.raises(ClusterAlreadyUp, match="overrides count for all of them; first stop it: strandline down"):
        up(tmp_path, overrides={"num.partitions": "4"})
    assert kept_overrides(tmp_path) == {"num.partitions": "3"}


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    ("override", "said"),
    [
        *((f"{key}=1", f"--override {key}: the embedded cluster sets {key} itself") for key in (
            "broker.id", "listeners", "zookeeper.connect", "zookeeper.session.timeout.ms", "log.dirs", "log.folder",
            "default.replication.factor", "min.insync.replicas",
        )),
        ("log.dir=/x", "--override log.dir: the embedded cluster sets log.dirs itself"),
        ("advertised.listeners=PLAINTEXT://x:1", "the embedded cluster sets listeners itself"),
        ("num.partitions=many", "num.partitions='many': not a whole number"),
        ("num partitions=1", "--override 'num partitions' is no broker key"),
        ("num.partitions", "--override 'num.partitions' is not KEY=VALUE"),
    ],
)  # fmt: skip
def test_what_cannot_be_overridden_is_one_line_and_a_wrong_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, said: str
) -> None:
    assert run(["up", "--data", str(tmp_path), "--override", override]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_key_that_nobody_knows_is_a_warning_and_the_clusters_own_keys_are_none(tmp_path: Path) -> None:
    own = EmbeddedCluster(tmp_path, 3).own_properties(1)
    assert checked({}, own) == []
    (warning,) = checked({"log.segement.bytes": "1"}, own)
    assert "did you mean log.segment.bytes?" in warning


def test_a_damaged_file_of_overrides_is_named(tmp_path: Path) -> None:
    (tmp_path / OVERRIDES_FILE).write_text("=1\n")
    with pytest.raises(OverrideRefused, match=r"overrides\.properties: .* mend the line or remove the file"):
        kept_overrides(tmp_path)


@given(st.dictionaries(st.from_regex(r"[A-Za-z0-9._-]+", fullmatch=True), st.text(st.characters(codec="utf-8"))))
def test_properties_are_read_as_they_were_written(pairs: dict[str, Any]) -> None:
    text = "".join(property_lines(pairs.items()))
    assert parse_properties(text) == {key: value.strip() for key, value in pairs.items()}
