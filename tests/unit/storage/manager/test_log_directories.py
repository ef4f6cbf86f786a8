"""Log directories that fail one by one: at a start, while they serve, and what the next start makes of it."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable

import pytest

from strandline.protocol.types import TopicPartition
from strandline.storage.errors import (
    InconsistentMetaProperties,
    LogDirLocked,
    LogDirUnusable,
    LogStorageError,
    NoLogDirLeft,
    OutOfDescriptors,
)
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from support.foreign import kafka_stops
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, fill, offsets, raw

TWO = ("/logs", "/more")
META = "/logs/meta.properties"
SECOND = TopicPartition("t", 1)


@pytest.fixture
def site() -> StorageSite:
    return StorageSite(dirs=TWO)


def serving(site: StorageSite) -> tuple[LogManager, Log, Log]:
    """A broker past its first start, with one log in each of two directories."""
    manager = site.start()
    manager.mark_loss_handled()
    return manager, manager.create(TP, TOPIC_ID), manager.create(SECOND, TOPIC_ID)


# --- while they serve -------------------------------------------------------------------------------------------------


def test_a_new_log_goes_where_the_fewest_are(site: StorageSite) -> None:
    manager = site.start()
    logs = [manager.create(TopicPartition("t", place), TOPIC_ID) for place in range(6)]
    assert Counter(log.segments.folder.rpartition("/")[0] for log in logs) == {"/logs": 3, "/more": 3}


def test_a_failed_write_takes_all_logs_of_its_directory_and_no_other(site: StorageSite) -> None:
    manager, first, second = serving(site)
    third = manager.create(TopicPartition("t", 2), TOPIC_ID)
    assert third.segments.folder.startswith("/logs/")
    site.disk.fail("pwritev", f"{FOLDER}/*.log", errno.EIO)
    with pytest.raises(LogStorageError, match="t-0 is offline"):
        fill(first, 1)
    with pytest.raises(LogStorageError, match="t-2 is offline: /logs is offline: append failed in t-0"):
        fill(third, 1)
    fill(second, 5)
    assert manager.directories.offline_paths == ["/logs"]
    assert [fields["path"] for fields in site.reports.of("log-dir-offline")] == ["/logs"]
    manager.directories.check()


def test_a_damaged_batch_is_its_logs_failure_and_not_its_directorys(site: StorageSite) -> None:
    manager, first, _ = serving(site)
    third = manager.create(TopicPartition("t", 2), TOPIC_ID)
    fill(first, 60)
    manager.flush_all()
    path = first.segments.holding(0).path + ".log"
    site.disk.write(path, bytes(len(site.disk.read(path))))
    with pytest.raises(LogStorageError):
        raw(first)
    assert first.failure is not None and third.failure is None and manager.directories.offline_paths == []


@pytest.mark.parametrize("operation", ["write_recovery_points", "write_log_starts", "high watermarks"])
def test_a_checkpoint_that_cannot_be_written_fails_its_directory_and_the_others_get_theirs(
    site: StorageSite, operation: str
) -> None:
    manager, first, second = serving(site)
    fill(first, 60)
    fill(second, 60)
    for log in (first, second):
        log.flushed(log.flush_plan()())
    first.log_start_offset = second.log_start_offset = 3
    fault = site.disk.fail("rename", "/logs/*-checkpoint.*", errno.EIO)
    if operation == "high watermarks":
        manager.checkpoints.write_high_watermarks({TP: 7, SECOND: 8})
    else:
        getattr(manager.checkpoints, operation)()
    assert manager.directories.offline_paths == ["/logs"] and first.failure is not None and second.failure is None
    assert fault.hits == 1
    manager.checkpoints.write_high_watermarks({TP: 7, SECOND: 8})
    assert fault.hits == 1, "a failed directory is let alone"
    assert site.disk.read("/more/replication-offset-checkpoint").endswith(b"t 1 8\n")


def test_nothing_is_created_or_deleted_in_a_failed_directory(site: StorageSite) -> None:
    manager, first, _ = serving(site)
    site.disk.fail("pwritev", f"{FOLDER}/*.log", errno.EIO)
    with pytest.raises(LogStorageError):
        fill(first, 1)
    with pytest.raises(LogStorageError, match="/logs is offline"):
        manager.delete(TP)
    assert site.disk.is_dir(FOLDER) and manager.get(TP) is first
    for place in range(2, 5):
        assert manager.create(TopicPartition("t", place), TOPIC_ID).segments.folder == f"/more/t-{place}"


def test_a_log_whose_creation_failed_is_not_created_a_second_time_elsewhere(site: StorageSite) -> None:
    """Parts of it may lie in the failed directory: with another life of it the next start would find two."""
    manager = site.start()
    site.disk.fail("open", f"{FOLDER}/*.log", errno.EIO, times=1)
    for _ in range(2):
        with pytest.raises(LogStorageError):
            manager.create(TP, TOPIC_ID)
    assert manager.directories.offline_paths == ["/logs"]
    assert manager.create(SECOND, TOPIC_ID).segments.folder == "/more/t-1"
    site.disk.kill()
    assert set(site.start().logs) == {TP, SECOND}


def test_the_last_directory_that_fails_is_said_to_be_the_last(site: StorageSite) -> None:
    manager, *logs = serving(site)
    site.disk.fail("pwritev", "*.log", errno.EIO)
    for log in logs:
        with pytest.raises(LogStorageError):
            fill(log, 1)
    with pytest.raises(
        NoLogDirLeft, match=r"^no log directory is left: /logs is offline: .*; /more is offline: [^\n]*$"
    ):
        manager.directories.check()
    with pytest.raises(LogStorageError):
        manager.create(TopicPartition("t", 2), TOPIC_ID)


def test_a_flush_that_meets_a_deleted_log_is_no_failure_of_the_disk(site: StorageSite) -> None:
    manager, first, second = serving(site)
    fill(first, 60, epoch=3)
    plan = first.flush_plan()
    manager.delete(TP)
    with pytest.raises(LogStorageError):
        plan()
    assert manager.directories.offline_paths == [] and second.failure is None


# --- at a start -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("open", "/logs/.lock"),
        ("open", "/logs/meta.properties"),
        ("unlink", "/logs/.kafka_cleanshutdown"),
        ("open", "/logs/recovery-point-offset-checkpoint"),
        ("pread", f"{FOLDER}/*.log"),
        ("open", f"{FOLDER}/leader-epoch-checkpoint"),
    ],
)
def test_a_directory_that_cannot_be_read_is_offline_and_the_others_serve(
    site: StorageSite, operation: str, pattern: str
) -> None:
    manager, first, second = serving(site)
    fill(first, 60)
    fill(second, 60)
    expected = raw(first)
    manager.close(clean=True)
    fault = site.disk.fail(operation, pattern, errno.EIO)
    manager = site.start()
    assert manager.directories.offline_paths == ["/logs"] and manager.directories.has_unread
    assert set(manager.logs) == set(manager.high_watermarks) == {SECOND}
    assert [fields["path"] for fields in site.reports.of("log-dir-offline")] == ["/logs"]
    fill(manager.logs[SECOND], 5)
    manager.checkpoints.write_high_watermarks({SECOND: 5})
    manager.close(clean=True)
    fault.cancel()
    manager = site.start()
    assert set(manager.logs) == {TP, SECOND} and raw(manager.logs[TP]) == expected


def test_a_broker_none_of_whose_directories_can_be_read_does_not_start(site: StorageSite) -> None:
    serving(site)
    site.disk.kill()
    site.disk.fail("open", "*.log", errno.EIO)
    with pytest.raises(NoLogDirLeft):
        site.start()
    site.disk.kill()
    site.disk.fail("open", "*.lock", errno.EROFS)
    with pytest.raises(LogDirUnusable, match="/logs"):
        site.start()


def test_what_no_disk_is_to_blame_for_still_keeps_the_broker_from_starting(site: StorageSite) -> None:
    manager, *_ = serving(site)
    with pytest.raises(LogDirLocked):
        site.start()
    manager.close(clean=True)
    site.broker_id = 8
    with pytest.raises(InconsistentMetaProperties):
        site.start()
    site.disk.kill()
    site.broker_id = 7
    site.disk.write("/more/meta.properties", b"\xff\xfe nonsense")
    with pytest.raises(LogDirUnusable, match="/more"):
        site.start()


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_copied_meta_properties_cannot_stand_for_a_directory_that_is_gone(
    site: StorageSite, is_orderly: bool
) -> None:
    manager, *_ = serving(site)
    manager.close(clean=is_orderly)
    site.disk.kill()
    files = {path: site.disk.read(path) for path in (META, "/logs/recovery-point-offset-checkpoint")}
    site.disk.write("/more/meta.properties", files[META])
    with pytest.raises(LogDirUnusable, match=r"/more cannot be used: .* has the directory.id of /logs"):
        site.start()
    assert files == {path: site.disk.read(path) for path in files}
    assert site.disk.exists("/logs/.kafka_cleanshutdown") is is_orderly
    lines = site.disk.read("/more/meta.properties").splitlines(keepends=True)
    site.disk.write("/more/meta.properties", b"".join(line for line in lines if b"directory.id" not in line))
    manager = site.start()
    assert sorted(manager.logs) == [TP, SECOND]
    assert len({directory.directory_id for directory in manager.directories}) == 2


def test_a_lack_of_descriptors_at_a_start_is_no_fault_of_the_disk(site: StorageSite) -> None:
    serving(site)
    site.disk.kill()
    site.disk.fail("open", f"{FOLDER}/*", errno.EMFILE)
    with pytest.raises(OSError, match="EMFILE"):
        site.start()


# --- a page cache that proves nothing ---------------------------------------------------------------------------------


def failed_sync(site: StorageSite) -> tuple[LogManager, bytes]:
    """The fsync of the log's active segment failed: its pages count as clean now."""
    manager, log, _ = serving(site)
    fill(log, 20)
    log.flushed(log.flush_plan()())
    manager.checkpoints.write_recovery_points()
    fill(log, 40)
    site.disk.fail("fsync", f"{FOLDER}/*.log", errno.EIO, times=1)
    with pytest.raises(LogStorageError):
        log.flush_plan()()
    return manager, raw(log)


