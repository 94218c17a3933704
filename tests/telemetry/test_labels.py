"""The closed label sets hold everything that the core can say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import acs_aaep_bridge
from acs_aaep_bridge.core.calls import STATUS
from acs_aaep_bridge.core.draft import CANCELLED, COMPLETED, ERRORED, TOOL_COMPLETED
from acs_aaep_bridge.core.endings import ENDINGS
from acs_aaep_bridge.kafka.observer import Block, Result, Role
from acs_aaep_bridge.telemetry.labels import BLOCKS, DEAD_LETTER_CODES, LIFECYCLE_OUTCOMES, RESULTS, ROLES, SESSION_NOTES

SOURCE = Path(acs_aaep_bridge.__file__).parent
# Who is called with a dead-letter code, and in which place.
CODED = {"Reject": 1, "Unreadable": 0, "Refusal": 0}


def calls() -> Iterator[ast.Call]:
    for folder in ("core", "kafka"):
        for path in (SOURCE / folder).rglob("*.py"):
            yield from (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))


def literal(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def test_every_ending_of_a_session_has_its_series_from_the_start() -> None:
    ended: dict[str, set[str]] = {COMPLETED: set(), ERRORED: set(), CANCELLED: set()}
    for name, row in ENDINGS.items():
        ended[row.type].add(name.partition(":")[2] or row.fields.get("cancellation_reason", "completed"))
    assert {kind: set(LIFECYCLE_OUTCOMES[kind]) for kind in ended} == ended


def test_every_ending_of_a_tool_has_its_series_from_the_start() -> None:
    assert set(LIFECYCLE_OUTCOMES[TOOL_COMPLETED]) == {*STATUS, "unanswered"}


def test_every_dead_letter_code_written_in_the_source_is_in_the_set() -> None:
    written = set()
    for call in calls():
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        place = CODED.get(name)
        if place is not None and len(call.args) > place:
            written.add(literal(call.args[place]))
    found = written - {None}
    assert len(found) > 10
    assert found <= set(DEAD_LETTER_CODES)


def test_every_note_written_in_the_source_is_in_the_set() -> None:
    written = set()
    for call in calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and ast.unparse(call.func.value).endswith("notes"):
            written |= {literal(node) for node in ast.walk(call) if isinstance(node, ast.expr)}
    found = written - {None}
    assert found
    assert found <= set(SESSION_NOTES)


def test_what_the_shell_may_report_and_what_is_counted_are_the_same() -> None:
    assert set(BLOCKS) == set(Block.__args__)  # type: ignore[attr-defined]
    assert set(ROLES) == set(Role.__args__)  # type: ignore[attr-defined]
    assert set(RESULTS) == set(Result.__args__)  # type: ignore[attr-defined]
