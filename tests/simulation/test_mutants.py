"""Each line that is broken on purpose is noticed by an oracle, in the run of a seed that is known for it."""

from __future__ import annotations

import pytest

from scenarios.mutants.mutant import Mutant
from simulation.mutants import CAUGHT, MUTANTS, NOT_YET
from simulation.search_mutants import first_finding
from strandline.testkit.simulation.findings import name_of

MUTANTS_MIN = 25


def test_a_seed_is_known_for_each_mutant() -> None:
    assert {mutant.name for mutant in MUTANTS} - set(NOT_YET) == set(CAUGHT)
    assert len(CAUGHT) >= MUTANTS_MIN


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.name in CAUGHT], ids=lambda each: each.name)
def test_an_oracle_notices(mutant: Mutant) -> None:
    seed, name = CAUGHT[mutant.name]
    found = first_finding(mutant, seed, seed)
    assert found is not None, f"seed {seed} has no finding"
    assert name_of(found[1]) == name