def test_without_a_mark_a_failed_sync_would_be_forgotten_by_a_restart(site: StorageSite) -> None:
    """What all of this is for, shown on the disk's model: the bytes read back well, and no later sync writes them."""
    _, expected = failed_sync(site)
    site.disk.kill()
    manager = site.start()
    assert raw(manager.logs[TP]) == expected and not manager.may_have_lost_data
    manager.close(clean=True)
    site.disk.crash()
    log = site.start().logs.get(TP)
    assert log is None or raw(log) != expected


@pytest.mark.parametrize("at_the_stop", [False, True])
def test_after_a_failed_sync_the_next_start_counts_as_lossy_and_writes_everything_again(
    site: StorageSite, at_the_stop: bool
) -> None:
    manager, expected = failed_sync(site)
    if at_the_stop:
        manager.close(clean=True)
    else:
        manager.directories.mark_unsynced()
    site.disk.kill()
    for _ in range(2):  # killed before the loss was dealt with, it stays known
        manager = site.start()
        assert manager.may_have_lost_data and not manager.was_clean
        assert manager.logs[TP].recovery_point == 20 and raw(manager.logs[TP]) == expected
        assert [fields["log"] for fields in site.reports.of("log-written-again")] == ["t-0"]
        site.disk.kill()
    manager = site.start()
    manager.mark_loss_handled()
    site.disk.kill()
    assert not site.start().may_have_lost_data
    site.disk.crash()
    assert raw(site.start().logs[TP]) == expected


