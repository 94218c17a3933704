"""A record's bytes -> its ACS requests, and what is not an event at all (docs/mapping.md, 8).

Other input formats stand in front of this: they end in JSON bytes for `read`, or in a request or `Batch` of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import orjson

from acs_aaep_bridge.config import Limits
from acs_aaep_bridge.core.hooks import HOOKS
from acs_aaep_bridge.core.model import Json, Reject, Skip, Violation

_BLANK = b" \t\n\r"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)'
_STRINGS = re.compile(_STRING, re.DOTALL)
_TOKENS = re.compile(_STRING + rb"|[\[{]+|[\]}]+|,", re.DOTALL)
_NO_BRACKET = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEP = [1 if byte in b"[{" else -1 for byte in range(256)]
_METHOD = re.compile(r"(?:steps/|protocols/|agbom/|trace/|system/|handshake/|wrapped:)[^\n\r\u2028\u2029]")
_VERSION = re.compile(r"([0-9]+)\.[0-9]+\.[0-9]+")


class Batch(NamedTuple):
    """A JSON-RPC batch: its requests in order, one that cannot be read as its Reject, and the JSON as received."""

    requests: Sequence[Json]
    payload: bytes


def read(payload: bytes, limits: Limits) -> Json | Batch | Reject:
    """Parse one record value: a request, not judged yet, or a batch. Strict RFC 8259 in UTF-8, doubles that are finite."""
    if len(payload) > limits.max_record_bytes:
        return _too_large(f"the record has {len(payload)} bytes, limits.max_record_bytes is {limits.max_record_bytes}")
    # How many arrays and objects there can be at most: nearly always few enough to know that none nests too deep.
    # Deleting a byte looks for it with memchr, which takes half the time of counting it.
    if 2 * len(payload) - len(payload.replace(b"{", b"")) - len(payload.replace(b"[", b"")) > limits.max_depth:
        batch = payload.lstrip(_BLANK).startswith(b"[")
        if _deeper(payload, limits.max_depth + batch):
            return _read_apart(payload, limits) if batch else _too_deep(limits)
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        return _malformed(payload, error)
    if type(value) is list:
        return _batch_problem(len(value), limits) or Batch(value, payload)
    return value


def fate(request: Json) -> Skip | Reject | None:
    """What is decided before any schema: not an event, not one we know, not a version we read. None: go on and validate."""
    if type(request) is not dict:
        return _not_a_request(request)
    method = request.get("method")
    if type(method) is str:
        if method not in HOOKS and (other := _other_method(method)):
            return other
    elif "method" not in request and ("result" in request or "error" in request):
        return Skip("response")
    params = request.get("params")
    version = params.get("acs_version") if type(params) is dict else None
    if type(version) is str and not version.startswith("0."):
        return _other_version(version, method if type(method) is str else "")
    return None


def elements(payload: bytes) -> list[bytes] | None:
    """The bytes of each element of a JSON array, as received, without the blanks around them.

    None when brackets do not close or something follows; what lies between them is not judged.
    """
    spans: list[bytes] = []
    depth, start, end = 0, 0, -1
    for token in _TOKENS.finditer(payload):
        first, after = token.span()
        kind = payload[first]
        if kind in b"[{":
            if depth == 0:
                if end >= 0:
                    return None
                start = first + 1
            depth += after - first
        elif kind in b"]}":
            depth -= after - first
            if depth <= 0:
                spans.append(payload[start : after - 1].strip(_BLANK))
                end = after
        elif kind in b"," and depth == 1:
            spans.append(payload[start:first].strip(_BLANK))
            start = after
    closed = depth == 0 and end > 0 and not payload[end:].strip(_BLANK)
    return spans if closed else None


def part(payload: bytes, element: int) -> bytes | None:
    """The bytes of one element of a JSON-RPC batch, as received; None when the payload wraps the batch in another format."""
    found = elements(payload)
    return found[element] if found is not None and element < len(found) else None


def _read_apart(payload: bytes, limits: Limits) -> Batch | Reject:
    """A batch with something too deep in it: every element stands alone, so the others are still read."""
    parts = elements(payload)
    if parts is None:
        return _too_deep(limits)
    if problem := _batch_problem(len(parts), limits):
        return problem
    requests: list[Json] = []
    try:
        for part in parts:
            requests.append(_too_deep(limits) if _deeper(part, limits.max_depth) else orjson.loads(part))
    except orjson.JSONDecodeError as error:
        return _malformed(payload, error)
    if all(type(request) is Reject for request in requests):
        return _too_deep(limits)
    return Batch(requests, payload)


def _deeper(payload: bytes, limit: int) -> bool:
    """Whether arrays and objects nest deeper than `limit`, exactly: brackets inside strings do not count."""
    brackets = _STRINGS.sub(b"", payload).translate(None, _NO_BRACKET)
    return any(depth > limit for depth in accumulate(map(_STEP.__getitem__, brackets)))


def _other_method(method: str) -> Skip | Reject | None:
    if method == "system/ping":
        return Skip("ping", method)
    if method.startswith("system/") or not _METHOD.match(method):
        message = (
            "this is not a method of ACS 0.x (steps/, protocols/, agbom/, trace/, wrapped:): "
            "correct the sender, or keep such records off this topic"
        )
        return Reject("normalize", "unknown_method", message, (Violation("/method", "pattern"),), method)
    return Skip("handshake", method) if method.startswith("handshake/") else None


def _other_version(version: str, method: str) -> Reject | None:
    match = _VERSION.fullmatch(version)
    if match is None or not match[1].strip("0"):
        return None
    message = "the sender speaks another major version of ACS than 0: this bridge cannot know what its fields mean"
    return Reject("normalize", "unsupported_version", message, (Violation("/params/acs_version", "const"),), method)


def _not_a_request(request: Json) -> Reject:
    if type(request) is Reject:
        return request
    if type(request) is list:
        return Reject(
            "normalize", "envelope_invalid", "a batch inside a batch: send one array of requests", (Violation("", "type"),)
        )
    message = "the value is JSON, but not an object: each record is one JSON-RPC request, or an array of them"
    return Reject("normalize", "not_an_object", message, (Violation("", "type"),))


def _batch_problem(size: int, limits: Limits) -> Reject | None:
    if size == 0:
        return Reject("normalize", "envelope_invalid", "an empty batch holds no request", (Violation("", "minItems"),))
    if size > limits.max_batch:
        return _too_large(f"the batch has {size} requests, limits.max_batch is {limits.max_batch}")
    return None


def _too_large(what: str) -> Reject:
    return Reject("normalize", "too_large", f"{what}: send smaller records, or raise the limit here and on the topics")


def _too_deep(limits: Limits) -> Reject:
    message = f"arrays and objects nest deeper than limits.max_depth, {limits.max_depth}: flatten what is sent"
    return Reject("normalize", "too_deep", message)


def _malformed(payload: bytes, error: orjson.JSONDecodeError) -> Reject:
    try:
        payload.decode()
    except UnicodeDecodeError as wrong:
        message = f"the value is not UTF-8 (at byte {wrong.start}): ACS is JSON in UTF-8"
        return Reject("normalize", "not_utf8", message)
    return Reject("normalize", "malformed_json", f"the value is not one JSON document: {error}.{_encoding_hint(payload)}")


def _encoding_hint(payload: bytes) -> str:
    if not payload.strip(_BLANK):
        return " An empty value is not a tombstone: that is a null value."
    if payload.startswith(b"\xef\xbb\xbf"):
        return " Write it without a byte order mark."
    if b"\0" in payload[:4]:
        return " It looks like UTF-16, UTF-32 or a schema registry's wire format: see input.formats."
    return ""
