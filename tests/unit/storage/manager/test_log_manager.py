"""All logs of a broker: directories, identity, checkpoints, creation and deletion, stops and starts."""

from __future__ import annotations

import errno

import pytest

from strandline.protocol.topic_name import InvalidTopicName
from strandline.protocol.types import NO_TOPIC_ID, TopicPartition
from strandline.storage.disk.checkpoints import read_offsets
from strandline.storage.disk.directory_health import ROOM_BYTES
from strandline.storage.disk.removal import delete_folder_name
from strandline.storage.errors import (
    DiskFull,
    DuplicateLog,
    InconsistentMetaProperties,
    InconsistentTopicId,
    LogDirLocked,
    LogDirUnusable,
    LogExists,
    LogStorageError,
)
from strandline.storage.manager.log_manager import LogManager
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, fill, offsets, raw

OTHER = TopicPartition("other", 3)


def test_logs_are_found_again_with_their_ids_and_high_watermarks(site: StorageSite) -> None:
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 10)
    fill(manager.create(OTHER, NO_TOPIC_ID), 5)
    manager.checkpoints.write_high_watermarks({TP: 7, OTHER: 99, TopicPartition("gone", 0): 1})
    manager.close(clean=True)
    manager = site.start()
    assert manager.logs[TP].topic_id == TOPIC_ID and manager.logs[OTHER].topic_id is None
    assert manager.high_watermarks == {TP: 7, OTHER: 5}  # never above the log's end
    assert read_offsets(site.disk, "/logs/replication-offset-checkpoint") == {TP: 7, OTHER: 99}
    assert manager.get(TP) is manager.logs[TP] and manager.get(TopicPartition("t", 1)) is None


def test_a_clean_stop_leaves_the_marker_and_the_next_start_removes_it_before_loading(site: StorageSite) -> None:
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 10)
    manager.close(clean=True)
    marker = "/logs/.kafka_cleanshutdown"
    assert site.disk.exists(marker)
    seen: list[bool] = []

    def watch(operation: str, path: str) -> None:
        if path.startswith(FOLDER):
            seen.append(site.disk.exists(marker))

    site.disk.on_operation = watch
    manager = site.start()
    assert seen and not any(seen) and manager.was_clean
    assert manager.logs[TP].recovery_point == 10
    site.disk.on_operation = None
    site.disk.kill()
    assert not site.start().was_clean


def test_a_clean_stop_survives_a_power_failure(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    fill(log, 60, epoch=2)
    expected = raw(log)
    manager.mark_loss_handled()
    manager.close(clean=True)
    site.disk.crash()
    manager = site.start()
    assert manager.was_clean and not manager.may_have_lost_data
    assert raw(manager.logs[TP]) == expected and site.reports.names() == []


def test_an_unclean_close_leaves_no_marker(site: StorageSite) -> None:
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 10)
    manager.close(clean=False)
    assert not site.disk.exists("/logs/.kafka_cleanshutdown")
    assert offsets(site.start().logs[TP]) == list(range(10))


def test_a_log_that_failed_keeps_its_directory_from_being_called_clean(site: StorageSite) -> None:
    site.dirs = ("/logs", "/more")
    manager = site.start()
    first, second = manager.create(TP, TOPIC_ID), manager.create(OTHER, TOPIC_ID)
    fill(second, 3)
    site.disk.fail("pwritev", "/logs/t-0/*.log", errno.EIO)
    with pytest.raises(LogStorageError):
        fill(first, 1)
    manager.close(clean=True)
    assert not site.disk.exists("/logs/.kafka_cleanshutdown")
    assert site.disk.exists("/more/.kafka_cleanshutdown")


# --- may have lost data -----------------------------------------------------------------------------------------------


def running(site: StorageSite) -> LogManager:
    """A broker that has been through its first start."""
    manager = site.start()
    manager.mark_loss_handled()
    manager.create(TP, TOPIC_ID)
    return manager


def test_a_kill_within_one_boot_loses_nothing(site: StorageSite) -> None:
    running(site)
    site.disk.kill()
    assert not site.start().may_have_lost_data


def test_a_power_failure_may_lose_data_until_the_broker_has_drawn_the_consequences(site: StorageSite) -> None:
    running(site)
    site.disk.sync_everything()
    site.disk.crash()
    assert site.start().may_have_lost_data
    site.disk.kill()
    manager = site.start()
    assert manager.may_have_lost_data  # a kill in between does not make it forgotten
    manager.mark_loss_handled()
    site.disk.kill()
    assert not site.start().may_have_lost_data


