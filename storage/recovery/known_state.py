"""What a start knows of a log before it reads it: from checkpoints, from the last stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strandline.storage.recovery.verdicts import Fault, Origin, Verdict, verdict


@dataclass(frozen=True, slots=True)
class KnownState:
    """Of one log, as its checkpoints and the last stop tell. The defaults are those of a new log."""

    clean: bool = True
    """The broker stopped in order."""
    may_have_lost_data: bool = False
    """The machine may have stopped without writing out its page cache."""
    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    compacted_below: int = 0
    """What the cleaner went over."""
    listed: Sequence[tuple[int, int]] | None = None
    """(base offset, size) of the segments at the clean stop; None where nobody wrote it down."""
    epochs_crc: int | None = None
    """CRC-32C of the epoch file at that stop."""
    bounds_known: bool = True
    """Recovery point and high watermark stand in checkpoints that are whole."""
    on_loss: Callable[[], None] = lambda: None
    """Notes durably, from any thread, that something is lost which was durable or committed."""
    origin: Origin = Origin.OURS

    @property
    def vouched_below(self) -> int:
        """What stands below was durable or committed, as the checkpoints say."""
        return max(self.recovery_point, self.high_watermark)

    def judge(self, fault: Fault, offset: int) -> Verdict:
        """What becomes of the log from `offset` on, where this was found."""
        return verdict(
            fault,
            self.origin,
            is_clean=self.clean,
            power_failed=self.may_have_lost_data,
            counted=offset < self.vouched_below or not self.bounds_known,
        )
