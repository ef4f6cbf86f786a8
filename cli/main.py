"""The `strandline` command: its subcommands, loaded when they are named, and the one place where errors become text.

Rules of this file:
* `strandline --help` imports nothing but click: the table below holds each subcommand's one-line help.
* No exception leaves `run`. What a user can mend is one line on stderr that names the thing and the remedy; the exit
  code is one of EXIT_CODES. STRANDLINE_DEBUG=1 adds the traceback.
* With `--output json` stdout has one object whatever happens; that of a failure has `error` (`Failure`), in one line:
  it may be the last one of a stream. stderr has its line all the same.
* A closed output pipe (`strandline consume … | head`) ends the command quietly with exit code 1.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import itertools
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, TextIO

import click

from strandline.cli import other_tools
from strandline.cli.help_format import HelpFormatter
from strandline.cli.idle_readers import abandon, in_passing, redirect_to_null
from strandline.cli.item_errors import error_name
from strandline.cli.session import EXIT_DIFFERENT, EXIT_INTERRUPTED, JSON_VERSION, CommandLine, Session
from strandline.cli.short_options import has_flag
from strandline.cli.wording import printable
from strandline.runtime.processes.interrupts import (
    die_of_the_next,
    end_as_interrupted,
    obey_no_more,
    repeat_lost_interrupt,
)

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2

EXIT_CODES: dict[int, str] = {
    EXIT_OK: "done; of a command that checks something: all is well",
    EXIT_FAILED: "failed; of a command that checks something: it is not well",
    EXIT_USAGE: "wrong command line",
    EXIT_DIFFERENT: "audit: it was done, and not all replicas are equal",
    EXIT_INTERRUPTED: "Ctrl-C, SIGTERM or SIGHUP",
}
"""What `strandline --help` and the README say."""


class CommandEntry(NamedTuple):
    """Where a subcommand lives (`module`, `attribute`) and the line that `strandline --help` shows for it."""

    module: str
    attribute: str
    help: str

    def load(self) -> click.Command:
        """Import it."""
        command = getattr(importlib.import_module(self.module), self.attribute)
        assert isinstance(command, click.Command), f"{self.module}.{self.attribute} is not a command"
        return command


COMMANDS: dict[str, CommandEntry] = {
    "up": CommandEntry("strandline.cli.cluster_commands", "up", "Start an embedded cluster on this machine."),
    "status": CommandEntry("strandline.cli.status", "status", "Show how a cluster is, and what to act on."),
    "down": CommandEntry("strandline.cli.cluster_commands", "down", "Stop the embedded cluster."),
    "demo": CommandEntry("strandline.cli.demo", "demo", "Show the whole system at work."),
    "produce": CommandEntry("strandline.cli.produce", "produce", "Write lines to a topic."),
    "consume": CommandEntry("strandline.cli.consume", "consume", "Read records from a topic."),
    "topics": CommandEntry("strandline.cli.topics", "topics", "Create, enlarge, list, describe and delete topics."),
    "offsets": CommandEntry("strandline.cli.offsets", "offsets", "Show where partitions begin and end."),
    "configs": CommandEntry("strandline.cli.configs", "configs", "Show and change what is configured."),
    "quotas": CommandEntry("strandline.cli.quotas", "quotas", "Show and change how much clients may ask for."),
    "groups": CommandEntry("strandline.cli.groups", "groups", "List, describe, reset and delete groups."),
    "reassign": CommandEntry("strandline.cli.reassign", "reassign", "Move partitions to other brokers."),
    "load": CommandEntry("strandline.cli.load", "load", "Show how evenly brokers are loaded, and what to move."),
    "broker-decommission": CommandEntry(
        "strandline.cli.decommission", "decommission", "Move everything off a broker that is to go."
    ),
    "elect-leaders": CommandEntry(
        "strandline.cli.elect_leaders", "elect_leaders", "Have preferred replicas lead, or any that live."
    ),
    "recover": CommandEntry(
        "strandline.cli.recover", "recover", "Have a partition led without replicas that do not come back."
    ),
    "delete-records": CommandEntry(
        "strandline.cli.delete_records", "delete_records", "Delete records before an offset."
    ),
    "archive": CommandEntry("strandline.cli.archive", "archive", "Archive a topic as Parquet files, by day."),
    "restore": CommandEntry("strandline.cli.archive", "restore", "Write an archive back into a topic."),
    "audit": CommandEntry("strandline.cli.audit", "audit", "Compare all replicas of all partitions, by checksum."),
    "verify-replicas": CommandEntry(
        "strandline.cli.verify_replicas", "verify_replicas", "Compare replicas, now or round by round."
    ),
    "history": CommandEntry("strandline.cli.history", "history", "Show who led what when, and every outage."),
    "watch": CommandEntry("strandline.cli.watch", "watch", "Show leaders, ISR and offsets of a topic as they move."),
    "state-changes": CommandEntry(
        "strandline.cli.state_changes", "state_changes", "Merge the change logs of all brokers by time."
    ),
    "bench": CommandEntry("strandline.cli.bench", "bench", "Measure throughput and latency of a cluster."),
    "simulate": CommandEntry(
        "strandline.cli.simulate", "simulate", "Run a whole cluster from a seed in a simulator, with faults."
    ),
    "dump-log": CommandEntry("strandline.cli.dump_log", "dump_log", "Show what segment and index files hold."),
    "log-check": CommandEntry("strandline.cli.log_check", "log_check", "Verify a stopped broker's data folders."),
    "doctor": CommandEntry("strandline.cli.doctor", "doctor", "Check what this machine needs to run it all."),
    "broker": CommandEntry("strandline.cli.broker", "broker", "Run one broker in the foreground."),
    "ready": CommandEntry("strandline.cli.ready", "ready", "Say whether a broker is ready, and if not why."),
}


click.Context.formatter_class = HelpFormatter


class LazyGroup(click.Group):
    """A group that imports a subcommand's module only when that subcommand is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else entry.load()

    def invoke(self, ctx: click.Context) -> Any:
        """click ends the line on which a terminal shows ^C, however long nobody reads that."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            with in_passing():
                click.echo(err=True)
            raise click.Abort() from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            part = other_tools.in_place_of_a_command(args[0])
            hint = f"did you mean '{part or near[0]}'?" if part or near else f"choose one of {', '.join(COMMANDS)}"
            raise click.UsageError(f"no such command '{printable(args[0])}': {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


@click.group(
    cls=LazyGroup,
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: strandline up && echo hello | strandline produce -t greetings && "
    "strandline consume -t greetings -o :end",
)
@click.version_option(None, "--version", package_name="strandline", message="strandline %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Strandline: a replicated commit log, and the tools around it."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(args: Sequence[str] | None = None, *, answer_interrupts: bool = False) -> NoReturn:
    """Run the command and exit. answer_interrupts: let Ctrl-C raise KeyboardInterrupt from here on (`entry`)."""
    code, untold = EXIT_INTERRUPTED, None
    try:
        if answer_interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = repeat_lost_interrupt
        end_as_interrupted()
        open_missing_streams()
        buffer_output()
        code = close_output(run(sys.argv[1:] if args is None else args))
    except KeyboardInterrupt as error:
        untold = error
    if code == EXIT_INTERRUPTED:
        try:
            obey_no_more()
        except KeyboardInterrupt:  # of three kinds two more may be waiting, and each cuts this once
            try:
                obey_no_more()
            except KeyboardInterrupt:
                obey_no_more()
        if untold is not None:
            report(untold)
        abandon(open_outputs())
        die_of_the_next()
    sys.exit(code)


def run(args: Sequence[str], *, session: Session | None = None) -> int:
    """Run one command line and return its exit code; never raises.

    `session`: through which commands reach a cluster (tests pass a fake one).
    """
    session = session or Session()
    session.line = CommandLine(command=args[0] if args and args[0] in COMMANDS else "", as_json=asks_for_json(args))
    try:
        result = cli.main(list(args), prog_name="strandline", standalone_mode=False, obj=session)
    except BaseException as error:
        return report(error, session.line)
    return result if isinstance(result, int) else EXIT_OK


def asks_for_json(args: Sequence[str]) -> bool:
    """Whether a failure is to be told to a program, even if the rest cannot be understood. -J is consume's."""
    words = list(args[: args.index("--")] if "--" in args else args)
    if "--output=json" in words or ("--output", "json") in itertools.pairwise(words):
        return True
    if words[:1] != ["consume"] or not any(word.startswith("-") and "J" in word for word in words):
        return False
    return has_flag(COMMANDS["consume"].load(), words[1:], "-J")