def test_a_reboot_after_a_clean_stop_loses_nothing(site: StorageSite) -> None:
    running(site).close(clean=True)
    site.disk.crash()
    assert not site.start().may_have_lost_data
    site.disk.kill()
    assert not site.start().may_have_lost_data


@pytest.mark.parametrize("dirs", [("/logs",), ("/logs", "/more")])
def test_an_empty_or_replaced_folder_may_have_lost_data(site: StorageSite, dirs: tuple[str, ...]) -> None:
    site.dirs = dirs
    running(site).close(clean=True)
    site.disk.unlink(f"{dirs[-1]}/meta.properties")
    assert site.start().may_have_lost_data


# --- identity ---------------------------------------------------------------------------------------------------------


def test_the_directory_keeps_its_id(site: StorageSite) -> None:
    manager = site.start()
    first = manager.directory_id
    assert len(first) == 22
    manager.close(clean=True)
    assert site.start().directory_id == first


def test_meta_properties_is_kafkas(site: StorageSite) -> None:
    manager = site.start()
    lines = site.disk.read("/logs/meta.properties").decode().splitlines()
    assert lines == [
        "version=0",
        "broker.id=7",
        f"directory.id={manager.directory_id}",
        "cluster.id=abc",
        "strandline.adopted=1",
    ]


def test_what_others_wrote_into_meta_properties_stays(site: StorageSite) -> None:
    site.disk.makedirs("/logs")
    site.disk.write("/logs/meta.properties", b"#\n#Mon Jan 01\ncluster.id=abc\nversion=0\nbroker.id=7\nx.y=z\n")
    site.start()
    assert b"x.y=z\n" in site.disk.read("/logs/meta.properties")


def test_a_folder_of_another_broker_is_refused(site: StorageSite) -> None:
    site.start().close(clean=True)
    site.broker_id = 8
    with pytest.raises(
        InconsistentMetaProperties, match=r"^/logs/meta.properties says broker.id=7, this broker has 8;"
    ):
        site.start()


def test_a_folder_of_another_cluster_is_refused(site: StorageSite) -> None:
    site.start().close(clean=True)
    site.start().close(clean=True)
    before = site.disk.content()
    site.cluster_id = "xyz"
    with pytest.raises(InconsistentMetaProperties, match=r"cluster.id=abc, this broker has xyz; point log.dirs"):
        site.start()
    assert site.disk.content() == before


@pytest.mark.parametrize("mine", ["/a", "/b"])
def test_a_directory_stays_as_it_is_where_another_one_is_refused(site: StorageSite, mine: str) -> None:
    site.dirs = ("/a", "/b")
    site.start().close(clean=True)
    path = f"{mine}/meta.properties"
    site.disk.write(path, site.disk.read(path).replace(b"cluster.id=abc", b"cluster.id=xyz"))
    before = site.disk.content()
    with pytest.raises(InconsistentMetaProperties, match=r"cluster.id=xyz, this broker has abc"):
        site.start()
    assert site.disk.content() == before


def test_unreadable_meta_properties_are_refused(site: StorageSite) -> None:
    site.disk.makedirs("/logs")
    site.disk.write("/logs/meta.properties", b"\xff\xfe\x00")
    with pytest.raises(LogDirUnusable, match=r"meta\.properties is unreadable"):
        site.start()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"version=1\nnode.id=7\ncluster.id=abc\n", "is of version 1, as of a Kafka without ZooKeeper"),
        (b"version=7\nbroker.id=7\n", "is of version 7"),
        (b"", "names no broker.id"),
        (b"version=0\ncluster.id=abc\n", "names no broker.id"),
    ],
)
def test_meta_properties_of_another_kind_are_refused_by_what_they_are(
    site: StorageSite, content: bytes, why: str
) -> None:
    site.disk.makedirs("/logs")
    site.disk.write("/logs/meta.properties", content)
    with pytest.raises(LogDirUnusable, match=why):
        site.start()
    assert site.disk.read("/logs/meta.properties") == content


def test_what_a_kill_left_of_a_look_for_room_goes(site: StorageSite) -> None:
    site.disk.makedirs("/logs")
    site.disk.write("/logs/.room.tmp", bytes(ROOM_BYTES))
    site.start()
    assert not site.disk.exists("/logs/.room.tmp")


