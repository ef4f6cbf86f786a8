"""How consumed records are printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.record_format import (
    Header,
    InvalidFormat,
    Rows,
    Writer,
    compile_format,
    console_format,
    json_format,
)


def rows(
    key: bytes | None = b"k",
    value: bytes | None = b"value",
    headers: Sequence[Header] = (("a", b"1"), ("b", b"2")),
    **fields: Any,
) -> Rows:
    """One record."""
    one = Rows("clicks", 3, 8, 0, [42], [1_700_000_000_123], [key], [value], [headers], first_count=7)
    return one._replace(**fields)


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        (r"%t %p %o\n", b"clicks 3 42\n"),
        ("%k=%v", b"k=value"),
        ("%s %S %K", b"value 5 1"),
        ("%R%s", b"\x00\x00\x00\x05value"),
        ("%T %d", b"1700000000123 1700000000123"),
        ("%d{strftime[%F %H:%M]}", b"2023-11-14 22:13"),
        ("%h", b"a=1,b=2"),
        ("%h{%k->%v;}%H", b"a->1;b->2;2"),
        ("%h{%K%k%V%v}", b"1a111b12"),
        (r"%%\x41\t\\", b"%A\t\\"),
        ("%v{hex} %k{base64} %v{json}", b'76616c7565 aw== "value"'),
        ("#%i", b"#7"),
        ("é%p{", None),
        ("%e", b"8"),
    ],
)
def test_each_verb_prints_its_field(template: str, printed: bytes | None) -> None:
    if printed is None:
        with pytest.raises(InvalidFormat):
            compile_format(template)
    else:
        assert compile_format(template)(rows()) == printed


def test_null_is_an_empty_text_and_a_length_of_minus_one() -> None:
    assert compile_format("[%k][%v]%K %V")(rows(key=None, value=None)) == b"[][]-1 -1"


@pytest.mark.parametrize("template", ["%q", "%", "\\", r"\q", "%v{rot13}", "%p{hex}", "%h{%t}", "%v{hex"])
def test_a_wrong_template_is_refused_before_anything_is_read(template: str) -> None:
    with pytest.raises(InvalidFormat):
        compile_format(template)


@given(st.text(alphabet="%vkthop{}\\nx41 [", max_size=12), st.binary(max_size=8))
def test_no_template_and_no_value_fail_otherwise(template: str, value: bytes) -> None:
    try:
        write = compile_format(template)
    except InvalidFormat:
        return
    write(rows(value=value))


def test_a_byte_that_is_no_text_is_shown_as_such_in_json() -> None:
    write = compile_format("%v{json}%k{json}")
    assert write(rows(key="é".encode(), value=b"a\xff")) == b'"a\\udcff"' + '"é"'.encode()


def test_console_lines_have_the_fields_in_the_order_of_kafkas_console_consumer() -> None:
    write = console_format(timestamp=True, partition=True, offset=True, headers=True, key=True)
    assert write(rows()) == b"CreateTime:1700000000123\tPartition:3\tOffset:42\ta:1,b:2\tk\tvalue\n"
    assert write(rows(key=None, value=None, headers=())).endswith(b"\tNO_HEADERS\tnull\tnull\n")
    assert console_format()(rows(value=b"\xff\r")) == b"\xff\r\n"


def test_json_says_when_bytes_are_not_text_and_keeps_repeated_headers() -> None:
    shown = json.loads(json_format()(rows(value=b"\xff", headers=(("h", b"1"), ("h", None)))))
    assert shown == {
        "topic": "clicks",
        "partition": 3,
        "offset": 42,
        "tstype": "create",
        "ts": 1_700_000_000_123,
        "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": None}],
        "key": "k",
        "payload": "/w==",
        "payload_encoding": "base64",
    }


TWO = Rows("t", 1, 0, 1, [5, 9], [-1, 1_000], [b"k", None], [None, b"v"], [[], [("h", None)]], first_count=3)


@pytest.mark.parametrize(
    ("write", "lines"),
    [
        (compile_format(r"%v\n"), [b"", b"v"]),
        (compile_format(r"%i %t/%p@%o %k=%v\n"), [b"3 t/1@5 k=", b"4 t/1@9 =v"]),
        (compile_format(r"%k %v %h %v{json}\n", b"NULL"), [b"k NULL  null", b'NULL v h=NULL "v"']),
        (compile_format(r"text\n"), [b"text", b"text"]),
        (console_format(key=True, separator=b"|"), [b"k|null", b"null|v"]),
        (console_format(timestamp=True, value=False), [b"NO_TIMESTAMP:-1", b"LogAppendTime:1000"]),
    ],
)
def test_many_records_are_printed_at_once_each_with_its_own(write: Writer, lines: list[bytes]) -> None:
    assert write(TWO) == b"".join([line + b"\n" for line in lines])
    assert write(TWO.cut(1, 2)).replace(b"3 t", b"4 t") == lines[1] + b"\n"
    assert write(TWO.cut(0, 0)) == b""
