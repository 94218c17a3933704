"""The compiled validators against a second opinion, `jsonschema`, with every disagreement known and decided.

Where the two differ, `DECIDED` says what the bridge does. A difference that is not listed fails, and so does a listed
one that is gone.
"""

from __future__ import annotations

from typing import Any

import jsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from referencing import Registry, Resource
from tests.core.vectors import CASES
from tests.samples import CHILD, HASH, OCCURRED, PAYLOADS, STOP, request

from acs_aaep_bridge.core.hooks import HOOKS
from acs_aaep_bridge.core.identity import is_timestamp
from acs_aaep_bridge.core.schemas import shipped
from acs_aaep_bridge.core.validate import ENVELOPE_SCHEMA

SCHEMAS = shipped()
REGISTRY: Registry[Any] = Registry().with_resources(
    (schema_id, Resource.from_contents(SCHEMAS.schema(schema_id))) for schema_id in SCHEMAS.ids
)

TIMESTAMPS = (
    *(OCCURRED, "2026-05-24t14:22:38z", "2026-05-24T14:22:38.123456789012345Z", "2026-05-24T14:22:38-00:00"),
    *("2026-05-24T14:22:38+14:00", "2026-05-24T14:22:38+23:59", "2026-05-24T14:22:38+24:00", "2026-05-24T14:22:38+14:60"),
    *("2026-05-24T14:22:38", "2026-05-24", "2026-05-24 14:22:38Z", "2026-05-24T14:22Z", "2026-05-24T24:00:00Z"),
    *(
        "2026-02-29T00:00:00Z",
        "2024-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
    ),
    *("2026-12-31T23:59:60Z", "2026-12-31T15:59:60.5-08:00", "2026-12-31T12:00:60Z", "2026-12-31T23:59:61Z"),
    *("2026-05-24T14:22:38.Z", "2026-05-24T14:22:38,5Z", "2026-05-24T14:22:38+0100", "2026-05-24T14:22:38+01"),
    *("2026-05-24T14:22:38Z\n", "\n2026-05-24T14:22:38Z", "٢٠٢٦-05-24T14:22:38Z", "2026-05-24T14:22:38.٢Z", "", "1789812003000"),
)
UUIDS = (
    *(CHILD, CHILD.upper(), "00000000-0000-0000-0000-000000000000", f"urn:uuid:{CHILD}", f"{{{CHILD}}}", CHILD.replace("-", "")),
    *("3333_333-3333-4333-8333-333333333333", f"{CHILD}\n", f" {CHILD}", CHILD[:-1], f"{CHILD[:-1]}g", f"{CHILD[:-1]}７", ""),
    *("7c9e66797-425-40de-944b-e07fc1f90ae7", "7c9e6679-7425-40de-944b-+07fc1f90ae7"),
)
PATTERNS = {
    "version": ("0.1.0", "0.1", "0.1.0\n", "٠.١.٠", "0.1.0-rc1", "00.1.0"),
    "method": (
        "steps/x",
        "steps/",
        "steps/\n",
        "steps/\r",
        "steps/\u2028",
        "steps/subagentStop\n",
        "wrapped:x",
        "steps",
        " steps/x",
    ),
    "hash": (HASH, HASH.upper(), HASH[:-1], f"{HASH}\n", f"{HASH[:-1]}٠"),
}

DECIDED = {
    # RFC 3339 has leap seconds; the bridge takes them as 59.999.
    ("timestamp", "2026-12-31T23:59:60Z"): True,
    ("timestamp", "2026-12-31T15:59:60.5-08:00"): True,
    # RFC 3339 has a year 0000; it is well-formed here and refused as `invalid_timestamp`, since no calendar library has it.
    ("timestamp", "0000-01-01T00:00:00Z"): True,
    # In JSON Schema `$` is the end of the text; Python lets a final newline by. (It would let any script's digits by for \d
    # too, so the schemas write [0-9].)
    ("timestamp", "2026-05-24T14:22:38Z\n"): False,
    ("version", "0.1.0\n"): False,
    ("hash", f"{HASH}\n"): False,
    # In JSON Schema `.` matches no line terminator at all; in Python it stops only at a newline.
    ("method", "steps/\r"): False,
    ("method", "steps/\u2028"): False,
    # Python reads int("3333_333", 16), int("７", 16) and int("+0", 16).
    ("uuid", "3333_333-3333-4333-8333-333333333333"): False,
    ("uuid", f"{CHILD[:-1]}７"): False,
}


