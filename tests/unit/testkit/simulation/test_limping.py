"""A link that stays cut one way stops no partition that can do without one replica; one that it stops is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.testkit.simulation import driver
from strandline.testkit.simulation.driver import Report


def run(link: str, **config: str) -> Report:
    options = driver.options_of(4, length_s=10.0, kinds=())
    changed = {**options.config, **{key.replace("_", "."): value for key, value in config.items()}}
    return driver.simulate(replace(options, lame_link=link, workloads=(), config=changed))


@pytest.mark.parametrize("link", ["1>2", "2>1", "3>1"])
def test_everybody_is_served(link: str) -> None:
    report = run(link)
    assert report.findings == [] and report.sometimes["a link stayed cut one way"] == 1


def test_a_partition_that_waits_for_who_hears_nothing_is_told() -> None:
    """Nobody is taken out of the ISR for minutes."""
    found = run("1>2", replica_lag_time_max_ms="300000", replica_fetch_wait_max_ms="500").findings
    assert any(each.startswith("not-served: all-0: ") for each in found), found


def test_it_is_drawn_with_cuts_only() -> None:
    links = [driver.options_of(seed).lame_link for seed in range(40)]
    assert any(links) and not all(links)
    assert not any(driver.options_of(seed, kinds=("kill",)).lame_link for seed in range(40))
