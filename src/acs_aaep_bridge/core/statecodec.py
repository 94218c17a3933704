"""A session's entry in the changelog: bytes that every later version must be able to read, or refuse by name.

    version  1 byte    `VERSION`; another one is unreadable, never guessed at
    flags    1 byte    what the deadline and the eviction order depend on
    check    4 bytes   CRC-32 of everything behind the header
    seen     8 bytes   stream time of the last hook, ms
    due      8 bytes   when something held or answered is due, ms; -1 when nothing is
    repeats  2 bytes   length of the request digests, which are the entry's last bytes
    body     JSON      one array; members are told apart by their place

Big-endian. The header alone tells when the session needs attention, so a restore reads headers and decodes a body only
when its session is heard of again.
"""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import orjson

from acs_aaep_bridge.core.announce import Name, Result
from acs_aaep_bridge.core.attention import Header, header_of
from acs_aaep_bridge.core.normalized import Context, Position
from acs_aaep_bridge.core.session import Answer, Call, Ending, Held, Open, SessionState, Subagent
from acs_aaep_bridge.errors import UnreadableState

VERSION = 1
MAX_ENTRY_BYTES = 128 << 10
"""Above what its parts are kept to: 64 KiB for what a held ending says, 32 for open calls, 12 for sources, 6 for each of two
contexts (five labels of 256 characters, each of four bytes at most), and 4 for everything else."""

_HEADER = struct.Struct(">BBIqqH")
_OPEN, _BRIEF, _CALLS, _INFERRED = 1, 2, 4, 8
_STEPS = "steps/"


def encode(state: SessionState) -> bytes:
    """The changelog value of `state`; below 1 KiB for a typical session, below `MAX_ENTRY_BYTES` for any."""
    head = header_of(state)
    flags = head.open * _OPEN | head.brief * _BRIEF | head.calls * _CALLS | head.inferred * _INFERRED
    rest = orjson.dumps(_body(state), default=tuple) + state.repeats  # orjson refuses named tuples by itself
    due = -1 if head.due is None else head.due
    return _HEADER.pack(VERSION, flags, crc32(rest), head.seen, due, len(state.repeats)) + rest


def read_header(key: bytes, value: bytes) -> Header:
    """The header of an entry that is whole; raises UnreadableState naming the key otherwise."""
    version = value[0] if value else -1
    if version != VERSION:
        raise UnreadableState(
            f"the session {_printable(key)} was written in format {version}, this version reads format {VERSION}: "
            "run the version that wrote it, or give the new one a new changelog topic"
        )
    if len(value) < _HEADER.size:
        raise UnreadableState(f"the session {_printable(key)} is cut off after {len(value)} bytes")
    _, flags, check, seen, due, _ = _HEADER.unpack_from(value)
    if crc32(memoryview(value)[_HEADER.size :]) != check:
        raise UnreadableState(f"the session {_printable(key)} is damaged: its checksum does not fit")
    return Header(
        bool(flags & _OPEN), bool(flags & _BRIEF), bool(flags & _CALLS), bool(flags & _INFERRED), seen, None if due < 0 else due
    )


def decode(key: bytes, value: bytes) -> SessionState:
    """The session in an entry. Raises UnreadableState naming the key."""
    head = read_header(key, value)
    repeats = _HEADER.unpack_from(value)[5]
    end = len(value) - repeats
    try:
        return _state(orjson.loads(memoryview(value)[_HEADER.size : end]), head.seen, value[end:])
    except (ValueError, TypeError, IndexError) as error:
        raise UnreadableState(f"the session {_printable(key)} does not have the shape of format {VERSION}") from error


def _body(state: SessionState) -> list[Any]:
    return [
        state.subject,
        state.tenant,
        state.stamp,
        state.subagent,
        None if state.open is None else _open(state.open),
        None if state.held is None else _held(state.held),
        state.turns,
        state.responded,
        state.closed,
        state.late,
        state.sources,
    ]


def _state(body: list[Any], seen: int, repeats: bytes) -> SessionState:
    subject, tenant, stamp, subagent, open_, held, turns, responded, closed, late, sources = body
    return SessionState(
        subject,
        tenant,
        seen,
        stamp,
        None if subagent is None else Subagent(*subagent),
        None if open_ is None else _read_open(open_, subject),
        None if held is None else _read_held(held, subject),
        turns,
        responded,
        tuple(closed),
        tuple(late),
        repeats,
        tuple(Position(*source) for source in sources),
    )


def _open(open_: Open) -> list[Any]:
    return [*open_._replace(context=_context(open_.context))]


def _read_open(row: list[Any], subject: str) -> Open:
    sess, opened, last, context, started, turn, nested, state, calls, invoked, triggered, answer = row
    return Open(
        sess,
        opened,
        last,
        _read_context(context, subject),
        started,
        turn,
        tuple(nested),
        state,
        tuple(Call(*call) for call in calls),
        invoked,
        triggered,
        None if answer is None else Answer(*answer),
    )


def _held(held: Held) -> list[Any]:
    return [held.is_stop, held.due, held.at, _context(held.context), held.ending]


def _read_held(row: list[Any], subject: str) -> Held:
    is_stop, due, at, context, (name, reason, result, steps, successor, extension) = row
    ending = Ending(
        name,
        reason,
        None if result is None else Result(*result),
        steps,
        None if successor is None else Name(*successor),
        extension,
    )
    return Held(is_stop, due, at, _read_context(context, subject), ending)


def _context(context: Context) -> Any:
    """Without what the entry says already: the subject, and the sender where it is the subject."""
    sender = None if context.sender == context.subject else context.sender
    return [context.hook.removeprefix(_STEPS), context.request_id, sender, *context[4:]]


def _read_context(row: list[Any], subject: str) -> Context:
    hook, request_id, sender, *rest = row
    return Context(_STEPS + hook, request_id, sender or subject, subject, *rest)


def _printable(key: bytes) -> str:
    return ascii(key.decode("utf-8", "replace"))