def second_opinion(schema_id: str, instance: Any) -> bool:
    validator = jsonschema.Draft202012Validator(
        SCHEMAS.schema(schema_id), registry=REGISTRY, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    return bool(validator.is_valid(instance))


def ours(schema_id: str, instance: Any) -> bool:
    return SCHEMAS.validator(schema_id).is_valid(instance)


def placed(kind: str, text: str) -> tuple[str, Any]:
    """The schema and an instance that is valid but, perhaps, for this text."""
    if kind == "hash":
        return HOOKS["steps/subagentStop"].schema, STOP | {"final_chain_hash": text}
    if kind == "method":
        return ENVELOPE_SCHEMA, request() | {"method": text}
    member = {"timestamp": "timestamp", "uuid": "request_id", "version": "acs_version"}[kind]
    return ENVELOPE_SCHEMA, request(**{member: text})


SAMPLES = [
    *(("timestamp", text) for text in TIMESTAMPS),
    *(("uuid", text) for text in UUIDS),
    *((kind, text) for kind, texts in PATTERNS.items() for text in texts),
]


@pytest.mark.parametrize(("kind", "text"), SAMPLES, ids=ascii)
def test_the_two_agree_on_formats_and_patterns_but_for_what_is_decided(kind: str, text: str) -> None:
    schema_id, instance = placed(kind, text)
    verdict = ours(schema_id, instance)
    if (kind, text) in DECIDED:
        assert verdict == DECIDED[kind, text]
        assert second_opinion(schema_id, instance) != verdict
    else:
        assert second_opinion(schema_id, instance) == verdict


@pytest.mark.parametrize("text", TIMESTAMPS, ids=ascii)
def test_our_own_reading_of_timestamps_is_that_of_the_compiled_format(text: str) -> None:
    assert is_timestamp(text) == ours(*placed("timestamp", text))


@given(
    st.from_regex(
        r"\A[0-9]{4}-[01][0-9]-[0-3][0-9][Tt][0-2][0-9]:[0-5][0-9]:[0-6][0-9](\.[0-9]{0,4})?([Zz]|[+-][0-2][0-9]:[0-6][0-9])\Z"
    )
)
def test_our_own_reading_agrees_on_anything_that_looks_like_a_timestamp(text: str) -> None:
    assert is_timestamp(text) == ours(*placed("timestamp", text))


@pytest.mark.parametrize("case", CASES)
def test_the_two_agree_on_every_vector(case: str) -> None:
    try:
        parsed = orjson.loads(CASES[case].read_bytes())
    except orjson.JSONDecodeError:
        return
    for message in parsed if isinstance(parsed, list) else [parsed]:
        differ = case in {"refused/year_zero", "subagentStop/leap_second"}
        assert (ours(ENVELOPE_SCHEMA, message) != second_opinion(ENVELOPE_SCHEMA, message)) == differ
        hook = HOOKS.get(message.get("method", "")) if isinstance(message, dict) else None
        if hook is not None:
            payload = message.get("params", {}).get("payload")
            assert ours(hook.schema, payload) == second_opinion(hook.schema, payload)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0.5, 3.0, -0.0, 1e300]) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "value", "type", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.sampled_from(sorted(PAYLOADS)), st.data())
def test_the_two_agree_on_payloads_with_any_member_replaced(method: str, data: st.DataObject) -> None:
    payload = dict(PAYLOADS[method])
    properties = sorted(SCHEMAS.schema(HOOKS[method].schema).get("properties", {"x": {}}))
    payload[data.draw(st.sampled_from(properties))] = data.draw(JSON)
    assert ours(HOOKS[method].schema, payload) == second_opinion(HOOKS[method].schema, payload)
