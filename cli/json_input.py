"""How `strandline produce -J` makes records of JSON objects, one a line, as `consume -J` prints them. Pure.

Rules: a text is sent as UTF-8. Any other value is sent as it is written, not as it is understood: a number keeps its
digits, an object its spaces and all its members.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from strandline.cli.record_format import Header
from strandline.cli.record_input import InputRecord, LineReader, LineRules, Refused, timestamp


class JsonReader(LineReader):
    """One JSON object a line: `payload` (or `value`), and if wanted `key`, `headers`, `ts` (or `timestamp`). What
    `…_encoding` calls base64 is decoded; topic, partition and offset are passed over."""

    def __init__(self) -> None:
        super().__init__(LineRules())

    def parse(self, lines: list[bytes]) -> list[InputRecord] | None:
        return None

    def parse_line(self, line: bytes) -> InputRecord:
        text, fields = _decoded(line)
        if not isinstance(fields, dict):
            raise Refused("this is no JSON object")
        if "_command" in fields and isinstance(error := fields.get("error"), dict):
            raise Refused(f"what wrote this ended with an error: {error.get('message')}")
        value_field = "payload" if "payload" in fields else "value"
        if value_field not in fields:
            raise Refused("it has neither payload nor value (null is a tombstone)")
        stamp = fields.get("ts", fields.get("timestamp"))
        if stamp is not None and (not isinstance(stamp, int) or isinstance(stamp, bool)):
            raise Refused("ts is not a number of ms since 1970")
        return (
            _bytes_of(fields, "key", text),
            _bytes_of(fields, value_field, text),
            _headers(fields.get("headers"), text),
            None if stamp is None else timestamp(stamp),
        )


def _no_json(constant: str) -> NoReturn:
    raise Refused(f"this is not JSON, which has no {constant}")


_DECODER = json.JSONDecoder(parse_constant=_no_json)


def _decoded(line: bytes) -> tuple[str, Any]:
    """The text, and what it means. Raises Refused."""
    try:
        text = line.decode("utf-8-sig")
        return text, _DECODER.decode(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise Refused("this is not JSON") from None
    except RecursionError:
        raise Refused("it is nested too deeply to be read") from None
    except Refused:
        raise
    except ValueError:
        raise Refused("a number has more digits than can be read") from None


def _bytes_of(fields: dict[str, Any], name: str, text: str) -> bytes | None:
    """A field of the object that is written so: its text as UTF-8, what base64 stands for, other JSON as it is written.
    Raises Refused."""
    value = fields.get(name)
    if value is None:
        return None
    encoding = fields.get(f"{name}_encoding")
    if not isinstance(value, str):
        return _member(text, name).encode()
    if encoding is None:
        return _utf8(value, name)
    if encoding != "base64":
        raise Refused(f"{name}_encoding is not base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(f"{name} cannot be decoded ({error})") from None


def _utf8(text: str, what: str) -> bytes:
    """Raises Refused: JSON can write half a character, which has no bytes."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"{what} has {error.object[error.start]!a}, which is half a character") from None


def _headers(listed: object, text: str) -> list[Header]:
    """As objects of key and value, as one object, or as kcat has them: names and values by turns. text: of the object
    that they are a field of."""
    if listed is None or listed == []:
        return []
    if isinstance(listed, dict):
        written = dict(_pairs(_member(text, "headers")))
        return [_header(name, value, written[name]) for name, value in listed.items()]
    if isinstance(listed, list) and all(isinstance(each, dict) and isinstance(each.get("key"), str) for each in listed):
        objects = _written(listed, [each.get("value") for each in listed], text)
        return [
            (_name(each["key"]), _bytes_of(each, "value", written))
            for each, written in zip(listed, objects, strict=True)
        ]
    if isinstance(listed, list) and len(listed) % 2 == 0 and all(isinstance(name, str) for name in listed[::2]):
        items = _written(listed, listed[1::2], text)
        return [_header(*each) for each in zip(listed[::2], listed[1::2], items[1::2], strict=True)]
    raise Refused("headers are no list of {key, value}")


def _header(name: str, value: object, written: str) -> Header:
    return _name(name), _bytes_of({"value": value}, "value", f'{{"value":{written}}}')


def _name(name: str) -> str:
    _utf8(name, "the name of a header")
    return name


# --- As it is written ---


def _written(listed: list[Any], values: list[Any], text: str) -> Sequence[str]:
    """How each item of the headers is written; nothing where all values are texts, and nobody asks."""
    if all(value is None or isinstance(value, str) for value in values):
        return [""] * len(listed)
    return list(_parts(_member(text, "headers")))


def _member(text: str, name: str) -> str:
    """How the value of a member is written that the object has; the last one counts."""
    return dict(_pairs(text))[name]


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names of an object's members, and how their values are written."""
    parts = _parts(text)
    for name, value in zip(parts, parts, strict=True):
        yield json.loads(name), value


def _parts(text: str) -> Iterator[str]:
    """How each item of an array is written, or each name and value of an object; known to be JSON."""
    place = len(text) - len(text.lstrip()) + 1
    while True:
        while text[place] in " \t\r\n,:":
            place += 1
        if text[place] in "]}":
            return
        _, end = _DECODER.raw_decode(text, place)
        yield text[place:end]
        place = end
