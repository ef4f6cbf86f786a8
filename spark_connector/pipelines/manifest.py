"""What an archive says of itself: a manifest per run, and what the next run has to archive. Pure.

Each run's manifest names every partition of the topic with the offsets `[start, end)` that the run covered (also those
that had nothing new), so the newest one alone says where to go on. `missing` are offsets that were gone when the run
came to them, and that the user allowed to be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from strandline.spark_connector.errors import ArchiveDamaged, ArchiveMismatch
from strandline.spark_connector.reading.planning import Held

VERSION = 1


class Offsets(NamedTuple):
    """`[start, end)` of a partition."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Missing:
    """Offsets of a partition that the topic no longer held."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A Parquet file: records of one partition and one UTC day. `path` is relative to the run's folder; `data_bytes`:
    keys and values, not compressed; `largest_record_bytes`: of the largest key, value and headers together."""

    path: str
    size_bytes: int
    day: str
    partition: int
    records: int
    data_bytes: int
    first_offset: int
    last_offset: int
    largest_record_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One committed run. `topic_id` in hexadecimal digits."""

    run: int
    topic: str
    topic_id: str
    offsets: Mapping[int, Offsets]
    missing: tuple[Missing, ...]
    files: tuple[ArchivedFile, ...]

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)


# --- Text ------------------------------------------------------------------------------------------------------


def to_json(manifest: Manifest) -> str:
    return json.dumps(
        {
            "version": VERSION,
            "run": manifest.run,
            "topic": manifest.topic,
            "topic_id": manifest.topic_id,
            "offsets": {str(partition): list(offsets) for partition, offsets in sorted(manifest.offsets.items())},
            "missing": [asdict(each) for each in manifest.missing],
            "files": [asdict(each) for each in manifest.files],
        },
        indent=1,
    )


def from_json(text: str | bytes, where: str) -> Manifest:
    """ArchiveDamaged naming `where` for anything that `to_json` did not write."""
    try:
        fields: dict[str, Any] = json.loads(text)
        if fields["version"] != VERSION:
            raise ArchiveDamaged(
                f"{where} has version {fields['version']!r}, this Strandline knows {VERSION}: use the one that wrote it"
            )
        manifest = Manifest(
            run=fields["run"],
            topic=fields["topic"],
            topic_id=fields["topic_id"],
            offsets={int(partition): Offsets(*offsets) for partition, offsets in fields["offsets"].items()},
            missing=tuple(Missing(**each) for each in fields["missing"]),
            files=tuple(ArchivedFile(**each) for each in fields["files"]),
        )
        sound = all(_is_sound(offsets.start, offsets.end) for offsets in manifest.offsets.values())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ArchiveDamaged(f"{where} is not the manifest of an archive: {error!r}; take it from a backup") from None
    if not sound or type(manifest.run) is not int:
        raise ArchiveDamaged(f"{where} names offsets or a run that cannot be; take it from a backup")
    return manifest


def _is_sound(start: Any, end: Any) -> bool:
    return type(start) is int and type(end) is int and 0 <= start <= end


def check_history(manifests: Sequence[Manifest], where: str) -> None:
    """The runs follow each other without a gap and are of one topic; ArchiveDamaged."""
    reached: dict[int, int] = {}
    for number, manifest in enumerate(manifests, 1):
        if manifest.run != number:
            raise ArchiveDamaged(f"{where} lacks run {number}; take its folder from a backup")
        if (manifest.topic, manifest.topic_id) != (manifests[0].topic, manifests[0].topic_id):
            raise ArchiveDamaged(f"{where}: run {number} is of another topic than run 1; keep them in two folders")
        gone = {each.partition: each.end for each in manifest.missing}
        for partition, end in reached.items():
            follows = manifest.offsets.get(partition)
            if follows is None or follows.start != gone.get(partition, end):
                raise ArchiveDamaged(f"{where}: run {number} does not go on where run {number - 1} ended")
        reached = {partition: offsets.end for partition, offsets in manifest.offsets.items()}


# --- The next run ----------------------------------------------------------------------------------------------


class NextRun(NamedTuple):
    """What the next run covers, per partition of the topic."""

    run: int
    offsets: dict[int, Offsets]
    missing: tuple[Missing, ...]

    @property
    def is_empty(self) -> bool:
        return all(offsets.start == offsets.end for offsets in self.offsets.values()) and not self.missing

    @property
    def wanted(self) -> dict[int, Offsets]:
        """The partitions that have anything new."""
        return {partition: each for partition, each in self.offsets.items() if each.start < each.end}


def next_run(
    last: Manifest | None,
    topic: str,
    topic_id: str,
    held: Mapping[int, Held],
    *,
    allow_missing: bool,
    warn: Callable[[str], None],
) -> NextRun:
    """From the newest manifest (None: there is no run yet) and what each partition holds now. ArchiveMismatch."""
    if last is not None:
        _check_same_topic(last, topic, topic_id, held)
    offsets: dict[int, Offsets] = {}
    missing = []
    for partition, there in sorted(held.items()):
        reached = None if last is None else last.offsets.get(partition)
        if reached is None:  # the first run, or a partition that the topic got since
            offsets[partition] = Offsets(there.earliest, there.latest)
            continue
        start = reached.end
        if there.latest < start:
            raise ArchiveMismatch(
                f"Partition {topic}-{partition} ends at offset {there.latest}, but is archived up to {start}: the "
                "topic lost records. The archive has them; archive what comes now into another folder"
            )
        if there.earliest > start:
            text = f"Offsets [{start}, {there.earliest}) of {topic}-{partition} were deleted before they were archived"
            if not allow_missing:
                raise ArchiveMismatch(f"{text}; allow that (--allow-missing) to go on with what is left")
            warn(text)
            missing.append(Missing(partition, start, there.earliest))
            start = there.earliest
        offsets[partition] = Offsets(start, there.latest)
    return NextRun(1 if last is None else last.run + 1, offsets, tuple(missing))


def _check_same_topic(last: Manifest, topic: str, topic_id: str, held: Mapping[int, Held]) -> None:
    if last.topic != topic:
        raise ArchiveMismatch(f"The folder is the archive of topic {last.topic!r}, not of {topic!r}; name another one")
    if last.topic_id != topic_id:
        raise ArchiveMismatch(
            f"Topic {topic!r} was deleted and created anew since it was archived (its id was {last.topic_id} and is "
            f"{topic_id}); archive the new one into another folder"
        )
    if absent := sorted(set(last.offsets) - set(held)):
        raise ArchiveMismatch(f"Topic {topic!r} has no partition {absent[0]} any more, which was archived")
