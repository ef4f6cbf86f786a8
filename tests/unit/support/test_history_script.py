"""The script of a run with real processes is drawn from its seed, has every kind of fault, and can be played again."""

from __future__ import annotations

from itertools import islice

from soak.history_script import FIRST_S, KINDS, RETURN_S, draw
from strandline.testkit.simulation.script import Fault, read_script, text_of

BROKERS = (1, 2, 3, 4)


def drawn(seed: int, decks: int = 1) -> list[Fault]:
    return list(islice(draw(seed, BROKERS, small_disk=4), decks * len(KINDS)))


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


def test_what_strikes_all_brokers_comes_alone() -> None:
    for seed in range(20):
        script = drawn(seed, decks=2)
        assert script[0].at_s == FIRST_S
        for number, fault in enumerate(script):
            if fault.target == "all":
                assert all(before.at_s + before.seconds + RETURN_S <= fault.at_s + 0.01 for before in script[:number])
                assert all(after.at_s >= fault.at_s + fault.seconds + RETURN_S for after in script[number + 1 :])
