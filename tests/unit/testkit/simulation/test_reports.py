"""What is known of a run afterwards, and what whoever watches it is told."""

from __future__ import annotations

import json

import pytest

from strandline.testkit.simulation.driver import Report, simulate
from strandline.testkit.simulation.faults.striking import Strikes
from strandline.testkit.simulation.findings import name_of
from strandline.testkit.simulation.options import draw_options
from strandline.testkit.simulation.script import Fault, Struck, read_script

SCRIPT = read_script("1 pause 1 for 0.5\n1.2 kill 1 for 1\n2 kill 2 for 1.5\n")


def run(on_time=None) -> Report:
    return simulate(draw_options(1, {}, (), length_s=4.0), SCRIPT, on_time)


def test_each_fault_is_told_with_its_times_but_for_those_that_were_passed_over() -> None:
    pause, kill = run().struck
    assert (pause.fault, kill.fault) == (SCRIPT[0], SCRIPT[2])
    assert pause.to_s - pause.from_s == pytest.approx(0.5)
    assert kill.from_s - pause.from_s == pytest.approx(1.0)
    assert kill.to_s - kill.from_s > 1.5, "until it serves again"


def test_who_watches_the_time_changes_nothing() -> None:
    times: list[float] = []
    watched, alone = run(times.append), run()
    assert watched.digest == alone.digest
    assert times == sorted(times) and times[-1] == watched.virtual_s == alone.virtual_s


def test_lines_of_brokers_are_json_without_the_time_of_the_machine() -> None:
    told = [json.loads(line.split(maxsplit=2)[2]) for line in run().lines]
    assert told and all("event" in line and "timestamp" not in line for line in told)


def test_what_ends_a_run_is_a_finding_and_nothing_goes_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(self: Strikes, fault: Fault) -> None:
        self.world.struck.append(Struck(fault, 1.0))
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(Strikes, "_strike", fail)
    report = run()
    assert [name_of(each) for each in report.findings] == ["ZeroDivisionError"]
    assert report.struck[0].to_s == float("inf")
    assert capsys.readouterr().err == ""
