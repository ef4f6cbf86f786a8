"""What the commands share that run a pipeline on a Spark of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from strandline.cli.spark_session import spark_of_command, spark_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def pipeline(name: str, output: str) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """The session, and the function to call with what is done now."""
    with spark_progress(output) as on_step, spark_of_command(name) as spark:
        yield spark, on_step


def warn(text: str) -> None:
    """What the user should know, on stderr."""
    click.echo(f"strandline: warning: {text}", err=True)
