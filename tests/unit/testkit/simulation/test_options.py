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
        drawn = {"weights": {}, "workloads": (), "faults_per_minute": 0.0, "lame_link": ""}
        assert replace(all_of_them, **drawn) == none
        less = draw_options(seed, draw_weights(seed, KINDS[1:]), WORKLOADS[1:])
        assert less.weights == {kind: all_of_them.weights[kind] for kind in KINDS[1:]}
        assert set(less.workloads) == set(all_of_them.workloads) - {WORKLOADS[0]}


def test_without_kinds_there_are_no_faults() -> None:
    assert not any(draw_script(draw_options(seed, {}, ())) for seed in range(20))


def test_what_was_drawn_for_each_clock_is_printed() -> None:
    options = replace(draw_options(1, {}, ()), clock_rates=(1.0, 1.001, 1.0), wall_skews_ms=(0, 50, -2_000))
    assert options.lines()[-1].endswith("clocks +0 ppm, +1000 ppm, +0 ppm; wall clocks +0 ms, +50 ms, -2000 ms")
