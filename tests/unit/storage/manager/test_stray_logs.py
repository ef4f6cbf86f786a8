"""Logs whose topic id is not their topic's: their folders get out of the way and stay, over any number of starts."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from strandline.protocol.types import TopicPartition
from strandline.storage.disk.checkpoints import PARTITION_METADATA, encode_topic_id, read_offsets
from strandline.storage.disk.removal import delete_folder_name, stray_folder_name
from strandline.storage.errors import LogStorageError, StrayLog
from strandline.storage.inspection.log_check import NOTE, check_directories
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk.model import lose_everything
from support.damage_site import RealDisk
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, fill, offsets

NEW_ID = bytes(range(1, 17))
LONG_AFTER_MS = 10**15


@pytest.fixture
def site() -> StorageSite:
    return StorageSite()


def with_records(site: StorageSite) -> LogManager:
    site.start().mark_loss_handled()
    site.disk.kill()
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 10)
    manager.flush_all()
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks({TP: 10})
    return manager


def strays(site: StorageSite, root: str = "/logs") -> list[str]:
    return [f"{root}/{name}" for name in site.disk.listdir(root) if name.endswith("-stray")]


def remove_all_due(manager: LogManager) -> None:
    for now_ms in (0, LONG_AFTER_MS):
        manager.remove(manager.removals.due(now_ms))


@pytest.mark.parametrize("is_real", [False, True], ids=["memory", "files"])
def test_a_log_that_is_set_aside_is_kept_for_ever_and_left_alone(is_real: bool, tmp_path: Path) -> None:
    root = f"{tmp_path}/logs" if is_real else "/logs"
    site = StorageSite(disk=RealDisk(), dirs=(root,)) if is_real else StorageSite()
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 10)
    manager.flush_all()
    before = {name: site.disk.read(f"{root}/t-0/{name}") for name in site.disk.listdir(f"{root}/t-0")}
    told = str(manager.set_aside(TP, NEW_ID, is_credited=False))
    (kept,) = strays(site, root)
    assert kept.startswith(f"{root}/t-0.") and manager.get(TP) is None and TP not in manager.high_watermarks
    old_id, new_id = encode_topic_id(TOPIC_ID), encode_topic_id(NEW_ID)
    for said in (f"{root}/t-0 has", kept, old_id, f"topic_id: {new_id}", "delete it"):
        assert said in told
    new = manager.create(TP, NEW_ID)
    assert (new.topic_id, new.log_end_offset) == (NEW_ID, 0)
    remove_all_due(manager)
    for _ in range(2):
        manager.close(clean=True)
        manager = site.start()
        assert [fields["path"] for fields in site.reports.of("log-dir-unknown-folder")] == [kept]
        assert list(manager.logs) == [TP] and not manager.refused
        remove_all_due(manager)
    manager.close(clean=True)
    assert {name: site.disk.read(f"{kept}/{name}") for name in site.disk.listdir(kept)} == before
    findings = check_directories(site.disk, site.dirs, site.config, site.clock, random.Random(1))
    assert [(f.severity, f.where, f.what) for f in findings] == [(NOTE, kept, "not a log: would be left alone")]


def test_the_checkpoints_of_a_log_that_was_set_aside_vouch_for_nothing_of_the_new_one(site: StorageSite) -> None:
    manager = with_records(site)
    manager.set_aside(TP, NEW_ID, is_credited=False)
    manager.create(TP, NEW_ID)
    assert not read_offsets(site.disk, "/logs/recovery-point-offset-checkpoint")
    site.disk.kill()
    manager = site.start()
    assert manager.logs[TP].log_end_offset == 0 and not manager.may_have_lost_data


@pytest.mark.parametrize("how", ["clean", "kill", "power"])
def test_where_this_broker_counts_as_having_the_records_they_are_lost_until_the_next_life_has_left_the_in_sync_sets(
    site: StorageSite, how: str
) -> None:
    manager = with_records(site)
    stray = manager.set_aside(TP, NEW_ID, is_credited=True)
    assert manager.refused == {TP: stray} and "counts as having its records" in str(stray)
    with pytest.raises(StrayLog):
        manager.create(TP, NEW_ID)
    manager.mark_loss_handled()  # of a loss that this life began with
    if how == "clean":
        manager.close(clean=True)
    elif how == "kill":
        site.disk.kill()
    else:
        site.disk.crash(lose_everything)
    manager = site.start()
    assert manager.may_have_lost_data and len(strays(site)) == 1 and not manager.refused
    assert manager.create(TP, NEW_ID).log_end_offset == 0
    site.disk.kill()
    manager = site.start()
    assert manager.may_have_lost_data
    manager.mark_loss_handled()
    site.disk.kill()
    assert not site.start().may_have_lost_data


@pytest.mark.parametrize("operation", ["rename", "fsync_dir"])
def test_a_folder_that_cannot_be_set_aside_fails_its_directory_and_loses_nothing(
    site: StorageSite, operation: str
) -> None:
    manager = with_records(site)
    fault = site.disk.fail(operation, "/logs*" if operation == "fsync_dir" else FOLDER, errno.EIO)
    with pytest.raises(LogStorageError):
        manager.set_aside(TP, NEW_ID, is_credited=False)
    fault.cancel()
    assert manager.directories.offline_paths == ["/logs"]
    (folder,) = [FOLDER] if site.disk.exists(FOLDER) else strays(site)
    assert site.disk.exists(f"{folder}/{0:020d}.log")


def test_a_folder_that_somebody_put_there_is_kept_when_a_log_is_created_in_its_place(site: StorageSite) -> None:
    manager = site.start()
    site.disk.makedirs(FOLDER)
    site.disk.write(f"{FOLDER}/precious", b"keep")
    manager.create(TP, TOPIC_ID)
    remove_all_due(manager)
    (kept,) = strays(site)
    assert site.disk.read(f"{kept}/precious") == b"keep"
    assert site.reports.of("log-stray") == [{"log": FOLDER, "kept_in": kept}]


def test_a_creation_that_comes_again_leaves_no_stray_folder(site: StorageSite) -> None:
    manager = site.start()
    fault = site.disk.fail("open", f"{FOLDER}/*", errno.EMFILE)
    for _ in range(3):
        with pytest.raises(LogStorageError):
            manager.create(TP, TOPIC_ID)
    fault.cancel()
    assert offsets(manager.create(TP, TOPIC_ID)) == [] and not strays(site)


@pytest.mark.parametrize("name", [delete_folder_name, stray_folder_name])
def test_a_folder_that_is_put_aside_has_a_name_that_any_file_system_takes(name: object) -> None:
    assert callable(name)
    text = name(TopicPartition("x" * 249, 2**31 - 1), "ab" * 16)
    assert len(text) == 255 and text.startswith("xxx")


def test_an_empty_folder_of_a_log_that_nobody_began_here_is_kept_too(site: StorageSite) -> None:
    """It names a topic."""
    manager = site.start()
    site.disk.makedirs("/logs/t-0")
    site.disk.write(f"/logs/t-0/{PARTITION_METADATA}", b"somebody's")
    manager.create(TP, TOPIC_ID)
    kept = [site.disk.read(f"{fields['kept_in']}/{PARTITION_METADATA}") for fields in site.reports.of("log-stray")]
    assert kept == [b"somebody's"]
