"""What /proc says becomes figures; what it does not say is left out."""

from __future__ import annotations

from strandline.runtime.machine import (
    TICKS_PER_S,
    MachineFigures,
    OwnDiskBytes,
    Traffic,
    read_machine,
    read_own_disk_bytes,
)

FILES = {
    "/proc/stat": "cpu  200 0 300 4000 50 0 7 8 0 0\ncpu0 100 0 150 2000 25 0 3 4 0 0\ncpu1 1 2 3 4 5 6 7 8\nintr 5\n",
    "/proc/net/dev": """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 11 1 0 0 0 0 0 0 12 1 0 0 0 0 0 0
  eth0:21 1 0 0 0 0 0 0 22 1 0 0 0 0 0 0
""",
    "/proc/diskstats": """   7       0 loop0 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9
 254       0 vda 31 16 100 25 10 42 200 42 0 1387 7536 46 13 43 46 35 29
 254       1 vda1 31 16 100 25 10 42 200 42 0 1387 7536 46 13 43 46 35 29
 259       0 nvme0n1 31 16 4 25 10 42 6 42 0 500 7536
 259       1 nvme0n1p1 31 16 4 25 10 42 6 42 0 500 7536
""",
    "/proc/meminfo": "MemTotal:       1000 kB\nMemAvailable:    400 kB\nHugePages_Total:       0\n",
    "/proc/sys/fs/file-nr": "559\t9\t2466\n",
    "/proc/self/io": "rchar: 6976\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n",
}


def read(path: str) -> str:
    return FILES[path]


def test_each_figure_is_taken_from_its_column() -> None:
    figures = read_machine(read)
    assert figures.cpus == 2
    assert figures.cpu_s["iowait"] == 50 / TICKS_PER_S and figures.cpu_s["idle"] == 4000 / TICKS_PER_S
    assert figures.network == {"lo": Traffic(11, 12), "eth0": Traffic(21, 22)}
    assert figures.memory_bytes == {"MemTotal": 1_024_000, "MemAvailable": 409_600}
    assert (figures.open_descriptors, figures.max_descriptors) == (550, 2466)
    assert read_own_disk_bytes(read) == OwnDiskBytes(4096, 8192)


def test_parts_of_a_disk_are_counted_with_their_disk_only() -> None:
    assert read_machine(read).disks == {
        "vda": Traffic(51_200, 102_400, 1.387),
        "nvme0n1": Traffic(2048, 3072, 0.5),
    }


def test_a_system_that_does_not_say_has_no_figures() -> None:
    assert read_machine(lambda _: "") == MachineFigures()
    assert read_own_disk_bytes(lambda _: "") is None


def test_this_machine_can_be_read() -> None:
    figures = read_machine()
    assert figures.cpus > 0 and figures.memory_bytes["MemTotal"] > 0 and "lo" in figures.network
