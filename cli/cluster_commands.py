"""`strandline up` and `down`: the embedded cluster for one's own use.

Text goes to people and may change; `--output json` keeps its shape. Exit codes: 0 fine, 1 failed, 2 wrong command line.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from strandline.cli.cluster_state import DATA_VARIABLE, DEFAULT_DATA_DIR
from strandline.cli.options import key_value, output_option, show_json
from strandline.cli.status_report import embedded_report
from strandline.cli.status_text import show

data_option = click.option(
    "--data",
    "data_dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar=DATA_VARIABLE,
    default=DEFAULT_DATA_DIR,
    show_default=True,
    show_envvar=True,
    help="Folder of the cluster: its state, configuration, logs and data.",
)


@click.command(
    epilog="Examples: strandline up --brokers 3 --data ./my-cluster; "
    "strandline up --override log.segment.bytes=1048576 -o log.retention.ms=3600000"
)
@click.option("--brokers", type=click.IntRange(1, 20), help="How many.  [default: as the folder has data of, else 3]")
@click.option(
    "--port",
    type=click.IntRange(1024, 65_515),
    default=9092,
    show_default=True,
    help="Broker n listens on this port + n − 1 where that is free, else on any free one. Its admin port is likewise "
    "9644 + n − 1.",
)
@click.option(
    "-o",
    "--override",
    "override_texts",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key for all brokers; may be repeated. Later starts have it, too, until it is overridden anew: it is kept "
    "in overrides.properties of the data folder. What the cluster sets itself (addresses, folders …) is refused. Of "
    "admin.listener=HOST:PORT broker n gets the port + n − 1.",
)
@data_option
@output_option
def up(brokers: int | None, port: int, override_texts: tuple[str, ...], data_dir: Path, output: str) -> None:
    """Start ZooKeeper and brokers on this machine and return when they serve.

    They run in the background until `strandline down`. Of a cluster that is partly up, the dead members are started.
    """
    from strandline.cli import cluster as clusters
    from strandline.cli.cluster_overrides import OverrideRefused
    from strandline.cli.cluster_state import FolderRefused, check_folder

    try:
        check_folder(data_dir)
    except FolderRefused as error:
        raise click.UsageError(str(error)) from None
    overrides = dict(key_value(text, "--override") for text in override_texts)
    if output == "text" and sys.stderr.isatty():
        click.echo(f"starting a cluster in {data_dir.resolve()} …", err=True)
    try:
        cluster = clusters.up(data_dir, brokers, port, overrides, warn=_warn)
    except OverrideRefused as error:
        raise click.UsageError(str(error)) from None
    report = embedded_report(cluster, {})
    if output == "json":
        show_json("up", **report)
        return
    show(report)
    if cluster.properties:
        click.echo("overrides: " + ", ".join(f"{key}={value}" for key, value in cluster.properties.items()))
    click.echo(f"\nbootstrap servers: {report['bootstrap_servers']}")
    named = f" --data {shlex.quote(str(data_dir))}" if _must_be_named(data_dir) else ""
    click.echo(f"next: echo hello | strandline produce -t greetings{named}   ·   strandline down{named}")


def _must_be_named(data_dir: Path) -> bool:
    """Whether other commands find the cluster only with --data."""
    return data_dir != Path(os.environ.get(DATA_VARIABLE) or DEFAULT_DATA_DIR)


@click.command(epilog="Example: strandline down --data ./my-cluster")
@click.option("--timeout", "timeout_s", type=click.IntRange(1, 600), default=30, show_default=True, metavar="SECONDS",
              help="How long brokers may take to stop before they are killed.")  # fmt: skip
@data_option
@output_option
def down(timeout_s: int, data_dir: Path, output: str) -> None:
    """Stop the embedded cluster; its data stays for the next `strandline up`."""
    from strandline.cli import cluster as clusters

    cluster = clusters.down(data_dir, timeout_s)
    if output == "json":
        show_json("down", stopped=True, data_dir=str(cluster.data_dir))
    else:
        click.echo(f"stopped; the data stays in {cluster.data_dir}")


def _warn(warning: str) -> None:
    click.echo(f"strandline up: warning: {warning}", err=True)
