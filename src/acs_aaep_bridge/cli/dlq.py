"""`dlq inspect | show | replay`."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import click
import orjson

from acs_aaep_bridge.cli.letters import Letter, Selection, selected
from acs_aaep_bridge.cli.options import as_moment, with_config
from acs_aaep_bridge.cli.progress import Advance, bar
from acs_aaep_bridge.cli.reading import Part
from acs_aaep_bridge.cli.replay import CHUNK, REFUSALS, plan, replaying
from acs_aaep_bridge.cli.terminal import columns, safe
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.telemetry.logs import configure

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN: Final = ("message", "pointer", "schema", "stage", "topic", "partition", "offset", "index", "version")


def _selecting(command: F) -> F:
    """The options that say which dead letters are meant."""
    code = click.option("--code", "codes", multiple=True, help="Only this error code; may be given several times.")
    since = click.option(
        "--since",
        callback=as_moment,
        metavar="WHEN",
        help="Only records that were produced since then: a timestamp with its zone, or a duration ago (2h).",
    )
    return code(since(command))


@click.group()
def dlq() -> None:
    """Look at rejected records, and send repaired ones again.

    A rejected record lies in the dead-letter topic as it came, with the reason in its headers. Mend the cause (an option, a
    new version of the bridge), see with `dlq show --json | acs-aaep-bridge explain --records` that the records pass now,
    then `dlq replay`.
    """


@dlq.command()
@_selecting
@with_config
def inspect(config: Config, codes: tuple[str, ...], since: int | None) -> None:
    """Count the dead letters by code, hook and place of the error."""
    configure(config.log)
    counts: Counter[tuple[str, str, str]] = Counter()

    def count(letters: Sequence[Letter]) -> bool:
        counts.update((one.code, one.method(), one.error.get("pointer", "")) for one in letters)
        return True

    with bar("reading") as progress:
        asyncio.run(_read(config, _selection(codes, since), count, progress))
    rows = [(str(number), *(safe(text, 80) or "-" for text in group)) for group, number in counts.most_common()]
    for line in columns([("COUNT", "CODE", "HOOK", "POINTER"), *rows]) if rows else ["No dead letters."]:
        click.echo(line)


@dlq.command()
@_selecting
@click.option("--max", "most", type=click.IntRange(min=1), default=10, show_default=True, help="Show at most so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line each, in the form that `explain --records` reads.")
@with_config
def show(config: Config, codes: tuple[str, ...], since: int | None, most: int, as_json: bool) -> None:
    """Show dead letters one by one, with the record itself: it may hold what is private."""
    configure(config.log)
    shown = 0

    def tell(letters: Sequence[Letter]) -> bool:
        nonlocal shown
        for letter in letters[: most - shown]:
            click.echo(orjson.dumps(letter.described()) if as_json else _told(letter))
            shown += 1
        return shown < most

    asyncio.run(_read(config, _selection(codes, since), tell, lambda done, total: None))
    if not shown:
        click.echo("No dead letters.", err=True)


@dlq.command()
@_selecting
@click.option("--max", "most", type=click.IntRange(min=1), help="Replay at most so many.")
@click.option("--rate", type=click.FloatRange(min=0), default=0.0, help="Records a second. Default: as fast as it goes.")
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
@click.option(
    "--max-replays",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Leave out records that have been replayed so often already.",
)
@with_config
def replay(
    config: Config, codes: tuple[str, ...], since: int | None, most: int | None, rate: float, dry_run: bool, max_replays: int
) -> None:
    """Send dead letters again, each to the topic it came from, as it was.

    The dead letters themselves stay where they are until retention takes them; a second replay sends them again (the
    lifecycle topic drops such repeats by their request id). Records come in transactions of up to 500: an interrupted replay
    leaves no half of one behind.
    """
    configure(config.log)
    limits = Limits(most, max_replays, rate, dry_run)
    tally = Tally()
    try:
        with bar("replaying") as progress:
            asyncio.run(_replay(config, _selection(codes, since), limits, tally, progress))
    finally:
        for why, number in tally.refused.items():
            click.echo(f"left out {number}: {REFUSALS[why]}", err=True)
        for topic, number in tally.sent.items():
            click.echo(f"{'would send' if dry_run else 'sent'} {number} to {safe(topic, 249)}", err=True)
    if not tally.sent:
        click.echo("Nothing to replay.", err=True)


class Limits(NamedTuple):
    """How far a replay goes; `most` None means to the end."""

    most: int | None
    max_replays: int
    rate: float
    dry_run: bool


class Tally:
    """What was sent, by topic, and what was not, by reason."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()


async def _replay(config: Config, selection: Selection, limits: Limits, tally: Tally, progress: Advance) -> None:
    async with AsyncExitStack() as stack:
        letters = await stack.enter_async_context(aclosing(selected(config, selection, _moving(progress))))
        replayer = None if limits.dry_run else await stack.enter_async_context(replaying(config, limits.rate))
        left = sys.maxsize if limits.most is None else limits.most
        async for found in letters:
            planned = plan(config, found, limits.max_replays)
            tally.refused += planned.refused
            chosen = planned.letters[:left]
            left -= len(chosen)
            for chunk in _chunks(chosen, replayer.chunk if replayer else CHUNK):
                if replayer:
                    await replayer.send(chunk)
                tally.sent.update(letter.source for letter in chunk)
            if not left:
                return


async def _read(config: Config, selection: Selection, take: Callable[[Sequence[Letter]], bool], progress: Advance) -> None:
    """Hand over the selected letters as they come, until `take` has enough."""
    async with aclosing(selected(config, selection, _moving(progress))) as letters:
        async for found in letters:
            if not take(found):
                return


def _moving(progress: Advance) -> Callable[[Part], None]:
    return lambda part: progress(part.done, part.total)


def _chunks(letters: Sequence[Letter], size: int) -> Iterator[Sequence[Letter]]:
    for start in range(0, len(letters), size):
        yield letters[start : start + size]


def _selection(codes: tuple[str, ...], since: int | None) -> Selection:
    return Selection(frozenset(codes), -1 if since is None else since)


def _told(letter: Letter) -> str:
    """A dead letter for the eye."""
    record = letter.record
    when = datetime.fromtimestamp(max(record.timestamp, 0) / 1000, UTC).isoformat(timespec="milliseconds")
    lines = [f"{safe(letter.code, 80) or 'no code'}  {when}  ({record.topic}-{record.partition}@{record.offset})"]
    lines += [f"  {name:9} {safe(letter.error[name])}" for name in _SHOWN if name in letter.error]
    lines += [f"  replayed  {letter.replays} times"] if letter.replays else []
    if record.value is not None:
        lines.append(f"  record    {safe(record.value.decode(errors='replace'), 2_000)}")
    return "\n".join(lines) + "\n"
