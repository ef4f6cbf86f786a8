"""A checkpoint that does not tell any more what it vouched for: the loss that this may hide is suspected until the
broker has drawn the consequences, however often it is started and ended before."""

from __future__ import annotations

from itertools import count

import pytest

from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS
from strandline.testkit.disk import MemoryDisk
from support.damage_site import DamageSite
from support.storage_site import TP


class Ended(Exception):
    """The process was killed here."""


def lose_bounds(site: DamageSite, name: str, how: str) -> None:
    path = f"{site.root}/{name}"
    if how == "missing":
        site.disk.unlink(path)
    elif how == "empty":
        site.disk.write(path, b"")
    else:  # the line of this log has become another's
        site.disk.write(path, site.disk.read(path).replace(b"t 0 ", b"\x00 0 "))


def refuse_all(site: DamageSite) -> None:
    """Something stands in the place of a file of each log."""
    for folder in (site.folder, f"{site.root}/other-0"):
        site.disk.rename(f"{folder}/{0:020d}.log", f"{folder}/saved")
        site.disk.makedirs(f"{folder}/{0:020d}.log")


def mend_all(site: DamageSite) -> None:
    for folder in (site.folder, f"{site.root}/other-0"):
        site.disk.rmdir(f"{folder}/{0:020d}.log")
        site.disk.rename(f"{folder}/saved", f"{folder}/{0:020d}.log")


def killed_at(disk: MemoryDisk, step: int) -> bool:
    """Start on this disk, and end at that operation; False where the start was done before. Whatever it had changed
    stays."""
    site = DamageSite(disk=disk)
    steps = count()

    def end(operation: str, path: str) -> None:
        if next(steps) == step:
            raise Ended

    disk.on_operation = end
    try:
        site.start()
    except Ended:
        return True
    finally:
        disk.on_operation = None
        disk.kill()
    return False


CASES = [
    (name, how, refused)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS)
    for how in ("missing", "empty", "line")
    for refused in (False, True)
]


@pytest.mark.parametrize(("name", "how", "refused"), CASES)
def test_a_loss_that_missing_bounds_may_hide_outlives_any_end_of_the_start_that_saw_it(
    name: str, how: str, refused: bool
) -> None:
    site = DamageSite()
    site.stop(site.build(flushed=True), "kill")
    lose_bounds(site, name, how)
    if refused:
        refuse_all(site)
    for step in count():
        ended = DamageSite(disk=site.disk.copy())
        was_killed = killed_at(ended.disk, step)
        if refused:
            mend_all(ended)
        manager = ended.start()
        assert manager.may_have_lost_data and TP in manager.logs, step
        manager.close(clean=not manager.directories.is_loss_open)
        manager = ended.start()
        assert manager.may_have_lost_data, step
        manager.mark_loss_handled()
        manager.close(clean=True)
        assert not ended.start().may_have_lost_data, step
        if not was_killed:
            break


@pytest.mark.parametrize("refused", [False, True])
def test_after_an_orderly_stop_its_list_proves_the_logs_that_were_held_against_it(refused: bool) -> None:
    site = DamageSite()
    site.stop(site.build(flushed=True), "clean")
    lose_bounds(site, RECOVERY_POINTS, "missing")
    if refused:
        refuse_all(site)
    assert site.start().may_have_lost_data is refused
