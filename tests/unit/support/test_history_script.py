"""The script of a run with real processes is drawn from its seed, has every kind of fault, and can be played again."""

from __future__ import annotations

import re
from itertools import islice, pairwise

from soak.history_script import FIRST_S, KINDS, RETURN_S, draw
from strandline.testkit.simulation.script import Fault, read_script, text_of

BROKERS = (1, 2, 3, 4)


def drawn(seed: int, decks: int = 1) -> list[Fault]:
    return list(islice(draw(seed, BROKERS, {"small disk": 4, "long session": 2}), decks * len(KINDS)))


def test_one_seed_gives_one_script_and_another_seed_another() -> None:
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_every_kind_comes_once_before_any_comes_again() -> None:
    script = drawn(1, decks=3)
    for deck in range(3):
        kinds = [fault.kind for fault in script[deck * len(KINDS) : (deck + 1) * len(KINDS)]]
        assert sorted(kinds) == sorted(kind.name for kind in KINDS)


def test_what_is_printed_is_read_as_what_was_drawn() -> None:
    for seed in range(20):
        assert list(read_script(text_of(drawn(seed, decks=2)))) == drawn(seed, decks=2)


def brokers_of(fault: Fault) -> list[int]:
    return list(BROKERS) if fault.target == "all" else [int(digits) for digits in re.findall(r"\d+", fault.target)]


def test_nobody_is_struck_who_is_struck_already_or_is_on_its_way_back() -> None:
    for seed in range(20):
        free_s = dict.fromkeys(BROKERS, FIRST_S)
        for fault in drawn(seed, decks=2):
            for broker in brokers_of(fault):
                assert fault.at_s >= free_s[broker] - 0.01
                free_s[broker] = fault.at_s + fault.seconds + RETURN_S


def test_several_are_struck_at_one_time_now_and_then() -> None:
    script = drawn(1)
    assert any(after.at_s < before.at_s + before.seconds for before, after in pairwise(script))


def test_what_only_one_broker_has_is_done_to_that_one() -> None:
    targets = {fault.kind: fault.target for fault in drawn(1)}
    assert (targets["disk full"], targets["zookeeper late"]) == ("4", "2")
