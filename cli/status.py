"""`strandline status`: how a cluster is, and what somebody must act on.

    strandline status                                           the cluster that `strandline up` started
    strandline status -b broker-1:9092                          any other, by what its brokers say
    strandline status -b localhost:9092 --admin 1=localhost:9644

Exit codes: 0 fine, 1 something that should run does not, or lacks something, 2 wrong command line.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from strandline.cli.admin_ports import admin_ports_option, check_named, named_ports
from strandline.cli.cluster_problems import problem_lines
from strandline.cli.cluster_state import read_state
from strandline.cli.options import LOOK_TIMEOUT_MS, bootstrap_option, output_option, show_json
from strandline.cli.session import BOOTSTRAP_VARIABLE, Session, bootstrap_of, cluster_folder, session_of
from strandline.cli.status_report import embedded_report, remote_report
from strandline.cli.status_text import show, verdict


@click.command(
    epilog="Examples: strandline status --output json | jq .controller_id; strandline status -b broker-1:9092"
)
@bootstrap_option
@admin_ports_option
@output_option
@click.pass_context
def status(ctx: click.Context, bootstrap: str | None, told: tuple[str, ...], output: str) -> int:
    """Show how a cluster is: brokers, controller, partitions that lack something, and why; of one that `strandline up`
    started the processes, too.

    Below the members stands a line for each problem that a broker tells at its admin port: what, where, since when and
    what to do.

    Exit code 1 unless every broker (and of a cluster that `up` started ZooKeeper) runs and answers, none tells that it
    has lost ZooKeeper, one acts as the controller, every partition has a leader and its full ISR, and nothing holds up
    the deletion of a topic.
    """
    session, ports = session_of(ctx), named_ports(told)
    folder = _folder(session, bootstrap)
    if folder is not None:
        from strandline.cli.cluster import EmbeddedCluster

        report = embedded_report(EmbeddedCluster.recorded(folder), ports)
    else:
        servers = bootstrap_of(session, bootstrap)
        with session.admin(servers, default_api_timeout_ms=LOOK_TIMEOUT_MS) as admin:
            report = remote_report(admin, servers, ports)
    states = {each["id"]: each["state"] for each in report["brokers"]}
    running = [broker_id for broker_id, state in states.items() if state in ("up", "silent")]
    check_named(ports, running, away=states)
    if output == "json":
        show_json("status", **report)
    else:
        show(report)
        for line in problem_lines(report, session.now_ms()):
            click.echo(line)
        click.echo(f"\n{verdict(report)}")
    return 0 if report["healthy"] else 1


def _folder(session: Session, bootstrap: str | None) -> Path | None:
    """Whose cluster is meant, be it up or not; None where that is another one (`bootstrap_of` says which)."""
    if bootstrap is not None or (session.line.data_dir is None and os.environ.get(BOOTSTRAP_VARIABLE)):
        return None
    folder, named_by = cluster_folder(session)
    return folder if named_by or read_state(folder) is not None else None
