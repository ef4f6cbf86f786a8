"""What becomes of proposals to change ISRs: plain integers, for whoever looks."""

from __future__ import annotations

from strandline.broker.replication.leadership import Proposal


class IsrCounts:
    """failed: ZooKeeper has something else than was proposed."""

    def __init__(self) -> None:
        self.shrinks = 0
        self.expands = 0
        self.failed = 0

    def count(self, kind: Proposal, *, is_written: bool) -> None:
        """One proposal is over."""
        if not is_written:
            self.failed += 1
        elif kind is Proposal.SHRINK:
            self.shrinks += 1
        elif kind is Proposal.EXPAND:
            self.expands += 1
