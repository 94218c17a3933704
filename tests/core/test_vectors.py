"""What the normalize stage makes of every vector, member for member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.core.vectors import CASES, expect, settings
from tests.samples import record

from acs_aaep_bridge.core.hooks import HOOKS
from acs_aaep_bridge.core.model import Emit, Outcome, Reject, Skip
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.telemetry.labels import DEAD_LETTER_CODES

# Made by the lifecycle stage or the shell, or by signatures and input formats, which are decided by more than the value.
ELSEWHERE = {
    *("self_parent", "parent_mismatch", "output_invalid", "output_too_large", "undecodable_headers"),
    *("signature_invalid", "signature_missing", "unsupported_format", "unknown_schema", "undecodable_avro", "cloudevent_invalid"),
}


def outcomes(file: Path) -> tuple[Outcome, ...]:
    stage = build_stage("normalize", settings(file.parent))
    return stage.apply(record(file.read_bytes()), stage.new_state(), 0)


def refused(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Skip):
        return {"skip": outcome.reason}
    assert isinstance(outcome, Reject)
    broken = [{"pointer": pointer, "keyword": keyword} for pointer, keyword in outcome.violations]
    shown = {"code": outcome.code, "violations": broken, "schema": outcome.schema, "element": outcome.element}
    return {name: value for name, value in shown.items() if value is not None}


@pytest.mark.parametrize("case", CASES)
def test_a_vector_is_normalized_as_written(case: str) -> None:
    emitted = [outcome for outcome in outcomes(CASES[case]) if isinstance(outcome, Emit)]
    rows = [orjson.loads(outgoing.value or b"") for outcome in emitted for outgoing in outcome.outgoing]
    expect(CASES[case].parent / "normalized.json", rows[0] if len(rows) == 1 else rows)


@pytest.mark.parametrize("case", CASES)
def test_a_vector_is_refused_as_written(case: str) -> None:
    expect(CASES[case].parent / "refused.json", [refused(one) for one in outcomes(CASES[case]) if not isinstance(one, Emit)])


@pytest.mark.parametrize("method", HOOKS)
def test_every_hook_has_a_vector(method: str) -> None:
    assert any(case.startswith(method.removeprefix("steps/") + "/") for case in CASES)


@pytest.mark.parametrize("code", [code for code in DEAD_LETTER_CODES if code not in ELSEWHERE])
def test_every_dead_letter_code_of_this_stage_has_a_vector(code: str) -> None:
    assert any(isinstance(one, Reject) and one.code == code for file in CASES.values() for one in outcomes(file))


@pytest.mark.parametrize("reason", ["response", "ping", "handshake"])
def test_every_reason_to_skip_has_a_vector(reason: str) -> None:
    assert any(isinstance(one, Skip) and one.reason == reason for file in CASES.values() for one in outcomes(file))
