"""Ends the session of somebody else at a real ZooKeeper: who knows its id and password may close it, and whoever has it
learns that it has expired.

The password follows from the id (`SessionTrackerImpl` and `ZooKeeperServer.generatePasswd`): sixteen bytes of Java's
random numbers, begun with the id and a constant.
"""

from __future__ import annotations

from kazoo.client import KazooClient

_SUPER_SECRET = 0xB3415C00
_PASSWORD_BYTES = 16
_MULTIPLIER, _INCREMENT, _MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1
"""Of java.util.Random."""


def password_of(session_id: int) -> bytes:
    """session_id: as a znode's ephemeralOwner has it."""
    state = (session_id ^ _SUPER_SECRET ^ _MULTIPLIER) & _MASK
    drawn = bytearray()
    while len(drawn) < _PASSWORD_BYTES:
        state = (state * _MULTIPLIER + _INCREMENT) & _MASK
        drawn += (state >> 16).to_bytes(4, "little")
    return bytes(drawn)


def end_session_of(broker_id: int, zookeeper_address: str, timeout_s: float = 10.0) -> bool:
    """Of a broker that is registered. False: it is not, or its session has ended meanwhile."""
    path = f"/brokers/ids/{broker_id}"
    looking = KazooClient(hosts=zookeeper_address)
    looking.start(timeout=timeout_s)
    try:
        found = looking.exists(path)
        if found is None:
            return False
        owner = found.ephemeralOwner
        taking = KazooClient(hosts=zookeeper_address, client_id=(owner, password_of(owner)))
        taking.start(timeout=timeout_s)
        taking.stop()  # closes the session that it took over
        taking.close()
        after = looking.exists(path)
        return after is None or after.ephemeralOwner != owner
    finally:
        looking.stop()
        looking.close()
