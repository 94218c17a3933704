"""Was this request signed by someone who has the secret? (ACS 1.5 as docs/formats.md quotes it)

The signed bytes are the RFC 8785 canonical form of the whole envelope without `params.signature`; the key is derived per
session with HKDF-SHA256 from a shared secret that the sender names by `key_id`. Pure: secrets come in as bytes, and an
envelope is looked at as it was received, before anything is normalized.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import orjson
import rfc8785
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from acs_aaep_bridge.core.model import Json, Violation

Mode = Literal["off", "verify", "require"]
Status = Literal["unsigned", "unverified", "verified", "invalid"]

ALGORITHM = "HMAC-SHA256"
_EXACT = 2**53 - 1
_POINTER = "/params/signature"


class Verdict(NamedTuple):
    """`unverified`: there is a signature, and it could not be checked; `why` says what was in the way."""

    status: Status
    why: str = ""


class Refusal(NamedTuple):
    """Why the mode does not let the event pass: a dead-letter code, its message and the place."""

    code: str
    message: str
    violation: Violation


UNSIGNED = Verdict("unsigned")
_VERIFIED = Verdict("verified")
_NOT_CHECKED = Verdict("unverified", "signature.mode is off")
_OTHER_ALGORITHM = Verdict("unverified", f"its algorithm is not {ALGORITHM}, the only one checked here")
_OTHER_KEY = Verdict("unverified", "its key_id is not among signature.keys")
_NO_CANONICAL_FORM = Verdict("unverified", "the request has no RFC 8785 form (an integer beyond 2^53-1, for example)")
_MISMATCH = Verdict("invalid", "its value is not that of this request under this key")


class Verifier:
    """Checks signatures under one mode and a set of secrets by `key_id`, which may be replaced at any time.

    None of it blocks or raises on bad input.
    """

    def __init__(self, mode: Mode, secrets: Mapping[str, bytes] | None = None) -> None:
        self.mode = mode
        self._secrets: dict[str, bytes] = dict(secrets or {})

    def use(self, secrets: Mapping[str, bytes]) -> None:
        """Replace all secrets, for events from now on."""
        self._secrets = dict(secrets)

    def check(self, envelope: Mapping[str, Json]) -> Verdict:
        """The verdict on a request whose envelope is valid. The envelope is not changed."""
        signature = envelope["params"].get("signature")
        if signature is None:
            return UNSIGNED
        if self.mode == "off":
            return _NOT_CHECKED
        if signature["algorithm"] != ALGORITHM:
            return _OTHER_ALGORITHM
        secret = self._secrets.get(signature["key_id"])
        if secret is None:
            return _OTHER_KEY
        return _compare(envelope, secret, signature["value"])

    def refusal(self, verdict: Verdict) -> Refusal | None:
        """Why an event with this verdict goes to the dead-letter topic; None when it may pass."""
        if verdict.status == "invalid":
            return Refusal("signature_invalid", f"the signature is wrong: {verdict.why}", Violation(_POINTER, "signature"))
        if self.mode != "require" or verdict.status == "verified":
            return None
        if verdict.status == "unsigned":
            message = "there is no signature, and signature.mode is require"
            return Refusal("signature_missing", message, Violation(_POINTER, "required"))
        message = f"the signature could not be checked, and signature.mode is require: {verdict.why}"
        return Refusal("signature_invalid", message, Violation(_POINTER, "signature"))


def _compare(envelope: Mapping[str, Json], secret: bytes, value: str) -> Verdict:
    expected = _value(envelope, secret)
    if expected is None:
        return _NO_CANONICAL_FORM
    # The texts are compared, not what they decode to: base64 has several spellings of one value.
    return _VERIFIED if hmac.compare_digest(expected, value.encode()) else _MISMATCH


def _value(envelope: Mapping[str, Json], secret: bytes) -> bytes | None:
    signed = canonical(envelope)
    if signed is None:
        return None
    key = session_key(secret, envelope["params"]["metadata"]["session_id"])
    return base64.b64encode(hmac.digest(key, signed, "sha256"))


def canonical(envelope: Mapping[str, Json]) -> bytes | None:
    """The bytes that are signed; None when the envelope has no canonical form."""
    params = {name: value for name, value in envelope["params"].items() if name != "signature"}
    unsigned = {**envelope, "params": params}
    if _canonical_when_sorted(unsigned):
        return orjson.dumps(unsigned, option=orjson.OPT_SORT_KEYS)
    try:
        return rfc8785.dumps(unsigned)
    except (ValueError, RecursionError):
        return None


def _canonical_when_sorted(value: Json) -> bool:
    """Whether sorting members is all that RFC 8785 asks of this value; then the fast serializer writes the same bytes.

    That is so where member names are ASCII, whose order is the same in every encoding, and numbers are exact integers.
    """
    kind = type(value)
    if kind is dict:
        return all(map(str.isascii, value)) and all(map(_canonical_when_sorted, value.values()))
    if kind is list:
        return all(map(_canonical_when_sorted, value))
    return kind is str or value is None or kind is bool or (kind is int and -_EXACT <= value <= _EXACT)


@lru_cache(maxsize=4096)
def session_key(secret: bytes, session_id: str) -> bytes:
    """The 32-byte key of one session. `session_id` as the sender wrote it: its case is part of the key."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=session_id.encode()).derive(secret)


def sign(envelope: Mapping[str, Json], secret: bytes, key_id: str) -> dict[str, Json]:
    """A copy of the envelope with its signature. Raises ValueError when it has no canonical form."""
    value = _value(envelope, secret)
    if value is None:
        raise ValueError("the request has no RFC 8785 canonical form")
    params = {**envelope["params"], "signature": {"algorithm": ALGORITHM, "value": value.decode(), "key_id": key_id}}
    return {**envelope, "params": params}


class _Duplicate(Exception):
    """Leaves the parser at the first object with two members of one name."""


def has_duplicate_keys(text: bytes) -> bool:
    """Whether some object in valid JSON `text` names a member twice, escapes resolved. Numbers are not interpreted."""
    try:
        # The fast parsers keep the last of two members silently; this one hands over both.
        json.loads(text.decode(), object_pairs_hook=_refuse_duplicates, parse_int=str, parse_float=str)
    except _Duplicate:
        return True
    return False


def _refuse_duplicates(pairs: Sequence[tuple[str, Json]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise _Duplicate
