"""Spark's own Kafka connector and ours are given the same queries over the same topics, and do the same, but for what
`spark_conformance/known.py` knows. The table of all cases stands at the end of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat.spark_conformance.cases import Case
from compat.spark_conformance.report import CASES, line
from compat.spark_conformance.running import Runner, site

SHORT = [case for case in CASES if not case.is_long]


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """Has begun with all cases that were collected: each test waits for its own."""
    here = [item for item in request.session.items if item.path == Path(__file__)]
    cases = [item.callspec.params["case"] for item in here if hasattr(item, "callspec")]
    with site(tmp_path_factory.mktemp("conformance")) as where, Runner(where, cases) as running:
        yield running


@pytest.mark.parametrize("case", SHORT, ids=[case.name for case in SHORT])
def test_both_do_the_same_or_differ_as_is_known(
    case: Case, runner: Runner, record_property: Callable[[str, object], None]
) -> None:
    found = line(case, *runner.outcomes(case))
    record_property("spark_conformance", tuple(found))
    assert not found.wrong, found.wrong
