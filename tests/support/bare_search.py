"""Every order of moves up to a length, on bare clusters: breadth first over states that differ, in several processes.

A state is expanded once, where it is reached first: with the most moves left. From each its moves are played, each from
a copy of it (`bare_snapshots`); where a trial stands afterwards as another one stood before (`trial_states`), its
continuations are known. To send a state to a worker is dear, so a state travels as its predecessor and the last move.
Sessions of the dead end at once, or whenever the search lets them: an `expire` counts as no move. At the end
everybody returns, in every order.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import multiprocessing
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar, cast

import trio
import trio.testing

from strandline.client import TrioProducer
from strandline.testkit.cluster import MemoryCluster
from support.bare_cluster import BareCluster, BareProducer
from support.bare_snapshots import freeze, thaw
from support.scenario import T0
from support.trial import EXPIRE, Broken, Move, Trial, parse_moves
from support.trial_search import standing
from support.trial_states import fingerprint

T = TypeVar("T")

REPLICAS = [3, 1, 2]


class Variant(NamedTuple):
    """is_patient: the session of who dies ends at once."""

    minimum: int
    strategy: str
    is_patient: bool

    @property
    def may_stay_offline(self) -> bool:
        return self.strategy == "none"


class Reached(NamedTuple):
    """A state: what `moves` lead to from where `before` was frozen."""

    before: bytes
    moves: tuple[Move, ...]


@dataclass
class Outcome:
    """after: the state, frozen. found: move → fingerprint of where it leads to."""

    after: bytes = b""
    moves: int = 0
    endings: int = 0
    found: dict[Move, bytes] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


@dataclass
class Found:
    """states: how many differ, by the number of moves to the first of them."""

    moves: int = 0
    endings: int = 0
    states: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.moves += outcome.moves
        self.endings += outcome.endings
        self.broken += outcome.broken

    def __str__(self) -> str:
        return f"{self.moves} moves and {self.endings} endings, {sum(self.states)} states that differ {self.states}"


def search(variant: Variant, length: int, *, processes: int = 1, progress: bool = False) -> Found:
    """All orders of `length` moves. Ends with the first length at which something is broken."""
    found = Found()
    seen: set[bytes] = set()
    level: list[Reached] = [Reached(_in_time(partial(_begin, variant)), ())]
    with multiprocessing.get_context("fork").Pool(processes, initializer=_spare) as pool:
        for depth in range(length + 1):
            count, waiting, level = 0, level, []
            while waiting:  # those that only a session's end leads to have as many moves left
                count += len(waiting)
                explore = partial(_explore, variant, length - depth)
                outcomes = pool.imap_unordered(explore, waiting, chunksize=4)
                waiting = []
                for outcome in outcomes:
                    found.add(outcome)
                    for move, key in outcome.found.items():
                        if key not in seen:
                            seen.add(key)
                            (waiting if move.kind == EXPIRE else level).append(Reached(outcome.after, (move,)))
            found.states.append(count)
            if progress:
                sys.stdout.write(f"{variant}, up to {depth}: {found}\n")
                sys.stdout.flush()
            if found.broken:
                break
    return found


def _in_time(work: Callable[[], Awaitable[T]]) -> T:
    """The result of `work` in an event loop of its own, on a virtual clock."""
    return trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


def _spare() -> None:
    """What was made before is not looked through again for garbage."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


async def started_trial(variant: Variant) -> Trial:
    """A trial on a new bare cluster, with two records acknowledged."""
    config = {
        "min.insync.replicas": str(variant.minimum),
        "unclean.recovery.strategy": variant.strategy,
        "replica.lag.time.max.ms": "1000",
    }
    cluster = BareCluster(len(REPLICAS), config)
    for broker in cluster.nodes:
        await cluster.start_broker(broker)
    await cluster.create_topic(T0.topic, REPLICAS)
    whole, producer = cast(MemoryCluster, cluster), cast(TrioProducer, BareProducer(cluster))  # to a trial they are
    trial = Trial(whole, producer, T0, is_patient=variant.is_patient)
    for _ in range(2):
        await trial.write()
    return trial


async def _begin(variant: Variant) -> bytes:
    return zlib.compress(freeze(await started_trial(variant)), 1)


def _explore(variant: Variant, left: int, reached: Reached) -> Outcome:
    return _in_time(partial(_explored, variant, left, reached))


async def _explored(variant: Variant, left: int, reached: Reached) -> Outcome:
    """Every move and every end from one state. left: how many moves there may be from here."""
    outcome = Outcome()
    trial = await thaw(zlib.decompress(reached.before))
    for move in reached.moves:
        await trial.play(move)  # once more: it was sound
    here = freeze(trial)
    outcome.after = zlib.compress(here, 1)
    down = trial.down()
    for order in itertools.permutations(down) if left < len(down) or not down else ():  # else they are moves, too
        outcome.endings += 1
        copy = await thaw(here)
        if broken := await _broken(copy.end(order, may_stay_offline=variant.may_stay_offline), copy):
            outcome.broken.append(f"at the end: {broken}")
    for move in [*_expirations(trial), *(trial.legal_moves() if left else ())]:
        copy = await thaw(here)
        outcome.moves += 1
        if broken := await _broken(copy.play(move), copy):
            outcome.broken.append(broken)
        else:
            outcome.found[move] = hashlib.blake2b(fingerprint(copy).encode(), digest_size=16).digest()
    return outcome


async def play_again(variant: Variant, order: str) -> str:
    """How it stands after an order of `Findings.stood`."""
    trial = await started_trial(variant)
    moves, _, returns = order.partition("|")
    for move in parse_moves(moves):
        await trial.play(move)
    if "|" in order:
        await trial.end([move.broker for move in parse_moves(returns)], may_stay_offline=variant.may_stay_offline)
    return await standing(trial)


def _expirations(trial: Trial) -> Iterator[Move]:
    registered = trial.cluster.registered()
    yield from (Move(EXPIRE, broker) for broker in trial.down() if broker in registered)


async def _broken(work: Awaitable[None], trial: Trial) -> str:
    """What is broken afterwards; empty: nothing."""
    try:
        await work
    except Broken as broken:
        return str(broken)
    except Exception as error:
        return f"{trial}: {type(error).__name__}: {error}"
    return ""