class Failure(NamedTuple):
    """`name`: the broker's name for it, else the kind of error. JSON has the three fields under `error`."""

    name: str
    message: str
    exit_code: int


def report(error: BaseException, line: CommandLine | None = None) -> int:
    """Tell the user about `error` in one line on stderr; returns the exit code. `line`: what was asked for."""
    line = line or CommandLine()
    if os.environ.get("STRANDLINE_DEBUG"):
        traceback.print_exception(error, file=sys.stderr)
    error = unwrapped(error)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else EXIT_FAILED
    if is_closed_pipe(error):
        discard_output()
        return EXIT_FAILED
    failure = failure_of(error, line)
    where = f" (see '{usage_of(error)} --help')" if isinstance(error, click.UsageError) else ""
    patience = in_passing if failure.exit_code == EXIT_INTERRUPTED else contextlib.nullcontext
    with patience():
        complain(failure.message + where)
    if line.as_json and not line.is_answered:
        with patience():
            answer(error, failure, line)
    return failure.exit_code


def failure_of(error: BaseException, line: CommandLine) -> Failure:
    if isinstance(error, KeyboardInterrupt | click.Abort):
        interrupt = error.__cause__ if isinstance(error, click.Abort) else error  # click puts its own in its place
        missing = str(interrupt) if isinstance(interrupt, KeyboardInterrupt) else ""
        return Failure("Interrupted", f"interrupted: {missing}" if missing else "interrupted", EXIT_INTERRUPTED)
    if isinstance(error, click.UsageError):
        return Failure("UsageError", usage_text(error), EXIT_USAGE)
    name = error_name(error)
    text = describe(error)
    if line.unless_reached and name == "NoBrokerReachable":
        text = f"{text}; {line.unless_reached}"
    if line.unless_answered and getattr(error, "is_silence", False):
        text = f"{text}; {line.unless_answered}"
    return Failure(name, text, EXIT_FAILED)