def test_a_folder_in_use_is_refused(site: StorageSite) -> None:
    site.start()
    with pytest.raises(LogDirLocked, match="in use by another broker; stop that one or choose another folder"):
        site.start()


@pytest.mark.parametrize(
    ("dirs", "why"),
    [
        (("/logs", "/logs/"), "twice"),
        (("logs",), "not an absolute path"),
        ((), "list is empty"),
        (("/file",), "log.dirs=./file.: it is a file, not a folder"),
    ],
)
def test_impossible_directories_are_refused(site: StorageSite, dirs: tuple[str, ...], why: str) -> None:
    site.disk.write("/file", b"")
    site.dirs = dirs
    with pytest.raises(LogDirUnusable, match=why):
        site.start()


# --- create and delete ------------------------------------------------------------------------------------------------


def test_a_log_goes_where_the_fewest_are(site: StorageSite) -> None:
    site.dirs = ("/a", "/b", "/c")
    manager = site.start()
    for partition in range(7):
        manager.create(TopicPartition("t", partition), TOPIC_ID)
    assert [sum(site.disk.is_dir(f"{path}/{name}") for name in site.disk.listdir(path)) for path in site.dirs] == [
        3,
        2,
        2,
    ]
    manager.close(clean=True)
    assert len(site.start().logs) == 7


def test_a_log_that_exists_is_not_created_again(site: StorageSite) -> None:
    manager = site.start()
    manager.create(TP, TOPIC_ID)
    with pytest.raises(LogExists):
        manager.create(TP, TOPIC_ID)
    with pytest.raises(InconsistentTopicId, match="t-0 on this disk has topic id"):
        manager.create(TP, bytes(16))


def test_a_log_without_an_id_gets_one_once(site: StorageSite) -> None:
    manager = site.start()
    manager.create(TP, NO_TOPIC_ID)
    manager.assign_topic_id(TP, TOPIC_ID)
    manager.assign_topic_id(TP, TOPIC_ID)
    with pytest.raises(InconsistentTopicId):
        manager.assign_topic_id(TP, b"y" * 16)
    manager.close(clean=True)
    assert site.start().logs[TP].topic_id == TOPIC_ID


@pytest.mark.parametrize("topic", ["..", ".", "", "a/b", "../../etc", "a\0b", "x" * 250, "ä"])
def test_no_topic_name_leads_out_of_the_directory(site: StorageSite, topic: str) -> None:
    manager = site.start()
    before = site.disk.listdir("/")
    with pytest.raises(InvalidTopicName):
        manager.create(TopicPartition(topic, 0), TOPIC_ID)
    assert site.disk.listdir("/") == before


def test_a_disk_that_takes_no_new_log_is_reported(site: StorageSite) -> None:
    manager = site.start()
    fault = site.disk.fail("makedirs", "/logs/*", errno.ENOSPC)
    with pytest.raises(LogStorageError, match="t-0 takes nothing more just now: creating its folder failed"):
        manager.create(TP, TOPIC_ID)
    assert manager.get(TP) is None
    fault.cancel()
    assert manager.create(TP, TOPIC_ID) is manager.get(TP)


def test_a_deletion_that_finds_no_room_for_another_name_leaves_none(site: StorageSite) -> None:
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 3)
    site.disk.fail("rename", "/logs/t-0*", errno.ENOSPC, times=3)
    for _ in range(3):
        with pytest.raises(DiskFull):
            manager.delete(TP)
        assert [name for name in site.disk.listdir("/logs") if name.startswith("t-0")] == ["t-0"]
    manager.delete(TP)
    assert TP not in manager.logs and len([n for n in site.disk.listdir("/logs") if n.startswith("t-0")]) == 1


def test_a_checkpoint_that_found_no_room_still_counts_as_it_stands_on_the_disk(site: StorageSite) -> None:
    """It was taken for written: then a log that is created anew would be vouched for by that of the one before."""
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 50)
    manager.flush_all()
    manager.checkpoints.write_recovery_points()
    manager.delete(TP)
    fault = site.disk.fail("open", "/logs/*-checkpoint*", errno.ENOSPC)
    manager.checkpoints.write_recovery_points()
    with pytest.raises(LogStorageError):
        manager.create(TP, TOPIC_ID)
    fault.cancel()
    manager.create(TP, TOPIC_ID)
    assert b"t 0 50" not in site.disk.read("/logs/recovery-point-offset-checkpoint")


