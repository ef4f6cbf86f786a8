"""What a command says of an error that came out of Spark: one line, whatever came on the way."""

from __future__ import annotations

from unittest.mock import MagicMock

import click
import pytest
from py4j.protocol import Py4JJavaError

from strandline.cli import spark_session
from strandline.cli.spark_session import MOST_CHARACTERS, in_one_line

_FILE_CUT = """An error occurred while calling o81.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///logs/x.gz.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.EOFException: Unexpected end of input stream
\tat org.apache.hadoop.io.compress.DecompressorStream.decompress(DecompressorStream.java:165)
\t... 1 more
"""


def test_what_java_raised_is_told_with_what_was_behind_it() -> None:
    assert in_one_line(_FILE_CUT) == (
        "Spark failed: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///logs/x.gz.: "
        "Unexpected end of input stream (STRANDLINE_DEBUG=1 shows where)"
    )


def test_our_own_error_speaks_for_itself() -> None:
    own = "strandline.spark_connector.errors.RestoreRefused: [RESTORE_REFUSED] t-0 holds something else"
    text = f"An exception was thrown from the Python worker:\nTraceback (most recent call last):\n{own}\n\n\tat org."
    assert in_one_line(text) == "[RESTORE_REFUSED] t-0 holds something else"


def test_another_error_of_spark_is_told_by_its_first_line() -> None:
    assert in_one_line("\n[SOME_CONDITION] too bad\nand more") == (
        "Spark failed: [SOME_CONDITION] too bad (STRANDLINE_DEBUG=1 shows where)"
    )
    assert "no message" in in_one_line("")
    assert len(in_one_line("x" * 10_000)) < MOST_CHARACTERS + 100


def test_an_error_of_java_leaves_a_session_as_an_error_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark turns only some of them into exceptions of its own."""
    builder, stopped = MagicMock(), MagicMock()
    builder.master.return_value = builder.appName.return_value = builder.config.return_value = builder
    builder.getOrCreate.return_value.stop = stopped
    monkeypatch.setattr("pyspark.sql.SparkSession", MagicMock(builder=builder))

    class FileCut(Py4JJavaError):
        def __init__(self) -> None: ...

        def __str__(self) -> str:
            return _FILE_CUT

    with (
        pytest.raises(click.ClickException, match="Unexpected end of input stream"),
        spark_session.spark_of_command("history"),
    ):
        raise FileCut
    assert stopped.called
