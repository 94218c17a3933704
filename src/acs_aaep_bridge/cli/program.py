"""The top of the command line: the list of commands, and what becomes of an error.

Every failure ends in one line on stderr per thing that is wrong and a documented exit code; a traceback is shown for an
unexpected error at `--log-level debug` only.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import click

from acs_aaep_bridge import __version__
from acs_aaep_bridge.errors import BridgeError, ConfigError

DEBUG: Final = "acs_aaep_bridge.debug"
"""Key in `click.Context.meta`: whether the log level is debug."""

INTERRUPTED: Final = 130
BUG: Final = 70

EXIT_CODES = """
\b
Exit codes:
  0    fine
  1    a verdict: some record was rejected, or a check found something wrong
  2    usage or configuration
  3    broker, topic or authorization, found at start
  4    a partition could not be taken
  5    stalled: lag, but no progress
  70   a bug in the bridge
  130  interrupted (Ctrl-C) before the work was done
"""


class Row(NamedTuple):
    """One command: its module under `acs_aaep_bridge.cli`, the name in it, and what the overview says."""

    module: str
    attribute: str
    summary: str


COMMANDS: Final[dict[str, Row]] = {
    "demo": Row("demo.command", "demo", "See it work: a broker, the bridge and sample traffic, in this terminal."),
    "translate": Row("translate", "translate", "Turn recorded hooks into lifecycle events; no broker needed."),
    "explain": Row("translate", "explain", "Say for each record what the bridge makes of it, and why."),
    "run": Row("run", "run", "Run the bridge."),
    "listen": Row("listen", "listen", "Print what a screen-reader user would hear, as it happens."),
    "publish": Row("publish", "publish", "Put a file of records into a topic."),
    "topics": Row("topics", "topics", "Create or check the bridge's topics."),
    "dlq": Row("dlq", "dlq", "Look at rejected records, and send repaired ones again."),
    "sessions": Row("sessions", "sessions", "List the sessions that are open, or show one."),
    "config": Row("config", "config", "Check or show the configuration, or print its schema."),
}


class Program(click.Group):
    """A group that imports a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        module = importlib.import_module(f"acs_aaep_bridge.cli.{row.module}")
        return cast("click.Command", getattr(module, row.attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.summary) for name, row in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what it returns as an int is the exit code. Every error ends here."""
        try:
            verdict = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _forget_stdout()
            ctx.exit(0)
        except (KeyboardInterrupt, click.Abort, asyncio.CancelledError):
            ctx.exit(INTERRUPTED)
        except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
            raise
        except click.ClickException as error:
            fail(_usage(error))
            ctx.exit(error.exit_code if error.exit_code != 1 else 2)
        except ConfigError as error:
            for problem in error.problems:
                fail(str(problem))
            ctx.exit(error.exit_code)
        except BridgeError as error:
            fail(str(error))
            ctx.exit(error.exit_code)
        except Exception as error:
            if ctx.meta.get(DEBUG):
                traceback.print_exc()
            fail(_bug(error))
            ctx.exit(BUG)
        ctx.exit(verdict if isinstance(verdict, int) else 0)


def fail(message: str) -> None:
    """One line on stderr."""
    click.echo(f"error: {' '.join(message.split())}", err=True)


def _usage(error: click.ClickException) -> str:
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "acs-aaep-bridge"
    return f"{error.format_message().rstrip('.')}. See: {path} --help"


def _bug(error: Exception) -> str:
    """The kind and the place; not the text, which may quote a payload."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"unexpected {type(error).__name__}{place}: a bug, please report it (--log-level debug shows the traceback)"


def _forget_stdout() -> None:
    """The reader has gone; without this the interpreter complains again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=Program,
    name="acs-aaep-bridge",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, message="%(prog)s %(version)s", prog_name="acs-aaep-bridge")
def main() -> None:
    """Bridge ACS agent events on Kafka to AAEP lifecycle events.

    Agent hosts report each step of an agent as an ACS hook. The bridge reads these raw hooks from Kafka, validates and
    normalizes them, and turns them into AAEP events: short sentences that assistive technology can speak, such as
    "planner is working", "Explore 631 finished".

    New here? Try: acs-aaep-bridge demo
    """
