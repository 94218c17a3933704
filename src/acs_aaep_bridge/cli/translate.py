"""`translate` and `explain`: what the bridge makes of recorded hooks, without a broker."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import click
import orjson

from acs_aaep_bridge.cli.lines import described, lines, opened, plain
from acs_aaep_bridge.cli.options import as_timestamp, with_config
from acs_aaep_bridge.cli.preview import Batch, Emitted, Preview, Rejected, Released, Verdict
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import Json, Outgoing, Skip

EXPLAINED_NOTES: Final = frozenset({"held", "duplicate", "late", "after_end", "orphan_result", "no_request", "clock_ahead"})
"""The remarks that say why less came out than went in; the others are told by the events themselves."""

_UNSAFE: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def _over_records(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument and options that both commands share."""
    for decorator in (
        click.option(
            "--until",
            metavar="TIMESTAMP",
            callback=as_timestamp,
            help="Let time pass up to here after the last record, so that silent sessions end. Default: they stay open.",
        ),
        click.option(
            "--records",
            is_flag=True,
            help='Each line describes a whole Kafka record: {"value": text or null, or "value_base64"; and if known "key", '
            '"headers", "timestamp" (milliseconds), "topic", "partition", "offset"}. Timestamps make timers work.',
        ),
        click.argument("file", default="-"),
    ):
        command = decorator(command)
    return command


@click.command()
@_over_records
@with_config
def translate(config: Config, file: str, records: bool, until: int | None) -> int:
    """Turn recorded hooks into AAEP lifecycle events.

    FILE holds one raw ACS record (JSON) a line; a .json file may also be one object or one JSON-RPC batch over many lines.
    `-`, the default, is standard input. Events go to standard output, one a line, exactly as the bridge would publish them;
    rejected records to standard error, as one line of JSON each. What is held back at the end of the input is settled.

    Exit code: 0, or 1 if any record was rejected.
    """
    out, err = sys.stdout.buffer, sys.stderr.buffer
    rejected = False
    for number, verdict in _verdicts(config, file, records, until):
        for one in verdict.results if isinstance(verdict, Batch) else (verdict,):
            match one:
                case Emitted() | Released():
                    out.writelines((outgoing.value or b"") + b"\n" for outgoing in one.lifecycle)
                case Rejected():
                    rejected = True
                    out.flush()
                    err.write(orjson.dumps(explained(one) | {"line": number}) + b"\n")
                    err.flush()
                case Skip():
                    pass
        if file == "-":
            out.flush()
    return 1 if rejected else 0


@click.command()
@_over_records
@with_config
def explain(config: Config, file: str, records: bool, until: int | None) -> None:
    """Say for each record what the bridge makes of it, as one line of JSON.

    \b
    {"outcome":"emit","normalized":[…],"lifecycle":[…]}     accepted; "notes" says why less came out
    {"outcome":"skip","reason":…}                           not an event
    {"outcome":"reject","stage":…,"code":…,"pointer":…,"message":…,"line":…}
    {"outcome":"batch","results":[…],"line":…}              a JSON-RPC batch, one verdict an element
    {"outcome":"timer","lifecycle":[…]}                     due before the next record
    {"outcome":"end_of_input","lifecycle":[…]}              held back, settled because nothing follows

    Notes: held duplicate late after_end orphan_result no_request clock_ahead. FILE as in `translate`.

    Exit code: 0 whatever the verdicts.
    """
    out = sys.stdout.buffer
    for number, verdict in _verdicts(config, file, records, until):
        place = {"line": number} if isinstance(verdict, Rejected | Batch) else {}
        text = orjson.dumps(explained(verdict) | place).decode()
        out.write(_UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode() + b"\n")
        if file == "-" or sys.stdout.isatty():
            out.flush()


def _verdicts(config: Config, file: str, records: bool, until: int | None) -> Iterator[tuple[int, Verdict]]:
    """Each verdict with the number of its line."""
    # What is shown is JSON, and no registry is asked.
    preview = Preview(config.model_copy(update={"normalized": config.normalized.model_copy(update={"format": "json"})}))
    topic = config.input.topics[0] if config.input.topics else "raw"
    index = 0
    with opened(file) as source:
        for line in lines(source, file):
            for record in described(line, index, topic) if records else (plain(line, index, topic),):
                index += 1
                for verdict in preview.feed(record):
                    yield line.number, verdict
    for verdict in preview.finish(until):
        yield 0, verdict


def explained(verdict: Verdict) -> Json:
    """The verdict as JSON."""
    match verdict:
        case Batch():
            return {"outcome": "batch", "results": [explained(one) for one in verdict.results]}
        case Released():
            return {"outcome": verdict.why, "lifecycle": _values(verdict.lifecycle)}
        case Skip():
            return {"outcome": "skip", "reason": verdict.reason}
        case Rejected():
            return _rejected(verdict)
        case Emitted():
            notes = [note for note in verdict.notes if note in EXPLAINED_NOTES]
            told: Json = {"outcome": "emit", "normalized": _values(verdict.normalized), "lifecycle": _values(verdict.lifecycle)}
            return told | ({"notes": notes} if notes else {})


def _rejected(verdict: Rejected) -> Json:
    reject = verdict.reject
    told: Json = {
        "outcome": "reject",
        "stage": reject.stage,
        "code": reject.code,
        "pointer": reject.pointer,
        "message": reject.message,
    }
    if len(reject.violations) > 1:
        told["pointers"] = [violation.pointer for violation in reject.violations]
    if verdict.normalized:
        told["normalized"] = _values(verdict.normalized)
    return told


def _values(outgoing: Sequence[Outgoing]) -> list[Json]:
    """The bytes as they would be published: parsing them again could only change them."""
    return [orjson.Fragment(one.value or b"null") for one in outgoing]
