"""What Prometheus gets from a broker's `/metrics`: the bytes of its admin port, read by Prometheus' own parsers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from strandline.runtime.network import Address
from strandline.testkit.cluster import MemoryCluster
from support.admin_site import get, read_all, whole_answers

TEXT = "text/plain;version=0.0.4"
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
"""What Prometheus 2 asks for, in short."""
PARSERS = {TEXT: read_text, OPENMETRICS: read_openmetrics}

Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name of a sample, and its labels by name."""


@dataclass(frozen=True, order=True)
class Shape:
    """A family as far as its series have these labels, in the order of their names. `le` is no label but a part of a
    histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help_text: str = field(compare=False, default="")


class Scrape:
    """One answer. `samples` has each series; AssertionError for one that is there twice."""

    def __init__(self, text: str, accept: str = TEXT) -> None:
        self.text = text
        self.samples: dict[Series, float] = {}
        families = list(PARSERS[accept](text))
        self.shapes = frozenset(shapes(families))
        self.kinds = {family.name: family.type for family in families}
        assert len(self.kinds) == len(families), "a family is there twice"
        for family in families:
            for sample in family.samples:
                series = (sample.name, tuple(sorted(sample.labels.items())))
                assert series not in self.samples, f"{series} is there twice"
                self.samples[series] = sample.value

    def get(self, name: str, **labels: str) -> float | None:
        """The sample with exactly these labels."""
        return self.samples.get((name, tuple(sorted(labels.items()))))

    def value(self, name: str, **labels: str) -> float:
        """The same; AssertionError where there is none."""
        found = self.get(name, **labels)
        assert found is not None, f"no {name} {labels}; there are {self.rows(name)}"
        return found

    def rows(self, name: str) -> dict[tuple[str, ...], float]:
        """Values of the labels, in the order of the labels' names → figure."""
        return {tuple(value for _, value in labels): x for (each, labels), x in self.samples.items() if each == name}

    def of_partition(self, name: str, topic: str, partition: int = 0) -> float | None:
        return self.get(name, topic=topic, partition=str(partition))

    def totals(self) -> dict[Series, float]:
        """What only grows."""
        growing = {f"{name}_total" for name, kind in self.kinds.items() if kind == "counter"}
        growing |= {f"{n}{end}" for n, kind in self.kinds.items() if kind == "histogram" for end in ("_bucket", "_sum")}
        growing |= {name for name in self.kinds if name.endswith("ms_count")}
        return {series: value for series, value in self.samples.items() if series[0] in growing}


def shapes(families: Iterable[Metric]) -> Iterator[Shape]:
    """Of each family one for each set of labels."""
    for family in families:
        for labels in dict.fromkeys(tuple(sorted({*sample.labels} - {"le"})) for sample in family.samples):
            yield Shape(family.name, family.type, labels, family.documentation)


async def ask(cluster: MemoryCluster, broker_id: int, path: str = "/metrics", accept: str = TEXT) -> tuple[int, str]:
    """Status and text of a page of its admin port."""
    address = cluster.broker(broker_id).config_changes.dynamic.static.admin_listener
    assert address is not None
    return await ask_at(cluster, address, path, accept)


async def ask_at(cluster: MemoryCluster, address: Address, path: str, accept: str) -> tuple[int, str]:
    transport = await cluster.network.node("prometheus").connect(address)
    transport.send_nowait([get(path)[:-2] + f"Connection: close\r\nAccept: {accept}\r\n\r\n".encode()])
    [(status, _, body)] = whole_answers(await read_all(transport, until_closed=True))
    transport.close()
    return status, body.decode()


async def scrape(cluster: MemoryCluster, broker_id: int, accept: str = TEXT) -> Scrape:
    status, text = await ask(cluster, broker_id, accept=accept)
    assert status == 200
    return Scrape(text, accept)
