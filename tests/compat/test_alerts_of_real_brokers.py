"""Each shipped alert, with its real waits, fires by a fault that real brokers suffer, and clears after; others do not.

The brokers run in memory, on the virtual clock, so that half an hour takes a second; promtool judges what they told.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
import yaml
from trio.testing import MockClock

from compat.alert_faults import BEFORE, FAULTS, Row, Site
from compat.scraped_cluster import FIRING, Scraper, names_in, promtool_test, shipped_rules
from compat.test_alert_rules import promtool
from strandline.runtime import beats
from support.scenario import cluster_with_topic


@pytest.fixture(autouse=True)
def _replayable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which trio runs its tasks is drawn from a seeded stream (trio's own switch for its tests)."""
    monkeypatch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    trio._core._run._r.seed(0)


def test_each_alert_has_a_fault() -> None:
    assert sorted(row.alert for row in FAULTS) == sorted(rule["alert"] for rule in shipped_rules())


def slow_beats_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """To one a second."""
    wait, every_second = beats._Beats.wait, round(1 / beats.BEAT_S)
    monkeypatch.setattr(beats._Beats, "wait", lambda self, every: wait(self, max(every, every_second)))


class Suffered(NamedTuple):
    """What was scraped, and when the last scrapes were, in seconds: of a cluster that is well, with its fault, and at
    the end."""

    series: Mapping[str, list[str]]
    well_s: int
    ended_s: int
    last_s: int


async def suffered(row: Row) -> Suffered:
    scraper = Scraper(names_in(rule["expr"] for rule in shipped_rules()))
    properties = {"replica.fetch.wait.max.ms": "3000", **row.site.get("properties", {})}
    async with (
        cluster_with_topic(**{**row.site, "properties": properties}) as (cluster, *_),
        cluster.producer(linger_ms=0, acks=1) as producer,
    ):
        site = Site(cluster, scraper, producer)
        row.prepare(site)
        scraper.find(cluster)
        await scraper.scrape(BEFORE)
        well_s = scraper.last_s
        async with row.fault(site):
            await scraper.scrape(row.lasts)
            ended_s = scraper.last_s
        await scraper.scrape(row.clears)
    return Suffered(scraper.series, well_s, ended_s, scraper.last_s)


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.alert)
def test_it_fires_by_its_fault_alone_and_clears(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not row.every_beat:
        slow_beats_down(monkeypatch)
    series, well_s, ended_s, last_s = trio.run(suffered, row, clock=MockClock(autojump_threshold=0))
    alone, then = frozenset({row.alert}), "|".join(sorted(row.then))

    def fired_within(seconds: int) -> str:
        return f"group by (alertname) (max_over_time({FIRING}[{seconds}s]))"

    alerts = {
        fired_within(well_s + 1): (well_s, frozenset[str]()),
        f'group by (alertname) ({FIRING[:-1]}, alertname="{row.alert}"}})': (ended_s, alone),
        fired_within(ended_s): (ended_s, alone | row.also),
        fired_within(last_s): (last_s, alone | row.also | row.then),
        f'group by (alertname) ({FIRING[:-1]}, alertname!~"{then}"}})': (last_s, frozenset[str]()),
    }
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump(promtool_test(series, alerts)))
    promtool("test", "rules", path)
