"""`sessions list | show`: which sessions are open, read from the changelog; for "the agent seems stuck"."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
import orjson

from acs_aaep_bridge.cli.options import as_duration, with_config
from acs_aaep_bridge.cli.progress import Advance, bar
from acs_aaep_bridge.cli.reading import to_end
from acs_aaep_bridge.cli.terminal import columns, safe
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.session import Open, SessionState
from acs_aaep_bridge.core.statecodec import decode
from acs_aaep_bridge.errors import UnreadableState, UsageError
from acs_aaep_bridge.kafka.entries import NEXT_OFFSET_KEY
from acs_aaep_bridge.telemetry.logs import configure

_HEADINGS = ("SESSION", "KIND", "AGE", "SILENT", "STATE", "CALLS", "AGENT", "PARENT")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


@click.group()
def sessions() -> None:
    """List the sessions that are open, or show one.

    Read from the changelog, so as of the last commit; no running bridge is asked or disturbed.
    """


@sessions.command("list")
@click.option(
    "--silent-for", callback=as_duration, metavar="DURATION", help="Only those of which nothing was heard for so long, like 10m."
)
@click.option("--all", "closed_too", is_flag=True, help="Also those that have ended and are still remembered.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line each.")
@with_config
def list_(config: Config, silent_for: int | None, closed_too: bool, as_json: bool) -> int:
    """List open sessions: the longest silent first.

    KIND is a user's request or a subagent. CALLS counts the tool calls that were not answered. Exit code 1 if an entry
    cannot be read by this version.
    """
    found = _load(config)
    now = _now()
    wanted = [one for one in found.states if (closed_too or one.open) and now - one.seen >= (silent_for or 0)]
    wanted.sort(key=lambda one: (one.seen, one.subject))
    if as_json:
        for one in wanted:
            click.echo(orjson.dumps(described(one, now)))
    else:
        for line in columns([_HEADINGS, *(_row(one, now) for one in wanted)]) if wanted else ["No open sessions."]:
            click.echo(line)
    return _complain(found.unreadable)


@sessions.command()
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="As one JSON line.")
@with_config
def show(config: Config, session: str, as_json: bool) -> int:
    """Show what is known about one SESSION: an ACS session id, or an AAEP one (sess_…)."""
    found = _load(config)
    wanted = _hex(session)
    matching = [one for one in found.states if _hex(one.subject) == wanted]
    if not matching:
        code = _complain(found.unreadable)
        raise UsageError(f"the changelog knows no session {safe(session, 80)}{' among those it can read' if code else ''}")
    told = described(matching[0], _now())
    if as_json:
        click.echo(orjson.dumps(told))
    else:
        for line in columns([(name, safe(_shown(value))) for name, value in told.items()]):
            click.echo(line)
    return _complain(found.unreadable)


class Loaded(NamedTuple):
    """Every session in the changelog, and why some entries could not be read."""

    states: Sequence[SessionState]
    unreadable: Sequence[str]


def _load(config: Config) -> Loaded:
    configure(config.log)
    with bar("reading") as progress:
        entries = asyncio.run(_entries(config, progress))
    states: list[SessionState] = []
    unreadable: list[str] = []
    for key, value in entries.items():
        try:
            states.append(decode(key, value))
        except UnreadableState as error:
            unreadable.append(str(error))
    return Loaded(states, unreadable)


async def _entries(config: Config, progress: Advance) -> dict[bytes, bytes]:
    """The last value of each key; a key lives in one partition, so its order is that of the log."""
    entries: dict[bytes, bytes] = {}
    async with aclosing(to_end(config, config.topics.changelog)) as parts:
        async for part in parts:
            progress(part.done, part.total)
            for record in part.records:
                if record.key is None or record.key == NEXT_OFFSET_KEY:
                    continue
                if record.value is None:
                    entries.pop(record.key, None)
                else:
                    entries[record.key] = record.value
    return entries


def described(state: SessionState, now: int) -> dict[str, Any]:
    """The session for people and scripts; absent what does not apply. Times in RFC 3339, durations in seconds."""
    open_, subagent = state.open, state.subagent
    told: dict[str, Any] = {
        "session": state.subject,
        "kind": "subagent" if subagent else "request",
        "open": open_ is not None,
        "aaep_session": open_ and open_.sess,
        "agent": _agent(state),
        "parent": subagent and subagent.parent,
        "tenant": state.tenant,
        "state": open_ and open_.state,
        "started": open_ and _written(open_.opened),
        "start_reported": open_ and not open_.inferred,
        "age_seconds": open_ and max(0, now - open_.opened) // 1000,
        "last_heard": _written(state.seen),
        "silent_seconds": max(0, now - state.seen) // 1000,
        "last_hook": open_ and open_.context.hook,
        "open_calls": open_ and [call.name or call.tool for call in open_.calls],
        "waits_for": _waits(state),
    }
    return {name: value for name, value in told.items() if value is not None}


def _agent(state: SessionState) -> str | None:
    if state.subagent and state.subagent.name:
        return state.subagent.name
    return (state.open.context.agent_name or state.open.context.agent_id or None) if state.open else None


def _waits(state: SessionState) -> str | None:
    """What a session that has a hook held back is waiting for."""
    if state.held is None:
        return None
    return "its open calls, or its answer" if state.held.is_stop else "its subagentStop"


def _row(state: SessionState, now: int) -> tuple[str, ...]:
    open_: Open | None = state.open
    return (
        state.subject,
        "subagent" if state.subagent else "request",
        _duration(now - open_.opened) if open_ else "-",
        _duration(now - state.seen),
        ("held" if state.held else open_.state) if open_ else "ended",
        str(len(open_.calls)) if open_ else "-",
        safe(_agent(state) or "-", 40),
        (state.subagent and state.subagent.parent) or "-",
    )


def _duration(milliseconds: int) -> str:
    """The two largest units, like 2h05m."""
    left = max(0, milliseconds) // 1000
    parts: list[str] = []
    for size, unit in _UNITS:
        if left >= size or parts:
            parts.append(f"{left // size:0{2 if parts else 1}d}{unit}")
            left %= size
    return "".join(parts[:2]) or "0s"


def _complain(unreadable: Sequence[str]) -> int:
    for why in unreadable:
        click.echo(f"error: {safe(why)}", err=True)
    return 1 if unreadable else 0


def _hex(session: str) -> str:
    """What identifies a session in any of its spellings: a request's id holds its session's, and more."""
    return session.lower().removeprefix("sess_").replace("-", "")[:32]


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _written(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _now() -> int:
    return time.time_ns() // 1_000_000
