"""Options that several commands share: what they refuse, before anybody is asked."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e300"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("verify-replicas", "--report-interval"),
        ("watch t", "--interval"),
        ("watch t", "--speed"),
        ("produce -t t", "--rate"),
        ("bench produce", "--rate"),
        ("bench produce", "--seconds"),
        ("bench produce", "--interval"),
        ("bench e2e", "--rate"),
        ("bench scenarios", "--scale"),
    ],
)
def test_a_number_that_nobody_can_wait_for_is_refused_in_one_line(
    shell: Any, command: str, option: str, number: str
) -> None:
    ran = shell(*command.split(), option, number)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert f"'{option}'" in ran.err and f"{float(number)} is not in the range" in ran.err