@pytest.mark.parametrize("place", range(40))
def test_a_power_failure_while_everything_is_written_again_loses_nothing_more(site: StorageSite, place: int) -> None:
    manager, _ = failed_sync(site)
    manager.directories.mark_unsynced()
    site.disk.kill()
    stop_at(site, place)
    site.disk.crash(lambda options: (place * 7) % options)
    manager = site.start()
    assert manager.may_have_lost_data
    log = manager.logs[TP]
    assert log.log_end_offset >= 20 and offsets(log) == list(range(log.log_end_offset))


def stop_at(site: StorageSite, place: int) -> None:
    """Start the broker, which ends at its `place`-th operation on the log."""
    count = 0

    def watch(operation: str, path: str) -> None:
        nonlocal count
        count += path.startswith(FOLDER)
        if count > place:
            raise KeyboardInterrupt

    site.disk.on_operation = watch
    try:
        site.start()
    except KeyboardInterrupt:
        pass
    site.disk.on_operation = None


@pytest.mark.parametrize("has_kafka_stopped", [False, True])
def test_a_directory_that_cannot_note_its_own_failure_is_named_by_another(
    site: StorageSite, has_kafka_stopped: bool
) -> None:
    """A Kafka in between read the same page cache, however orderly it stopped."""
    manager, expected = failed_sync(site)
    fault = site.disk.fail("pwritev", META, errno.EIO)
    manager.directories.mark_unsynced()
    assert fault.hits == 1
    fault.cancel()
    site.disk.kill()
    for directory in TWO if has_kafka_stopped else ():
        kafka_stops(site.disk, directory)
    manager = site.start()
    assert manager.may_have_lost_data and not manager.was_clean and site.reports.of("log-written-again")
    manager.mark_loss_handled()
    manager.close(clean=True)
    site.disk.crash()
    manager = site.start()
    assert not manager.may_have_lost_data and raw(manager.logs[TP]) == expected


