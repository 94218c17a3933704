"""Signatures: known answers, a second implementation, and what a change does to the verdict."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from tests.core import signing
from tests.core.hooks_sent import SESSION, request, subagent_stop

from acs_aaep_bridge.config import load
from acs_aaep_bridge.core.model import Emit, Outcome, Record, Reject, Skip
from acs_aaep_bridge.core.signature import Verifier, canonical, has_duplicate_keys, session_key, sign
from acs_aaep_bridge.core.stages import build_stage

SECRET = b"known-answer-test-secret"
COUNTING = bytes(range(32))

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
PAYLOADS = st.dictionaries(TEXTS, VALUES, max_size=5)


def verifier(mode: Any = "verify") -> Verifier:
    return Verifier(mode, {"k1": SECRET, "k2": COUNTING})


def test_the_key_of_a_session_is_the_published_one() -> None:
    """Secret 00..1f and the published session give the published key."""
    expected = "4e86230ba407bc623132e84189722dc2b4ab73f217ff67e0492c82fdf0d66309"
    assert session_key(COUNTING, SESSION).hex() == expected
    assert signing.hkdf(COUNTING, SESSION.encode()).hex() == expected


@pytest.mark.parametrize("secret", [SECRET, COUNTING])
def test_the_key_is_the_second_implementations(secret: bytes) -> None:
    """Both implementations derive one key, for the session as written: its case counts."""
    assert session_key(secret, SESSION) == signing.hkdf(secret, SESSION.encode())
    assert session_key(secret, SESSION) != session_key(secret, SESSION.upper())


@pytest.mark.parametrize(("key_id", "secret"), [("k1", SECRET), ("k2", COUNTING)])
def test_what_another_implementation_signed_is_verified(key_id: str, secret: bytes) -> None:
    """A stop signed by the standard library alone is verified, under each of several keys."""
    assert verifier().check(signing.signed(subagent_stop(), secret, key_id)).status == "verified"


@given(PAYLOADS)
def test_both_implementations_sign_alike(payload: dict[str, Any]) -> None:
    """Whatever JSON a payload holds, both sign the same bytes to the same value."""
    envelope = request(payload=payload)
    assert sign(envelope, SECRET, "k1") == signing.signed(envelope, SECRET, "k1")


EDGES = st.sampled_from(["", "a", "A", "Z", "_", "~", "\x7f", "\x1f", '"', "\\", "/", "\u2028", "é", "\uffff", "\U00010000"])


@given(st.recursive(EDGES | NUMBERS | st.none(), lambda inner: st.lists(inner) | st.dictionaries(EDGES | TEXTS, inner)))
def test_the_canonical_form_is_that_of_rfc_8785(value: Any) -> None:
    """By the library and by the second implementation, whatever serializer wrote it: escapes, order, numbers."""
    envelope = request(payload={"v": value})
    assert canonical(envelope) == rfc8785.dumps(envelope) == signing.jcs(envelope).encode()


@given(PAYLOADS, st.randoms(use_true_random=False))
def test_another_spelling_of_the_same_json_keeps_the_verdict(payload: dict[str, Any], chance: random.Random) -> None:
    """Order of members, blanks, escapes and the form of numbers are not part of what is signed."""
    envelope = signing.signed(request(payload=payload), SECRET, "k1")
    assert verifier().check(orjson.loads(respelled(envelope, chance))).status == "verified"


@given(PAYLOADS, st.data())
def test_any_change_flips_the_verdict(payload: dict[str, Any], data: st.DataObject) -> None:
    """One changed, added or removed member anywhere in the request makes the signature wrong."""
    envelope = signing.signed(request(payload=payload), SECRET, "k1")
    changed = data.draw(changes(envelope))
    if signing.jcs(changed) == signing.jcs(envelope):  # 1 to 1.0, 0.0 to -0.0: the same number
        return
    assert verifier().check(changed).status == "invalid"


def test_every_other_value_of_the_signature_is_invalid() -> None:
    """Also one that decodes to the same bytes: base64 has several spellings of one value."""
    envelope = signing.signed(request(), SECRET, "k1")
    value = envelope["params"]["signature"]["value"]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = alphabet[alphabet.index(value[-2]) ^ 1]
    for other in (value[:-2] + last + "=", value.rstrip("="), value + "\n", "é", ""):
        envelope["params"]["signature"]["value"] = other
        assert verifier().check(envelope).status == "invalid"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "verified"),
        ({"algorithm": "ECDSA-P256"}, "unverified"),
        ({"algorithm": "hmac-sha256"}, "unverified"),
        ({"key_id": "nobody"}, "unverified"),
        ({"key_id": "k2"}, "invalid"),
    ],
)
def test_what_cannot_be_checked_is_unverified_and_not_invalid(change: dict[str, str], status: str) -> None:
    """An algorithm or key the bridge does not have says nothing about the sender."""
    envelope = signing.signed(request(), SECRET, "k1")
    envelope["params"]["signature"] |= change
    assert verifier().check(envelope).status == status


@pytest.mark.parametrize("number", [2**53, -(2**53), 2**64 - 1])
def test_a_request_without_a_canonical_form_is_unverified(number: int) -> None:
    """JCS has no form for integers beyond 2^53-1; that is an outcome, not an exception."""
    envelope = request(payload={"n": number})
    assert canonical(envelope) is None
    envelope["params"]["signature"] = {"algorithm": "HMAC-SHA256", "value": "AAAA", "key_id": "k1"}
    assert verifier().check(envelope).status == "unverified"


def test_secrets_can_be_replaced() -> None:
    """After a rotation the new key verifies and the old one is unknown."""
    one = verifier()
    one.use({"k3": b"new"})
    assert one.check(signing.signed(request(), b"new", "k3")).status == "verified"
    assert one.check(signing.signed(request(), SECRET, "k1")).status == "unverified"


def test_checking_leaves_the_request_as_it_was() -> None:
    """The request goes on to be normalized exactly as received."""
    envelope = signing.signed(subagent_stop(), SECRET, "k1")
    before = orjson.dumps(envelope)
    verifier().check(envelope)
    assert orjson.dumps(envelope) == before


UNSIGNED = request()
SIGNED = signing.signed(request(), SECRET, "k1")
FORGED = signing.signed(request(), b"guessed", "k1")
FOREIGN = signing.signed(request(), SECRET, "nobody")
HUGE = signing.signed(request(payload={"n": 2**60}), SECRET, "k1")


@pytest.mark.parametrize(
    ("mode", "envelope", "expected"),
    [
        ("off", UNSIGNED, "unsigned"),
        ("off", SIGNED, "unverified"),
        ("off", FORGED, "unverified"),
        ("verify", UNSIGNED, "unsigned"),
        ("verify", SIGNED, "verified"),
        ("verify", FORGED, "signature_invalid"),
        ("verify", FOREIGN, "unverified"),
        ("verify", HUGE, "unverified"),
        ("require", UNSIGNED, "signature_missing"),
        ("require", SIGNED, "verified"),
        ("require", FORGED, "signature_invalid"),
        ("require", FOREIGN, "signature_invalid"),
        ("require", HUGE, "signature_invalid"),
    ],
)
def test_each_mode_lets_pass_what_it_promises(mode: str, envelope: dict[str, Any], expected: str) -> None:
    """The status stands in the normalized event and in the outcome; what may not pass is rejected with its code."""
    outcome = normalized(mode, orjson.dumps(envelope))
    if isinstance(outcome, Reject):
        assert outcome.code == expected
        assert outcome.pointer == "/params/signature"
    else:
        assert isinstance(outcome, Emit)
        assert outcome.signature == expected
        event = orjson.loads(outcome.outgoing[0].value or b"")
        claimed = envelope["params"].get("signature", {})
        names = {name: claimed[name] for name in ("algorithm", "key_id") if name in claimed}
        assert event["signature"] == {"status": expected, **names}


def test_a_ping_needs_no_signature() -> None:
    """An unsigned system/ping is legal also where signatures are required."""
    ping = {**request(), "method": "system/ping"}
    assert normalized("require", orjson.dumps(ping)) == Skip("ping", "system/ping")


def test_the_signature_is_checked_before_anything_is_normalized() -> None:
    """Upper-case UUIDs and a count written 12.0 are verified as written, then given their canonical form."""
    sent = subagent_stop(subagent_session_id="7C9E6679-7425-40DE-944B-E07FC1F90AE7", subagent_step_count=12.0)
    sent["params"]["metadata"]["session_id"] = SESSION.upper()
    outcome = normalized("require", json.dumps(signing.signed(sent, SECRET, "k1"), indent=2).encode())
    assert isinstance(outcome, Emit)
    assert outcome.signature == "verified"
    event = orjson.loads(outcome.outgoing[0].value or b"")
    assert event["session_id"] == SESSION
    assert event["payload"]["subagent_session_id"] == "7c9e6679-7425-40de-944b-e07fc1f90ae7"


TWICE = orjson.dumps(SIGNED).replace(b'"payload":{}', b'"payload":{},"p\\u0061yload":{"x":1}')


@pytest.mark.parametrize(("mode", "fate"), [("off", "unverified"), ("verify", "malformed_json"), ("require", "malformed_json")])
def test_a_member_named_twice_is_refused_where_signatures_are_checked(mode: str, fate: str) -> None:
    """Readers differ in which of two members they take, so a signature over such a text proves nothing."""
    outcome = normalized(mode, TWICE)
    assert (outcome.code if isinstance(outcome, Reject) else outcome.signature if isinstance(outcome, Emit) else None) == fate


def test_only_the_batch_element_with_the_repeated_member_is_refused() -> None:
    """The others stand alone; the dead letter is the element's own bytes."""
    outcomes = applied("verify", b"[" + orjson.dumps(SIGNED) + b" , " + TWICE + b"]")
    assert [type(outcome) for outcome in outcomes] == [Emit, Reject]
    bad = outcomes[1]
    assert isinstance(bad, Reject)
    assert (bad.element, bad.raw, bad.code) == (1, TWICE, "malformed_json")


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        (b'{"a":1,"a":1}', True),
        (b'[{"b":{"a":1,"\\u0061":2}}]', True),
        (b'{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}', False),
        (b'{"n":' + b"9" * 5000 + b"}", False),
        ('{"é":1,"e\u0301":2}'.encode(), False),
        (b"[]", False),
    ],
)
def test_repeated_members_are_found_however_they_are_written(text: bytes, twice: bool) -> None:
    """By the decoded name, at any depth; numbers of any length are not read."""
    assert has_duplicate_keys(text) is twice


