"""Structured logs on standard error: JSON unless a person is watching, never payload content."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, TextIO, cast

import orjson
import structlog

from acs_aaep_bridge.config import Log
from acs_aaep_bridge.errors import BridgeError
from acs_aaep_bridge.telemetry.observer import Log as LogMethods

_LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_FOREIGN_MESSAGE = 300
_FRAMES = 5
_QUIET = 60.0
_REMEMBERED = 256


def configure(log: Log, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> LogMethods:
    """Set up structlog and the standard library's logging, for the whole process; gives the bridge's own logger.

    Libraries are heard from `warning` up (from `info` at level `debug`: below it aiokafka prints whole requests, records
    included). Their messages are cut to the first line, and exceptions in them are reduced to their type, since the text of
    a UnicodeDecodeError or of a future holds the bytes it failed on.
    """
    out = stream if stream is not None else sys.stderr
    as_json = log.format == "json" or (log.format == "auto" and not out.isatty())
    level = _LEVELS[log.level]
    render = _render_json if as_json else structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=_plain)
    structlog.configure(
        processors=[structlog.processors.add_log_level, _stamp(as_json), _bare_fields, render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    own = structlog.get_logger()
    root = logging.getLogger()
    root.handlers[:] = [_Foreign(own, clock)]
    root.setLevel(logging.INFO if log.level == "debug" else max(level, logging.WARNING))
    logging.captureWarnings(True)
    return cast("LogMethods", own)


def _stamp(as_json: bool) -> Any:
    return structlog.processors.TimeStamper(fmt="iso" if as_json else "%H:%M:%S", utc=as_json, key="time")


def _bare_fields(_: object, __: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {key: _bare(value) for key, value in fields.items()}


def _render_json(_: object, __: str, fields: MutableMapping[str, Any]) -> str:
    first = {key: fields[key] for key in ("time", "level", "event") if key in fields}
    ordered = {**first, **fields}
    try:
        return orjson.dumps(ordered, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # an integer beyond 64 bits, a lone surrogate: the line matters more than the type
        return orjson.dumps({key: ascii(value) for key, value in ordered.items()}).decode()


def _plain(sio: TextIO, exc_info: Any) -> None:
    sio.write(type(exc_info[1]).__name__)


class _Foreign(logging.Handler):
    """Puts a record of the standard library's logging into the structured log.

    What a library says again within a minute is counted, not written: aiokafka repeats some complaints every second for as
    long as they last.
    """

    def __init__(self, own: Any, clock: Callable[[], float]) -> None:
        super().__init__()
        self._own, self._clock = own, clock
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name, "message": _message(record)}
        repeated = self._repeated(record.name, fields["message"])
        if repeated is None:
            return
        if repeated:
            fields["repeated"] = repeated
        if record.exc_info and record.exc_info[1] is not None:
            fields |= _error(record.exc_info[1])
        write = self._own.error if record.levelno >= logging.ERROR else self._own.warning
        (write if record.levelno >= logging.WARNING else self._own.info)("library.message", **fields)

    def _repeated(self, name: str, message: str) -> int | None:
        """How often this was kept back since it was last written; None: it is to be kept back now."""
        now = self._clock()
        since, kept = self._said.get((name, message), (-_QUIET, 0))
        if now - since < _QUIET:
            self._said[name, message] = since, kept + 1
            return None
        if len(self._said) >= _REMEMBERED:
            self._said.clear()
        self._said[name, message] = now, 0
        return kept


def _message(record: logging.LogRecord) -> str:
    args: Any = record.args
    args = tuple(map(_bare, args)) if isinstance(args, tuple) else _bare(args)
    try:
        text = str(record.msg) % args if args else str(record.msg)
    except Exception:  # an argument that cannot be printed must not take the process down
        text = str(record.msg)
    first, *_ = text.splitlines() or [""]
    return first[:_FOREIGN_MESSAGE]


def _bare(value: object) -> object:
    """`value` without what may be payload: bytes become their length, exceptions their type.

    Our own errors, broker errors and OS errors keep their text: they quote no record, and say what an operator needs.
    """
    match value:
        case BridgeError() | OSError():
            return str(value)
        case BaseException():
            return str(value) if type(value).__module__.startswith("aiokafka.") else type(value).__name__
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case Mapping():
            return {key: _bare(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_bare(item) for item in value]
        case _:
            return value


def _error(error: BaseException) -> dict[str, Any]:
    """The exception's type and where it came from, innermost frame last; not its text."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "where": where}
