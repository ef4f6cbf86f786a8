"""`strandline doctor`: what brokers, Spark and the embedded cluster need of this machine, and is the cluster reached?

Each check is a function that returns what it found, or raises an exception whose text names the remedy; a new check
is one more line in the table. Exit code 1 if any check failed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click

from strandline.cli.options import bootstrap_option, output_option
from strandline.cli.session import Session, bootstrap_of, session_of

CLUSTER_TIMEOUT_MS = 5_000


class Finding(NamedTuple):
    check: str
    ok: bool
    text: str


class Unfit(Exception):
    """A check found something that will not work; the text names the remedy."""


def record_codec(session: Session, bootstrap: str) -> str:
    """The compiled record codec; without it everything is an order of magnitude slower."""
    from strandline.protocol.records import compiled_codec

    return compiled_codec()


def compression(session: Session, bootstrap: str) -> str:
    """All codecs of batches, forth and back."""
    from strandline.protocol.records import build_batch, decode_batch

    codecs = ("gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        value = b"x" * 1000
        if decode_batch(build_batch([(0, None, value)], codec))[0].value != value:
            raise Unfit(f"{codec} does not give back what it was given; reinstall cramjam")
    return ", ".join(codecs)


def java(session: Session, bootstrap: str) -> str:
    """A runtime for ZooKeeper (`strandline up`) and Spark."""
    from strandline.cli.java import find_java

    found = find_java()
    return f"{found.home}{'' if found.runs_spark else ' (Spark needs the wrapper that strandline makes)'}"


def spark(session: Session, bootstrap: str) -> str:
    """pyspark, pyarrow and the source that Spark finds by its name."""
    try:
        import pyarrow
        import pyspark

        import pyspark_strandline
    except ImportError as error:
        raise Unfit(f"{error}; in the checkout: pip install '.[spark]'") from None
    assert pyspark_strandline.DefaultSource.name() == "strandline"
    return f"pyspark {pyspark.__version__}, pyarrow {pyarrow.__version__}"


def worker_python(session: Session, bootstrap: str) -> str:
    """Spark starts its Python workers with PYSPARK_PYTHON, by default the first python3 of the path: it must be an
    interpreter that has strandline."""
    wanted = os.environ.get("PYSPARK_PYTHON") or "python3"
    found = shutil.which(wanted)
    remedy = f"export PYSPARK_PYTHON={sys.executable}"
    if found is None:
        raise Unfit(f"Spark's workers are started with {wanted}, which is not there; {remedy}")
    if Path(found).parent.resolve() != Path(sys.executable).parent.resolve():
        raise Unfit(f"Spark's workers are started with {found}, which may lack strandline; {remedy}")
    return found


def cluster(session: Session, bootstrap: str) -> str:
    """The cluster answers, and its brokers are reached at the addresses that they advertise."""
    with session.admin(bootstrap, default_api_timeout_ms=CLUSTER_TIMEOUT_MS) as admin:
        view = admin.describe_cluster()
        admin.list_topics()
    brokers = ", ".join(f"{each.broker_id} at {each.address}" for each in view.brokers.values())
    controller = view.controller_id if view.controller_id >= 0 else "none"
    return f"{bootstrap}: brokers {brokers}; controller {controller}"


CHECKS: dict[str, Callable[[Session, str], str]] = {
    "record codec": record_codec,
    "compression": compression,
    "java": java,
    "spark": spark,
    "spark's python": worker_python,
    "cluster": cluster,
}


def examine(session: Session, bootstrap: str) -> list[Finding]:
    """Run every check; what one raises is its finding."""
    findings = []
    for name, check in CHECKS.items():
        try:
            findings.append(Finding(name, True, check(session, bootstrap)))
        except Exception as error:
            findings.append(Finding(name, False, " ".join(str(error).split()) or type(error).__name__))
    return findings


@click.command(epilog="Example: strandline doctor -b localhost:9092")
@bootstrap_option
@output_option
@click.pass_context
def doctor(ctx: click.Context, bootstrap: str | None, output: str) -> int:
    """Check what this machine needs: codecs, Java, Spark, and whether the cluster is reached."""
    session = session_of(ctx)
    findings = examine(session, bootstrap_of(session, bootstrap))
    if output == "json":
        checks = [{"check": each.check, "ok": each.ok, "text": each.text} for each in findings]
        click.echo(json.dumps({"_command": "doctor", "_version": 1, "checks": checks}, indent=2))
    else:
        for each in findings:
            click.echo(f"{click.style('ok  ', fg='green') if each.ok else click.style('FAIL', fg='red')}", nl=False)
            click.echo(f"  {each.check}: {each.text}")
    return 0 if all(each.ok for each in findings) else 1