def test_a_deleted_log_is_gone_at_once_and_its_files_later(site: StorageSite) -> None:
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 50)
    manager.delete(TP)
    assert manager.get(TP) is None and not site.disk.exists(FOLDER)
    assert [name for name in site.disk.listdir("/logs") if name.endswith("-delete")]
    log = manager.create(TP, b"z" * 16)
    assert log.log_end_offset == 0
    manager.remove(manager.removals.due(1000))
    manager.remove(manager.removals.due(60_999))
    assert [name for name in site.disk.listdir("/logs") if name.endswith("-delete")]
    manager.remove(manager.removals.due(61_000))
    assert not [name for name in site.disk.listdir("/logs") if name.endswith("-delete")]


@pytest.mark.parametrize("topic", ["t", "x" * 249])
def test_a_deletion_before_checkpoints_are_written_and_a_kill_lose_nothing(site: StorageSite, topic: str) -> None:
    """The folder that waits for its removal tells why the log is not there; then the checkpoints do not name it."""
    manager, tp = site.start(), TopicPartition(topic, 0)
    manager.mark_loss_handled()
    manager.create(tp, TOPIC_ID)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks(dict.fromkeys(manager.logs, 0))
    manager.delete(tp)
    site.disk.kill()
    manager = site.start()
    assert not manager.may_have_lost_data
    manager.remove(manager.removals.due(0))
    site.disk.kill()
    assert not site.start().may_have_lost_data


def test_the_longest_name_can_be_deleted(site: StorageSite) -> None:
    manager = site.start()
    tp = TopicPartition("n" * 249, 2**31 - 1)
    manager.create(TopicPartition("n" * 249, 99999), TOPIC_ID)
    manager.delete(TopicPartition("n" * 249, 99999))
    name = delete_folder_name(tp, "ab" * 16)
    assert len(name.encode()) == 255 and name.endswith(f"-{2**31 - 1}.{'ab' * 16}-delete")
    assert max(map(len, site.disk.listdir("/logs"))) <= 255


def test_a_deletion_that_was_begun_is_offered_again_at_the_next_start(site: StorageSite) -> None:
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 5)
    manager.delete(TP)
    site.disk.kill()
    manager = site.start()
    assert manager.logs == {} and len(manager.removals) == 1
    manager.remove(manager.removals.due(0))
    assert not [name for name in site.disk.listdir("/logs") if name.endswith("-delete")]


@pytest.mark.parametrize(
    ("ends", "is_lost"),
    [("deleted", False), ("deleted, made anew", False), ("deleted, made anew, folder gone", True)],
)
def test_a_folder_that_waits_excuses_no_later_log_of_its_name(site: StorageSite, ends: str, is_lost: bool) -> None:
    manager = site.start()
    manager.directories.mark_loss_handled()
    fill(manager.create(TP, TOPIC_ID), 10)
    manager.checkpoints.write_high_watermarks({TP: 10})
    manager.delete(TP)
    if ends != "deleted":
        fill(manager.create(TP, b"z" * 16), 5)
        manager.checkpoints.write_high_watermarks({TP: 5})
    if is_lost:
        for name in site.disk.listdir(FOLDER):
            site.disk.unlink(f"{FOLDER}/{name}")
        site.disk.rmdir(FOLDER)
    site.disk.kill()
    manager = site.start()
    assert manager.may_have_lost_data is is_lost
    assert len(manager.removals) == 1, "a start knows the folder that waits"
    manager.remove(manager.removals.due(0))
    assert not [name for name in site.disk.listdir("/logs") if name.endswith("-delete")]


def test_a_new_log_inherits_nothing_from_a_deleted_one_of_its_name(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    fill(log, 50)
    log.flushed(log.flush_plan()())
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks({TP: 50})
    manager.delete(TP)
    fill(manager.create(TP, b"z" * 16), 60)
    site.disk.kill()
    manager = site.start()
    assert manager.high_watermarks[TP] == 0 and manager.logs[TP].recovery_point == 0


@pytest.mark.parametrize("when", ["before its turn comes", "while it is written"])
def test_a_mark_taken_of_a_log_is_not_written_for_a_new_one_of_its_name(site: StorageSite, when: str) -> None:
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 50)
    fill(manager.create(OTHER, TOPIC_ID), 5)
    of = dict(manager.logs)

    def create_anew() -> None:
        site.disk.on_operation = None
        manager.delete(TP)
        fill(manager.create(TP, b"z" * 16), 60)

    def watch(operation: str, path: str) -> None:
        if operation == "rename" and "replication-offset-checkpoint" in path:
            create_anew()

    if when == "while it is written":
        site.disk.on_operation = watch
    else:
        create_anew()
    manager.checkpoints.write_high_watermarks({TP: 50, OTHER: 5}, None, of)
    assert site.disk.on_operation is None
    site.disk.kill()
    assert site.start().high_watermarks == {TP: 0, OTHER: 5}


