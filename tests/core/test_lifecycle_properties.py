"""Anybody may write to the normalized topic: whatever lies there gives an outcome, never an exception."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.stream import EPOCH, Bridge
from tests.core.subscriber import EVENT_CHECKS
from tests.core.vectors import CASES

from acs_aaep_bridge.core.model import Emit, Record, Reject, Skip

FILES = [case.parent / "normalized.json" for case in CASES.values()]
ROWS = [orjson.loads(file.read_bytes()) for file in FILES if file.exists()]
KNOWN = [row for rows in ROWS for row in (rows if isinstance(rows, list) else [rows])]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["acs-method", "traceparent", "bridge.replay.count", "x"]),
        st.none() | st.binary(max_size=60) | st.sampled_from([b"steps/memoryStore", b"steps/turnEnd", b"steps/%E4"]),
    ),
    max_size=3,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every member of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, item in inner for place in places(item, (*path, name)))]


def outcome(bridge: Bridge, value: bytes, headers: Any = ()) -> None:
    record = Record("acs.events.normalized", 0, 1, EPOCH, b"key", value, tuple(headers))
    (found,) = bridge.lifecycle.apply(record, bridge.table, EPOCH)
    if isinstance(found, Reject):
        assert (found.stage, bool(found.message)) == ("lifecycle", True)
        assert found.code != "output_invalid"
    else:
        assert isinstance(found, Emit | Skip)


@settings(max_examples=300)
@given(st.data())
def test_any_change_to_a_normalized_event_gives_an_outcome(data: st.DataObject) -> None:
    bridge = Bridge(content__agent_output="all", content__include_arguments="true")
    for _ in range(data.draw(st.integers(1, 4))):
        event = orjson.loads(orjson.dumps(data.draw(st.sampled_from(KNOWN))))
        for _ in range(data.draw(st.integers(0, 3))):
            *parents, name = data.draw(st.sampled_from(places(event)[1:]))
            holder = event
            for parent in parents:
                holder = holder[parent] if isinstance(holder, dict | list) and parent in places_of(holder) else {}
            if isinstance(holder, dict):
                holder[name] = data.draw(JSON)
        outcome(bridge, orjson.dumps(event), data.draw(HEADERS))
    bridge.wait(3 * 86_400_000)
    bridge.settle()
    for event in bridge.events:
        assert all(check(event).passed for check in EVENT_CHECKS)


@given(st.binary(max_size=60) | JSON.map(orjson.dumps), HEADERS)
def test_any_bytes_give_an_outcome(value: bytes, headers: Any) -> None:
    outcome(Bridge(), value, headers)


def places_of(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))
