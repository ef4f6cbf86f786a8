"""Topic names: the allow-list, and names that would collide in metrics."""

from __future__ import annotations

import pytest

from strandline.protocol.topic_name import InvalidTopicName, TopicNames, check_topic_name


@pytest.mark.parametrize("name", ["a", "Orders-2.eu_west", "...", "x" * 249, "__consumer_offsets", "0", "-"])
def test_these_names_are_allowed(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "a\\b", "a\0", "a b", "a\n", "ä", "٣", "a:b", "a,b", "x" * 250, "x" * 10**6]
)  # fmt: skip
def test_these_names_never_become_a_path(name: str) -> None:
    with pytest.raises(InvalidTopicName) as caught:
        check_topic_name(name)
    assert len(str(caught.value)) < 200


def test_names_that_differ_in_dot_and_underscore_only_collide() -> None:
    assert TopicNames(["x", "a_b"]).twin_of("a.b") == "a_b"
    assert TopicNames(["a.b_c"]).twin_of("a_b.c") == "a.b_c"
    assert TopicNames(["a.b", "ab", "a-b"]).twin_of("a.b") is None


def test_a_name_taken_later_is_no_twin_of_itself_and_one_of_others() -> None:
    names = TopicNames([])
    names.add("a.b")
    assert (names.twin_of("a.b"), names.twin_of("a_b"), names.twin_of("ab")) == (None, "a.b", None)
