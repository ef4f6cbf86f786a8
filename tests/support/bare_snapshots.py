"""A trial on a `BareCluster` at rest as bytes, and the other way round: to go on from one state with many moves.

Nothing waits in a task then, so all of it can be pickled. What is the same in every state goes by name: configurations,
random streams (only names are drawn from them), what was cached of files. What tells of a broker is left out.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import random
import weakref
from typing import Any

import trio

from strandline.broker.metrics.sources import MetricSources
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.topic import TopicConfig
from strandline.storage.disk.storage_context import DEFAULT_OPEN_FILES, SecondChanceCache
from support.trial import Trial

_SHARED: dict[tuple[str, int, str], Any] = {}


def _shared(*name: Any) -> Any:
    return _SHARED[name]


def _broker(config: BrokerConfig) -> tuple[Any, tuple[Any, ...]]:
    return _named(
        config, "broker", config.broker_id, f"{config.unclean_recovery_strategy} {config.min_insync_replicas}"
    )


def _topic(config: TopicConfig) -> tuple[Any, tuple[Any, ...]]:
    return _named(config, "topic", config.min_insync_replicas, "")


def _named(value: object, *name: Any) -> tuple[Any, tuple[Any, ...]]:
    _SHARED.setdefault(name, value)
    return _shared, name


def _nobody() -> None:
    """What a weak reference to something that is gone yields."""


def _weak_reference() -> Any:
    return _nobody


_TABLE: dict[type, Any] = {
    **copyreg.dispatch_table,
    BrokerConfig: _broker,
    TopicConfig: _topic,
    random.Random: lambda _: (random.Random, (1,)),
    weakref.ReferenceType: lambda _: (_weak_reference, ()),
    weakref.WeakSet: lambda _: (weakref.WeakSet, ()),
    MetricSources: lambda _: (_nobody, ()),
    SecondChanceCache: lambda _: (SecondChanceCache, (DEFAULT_OPEN_FILES,)),
}


def freeze(trial: Trial) -> bytes:
    """Only the process that calls this and its children can `thaw` it: configurations stay where they are."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    pickler.dispatch_table = _TABLE
    pickler.dump((trio.current_time(), trial))
    return file.getvalue()


async def thaw(content: bytes) -> Trial:
    """What was frozen, once trio's clock has come to that time."""
    frozen_at, trial = pickle.loads(content)
    await trio.sleep_until(frozen_at)
    assert isinstance(trial, Trial)
    return trial
