"""docs/metrics.md has exactly the families that a loaded cluster tells, and says of each when it is told."""

from __future__ import annotations

from difflib import unified_diff

import pytest

from support.loaded_cluster import story
from support.metric_page import COMMAND, IS_TOLD, PAGE, all_shapes, name_of, page, told_by_page


def test_the_page_has_every_family_and_no_other() -> None:
    """A family that was renamed or lost, or that is new, is a line of the difference."""
    expected = PAGE.read_text()
    found = page(all_shapes(story()), told_by_page(expected))
    difference = "\n".join(unified_diff(expected.splitlines(), found.splitlines(), "docs/metrics.md", "told", n=0))
    assert found == expected, f"if that is as it should be: {COMMAND}\n{difference}"


def test_the_page_says_of_each_family_when_it_is_told() -> None:
    unclear = {key: said for key, said in told_by_page(PAGE.read_text()).items() if said not in IS_TOLD}
    assert not unclear, f"the column `told` may say: {[*IS_TOLD]}"
    unused = IS_TOLD.keys() - told_by_page(PAGE.read_text()).values()
    assert not unused


def test_what_a_first_scrape_only_asks_for_is_not_said_to_be_told_always() -> None:
    said = told_by_page(PAGE.read_text())
    for moment, brokers in story().told_as_openmetrics.items():
        for broker_id, told in brokers.items():
            for shape in told.shapes - story().told[moment][broker_id].shapes:
                assert IS_TOLD[said[name_of(shape), ", ".join(shape.labels)]] is None, shape.name


@pytest.mark.parametrize("said", [said for said, is_told in IS_TOLD.items() if is_told is not None])
def test_it_is_told_then_and_only_then(said: str) -> None:
    wanted = {key for key, when in told_by_page(PAGE.read_text()).items() if when == said}
    is_told = IS_TOLD[said]
    assert wanted and is_told is not None
    for moment, brokers in story().told.items():
        for broker_id, told in brokers.items():
            found = {(name_of(shape), ", ".join(shape.labels)) for shape in told.shapes}
            expected = wanted if is_told(story(), moment, broker_id) else set()
            wrong = found & wanted ^ expected
            assert not wrong, f"{moment}, broker {broker_id}: {sorted(wrong)}"


def test_both_formats_tell_the_same_families() -> None:
    for moment, brokers in story().told_as_openmetrics.items():
        for broker_id, told in brokers.items():
            before = story().told[moment][broker_id]
            new = {shape.name for shape in told.shapes - before.shapes}
            assert before.shapes <= told.shapes
            assert all(name.startswith(("strandline_log_directory", "kafka_consumergroup_lag")) for name in new), (
                "which a first scrape asks for"
            )
