"""The benchmark that the six scenarios repeat: its tables as they are printed, and what each row asks for. Data only.

Source: reference text 003, section 5 (lines 538-658): the message team of Vipshop, 2017, on Kafka 0.10.1.0; four
brokers and a client of 24 cores each (2.6 GHz), 4 Gbit/s between brokers and 1 Gbit/s to the client. Values have 1 kB.
The text does not say how many records a row had. Its producer is called synchronous, yet takes 28,511 records per
second at 1.7 ms each: so records were under way side by side, as they are here.
"""

from __future__ import annotations

from typing import NamedTuple

VALUE_BYTES = 1024
RECORDS = 1_000_000
"""Of a row, at scale 1."""
ROUND_TRIPS = 100_000
"""Of scenario 6, which has one record under way at a time."""
BROKERS = 4
MANY_RETRIES = 100_000_000


class Row(NamedTuple):
    """One row: what is set, and the records per second that the text prints; None where it prints none. killed: so many
    brokers are killed meanwhile; is_restarted: and started again. landed, errors: what the text found then."""

    acks: str
    replicas: int
    min_insync: int | None
    partitions: int
    tps: float | None
    retries: int | None = None
    killed: int = 0
    is_restarted: bool = False
    landed: str = ""
    errors: str = ""


class Scenario(NamedTuple):
    """lines: of the text, from its heading to its findings. columns: those of its table that are set."""

    number: int
    title: str
    lines: str
    columns: tuple[str, ...]
    finding: str
    rows: tuple[Row, ...]


ACKS, REPLICAS, MIN_INSYNC, RETRIES = "acks", "replicas", "min.insync.replicas", "retries"
PARTITIONS, FAULT = "partitions", "fault"

_FIRST = Scenario(
    1,
    "Replicas, min.insync.replicas and acks; 12 partitions",
    "561-584",
    (ACKS, REPLICAS, MIN_INSYNC, RETRIES),
    "acks=0 is faster than 1, and that than all. With all, more replicas are slower, with 0 and 1 they are not. "
    "min.insync.replicas has no effect.",
    (
        Row("-1", 1, 1, 12, 28511.3, 0),
        Row("-1", 2, 1, 12, 22359.5, 0),
        Row("-1", 2, 2, 12, 22927.4, 0),
        Row("-1", 4, 1, 12, 16193.9, 0),
        Row("-1", 4, 2, 12, 16599.9, 0),
        Row("-1", 4, 4, 12, 16680.3, 0),
        Row("0", 1, None, 12, 45353.8, 0),
        Row("0", 2, None, 12, 46426.5, 0),
        Row("0", 4, None, 12, 46764.2, 0),
        Row("1", 1, None, 12, 33950.3, 0),
        Row("1", 2, None, 12, 32192.2, 0),
        Row("1", 4, None, 12, 32275.9, 0),
    ),
)
_SECOND = Scenario(
    2,
    "Replicas and min.insync.replicas with acks=all; 1 partition",
    "587-601",
    (REPLICAS, MIN_INSYNC),
    "More replicas are slower, with one partition by little; min.insync.replicas has no effect.",
    (
        Row("-1", 2, 1, 1, 9738.8),
        Row("-1", 2, 2, 1, 9701.6),
        Row("-1", 3, 1, 1, 8999.7),
        Row("-1", 3, 2, 1, 9243.1),
        Row("-1", 4, 1, 1, 9005.8),
        Row("-1", 4, 2, 1, 8216.9),
        Row("-1", 4, 4, 1, 9092.4),
    ),
)
_THIRD = Scenario(
    3,
    "Replicas and acks, min.insync.replicas=1; 1 partition",
    "603-622",
    (REPLICAS, ACKS),
    "More replicas are slower; acks=0 is faster than 1, and that than all.",
    (
        Row("0", 1, 1, 1, 76696),
        Row("0", 2, 1, 1, 57503),
        Row("0", 4, 1, 1, 59367),
        Row("1", 1, 1, 1, 19489),
        Row("1", 2, 1, 1, 20404),
        Row("1", 4, 1, 1, 18365),
        Row("-1", 1, 1, 1, 18641),
        Row("-1", 2, 1, 1, 9739),
        Row("-1", 4, 1, 1, 9006),
    ),
)
_FOURTH = Scenario(
    4,
    "Partitions; 2 replicas, min.insync.replicas=2, acks=all",
    "623-628",
    (PARTITIONS,),
    "More partitions are faster, less than in proportion, and beyond some number a little slower. (The text has a "
    "picture and no numbers.)",
    tuple(Row("-1", 2, 2, partitions, None) for partitions in (1, 2, 4, 8, 12)),
)
_FIFTH = Scenario(
    5,
    "Brokers are killed meanwhile; 4 replicas, min.insync.replicas=2, acks=all, 12 partitions",
    "630-650",
    (ACKS, REPLICAS, MIN_INSYNC, RETRIES, FAULT),
    "With two of four brokers it goes on, more slowly; with one it stands still until a second is back. What was "
    "acknowledged is there; with retries some records are there twice.",
    (
        Row(
            *("-1", 4, 2, 12, 12840, 0),
            killed=2,
            landed="consistent: some landed, some failed",
            errors="NetworkException",
        ),
        Row(
            *("-1", 4, 2, 12, 13870, MANY_RETRIES),
            killed=2,
            landed="consistent: some twice",
            errors="NETWORK_EXCEPTION, retried",
        ),
        Row(
            *("-1", 4, 2, 12, None, MANY_RETRIES),
            killed=3,
            is_restarted=True,
            landed="consistent: some twice",
            errors="NETWORK_EXCEPTION, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, retried",
        ),
    ),
)
_SIXTH = Scenario(
    6,
    "Latency of the sender, and from end to end; 4 replicas, min.insync.replicas=2, acks=all, 12 partitions",
    "651-658",
    (),
    "A record is acknowledged after 1.7 ms and read after 1.6 ms, on average.",
    (Row("-1", 4, 2, 12, None),),
)

SCENARIOS = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH)

LATENCY_FIGURES = ("average", "minimum", "maximum", "99 %", "99.99 %")
SENDER_MS = (1.715, 1.0, 157.0, 3.0, 29.0)
READER_MS = (1.646, 1.0, 288.0, 4.0, 72.0)
"""Scenario 6 as it is printed, in the order of LATENCY_FIGURES."""
