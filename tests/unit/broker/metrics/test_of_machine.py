"""The machine and the process under the names that dashboards know."""

from __future__ import annotations

from prometheus_client.core import Metric

from strandline.broker.metrics.of_machine import MAX_DEVICES, OfProcess, of_machine
from strandline.runtime.machine import MachineFigures, OwnDiskBytes, Traffic


def samples(families: list[Metric]) -> dict[tuple[str, str], float]:
    return {(s.name, ",".join(s.labels.values())): s.value for family in families for s in family.samples}


def test_a_machine_is_told_by_the_names_of_node_exporter() -> None:
    figures = MachineFigures(
        2, {"iowait": 1.5}, {"eth0": Traffic(1, 2)}, {"vda": Traffic(3, 4, 5.5)}, {"MemTotal": 6, "Cached": 9}, 7, 8
    )
    assert samples(list(of_machine(lambda: figures))) == {
        ("strandline_node_cpu_seconds_total", "iowait"): 1.5,
        ("strandline_node_cpus", ""): 2,
        ("strandline_node_network_receive_bytes_total", "eth0"): 1,
        ("strandline_node_network_transmit_bytes_total", "eth0"): 2,
        ("strandline_node_disk_read_bytes_total", "vda"): 3,
        ("strandline_node_disk_written_bytes_total", "vda"): 4,
        ("strandline_node_disk_io_time_seconds_total", "vda"): 5.5,
        ("strandline_node_memory_memtotal_bytes", ""): 6,
        ("strandline_node_filefd_allocated", ""): 7,
        ("strandline_node_filefd_maximum", ""): 8,
    }


def test_what_is_not_known_is_left_out() -> None:
    assert samples(list(of_machine(MachineFigures))) == {}
    assert not any("disk" in name for name, _ in samples(list(OfProcess(lambda: None)())))


def test_a_machine_with_many_devices_does_not_make_many_series() -> None:
    figures = MachineFigures(network={f"veth{number}": Traffic(1, 1) for number in range(5000)})
    assert len(samples(list(of_machine(lambda: figures)))) == 2 * MAX_DEVICES


def test_a_process_tells_its_own_by_the_names_of_all_clients() -> None:
    found = samples(list(OfProcess(lambda: OwnDiskBytes(10, 20))()))
    assert found["strandline_process_disk_written_bytes_total", ""] == 20
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"} <= {
        name for name, _ in found
    }
