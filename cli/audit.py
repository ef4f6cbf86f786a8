"""`strandline audit`: every replica compared with its leader's; exit code 3 unless all are equal.

It starts a Spark of its own on this machine, once the cluster has answered; what it does is
`spark_connector.pipelines.audit`, which programs call with the session of their cluster.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from strandline.cli.audit_text import chosen_options, show_audit, topics_of
from strandline.cli.options import (
    ask_cluster,
    bootstrap_option,
    client_settings,
    output_option,
    page_option,
    settings_option,
    show_json,
)
from strandline.cli.session import EXIT_DIFFERENT, bootstrap_of, session_of
from strandline.cli.spark_session import pipeline, warn


@click.command(
    epilog="Examples: strandline audit; strandline audit clicks orders:0,1 --page audit.html; "
    "strandline audit --topics 'clicks-.*' --output json"
)
@bootstrap_option
@chosen_options
@page_option
@output_option
@settings_option
@click.pass_context
def audit(
    ctx: click.Context,
    bootstrap: str | None,
    wanted: tuple[str, ...],
    pattern: str | None,
    internal: bool,
    allow_offline: bool,
    page: Path | None,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Compare every replica of every partition with its leader's, by checksum, below the high watermark.

    Finds damaged bytes, missing and different batches, replicas ahead of their leader. Compacted topics are compared by
    their records. Brokers go on working meanwhile; what is found is looked at twice. Exits with 3 unless all is equal:
    a replica that lags counts as equal as far as it has come."""
    topics, pattern = topics_of(wanted, pattern, internal=internal)
    servers = bootstrap_of(session_of(ctx), bootstrap)
    _check_settings(servers, settings)
    ask_cluster(ctx, servers, settings)
    with pipeline("audit", output) as (spark, on_step):
        from strandline.client.replicas.audit import AuditOptions
        from strandline.spark_connector.pipelines.audit import audit as run

        asked = AuditOptions(servers, topics, pattern, internal, allow_offline, client_settings(settings))
        summary = run(spark, asked, on_step=on_step, warn=warn)
    if page is not None:
        from strandline.spark_connector.pipelines.audit_page import audit_page

        page.write_text(audit_page(summary, cluster=servers), encoding="utf-8")
    if output == "json":
        show_json("audit", **asdict(summary))
    else:
        show_audit(summary)
    return 0 if summary.is_equal else EXIT_DIFFERENT


def _check_settings(servers: str, settings: tuple[str, ...]) -> None:
    """Before Spark starts."""
    from strandline.client.errors import InvalidClientConfig
    from strandline.client.settings import AdminSettings, from_mapping

    try:
        from_mapping(AdminSettings, {"bootstrap_servers": servers, **client_settings(settings)})
    except InvalidClientConfig as error:
        raise click.UsageError(str(error)) from None
