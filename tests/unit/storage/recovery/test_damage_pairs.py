"""Two damages at once: checkpoints that say nothing any more, and a log that is shorter than it was.

Whatever the pair, a broker that lost what may have been committed knows it, also after a kill before it has drawn the
consequences, and what it cut lies beside the log. One damage alone that a kill explains stays an ordinary repair.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS
from strandline.storage.manager.directory_state import SEGMENTS_LIST
from strandline.storage.manager.log_manager import LogManager
from support.damage_site import OTHER, DamageSite
from support.storage_site import TP, fill, offsets

CONTENT: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "garbage": lambda data: b"\xff\xfe\x00garbage",
    "another version": lambda data: b"7" + data[1:],
    "a bad line": lambda data: data.replace(b"t 0 ", b"t zero "),
    "a negative offset": lambda data: data.replace(b"t 0 ", b"t 0 -"),
    "a line lost": lambda data: b"0\n2\nother 0 7\n",
    "a line twice": lambda data: b"0\n3\n" + b"t 0 1\n" + data.partition(b"\n")[2].partition(b"\n")[2],
    "cut in the last line": lambda data: data[:-2],
    "zeros": lambda data: bytes(len(data)),
}
FILES = {
    "both": (RECOVERY_POINTS, HIGH_WATERMARKS),
    "recovery points": (RECOVERY_POINTS,),
    "high watermarks": (HIGH_WATERMARKS,),
}


def spoil(site: DamageSite, names: tuple[str, ...], how: str) -> None:
    for name in names:
        path = f"{site.root}/{name}"
        content = CONTENT[how](site.disk.read(path))
        if content is None:
            site.disk.unlink(path)
        else:
            site.disk.write(path, content)


def cut_bytes(count: int) -> Callable[[DamageSite], None]:
    def cut(site: DamageSite) -> None:
        site.disk.write(site.path(-1), site.disk.read(site.path(-1))[:-count])

    return cut


def last_batch_away(site: DamageSite) -> None:
    data = site.disk.read(site.path(-1))
    position = 0
    while (following := position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")) < len(data):
        position = following
    site.disk.write(site.path(-1), data[:position])


def last_segment_empty(site: DamageSite) -> None:
    site.disk.write(site.path(-1), b"")


def zeros_over_the_end(site: DamageSite) -> None:
    data = site.disk.read(site.path(-1))
    site.disk.write(site.path(-1), data[:-30] + bytes(30))


def sealed_segment_torn(site: DamageSite) -> None:
    site.disk.write(site.path(-2), site.disk.read(site.path(-2))[:-7])


def last_segment_away(site: DamageSite) -> None:
    site.disk.unlink(site.path(-1))


TORN = {
    "7 bytes gone": cut_bytes(7),
    "half a header left": lambda site: (last_batch_away(site), append(site, bytes(30)))[0],
    "a sealed segment torn": sealed_segment_torn,
}
SHORT = {"the last batch away": last_batch_away, "the last segment empty": last_segment_empty}
ANY = {**TORN, **SHORT, "the last segment away": last_segment_away}


def append(site: DamageSite, what: bytes) -> None:
    site.disk.write(site.path(-1), site.disk.read(site.path(-1)) + what)


def built(how: str) -> tuple[DamageSite, int]:
    """A site that was stopped, with checkpoints that vouch for nearly all of it; and where the log ended."""
    site = DamageSite()
    manager = site.build(flushed=True)
    end = manager.logs[TP].log_end_offset
    manager.checkpoints.write_high_watermarks({tp: log.log_end_offset for tp, log in manager.logs.items()})
    site.stop(manager, how)
    return site, end


def knows_its_loss(site: DamageSite, end: int) -> LogManager:
    manager = site.start()
    if TP in manager.logs:
        assert manager.logs[TP].log_end_offset < end and manager.may_have_lost_data
        manager = site.restart()  # killed before the broker has left the in-sync sets
        assert manager.may_have_lost_data
        manager.mark_loss_handled()
        assert not site.restart().may_have_lost_data
    else:
        assert "stood here when the broker stopped" in str(manager.refused[TP]) or "missing" in str(manager.refused[TP])
    return manager


@pytest.mark.parametrize("tail", ANY)
@pytest.mark.parametrize("names", FILES)
@pytest.mark.parametrize("how", ["clean", "kill"])
def test_a_shorter_log_is_known_as_a_loss_whatever_the_checkpoints_say(how: str, names: str, tail: str) -> None:
    for content in CONTENT:
        if content == "a line lost":
            continue  # see below
        site, end = built(how)
        spoil(site, FILES[names], content)
        ANY[tail](site)
        before = b"".join(site.disk.read(f"{site.folder}/{name}") for name in site.names(".log"))
        manager = knows_its_loss(site, end)
        kept = [name for name in site.names() if ".log" in name]
        assert sum(len(site.disk.read(f"{site.folder}/{name}")) for name in kept) == len(before), (content, kept)
        if tail in TORN and TP in manager.logs:
            assert site.names(".damaged"), content


@pytest.mark.parametrize("tail", ANY)
@pytest.mark.parametrize("manifest", ["missing", "garbage"])
def test_after_a_clean_stop_without_its_list_too(manifest: str, tail: str) -> None:
    for content in ("garbage", "missing"):
        site, end = built("clean")
        spoil(site, FILES["both"], content)
        spoil(site, (SEGMENTS_LIST,), manifest)
        ANY[tail](site)
        knows_its_loss(site, end)


@pytest.mark.parametrize("tail", ANY)
def test_after_a_clean_stop_the_list_or_the_marker_suffices(tail: str) -> None:
    """Checkpoints that are whole but do not name the log protect nothing."""
    site, end = built("clean")
    spoil(site, FILES["both"], "a line lost")
    ANY[tail](site)
    knows_its_loss(site, end)


@pytest.mark.parametrize("content", CONTENT)
def test_after_a_clean_stop_the_list_proves_logs_whole_although_checkpoints_are_damaged(content: str) -> None:
    site, end = built("clean")
    spoil(site, FILES["both"], content)
    manager = site.start()
    assert manager.logs[TP].log_end_offset == end and not manager.may_have_lost_data and not site.names(".damaged")


def test_bytes_behind_the_listed_end_are_kept_aside_and_no_loss() -> None:
    for content in ("a line lost", "garbage"):
        site, end = built("clean")
        spoil(site, FILES["both"], content)
        append(site, b"torn" * 20)
        manager = site.start()
        assert manager.logs[TP].log_end_offset == end and not manager.may_have_lost_data
        (kept,) = site.names(".damaged")
        assert site.disk.read(f"{site.folder}/{kept}") == b"torn" * 20


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_a_log_whose_folder_is_gone_is_a_loss(how: str) -> None:
    site, _ = built(how)
    for name in site.names():
        site.disk.unlink(f"{site.folder}/{name}")
    site.disk.rmdir(site.folder)
    assert site.start().may_have_lost_data
    assert site.reports.of("log-missing") and site.restart().may_have_lost_data


@pytest.mark.parametrize("tail", TORN)
def test_a_kill_with_whole_checkpoints_and_a_torn_end_above_them_is_an_ordinary_repair(tail: str) -> None:
    for checkpointed in (True, False):
        site = DamageSite()
        manager = site.build()
        if checkpointed:
            manager.checkpoints.write_high_watermarks({TP: 4, OTHER: 7})
            manager.checkpoints.write_recovery_points()
        site.stop(manager, "kill")
        if tail == "a sealed segment torn":
            site.disk.unlink(site.path(-1))
            cut_bytes(7)(site)
        else:
            TORN[tail](site)
        manager = site.start()
        assert site.reports.of("log-truncated") and not manager.may_have_lost_data and not site.names(".damaged")


def test_a_first_life_that_is_killed_before_its_first_checkpoint_is_an_ordinary_one() -> None:
    site = DamageSite()
    manager = site.build()
    site.disk.kill()
    cut_bytes(7)(site)
    manager = site.start()
    assert not manager.may_have_lost_data and not site.names(".damaged")
    fill(manager.logs[TP], 1, epoch=9)
    assert offsets(site.restart().logs[TP])[-1] == manager.logs[TP].log_end_offset - 1


def test_a_start_that_is_killed_at_any_step_does_not_forget_the_loss() -> None:
    step = 0
    while True:
        site, end = built("clean")
        spoil(site, FILES["both"], "garbage")
        cut_bytes(7)(site)
        left = step

        def stop(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt

        site.disk.on_operation = stop
        try:
            site.start()
            finished = True
        except KeyboardInterrupt:
            finished = False
        site.disk.on_operation = None
        site.disk.kill()
        if finished:
            break
        manager = site.start()
        assert manager.may_have_lost_data and manager.logs[TP].log_end_offset < end and site.names(".damaged"), step
        step += 1
    assert step > 20
