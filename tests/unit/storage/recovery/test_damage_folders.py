"""Segments that are missing, overlap or stand there twice, stray files and folders, folders of others.

Nothing is served with a hole in it and nothing is deleted in silence: such a log is refused as it stands, the others
are loaded. 43 cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.storage.disk.checkpoints import RECOVERY_POINTS, read_offsets
from strandline.storage.errors import DamagedLog, DuplicateLog, InconsistentMetaProperties
from strandline.storage.inspection.log_check import REFUSE, check_directories
from support.damage_site import OTHER, OTHER_RECORDS, DamageSite
from support.storage_site import TOPIC_ID, TP, fill, offsets, records


def remove(number: int) -> Callable[[DamageSite], None]:
    def change(site: DamageSite) -> None:
        for suffix in (".log", ".index", ".timeindex"):
            site.disk.unlink(f"{site.folder}/{site.names('.log')[number][:20]}{suffix}") if suffix != ".log" else None
        site.disk.unlink(site.path(number))

    return change


def copy(source: int, base_offset: int) -> Callable[[DamageSite], None]:
    def change(site: DamageSite) -> None:
        bases = [int(name[:20]) for name in site.names(".log")]
        data = site.disk.read(site.path(source))
        site.disk.write(f"{site.folder}/{bases[source] + base_offset:020d}.log", data)

    return change


REFUSED: dict[str, tuple[Callable[[DamageSite], None], str]] = {
    "the second segment is missing": (remove(1), "missing"),
    "the second .log is missing, its indexes are there": (lambda site: site.disk.unlink(site.path(1)), "missing"),
    "and an index of the first one, too": (
        lambda site: (site.disk.unlink(site.path(0, ".index")), site.disk.unlink(site.path(1))),
        "missing",
    ),
    "and all indexes are too long": (
        lambda site: (
            [site.disk.write(f"{site.folder}/{name}", bytes(9)) for name in site.names("index")],
            site.disk.unlink(site.path(1)),
        ),
        "missing",
    ),
    "two in the middle are missing": (lambda site: (remove(2)(site), remove(2)(site))[0], "missing"),
    "the last but one is missing": (remove(-2), "missing"),
    "a copy of a segment under a later offset": (copy(1, 3), "inside of the segment before"),
    "a copy of a segment under an earlier offset": (copy(2, -3), "inside of the segment before"),
    "a copy of the first one in the middle": (
        lambda site: site.disk.write(f"{site.folder}/{30:020d}.log", site.disk.read(site.path(0))),
        "",
    ),
}


def refused(site: DamageSite) -> DamagedLog:
    """The start that refuses `t-0` and leaves its folder as it is."""
    before = site.everything()
    point = read_offsets(site.disk, f"{site.root}/{RECOVERY_POINTS}").get(TP)
    manager = site.start()
    assert TP not in manager.logs and manager.logs[OTHER].log_end_offset == OTHER_RECORDS
    assert site.reports.of("log-refused")
    assert site.everything() == before
    with pytest.raises(DamagedLog) as info:
        manager.create(TP, TOPIC_ID)
    assert "\n" not in str(info.value) and site.folder in str(info.value)
    manager.checkpoints.write_recovery_points()
    assert read_offsets(site.disk, f"{site.root}/{RECOVERY_POINTS}").get(TP) == point
    manager.close(clean=True)
    return info.value


@pytest.mark.parametrize("how", ["clean", "kill"])
@pytest.mark.parametrize("what", REFUSED)
def test_segments_that_do_not_follow_each_other_make_the_log_refused(what: str, how: str) -> None:
    site = DamageSite()
    manager = site.build(flushed=True)
    expected = records(manager.logs[TP])
    site.stop(manager, how)
    before = site.everything()
    change, why = REFUSED[what]
    change(site)
    assert why in str(refused(site))
    assert isinstance(refused(site), DamagedLog)  # and again at the next start
    for name in site.names():  # an operator puts everything back
        if name not in before:
            site.disk.unlink(f"{site.folder}/{name}")
    for name, data in before.items():
        site.disk.write(f"{site.folder}/{name}", data)
    assert records(site.start().logs[TP]) == expected


def test_a_missing_first_segment_is_noticed_after_a_clean_stop() -> None:
    site = DamageSite()
    site.stop(site.build(), "clean")
    remove(0)(site)
    assert "00000000000000000000.log stood here when the broker stopped" in str(refused(site))


def test_above_the_recovery_point_a_kill_does_not_explain_a_hole() -> None:
    site = DamageSite()
    site.stop(site.build(flushed=False), "kill")
    remove(2)(site)
    refused(site)


def test_a_power_failure_may_leave_a_hole_and_what_stands_behind_it_is_kept_aside() -> None:
    site = DamageSite()
    manager = site.build(flushed=False)
    bases = [segment.base_offset for segment in manager.logs[TP].segments]
    site.stop(manager, "power")
    remove(2)(site)
    manager = site.start()
    assert offsets(manager.logs[TP]) == list(range(bases[2]))
    assert site.names(".damaged") == [f"{base:020d}.log.damaged" for base in bases[3:]]
    assert offsets(site.restart().logs[TP]) == list(range(bases[2]))


def test_what_was_kept_aside_stays_when_as_much_is_lost_again() -> None:
    site = DamageSite()
    manager = site.build()
    kept: dict[str, bytes] = {}
    for epoch in (4, 5, 6):
        manager.checkpoints.write_high_watermarks({TP: manager.logs[TP].log_end_offset})
        site.stop(manager, "power")
        torn = bytearray(site.disk.read(site.path(1)))
        torn[-1] ^= 1
        site.disk.write(site.path(1), bytes(torn))
        size_bytes = sum(len(site.disk.read(f"{site.folder}/{name}")) for name in site.names(".log"))
        manager = site.start()
        earlier, kept = kept, {name: site.disk.read(f"{site.folder}/{name}") for name in site.names(".damaged")}
        assert earlier.items() < kept.items()
        left_bytes = sum(len(site.disk.read(f"{site.folder}/{name}")) for name in site.names(".log"))
        assert sum(map(len, kept.values())) - sum(map(len, earlier.values())) == size_bytes - left_bytes
        fill(manager.logs[TP], 45, epoch=epoch, count=2)
    assert site.names(".log-3.damaged")


@pytest.mark.parametrize("how", ["clean", "kill", "power"])
def test_a_missing_last_segment_is_a_loss_that_is_not_forgotten(how: str) -> None:
    site = DamageSite()
    manager = site.build(flushed=True)
    bases = [segment.base_offset for segment in manager.logs[TP].segments]
    site.stop(manager, how)
    remove(-1)(site)
    if how == "clean":  # it is known which segments there were
        refused(site)
        return
    manager = site.start()
    assert manager.logs[TP].log_end_offset == bases[-1] and manager.may_have_lost_data
    manager = site.restart()  # killed before the broker has left the in-sync sets
    assert manager.may_have_lost_data
    manager.mark_loss_handled()
    assert not site.restart().may_have_lost_data


def test_stray_files_and_folders_are_left_alone_and_told(tmp_path: Path) -> None:
    for site in (DamageSite(), DamageSite.on_real_files(f"{tmp_path}/logs")):
        site.stop(site.build(), "clean")
        for name in ("lost+found", "t", "t-", "-0", "t-01", "t-2147483648", "a b-0", "backup of t-0"):
            site.disk.makedirs(f"{site.root}/{name}")
            site.disk.write(f"{site.root}/{name}/precious", b"keep")
        for name in ("notes.txt", "1.log", "0000000000000000000x.log", "00000000000000000001.snap", "core"):
            site.disk.write(f"{site.folder}/{name}", b"keep")
        site.disk.write(f"{site.root}/t-7", b"a file with the name of a log")
        site.disk.write(f"{site.root}/copy-of-my-replication-offset-checkpoint.tmp", b"keep")
        site.disk.write(f"{site.root}/replication-offset-checkpoint.3.tmp", b"left by a crash")
        manager = site.start()
        assert sorted(map(str, manager.logs)) == ["other-0", "t-0"] and not manager.refused
        assert len(site.reports.of("log-dir-unknown-folder")) == 8
        assert site.disk.read(f"{site.root}/lost+found/precious") == b"keep"
        assert [name for name in site.disk.listdir(site.root) if name.endswith(".tmp")] == [
            "copy-of-my-replication-offset-checkpoint.tmp"
        ]
        assert site.disk.read(f"{site.folder}/notes.txt") == b"keep"
        site.disk.kill()


def test_the_same_log_in_two_directories_is_refused_and_log_check_says_so() -> None:
    site = DamageSite(dirs=("/logs", "/more"))
    site.stop(site.build(), "clean")
    here, there = ("/logs", "/more") if site.disk.exists(f"/logs/{TP}") else ("/more", "/logs")
    site.disk.makedirs(f"{there}/{TP}")
    for name in site.disk.listdir(f"{here}/{TP}"):
        site.disk.write(f"{there}/{TP}/{name}", site.disk.read(f"{here}/{TP}/{name}"))
    before = site.everything()
    findings = check_directories(site.disk, site.dirs, site.config, site.clock, random.Random(1))
    why = "t-0 lies in /logs and in /more; move the outdated copy away and restart the broker"
    assert [(f.where, f.what) for f in findings if f.severity == REFUSE] == [("t-0", f"would not be loaded: {why}")]
    assert site.everything() == before
    manager = site.start()
    assert isinstance(manager.refused[TP], DuplicateLog) and str(manager.refused[TP]) == why
    assert [str(tp) for tp in manager.logs] == ["other-0"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("broker.id=8", "broker.id=8, this broker has 7"),
        ("broker.id=", "broker.id=, this broker has 7"),
        ("broker.id=seven", "broker.id=seven"),
        ("cluster.id=other", "cluster.id=other, this broker has abc"),
    ],
)
def test_a_folder_of_another_broker_or_cluster_is_refused(line: str, message: str) -> None:
    site = DamageSite()
    manager = site.build()
    site.stop(manager, "clean")
    before = site.everything()
    key = line.partition("=")[0]
    path = f"{site.root}/meta.properties"
    lines = site.disk.read(path).decode().splitlines()
    site.disk.write(path, "\n".join(line if old.startswith(key) else old for old in lines).encode() + b"\n")
    with pytest.raises(InconsistentMetaProperties, match=message):
        site.start()
    assert site.everything() == before
