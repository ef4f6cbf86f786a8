"""How brokers tell each other from clients, who may come by the same listener.

Invariants 13 and 27 rest on it: whatever else a follower or a controller says, a client can guess. A broker draws a key
at each start. Its registration in ZooKeeper has it, so the controller learns it with the address, and tells the others
along with that: leaders' keys with LeaderAndIsr, all with UpdateMetadata. Who connects and names the key of the broker
that it connects to (`ApiVersionsRequest.broker_key`) is one of the cluster; no answer to a client and no page of the
admin port has it.

The one who is asked compares with its own key and knows that from its first moment. So neither a start of either side,
a new session, nor another controller makes it take a broker for a client, whatever it has heard by then. Only who asks
can be behind: it has the key of an earlier start then, as it has its broker epoch, is refused like any client, and asks
again as soon as the order comes that tells it where that broker is now.

It is told in clear, to whoever is where a broker says that others of the cluster reach it. So no client may change that
address in `advertised.listeners` (`runtime/config/altering`), only the broker's file, and ZooKeeper, which has the keys
themselves: it all stands for as long as ZooKeeper's data and the network are the cluster's own.
"""

from __future__ import annotations

import hmac
import random

KEY_BITS = 128


def draw_key(random: random.Random) -> str:
    """A new key, as hexadecimal digits."""
    return f"{random.getrandbits(KEY_BITS):0{KEY_BITS // 4}x}"


def is_key(told: str, key: str) -> bool:
    """Whether `told` is that key. Nobody knows one that is empty."""
    return bool(key) and hmac.compare_digest(told.encode(), key.encode())
