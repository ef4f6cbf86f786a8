"""What an earlier life left half-done, in the folder of a log that is refused: all of it stays, for the operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from strandline.protocol.records.batch import scan
from strandline.storage.disk.checkpoints import PARTITION_METADATA
from strandline.storage.errors import DamagedLog
from support.foreign import kafkas_batch, kafkas_site
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, file_names, fill, offsets, raw

Names = list[str]
"""Of the .log files, oldest first."""


def everything(site: StorageSite) -> dict[str, bytes]:
    return {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER)}


def stopped_in_order(site: StorageSite) -> None:
    """With sixty records."""
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 60)
    manager.flush_all()
    manager.checkpoints.write_recovery_points()
    manager.close(clean=True)


def nothing(site: StorageSite, logs: Names) -> None:
    pass


def put_aside_and_temporary(site: StorageSite, logs: Names) -> None:
    for name in (f"{logs[0]}.cleaned", f"{900:020d}.log.deleted", "leader-epoch-checkpoint.7.tmp"):
        site.disk.write(f"{FOLDER}/{name}", b"anything")


def finished_swap(site: StorageSite, logs: Names) -> None:
    """The first two segments were copied into one, the first of them is put aside."""
    both = b"".join(site.disk.read(f"{FOLDER}/{name}") for name in logs[:2])
    site.disk.write(f"{FOLDER}/{logs[0]}.swap", both)
    site.disk.write(f"{FOLDER}/{logs[0].replace('.log', '.index')}.swap", b"")
    site.disk.rename(f"{FOLDER}/{logs[0]}", f"{FOLDER}/{logs[0]}.deleted")


def finished_swap_of_the_end(site: StorageSite, logs: Names) -> None:
    """The same of two segments that are checked batch by batch."""
    both = b"".join(site.disk.read(f"{FOLDER}/{name}") for name in logs[4:6])
    site.disk.write(f"{FOLDER}/{logs[4]}.swap", both)


def unfinished_swap(site: StorageSite, logs: Names) -> None:
    """A segment was to become two, of which the second is complete."""
    data = site.disk.read(f"{FOLDER}/{logs[0]}")
    position, header = list(scan(memoryview(data)))[2]
    site.disk.write(f"{FOLDER}/{logs[0]}.cleaned", data[:position])
    site.disk.write(f"{FOLDER}/{header.base_offset:020d}.log.swap", data[position:])


def in_order(site: StorageSite) -> None:
    """Our list of segments says what is missing."""


def killed(site: StorageSite) -> None:
    site.disk.unlink("/logs/.kafka_cleanshutdown")
    site.disk.unlink("/logs/.strandline_state")


def after_another_program(site: StorageSite) -> None:
    site.disk.write("/logs/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":-1}')
    site.disk.unlink("/logs/.strandline_state")


def another_program_killed(site: StorageSite) -> None:
    """All is looked through, and checked batch by batch, before the hole is found."""
    killed(site)
    lines = site.disk.read("/logs/meta.properties").splitlines(keepends=True)
    site.disk.write("/logs/meta.properties", b"".join(line for line in lines if b"adopted" not in line))
    site.disk.unlink("/logs/recovery-point-offset-checkpoint")


LEFT = [nothing, put_aside_and_temporary, finished_swap, finished_swap_of_the_end, unfinished_swap]


@pytest.mark.parametrize("stop", [in_order, killed, after_another_program, another_program_killed])
@pytest.mark.parametrize("left", LEFT)
def test_a_log_that_is_refused_keeps_them_and_loads_when_the_operator_took_back_what_was_missing(
    site: StorageSite, left: Callable[[StorageSite, Names], None], stop: Callable[[StorageSite], None]
) -> None:
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    fill(log, 60)
    manager.flush_all()
    manager.checkpoints.write_recovery_points()
    expected = raw(log)
    manager.close(clean=True)
    stop(site)
    logs = file_names(site.disk, ".log")
    left(site, logs)
    site.disk.rename(f"{FOLDER}/{logs[3]}", f"{FOLDER}/{logs[3]}.deleted")
    before = everything(site)
    for _ in range(2):
        manager = site.start()
        assert isinstance(manager.refused[TP], DamagedLog) and "missing" in str(manager.refused[TP])
        assert everything(site).keys() == before.keys()
        assert everything(site) == before
        manager.close(clean=False)
    site.disk.rename(f"{FOLDER}/{logs[3]}.deleted", f"{FOLDER}/{logs[3]}")
    if stop is in_order and "finished" in left.__name__:
        return  # an orderly stop leaves none of these: the list of segments stays the judge
    assert raw(site.start().logs[TP]) == expected
    assert not [name for name in site.disk.listdir(FOLDER) if name.endswith((".deleted", ".cleaned", ".swap", ".tmp"))]


@pytest.mark.parametrize("suffix", [".log", ".log.swap", ".index", ".txnindex"])
@pytest.mark.parametrize("offset", ["9" * 20, f"{2**63:020d}", f"{2**63 - 1:020d}"])
@pytest.mark.parametrize("stop", [in_order, killed, after_another_program])
@pytest.mark.parametrize("records", [0, 60])
def test_a_file_named_by_an_offset_that_no_record_can_have_makes_the_log_refused(
    site: StorageSite, records: int, stop: Callable[[StorageSite], None], offset: str, suffix: str
) -> None:
    site.config = replace(site.config, cleanup_policy=("compact",))
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), records)
    manager.close(clean=True)
    stop(site)
    if not records:
        site.disk.unlink(f"{FOLDER}/{0:020d}.log")
    site.disk.write(f"{FOLDER}/{offset}{suffix}", b"")
    before = everything(site)
    manager = site.start()
    assert isinstance(manager.refused.get(TP), DamagedLog) and f"{offset}{suffix}" in str(manager.refused[TP])
    assert everything(site) == before


def test_a_topic_id_that_the_power_failure_tore_stays_where_the_log_is_refused(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    fill(log, 60)
    manager.flush_all()
    manager.checkpoints.write_recovery_points()
    site.disk.sync_everything()
    site.disk.crash()
    site.disk.unlink(f"{FOLDER}/{file_names(site.disk, '.log')[3]}")
    site.disk.write(f"{FOLDER}/{PARTITION_METADATA}", b"version: 0\ntopic" + bytes(30))
    before = everything(site)
    assert TP in site.start().refused and everything(site) == before


def test_a_swap_that_is_damaged_makes_the_log_refused_and_stays(site: StorageSite) -> None:
    log = site.log()
    fill(log, 60)
    logs = file_names(site.disk, ".log")
    finished_swap(site, logs)
    site.disk.write(f"{FOLDER}/{logs[0]}.swap", site.disk.read(f"{FOLDER}/{logs[0]}.swap")[:-1])
    before = everything(site)
    site.disk.kill()
    assert "is damaged at byte" in str(site.start().refused[TP]) and everything(site) == before


def test_a_swap_without_a_batch_replaces_the_segment_of_its_name_with_its_indexes() -> None:
    """A Kafka was killed while it compacted; each key came again later."""
    segments = {offset: [kafkas_batch(offset)] for offset in range(3)}
    site = kafkas_site(segments, is_clean=False, recovery_point=2, high_watermark=3)
    site.config = replace(site.config, cleanup_policy=("compact",))
    indexes = [f"{FOLDER}/{1:020d}{suffix}" for suffix in (".index", ".timeindex")]
    for path in indexes:
        site.disk.write(path, bytes(range(24)))
    site.disk.write(f"{FOLDER}/{1:020d}.log.swap", b"")
    log = site.start().logs[TP]
    assert not any(map(site.disk.read, [f"{FOLDER}/{1:020d}.log", *indexes]))
    assert offsets(log) == [0, 2]


def is_gone(site: StorageSite, name: str) -> None:
    site.disk.unlink(f"{FOLDER}/{name}")


def is_torn(site: StorageSite, name: str) -> None:
    site.disk.write(f"{FOLDER}/{name}", site.disk.read(f"{FOLDER}/{name}")[:18])


def is_aside(site: StorageSite, name: str) -> None:
    site.disk.rename(f"{FOLDER}/{name}", f"{FOLDER}/{name}.deleted")


@pytest.mark.parametrize("stop", [killed, after_another_program, another_program_killed])
@pytest.mark.parametrize("source", [is_gone, is_torn, is_aside])
@pytest.mark.parametrize("place", [0, -1])
def test_a_swap_that_counts_for_nothing_stays_where_nothing_else_has_its_records(
    site: StorageSite, place: int, source: Callable[[StorageSite, str], None], stop: Callable[[StorageSite], None]
) -> None:
    """No cleaner leaves that: it removes what it replaces when all swaps have their name."""
    stopped_in_order(site)
    name = file_names(site.disk, ".log")[place]
    for suffix in (".swap", ".cleaned"):
        site.disk.write(f"{FOLDER}/{name}{suffix}", site.disk.read(f"{FOLDER}/{name}"))
    source(site, name)
    stop(site)
    before = everything(site)
    manager = site.start()
    assert isinstance(manager.refused.get(TP), DamagedLog) and f"{name}.swap" in str(manager.refused[TP])
    assert everything(site) == before


@pytest.mark.parametrize("stop", [killed, after_another_program, another_program_killed])
@pytest.mark.parametrize("bit", [2, 5, 8])
def test_a_swap_whose_last_offset_is_wrong_replaces_nothing(
    site: StorageSite, bit: int, stop: Callable[[StorageSite], None]
) -> None:
    """It would seem to reach over the segments that follow; no CRC covers an offset."""
    stopped_in_order(site)
    logs = file_names(site.disk, ".log")
    content = bytearray(site.disk.read(f"{FOLDER}/{logs[0]}"))
    position, header = list(scan(memoryview(content)))[-1]
    assert not header.base_offset & 1 << bit
    content[position : position + 8] = (header.base_offset | 1 << bit).to_bytes(8)
    site.disk.write(f"{FOLDER}/{logs[0]}.swap", bytes(content))
    stop(site)
    before = everything(site)
    manager = site.start()
    assert isinstance(manager.refused.get(TP), DamagedLog) and f"{logs[0]}.swap" in str(manager.refused[TP])
    assert everything(site).keys() == before.keys()
    assert everything(site) == before
