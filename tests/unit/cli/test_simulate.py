"""`strandline simulate`: tiny runs of one seed, and how a wrong command line is answered."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click
import pytest

from strandline.cli import simulate as command
from strandline.cli import simulate_processes
from strandline.cli.simulate_processes import compare, run_all
from strandline.cli.simulate_run import Plan, Result
from strandline.cli.simulate_text import fault_rows
from strandline.testkit.simulation import TRIED_TRIO, driver
from strandline.testkit.simulation.counters import ALWAYS_REACHED
from strandline.testkit.simulation.driver import Report, _Run
from strandline.testkit.simulation.faults.table import KINDS
from strandline.testkit.simulation.history import History
from strandline.testkit.simulation.options import Options
from strandline.testkit.simulation.script import Fault, Struck

ROOT = Path(__file__).resolve().parents[3]
DIGEST = re.compile(r"^digest ([0-9a-f]{16})$", re.MULTILINE)


def digest_of(out: str) -> str:
    return DIGEST.findall(out)[0]


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "faults.txt"
    path.write_text("# one broker, for a moment\n0.3 kill 2 for 0.5\n0.2 pause 1 for 0.1\n")
    return str(path)


def test_a_seed_tells_what_it_draws_what_came_of_it_and_how_long_it_took(shell: Any, script: str) -> None:
    ran = shell("simulate", "--seed", "1", "--until", "1s", "--brokers", "2", "--script", script)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith("strandline ") and f"trio {TRIED_TRIO}" in lines[0]
    assert lines[1] == "seed 1: 2 brokers, 1 s"
    assert [line.strip() for line in lines[lines.index("the faults:") + 1 :][:2]] == [
        "0.200 pause 1 for 0.1",
        "0.300 kill 2 for 0.5",
    ]
    assert DIGEST.search(ran.out)
    assert re.fullmatch(r"no finding; \d+\.\d simulated seconds in \d+\.\d s, ×\d+", lines[-1])


def test_kinds_of_faults_are_listed_with_what_they_do(shell: Any) -> None:
    listed = shell("simulate", "--list-faults")
    assert (listed.code, listed.err) == (0, "")
    assert len(listed.out.splitlines()) == 1 + len(KINDS)
    assert all(kind.about in listed.out for kind in KINDS.values())
    told = json.loads(shell("simulate", "--list-faults", "--output", "json").out)["faults"]
    assert told["kill"] == {
        "targets": "one broker, by its number or the controller or all",
        "about": KINDS["kill"].about,
        "ways": [],
    }


def test_the_trace_tells_faults_and_what_brokers_said(shell: Any, script: str) -> None:
    told = shell("simulate", "--seed", "1", "--until", "1s", "--script", script, "--trace").out
    assert re.search(r"^ +\d+\.\d{3} +STRUCK pause 1 for 0\.1$", told, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d{3} +undone kill 2 for 0\.5$", told, re.MULTILINE)
    assert "all-0: the controller wrote: leader" in told


def test_the_page_is_written_and_named(shell: Any, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    ran = shell("simulate", "--seed", "1", "--until", "1s", "--faults", "", "--page", str(page))
    assert ran.out.endswith(f"page: {page}\n")
    assert "Simulation of seed 1" in page.read_text() and "Who led" in page.read_text()


def test_json_has_the_run_and_what_it_takes_to_have_it_again(shell: Any, script: str) -> None:
    ran = shell("simulate", "--seed", "1", "--until", "1s", "--script", script, "--trace", "--output", "json")
    told = json.loads(ran.out)
    (run,) = told["runs"]
    assert (run["seed"], run["findings"], run["faults"]) == (1, [], {"pause": 1, "kill": 1})
    assert {each["kind"]: each["struck"] for each in told["faults"]} == dict.fromkeys(KINDS, 0) | run["faults"]
    assert any("STRUCK kill 2" in line for line in told["trace"])
    assert run["replay"].startswith("strandline simulate --seed 1 --until 1s --script - <<'END'\n")


def test_what_it_takes_to_have_a_run_again_has_the_same_digest(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in (Plan(2, 1.5, ("cut", "cut both")), Plan(3, 1.0, script="    0.200 zookeeper cut 2 for 0.3\n")):
        assert plan.case(7).script
        line, _, rest = plan.replay(7).partition(" <<'END'\n")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(rest.removesuffix("END").encode())))
        assert digest_of(shell(*shlex.split(line)[1:]).out) == plan.run(7).digest


# --- findings --------------------------------------------------------------------------------------------------


class Simulated:
    """In place of the simulator: a run is lost if brokers 1 and 2 are killed."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, options: Options, script: tuple[Fault, ...], on_time: object = None) -> Report:
        self.runs += 1
        killed = {fault.target for fault in script if fault.kind == "kill"}
        findings = ["lost-write: all-0: b'7'\nand more", "dirty-read: all-0: b'8'"] if killed >= {"1", "2"} else []
        struck = [Struck(fault, fault.at_s, fault.at_s + fault.seconds) for fault in script]
        return Report(options, script, findings, "d1", 9.0, [], Counter({"elections": 2}), struck, History())


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Simulated:
    simulated = Simulated()
    monkeypatch.setattr(driver, "simulate", simulated)
    return simulated


