"""What an orderly stop vouches for, to a Kafka and to ourselves, and how a Kafka in between is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.protocol.records import build_batch
from strandline.protocol.records.batch import assign_offset
from strandline.protocol.types import TopicPartition
from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, encode_offsets, write_atomically
from strandline.storage.disk.removal import delete_folder_name
from strandline.storage.errors import DamagedLog, DuplicateLog, TransactionalLog
from strandline.storage.manager.adoption import MAX_REFUSED_BYTES, is_adopted, with_adoption
from strandline.storage.manager.directory_state import SEGMENTS_LIST, STATE
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.manager.orderly_stops import CLEAN_MARKER
from support.foreign import (
    as_of_transaction,
    kafka_is_killed,
    kafka_starts,
    kafka_stops,
    markers,
    old_messages,
)
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, file_names, fill, offsets

OTHER = TopicPartition("other", 0)
BOTH = [CLEAN_MARKER, STATE]
ID = "0123456789abcdef" * 2


@pytest.fixture
def site() -> StorageSite:
    """Two logs of several segments; the broker runs no more, and was killed."""
    site = StorageSite()
    manager = site.start()
    manager.mark_loss_handled()
    for tp in (TP, OTHER):
        fill(manager.create(tp, TOPIC_ID), 60)
    manager.flush_all()
    manager.checkpoints.write_recovery_points()
    site.disk.kill()
    return site


def stop(manager: LogManager) -> None:
    manager.checkpoints.write_high_watermarks({tp: log.log_end_offset for tp, log in manager.logs.items()})
    manager.close(clean=True)


def put(name: str) -> Callable[[StorageSite], None]:
    """A folder with a log in it that nobody recovers."""

    def act(site: StorageSite) -> None:
        site.disk.makedirs(f"/logs/{name}")
        site.disk.write(f"/logs/{name}/{0:020d}.log", b"")

    return act


def transactional(site: StorageSite) -> None:
    kafka_is_killed(site.disk, FOLDER)
    path = f"{FOLDER}/{file_names(site.disk, '.log')[0]}"
    site.disk.write(path, as_of_transaction(site.disk.read(path)))


def in_old_format(site: StorageSite) -> None:
    kafka_is_killed(site.disk, FOLDER)
    site.disk.write(f"{FOLDER}/{file_names(site.disk, '.log')[-1]}", old_messages(59, 70, 1))


def twice(site: StorageSite) -> None:
    site.disk.makedirs(f"/more/{TP}")


UNRECOVERED = {
    "a log with a transaction": transactional,
    "a log of an old format": in_old_format,
    "a log that lies in two directories": twice,
    "a move that a Kafka had begun": put(f"t-1.{ID}-future"),
    "a log that was put aside": put(f"t-1.{ID}-stray"),
    "lost+found": put("lost+found"),
    "a backup": put("t-0.backup"),
    "a folder whose name only looks doomed": put("before-the-delete"),
    "a partition that cannot be": put("t-00"),
}


@pytest.mark.parametrize("what", UNRECOVERED)
def test_nobody_speaks_to_a_kafka_for_what_was_not_recovered(site: StorageSite, what: str) -> None:
    site.dirs = ("/logs", "/more")
    site.start().close(clean=True)
    UNRECOVERED[what](site)
    kafka_starts(site.disk, "/logs")
    for _ in range(2):
        manager = site.start()
        manager.mark_loss_handled()
        served = {tp: offsets(log) for tp, log in manager.logs.items()}
        stop(manager)
        assert markers(site.disk, "/logs") == [STATE]
        assert markers(site.disk, "/more") == ([STATE] if what.endswith("two directories") else BOTH)
        assert "log-dir-not-vouched-for" in site.reports.names()
        site.disk.crash()
        manager = site.start()
        assert manager.was_clean and not manager.may_have_lost_data and OTHER in served
        assert {tp: offsets(log) for tp, log in manager.logs.items()} == served
        assert not {"log-truncated", "index-rebuilt", "epochs-rebuilt"} & {*site.reports.names()}
        stop(manager)


def test_what_waits_for_its_removal_needs_nobody_to_speak_for_it(site: StorageSite) -> None:
    put(f"t-1.{ID}-delete")(site)
    stop(site.start())
    assert markers(site.disk, "/logs") == BOTH


def test_what_is_put_aside_while_the_broker_runs_is_not_vouched_for(site: StorageSite) -> None:
    manager = site.start()
    manager.set_aside(TP, bytes(16), is_credited=False)
    stop(manager)
    assert markers(site.disk, "/logs") == [STATE]


def test_a_log_that_was_not_refused_any_more_is_checked(site: StorageSite) -> None:
    """It stands in no list of the stop."""
    twice(site)
    site.dirs = ("/logs", "/more")
    manager = site.start()
    assert isinstance(manager.refused.get(TP), DuplicateLog)
    stop(manager)
    site.dirs = ("/logs",)
    path = f"{FOLDER}/{file_names(site.disk, '.log')[-1]}"
    site.disk.write(path, site.disk.read(path) + b"torn")
    assert len(offsets(site.start().logs[TP])) == 60
    assert site.reports.names() == ["log-truncated"]


def test_a_log_that_lies_in_two_directories_keeps_its_checkpoints_in_both(site: StorageSite) -> None:
    site.dirs = ("/logs", "/more")
    site.start()
    site.disk.kill()
    twice(site)
    expected = encode_offsets({TP: 41})
    for directory in site.dirs:
        write_atomically(site.disk, f"{directory}/{LOG_START_OFFSETS}", expected)
    manager = site.start()
    manager.checkpoints.write_log_starts()
    assert [site.disk.read(f"{directory}/{LOG_START_OFFSETS}") for directory in site.dirs] == [expected] * 2


def test_a_log_of_the_stop_is_missed_although_a_folder_of_its_name_waits_for_its_removal(site: StorageSite) -> None:
    """No broker had the directory since, so none deleted it."""
    stop(site.start())
    site.disk.rename(FOLDER, f"/logs/{delete_folder_name(TP, ID)}")
    assert site.start().may_have_lost_data and site.reports.of("log-missing")


# --- a Kafka in between -----------------------------------------------------------------------------------------------


def nothing(site: StorageSite) -> None:
    """Our broker was killed."""


def after_a_checkpoint(site: StorageSite) -> None:
    site.start().checkpoints.write_high_watermarks({TP: 60, OTHER: 60})
    site.disk.kill()


def in_order(site: StorageSite) -> None:
    stop(site.start())
    assert markers(site.disk, "/logs") == BOTH


def in_order_beside_a_move(site: StorageSite) -> None:
    put(f"t-1.{ID}-future")(site)
    stop(site.start())
    assert markers(site.disk, "/logs") == [STATE]


def killed(site: StorageSite) -> None:
    kafka_is_killed(site.disk, FOLDER)


def killed_beside_somebodys_file(site: StorageSite) -> None:
    """Its name comes after those of all segments."""
    killed(site)
    site.disk.write(f"{FOLDER}/saved.log", b"what an operator noted")


def stopped(site: StorageSite) -> None:
    kafka_stops(site.disk, "/logs")


def checkpointed(site: StorageSite) -> None:
    write_atomically(site.disk, f"/logs/{HIGH_WATERMARKS}", encode_offsets({TP: 60, OTHER: 59}))


def appended(site: StorageSite) -> None:
    """To the other log, and its index was full."""
    path = f"/logs/{OTHER}/{file_names(site.disk, '.log', f'/logs/{OTHER}')[-1]}"
    batch = bytearray(build_batch([(1000, b"k", b"v")], "none", None))
    assign_offset(batch, 60, 0)
    site.disk.write(path, site.disk.read(path) + bytes(batch))


def without_our_list(site: StorageSite) -> None:
    """And the disk lost what our orderly stop says of the logs."""
    site.disk.unlink(f"/logs/{SEGMENTS_LIST}")


def killed_between_two_indexes(site: StorageSite) -> None:
    """While it closed the log: it had given the first one its true size already."""
    kafka_is_killed(site.disk, FOLDER)
    site.disk.write(f"{FOLDER}/{file_names(site.disk, '.index')[-1]}", b"")


def gone(site: StorageSite) -> None:
    """Before it did anything: its start alone shows."""


LIVES = {
    "our kill, killed": (nothing, killed),
    "our kill, killed beside somebody's file": (nothing, killed_beside_somebodys_file),
    "our kill, killed between two indexes": (nothing, killed_between_two_indexes),
    "our kill, killed while it closed the logs": (nothing, checkpointed),
    "our kill after a checkpoint, killed while it closed the logs": (after_a_checkpoint, checkpointed),
    "our kill, stopped in order": (nothing, stopped),
    "our orderly stop, killed at once": (in_order, gone),
    "our orderly stop, killed": (in_order, killed),
    "our orderly stop, stopped in order": (in_order, stopped),
    "our orderly stop beside a move, killed after a checkpoint": (in_order_beside_a_move, checkpointed),
    "our orderly stop beside a move, killed after an append": (in_order_beside_a_move, appended),
    "our orderly stop beside a move, and the list of segments is gone": (in_order_beside_a_move, without_our_list),
    "our orderly stop beside a move, stopped in order": (in_order_beside_a_move, stopped),
}


@pytest.mark.parametrize("after", LIVES)
def test_a_log_that_a_kafka_had_in_between_is_looked_through_whole(site: StorageSite, after: str) -> None:
    our_end, kafkas_end = LIVES[after]
    our_end(site)
    kafka_starts(site.disk, "/logs")
    first = f"{FOLDER}/{file_names(site.disk, '.log')[0]}"
    site.disk.write(first, as_of_transaction(site.disk.read(first)))
    kafkas_end(site)
    before = {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER)}
    for end in (stop, lambda manager: site.disk.kill(), stop, stop):
        manager = site.start()
        assert isinstance(manager.refused.get(TP), TransactionalLog)
        assert offsets(manager.logs[OTHER])[:60] == list(range(60))
        assert manager.was_clean or not manager.may_have_lost_data
        end(manager)
    assert {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER)} == before


def test_a_sealed_segment_that_a_kafka_may_have_written_is_refused_where_its_headers_lead_nowhere(
    site: StorageSite,
) -> None:
    """Below the recovery point: nobody checks it batch by batch, and our own would lose its end."""
    killed(site)
    first = f"{FOLDER}/{file_names(site.disk, '.log')[0]}"
    content = bytearray(site.disk.read(first))
    content[8:12] = b"\xff" * 4
    site.disk.write(first, bytes(content))
    before = {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER)}
    assert isinstance(site.start().refused.get(TP), DamagedLog)
    assert {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER)} == before


def test_a_kafka_is_noticed_once(site: StorageSite) -> None:
    """What was looked through after it is ours, also where we are killed before we write a checkpoint."""
    after_a_checkpoint(site)
    checkpointed(site)
    site.start()
    assert "log-dir-used-by-another" in site.reports.names()
    site.disk.kill()
    site.start()
    assert "log-dir-used-by-another" not in site.reports.names()


@pytest.mark.parametrize("state", [b"", b"0\n", b'{"version":0,"brokerEpoch":-1}', b"\xff" * 80])
def test_where_our_state_is_damaged_a_kafka_may_have_been_there(site: StorageSite, state: bytes) -> None:
    after_a_checkpoint(site)
    site.disk.write(f"/logs/{STATE}", state)
    manager = site.start()
    assert site.reports.names() == ["log-dir-used-by-another"] and not manager.may_have_lost_data
    assert {tp: len(offsets(log)) for tp, log in manager.logs.items()} == {TP: 60, OTHER: 60}


def test_a_directory_in_which_too_many_logs_were_refused_to_name_them_stays_foreign() -> None:
    refused = [TopicPartition(f"{place:0249d}", 0) for place in range(MAX_REFUSED_BYTES // 252)]
    meta = with_adoption({"version": "0"}, refused, refused[:1])
    assert is_adopted(meta, TP) and not is_adopted(meta, refused[-1])
    assert with_adoption(meta, [*refused, TopicPartition("n" * 249, 0)], []) == {"version": "0"}


@pytest.mark.parametrize("name", UNRECOVERED)
def test_nobody_is_suspected_where_nobody_was(site: StorageSite, name: str) -> None:
    """And what was looked through is not looked through again, whatever else lies in the directory."""
    site.dirs = ("/logs", "/more")
    UNRECOVERED[name](site)
    stop(site.start())
    first = f"/logs/{OTHER}/{file_names(site.disk, '.log', f'/logs/{OTHER}')[0]}"
    site.disk.write(first, as_of_transaction(site.disk.read(first)))
    for end in (stop, lambda manager: site.disk.kill(), stop):
        manager = site.start()
        assert len(offsets(manager.logs[OTHER])) == 60
        assert "log-dir-used-by-another" not in site.reports.names()
        end(manager)


def test_a_crash_between_the_two_markers_leaves_an_orderly_stop(site: StorageSite) -> None:
    in_order(site)
    site.disk.unlink(f"/logs/{STATE}")
    manager = site.start()
    assert manager.was_clean and not site.reports.events
    assert markers(site.disk, "/logs") == []
