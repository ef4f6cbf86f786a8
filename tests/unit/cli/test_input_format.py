"""What `consume -f` and `-J` print, `produce -F` and `-J` read: the same records come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli import input_format
from strandline.cli.input_format import input_reader
from strandline.cli.json_input import JsonReader
from strandline.cli.record_format import Header, InvalidFormat, Rows, compile_format, console_format, json_format
from strandline.cli.record_input import InputReader, InputRecord, LineReader, LineRules

WHOLE = r"%T %K %k%V %v%H %h{%K %k%V %v}\n"
"""Lengths in front of everything: any bytes, and nulls, come back."""

DATA = st.one_of(st.none(), st.binary(max_size=6), st.sampled_from([b"\n", b"", b"-1", b"NULL"]))
HEADERS = st.lists(st.tuples(st.text(max_size=3), DATA), max_size=3)
RECORDS = st.lists(st.tuples(DATA, DATA, HEADERS, st.integers(-1, 2**45)), max_size=5)
PIECE_BYTES = st.integers(1, 9)
FullRecord = tuple[bytes | None, bytes | None, list[Header], int]


def printed(records: Sequence[FullRecord]) -> Rows:
    keys, values, headers, stamps = zip(*records, strict=True) if records else ((), (), (), ())
    return Rows("t", 2, 0, 0, range(len(records)), stamps, keys, values, headers)


def read(reader: InputReader, data: bytes, piece_bytes: int = 5) -> list[InputRecord]:
    """All records before the first error, of bytes that come in small pieces."""
    found = []
    for start in range(0, len(data), piece_bytes):
        if reader.error is None:
            found += reader.feed(data[start : start + piece_bytes])
    if reader.error is None:
        found += reader.end()
    assert all(len(each.lines) == len(each.records) for each in found)
    return [record for each in found for record in each.records]


@given(RECORDS, PIECE_BYTES)
def test_lengths_carry_any_record_through_a_pipe(records: list[FullRecord], piece_bytes: int) -> None:
    reader = input_reader(WHOLE)
    assert read(reader, compile_format(WHOLE)(printed(records)), piece_bytes) == records
    assert reader.error is None


@given(RECORDS, PIECE_BYTES)
def test_json_carries_any_record_through_a_pipe(records: list[FullRecord], piece_bytes: int) -> None:
    assert read(JsonReader(), json_format()(printed(records)), piece_bytes) == records


@pytest.mark.parametrize(
    "template",
    [
        r"%v\n",
        r"%k\t%v\n",
        r"%k||%s;;",
        r"%R%v%K %k",
        r"%S:%s%K:%k ",
        r"%v{hex} %k{base64}\n",
        r"%v{json}%k{json}",
        r"%t/%p@%o %e %i %k=%v\x00",
        r"100%% %k->%v\r\n",
    ],
)
@given(pairs=st.lists(st.tuples(st.sampled_from(["key", "1", "é"]), st.sampled_from(["value", "", "7"])), max_size=4))
def test_a_template_reads_what_it_has_written(template: str, pairs: list[tuple[str, str]]) -> None:
    records: list[FullRecord] = [(key.encode(), value.encode(), [], 7) for key, value in pairs]
    text = compile_format(template)(printed(records))
    for end in (text, text.removesuffix(b"\n")):
        reader = input_reader(template)
        found = [record[1] for record in read(reader, end)]
        assert (reader.error, found) == (None, [value for _, value, *_ in records]) or not end.endswith(text)


def test_times_and_headers_are_read_as_they_are_shown() -> None:
    template = r"%d{strftime[%F %T]}|%h|%h{%k: %v, }.%v" + r"\n"
    record: FullRecord = (None, b"v", [("a", b"1"), ("b", b"")], 1_700_000_000_000)
    [found] = read(input_reader(template), compile_format(template)(printed([record])))
    assert found == (None, b"v", record[2] * 2, record[3])


@pytest.mark.parametrize(
    "template", [r"%d{strftime[%F %T]} %v\n", r"%v %d{strftime[%F-%T]}-", r"%d{strftime[%c]} %v\n"]
)
def test_a_time_may_hold_what_stands_behind_it(template: str) -> None:
    records: list[FullRecord] = [(None, b"v", [], stamp) for stamp in (0, 1_700_000_000_000, 1_693_872_123_000)]
    reader = input_reader(template)
    found = read(reader, compile_format(template)(printed(records)))
    assert (reader.error, found) == (None, records)


def test_null_has_the_text_that_was_agreed_upon() -> None:
    template = r"%k %v\n"
    records: list[FullRecord] = [(None, b"v", [], 7), (b"k", None, [], 7), (b"NULLS", b"", [], 7)]
    text = compile_format(template, b"NULL")(printed(records))
    assert read(input_reader(template, null=b"NULL"), text) == [record[:2] for record in records]
    text = console_format(key=True)(printed(records))
    rules = LineRules(key_separator=b"\t", null=b"null")
    assert read(LineReader(rules), text) == [record[:2] for record in records]


@pytest.mark.parametrize(
    ("template", "text", "read_before", "told"),
    [
        (r"%T %v\n", b"1 a\nxx b\n", 1, "line 2: %T was to be a number: 'xx b'"),
        (r"%T %v\n", b"-5 a\n", 0, "line 1: timestamp -5 is before 1970: '-5 a'"),
        (r"%V %v\n", b"3 a\nb\n1 c\n9 d", 2, "line 4: the input ends in the middle of a record: '9 d'"),
        (r"%V %v\n", b"1 ab\n", 0, r"line 1: b'\n' was to stand where b'b' stands: '1 ab'"),
        (r"%v{hex}\n", b"61\nzz\n", 1, "line 2: %v cannot be decoded (non-hexadecimal number found"),
        (r"%v{json}\n", b'"a"\nb\n', 1, "line 2: %v was to be a text in JSON, or null: 'b'"),
        (
            r"%v{json}\n",
            b'"\\ud800"\n',
            0,
            r"line 1: %v has half a character, a surrogate that is no byte (\udc80 to \udcff)",
        ),
        (r"%k %T %v\n", b"k 1 " + b"v" * 99 + b"\nk v\n", 1, "line 2: %T was to be a number: 'k v'"),
        (r"%h %v\n", b"a=1 v\na v\n", 1, "line 2: %h was to be headers as k=v,k=v: 'a v'"),
        (r"%h %v\n", b"\xff=1 v\n", 0, r"line 1: the name of header '\xff' is not UTF-8: '\xff=1 v'"),
        (r"%p %v\n", b"0 v\n-1 w\n", 1, "line 2: partition -1 is negative: '-1 w'"),
        (r"%T %v\n", b"1 a\n9999999999999999999 b\n", 1, "line 2: timestamp 9999999999999999999 is above 92233720368"),
        (r"%d{strftime[%F %T]} %v\n", b"1969-12-31 23:59:59 v\n", 0, "line 1: timestamp -1000 is before 1970"),
        (
            r"%d{strftime[%F %T]} %v\n",
            b"today at 12 v\nw\n",
            0,
            "line 1: %d was to be a time as %Y-%m-%d",
        ),
    ],
)
def test_what_cannot_be_read_is_named_by_its_line(template: str, text: bytes, read_before: int, told: str) -> None:
    reader = input_reader(template)
    assert len(read(reader, text, 999)) == read_before
    assert reader.error is not None
    assert str(reader.error).startswith(told.removesuffix("'"))
    assert "\n" not in str(reader.error)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"text", "this is not JSON"),
        (b"[1]", "this is no JSON object"),
        (b'{"key":"k"}', "it has neither payload nor value"),
        (
            b'{"_command":"consume","_version":1,"error":{"name":"Interrupted","message":"interrupted","exit_code":130}}',
            "what wrote this ended with an error: interrupted",
        ),
        (b'{"value":"v","ts":"x"}', "ts is not a number"),
        (b'{"value":"?","value_encoding":"base64"}', "value cannot be decoded"),
        (b'{"value":"v","headers":[1]}', "headers are no list of {key, value}"),
        (b"[" * 100_000, "it is nested too deeply to be read"),
        (b'{"value":' + b"9" * 5_000 + b"}", "a number has more digits than can be read"),
        (b'{"value":NaN}', "this is not JSON, which has no NaN"),
        (b'{"value":"\\ud800"}', r"value has '\ud800', which is half a character"),
        (b'{"value":"v","headers":{"\\ud800":"x"}}', "the name of a header has"),
        (b'{"value":"v","ts":100000000000000000000}', "timestamp 100000000000000000000 is above 9223372036854775807"),
        (b'{"value":"v","ts":-2}', "timestamp -2 is before 1970"),
        (b'{"value":"v","value_encoding":"gzip"}', "value_encoding is not base64"),
    ],
)
def test_json_that_is_no_record_is_named_by_its_line(line: bytes, told: str) -> None:
    reader = JsonReader()
    assert read(reader, b'{"value":1}\n' + line + b"\n{}") == [(None, b"1", [], None)]
    assert str(reader.error).startswith(f"line 2: {told}")


@pytest.mark.parametrize(
    "written",
    [b"1.10", b"1e400", b"-0", b'{"a":1, "a" : 2}', b"[ ]", b'{"a":"\\ud800"}', b"1234567890123456789.12", b"true",
     '{"é":1}'.encode()],
)  # fmt: skip
def test_json_that_is_no_text_is_sent_as_it_is_written(written: bytes) -> None:
    line = b' { "value" :%b ,"key": %b, "headers":[ {"key":"h","value": %b},{"key":"t","value":"x"}]}' % (
        (written,) * 3
    )
    headers = [("h", written), ("t", b"x")]
    assert read(JsonReader(), line, 999) == [(written, written, headers, None)]
    for listed in (b'{"h": %b ,"t":"x"}', b'["h" ,%b,"t","x"]'):
        line = b'{"value":null,"headers":%b}' % (listed % written)
        assert read(JsonReader(), line, 999) == [(None, None, headers, None)]


def test_headers_that_are_one_object_may_have_any_names() -> None:
    line = b'{"payload":"v","headers":{"content":"x","content_encoding":"gzip"}}'
    assert read(JsonReader(), line) == [(None, b"v", [("content", b"x"), ("content_encoding", b"gzip")], None)]


def test_kcats_headers_are_read_too() -> None:
    line = b'{"payload":null,"headers":["a","1","b",null]}'
    assert read(JsonReader(), line) == [(None, None, [("a", b"1"), ("b", None)], None)]


@pytest.mark.parametrize(
    "template", ["%t", r"%K\n", "%v", r"%v%k\n", r"%v{rot}\n", "%h%v", r"%h{%t}%v\n", r"%p{x} %v\n"]
)
def test_a_template_that_leaves_open_where_something_ends_is_refused(template: str) -> None:
    with pytest.raises(InvalidFormat):
        input_reader(template)


@pytest.mark.parametrize(
    ("template", "verb"),
    [
        (r"%T%v\n", "T"),
        (r"%V%v", "V"),
        (r"%K%k%V %v", "K"),
        (r"%p%o %v\n", "p"),
        (r"%T%v{hex}\n", "T"),
        (r"%T%d{strftime[%F]} %v\n", "T"),
        (r"%T0 %v\n", "T"),
        (r"%T%h %v\n", "T"),
        (r"%K %V %k%v%T", "T"),
        (r"1. %v %T", "T"),
        (r"%H %h{%k=%v;%V}|%v\n", "V"),
        (r"%h{;%k=%v;%V}0%v\n", "V"),
    ],
)
def test_a_number_that_a_digit_may_follow_is_refused(template: str, verb: str) -> None:
    with pytest.raises(InvalidFormat, match=f"does not say where %{verb} ends: write something behind it that is no"):
        input_reader(template)


@pytest.mark.parametrize("template", [r"%T%v{json}\n", r"%p%R%v", r"%T-%v\n", r"#%T %v{json}%T", r"%h{;%k=%v;%V}|%v\n"])
def test_a_number_ends_before_what_cannot_begin_with_a_digit(template: str) -> None:
    records: list[FullRecord] = [(None, value, [("7", b"1")], 5) for value in (b"5", b"7")]
    reader = input_reader(template)
    found = read(reader, compile_format(template)(printed(records)))
    assert (reader.error, [record[1] for record in found]) == (None, [b"5", b"7"])


@given(st.lists(st.sampled_from([b"a", b";", b";;", b"\n"])).map(b"".join), PIECE_BYTES)
def test_lines_are_the_same_however_they_come(content: bytes, piece_bytes: int) -> None:
    for delimiter in (b"\n", b";;"):
        expected = content.split(delimiter)
        if not expected[-1]:
            expected.pop()
        found = read(LineReader(LineRules(delimiter)), content, piece_bytes)
        assert [value for _, value in found] == expected


def test_a_long_record_is_put_together_once_however_many_bytes_end_it() -> None:
    reader = LineReader(LineRules(b"\r\n;"))
    for _ in range(100):
        assert reader.feed(b"x" * 50) == []
        assert max(map(len, reader._begun)) <= 52, "whoever joins what has come so far copies it with each chunk"
    assert [len(value) for _, value in reader.feed(b"\r\n;")[0].records] == [5_000]


@given(
    values=st.lists(st.text(alphabet='\\"n\n', max_size=12), min_size=1, max_size=3),
    template=st.sampled_from([r"%v{json}\n", r"%v{json}", r"%p %K %k%v{json};%h{%k:%v{json}, }|"]),
    piece_bytes=PIECE_BYTES,
)
def test_texts_of_json_end_where_they_end_however_they_are_cut(
    values: list[str], template: str, piece_bytes: int
) -> None:
    records: list[FullRecord] = [
        (b"k", value.encode(), [("a", value.encode())] if "%h" in template else [], 7) for value in values
    ]
    reader, until = input_reader(template), 3 if "%h" in template else 2
    found = read(reader, compile_format(template)(printed(records)), piece_bytes)
    assert (reader.error, [record[1:3] for record in found]) == (None, [record[1:until] for record in records])


@given(
    values=st.lists(
        st.one_of(st.binary(max_size=6), st.sampled_from(["é\U0001f600".encode() + b"\xff", b"\xed\xb3\xbf"]))
    )
)
def test_texts_of_json_carry_bytes_that_are_no_text(values: list[bytes]) -> None:
    template = r"%v{json}\n"
    records: list[FullRecord] = [(None, value, [], 7) for value in values]
    reader = input_reader(template)
    found = read(reader, compile_format(template)(printed(records)))
    assert (reader.error, [record[1] for record in found]) == (None, values)


LONG = 50_000
PIECE = 50


@pytest.mark.parametrize(
    ("template", "record", "most"),
    [
        (r"%p %v\n", b"1 " + b"x" * LONG + b"\n", 10),
        (r"%p %v||\n", b"1 " + b"x|" * (LONG // 2) + b"|\n", 10),
        (r"%S %v\n", b"%d " % LONG + b"x" * LONG + b"\n", 10),
        (r"%v{json}\n", b'"' + b'\\"' * (LONG // 2) + b'"\n', 10),
        (r"%h{%k=%v;}|%v\n", b"a=b;" * (LONG // 4) + b"|v\n", LONG),
        (r"%H %h{%k=%v;}|%v\n", b"%d " % (LONG // 4) + b"a=b;" * (LONG // 4) + b"|v\n", LONG),
    ],
)
def test_a_long_record_is_not_looked_at_anew_with_each_piece(
    monkeypatch: pytest.MonkeyPatch, template: str, record: bytes, most: int
) -> None:
    """most: so many steps, of however many pieces."""
    taken = 0
    make = input_format._of_verb

    def counted(*args: Any) -> Any:
        step = make(*args)

        def counting(*given: Any) -> int:
            nonlocal taken
            taken += 1
            return step(*given)

        return counting

    monkeypatch.setattr(input_format, "_of_verb", counted)
    reader = input_reader(template)
    assert len(read(reader, record, PIECE)) == 1
    assert taken <= most