def usage_text(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption) and (part := other_tools.in_place_of_an_option(error)):
        return f"no such option '{error.option_name}': here it is {part}"
    return error.format_message() + other_tools.after_a_word_too_many(error)


def usage_of(error: click.UsageError) -> str:
    return error.ctx.command_path if error.ctx else "strandline"


def command_of(error: BaseException, line: CommandLine) -> str:
    """As far as it was understood: a subcommand whose own options were wrong has said nothing of itself."""
    found = ".".join(usage_of(error).split()[1:]) if isinstance(error, click.UsageError) else ""
    return max(found, line.command, key=len)


def answer(error: BaseException, failure: Failure, line: CommandLine) -> None:
    """The failure as the object that a program waits for; whoever reads may be gone."""
    fields = {"_command": command_of(error, line), "_version": JSON_VERSION, "error": failure._asdict()}
    try:
        click.echo(json.dumps(fields))
    except OSError:
        discard_output()


def describe(error: BaseException) -> str:
    """One line for an error: our own exceptions speak for themselves, others are named by their type."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if type(error).__module__.startswith("strandline.") and text:
        return text
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("strandline"):
        return (
            f"{text}: this command needs a package that is not installed; pip install '.[local,spark]' in the checkout"
        )
    return f"internal error: {type(error).__name__}: {text or 'no message'} (STRANDLINE_DEBUG=1 shows where)"


def unwrapped(error: BaseException) -> BaseException:
    """The one exception inside groups of one (trio wraps what leaves a nursery)."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        interrupted, rest = error.split(KeyboardInterrupt)
        return unwrapped(rest.exceptions[0]) if rest is not None and interrupted is None else KeyboardInterrupt()
    return error


def is_closed_pipe(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def complain(message: str) -> None:
    """Write one line to stderr, whatever `message` holds, even if stderr is gone too."""
    try:
        click.echo(f"strandline: {printable(message)}", err=True)
    except OSError:
        discard_output()


def open_missing_streams() -> None:
    """Put the null device where a shell's `<&-` or `>&-` left no stream at all. Commands write to sys.stdout, and a
    file or connection opened later must not get the number of a standard stream."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  (stays open as long as the process)


def buffer_output() -> None:
    """Put a buffer below stdout where PYTHONUNBUFFERED left none. A command counts what it has flushed; of a write that
    goes out by itself, and that Ctrl-C interrupts, nobody knows whether somebody has read it."""
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and isinstance(out.buffer, io.RawIOBase):
        # A descriptor of its own number, not `out.detach()`: sys.__stdout__ is asked how wide the terminal is.
        raw = io.FileIO(out.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), out.encoding, out.errors, line_buffering=True)


def open_outputs() -> list[TextIO]:
    """stdout and stderr, as far as they are there: None stands for one that was closed before the start."""
    streams: tuple[TextIO | None, ...] = (sys.stdout, sys.stderr)
    return [stream for stream in streams if stream is not None]


def close_output(code: int) -> int:
    """Flush stdout and stderr; the reader may be gone by now, which must not show as a traceback at exit. What was
    interrupted does not wait for it (`abandon`)."""
    if code == EXIT_INTERRUPTED:
        return code
    try:
        for stream in open_outputs():
            stream.flush()
    except OSError:
        discard_output()
        return code or EXIT_FAILED
    return code


def discard_output() -> None:
    """Point stdout and stderr, as far as they are closed pipes, at the null device: the interpreter flushes at exit."""
    for stream in open_outputs():
        try:
            stream.flush()
        except (OSError, ValueError):
            redirect_to_null(stream)
