"""What a program gives to a consumer, in one form: a mistake is a TypeError where it is made, not the error of a broker
that is asked, or of a later commit.

A partition is a TopicPartition, or a pair of a name and a number. Integers may be numpy's, as columns have them.
"""

from __future__ import annotations

import operator
from typing import SupportsIndex

from strandline.protocol.types import TopicPartition


def given_partition(given: object) -> TopicPartition:
    """TypeError for anything else, such as the list of partitions, or the topic, in place of one of them."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return TopicPartition(given[0], given_int(given[1], f"the partition of topic {given[0]!r}"))
    if isinstance(given, list | tuple | set):
        raise TypeError(f"partitions are given here one by one, not as a {type(given).__name__}: *partitions")
    what = f"{given!r:.40} is no partition: give TopicPartition(topic, number)"
    raise TypeError(f"{what}, and several in a list" if isinstance(given, str) else what)


def given_int(given: SupportsIndex, what: str) -> int:
    """TypeError for anything else, such as a time in seconds as a float."""
    try:
        return operator.index(given)
    except TypeError:
        raise TypeError(f"{what} is {given!r:.40} ({type(given).__name__}): give an int") from None