LONG = "1 kill 1 for 4\n2 pause 3 for 1\n3 kill 2 for 4\n3.5 cut 1>3 for 2\n4 stop 3 for 1\n"


@pytest.fixture
def long_script(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "long.txt").write_text(LONG)
    return "simulate", "--seed", "7", "--until", "100s", "--script", str(tmp_path / "long.txt")


def test_findings_have_a_line_each_and_exit_code_1(shell: Any, simulated: Simulated, long_script: Any) -> None:
    ran = shell(*long_script)
    assert ran.code == 1
    assert ran.out.endswith(
        "digest d1\nSOMETIMES TIMES RUNS\nelections 2     1\n"
        "finding: lost-write: all-0: b'7'\nfinding: dirty-read: all-0: b'8'\n"
        "2 findings; 9.0 simulated seconds in 0.1 s, ×90\n"
    )
    assert "and more" in shell(*long_script, "--trace").out


def test_a_script_is_cut_to_what_shows_the_first_finding_and_can_be_run_again(
    shell: Any, simulated: Simulated, long_script: Any
) -> None:
    ran = shell(*long_script, "--minimise")
    assert ran.code == 1
    assert "run 1: 5 faults show lost-write\nrun 2: 5 faults in 50 s show lost-write\n" in ran.out
    again = "strandline simulate --seed 7 --until 3.125s --script - <<'END'\n"
    assert f"{again}    1.000 kill 1 for 0.12\n    3.000 kill 2 for 0.12\nEND\n" in ran.out
    assert f"the shortest of {simulated.runs} runs, which is told below:" in ran.out
    told = json.loads(shell(*long_script, "--minimise", "--output", "json").out)
    assert told["runs"][0]["replay"].startswith(again)
    assert [line.split()[1] for line in told["runs"][0]["script"]] == ["kill", "kill"]


def test_without_a_finding_there_is_nothing_to_cut(shell: Any, simulated: Simulated) -> None:
    ran = shell("simulate", "--seed", "7", "--faults", "", "--minimise")
    assert (ran.code, simulated.runs) == (0, 1)
    assert "there is no finding, and so nothing to cut" in ran.out


