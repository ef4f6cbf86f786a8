"""`strandline log-check` on folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.damage_site import DamageSite
from support.storage_site import make_transactional


@pytest.fixture
def site(tmp_path: Path) -> DamageSite:
    site = DamageSite.on_real_files(f"{tmp_path}/data")
    site.stop(site.build(), "clean")
    return site


def findings(ran: Any) -> list[dict[str, Any]]:
    return list(json.loads(ran.out)["findings"])


def test_a_sound_folder_is_exit_code_0(shell: Any, site: DamageSite) -> None:
    ran = shell("log-check", site.root)
    assert (ran.code, ran.out, ran.err) == (0, "nothing to repair\n", "")
    ran = shell("log-check", site.root, "--output", "json")
    assert (ran.code, json.loads(ran.out)) == (0, {"_command": "log-check", "_version": 1, "findings": []})


def test_what_a_start_would_do_is_told_as_text_and_json_and_not_done(shell: Any, site: DamageSite) -> None:
    torn = site.disk.read(site.path(-1)) + b"torn"
    site.disk.write(site.path(-1), torn)
    ran = shell("log-check", site.root)
    assert ran.code == 1 and "t-0" in ran.out and "keeping 4 bytes aside" in ran.out
    assert ran.out.endswith("1 to repair; nothing was changed\n")
    (found,) = findings(shell("log-check", "--quick", site.root, "--output", "json"))
    assert (found["severity"], found["event"]) == ("repair", "log-truncated")
    assert found["fields"]["dropped_bytes"] == 4 and found["where"] == site.folder
    assert site.disk.read(site.path(-1)) == torn


def test_a_running_brokers_folder_is_refused_in_one_line(shell: Any, site: DamageSite) -> None:
    manager = site.start()
    ran = shell("log-check", site.root)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "in use by another broker" in ran.err
    manager.close(clean=True)


def test_what_is_no_folder_is_named(shell: Any, tmp_path: Path) -> None:
    ran = shell("log-check", f"{tmp_path}/nowhere")
    assert (ran.code, ran.err.count("\n")) == (1, 1) and "nowhere is no folder" in ran.err
    assert shell("log-check").code == 2


def test_the_folder_above_is_no_data_folder(shell: Any, site: DamageSite, tmp_path: Path) -> None:
    ran = shell("log-check", str(tmp_path))
    assert (ran.code, ran.err.count("\n")) == (1, 1) and "is no data folder, but data in it is" in ran.err


def test_a_folder_with_logs_and_without_an_identity_is_a_finding(shell: Any, site: DamageSite) -> None:
    site.disk.unlink(f"{site.root}/meta.properties")
    ran = shell("log-check", site.root)
    assert ran.code == 1 and "there is no meta.properties" in ran.out


def test_a_finding_is_one_line_with_its_path_whole(shell: Any, site: DamageSite) -> None:
    site.disk.write(f"{site.root}/replication-offset-checkpoint", b"garbage\n")
    ran = shell("log-check", site.root)
    (line,) = (line for line in ran.out.splitlines() if "replication-offset-checkpoint" in line)
    assert line == (
        "repair  replication-offset-checkpoint: is not what the broker left when it stopped: would be put aside as "
        "*.damaged, and count as missing"
    )
    Path(site.root, ".kafka_cleanshutdown").unlink()
    ran = shell("log-check", site.root)
    (line,) = (line for line in ran.out.splitlines() if "replication-offset-checkpoint" in line)
    assert line == (
        "repair  replication-offset-checkpoint: does not begin with version 0: would be put aside as *.damaged, and "
        "count as missing"
    )


def test_a_refused_log_is_named_by_its_folder_in_text_and_json(shell: Any, site: DamageSite) -> None:
    Path(site.path(1)).unlink()
    ran = shell("log-check", site.root)
    assert "refuse  t-0: would not be loaded: " in ran.out
    found = findings(shell("log-check", site.root, "--output", "json"))
    assert [each["where"] for each in found if each["severity"] == "refuse"] == [site.folder]


def test_a_log_with_transactions_is_named_by_its_folder_wherever_one_stands(
    shell: Any, site: DamageSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_transactional(site, site.path(0))
    Path(site.root, ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    why = "would not be loaded: has a batch of a transaction at offset 0"
    assert f"refuse  t-0: {why}" in shell("log-check", site.root).out
    monkeypatch.chdir(Path(site.root).parent)
    assert f"refuse  t-0: {why}" in shell("log-check", Path(site.root).name).out
    (found,) = (each for each in findings(shell("log-check", site.root, "--output", "json")) if why in each["what"])
    assert found["where"] == site.folder


def test_of_several_folders_and_of_the_folder_itself_the_path_is_whole(
    shell: Any, site: DamageSite, tmp_path: Path
) -> None:
    Path(site.root, ".kafka_cleanshutdown").unlink()
    assert f"note    {site.root}: the broker was not stopped in order" in shell("log-check", site.root).out
    Path(site.path(1)).unlink()
    another = tmp_path / "another"
    another.mkdir()
    assert f"refuse  {site.folder}: would" in shell("log-check", site.root, str(another)).out


def test_a_partitions_folder_is_not_taken_for_a_data_folder(shell: Any, site: DamageSite) -> None:
    ran = shell("log-check", site.folder)
    assert ran.code == 1 and "name the one above it" in ran.err


def test_a_broker_id_that_is_no_number_is_refused_by_its_own_text(shell: Any, site: DamageSite) -> None:
    site.disk.write(f"{site.root}/meta.properties", b"version=0\nbroker.id=two\n")
    ran = shell("log-check", site.root)
    assert ran.code == 1 and "broker.id cannot be read" in ran.out and "'two'" in ran.out


def test_an_interval_below_zero_is_a_usage_error(shell: Any, site: DamageSite) -> None:
    ran = shell("log-check", "--index-interval-bytes", "-4", site.root)
    assert ran.code == 2 and "--index-interval-bytes" in ran.err
