"""Plays a transcript: the first stimulus names the stage, each later one is put to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

from support.transcripts import broker_faults, broker_requests, cleaning, parting, reading, replica_stage
from support.transcripts.broker_stage import BrokerStage
from support.transcripts.replica_stage import ReplicaStage
from support.transcripts.stage import Stage, Stimulus, Table
from support.transcripts.text import Step

Opening = Callable[[Sequence[str], Mapping[str, str]], AbstractAsyncContextManager[Stage]]
STAGES: dict[str, Opening] = {
    "cluster": partial(BrokerStage.open, broker_faults.VERBS | broker_requests.VERBS),
    "replicas": partial(ReplicaStage.open, replica_stage.VERBS),
    "logs": partial(Table.open, parting.VERBS),
    "reader": partial(Table.open, reading.VERBS),
    "cleaner": partial(Table.open, cleaning.VERBS),
}


async def played(steps: list[Step]) -> list[Step]:
    """The same stimuli with the effects that they have now."""
    opening, *others = steps
    first = Stimulus.parse(opening.stimulus)
    async with STAGES[first.verb](first.words, first.options) as stage:
        await stage.look()
        return [opening, *[await _played(each, stage) for each in others]]


async def _played(step: Step, stage: Stage) -> Step:
    return replace(step, effects=await stage.play(step.stimulus) if step.stimulus else [])
