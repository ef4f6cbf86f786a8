"""`strandline doctor`: what brokers, Spark and the embedded cluster need of this machine, and is the cluster reached?
What is wrong in a cluster, with --cluster, is `doctor_cluster`.

Each check is a function that returns what it found, or raises an exception whose text names the remedy; a new check
is one more line in the table. Exit code 1 if any check failed.
"""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click

from strandline.cli.admin_ports import admin_ports_option
from strandline.cli.options import bootstrap_option, output_option, show_json
from strandline.cli.session import ClusterIsDown, Session, bootstrap_of, cluster_folder, session_of

CLUSTER_TIMEOUT_MS = 5_000
RELEASED_MS = 1_767_225_600_000
"""2026-01-01: no correct clock shows an earlier time to this version."""
CLOCK_SAMPLE_S = 0.2
CLOCK_ERROR_MS = 1_000


class Finding(NamedTuple):
    check: str
    ok: bool
    text: str


class Target(NamedTuple):
    """What the command line names."""

    bootstrap: str
    zookeeper: str | None
    """As `zookeeper.connect`; None where nobody said and no embedded cluster is up."""
    is_down: str = ""
    """Why there is nobody to ask for: the cluster that was named is down."""


class Unfit(Exception):
    """A check found something that will not work; the text names the remedy."""


def interpreter(session: Session, target: Target) -> str:
    """Whether this Python was compiled with a profile of itself, as those of distributions, images and conda are: one
    without it does the same, in more time."""
    variables = sysconfig.get_config_vars()
    return f"{platform.python_implementation()} {platform.python_version()}{_lacks_of_its_build(variables)}"


def _lacks_of_its_build(variables: Mapping[str, Any]) -> str:
    """variables: `sysconfig`'s. Debian's build asks for no optimisation by name and strikes out the flags that it used
    for it; whoever configures one without it keeps them for a later `make`."""
    is_told = "CONFIG_ARGS" in variables and "PGO_PROF_USE_FLAG" in variables
    if not is_told or "--enable-optimizations" in variables["CONFIG_ARGS"] or not variables["PGO_PROF_USE_FLAG"]:
        return ""
    return (
        ", built without a profile (PGO): a broker takes about 12 % more CPU; use your distribution's python3, or "
        "build with ./configure --enable-optimizations (pyenv: PYTHON_CONFIGURE_OPTS=--enable-optimizations)"
    )


def record_codec(session: Session, target: Target) -> str:
    """The compiled record codec; without it everything is an order of magnitude slower."""
    from strandline.protocol.records import compiled_codec

    return compiled_codec()


