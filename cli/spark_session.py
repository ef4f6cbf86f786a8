"""A Spark session inside a command: on this machine, on loopback, quiet, ended with the command; and its progress.

pyspark is imported when the session is made: what is missing is told in one line.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.java import cache_folder, spark_environment, wrapped_java_home
from strandline.runtime.processes.interrupts import in_another_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.daemon.module": "strandline.cli.spark_daemon",
    "spark.python.unix.domain.socket.enabled": "true",  # a fifth faster than TCP, from Spark 4.1 on
}

_LOGGING = """\
# Spark's log inside a command: what goes wrong is told by the command, in one line.
rootLogger.level = off
rootLogger.appenderRef.stderr.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = off
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


@contextmanager
def pipeline(name: str, output: str) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """A session with a bar of its progress, and the function to call with what is done now."""
    with spark_progress(output) as on_step, spark_of_command(name) as spark:
        yield spark, on_step


def warn(text: str) -> None:
    """What a pipeline warns of, on stderr."""
    click.echo(f"strandline: warning: {text}", err=True)


@contextmanager
def spark_of_command(name: str, settings: dict[str, str] | None = None) -> Iterator[SparkSession]:
    """A session with a task slot per core; `settings` are Spark's own and come last. ClickException where pyspark or
    pyarrow is not installed, JavaNotFound."""
    try:
        import pyarrow  # noqa: F401
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise click.ClickException(f"{error}; in the checkout: pip install '.[spark]'") from None
    os.environ.update({**spark_environment(), "JAVA_HOME": str(wrapped_java_home()), "SPARK_LOCAL_IP": "127.0.0.1"})
    builder = SparkSession.builder.master("local[*]").appName(f"strandline {name}")
    for key, value in {**_SETTINGS, **_logging(), **(settings or {})}.items():
        builder = builder.config(key, value)
    # Here a Ctrl-C in the middle of it would leave Java behind, and later ones be handled by Spark, with tracebacks.
    in_another_thread(builder.getOrCreate)
    session = builder.getOrCreate()  # the same one, which this thread has to know, too
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield session
    except (PySparkException, Py4JJavaError) as error:
        raise click.ClickException(in_one_line(str(error))) from error
    finally:
        in_another_thread(session.stop)  # where Ctrl-C came in the middle of an answer of Java, this one cannot ask


def _logging() -> dict[str, str]:
    """Spark keeps quiet, in Java and in Python, unless STRANDLINE_DEBUG is set."""
    if os.environ.get("STRANDLINE_DEBUG"):
        return {}
    logging.getLogger().addHandler(logging.NullHandler())
    path = cache_folder() / "spark-log4j2.properties"
    if not (path.is_file() and path.read_text(encoding="utf-8") == _LOGGING):
        path.write_text(_LOGGING, encoding="utf-8")
    return {"spark.driver.extraJavaOptions": f'-Dlog4j2.configurationFile="file:{path}"'}


_OWN_ERROR = re.compile(r"^(?:pyspark\.\S*: )?strandline\.[\w.]+: (.+)$", re.MULTILINE)
"""The last line of the traceback of a worker, where our own error ended it."""
_JAVA_ERROR = re.compile(r"^(?:: |Caused by: )[\w.$]+: (.+)$", re.MULTILINE)
"""What Java raised, and then what was behind it."""
MOST_CHARACTERS = 500


def in_one_line(text: str) -> str:
    """What went wrong in a worker or in Spark, without the ways that it took through Python and Java."""
    if found := _OWN_ERROR.findall(text):
        return str(found[-1])
    raised = _JAVA_ERROR.findall(text)
    first, *behind = raised or [line.strip() for line in text.splitlines() if line.strip()][:1] or ["no message"]
    short = f"{first}: {behind[-1]}" if behind else first
    return f"Spark failed: {short[:MOST_CHARACTERS]} (STRANDLINE_DEBUG=1 shows where)"


@contextmanager
def spark_progress(output: str) -> Iterator[Callable[[str], None]]:
    """A bar on stderr, where that is a terminal and text is asked for. Gives the function to call with what is done
    now; the bar counts the tasks of the stages that Spark runs meanwhile."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class Tasks(ProgressColumn):
        """Asks Spark whenever the bar is drawn."""

        def render(self, task: Any) -> Text:
            done, total = _tasks()
            if total:
                task.completed, task.total = done, total
            return Text(f"{done}/{total} tasks" if total else "")

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        Tasks(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=output == "json" or not console.is_terminal,
    )
    with bar:
        shown = bar.add_task("starting Spark", total=None)
        yield lambda what: bar.update(shown, description=what, completed=0, total=None)


def _tasks() -> tuple[int, int]:
    """How many tasks of the stages under way have ended, and how many there are; nothing while no session runs."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if getattr(context, "_jsc", None) is None:  # while it starts it has no such attribute yet
        return 0, 0
    try:
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except Exception:  # it is being stopped just now: then there is nothing to count
        return 0, 0
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
