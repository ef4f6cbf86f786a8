"""`strandline up`, `status` and `down`: the embedded cluster for one's own use.

Text goes to people and may change; `--output json` keeps its shape. Exit codes: 0 fine, 1 failed (for `status` also:
something that should run does not), 2 wrong command line.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.cluster_problems import problem_lines, problems_of
from strandline.cli.cluster_state import DATA_VARIABLE, DEFAULT_DATA_DIR
from strandline.cli.options import key_value, output_option, show_json
from strandline.cli.session import session_of
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline.cli.cluster import EmbeddedCluster
    from strandline.client.reassignments import OngoingReassignment
    from strandline.protocol.messages import MetadataPartition, MetadataResponse
    from strandline.protocol.types import TopicPartition
    from strandline.runtime.network import Address

_MEGABYTE = 1_000_000
MOST_LINES = 10
"""So many refused replicas, and deletions, `status` shows to people; JSON has all."""
_ANSWER_TIMEOUT_MS = 5000
"""A member that is up answers within milliseconds; on a busy machine a second was too short to call one silent."""

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
    help="Broker n listens on this port + n − 1 where that is free, else on any free one.",
)
@click.option(
    "-o",
    "--override",
    "override_texts",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key for all brokers; may be repeated. Later starts have it, too, until it is overridden anew: it is kept "
    "in overrides.properties of the data folder. What the cluster sets itself (addresses, folders …) is refused.",
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
    report = describe(cluster)
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


@click.command(epilog="Example: strandline status --output json | jq .controller_id")
@data_option
@output_option
@click.pass_context
def status(ctx: click.Context, data_dir: Path, output: str) -> None:
    """Show the embedded cluster: processes, addresses, controller, partitions that lack something, and why.

    Below the members stands a line for each problem that a broker tells: what, where, since when and what to do.

    Exit code 1 unless every process runs and answers, every partition has a leader and its full ISR, and nothing holds
    up the deletion of a topic.
    """
    from strandline.cli.cluster import EmbeddedCluster

    report = describe(EmbeddedCluster.recorded(data_dir))
    if output == "json":
        show_json("status", **report)
    else:
        show(report)
        for line in problem_lines(report, session_of(ctx).now_ms()):
            click.echo(line)
        click.echo(f"\n{verdict(report)}")
    ctx.exit(0 if report["healthy"] else 1)


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


def describe(cluster: EmbeddedCluster) -> dict[str, Any]:
    """Everything that `status` shows, as the JSON document of `--output json`."""
    from strandline.cli.cluster_probe import ask_brokers

    alive = {i: cluster.address(i) for i, daemon in cluster.brokers.items() if daemon.is_alive}
    answers = ask_brokers(alive, topics=None, timeout_ms=_ANSWER_TIMEOUT_MS)
    brokers = []
    for broker_id, daemon in cluster.brokers.items():
        state = "up" if broker_id in answers else "silent" if broker_id in alive else "dead"
        resident = daemon.id.resident_bytes() if daemon.id and broker_id in alive else None
        pid = daemon.id.pid if daemon.id else None
        brokers.append(
            {"id": broker_id, "state": state, "address": str(cluster.address(broker_id)), "pid": pid,
             "resident_bytes": resident, "log": str(daemon.log_path)}
        )  # fmt: skip
    # Each broker answers from its own copy; the one that knows most of the others is the best witness.
    witness = max(answers.values(), key=lambda answer: len(answer.brokers), default=None)
    zookeeper = cluster.zookeeper.process
    answers_too = cluster.zookeeper.answers(_ANSWER_TIMEOUT_MS / 1000)
    report: dict[str, Any] = {
        "data_dir": str(cluster.data_dir),
        "bootstrap_servers": cluster.bootstrap_servers,
        "zookeeper": {
            "state": "up" if answers_too else "silent" if zookeeper.is_alive else "dead",
            "address": cluster.zookeeper.address,
            "pid": zookeeper.id.pid if zookeeper.id else None,
            "resident_bytes": zookeeper.id.resident_bytes() if zookeeper.id and zookeeper.is_alive else None,
            "log": str(zookeeper.log_path),
        },
        "brokers": brokers,
        "controller_id": witness.controller_id if witness else None,
        **what_witness_says(witness, _moves(witness, ",".join(str(cluster.address(each)) for each in answers))),
        **_problems(witness, {each: cluster.address(each) for each in answers}),
    }
    report["healthy"] = (
        witness is not None
        and report["zookeeper"]["state"] == "up"
        and all(broker["state"] == "up" for broker in brokers)
        and not report["without_leader"]
        and not report["under_replicated"]
        and not report["unfinished_deletions"]
    )
    return report


def _moves(witness: MetadataResponse | None, bootstrap_servers: str) -> Mapping[TopicPartition, OngoingReassignment]:
    """What is being moved of the partitions that seem to lack replicas; nothing where the controller does not say."""
    lacking = [tp for tp, each in _partitions(witness).items() if len(each.isr_nodes) < len(each.replica_nodes)]
    if not lacking:
        return {}
    from strandline import Admin
    from strandline.cli.topics_describe import MOVES_TIMEOUT_MS
    from strandline.client.errors import ClientError

    found: dict[TopicPartition, OngoingReassignment] = {}
    try:
        with Admin(bootstrap_servers, request_timeout_ms=MOVES_TIMEOUT_MS) as admin:
            found = admin.list_partition_reassignments(lacking, timeout_ms=MOVES_TIMEOUT_MS)
    except ClientError:
        pass
    return found


def _problems(witness: MetadataResponse | None, addresses: Mapping[int, Address]) -> dict[str, Any]:
    """What the brokers that answer say of themselves; None for each where there is none."""
    if witness is None:
        return dict.fromkeys(("problems", "problems_untold"))
    from strandline import Admin
    from strandline.client.errors import ClientError
    from strandline.client.metadata import BrokerView

    brokers = {broker_id: BrokerView(broker_id, address) for broker_id, address in addresses.items()}
    try:
        with Admin(",".join(map(str, addresses.values())), request_timeout_ms=_ANSWER_TIMEOUT_MS) as admin:
            problems, untold = problems_of(admin, brokers, witness.cluster_id)
    except ClientError as error:
        problems, untold = [], [{"broker": broker_id, "why": str(error)} for broker_id in brokers]
    return {"problems": problems, "problems_untold": untold}


def what_witness_says(
    witness: MetadataResponse | None, moving: Mapping[TopicPartition, OngoingReassignment]
) -> dict[str, Any]:
    """Of partitions and topics; None for each where nobody says. moving: to other brokers."""
    return {**_counts(witness, moving), **_reasons(witness)}


def _partitions(witness: MetadataResponse | None) -> dict[TopicPartition, MetadataPartition]:
    from strandline.protocol.types import TopicPartition

    topics = () if witness is None else witness.topics
    every = ((topic.name or "", each) for topic in topics for each in topic.partitions)
    return {TopicPartition(name, each.partition_index): each for name, each in every}


def _counts(
    witness: MetadataResponse | None, moving: Mapping[TopicPartition, OngoingReassignment]
) -> dict[str, int | None]:
    """Topics and partitions, and how many lack something. As in Kafka, a replica that is only being added is not one
    that lacks."""
    if witness is None:
        return dict.fromkeys(("topics", "partitions", "without_leader", "under_replicated"))
    partitions = _partitions(witness)
    return {
        "topics": len(witness.topics),
        "partitions": len(partitions),
        "without_leader": sum(each.leader_id < 0 for each in partitions.values()),
        "under_replicated": sum(
            len(each.isr_nodes) < len(moving[tp].original if tp in moving else each.replica_nodes)
            for tp, each in partitions.items()
        ),
    }


def _reasons(witness: MetadataResponse | None) -> dict[str, list[dict[str, Any]] | None]:
    """Which live brokers do not serve their replicas of which partitions, and what holds deletions up."""
    if witness is None:
        return dict.fromkeys(("refused_replicas", "unfinished_deletions"))
    return {
        "refused_replicas": [
            {"topic": topic.name, "partition": part.partition_index, "broker": refused.broker_id, "why": refused.why}
            for topic in witness.topics
            for part in topic.partitions
            for refused in part.refused_replicas
        ],
        "unfinished_deletions": [{"topic": each.topic_name, "why": each.why} for each in witness.unfinished_deletions],
    }


def verdict(report: dict[str, Any]) -> str:
    """Fine, or what is wrong and what to do: a line about members, one about partitions, one for each replica that is
    refused and each deletion that is held up."""
    lines = [line for line in (_members_amiss(report), _partitions_amiss(report)) if line is not None]
    lines += _most(
        [
            f"broker {each['broker']} does not serve its replica of {each['topic']}-{each['partition']}: {each['why']}"
            for each in report["refused_replicas"] or ()
        ]
    )
    lines += _most(
        [
            f"topic {each['topic']} is being deleted and goes as soon as it can: {each['why']}"
            for each in report["unfinished_deletions"] or ()
        ]
    )
    if not lines:
        return f"healthy: {counted(report['topics'], 'topic')}, {counted(report['partitions'], 'partition')}"
    return "\n".join(lines)


def _members_amiss(report: dict[str, Any]) -> str | None:
    amiss = [
        (f"broker {broker['id']}", broker["state"], broker["pid"])
        for broker in report["brokers"]
        if broker["state"] != "up"
    ]
    zookeeper = report["zookeeper"]
    if zookeeper["state"] != "up":
        amiss.append(("ZooKeeper", zookeeper["state"], zookeeper["pid"]))
    if not amiss:
        return None
    remedies = []
    if any(state == "dead" for _, state, _ in amiss):
        remedies.append("strandline up starts what is dead")
    if silent := [str(pid) for _, state, pid in amiss if state == "silent"]:
        # It runs, so `up` has nothing to start.
        remedies.append(f"a silent one runs without answering: if it is paused, kill -CONT {' '.join(silent)}")
    members = ", ".join(f"{name} is {state}" for name, state, _ in amiss)
    return f"{members}; {'; '.join(remedies)}; the logs say why"


def _partitions_amiss(report: dict[str, Any]) -> str | None:
    if report["partitions"] is None:
        return "no broker answers: nobody knows how the partitions are"
    if not report["without_leader"] and not report["under_replicated"]:
        return None
    return (
        f"{counted(report['without_leader'], 'partition')} without a leader, {report['under_replicated']} "
        f"under-replicated of {report['partitions']}; strandline topics describe shows them"
    )


def _most(lines: list[str]) -> list[str]:
    left_out = len(lines) - MOST_LINES
    more = [f"and {left_out} more; strandline status --output json shows them"] if left_out > 0 else []
    return lines[:MOST_LINES] + more


def show(report: dict[str, Any]) -> None:
    """A table of the members."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("member", "state", "address"):
        table.add_column(heading)
    for heading in ("pid", "memory"):
        table.add_column(heading, justify="right")
    members = [("zookeeper", report["zookeeper"])]
    members += [(f"broker {broker['id']}", broker) for broker in report["brokers"]]
    for name, member in members:
        colour = {"up": "green", "silent": "yellow"}.get(member["state"], "red")
        leads = " (controller)" if report["controller_id"] == member.get("id", object()) else ""
        resident = member["resident_bytes"]
        memory = f"{resident / _MEGABYTE:.0f} MB" if resident is not None else "-"
        state = f"[{colour}]{member['state']}[/]"
        pid = str(member["pid"]) if member["pid"] is not None else "-"
        table.add_row(f"{name}{leads}", state, member["address"], pid, memory)
    console = Console(highlight=False)
    console.print(f"cluster in {escape(report['data_dir'])} (logs: */*.log)", soft_wrap=True)
    console.print(table)
