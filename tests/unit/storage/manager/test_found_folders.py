"""What has the name of a log and is none: nothing of it is opened, and no log takes its place."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.protocol.types import TopicPartition
from strandline.storage.errors import LogStorageError, NotALog, OccupiedName
from strandline.storage.inspection.log_check import REFUSE, check_directories
from strandline.storage.manager.directory_state import STATE
from strandline.storage.manager.orderly_stops import CLEAN_MARKER
from support.damage_site import OTHER, OTHER_RECORDS, DamageSite
from support.storage_site import TP, fill, offsets

OTHER_ID = bytes(range(1, 17))


@pytest.fixture
def site(tmp_path: Path) -> DamageSite:
    site = DamageSite.on_real_files(f"{tmp_path}/logs")
    site.stop(site.build(flushed=True), "clean")
    return site


def move_and_link(site: DamageSite) -> None:
    """As an operator does who wants a log on another disk."""
    os.rename(site.folder, f"{site.root}-far")
    os.symlink(f"{site.root}-far", site.folder)


def link_to_another_log(site: DamageSite) -> None:
    os.rename(site.folder, f"{site.root}-far")
    os.symlink(f"{site.root}/{OTHER}", site.folder)


def link_to_nothing(site: DamageSite) -> None:
    os.rename(site.folder, f"{site.root}-far")
    os.symlink(f"{site.root}/nowhere", site.folder)


LINKS: list[Callable[[DamageSite], None]] = [move_and_link, link_to_another_log, link_to_nothing]


def files(site: DamageSite) -> dict[Path, bytes]:
    """Of both logs, wherever they are."""
    logs = [*Path(f"{site.root}-far").glob("*"), *Path(f"{site.root}/{OTHER}").glob("*")]
    return {path: path.read_bytes() for path in logs}


@pytest.mark.parametrize("how", ["clean", "kill"])
@pytest.mark.parametrize("link", LINKS)
def test_a_link_in_the_place_of_a_log_is_refused_and_nothing_behind_it_changes(
    site: DamageSite, link: Callable[[DamageSite], None], how: str
) -> None:
    if how == "kill":
        site.start()
        site.disk.kill()
    link(site)
    before = files(site)
    for _ in range(2):
        manager = site.start()
        assert isinstance(manager.refused[TP], NotALog) and f"{site.folder} is no folder" in str(manager.refused[TP])
        assert offsets(manager.logs[OTHER]) == list(range(OTHER_RECORDS)) and not manager.directories.offline_paths
        for topic_id in (OTHER_ID, bytes(16)):
            with pytest.raises(NotALog):
                manager.create(TP, topic_id)
        assert files(site) == before
        manager.mark_loss_handled()
        manager.close(clean=True)
        assert not os.path.exists(f"{site.root}/{CLEAN_MARKER}") and os.path.exists(f"{site.root}/{STATE}")
    os.unlink(site.folder)
    os.rename(f"{site.root}-far", site.folder)
    assert TP in site.start().logs


def test_log_check_tells_of_a_link(site: DamageSite) -> None:
    move_and_link(site)
    found = check_directories(site.disk, site.dirs, site.config, site.clock, random.Random(1))
    assert [(each.severity, "is no folder" in each.what) for each in found if each.event == "log-refused"] == [
        (REFUSE, True)
    ]


@pytest.mark.parametrize("name", ["backup", "t-1.0123456789abcdef0123456789abcdef-future", "t-1.x-delete"])
def test_nobody_speaks_for_what_is_behind_a_link_of_any_name(site: DamageSite, name: str) -> None:
    os.symlink(f"{site.root}/{OTHER}", f"{site.root}/{name}")
    manager = site.start()
    assert [fields["path"] for fields in site.reports.of("log-dir-unknown-folder")] == [f"{site.root}/{name}"]
    manager.close(clean=True)
    assert not os.path.exists(f"{site.root}/{CLEAN_MARKER}")


def test_a_link_and_a_file_that_came_since_the_start_are_in_the_way_of_a_log_only(site: DamageSite) -> None:
    manager = site.start()
    os.symlink(f"{site.root}/{OTHER}", f"{site.root}/t-1")
    site.disk.write(f"{site.root}/t-2", b"mine")
    for partition in (1, 2):
        with pytest.raises(LogStorageError, match=r"is no folder.* move away what is there"):
            manager.create(TopicPartition("t", partition), OTHER_ID)
    assert not manager.directories.offline_paths
    manager.create(TopicPartition("t", 3), OTHER_ID)
    assert Path(f"{site.root}/t-2").read_bytes() == b"mine"


def folder_instead(path: str) -> None:
    if os.path.exists(path):
        os.rename(path, path.replace("/logs/", "/logs-far-"))
    os.mkdir(path)


def link_to_it(path: str) -> None:
    """As an operator does who wants old segments on another disk."""
    far = path.replace("/logs/", "/logs-far-")
    if os.path.exists(path):
        os.rename(path, far)
    os.symlink(far, path)


def pipe_instead(path: str) -> None:
    special_instead(path, stat.S_IFIFO)


def socket_instead(path: str) -> None:
    special_instead(path, stat.S_IFSOCK)


def special_instead(path: str, kind: int) -> None:
    if os.path.exists(path):
        os.rename(path, path.replace("/logs/", "/logs-far-"))
    os.mknod(path, kind | 0o600)


NAMES_OF_FILES = [
    *(f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")),
    f"{10**6:020d}.log",
    "leader-epoch-checkpoint",
    "partition.metadata",
]


def tree(site: DamageSite) -> list[tuple[str, int, bytes]]:
    """What is in the folder of the log, itself and what is behind links."""
    return [
        (path.name, path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(Path(site.folder).iterdir())
    ]


@pytest.mark.parametrize("how", ["clean", "kill", "power"])
@pytest.mark.parametrize(
    ("name", "instead"),
    [(name, instead) for name in NAMES_OF_FILES for instead in (folder_instead, link_to_it, pipe_instead)]
    + [
        (f"{0:020d}{suffix}", instead)
        for suffix in (".log.swap", ".index.swap")
        for instead in (link_to_it, pipe_instead)
    ]
    + [(f"{0:020d}.log", socket_instead)],
)
def test_what_has_the_name_of_a_logs_file_and_is_none_is_in_the_way_of_that_log_only(
    site: DamageSite, name: str, instead: Callable[[str], None], how: str
) -> None:
    if how != "clean":
        site.stop(site.start(), how)
    path = f"{site.folder}/{name}"
    os.makedirs(f"{site.root}-far-t-0", exist_ok=True)
    was_there = os.path.exists(path)
    instead(path)
    before = tree(site)
    for _ in range(2):
        manager = site.start()
        refused = manager.refused.get(TP)
        assert isinstance(refused, OccupiedName) and path in str(refused) and "move away what is there" in str(refused)
        assert offsets(manager.logs[OTHER]) == list(range(OTHER_RECORDS)) and not manager.directories.offline_paths
        with pytest.raises(OccupiedName):
            manager.create(TP, OTHER_ID)
        assert tree(site) == before
        manager.close(clean=True)
        assert not os.path.exists(f"{site.root}/{CLEAN_MARKER}")
    (os.rmdir if instead is folder_instead else os.unlink)(path)
    if was_there:
        os.rename(path.replace("/logs/", "/logs-far-"), path)
    assert TP in site.start().logs


@pytest.mark.parametrize("instead", [folder_instead, link_to_it, pipe_instead, socket_instead])
def test_what_is_in_the_way_of_the_next_segment_fails_that_log_only(
    site: DamageSite, instead: Callable[[str], None]
) -> None:
    manager = site.start()
    log = manager.logs[TP]
    end = log.log_end_offset
    instead(f"{site.folder}/{end:020d}.log")
    log.config = replace(site.config, segment_bytes=1)
    for _ in range(2):
        with pytest.raises(
            LogStorageError, match=rf"{end:020d}.log.*; put the file itself there, [^;]*restart the broker$"
        ):
            fill(log, 1, epoch=3)
    assert log.failure is not None and not manager.directories.offline_paths
    assert log.log_end_offset == end and offsets(log) == list(range(end))
    fill(manager.logs[OTHER], 1)
    manager.close(clean=True)


@pytest.mark.parametrize("name", [f"{0:020d}.log.deleted", f"{0:020d}.log.cleaned", "partition.metadata.tmp"])
@pytest.mark.parametrize("instead", [folder_instead, link_to_it, pipe_instead, socket_instead])
def test_what_only_has_the_name_of_a_leftover_is_not_removed(
    site: DamageSite, name: str, instead: Callable[[str], None]
) -> None:
    instead(f"{site.folder}/{name}")
    manager = site.start()
    assert os.path.lexists(f"{site.folder}/{name}") and TP in manager.logs
    assert [fields["path"] for fields in site.reports.of("log-unknown-file")] == [f"{site.folder}/{name}"]


def test_the_metadata_log_of_a_kraft_controller_is_left_alone() -> None:
    site = DamageSite()
    site.stop(site.build(), "clean")
    metadata = TopicPartition("__cluster_metadata", 0)
    site.disk.makedirs(f"{site.root}/{metadata}")
    for name in ("00000000000000000000.log", "quorum-state", "00000000000000000003-0000000001.checkpoint"):
        site.disk.write(f"{site.root}/{metadata}/{name}", b"kafka's")
    manager = site.start()
    assert "the metadata log of a KRaft controller" in str(manager.refused[metadata])
    with pytest.raises(NotALog):
        manager.create(metadata, OTHER_ID)
    manager.close(clean=True)
    assert not site.disk.exists(f"{site.root}/{CLEAN_MARKER}")
    assert len(site.disk.listdir(f"{site.root}/{metadata}")) == 3


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_somebodys_folder_that_sounds_like_a_logs_is_left_alone_and_not_vouched_for(site: DamageSite, how: str) -> None:
    if how == "kill":
        site.start()
        site.disk.kill()
    site.disk.makedirs(f"{site.root}/backup-20240101")
    site.disk.write(f"{site.root}/backup-20240101/t-0.tar", b"what an operator saved")
    manager = site.start()
    why = manager.refused[TopicPartition("backup", 20240101)]
    assert isinstance(why, NotALog) and "backup-20240101 is a folder without any file of a log" in str(why)
    manager.close(clean=True)
    assert site.disk.listdir(f"{site.root}/backup-20240101") == ["t-0.tar"]
    assert not site.disk.exists(f"{site.root}/{CLEAN_MARKER}") and site.disk.exists(f"{site.root}/{STATE}")


def test_an_empty_folder_is_a_log_that_was_begun(site: DamageSite) -> None:
    site.disk.makedirs(f"{site.root}/begun-0")
    assert offsets(site.start().logs[TopicPartition("begun", 0)]) == []