def compression(session: Session, target: Target) -> str:
    """All codecs of batches, forth and back."""
    from strandline.protocol.records import build_batch, decode_batch

    codecs = ("gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        value = b"x" * 1000
        if decode_batch(build_batch([(0, None, value)], codec))[0].value != value:
            raise Unfit(f"{codec} does not give back what it was given; reinstall cramjam")
    return ", ".join(codecs)


def java(session: Session, target: Target) -> str:
    """A runtime for ZooKeeper (`strandline up`) and Spark."""
    from strandline.cli.java import find_java

    found = find_java()
    return f"{found.home}{'' if found.runs_spark else ' (Spark needs the wrapper that strandline makes)'}"


def spark(session: Session, target: Target) -> str:
    """pyspark, pyarrow and the source that Spark finds by its name."""
    try:
        import pyarrow
        import pyspark

        import pyspark_strandline
    except ImportError as error:
        raise Unfit(f"{error}; in the checkout: pip install '.[spark]'") from None
    assert pyspark_strandline.DefaultSource.name() == "strandline"
    return f"pyspark {pyspark.__version__}, pyarrow {pyarrow.__version__}"


def source_python(session: Session, target: Target) -> str:
    """Spark looks for the source with PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else the first python3 of the path:
    that must be an interpreter that has strandline."""
    import strandline_driver_python as driver_python

    named = next((name for name in (driver_python.DRIVER, driver_python.WORKERS) if os.environ.get(name)), None)
    wanted = os.environ[named] if named else "python3"
    found = shutil.which(wanted)
    remedy = f"export {named or driver_python.WORKERS}={sys.executable}"
    if found is not None and driver_python.is_same(found, sys.executable):
        return found
    if named is None and driver_python.is_at_work():
        return f"{sys.executable}, for programs that it runs; for spark-submit and the pyspark shell: {remedy}"
    if found is None:
        raise Unfit(f"Spark's workers are started with {wanted}, which is not there; {remedy}")
    raise Unfit(f"Spark's workers are started with {found}, which may lack strandline; {remedy}")


def cluster(session: Session, target: Target) -> str:
    """The cluster answers, and its brokers are reached at the addresses that they advertise."""
    if target.is_down:
        raise Unfit(target.is_down)
    from strandline.client.errors import NoBrokerReachable

    try:
        with session.admin(target.bootstrap, default_api_timeout_ms=CLUSTER_TIMEOUT_MS) as admin:
            view = admin.describe_cluster()
            admin.list_topics()
    except NoBrokerReachable as error:
        raise Unfit("; ".join(filter(None, (str(error), session.line.unless_reached)))) from error
    brokers = ", ".join(f"{each.broker_id} at {each.address}" for each in view.brokers.values())
    controller = view.controller_id if view.controller_id >= 0 else "none"
    return f"{target.bootstrap}: brokers {brokers}; controller {controller}"


def zookeeper(session: Session, target: Target) -> str:
    """ZooKeeper answers, and which brokers are registered there."""
    if target.zookeeper is None:
        return "not asked: give --zookeeper HOST:PORT, the brokers' zookeeper.connect"
    found = session.registered_brokers(target.zookeeper, CLUSTER_TIMEOUT_MS)
    brokers = ", ".join(str(broker_id) for broker_id in sorted(found)) or "none"
    return f"{target.zookeeper}: registered brokers {brokers}"


def clock(session: Session, target: Target) -> str:
    """Record timestamps and retention go by the wall clock: it must not lie before this version was made, nor before a
    broker's registration, nor stand still or run away."""
    remedy = "set the machine's clock, or let NTP do it (timedatectl set-ntp true)"
    now_ms, monotonic_s = session.now_ms(), session.monotonic()
    if now_ms < RELEASED_MS:
        raise Unfit(f"it is {_date(now_ms)} by this machine's clock; {remedy}")
    session.sleep(CLOCK_SAMPLE_S)
    passed_ms = session.now_ms() - now_ms
    expected_ms = (session.monotonic() - monotonic_s) * 1000
    if abs(passed_ms - expected_ms) > CLOCK_ERROR_MS:
        raise Unfit(f"the clock moved by {passed_ms} ms within {expected_ms:.0f} ms; {remedy}")
    if target.zookeeper is not None:
        try:
            registered = session.registered_brokers(target.zookeeper, CLUSTER_TIMEOUT_MS)
        except Exception:  # the check before tells of it
            registered = {}
        for broker_id, registered_ms in sorted(registered.items()):
            if registered_ms > now_ms + CLOCK_ERROR_MS:
                ahead_s = (registered_ms - now_ms) // 1000
                raise Unfit(
                    f"broker {broker_id} registered {ahead_s} s ahead of this machine's clock; {remedy} on both"
                )
    return _date(now_ms)


def _date(ms: int) -> str:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


CHECKS: dict[str, Callable[[Session, Target], str]] = {
    "python": interpreter,
    "record codec": record_codec,
    "compression": compression,
    "java": java,
    "spark's python": source_python,  # before the next, which imports pyspark and so has the variable set
    "spark": spark,
    "cluster": cluster,
    "zookeeper": zookeeper,
    "clock": clock,
}


def examine(session: Session, target: Target) -> list[Finding]:
    """Run every check; what one raises is its finding."""
    findings = []
    for name, check in CHECKS.items():
        try:
            findings.append(Finding(name, True, check(session, target)))
        except Exception as error:
            findings.append(Finding(name, False, " ".join(str(error).split()) or type(error).__name__))
    return findings


@click.command(
    epilog="Examples: strandline doctor -b localhost:9092; strandline doctor --cluster --data strandline-data"
)
@bootstrap_option
@click.option(
    "--cluster",
    "whole_cluster",
    is_flag=True,
    help="Look for the commonest faults of the cluster instead: brokers, partitions, disks, topics, groups.",
)
@admin_ports_option
@click.option(
    "-z",
    "--zookeeper",
    "zookeeper_connect",
    metavar="HOST:PORT,…",
    help="The brokers' zookeeper.connect; else that of the embedded cluster, if it is up.",
)
@output_option
@click.pass_context
def doctor(
    ctx: click.Context,
    bootstrap: str | None,
    whole_cluster: bool,
    told: tuple[str, ...],
    zookeeper_connect: str | None,
    output: str,
) -> int:
    """Check what this machine needs: its Python, codecs, Java, Spark, its clock, and whether the cluster is reached.

    With --cluster: what is wrong in the cluster, where, and what to do; exit code 1 if that is more than advice."""
    session = session_of(ctx)
    if whole_cluster:
        from strandline.cli.doctor_cluster import examine_cluster

        return examine_cluster(session, bootstrap_of(session, bootstrap), told, output)
    if told:
        raise click.UsageError("--admin is for --cluster")
    servers, is_down = "", ""
    try:
        servers = bootstrap_of(session, bootstrap)
    except ClusterIsDown as error:
        is_down = error.message
    target = Target(servers, zookeeper_connect or session.running_zookeeper(cluster_folder(session)[0]), is_down)
    findings = examine(session, target)
    if output == "json":
        show_json("doctor", checks=[{"check": each.check, "ok": each.ok, "text": each.text} for each in findings])
    else:
        for each in findings:
            click.echo(f"{click.style('ok  ', fg='green') if each.ok else click.style('FAIL', fg='red')}", nl=False)
            click.echo(f"  {each.check}: {each.text}")
    return 0 if all(each.ok for each in findings) else 1
