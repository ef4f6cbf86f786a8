"""Names of other clients are answered with what they are called here."""

from __future__ import annotations

import pydoc
import re
from typing import Any

import pytest

from strandline import Admin, Consumer, Producer, SendFuture
from strandline.aio import AioConsumer, AioProducer
from strandline.client import elsewhere

CLASSES: list[Any] = [Producer, Consumer, Admin, AioProducer, AioConsumer, SendFuture]


@pytest.mark.parametrize(
    ("made", "name", "remedy"),
    [
        (Producer, "produce", "send(topic, value, key=…)"),
        (Producer, "poll", "nobody has to call poll"),
        (Consumer, "consume", "poll(timeout_ms)"),
        (AioProducer, "send_and_wait", "await (await send(…))"),
        (AioConsumer, "getone", "`async for record in consumer`"),
        (SendFuture, "get", "result(timeout)"),
    ],
)
def test_the_error_says_what_has_the_part_of_that_name(made: Any, name: str, remedy: str) -> None:
    client = made.__new__(made)
    with pytest.raises(AttributeError, match=rf"^'{made.__name__}' object has no attribute '{name}': .*") as raised:
        getattr(client, name)
    assert remedy in str(raised.value)
    assert (raised.value.name, raised.value.obj) == (name, client)
    assert not hasattr(client, name)


def test_help_says_it_as_well() -> None:
    shown = pydoc.render_doc(Consumer, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    assert re.search(r"highwater\n +\|  +Not here: high_watermark\(partition\) tells it", shown)


def test_a_name_that_nobody_has_is_a_plain_error() -> None:
    with pytest.raises(AttributeError, match=r"^'Producer' object has no attribute 'nothing'$"):
        Producer.__new__(Producer).nothing  # type: ignore[attr-defined]  # noqa: B018


def test_what_is_said_names_what_there_is() -> None:
    tables = [elsewhere.OF_CLIENTS, elsewhere.OF_PRODUCERS, elsewhere.OF_CONSUMERS, elsewhere.OF_ADMINS]
    there = {name for each in CLASSES for name in dir(each) if hasattr(each, name)}
    for name, text in ((name, text) for table in [*tables, elsewhere.OF_FUTURES] for name, text in table.items()):
        assert any(not hasattr(each, name) for each in CLASSES)
        assert set(re.findall(r"\b([a-z_]+)\(", text)) <= there, text
