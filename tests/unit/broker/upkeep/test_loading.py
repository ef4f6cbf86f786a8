"""The start of a broker's storage at the edge: in portions, with workers, told as it goes; the same logs as inline."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import trio

from strandline.broker.upkeep import loading
from strandline.broker.upkeep.loading import load_logs
from strandline.protocol.types import TopicPartition
from strandline.runtime.environment import ComputingFailed, Environment
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.environment import simulated_environment
from strandline.testkit.network import MemoryNetwork
from support.storage_site import TOPIC_ID, StorageSite, epochs, fill, raw


class Told:
    """A logger that keeps what it was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    warning = error = info


PARTITIONS = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(45)]


@pytest.fixture
def site() -> StorageSite:
    site = StorageSite(dirs=("/logs", "/more"))
    manager = site.start()
    manager.mark_loss_handled()
    for place, tp in enumerate(PARTITIONS):
        fill(manager.create(tp, TOPIC_ID), 5 + place % 40, epoch=1)
    return site


def environment_of(site: StorageSite, **delays: float) -> Environment:
    return simulated_environment(disk=site.disk, network=MemoryNetwork(), **delays)


def manager_of(site: StorageSite, log: Told) -> LogManager:
    return LogManager(
        site.disk,
        site.dirs,
        broker_id=site.broker_id,
        topic_config_for=lambda topic: site.config,
        wall_clock=site.clock,
        random=random.Random(1),
        log=log,
    )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("clean", [True, False])
async def test_logs_are_the_same_however_they_are_loaded(
    site: StorageSite, clean: bool, threads: int, autojump_clock: trio.testing.MockClock
) -> None:
    manager = site.start() if not site.disk.kill() else None
    assert manager is not None
    expected = {tp: (raw(log), epochs(log)) for tp, log in manager.logs.items()}
    manager.close(clean=clean)
    told = Told()
    manager = manager_of(site, told)
    progress = await load_logs(manager, environment_of(site), threads, told)
    assert {tp: (raw(log), epochs(log)) for tp, log in manager.logs.items()} == expected
    assert progress.logs_loaded == progress.logs_total == len(PARTITIONS) and progress.percent == 100
    assert (progress.bytes_checked == 0) == clean
    assert [event for event, _ in told.events] == ["loading logs", "logs loaded"]
    for log in manager.logs.values():
        fill(log, 1, epoch=2)


async def test_much_to_check_goes_to_workers_and_a_worker_that_dies_is_no_harm(
    site: StorageSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "INLINE_BYTES", 1000)
    site.disk.kill()
    environment = environment_of(site)

    class Dying:
        calls = 0

        async def run(self, job: Any, *args: object) -> Any:
            self.calls += 1
            if self.calls == 2:
                raise ComputingFailed("job", "worker process ended", "")
            return await environment.computing.run(job, *args)

    dying = Dying()
    told = Told()
    manager = manager_of(site, told)
    await load_logs(manager, replace(environment, computing=dying), 2, told)
    assert dying.calls >= 2
    assert {tp: log.log_end_offset for tp, log in manager.logs.items()} == {
        tp: 5 + place % 40 for place, tp in enumerate(PARTITIONS)
    }


async def test_a_long_start_tells_how_far_it_is(site: StorageSite, autojump_clock: trio.testing.MockClock) -> None:
    site.disk.kill()
    told = Told()
    manager = manager_of(site, told)
    await load_logs(manager, environment_of(site, blocking_delay_s=3.0), 1, told)
    lines = [fields for event, fields in told.events if event == "still loading logs"]
    assert lines and lines[-1]["of"] == len(PARTITIONS) and 0 < lines[-1]["loaded"] <= len(PARTITIONS)
    assert told.events[-1][0] == "logs loaded" and told.events[-1][1]["checked_bytes"] > 0


async def test_a_log_that_is_refused_keeps_no_other_from_being_loaded(site: StorageSite) -> None:
    site.disk.kill()
    tp = TopicPartition("a", 39)
    folder = next(f"{path}/{tp}" for path in site.dirs if site.disk.exists(f"{path}/{tp}"))
    bases = [name for name in site.disk.listdir(folder) if name.endswith(".log")]
    site.disk.unlink(f"{folder}/{bases[1]}")
    told = Told()
    manager = manager_of(site, told)
    await load_logs(manager, environment_of(site), 1, told)
    assert list(manager.refused) == [tp] and len(manager.logs) == len(PARTITIONS) - 1
    assert told.events[-1][1]["refused"] == 1
    assert site.disk.exists(f"{folder}/{bases[2]}")
