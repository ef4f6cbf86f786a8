"""Words that fingers type from memory of Kafka's tools, kcat and rpk: what has their part here, for the error's line.

What is taken by those names is among the options of each command; here is the rest.
"""

from __future__ import annotations

import click

_WORDS = {
    "list": "strandline topics list",
    "create": "strandline topics create",
    "describe": "strandline topics describe",
    "delete": "strandline topics delete",
    "cluster": "strandline status",
    "-L": "strandline topics list, or describe",
    "-P": "strandline produce",
    "-C": "strandline consume",
    "-Q": "strandline offsets TOPIC --at @MILLISECONDS",
    "-G": "strandline consume --group NAME -t TOPIC",
    "-b": "strandline COMMAND -b HOST:PORT",
    "-t": "strandline produce -t TOPIC, or consume",
}
"""What stands there in place of a command."""

_OPTIONS = {
    **dict.fromkeys(("--producer-property", "--consumer-property", "--command-property"), "-X KEY=VALUE"),
    **dict.fromkeys(
        ("--producer.config", "--consumer.config", "--command-config"), "-X KEY=VALUE, for each setting of the file"
    ),
    **dict.fromkeys(("--broker-list", "--brokers"), "-b HOST:PORT,…"),
    "--bootstrap-server": "-b HOST:PORT,… behind the action",
    **dict.fromkeys(("--whitelist", "--regex"), "-r REGEX"),
    **dict.fromkeys(("--topics-include", "--topic-white-list"), "--topics REGEX"),
    "--report-interval-ms": "--report-interval SECONDS",
    "--fetch-size": "--max-bytes BYTES",
    "--start-time": "--since TIME",
    "--end-time": "--until TIME",
    "--logs-regex": "--logs FOLDER, with all that is below",
    "--formatter": "-f TEMPLATE, or -J for JSON",
    "--compression-codec": "-z CODEC",
    "--request-required-acks": "--acks",
    "--sync": "-v, a line for each record that was acknowledged",
    "--time": "--at @TIME",
    "-Q": "strandline offsets TOPIC --at @MILLISECONDS",
    "-L": "strandline topics list",
    "-s": "-f TEMPLATE with {hex}, {base64} or {json}",
    **dict.fromkeys(("--entity-type", "--entity-name"), "-t TOPIC, --broker ID or --all-brokers"),
    "--add-config": "--add KEY=VALUE",
    "--delete-config": "--delete KEY",
    "--reset-offsets": "the action, reset",
}
"""Options of those tools that no command here, or not each, has."""


def in_place_of_a_command(word: str) -> str | None:
    """What to type for it; None for what nobody has learnt elsewhere."""
    return _WORDS.get(word)


def in_place_of_an_option(error: click.NoSuchOption) -> str | None:
    """As `in_place_of_a_command`: of an option that this command does not have."""
    name, ctx = error.option_name, error.ctx
    if ctx is None:
        return None
    if ctx.parent is None:
        return _WORDS.get(name)
    if isinstance(ctx.command, click.Group) and name.removeprefix("--") in ctx.command.commands:
        return f"{ctx.command_path} {name.removeprefix('--')}"
    if name in ("-t", "--topic"):
        names = [each.make_metavar(ctx) for each in ctx.command.params if isinstance(each, click.Argument)]
        return f"{ctx.command_path} {' '.join(names)}" if names else None
    return _OPTIONS.get(name)


def after_a_word_too_many(error: click.UsageError) -> str:
    """For `strandline consume clicks`, as rpk has it."""
    ctx = error.ctx
    is_one = ctx is not None and error.message.startswith("Got unexpected extra argument")
    if ctx is None or not is_one or not any("-t" in each.opts for each in ctx.command.params):
        return ""
    return ": a topic is given as -t TOPIC"
