"""What is not understood is never deleted: the table that decides, and folders for each of its lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from strandline.protocol.records.batch import scan
from strandline.protocol.types import TopicPartition
from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, encode_offsets
from strandline.storage.manager.directory_state import STATE
from strandline.storage.manager.orderly_stops import CLEAN_MARKER
from strandline.storage.recovery.verdicts import Fault, Origin, Verdict, verdict
from support.damage_site import OTHER, DamageSite
from support.foreign import KAFKAS_MARKER, kafkas_batch, kafkas_site
from support.storage_site import FOLDER, TP, StorageSite, file_names, offsets

DROP, KEEP, LOSE, REFUSE, SERVE = Verdict.DROP, Verdict.KEEP, Verdict.LOSE, Verdict.REFUSE, Verdict.SERVE
POWER_OR_NOT_COUNTED = [(power, counted) for power in (True, False) for counted in (True, False)]
OURS: dict[Fault, tuple[Verdict, Verdict, Verdict, Verdict]] = {
    # After a stop that was no orderly one: power failed and it counted, power failed, it counted, neither.
    Fault.TAIL: (LOSE, DROP, LOSE, DROP),
    Fault.INSIDE: (LOSE,) * 4,
    Fault.JUMP: (LOSE, LOSE, LOSE, LOSE),
    Fault.CONTRADICTION: (LOSE, LOSE, LOSE, LOSE),
    Fault.HOLE: (LOSE, LOSE, REFUSE, REFUSE),
    Fault.CLEANED: (LOSE, LOSE, REFUSE, REFUSE),
    Fault.BEHIND_LISTED: (KEEP,) * 4,
}
ANOTHERS = {
    # Of a log that another program may have written, in the same four cases.
    Fault.TAIL: (LOSE, DROP, LOSE, DROP),
    Fault.INSIDE: (REFUSE,) * 4,
    Fault.JUMP: (SERVE,) * 4,
    Fault.CONTRADICTION: (REFUSE,) * 4,
    Fault.HOLE: (REFUSE,) * 4,
    Fault.CLEANED: (SERVE,) * 4,
    Fault.BEHIND_LISTED: (REFUSE,) * 4,
}


def expected(fault: Fault, origin: Origin, is_clean: bool, power_failed: bool, counted: bool) -> Verdict:
    column = POWER_OR_NOT_COUNTED.index((power_failed, counted))
    if origin is Origin.ANOTHERS:
        return REFUSE if is_clean and fault is Fault.TAIL else ANOTHERS[fault][column]
    if origin is Origin.UNKNOWN and fault is Fault.CLEANED and not power_failed:
        return SERVE
    found = OURS[fault][column]
    return LOSE if found is DROP and (is_clean or origin is Origin.UNKNOWN) else found


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("origin", Origin)
def test_every_combination_has_its_verdict(fault: Fault, origin: Origin) -> None:
    for is_clean, power_failed, counted in product((True, False), repeat=3):
        found = verdict(fault, origin, is_clean=is_clean, power_failed=power_failed, counted=counted)
        assert found is expected(fault, origin, is_clean, power_failed, counted)


def logs_of(site: StorageSite) -> dict[str, bytes]:
    return {name: site.disk.read(f"{FOLDER}/{name}") for name in file_names(site.disk) if ".log" in name}


def after_starts(site: StorageSite) -> list[int] | None:
    """The offsets that three starts serve, which leave every byte of every .log; None where they refuse the log."""
    before = logs_of(site)
    found = []
    for is_killed in (True, False, True):
        manager = site.start()
        found.append(offsets(manager.logs[TP]) if TP in manager.logs else None)
        assert logs_of(site) == before
        manager.close(clean=not is_killed)
        site.disk.kill()
    assert found == found[:1] * 3
    return found[0]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    ("recovery_point", "high_watermark"), [(None, None), (0, 0), (0, 40), (10, 40), (40, 40), (40, 41)]
)
def test_a_cleaning_that_was_interrupted_leaves_empty_segments_which_are_served(
    is_clean: bool, recovery_point: int | None, high_watermark: int | None
) -> None:
    """Each key of segment 0 came again in the next one; the cleaner writes down how far it came once it is done."""
    segments = {0: [], 20: [kafkas_batch(offset) for offset in range(20, 40)], 40: [kafkas_batch(40)]}
    site = kafkas_site(segments, is_clean=is_clean, recovery_point=recovery_point, high_watermark=high_watermark)
    assert after_starts(site) == list(range(20, 41))
    site.disk.sync_everything()
    site.disk.crash()
    assert offsets(site.start().logs[TP]) == list(range(20, 41))  # the power fails, but that segment was empty before


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 15])
def test_a_hole_in_a_kafkas_log_that_is_compacted_is_served(is_clean: bool, recovery_point: int) -> None:
    """Every key of offsets 5 to 9 came again, and what is left before them shows no trace of that."""
    segments = {base: [kafkas_batch(offset) for offset in range(base, base + 5)] for base in (0, 10)}
    site = kafkas_site(segments, is_clean=is_clean, recovery_point=recovery_point, high_watermark=15)
    site.config = replace(site.config, cleanup_policy=("compact",))
    assert after_starts(site) == [*range(5), *range(10, 15)]


TRACES = {"before it": {0: [0, 2], 10: [10], 11: [11]}, "behind it": {0: [0], 10: [10, 12], 13: [13]}}


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize(("is_clean", "recovery_point"), [(True, 14), (False, 11), (False, 0)])
def test_a_hole_in_a_kafkas_log_with_a_trace_of_its_cleaner_on_one_side_is_served(
    trace: str, is_clean: bool, recovery_point: int
) -> None:
    segments = {base: [kafkas_batch(offset) for offset in kept] for base, kept in TRACES[trace].items()}
    site = kafkas_site(segments, is_clean=is_clean, recovery_point=recovery_point, high_watermark=11)
    assert after_starts(site) == [offset for kept in TRACES[trace].values() for offset in kept]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 40])
def test_a_hole_in_a_kafkas_log_without_any_trace_of_its_cleaner_is_refused(
    is_clean: bool, recovery_point: int
) -> None:
    segments = {0: [kafkas_batch(0)], 20: [kafkas_batch(20)], 40: [kafkas_batch(40)]}
    site = kafkas_site(segments, is_clean=is_clean, recovery_point=recovery_point, high_watermark=41)
    assert after_starts(site) is None


FAR = 2**31 + 100
UNREADABLE = {
    "sealed segments that span more offsets than an index can tell": {
        0: [kafkas_batch(0), kafkas_batch(FAR)],
        FAR + 1: [kafkas_batch(FAR + 1)],
        FAR + 2: [kafkas_batch(FAR + 2)],
    },
    "a flipped bit": {0: [kafkas_batch(0)[:-1] + b"?", kafkas_batch(1)], 2: [kafkas_batch(2)]},
    "a length that leads nowhere": {0: [b"\0" * 8 + b"\xff" * 53, kafkas_batch(1)], 2: [kafkas_batch(2)]},
}


@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.parametrize("high_watermark", [0, 3])
def test_a_sealed_segment_of_a_kafka_that_cannot_be_read_is_refused_and_not_cut(what: str, high_watermark: int) -> None:
    site = kafkas_site(UNREADABLE[what], is_clean=False, recovery_point=0, high_watermark=high_watermark)
    assert after_starts(site) is None


@pytest.mark.parametrize(
    "what", ["sealed segments that span more offsets than an index can tell", "a length that leads nowhere"]
)
def test_a_sealed_segment_that_cannot_be_read_is_refused_behind_the_marker_of_a_kafka_too(what: str) -> None:
    assert after_starts(kafkas_site(UNREADABLE[what], is_clean=True, recovery_point=3, high_watermark=3)) is None


def test_a_tail_that_is_torn_although_a_kafka_stopped_in_order_is_refused_and_not_cut() -> None:
    segments = {0: [kafkas_batch(0), kafkas_batch(1)[:-1]]}
    assert after_starts(kafkas_site(segments, is_clean=True, recovery_point=2, high_watermark=2)) is None


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("high_watermark", [0, 3])
def test_damage_in_the_last_segment_of_a_kafka_is_no_torn_tail_where_whole_batches_follow(
    high_watermark: int, is_clean: bool
) -> None:
    content = [kafkas_batch(0), kafkas_batch(1)[:30], kafkas_batch(2)]
    site = kafkas_site({0: content}, is_clean=is_clean, recovery_point=0, high_watermark=high_watermark)
    assert after_starts(site) is None


@pytest.mark.parametrize("high_watermark", [0, 5])
def test_the_last_batch_of_a_kafka_may_jump_as_that_of_a_follower_of_a_compacted_log(high_watermark: int) -> None:
    segments = {0: [*map(kafkas_batch, range(5)), kafkas_batch(50)]}
    site = kafkas_site(segments, is_clean=False, recovery_point=0, high_watermark=high_watermark)
    assert offsets(site.start().logs[TP]) == [0, 1, 2, 3, 4, 50]


def test_the_torn_tail_of_a_kafka_that_was_killed_is_cut() -> None:
    site = kafkas_site({0: [kafkas_batch(0), kafkas_batch(1)[:-1]]}, is_clean=False, recovery_point=0, high_watermark=1)
    assert offsets(site.start().logs[TP]) == [0]
    assert not file_names(site.disk, ".damaged")
    for bounds in (None, encode_offsets({TopicPartition("other", 0): 1})):  # no checkpoint has the log
        site = kafkas_site({0: [kafkas_batch(0), kafkas_batch(1)[:-1]]}, is_clean=False)
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS) if bounds else ():
            site.disk.write(f"/logs/{name}", bounds)
        assert offsets(site.start().logs[TP]) == [0]
        assert len(file_names(site.disk, ".damaged")) == 1


CONTRADICTIONS = {
    "epochs that fall, as somebody deleted the partition's state": (
        {0: [kafkas_batch(offset, epoch=5 if offset < 30 else 0) for offset in range(40)]},
        "leader epoch 0 stands after 5",
    ),
    "the same between two segments": (
        {0: [kafkas_batch(0, epoch=5)], 1: [kafkas_batch(1)], 2: [kafkas_batch(2)]},
        "leader epoch 0 stands after 5",
    ),
    "offsets that fall": ({0: [kafkas_batch(0), kafkas_batch(9), kafkas_batch(5)]}, "offset 5 stands after 9"),
    "a last segment that spans too much": ({0: [kafkas_batch(0), kafkas_batch(FAR)]}, f"offset {FAR} is too high"),
    "batches of a later format": ({0: [kafkas_batch(0), kafkas_batch(1, magic=3)]}, "format 3 stands at offset 1"),
}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(("recovery_point", "high_watermark"), [(None, None), (0, 0), (0, 2), (2, 2)])
@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_whole_batches_of_a_kafka_that_contradict_each_other_are_refused_and_not_cut(
    what: str, is_clean: bool, recovery_point: int | None, high_watermark: int | None
) -> None:
    segments, why = CONTRADICTIONS[what]
    site = kafkas_site(segments, is_clean=is_clean, recovery_point=recovery_point, high_watermark=high_watermark)
    assert after_starts(site) is None
    assert why in str(site.start().refused[TP])


def test_of_a_log_that_is_refused_for_its_first_segment_the_others_are_not_read() -> None:
    segments = {offset: [kafkas_batch(offset, magic=2 if offset else 3)] for offset in range(40)}
    site = kafkas_site(segments, is_clean=True)
    read: list[str] = []
    site.disk.on_operation = lambda operation, path: read.append(path)
    assert TP in site.start().refused
    assert not [path for path in read if path.endswith(f"{39:020d}.log")]


def test_a_folder_that_stands_in_no_checkpoint_keeps_beside_it_what_it_loses() -> None:
    """Somebody put it there, after it had been moved away; a bit of it is wrong."""
    site = kafkas_site({0: [kafkas_batch(0)]}, is_clean=True, recovery_point=1, high_watermark=1)
    manager = site.start()
    manager.mark_loss_handled()
    manager.checkpoints.write_recovery_points()
    manager.close(clean=True)
    site.disk.makedirs("/logs/moved-0")
    content = kafkas_batch(0) + kafkas_batch(1)[:-1] + b"?"
    site.disk.write(f"/logs/moved-0/{0:020d}.log", content)
    manager = site.start()
    assert offsets(manager.logs[TopicPartition("moved", 0)]) == [0] and manager.may_have_lost_data
    there = [site.disk.read(f"/logs/moved-0/{name}") for name in site.disk.listdir("/logs/moved-0") if ".log" in name]
    assert b"".join(there) == content


def as_it_is(site: DamageSite) -> None:
    pass


def torn(site: DamageSite) -> None:
    path = site.path(-1)
    site.disk.write(path, site.disk.read(path) + b"\xa7garbage" * 9)


def damaged_inside(site: DamageSite) -> None:
    path = site.path(1)
    content = site.disk.read(path)
    site.disk.write(path, content[:-1] + bytes([content[-1] ^ 1]))


def of_one_segment(site: DamageSite) -> None:
    for name in site.names(".log")[1:]:
        for suffix in (".log", ".index", ".timeindex"):
            if site.disk.exists(path := f"{site.folder}/{name.removesuffix('.log')}{suffix}"):
                site.disk.unlink(path)


def emptied(site: DamageSite) -> None:
    of_one_segment(site)
    site.disk.write(site.path(0), b"")


@pytest.mark.parametrize("origin", Origin)
@pytest.mark.parametrize("how", ["clean", "kill", "power"])
@pytest.mark.parametrize("shape", [as_it_is, torn, damaged_inside, of_one_segment, emptied])
@pytest.mark.parametrize("log_start", [45, 445])
def test_no_whole_batch_goes_without_a_copy_where_a_log_ends_below_its_start(
    origin: Origin, how: str, shape: Callable[[DamageSite], None], log_start: int
) -> None:
    site = DamageSite()
    site.stop(site.build(flushed=True), how)
    if how == "clean":
        site.disk.write(f"{site.root}/{CLEAN_MARKER}", KAFKAS_MARKER)
        site.disk.unlink(f"{site.root}/{STATE}")
    elif origin is Origin.ANOTHERS:
        site.disk.write(f"{site.root}/{HIGH_WATERMARKS}", encode_offsets({OTHER: 0, TP: 90}))
    if origin is Origin.UNKNOWN:
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
            site.disk.write(f"{site.root}/{name}", encode_offsets({OTHER: 0}))
    site.disk.write(f"{site.root}/{LOG_START_OFFSETS}", encode_offsets({TP: log_start}))
    if shape is not damaged_inside:
        shape(site)
    batches = [
        content[at : at + header.size_bytes]
        for name, content in site.everything().items()
        if name.endswith(".log")
        for at, header in scan(memoryview(content.partition(b"\xa7garbage")[0]))
    ]
    if shape is damaged_inside:
        shape(site)
    before = site.everything()
    manager = site.start()
    after = site.everything()
    if TP in manager.refused:
        assert after == before
        return
    there = b"".join(content for name, content in after.items() if name.endswith((".log", ".damaged")))
    assert sum(batch not in there for batch in batches) <= (shape is damaged_inside)
    if any(name.endswith(".damaged") for name in after):
        assert manager.may_have_lost_data
