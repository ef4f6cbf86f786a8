"""What becomes of a part of a log that a start does not take as it is: the only place that decides it.

What is not understood is never deleted. So dropping without a copy is for one case alone: a tail without any whole
batch in it, above everything that was durable or committed, of a log that is known to be ours, or of one that another
program left without an orderly stop. A kill leaves the beginning of a write and nothing behind it. A power failure may
explain more: pages and files reach the disk in any order, so whole batches behind damage are ordinary then, and no
sign of anything else. They are kept all the same: where the power of every replica failed, nobody else has them.
Another program has reasons of its own for what it leaves.

| what was found | ours | unknown | another program's |
|---|---|---|---|
| a torn tail | dropped; kept where it counted or the stop was orderly | kept | as ours, refused after an orderly stop |
| damage with whole batches or segments behind it | kept | kept | refused |
| the last batch jumps | kept | kept | served |
| a whole batch that contradicts what stands before it | kept | kept | refused |
| a hole between segments | kept where power failed, else refused | the same | refused |
| a hole that a Kafka's cleaner may have left | the same | the same, but served where power did not fail | served |
| bytes behind what an orderly stop listed | kept, no loss | | |

Where a log ends below its start, nothing of it can be served: whatever it has is kept and lost, whoever wrote it
(`damage.drop_all`).

What is kept is lost here, but for the last line (`Verdict.LOSE`): this broker does not count as having it any more, and
fetches it again.
"""

from __future__ import annotations

from enum import Enum, auto


class Origin(Enum):
    """Whose a log is."""

    OURS = auto()
    """It stood in the list of our orderly stop, or in our checkpoints since the directory was looked through."""
    UNKNOWN = auto()
    """It stands in neither: it was begun just before a kill, or somebody put its folder here."""
    ANOTHERS = auto()
    """Another program may have written it since we looked through it."""


class Fault(Enum):
    """What is wrong with a log, where a start finds it."""

    TAIL = auto()
    """Bytes that are no sound batch, up to the end of the log."""
    INSIDE = auto()
    """The same with whole batches or segments behind them."""
    JUMP = auto()
    """The last batch is whole, and offsets before it are missing: no CRC covers its own."""
    CONTRADICTION = auto()
    """A batch that is whole, where its offset, epoch or format cannot be."""
    HOLE = auto()
    """A segment begins behind the end of the one before, or before it."""
    CLEANED = auto()
    """The same behind an empty segment, or in a log that is compacted. A Kafka's cleaner leaves that where each key
    came again, and writes down how far it came once it has gone over the whole log."""
    BEHIND_LISTED = auto()
    """All that stood here at the orderly stop is sound, and more bytes follow."""


class Verdict(Enum):
    """What becomes of a log from a fault on."""

    SERVE = auto()
    DROP = auto()
    """Reported, and gone."""
    KEEP = auto()
    """Cut off and kept beside the log."""
    LOSE = auto()
    """The same, and this broker has lost data."""
    REFUSE = auto()
    """The log is not loaded, and nothing in its folder is changed, leftovers included: an operator is needed."""


def verdict(fault: Fault, origin: Origin, *, is_clean: bool, power_failed: bool, counted: bool) -> Verdict:
    """is_clean: the log was stopped in order. power_failed: the machine may have stopped without writing its page
    cache. counted: it stands below what was durable or committed, or nobody knows the bounds."""
    if origin is Origin.ANOTHERS:
        if fault in (Fault.JUMP, Fault.CLEANED):
            return Verdict.SERVE
        if fault is not Fault.TAIL or is_clean:
            return Verdict.REFUSE
        return Verdict.LOSE if counted else Verdict.DROP
    if fault is Fault.CLEANED and origin is Origin.UNKNOWN and not power_failed:
        return Verdict.SERVE
    if fault in (Fault.HOLE, Fault.CLEANED):
        return Verdict.LOSE if power_failed else Verdict.REFUSE
    if fault is Fault.BEHIND_LISTED:
        return Verdict.KEEP
    if fault is Fault.TAIL and origin is Origin.OURS and not (counted or is_clean):
        return Verdict.DROP
    return Verdict.LOSE
