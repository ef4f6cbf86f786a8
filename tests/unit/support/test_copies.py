"""The comparison of topics and their copies sees what is missing, what stands twice and what is another record."""

from __future__ import annotations

from collections import Counter

from support.copies import content, expected, unlike


def test_records_are_compared_each_once() -> None:
    wanted = expected(range(50))
    assert wanted.total() == len(wanted) == 50, "no record is like another"
    assert unlike(expected(range(50)), wanted) == ""
    assert unlike(expected(range(49)), wanted).startswith("1 of 50 missing")
    assert "1 too many" in unlike(wanted + Counter([content(7)]), wanted)
    changed = content(7)._replace(headers=(("n", b"other"),))
    swapped = wanted - Counter([content(7)]) + Counter([changed])
    assert "1 of 50 missing" in unlike(swapped, wanted) and "1 too many" in unlike(swapped, wanted)


def test_keys_come_again_in_a_topic_that_is_compacted() -> None:
    records = expected(range(100), keys=10)
    assert len(records) == 100 and len({each.key for each in records}) == 10
    assert not any(each.value is None for each in records), "a tombstone would be gone some time"
