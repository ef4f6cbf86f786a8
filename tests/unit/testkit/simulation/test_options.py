"""What a seed draws."""

from __future__ import annotations

from dataclasses import replace

from strandline.testkit.simulation.faults.table import draw_script
from strandline.testkit.simulation.options import draw_options, draw_weights

KINDS = ("kill", "cut", "drop")
WORKLOADS = ("groups", "topics")


def test_which_faults_and_workloads_there_may_be_changes_nothing_else_that_a_seed_draws() -> None:
    for seed in range(20):
        all_of_them = draw_options(seed, draw_weights(seed, KINDS), WORKLOADS)
        none = draw_options(seed, {}, ())
        drawn = {"weights": {}, "workloads": (), "faults_per_minute": 0.0}
        assert replace(all_of_them, **drawn) == none
        less = draw_options(seed, draw_weights(seed, KINDS[1:]), WORKLOADS[1:])
        assert less.weights == {kind: all_of_them.weights[kind] for kind in KINDS[1:]}
        assert set(less.workloads) == set(all_of_them.workloads) - {WORKLOADS[0]}


def test_without_kinds_there_are_no_faults() -> None:
    assert not any(draw_script(draw_options(seed, {}, ())) for seed in range(20))
