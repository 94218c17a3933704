"""Record + Reject -> the record that goes to the dead-letter topic.

The value, key, headers and timestamp are the original's, so that a replay needs nothing else; what went wrong stands
beside them in `bridge.error.*` headers. Headers of an earlier dead letter are replaced, never stacked.
"""

from __future__ import annotations

import re
from hashlib import sha256

import orjson

from acs_aaep_bridge import __version__
from acs_aaep_bridge.core.model import Headers, Outgoing, Record, Reject

ERROR_PREFIX = "bridge.error."
REPLAY_COUNT = "bridge.replay.count"
_COUNT = re.compile(rb"[0-9]{1,6}")


def replay_count(headers: Headers) -> int:
    """How often this record was replayed. Anything but a plain number counts as 0; of several the highest stands."""
    return max((int(value) for name, value in headers if name == REPLAY_COUNT and value and _COUNT.fullmatch(value)), default=0)


def original_headers(headers: Headers) -> Headers:
    """The headers the record had before it was ever dead-lettered."""
    return tuple(pair for pair in headers if not pair[0].startswith(ERROR_PREFIX) and pair[0] != REPLAY_COUNT)


def dead_letter(record: Record, reject: Reject, topic: str) -> Outgoing:
    """The rejected record, or the rejected element of its batch, as received, with the reason in headers."""
    value = record.value if reject.raw is None else reject.raw
    headers = original_headers(record.headers) + error_headers(record, reject)
    return Outgoing(topic, record.key, value, headers, record.timestamp)


def reference(record: Record, reject: Reject, topic: str) -> Outgoing:
    """Stands in for a record that the dead-letter topic cannot hold: where it is, how large, and its SHA-256.

    The key and the record's own headers may be what is too large, so they are left out; size and digest are of the value
    that `dead_letter` would have carried.
    """
    value = (record.value if reject.raw is None else reject.raw) or b""
    body = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "size": len(value),
        "sha256": sha256(value).hexdigest(),
    }
    headers = (*error_headers(record, reject), (ERROR_PREFIX + "truncated", b"true"))
    return Outgoing(topic, None, orjson.dumps(body), headers, record.timestamp)


def error_headers(record: Record, reject: Reject) -> Headers:
    """`bridge.error.*` and `bridge.replay.count`; what does not apply is absent."""
    fields = {
        "code": reject.code,
        "stage": reject.stage,
        "message": reject.message,
        "pointer": reject.pointer if reject.violations else None,
        "schema": reject.schema,
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "index": None if reject.element is None else str(reject.element),
        "version": __version__,
    }
    present = tuple((ERROR_PREFIX + name, text.encode()) for name, text in fields.items() if text is not None)
    return (*present, (REPLAY_COUNT, str(replay_count(record.headers)).encode()))
