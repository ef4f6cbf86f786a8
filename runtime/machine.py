"""What the machine says of itself in `/proc`: times of its processors, bytes of its network and disks, memory,
descriptors. Read when somebody asks; a figure that this system does not have is left out.

The format of each file is in proc(5), that of `diskstats` in the kernel's Documentation/admin-guide/iostats.rst.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The columns of `cpu` in /proc/stat. What guests use is part of `user` and `nice`."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SECTOR_BYTES = 512
"""The unit of diskstats, whatever the disk has."""
_PART_OF_A_DISK = re.compile(r"(z?ram|loop|fd|(h|s|v|xv)d[a-z]+|(nvme\d+n|mmcblk)\d+p)\d+")
"""What is no disk, or is counted with its disk already (the rule of Prometheus' node_exporter)."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes since the start of the machine, in both directions. busy_s: how long a disk was at work; 0 of a network."""

    in_bytes: int
    out_bytes: int
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MachineFigures:
    """cpu_s: mode → seconds, of all processors together, `cpus` of them. network: received and sent by each device;
    disks: read and written by each. memory_bytes: by the names of /proc/meminfo. None, 0, or empty: not known here."""

    cpus: int = 0
    cpu_s: dict[str, float] = field(default_factory=dict)
    network: dict[str, Traffic] = field(default_factory=dict)
    disks: dict[str, Traffic] = field(default_factory=dict)
    memory_bytes: dict[str, int] = field(default_factory=dict)
    open_descriptors: int | None = None
    max_descriptors: int | None = None


def read_machine(read: Callable[[str], str] | None = None) -> MachineFigures:
    """The figures of now. read: path → text, "" where there is no such file."""
    read = read or _read
    cpus, cpu_s = processor_times(read("/proc/stat"))
    descriptors = read("/proc/sys/fs/file-nr").split()
    return MachineFigures(
        cpus,
        cpu_s,
        network_traffic(read("/proc/net/dev")),
        disk_traffic(read("/proc/diskstats")),
        memory(read("/proc/meminfo")),
        int(descriptors[0]) - int(descriptors[1]) if len(descriptors) == 3 else None,
        int(descriptors[2]) if len(descriptors) == 3 else None,
    )


@dataclass(frozen=True, slots=True)
class OwnDiskBytes:
    """What this process had the disks read and write, since its start; what the page cache answered is not in it."""

    read: int
    written: int


def read_own_disk_bytes(read: Callable[[str], str] | None = None) -> OwnDiskBytes | None:
    """None where the system does not say."""
    found = dict(line.split(": ") for line in (read or _read)("/proc/self/io").splitlines() if ": " in line)
    if "read_bytes" not in found or "write_bytes" not in found:
        return None
    return OwnDiskBytes(int(found["read_bytes"]), int(found["write_bytes"]))


# --- The files ---------------------------------------------------------------------------------------------------


def processor_times(text: str) -> tuple[int, dict[str, float]]:
    """How many processors, and seconds by mode, from /proc/stat."""
    lines = [line.split() for line in text.splitlines() if line.startswith("cpu")]
    whole = next((line for line in lines if line[0] == "cpu"), [])
    cpu_s = {mode: int(ticks) / TICKS_PER_S for mode, ticks in zip(CPU_MODES, whole[1:], strict=False)}
    return sum(line[0] != "cpu" for line in lines), cpu_s


def network_traffic(text: str) -> dict[str, Traffic]:
    """From /proc/net/dev."""
    found = {}
    for line in text.splitlines():
        device, colon, rest = line.partition(":")
        columns = rest.split()
        if colon and len(columns) >= 16:
            found[device.strip()] = Traffic(int(columns[0]), int(columns[8]))
    return found


def disk_traffic(text: str) -> dict[str, Traffic]:
    """Of whole disks, from /proc/diskstats."""
    found = {}
    for columns in map(str.split, text.splitlines()):
        if len(columns) >= 14 and not _PART_OF_A_DISK.fullmatch(columns[2]):
            read_sectors, written_sectors, busy_ms = int(columns[5]), int(columns[9]), int(columns[12])
            found[columns[2]] = Traffic(read_sectors * SECTOR_BYTES, written_sectors * SECTOR_BYTES, busy_ms / 1000)
    return found


def memory(text: str) -> dict[str, int]:
    """From /proc/meminfo, in bytes."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        columns = rest.split()
        if colon and len(columns) == 2 and columns[1] == "kB":
            found[name] = int(columns[0]) * 1024
    return found


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
