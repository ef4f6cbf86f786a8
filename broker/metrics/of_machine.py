"""The machine's figures, by the names of Prometheus' node_exporter with `strandline_` in front; and the process's own,
by the names that all clients of Prometheus have.

Brokers that share a machine tell the same of it; who adds up brokers takes what lies on different machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric

from strandline.broker.metrics.families import counter, counters, gauge
from strandline.runtime.machine import MachineFigures, OwnDiskBytes, read_machine, read_own_disk_bytes

MAX_DEVICES = 100
"""Of each kind; a machine with containers has a network device for each."""
MEMORY = {"MemTotal": "memory_memtotal_bytes", "MemAvailable": "memory_memavailable_bytes"}


def of_machine(read: Callable[[], MachineFigures] = read_machine) -> Iterator[Metric]:
    """What the operating system counts for the whole machine."""
    figures = read()
    if figures.cpu_s:
        cpu_rows = [((mode,), seconds) for mode, seconds in figures.cpu_s.items()]
        text = "Seconds that all processors of the machine spent in each mode"
        yield from counters("strandline_node_cpu_seconds", text, ("mode",), cpu_rows)
        yield gauge("strandline_node_cpus", "Processors of the machine", figures.cpus)
    devices = list(islice(figures.network.items(), MAX_DEVICES))
    for name, text, place in (("receive", "received", 0), ("transmit", "sent", 1)):
        yield from counters(
            f"strandline_node_network_{name}_bytes",
            f"Bytes that each network device {text}",
            ("device",),
            [((device,), (traffic.in_bytes, traffic.out_bytes)[place]) for device, traffic in devices],
        )
    yield from _disks(figures)
    for key, name in MEMORY.items():
        if key in figures.memory_bytes:
            yield gauge(f"strandline_node_{name}", f"{key} of the machine, in bytes", figures.memory_bytes[key])
    if figures.open_descriptors is not None and figures.max_descriptors is not None:
        yield gauge("strandline_node_filefd_allocated", "Open files of the machine", figures.open_descriptors)
        yield gauge("strandline_node_filefd_maximum", "Files that the machine can open", figures.max_descriptors)


def _disks(figures: MachineFigures) -> Iterator[Metric]:
    disks = list(islice(figures.disks.items(), MAX_DEVICES))
    for name, text, place in (
        ("read_bytes", "Bytes read from each disk", 0),
        ("written_bytes", "Bytes written to each disk", 1),
        ("io_time_seconds", "Seconds that each disk was at work", 2),
    ):
        rows = [((disk,), (each.in_bytes, each.out_bytes, each.busy_s)[place]) for disk, each in disks]
        yield from counters(f"strandline_node_disk_{name}", text, ("device",), rows)


class OfProcess:
    """What the operating system counts for this broker."""

    def __init__(self, read_disk_bytes: Callable[[], OwnDiskBytes | None] = read_own_disk_bytes) -> None:
        self._collector = ProcessCollector(registry=None)
        self._read_disk_bytes = read_disk_bytes

    def __call__(self) -> Iterator[Metric]:
        yield from self._collector.collect()
        disk_bytes = self._read_disk_bytes()
        if disk_bytes is not None:
            for name, total in (("read", disk_bytes.read), ("write", disk_bytes.written)):
                text = f"Bytes that this process had its disks {name}"
                yield gauge(f"kafka_server_kafkaserver_linux_disk_{name}_bytes", text, total)
            text = "Bytes that the disks read for this process"
            yield counter("strandline_process_disk_read_bytes", text, disk_bytes.read)
            text = "Bytes that the disks wrote for this process"
            yield counter("strandline_process_disk_written_bytes", text, disk_bytes.written)
