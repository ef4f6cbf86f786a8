"""Whose log a folder holds is read from `partition.metadata`, or nobody knows: then it is nobody's."""

from __future__ import annotations

import pytest

from strandline.storage.disk.checkpoints import PARTITION_METADATA, encode_topic_id
from strandline.storage.errors import UnreadableTopicId
from support.damage_site import OTHER, DamageSite
from support.storage_site import TOPIC_ID, TP, offsets

ID = encode_topic_id(TOPIC_ID).encode()
WHOLE = b"version: 0\ntopic_id: " + ID
READ = {
    "as we write it": WHOLE + b"\n",
    "as a Kafka writes it": WHOLE,
    "with zeros behind": WHOLE + bytes(100),
    "with other spaces": b"version:0\r\n\r\ntopic_id :  " + ID + b" \n",
}
TORN = {
    "zeros": bytes(len(WHOLE)),
    "half of the version": WHOLE[:5],
    "only the version": b"version: 0\n",
    "the version and zeros": b"version: 0\n" + bytes(30),
    "a part of the id": WHOLE[:-2],
    "a part of the id and zeros": WHOLE[:-2] + bytes(3),
}
UNREADABLE = {
    "another version": WHOLE.replace(b"0", b"1", 1) + b"\n",
    "other keys": WHOLE.replace(b"topic_id", b"topic_ids") + b"\n",
    "an id that is too short": WHOLE[:-1] + b"\n",
    "an id that is too long": WHOLE + b"A\n",
    "an id that is none": WHOLE[:-2] + b"?!\n",
    "an id of zeros, which is no topic's": WHOLE.replace(ID, b"A" * 22),
    "two ids": WHOLE + b"\n" + WHOLE,
    "an id that is torn, and something behind it": WHOLE[:-2] + bytes(5) + b"x",
    "no text": b"\xff\xfe\0\0",
    "too much": WHOLE + bytes(2**17),
}


def stopped(content: bytes | None, how: str) -> DamageSite:
    site = DamageSite()
    site.stop(site.build(flushed=True), how)
    path = f"{site.folder}/{PARTITION_METADATA}"
    if content is None:
        site.disk.unlink(path)
    else:
        site.disk.write(path, content)
    return site


@pytest.mark.parametrize("how", ["clean", "kill", "power"])
def test_an_id_that_can_be_read_counts_and_one_that_is_not_there_does_not(how: str) -> None:
    for content in READ.values():
        assert stopped(content, how).start().logs[TP].topic_id == TOPIC_ID
    for missing in (None, b""):
        assert stopped(missing, how).start().logs[TP].topic_id is None


@pytest.mark.parametrize("how", ["clean", "kill", "power"])
def test_a_log_whose_id_cannot_be_read_is_refused_as_it_stands(how: str) -> None:
    for content in (UNREADABLE if how == "power" else UNREADABLE | TORN).values():
        site = stopped(content, how)
        before = site.everything()
        for _ in range(2):
            manager = site.start()
            assert isinstance(manager.refused.get(TP), UnreadableTopicId) and OTHER in manager.logs
            with pytest.raises(UnreadableTopicId, match=r"cannot be read \(.*remove the file if"):
                manager.create(TP, bytes(range(1, 17)))
            assert site.everything() == before
            site.disk.kill()
        site.disk.unlink(f"{site.folder}/{PARTITION_METADATA}")
        assert offsets(site.start().logs[TP]) == list(range(90))


def test_an_id_that_a_power_failure_tore_is_none() -> None:
    for content in TORN.values():
        site = stopped(content, "power")
        manager = site.start()
        assert manager.logs[TP].topic_id is None and site.reports.of("topic-id-torn")
        manager.mark_loss_handled()
        manager = site.restart()
        manager.assign_topic_id(TP, TOPIC_ID)
        assert site.restart().logs[TP].topic_id == TOPIC_ID
