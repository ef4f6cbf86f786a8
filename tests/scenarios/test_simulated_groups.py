"""Groups in a simulated cluster: their members come and go, and in the end each group has caught up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.testkit.simulation.driver import Report, simulate
from strandline.testkit.simulation.options import draw_options
from strandline.testkit.simulation.workloads import groups


def without_faults(seed: int, length_s: float) -> Report:
    options = draw_options(seed, {}, (), length_s=length_s)
    return simulate(replace(options, workloads=("groups",)))


def test_members_leave_vanish_and_are_late_and_all_is_well() -> None:
    reports = [without_faults(seed, 40.0) for seed in (6, 7)]
    assert [report.findings for report in reports] == [[], []]
    seen = reports[0].sometimes + reports[1].sometimes
    assert [doing for doing in (*groups.DOINGS, *groups.ENDS) if not seen[f"member: {doing}"]] == []


def test_a_group_that_is_not_stable_or_has_not_caught_up_in_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "CAUGHT_UP_WITHIN_S", 0.0)
    findings = without_faults(7, 3.0).findings
    assert findings
    assert all("group" in each and each.endswith("0 s after the last fault") for each in findings)
