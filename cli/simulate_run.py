"""One simulated run as `strandline simulate` asks for it, and what it tells of it.

The simulator is imported when the first run begins.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from strandline.testkit.simulation.driver import Report
    from strandline.testkit.simulation.minimise import Case
    from strandline.testkit.simulation.options import Options

DEFAULT_BROKERS = 3


class Plan(msgspec.Struct, frozen=True):
    """What all runs of one command line have in common. length_s: of the time with faults. kinds: of faults that there
    may be; None: those that a seed draws. script: in place of what a seed draws."""

    brokers: int
    length_s: float
    kinds: tuple[str, ...] | None = None
    script: str | None = None

    def case(self, seed: int) -> Case:
        """The faults of that seed."""
        from strandline.testkit.simulation.faults.table import draw_script
        from strandline.testkit.simulation.minimise import Case
        from strandline.testkit.simulation.script import read_script

        if self.script is not None:
            return Case(read_script(self.script), self.length_s)
        return Case(draw_script(self.options(seed)), self.length_s)

    def run(self, seed: int, on_time: Callable[[float], None] | None = None) -> Report:
        """on_time: is told the virtual time, often."""
        from strandline.testkit.simulation.driver import simulate

        return simulate(self.options(seed), self.case(seed).script, on_time)

    def replaced_by(self, case: Case) -> Plan:
        """The same with another script and length."""
        from strandline.testkit.simulation.script import text_of

        return Plan(self.brokers, case.length_s, script=text_of(case.script))

    def replay(self, seed: int) -> str:
        """The command line that does the same run again."""
        words = ["strandline", "simulate", "--seed", str(seed), "--until", f"{seconds_text(self.length_s)}s"]
        words += [] if self.brokers == DEFAULT_BROKERS else ["--brokers", str(self.brokers)]
        words += [] if self.kinds is None else ["--faults", ",".join(self.kinds)]
        command = shlex.join(words)
        return command if self.script is None else f"{command} --script - <<'END'\n{self.script}END"

    def options(self, seed: int) -> Options:
        """What it draws."""
        from strandline.testkit.simulation.driver import options_of

        return options_of(seed, brokers=self.brokers, length_s=self.length_s, kinds=self.kinds)


class Result(msgspec.Struct):
    """What is told of one run. findings: those of `Report`. faults: kind → how often it was struck. real_s: what the
    run took of the machine's time."""

    seed: int
    digest: str
    findings: list[str]
    options: list[str]
    script: list[str]
    faults: dict[str, int]
    sometimes: dict[str, int]
    virtual_s: float
    real_s: float
    replay: str


def seconds_text(seconds: float) -> str:
    """To the millisecond, as short as it can be: `120`, `7.031`."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


def result_of(report: Report, plan: Plan, real_s: float) -> Result:
    seed = report.options.seed
    faults = Counter(struck.fault.kind for struck in report.struck)
    sometimes = {name: count for name, count in sorted(report.sometimes.items()) if not name.startswith("fault: ")}
    return Result(
        seed,
        report.digest,
        report.findings,
        report.options.lines(),
        [str(fault) for fault in report.script],
        dict(faults),
        sometimes,
        report.virtual_s,
        real_s,
        plan.replay(seed),
    )
