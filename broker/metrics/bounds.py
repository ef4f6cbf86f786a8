"""How many series a family may have: who scrapes thousands of brokers pays for each, and a client can make as many
groups as it likes. What is left out is counted, by family (`families.LeftOut`), so that nobody takes a part for the
whole.
"""

from __future__ import annotations

MAX_SERIES = 10_000
"""In a family, one for each topic, partition, group, or group in a topic. So many partitions a large broker has."""
MAX_LABEL_CHARACTERS = 249
"""As long as a topic's name may be. Clients give their groups far longer ones."""


def may_be_a_label(name: str) -> bool:
    """Whether it can be told, and is short enough to be told in each of many series."""
    if len(name) > MAX_LABEL_CHARACTERS:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:  # half a character, which a client may name its group
        return False
    return True
