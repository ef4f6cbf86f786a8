"""Every order of moves up to a length, on whole clusters: a search over states, in which each prefix is played once.

A node of the search is a running cluster at rest. Each of its continuations is played by a copy of the process
(`fork`): it inherits the cluster as it stands, and virtual time with it; nothing real is open. Where a trial stands as
another one stood before, with at least as many moves left, its continuations are known (`trial_states`).
"""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from support.trial import Broken, Move, Trial
from support.trial_states import fingerprint

FETCHES_ANSWERED_S = 1.0


@dataclass
class Findings:
    """moves, endings: how many were played. states: fingerprint → how many more moves were tried from there. stood:
    moves, and those with a `|` before the returns of an end → how it stood then, whatever the timing."""

    moves: int = 0
    endings: int = 0
    broken: list[str] = field(default_factory=list)
    states: dict[int, int] = field(default_factory=dict)
    stood: dict[str, str] = field(default_factory=dict)

    def add(self, other: Findings) -> None:
        self.moves += other.moves
        self.endings += other.endings
        self.broken += other.broken
        self.stood |= other.stood
        for key, left in other.states.items():
            self.states[key] = max(left, self.states.get(key, -1))


class TrialSearch:
    """`length`: of the sequences. `may_stay_offline`: after the return of everybody, by the strategy."""

    def __init__(self, trial: Trial, length: int, *, may_stay_offline: bool) -> None:
        self._trial = trial
        self._length = length
        self._may_stay_offline = may_stay_offline
        self._known: dict[int, int] = {}

    async def run(self) -> Findings:
        """From where the trial stands."""
        return await self._follow(self._length)

    async def _follow(self, left: int) -> Findings:
        found = Findings()
        for move in self._trial.legal_moves():
            part = await _in_a_copy(partial(self._step, move, left - 1))
            found.add(part)
            for key, tried in part.states.items():
                self._known[key] = max(tried, self._known.get(key, -1))
        return found

    async def _step(self, move: Move, left: int) -> Findings:
        found = Findings(moves=1)
        try:
            await self._trial.play(move)
        except Broken as broken:
            found.broken.append(str(broken))
            return found
        found.stood[str(self._trial)] = await standing(self._trial)
        key = hash(fingerprint(self._trial))
        known = self._known.get(key, -1)
        if known >= left:
            return found
        found.states[key] = self._known[key] = left
        if left < len(self._trial.down()) or not self._trial.down():  # else the moves that follow are these endings
            for order in itertools.permutations(self._trial.down()):
                found.add(await _in_a_copy(partial(self._end, order)))
        if left:
            found.add(await self._follow(left))
        return found

    async def _end(self, order: Sequence[int]) -> Findings:
        found = Findings(endings=1)
        before = str(self._trial)
        try:
            await self._trial.end(order, may_stay_offline=self._may_stay_offline)
        except Broken as broken:
            found.broken.append(f"at the end: {broken}")
            return found
        returned = ", ".join(str(Move("return", broker)) for broker in order)
        found.stood[f"{before} | {returned}"] = await standing(self._trial)
        return found


async def standing(trial: Trial) -> str:
    """How it stands once the fetches that wait for news were answered."""
    await trial.cluster.rest(FETCHES_ANSWERED_S)
    return fingerprint(trial, with_timing=False)


async def _in_a_copy(work: Callable[[], Awaitable[Findings]]) -> Findings:
    """Done by a child process, which ends with it; this process waits, and time stands still in it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            try:
                result: Findings | BaseException = await work()
            except BaseException as error:
                result = Findings(broken=[f"{type(error).__name__}: {error!r}"])
            with os.fdopen(writer, "wb") as file:
                pickle.dump(result, file)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        content = file.read()
    os.waitpid(child, 0)
    found: Findings = pickle.loads(content)
    return found