@pytest.mark.parametrize("clean", [True, False])
def test_a_partition_in_two_directories_is_refused_with_its_checkpoints_and_all_others_serve(
    site: StorageSite, clean: bool
) -> None:
    """Directory /a could not be read at a start, the topic was created anew in /b, and the disk of /a was mended."""
    site.dirs = ("/a", "/b")
    manager = site.start()
    manager.mark_loss_handled()
    for tp in (TP, OTHER):
        fill(manager.create(tp, TOPIC_ID), 5)
    manager.flush_all()
    manager.checkpoints.write_high_watermarks({TP: 4, OTHER: 5})
    manager.close(clean=True)
    there = "/b" if site.disk.exists("/a/t-0") else "/a"
    site.disk.makedirs(f"{there}/t-0")
    site.disk.write(f"{there}/t-0/00000000000000000000.log", b"")
    for _ in range(2):
        before = files_below(site, "/a/t-0", "/b/t-0")
        manager = site.start()
        assert (
            str(manager.refused[TP]) == "t-0 lies in /a and in /b; move the outdated copy away and restart the broker"
        )
        assert [fields["log"] for fields in site.reports.of("log-refused")] == ["t-0"]
        assert list(manager.logs) == [OTHER] and offsets(manager.logs[OTHER]) == [0, 1, 2, 3, 4]
        assert not manager.directories.offline_paths and not manager.may_have_lost_data
        with pytest.raises(DuplicateLog):
            manager.create(TP, TOPIC_ID)
        manager.checkpoints.write_high_watermarks({OTHER: 5})
        manager.checkpoints.write_recovery_points()
        manager.close(clean=True) if clean else site.disk.kill()
        assert files_below(site, "/a/t-0", "/b/t-0") == before
    site.disk.rename(f"{there}/t-0", f"{there}/outdated")
    manager = site.start()
    assert not manager.refused and offsets(manager.logs[TP]) == [0, 1, 2, 3, 4]
    assert (manager.high_watermarks[TP], manager.logs[TP].recovery_point) == (4, 5)


def files_below(site: StorageSite, *folders: str) -> dict[str, bytes]:
    paths = [f"{folder}/{name}" for folder in folders for name in site.disk.listdir(folder)]
    return {path: site.disk.read(path) for path in paths}


def test_folders_that_are_no_logs_are_left_alone(site: StorageSite) -> None:
    site.start().close(clean=True)
    for name in ("lost+found", "backup", "t-01", "t-9999999999", "a b-0", "t-99999999999"):
        site.disk.makedirs(f"/logs/{name}")
        site.disk.write(f"/logs/{name}/file", b"precious")
    manager = site.start()
    assert manager.logs == {} and len(site.reports.of("log-dir-unknown-folder")) == 6
    assert site.disk.read("/logs/backup/file") == b"precious"


def test_a_log_start_is_remembered_where_it_is_not_a_segments_beginning(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    fill(log, 50)
    log.log_start_offset = 13
    manager.checkpoints.write_log_starts()
    site.disk.kill()
    manager = site.start()
    assert manager.logs[TP].log_start_offset == 13 and manager.high_watermarks[TP] == 13
    assert offsets(manager.logs[TP])[0] == 13


@pytest.mark.parametrize("flushes_after", [(), (0,), (0, 1), (1,), (2,)], ids=str)
def test_elections_are_known_after_a_kill_although_only_flushes_write_their_file(
    site: StorageSite, flushes_after: tuple[int, ...]
) -> None:
    """flushes_after: behind the records of which epochs."""
    log = site.start().create(TP, TOPIC_ID)
    for epoch in range(3):
        log.epochs.assign(epoch, log.log_end_offset)
        fill(log, 5, epoch=epoch)
        if epoch in flushes_after:
            log.flushed(log.flush_plan()())
    log.epochs.assign(3, log.log_end_offset)  # nobody has written under it
    site.disk.kill()
    log = site.start().logs[TP]
    assert log.epochs.entries == ((0, 0), (1, 5), (2, 10))
    assert log.log_end_offset == 15
