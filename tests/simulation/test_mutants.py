"""Each line that is broken on purpose is noticed by an oracle, in the run of a seed that is known for it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from scenarios.mutants.mutant import Mutant
from simulation.mutants import CAUGHT, LENGTH_S, MUTANTS, NOT_YET
from simulation.search_mutants import first_finding
from strandline.testkit.simulation.findings import name_of

MUTANTS_MIN = 25


def test_a_seed_is_known_for_each_mutant() -> None:
    assert {mutant.name for mutant in MUTANTS} - set(NOT_YET) == set(CAUGHT)
    assert len(CAUGHT) >= MUTANTS_MIN


def test_what_is_not_broken_has_no_finding() -> None:
    """With the same seeds."""
    seeds = ",".join(map(str, sorted({seed for seed, _ in CAUGHT.values()})))
    words = f"simulate --seeds {seeds} --until {LENGTH_S:g}s --processes 1 --output json".split()
    done = subprocess.run([sys.executable, "-m", "strandline.cli", *words], stdout=subprocess.PIPE, text=True)
    assert {run["seed"]: run["findings"] for run in json.loads(done.stdout)["runs"] if run["findings"]} == {}


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.name in CAUGHT], ids=lambda each: each.name)
def test_an_oracle_notices(mutant: Mutant) -> None:
    seed, name = CAUGHT[mutant.name]
    found = first_finding(mutant, seed, seed)
    assert found is not None, f"seed {seed} has no finding"
    assert name_of(found[1]) == name