def test_a_full_disk_leaves_nothing_unsynced_and_the_mark_needs_no_space(site: StorageSite) -> None:
    manager, log, _ = serving(site)
    fill(log, 20)
    expected = raw(log)
    fault = site.disk.fail("pwritev", f"{FOLDER}/*", errno.ENOSPC)
    with pytest.raises(LogStorageError):
        fill(log, 1)
    manager.close(clean=True)
    fault.cancel()
    manager = site.start()
    assert not manager.may_have_lost_data and raw(manager.logs[TP]) == expected

    site.disk.fail("fsync", f"{FOLDER}/*.log", errno.ENOSPC, times=1)
    with pytest.raises(LogStorageError):
        manager.logs[TP].flush_plan()()
    site.disk.capacity_bytes = 1
    manager.directories.mark_unsynced()
    site.disk.kill()
    site.disk.capacity_bytes = 2**40
    assert site.start().may_have_lost_data


# --- descriptors ------------------------------------------------------------------------------------------------------


def test_a_lack_of_descriptors_closes_what_is_not_in_use_and_fails_nothing(site: StorageSite) -> None:
    site.max_open_files = 100
    manager, log, _ = serving(site)
    fill(log, 200)
    expected = raw(log)  # every segment is open now
    held = len(site.disk.open_files())
    log.segments.active.file.evict()
    site.disk.fail("open", "*", errno.EMFILE, times=2)
    fill(log, 1)
    assert raw(log, 0, 200) == expected and manager.directories.offline_paths == []
    assert len(site.disk.open_files()) < held


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_without_any_descriptor_a_log_answers_an_error_and_serves_again_once_there_is_one(
    site: StorageSite, number: int
) -> None:
    manager, log, _ = serving(site)
    fill(log, 60)
    expected = raw(log)
    acts: list[Callable[[], object]] = [
        lambda: fill(log, 1),
        lambda: log.read(0, 2**20, 60),
        log.roll,
        log.flush_plan,
        lambda: manager.create(TopicPartition("t", 2), TOPIC_ID),
        log.flush_plan(),
    ]
    for act in acts:
        for segment in log.segments:
            segment.file.evict()
        fault = site.disk.fail("open", "*", number)
        with pytest.raises(OutOfDescriptors):
            act()
        fault.cancel()
        assert log.failure is None and raw(log) == expected
    assert log.flush_due_ms(0) == 0, "the flush that could not be done is due at once"
    for _ in range(60):
        fill(log, 1)
    assert offsets(log) == list(range(120)) and manager.directories.offline_paths == []
    log = site.reload()
    assert offsets(log) == list(range(120))


# --- directories that come and go -------------------------------------------------------------------------------------


def replace_second(site: StorageSite) -> None:
    """Its disk is another one, or not mounted."""
    for path in [path for path in site.disk.content() if path.startswith("/more/") and not site.disk.is_dir(path)]:
        site.disk.unlink(path)