def test_another_digest_of_the_same_seed_is_a_finding(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = iter(["one", "other", "one", "one"])
    monkeypatch.setattr(_Run, "digest", lambda self: next(digests))
    short = ("simulate", "--seed", "1", "--until", "1s", "--faults", "", "--twice")
    ran = shell(*short)
    assert (ran.code, "finding: not-the-same-again: seed 1: digest one, then other\n" in ran.out) == (1, True)
    assert shell(*short).code == 0


# --- several ---------------------------------------------------------------------------------------------------


def result(seed: int, findings: list[str], digest: str = "d", **faults: int) -> Result:
    return Result(
        seed, digest, findings, [], [], faults, {"elections": seed, "divergences": 0}, 10.0, 2.0, f"again {seed}"
    )


def test_several_seeds_come_in_their_order_each_twice_in_two_processes(shell: Any) -> None:
    plan, short = Plan(2, 1.0, ()), ("simulate", "--brokers", "2", "--until", "1s", "--faults", "")
    ran = shell(*short, "--seeds", "3,1-2", "--twice", "--processes", "2")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()[1:4]
    assert [line.split(",")[0] for line in lines] == [f"seed {seed}: {plan.run(seed).digest}" for seed in (1, 2, 3)]
    assert re.search(r"\n3 seeds, 0 with findings; \d+\.\d simulated seconds in ", ran.out)


@pytest.mark.parametrize("before", ["", "sys.stdin.readline(); "])
def test_a_process_that_ends_is_told_with_what_it_said(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"import sys; {before}sys.exit('no room')"
    monkeypatch.setattr(simulate_processes, "COMMAND", (sys.executable, "-c", program))
    with pytest.raises(click.ClickException, match=r"^a process of the simulation ended: no room$"):
        list(run_all(Plan(2, 1.0, ()), [1], 1, twice=False))


def test_the_batch_says_which_faults_were_struck_and_what_came_of_it(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [
        result(1, [], kill=2),
        result(2, ["a: b: c", "d: e: f", "a: b: g"], kill=1, cut=3),
        result(3, ["a: b: c"]),
    ]
    assert fault_rows(results, ["kill", "cut", "stop"]) == [
        ("kill", 3, 2, 1, 1),
        ("cut", 3, 1, 0, 1),
        ("stop", 0, 0, 0, 0),
    ]
    monkeypatch.setattr(simulate_processes, "run_all", lambda *_, **__: iter(results))
    ran = shell("simulate", "--seeds", "1-3", "--faults", "kill,cut")
    assert ran.code == 1
    assert ran.out.split("\n", 1)[1] == (
        "seed 1: d, 2 faults, 10.0 simulated seconds in 2.0 s, ×5: no finding\n"
        "seed 2: d, 4 faults, 10.0 simulated seconds in 2.0 s, ×5: 3 FINDINGS: a ×2, d ×1\n"
        "seed 3: d, 0 faults, 10.0 simulated seconds in 2.0 s, ×5: FINDING a: b: c\n"
        "FAULT STRUCK RUNS WITHOUT-FINDINGS WITH-FINDINGS\n"
        "kill  3      2    1                1\n"
        "cut   3      1    0                1\n"
        "SOMETIMES   TIMES RUNS\n"
        "divergences 0     0\n"
        "elections   6     3\n"
        "FINDING TIMES RUNS FIRST-SEED\n"
        "a       3     2    2\n"
        "d       1     1    2\n"
        "again: again 2\nagain: again 3\n"
        "3 seeds, 2 with findings; 30.0 simulated seconds in 0.1 s, ×300, ×5 in one process\n"
    )


def test_many_seeds_that_do_not_reach_what_is_rare_say_so(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate_processes, "run_all", lambda *_, **__: iter([result(n, []) for n in range(1, 31)]))
    missed = [name for name in ALWAYS_REACHED if name != "elections"]
    told = f"never reached: {', '.join(missed[:5])} and {len(missed) - 5} more\n"
    assert told in shell("simulate", "--seeds", "1-30").out
    assert json.loads(shell("simulate", "--seeds", "1-30", "--output", "json").out)["never_reached"] == missed


def test_the_same_digest_again_is_no_finding() -> None:
    first = result(1, [])
    compare(first, result(1, []))
    assert not first.findings
    compare(first, result(1, [], digest="e"))
    assert first.findings == ["not-the-same-again: seed 1: digest d, then e"]


# --- wrong command lines, another trio ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((), "give --seed, of one run, or --seeds, of several"),
        (("--seed", "1", "--seeds", "1-2"), "give --seed, of one run, or --seeds, of several"),
        (("--seed", "-1"), "'--seed'"),
        (("--seeds", "5-1"), "--seeds '5-1': 5-1 ends before it begins; give 1-5"),
        (("--seeds", "a"), "--seeds 'a' is not understood"),
        (("--seeds", "1-2", "--trace"), "--trace is for one run: give --seed in place of --seeds"),
        (("--seeds", "1-2", "--minimise"), "--minimise is for one run"),
        (("--seed", "1", "--until", "long"), "--until: 'long' is no duration; give for example 5s"),
        (("--seed", "1", "--until", "0s"), "--until 0s is not between 0.1s and 86400s"),
        (("--seed", "1", "--brokers", "1"), "'--brokers'"),
        (("--seed", "1", "--faults", "kill,flood"), "--faults: there is no fault 'flood'; those are kill, stop, "),
        (("--seed", "1", "--faults", "kill", "--script", "good"), "--faults is for what is drawn, --script in place"),
        (("--seed", "1", "--script", "missing"), "'missing'"),
        (("--seed", "1", "--script", "bad"), "--script bad: line 2 of the script is no fault: 'kill 2'"),
        (("--seed", "1", "--script", "far"), "--script far: '1.000 kill 9' of the script: there is no broker 9"),
        (("--seed", "1", "--script", "binary"), "--script binary: 'utf-8' codec can't decode"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    shell: Any, args: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {"good": b"1 kill 2\n", "bad": b"1 kill 2\nkill 2\n", "far": b"1 kill 9\n", "binary": b"\xff"}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    ran = shell("simulate", *args)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert why in ran.err


def test_a_trio_that_the_simulator_was_not_tried_with_is_told_in_a_line(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "version", lambda package: "0.99.0")
    ran = shell("simulate", "--seed", "1", "--until", "1s", "--faults", "")
    assert ran.code == 0
    assert ran.err == (
        f"strandline: warning: the simulator was tried with trio {TRIED_TRIO} only, and 0.99.0 is installed: "
        "a run may fail, or not be the same again\n"
    )
    assert f"\ntrio=={TRIED_TRIO}\n" in (ROOT / "constraints.txt").read_text()


def test_a_trio_in_which_the_simulator_finds_nothing_is_told_in_a_line() -> None:
    program = (
        "import sys, trio._core._run as run; del run.CancelReason; "
        "from strandline.cli.main import run; sys.exit(run(['simulate', '--seed', '1']))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "cannot import name 'CancelReason'" in ran.stderr and f"pip install trio=={TRIED_TRIO}" in ran.stderr


def test_nothing_of_the_simulator_is_imported_for_another_command_or_for_help() -> None:
    program = (
        "import sys; from strandline.cli.main import run; run(['simulate', '--help']); "
        "sys.exit(any(name.startswith(('strandline.testkit', 'trio')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
