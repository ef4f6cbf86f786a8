"""What stands on a disk is read as far as it is whole."""

from __future__ import annotations

from strandline.protocol.records import build_batch, scan
from strandline.protocol.types import TopicPartition
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.inspection import records_on

LOG = "/data/t-0/00000000000000000000.log"


def test_what_lies_before_the_first_damage_is_read() -> None:
    disk = MemoryDisk()
    disk.makedirs("/data/t-0")
    batches = [bytearray(build_batch([(0, None, b"%d" % number)])) for number in range(3)]
    for offset, batch in enumerate(batches):
        batch[:8] = offset.to_bytes(8, "big")
    assert [header.base_offset for _, header in scan(memoryview(b"".join(batches)))] == [0, 1, 2]
    disk.write(LOG, b"".join(batches))
    tp = TopicPartition("t", 0)
    assert records_on(disk, tp) == {0: b"0", 1: b"1", 2: b"2"}
    batches[1][-1] ^= 1  # its CRC does not match any more
    disk.write(LOG, b"".join(batches))
    assert records_on(disk, tp) == {0: b"0"}
    batches[0][16] = 9  # a version that there is none of: not even its header is read
    disk.write(LOG, b"".join(batches))
    assert records_on(disk, tp) == {}
