"""Settings as type checkers, `help` and `inspect` see them: one table, shown everywhere."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from strandline import Admin, Consumer, Producer, TrioAdmin, TrioConsumer, TrioProducer
from strandline.aio import AioAdmin, AioConsumer, AioProducer
from strandline.client.options import AdminOptions, ClientOptions, ConsumerOptions, ProducerOptions
from strandline.client.settings import AdminSettings, ClientSettings, ConsumerSettings, ProducerSettings

TABLES = [
    (ClientSettings, ClientOptions),
    (ProducerSettings, ProducerOptions),
    (ConsumerSettings, ConsumerOptions),
    (AdminSettings, AdminOptions),
]
CLIENTS = [
    *((client, ProducerSettings) for client in (Producer, TrioProducer, AioProducer)),
    *((client, ConsumerSettings) for client in (Consumer, TrioConsumer, AioConsumer)),
    *((client, AdminSettings) for client in (Admin, TrioAdmin, AioAdmin)),
]

PROGRAM = """\
import asyncio

import trio

from strandline import Admin, BufferFull, Consumer, Producer, RecordMetadata, TopicPartition, TrioConsumer
from strandline.aio import AioAdmin, AioConsumer, AioProducer


def threads() -> int:
    with Producer("a:1", linger_ms=5, acks="all", compression_type="lz4") as producer:
        where: RecordMetadata = producer.send("t", b"v").result()
        Producer("a:1", linger=5)  # error: "linger"
        Producer("a:1", linger_ms="5")  # error: "linger_ms"
        Producer("a:1", acks="most")  # error: "acks"
        Producer("a:1", group_id="g")  # error: "group_id"
    Consumer("a:1", auto_offset_reset="early")  # error: "auto_offset_reset"
    Admin("a:1", request_timeout_ms=b"1")  # error: "request_timeout_ms"
    Admin("a:1").create_topic("t", partitions=3)  # error: "partitions"
    Admin(bootstrap_servers=["a:1", "b:2"]).list_topics(timeout_ms=3)
    consumer = Consumer("a:1", group_id="g", partition_assignment_strategy="sticky", max_poll_records=5)
    consumer.subscribe(["t"], on_revoked=lambda partitions: print(len(partitions)))
    consumer.subscribe(["t"], on_revoke=print)  # error: "on_revoke"
    found: str = consumer.position(TopicPartition("t", 0))  # error: "int"
    return consumer.end_offsets([TopicPartition("t", 0)])[TopicPartition("t", 0)] + where.offset


async def loops() -> None:
    async with AioProducer("a:1", buffer_full="drop") as producer:
        delivery = await producer.send("t", b"v")
        print((await delivery).offset)
    async with AioConsumer("a:1", check_crcs=False) as consumer:
        await consumer.commit(timeout_ms=5)
        offset: str = await consumer.position(TopicPartition("t", 0))  # error: "int"
        consumer.seek(TopicPartition("t", 0), "5")  # error: expected "int"
        for records in (await consumer.poll(timeout_ms=5)).values():
            print(records[0].offset)
    async with AioAdmin("a:1", client_id=7) as admin:  # error: "client_id"
        print((await admin.create_topic("t", num_partitions=3)).topic_id)


async def in_trio() -> None:
    async with TrioConsumer("a:1", max_poll_record=5) as consumer:  # error: "max_poll_record"
        await consumer.poll()


try:
    asyncio.run(loops())
    trio.run(in_trio)
except BufferFull:
    print(threads())
"""


def test_mypy_refuses_wrong_names_and_wrong_types_and_nothing_else(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    told = subprocess.run([*command, "--no-error-summary", str(program)], capture_output=True, text=True, timeout=250)
    found = {int(line): text for line, text in re.findall(r"^[^\n]*program\.py:(\d+): error: (.*)$", told.stdout, re.M)}
    expected = {
        number: line.partition("# error: ")[2]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "# error: " in line
    }
    assert sorted(found) == sorted(expected), told.stdout + told.stderr
    for number, word in expected.items():
        assert word in found[number]


@pytest.mark.parametrize(("table", "options"), TABLES, ids=lambda each: each.__name__)
def test_the_types_have_the_names_and_the_choices_of_the_table(table: Any, options: Any) -> None:
    types, own = get_type_hints(options), get_type_hints(table)
    settings = {each.name: each for each in dataclasses.fields(table) if each.name != "bootstrap_servers"}
    assert sorted(types) == sorted(settings)
    for name, setting in settings.items():
        if "choices" in setting.metadata:
            assert get_origin(types[name]) is Literal
            assert set(get_args(types[name])) == set(setting.metadata["choices"])
        elif name not in ("acks", "partition_assignment_strategy"):  # more is taken than what it becomes
            assert types[name] == own[name], name


@pytest.mark.parametrize(("client", "table"), CLIENTS, ids=lambda each: each.__name__)
def test_each_setting_is_shown_with_its_default_its_unit_and_what_it_does(client: Any, table: Any) -> None:
    shown = inspect.signature(client).parameters
    text = " ".join(client.__doc__.split())
    assert "settings" not in shown and shown["bootstrap_servers"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    for setting in dataclasses.fields(table):
        assert setting.name in shown
        if setting.name == "bootstrap_servers":
            continue
        assert shown[setting.name].default == ("all" if setting.name == "acks" else setting.default)
        assert f"{setting.name} = " in text and setting.metadata["doc"] in text
        assert f"{setting.metadata.get('unit', '')}: {setting.metadata['doc']}" in text


def test_a_default_that_is_shown_can_be_given() -> None:
    shown = inspect.signature(Producer).parameters.values()
    given: Any = {each.name: each.default for each in shown if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert TrioProducer(["a:1", "b:2"], **given).settings == TrioProducer("a:1,b:2").settings
