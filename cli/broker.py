"""`strandline broker`: runs one broker in the foreground until SIGTERM or Ctrl-C.

The file is Java properties with Kafka's keys; environment variables can stand for keys, too
(`runtime.config.variables`). Of several sources the later one wins: defaults that came with an image, the file,
variables, --override. What a key that is unknown or not honoured means is said on stderr before the broker
starts. Exit code 0 after a clean stop, 1 when the broker failed, 2 for a configuration in error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

import click

from strandline.cli.options import defaults_option, key_value, output_option, properties_of, show_json

if TYPE_CHECKING:
    from strandline.runtime.config.keys import ConfigKey


@click.command(
    epilog="Example: strandline broker --config server.properties --override broker.id=1 "
    "--override zookeeper.connect=localhost:2181"
)
@click.option(
    "-c", "--config", "source", type=click.File("rb"), metavar="FILE", help="server.properties, with Kafka's keys."
)
@click.option(
    "-e",
    "--from-environment",
    is_flag=True,
    help="Read keys from variables, too: STRANDLINE_LOG_DIRS is log.dirs (KAFKA_LOG_DIRS works as well). They win over "
    "the file.",
)
@defaults_option("Keys that count where no other source has them, as an image brings them; $STRANDLINE_DEFAULTS.")
@click.option("-o", "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Wins over everything.")
@click.option("--reference", is_flag=True, help="Print every key, as a page in Markdown or as JSON, and start nothing.")
@output_option
@click.pass_context
def broker(
    ctx: click.Context,
    source: IO[bytes] | None,
    from_environment: bool,
    defaults: IO[bytes] | None,
    overrides: tuple[str, ...],
    reference: bool,
    output: str,
) -> int:
    """Run one broker in the foreground."""
    if reference:
        _show_reference(as_json=output == "json")
        return 0
    if source is None and not overrides and not from_environment:
        raise click.UsageError("give --config FILE, --from-environment, or the keys as --override KEY=VALUE", ctx)
    override_pairs = [key_value(text, "--override") for text in overrides]
    from strandline.runtime.config.properties import layered
    from strandline.runtime.config.reading import load_broker_config
    from strandline.runtime.config.values import InvalidConfig
    from strandline.runtime.config.variables import contradictions, properties_from_environment

    doubts: list[str] = []
    try:
        given = layered(properties_of(defaults), properties_of(source))
        if from_environment:
            given = layered(given, properties_from_environment(os.environ, given))
            doubts += contradictions(os.environ)
        config = load_broker_config(layered(given, dict(override_pairs)))
    except InvalidConfig as error:
        raise click.UsageError(str(error), ctx) from None
    for warning in (*doubts, *config.warnings):
        click.echo(f"strandline broker: warning: {warning}", err=True)
    from strandline.broker.process import run_broker

    code = run_broker(config)
    if output == "json":
        why = {"name": "Failed", "message": "stderr and the broker's log say why it ended", "exit_code": code}
        show_json("broker", broker_id=config.broker_id, **({} if code == 0 else {"error": why}))
    return code


def _show_reference(*, as_json: bool) -> None:
    if not as_json:
        from strandline.runtime.config.reference import reference

        click.echo(reference(), nl=False)
        return
    from strandline.runtime.config.broker import BROKER_KEYS
    from strandline.runtime.config.topic import TOPIC_KEYS

    show_json("broker", broker_keys=_fields(BROKER_KEYS), topic_keys=_fields(TOPIC_KEYS))


def _fields(keys: Mapping[str, ConfigKey]) -> list[dict[str, object]]:
    return [
        {
            "key": key.name,
            "type": key.kind.name,
            "default": key.default_text,
            "unit": key.unit or None,
            "allowed": key.allowed.text,
            "dynamic": key.dynamic,
            "takes_effect": None if not key.dynamic else "at once" if key.live else "at the next start",
            "honoured": key.honoured,
            "documentation": key.meaning,
        }
        for key in keys.values()
    ]
