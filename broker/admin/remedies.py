"""What `/status`, the log and `strandline doctor --cluster` say alike, since they look for some of the same: from where
on something is wrong, what that means, and what to do. The alert rules have the same limit (a test compares them)."""

from __future__ import annotations

NEARLY_FULL_PART = 0.1
"""Of a volume: less left than that is what somebody must act on."""
REFUSED = "producers with acks=all are refused"
"""What being under min.insync.replicas means."""
START = "start it; gone for good: strandline broker-decommission"
FIND_CONTROLLER = "see controller.log of all brokers"
SLOW = "see its log, and what slows it down (disk, network, a throttle)"
RECOVER = "start the brokers that hold them; gone for good: strandline recover TOPIC"
"""`recover` shows first what would be lost, and has the longest log lead."""
MAKE_ROOM = "shorten retention (configs alter), delete records, or add a disk or a broker"
COMPACT = "raise max.decompressed.message.bytes or replace this replica, then restart the broker"
REPORT = "report it with the traceback in this broker's log"
