"""What to do about what brokers tell as problems, and what that means: in the words of the log, `strandline status` and
`strandline doctor --cluster`, which look for some of the same."""

from __future__ import annotations

REFUSED = "producers with acks=all are refused"
"""What being under min.insync.replicas means."""
START = "start it; gone for good: strandline broker-decommission"
SLOW = "see its log, and what slows it down (disk, network, a throttle)"
RECOVER = "start the brokers that hold them; gone for good: strandline recover TOPIC"
"""`recover` shows first what would be lost, and has the longest log lead."""
MAKE_ROOM = "shorten retention (configs alter), delete records, or add a disk or a broker"
COMPACT = "raise max.decompressed.message.bytes or replace this replica, then restart the broker"
