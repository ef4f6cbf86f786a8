"""Which scripts can be done to a cluster at all."""

from __future__ import annotations

import re

import pytest

from strandline.testkit.simulation.faults.table import KINDS, check_script, draw_script
from strandline.testkit.simulation.options import draw_options, draw_weights
from strandline.testkit.simulation.script import NotAFault, read_script


def test_whatever_a_seed_draws_can_be_done() -> None:
    for seed in range(100):
        check_script(draw_script(draw_options(seed, draw_weights(seed, KINDS), (), brokers=2 + seed % 4)), 2 + seed % 4)


@pytest.mark.parametrize(
    "line",
    ["1 kill all for 2", "1 pause controller for 8", "1 zookeeper down for 2", "1 drop 1>3", "1 kill at disk 2: roll"],
)
def test_what_can_be_done_is_let_through(line: str) -> None:
    check_script(read_script(line), 3)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("1 flood 2", "there is no fault 'flood'; those are kill, stop, power"),
        ("1 kill 4", "there is no broker 4, the last one is 3"),
        ("1 cut 1>7", "there is no broker 7, the last one is 3"),
        ("1 cut 1", "it is done to a link, such as 1>2"),
        ("1 cut 1>1", "it is done to a link, such as 1>2"),
        ("1 cut both 1>2", "it is done to a link, such as 1-2"),
        ("1 pause all", "it is done to one broker, by its number or the controller"),
        ("1 pause 1>2", "it is done to one broker, by its number or the controller"),
        ("1 isolate", "it is done to one broker, by its number"),
        ("1 kill", "it is done to one broker, by its number or the controller or all"),
        ("1 kill 2: roll", "'roll' says nothing to 'kill'"),
        ("1 wrong identity 2: rack", "'rack' says nothing to 'wrong identity', but broker.id, cluster.id"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_run(line: str, why: str) -> None:
    with pytest.raises(NotAFault, match=re.escape(f"of the script: {why}")):
        check_script(read_script(line), 3)
