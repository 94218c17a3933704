"""An AAEP event as bytes within the protocol's size (AAEP 3: 64 KiB serialized)."""

from __future__ import annotations

from typing import Any

import orjson

from acs_aaep_bridge.core.cut import cut_to

MAX_EVENT_BYTES = 64 << 10
_LEAST = 1 << 10
_TEXTS = ("summary_detailed", "output_summary", "partial_result", "args_summary", "chunk", "summary_normal", "summary_terse")
_SPARED = ("summary_detailed", "output_summary", "partial_result", "summary_terse")


def encode(event: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The event and its JSON. Too large, the longest text is cut again and again until it fits; a terminal event always fits."""
    data = orjson.dumps(event)
    return (event, data) if len(data) <= MAX_EVENT_BYTES else _shrunk(dict(event))


def _shrunk(event: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    data = _cut(event)
    if len(data) > MAX_EVENT_BYTES:
        acs = event["extensions"]["acs"]
        event["extensions"] = {"acs": {name: value for name, value in acs.items() if name != "summary_provenance"}}
        data = _cut(event)
    for name in _SPARED:
        if len(data) > MAX_EVENT_BYTES and event.pop(name, None) is not None:
            data = orjson.dumps(event)
    return event, data


def _cut(event: dict[str, Any]) -> bytes:
    while (over := len(data := orjson.dumps(event)) - MAX_EVENT_BYTES) > 0:
        name = max((name for name in _TEXTS if name in event), key=lambda name: _size(event[name]), default="")
        size = _size(event[name]) if name else 0
        if size <= _LEAST:
            break
        event[name] = cut_to(event[name], max(size - over, size * 3 // 4, _LEAST), _size)
    return data


def _size(text: str) -> int:
    return len(orjson.dumps(text))
