"""A request -> a HookEvent, or every rule it breaks (docs/mapping.md, 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acs_aaep_bridge.config import Acs
from acs_aaep_bridge.core.hints import envelope_hint, payload_hint
from acs_aaep_bridge.core.hooks import HOOKS, SUBAGENT_STOP_SCHEMA
from acs_aaep_bridge.core.identity import timestamp_ms
from acs_aaep_bridge.core.model import HookEvent, Json, Reject, Violation, new
from acs_aaep_bridge.core.schemas import SchemaSet, Validator, violations

ENVELOPE_SCHEMA: Final = "urn:acs-aaep-bridge:schema:acs:envelope"
UNSIGNED: Final[Mapping[str, str]] = {"status": "unsigned"}
_PAYLOAD = "/params/payload"
_NAMED = 8


class RequestValidator:
    """The compiled rules of ACS 0.x. Built once; keeps nothing between requests.

    What is fine is asked of one schema, envelope and payload together; only what is not is taken apart.
    """

    def __init__(self, schemas: SchemaSet, acs: Acs) -> None:
        if acs.final_chain_hash == "optional":
            schemas = schemas.replacing(without_required(schemas.schema(SUBAGENT_STOP_SCHEMA), "final_chain_hash"))
        self._envelope = schemas.validator(ENVELOPE_SCHEMA)
        self._payloads = {method: schemas.validator(hook.schema) for method, hook in HOOKS.items()}
        self._whole = {method: schemas.compile(_whole(hook.schema)) for method, hook in HOOKS.items()}

    def accept(self, request: Json) -> HookEvent | None:
        """The event in a valid request of ACS 0.x by a hook that has a row. None: what it is, `fate` and `check` say."""
        method = request.get("method") if type(request) is dict else None
        whole = self._whole.get(method) if type(method) is str else None
        if whole is None or not whole.is_valid(request) or request["params"]["acs_version"][:2] != "0.":
            return None
        return _event(request)

    def check(self, request: dict[str, Json]) -> HookEvent | Reject:
        """Judge one request whose method and version are ours to judge. Never raises on bad input."""
        method = request.get("method")
        whole = self._whole.get(method, self._envelope) if type(method) is str else self._envelope
        if not whole.is_valid(request):
            return self._broken(request)
        return _event(request) or _unrepresentable(request["method"])

    def _broken(self, request: dict[str, Json]) -> Reject:
        method = request.get("method")
        name = method if type(method) is str else ""
        if found := violations(self._envelope, request):
            message = _message("the ACS envelope", found, envelope_hint(request, found))
            return Reject("normalize", "envelope_invalid", message, found, name, ENVELOPE_SCHEMA)
        return self._broken_payload(name, request["params"]["payload"])

    def _broken_payload(self, method: str, payload: Json) -> Reject:
        validator: Validator = self._payloads[method]
        found = tuple(Violation(_PAYLOAD + pointer, keyword) for pointer, keyword in violations(validator, payload))
        message = _message(f"the payload of {method}", found, payload_hint(payload, found))
        return Reject("normalize", "payload_invalid", message, found, method, HOOKS[method].schema)


def _event(request: dict[str, Json]) -> HookEvent | None:
    """The event in a valid request; None when its time cannot be represented."""
    params = request["params"]
    occurred_at = timestamp_ms(params["timestamp"])
    if occurred_at is None:
        return None
    identifier = request["id"]
    text = identifier if type(identifier) is str else jsonrpc_id(identifier)
    signed = signature(params) if "signature" in params else UNSIGNED
    return new(HookEvent, (request["method"], text, params, occurred_at, signed))


def signature(params: Mapping[str, Json]) -> Mapping[str, str]:
    """What is known of a signature nobody verified."""
    claimed = params.get("signature")
    if claimed is None:
        return UNSIGNED
    return {"status": "unverified", "algorithm": claimed["algorithm"], "key_id": claimed["key_id"]}


def jsonrpc_id(value: str | float) -> str:
    """The JSON-RPC id as text; 1.0 and 1 are the same number in JSON, so they are the same text."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return str(int(value))
    return str(value)


def without_required(schema: Mapping[str, Json], name: str) -> dict[str, Json]:
    """The schema less one required member: the published revision of the same `$id` for hosts without a hash chain."""
    return {**schema, "required": [member for member in schema["required"] if member != name]}


def _whole(payload_schema: str) -> dict[str, Json]:
    payload = {"properties": {"params": {"properties": {"payload": {"$ref": payload_schema}}}}}
    return {"allOf": [{"$ref": ENVELOPE_SCHEMA}, payload]}


def _unrepresentable(method: str) -> Reject:
    message = "the timestamp lies outside the years 1 to 9999 in UTC: correct the sender's clock or its offset"
    return Reject("normalize", "invalid_timestamp", message, (Violation("/params/timestamp", "format"),), method, ENVELOPE_SCHEMA)


def _message(what: str, found: tuple[Violation, ...], hint: str) -> str:
    named = ", ".join(f"{pointer or 'the whole'} ({keyword})" for pointer, keyword in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{what} is not valid: {named}{more}.{' ' + hint if hint else ''}"
