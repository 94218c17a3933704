"""A second implementation of ACS request signatures, from the standard library and the specifications alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
from typing import Any

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def hkdf(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, no salt, 32 bytes: one block of expansion."""
    pseudorandom = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(pseudorandom, info + b"\x01", hashlib.sha256).digest()


def signature(envelope: dict[str, Any], secret: bytes) -> str:
    """The base64 value over the envelope without its signature."""
    params = {name: value for name, value in envelope["params"].items() if name != "signature"}
    key = hkdf(secret, params["metadata"]["session_id"].encode())
    signed = jcs({**envelope, "params": params}).encode()
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def signed(envelope: dict[str, Any], secret: bytes, key_id: str, algorithm: str = "HMAC-SHA256") -> dict[str, Any]:
    """The envelope with its signature."""
    claim = {"algorithm": algorithm, "value": signature(envelope, secret), "key_id": key_id}
    return {**envelope, "params": {**envelope["params"], "signature": claim}}


def jcs(value: Any) -> str:
    """RFC 8785 of a JSON value."""
    if isinstance(value, dict):
        # Members are ordered by their UTF-16 code units, most significant byte first.
        ordered = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
        return "{" + ",".join(f"{_text(name)}:{jcs(member)}" for name, member in ordered) + "}"
    if isinstance(value, list):
        return "[" + ",".join(jcs(item) for item in value) + "]"
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) if isinstance(value, int) else _double(value)


def _text(value: str) -> str:
    return '"' + "".join(_SHORT.get(char) or (f"\\u{ord(char):04x}" if char < " " else char) for char in value) + '"'


def _double(value: float) -> str:
    """ECMAScript's Number::toString, from the digits and exponent of the shortest text that reads back."""
    if value == 0:
        return "0"
    sign, value = ("-", -value) if value < 0 else ("", value)
    assert math.isfinite(value)
    mantissa, _, power = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(power or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    exponent = f"e{point - 1:+d}"
    return sign + digits[0] + (f".{digits[1:]}" if count > 1 else "") + exponent
