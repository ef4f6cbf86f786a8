"""The suite that compares Spark's Kafka connector with ours notices what it is there to notice; its page is current."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from compat.spark_conformance.cases import Case, Known, Outcome, differences, misunderstood, plain_offset, verdict
from compat.spark_conformance.known import KNOWN
from compat.spark_conformance.report import CASES, page
from compat.spark_conformance.running import Read

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark-conformance.md"
CASE = Case("a read", Read({}), rows=1)
REFUSED = Case("a refusal", Read({}), words=("must be Positive", "7"))
GIVEN = Outcome(("value binary True",), ((b"x", 3),), 2, (1,), ('{"t": {"0": 4}}',))
SAID = Outcome(error="minPartitions must be positive, not 7", condition="KAFKA_X")


def test_the_page_says_what_the_table_of_known_differences_says() -> None:
    assert PAGE.read_text() == page(), f"{PAGE.name} is stale: run `make docs` and commit docs/{PAGE.name}"


def test_what_is_known_is_known_of_cases_that_there_are_each_once() -> None:
    names = Counter(case.name for case in CASES)
    assert max(names.values()) == 1
    known = Counter((name, aspect) for each in KNOWN for name in each.cases for aspect in each.aspects.split())
    assert {name for name, _ in known} <= set(names)
    assert max(known.values()) == 1


@pytest.mark.parametrize(
    ("aspect", "ours"),
    [
        ("schema", replace(GIVEN, schema=("value binary False",))),
        ("rows", replace(GIVEN, rows=((b"x", 4),))),
        ("rows", replace(GIVEN, rows=(*GIVEN.rows, *GIVEN.rows))),
        ("tasks", replace(GIVEN, tasks=3)),
        ("batches", replace(GIVEN, batches=(1, 1))),
        ("offsets", replace(GIVEN, offsets=())),
        ("fails", SAID),
    ],
)
def test_each_aspect_of_what_a_query_gives_is_compared(aspect: str, ours: Outcome) -> None:
    assert not differences(CASE, GIVEN, GIVEN)
    assert list(differences(CASE, GIVEN, ours)) == [aspect]
    assert list(differences(CASE, ours, GIVEN)) == [aspect]


def test_errors_are_compared_by_condition_and_words() -> None:
    assert not differences(REFUSED, SAID, replace(SAID, error="[KAFKA_X] 7: MUST BE positive"))
    assert list(differences(REFUSED, SAID, replace(SAID, condition="KAFKA_Y"))) == ["condition"]
    assert list(differences(REFUSED, SAID, replace(SAID, error="must be positive"))) == ["words"]
    assert not differences(REFUSED, replace(SAID, condition=""), SAID), "the other one may have no condition"


def test_what_is_not_known_is_wrong_and_so_is_what_is_known_and_gone() -> None:
    known = [Known("rows tasks", "because", ("a read",))]
    found = differences(CASE, GIVEN, replace(GIVEN, rows=(), tasks=1))
    assert verdict(CASE, found, known) == ([], {"rows": "because", "tasks": "because"})
    (gone,), _ = verdict(CASE, differences(CASE, GIVEN, replace(GIVEN, tasks=1)), known)
    assert "does not differ in its rows any more" in gone
    (unknown,), _ = verdict(CASE, differences(CASE, GIVEN, SAID), [])
    assert "differs in its fails" in unknown


@pytest.mark.parametrize(
    ("case", "outcome"),
    [(CASE, SAID), (REFUSED, GIVEN), (CASE, replace(GIVEN, rows=())), (REFUSED, replace(SAID, error="7"))],
)
def test_a_case_that_the_other_connector_does_not_understand_as_meant_is_wrong(case: Case, outcome: Outcome) -> None:
    assert misunderstood(case, outcome)
    assert not misunderstood(CASE, GIVEN)
    assert not misunderstood(REFUSED, SAID)


def test_offsets_are_compared_without_what_ours_adds() -> None:
    ours = '{"of-3":{"1":5,"0":4},"#ids":{"of-3":"x"},"#initial":{"of-3":{"0":0}}}'
    assert plain_offset(ours, {"of-3": "t"}) == plain_offset('{"of-4":{"0":4,"1":5}}', {"of-4": "t"})
