"""What a coordinator counts over all its groups, also those that are gone: plain integers, for whoever looks."""

from __future__ import annotations


class GroupCounts:
    """completed_rebalances: a generation's members could be told what they are assigned. The others are of offsets:
    committed; let go of since they were too old; deleted, by request or with their partition."""

    def __init__(self) -> None:
        self.completed_rebalances = 0
        self.commits = 0
        self.expirations = 0
        self.deletions = 0
