"""Digests of rows that are still to come by: a multiset that stays small."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from strandline.spark_connector.writing.claims import DIGEST_BYTES, Claims, digest

DIGESTS = st.sampled_from([b"\0" * 16, b"\0" * 15 + b"\1", b"a" + b"\0" * 15, b"ab" + b"\0" * 14, b"\xff" * 16])


def added(digests: Sequence[bytes]) -> bytearray:
    return bytearray(b"".join(digests))


@given(st.lists(st.tuples(st.booleans(), st.lists(DIGESTS, max_size=6)), max_size=8))
def test_each_is_taken_as_often_as_it_was_added(steps: list[tuple[bool, list[bytes]]]) -> None:
    claims, left = Claims(), Counter[bytes]()
    for is_addition, digests in steps:
        if is_addition:
            claims.add(added(digests))
            left.update(digests)
        else:
            expected = []
            for each in digests:
                expected.append(left[each] > 0)
                left[each] -= expected[-1]
            assert claims.take(digests).tolist() == expected
        assert claims.left == left.total()


def test_a_million_rows_take_little_more_than_their_digests() -> None:
    count = 1_000_000
    digests = bytearray(b"".join(number.to_bytes(DIGEST_BYTES, "little") for number in range(count)))
    tracemalloc.start()
    try:
        claims = Claims()
        claims.add(digests)
        assert claims.take([number.to_bytes(DIGEST_BYTES, "little") for number in range(1_000)]).all()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * count


def test_rows_are_told_apart_by_all_that_they_hold() -> None:
    rows = [
        digest(None, None, ()),
        digest(b"", None, ()),
        digest(None, b"", ()),
        digest(b"a", b"bc", ()),
        digest(b"ab", b"c", ()),
        digest(b"a", b"bc", [("h", None)]),
        digest(b"a", b"bc", [("h", b"")]),
        digest(b"a", b"bc", [("h", b"x"), ("h", b"")]),
        digest(b"a", b"bc", (), 0),
        digest(b"a", b"bc", (), 1),
    ]
    assert len(set(rows)) == len(rows)