def applied(mode: str, value: bytes) -> tuple[Outcome, ...]:
    config = load(f"signature: {{mode: '{mode}', keys: {{k1: {{env: UNUSED}}}}}}", {})
    stage = build_stage("normalize", config, secrets={"k1": SECRET, "k2": COUNTING})
    return stage.apply(Record("raw", 0, 0, 1_700_000_000_000, None, value), stage.new_state(), 0)


def normalized(mode: str, value: bytes) -> Outcome:
    (outcome,) = applied(mode, value)
    return outcome


def respelled(value: Any, chance: random.Random) -> str:
    """The same JSON value in another text."""
    blank = chance.choice(["", " ", "\n\t"])
    if isinstance(value, dict):
        members = list(value.items())
        chance.shuffle(members)
        inner = f"{blank},".join(f"{respelled(name, chance)}{blank}:{respelled(member, chance)}" for name, member in members)
        return f"{{{blank}{inner}}}"
    if isinstance(value, list):
        return f"[{f',{blank}'.join(respelled(item, chance) for item in value)}{blank}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=chance.random() < 0.5)
    if isinstance(value, int) and not isinstance(value, bool):
        return chance.choice([str(value), f"{value}.0", f"{value}e0"])
    return f"{value!r}" if isinstance(value, float) else json.dumps(value)


@st.composite
def changes(draw: st.DrawFn, envelope: dict[str, Any]) -> dict[str, Any]:
    """The envelope with one thing changed outside the signature itself. Its shape stays that of a request."""
    changed: dict[str, Any] = orjson.loads(orjson.dumps(envelope))
    params = changed["params"]
    kind = draw(st.sampled_from(["payload", "add", "drop", "member", "session", "id", "inside"]))
    if kind == "payload":
        params["payload"] = draw(PAYLOADS)
    elif kind == "add":
        params["payload"][draw(TEXTS)] = draw(VALUES)
    elif kind == "drop" and params["payload"]:
        del params["payload"][draw(st.sampled_from(sorted(params["payload"])))]
    elif kind == "member":
        params[draw(TEXTS.filter(lambda name: name not in params))] = draw(VALUES)
    elif kind == "session":
        params["metadata"]["session_id"] = draw(st.uuids().map(str))
    elif kind == "inside" and params["payload"]:
        name = draw(st.sampled_from(sorted(params["payload"])))
        params["payload"][name] = [params["payload"][name]]
    else:
        changed["id"] = draw(TEXTS | NUMBERS)
    return changed
