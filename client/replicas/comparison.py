"""Where the replicas of one partition differ. Pure: from streams of batches to findings.

    compare({1: BatchStream(read_1, 0, 900), 2: BatchStream(read_2, 0, 900)}, start=0, end=900)  # the leader first

Followers append what their leader sends byte for byte, so below the high watermark all replicas have the same batches:
the same offsets, epochs and checksums, and every batch's bytes have the CRC-32C that stands in its header. What differs
is one of these:

    damaged    the bytes of a batch do not have the checksum of its header, or are no batch at all: a flipped bit
    missing    a replica has nothing where another one has a batch
    different  sound batches, but others: other bytes, another leader epoch, other borders
    ahead      a log has more than the leader's
    unread     a replica, or the rest of it, could not be read
    offline    its broker is not running

What differs is held against what most replicas have, of as many against the leader's. A replica is compared from where
its log begins (retention goes its own way everywhere) to where what it knows to be committed ends. Compacted
partitions: `compacted`, by their records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strandline.client.replicas.streams import Batch, BatchStream, Group, Stretch, side_by_side

DAMAGED = "damaged"
MISSING = "missing"
DIFFERENT = "different"
AHEAD = "ahead"
UNREAD = "unread"
OFFLINE = "offline"
DIFFERENCES = (DAMAGED, MISSING, DIFFERENT, AHEAD)
"""Kinds that say that replicas are not equal; the others, that they could not be compared."""

MAX_FINDINGS = 1000
"""Of one replica in one comparison; what is found beyond that widens the last one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """[start, end) of a replica; `count` batches in a row (compacted: records). `text` explains the first of them.
    is_confirmed: two looks, one after the other, found it."""

    kind: str
    start: int
    end: int
    count: int
    text: str
    is_confirmed: bool = False


@dataclass(slots=True)
class Compared:
    """What became of one replica in [start, end). is_behind: it knows of nothing more that is committed."""

    start: int
    end: int
    is_behind: bool = False
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, kind: str, start: int, end: int, text: str) -> None:
        """Findings in a row become one."""
        for place in range(len(self.findings) - 1, -1, -1):
            last = self.findings[place]
            if last.kind == kind:
                if start <= last.end or len(self.findings) >= MAX_FINDINGS:
                    self.findings[place] = replace(last, end=max(end, last.end), count=last.count + 1)
                    return
                break
        self.findings.append(Finding(kind, start, end, 1, text))


def compare(streams: Mapping[int, BatchStream], start: int, end: int) -> dict[int, Compared]:
    """Broker → what became of its replica in [start, end). The leader's stream is the first. A batch that reaches
    across `start` is looked at, too, but counts only where it begins."""
    return run(streams, start, end, lambda group, results: compare_group(group, streams, results))


Look = Callable[[Group, Mapping[int, Compared]], object]


def run(
    streams: Mapping[int, BatchStream], start: int, end: int, look: Look, may_skip: Callable[[], bool] = lambda: True
) -> dict[int, Compared]:
    """Have `look` compare each group of batches that are not just the same (unless it is to see those, too); damage,
    what was read, and where it ended, are the same for all."""
    results = {broker: Compared(start, end) for broker in streams}
    for found in side_by_side(list(streams.values()), start, end, may_skip):
        if isinstance(found, Stretch):
            for result in results.values():
                result.batches += found.batches
                result.records += found.records
                result.size_bytes += found.size_bytes
            continue
        for result, batches in zip(results.values(), found.batches, strict=True):
            _count(result, batches, start)
        look(found, results)
    for broker, stream in streams.items():
        conclude(results[broker], stream)
    return results


def _count(result: Compared, batches: Iterable[Batch], start: int) -> None:
    for batch in batches:
        if not batch.is_sound:
            stored = f"{batch.header.crc:#010x}"
            result.add(DAMAGED, batch.start, batch.end, f"its bytes do not have the CRC-32C {stored} of its header")
        if batch.start >= start:
            result.batches += 1
            result.records += batch.header.records_count
            result.size_bytes += len(batch.data)


def conclude(result: Compared, stream: BatchStream) -> None:
    """What the end of a stream says."""
    result.is_behind = stream.is_behind
    result.start = min(max(result.start, stream.floor), result.end)
    whole_end = result.end
    result.end = max(min(result.end, stream.end), result.start)
    if stream.damage:
        result.add(DAMAGED, result.end, result.end + 1, f"{stream.damage}; nothing behind it was compared")
    elif stream.failure:
        result.add(UNREAD, result.end, max(whole_end, result.end + 1), stream.failure)


def compare_group(group: Group, streams: Mapping[int, BatchStream], results: Mapping[int, Compared]) -> None:
    """Of an ordinary partition: every replica has to have the batches that reach into what it holds, and no others."""
    sound = {
        broker: batches
        for broker, batches in zip(streams, group.batches, strict=True)
        if batches and all(batch.is_sound for batch in batches)
    }
    if not sound:
        return
    model_of = held_by_most({broker: [batch.header for batch in batches] for broker, batches in sound.items()})
    for (broker, stream), batches in zip(streams.items(), group.batches, strict=True):
        if broker == model_of or (batches and broker not in sound):
            continue
        model = [batch for batch in sound[model_of] if batch.end > stream.floor and batch.start < stream.end]
        own = [batch for batch in batches if batch.end > stream.floor]
        if not own and (lacking := [batch for batch in model if batch.end <= stream.end]):
            results[broker].add(MISSING, lacking[0].start, lacking[-1].end, f"broker {model_of} has {_named(lacking)}")
        elif own and (text := _difference(own, model)):
            results[broker].add(DIFFERENT, group.start, group.end, f"{text}, unlike on broker {model_of}")


def held_by_most(versions: Mapping[int, object]) -> int:
    """A broker that has what most have; of as many, what the first has."""
    return max(versions, key=lambda broker: sum(other == versions[broker] for other in versions.values()))


def _difference(batches: Sequence[Batch], model: Sequence[Batch]) -> str:
    """ "" where they are the same."""
    if [(each.start, each.end) for each in batches] != [(each.start, each.end) for each in model]:
        return f"has {_named(batches)} instead of {_named(model)}"
    for batch, other in zip(batches, model, strict=True):
        if batch.header == other.header:
            continue
        epoch, other_epoch = batch.header.partition_leader_epoch, other.header.partition_leader_epoch
        if epoch != other_epoch:
            return f"the batch is of leader epoch {epoch} instead of {other_epoch}"
        return f"the batch has CRC-32C {batch.header.crc:#010x} instead of {other.header.crc:#010x}"
    return ""


def _named(batches: Sequence[Batch]) -> str:
    if not batches:
        return "none"
    first, last = batches[0], batches[-1]
    if len(batches) == 1:
        return f"a batch of {first.header.records_count} records in [{first.start}, {first.end})"
    return f"{len(batches)} batches in [{first.start}, {last.end})"