def rename_second(site: StorageSite) -> None:
    site.disk.rename("/more", "/other")
    site.dirs = ("/logs", "/other")


CHANGES: dict[str, tuple[Callable[[StorageSite], None], bool]] = {
    "nothing": (lambda site: None, False),
    "another order": (lambda site: setattr(site, "dirs", TWO[::-1]), False),
    "another path": (rename_second, False),
    "one more": (lambda site: setattr(site, "dirs", (*TWO, "/third")), False),
    "one less": (lambda site: setattr(site, "dirs", TWO[:1]), True),
    "one less and a new one": (lambda site: setattr(site, "dirs", ("/logs", "/third")), True),
    "an empty one in its place": (replace_second, True),
}


@pytest.mark.parametrize("is_orderly", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_a_directory_that_is_not_there_any_more_is_a_loss(change: str, is_orderly: bool, site: StorageSite) -> None:
    def start(past_lives: int) -> LogManager:
        site.disk.kill()
        manager = site.start()
        manager.directories.begin_life(past_lives, True)
        return manager

    change_it, is_loss = CHANGES[change]
    start(0).mark_loss_handled()
    manager = start(1)
    assert not manager.may_have_lost_data
    if is_orderly:
        manager.close(clean=True)
    site.disk.kill()
    change_it(site)
    assert site.start().may_have_lost_data is is_loss
    for past_lives in (2, 3):  # a kill does not make it forgotten
        manager = start(past_lives)
        assert (manager.may_have_lost_data, manager.directories.is_loss_open) == (is_loss, is_loss)
    manager.mark_loss_handled()
    assert not manager.directories.is_loss_open
    assert not start(4).may_have_lost_data


def test_a_directory_that_cannot_be_opened_may_be_the_one_that_is_missed(site: StorageSite) -> None:
    manager, _, _ = serving(site)
    manager.directories.begin_life(0, True)
    site.disk.kill()
    fault = site.disk.fail("open", "/more/.lock", errno.EIO)
    manager = site.start()
    manager.directories.begin_life(1, True)
    assert manager.directories.has_unread and not manager.may_have_lost_data
    manager.mark_loss_handled()
    fault.cancel()
    site.disk.kill()
    site.dirs = TWO[:1]
    assert site.start().may_have_lost_data, "it is still named"


# --- lives that a directory missed ------------------------------------------------------------------------------------


def live(site: StorageSite, past_lives: int) -> bool:
    """One orderly life. Whether the broker may have lost data."""
    manager = site.start()
    may_have_lost_data = manager.directories.begin_life(past_lives, True)
    manager.mark_loss_handled()
    manager.close(clean=True)
    site.disk.kill()
    return may_have_lost_data


def test_a_directory_that_missed_a_life_lost_what_it_got_then_however_orderly_it_was_left(site: StorageSite) -> None:
    assert live(site, 0), "every first start may have lost what an earlier folder had"
    assert not live(site, 1)
    assert not live(site, 1), "a start that ended before ZooKeeper counted it"
    assert live(site, 3)
    assert not live(site, 4)


@pytest.mark.parametrize("was_ours", [True, False])
def test_a_directory_without_a_count_missed_all_lives_unless_a_kafka_may_have_removed_it(
    was_ours: bool, site: StorageSite
) -> None:
    live(site, 0)
    path = "/logs/meta.properties"
    kept = [line for line in site.disk.read(path).splitlines(keepends=True) if b"incarnation" not in line]
    site.disk.write(path, b"".join(kept))
    assert site.start().directories.begin_life(1, was_ours) is was_ours


def test_an_old_backup_is_not_forgotten_by_a_crash_before_the_consequences(site: StorageSite) -> None:
    assert live(site, 0)
    assert site.start().directories.begin_life(7, True)
    site.disk.kill()
    manager = site.start()
    assert manager.may_have_lost_data and manager.directories.is_loss_open


def test_a_loss_is_open_until_the_consequences_are_drawn(site: StorageSite) -> None:
    manager = site.start()
    assert manager.directories.is_loss_open
    manager.mark_loss_handled()
    assert manager.may_have_lost_data and not manager.directories.is_loss_open
