"""What to do about a request that breaks the rules: hints for the mistakes that senders really make.

A hint looks at the form of a request, at the names the protocols define and at types; it never repeats a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acs_aaep_bridge.core.model import Json, Violation

Request = dict[str, Json]

_WRAPPERS = ("envelope", "request", "message", "event", "data", "record", "body")
_HOST_MEMBERS = {"hook_event_name", "session_id", "sessionId", "conversation_id", "transcript_path"}
_PARAMS = ("acs_version", "request_id", "timestamp", "metadata")


def envelope_hint(request: Request, found: Sequence[Violation]) -> str:
    """One or two sentences for the first form that fits, "" when none does."""
    for fits, text in _FORMS:
        if fits(request):
            return text
    params = request.get("params")
    broken = {violation.pointer for violation in found}
    return " ".join(text for pointer, fits, text in _MEMBERS if pointer in broken and fits(_at(request, params, pointer)))


def payload_hint(payload: Request, found: Sequence[Violation]) -> str:
    """What to do about a payload, "" when nothing better than the list of violations is known."""
    if Violation("/params/payload/final_chain_hash", "required") in found:
        return "For hosts that keep no hash chain set acs.final_chain_hash: optional."
    names = {violation.pointer.removeprefix("/params/payload/") for violation in found if violation.keyword != "required"}
    if any(name in payload and payload[name] is None for name in names):
        return "A member that is not known is left out, not null."
    if any(name.startswith("arguments/") for name in names):
        return 'Each argument is an object that holds its value: {"value": …}.'
    if any(name.endswith("session_id") for name in names):
        return "A subagent's session id is a UUID with its dashes."
    return ""


def _at(request: Request, params: Json, pointer: str) -> Json:
    node: Json = params if pointer.startswith("/params/") else request
    for name in pointer.removeprefix("/params").split("/")[1:]:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _holds_request(value: Json) -> bool:
    return isinstance(value, dict) and "jsonrpc" in value


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and value.isdecimal())


_FORMS: tuple[tuple[Callable[[Request], bool], str], ...] = (
    (
        lambda request: not request.keys() & {"jsonrpc", "params"} and bool(request.keys() & _HOST_MEMBERS),
        "This is the hook JSON of an agent host, not an ACS request: put an ACS adapter between the host and the topic.",
    ),
    (
        lambda request: "jsonrpc" not in request and "schema" in request and "payload" in request,
        "This is Kafka Connect's schema and payload wrapper: set value.converter.schemas.enable=false at the source.",
    ),
    (
        lambda request: "specversion" in request and "jsonrpc" not in request,
        "This is a CloudEvent: send it with content-type application/cloudevents+json and keep cloudevents in input.formats.",
    ),
    (
        lambda request: "jsonrpc" not in request and any(_holds_request(request.get(name)) for name in _WRAPPERS),
        "The ACS request lies inside a wrapper, as audit logs write it: publish the request itself.",
    ),
    (
        lambda request: any(name in request for name in _PARAMS),
        "acs_version, request_id, timestamp, metadata and payload belong inside params.",
    ),
    (
        lambda request: "method" not in request and any(name.lower() == "method" for name in request),
        "Member names are case-sensitive: method is written in lower case.",
    ),
    (
        lambda request: "jsonrpc" in request and request.get("id") is None,
        "A JSON-RPC notification (no id) is not an ACS request: give each request an id.",
    ),
)

_MEMBERS: tuple[tuple[str, Callable[[Json], bool], str], ...] = (
    ("/params/timestamp", _is_number, "timestamp is RFC 3339 text such as 2026-05-24T14:22:38.921Z, not a number."),
    (
        "/params/timestamp",
        lambda value: isinstance(value, str) and not _is_number(value),
        "timestamp is RFC 3339 with an offset, such as 2026-05-24T14:22:38.921Z.",
    ),
    (
        "/params/metadata/session_id",
        lambda value: value is not None,
        "session_id is a UUID with its dashes: where the host has another kind of id, the adapter derives a UUID from it.",
    ),
    (
        "/params/request_id",
        lambda value: value is not None,
        "request_id is a UUID with its dashes, a new one each time a hook fires.",
    ),
)
