"""What a finding is called."""

from __future__ import annotations

import pytest

from strandline.testkit.simulation.findings import ended_by, line_of, name_of


@pytest.mark.parametrize(
    ("finding", "name"),
    [
        ("lost-write: all-0: b'all/1/producer-all/7' was acknowledged at 6", "lost-write"),
        ("12.3456 isr-behind: all-0: broker 2 lacks 7", "isr-behind"),
        ("12.5 invariant 26: t-0: its state", "invariant 26"),
        ("KeyError: /x/y.py:12: 'a'\nTraceback: none", "KeyError"),
    ],
)
def test_its_name_is_the_same_in_another_run(finding: str, name: str) -> None:
    assert name_of(finding) == name


def test_what_ended_a_run_is_named_with_its_place_in_one_line_and_its_traceback_follows() -> None:
    try:
        raise ExceptionGroup("of a nursery", [ZeroDivisionError("a\nb")])
    except ExceptionGroup as error:
        error.exceptions[0].__traceback__ = error.__traceback__
        finding = ended_by(error)
    assert line_of(finding).startswith(f"ZeroDivisionError: {__file__}:") and line_of(finding).endswith(": a b")
    assert "ExceptionGroup: of a nursery" in finding
    assert name_of(finding) == "ZeroDivisionError"
