"""What the lifecycle stage makes of every vector: of a single hook that nothing is known about, member for member."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.core.vectors import CASES, expect, settings
from tests.samples import record

from acs_aaep_bridge.core.lifecycle import LifecycleStage
from acs_aaep_bridge.core.model import Emit, Record, Reject
from acs_aaep_bridge.core.schemas import shipped
from acs_aaep_bridge.core.stages import build_stage


def said(case: str) -> list[dict[str, Any]]:
    """The AAEP events, or why there are none, for each normalized event of the vector, in order."""
    config = settings(CASES[case].parent)
    normalize, lifecycle = build_stage("normalize", config), LifecycleStage(config, shipped())
    state = lifecycle.new_state()
    found: list[dict[str, Any]] = []
    raw = record(CASES[case].read_bytes())
    for outcome in normalize.apply(raw, normalize.new_state(), raw.timestamp):
        for out in outcome.outgoing if isinstance(outcome, Emit) else ():
            heard = Record(out.topic, 0, 7, out.timestamp, out.key, out.value, out.headers)
            (result,) = lifecycle.apply(heard, state, out.timestamp)
            if isinstance(result, Reject):
                found.append({"code": result.code, "pointer": result.pointer})
                continue
            assert isinstance(result, Emit)
            found += [orjson.loads(event.value or b"") for event in result.outgoing]
            found += [{"note": note} for note in result.notes]
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_vector_is_told_as_written(case: str) -> None:
    expect(CASES[case].parent / "lifecycle.json", said(case))
