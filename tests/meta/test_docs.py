"""The documentation says what the code does, wherever both can be compared."""

from __future__ import annotations

import re
from pathlib import Path

from acs_aaep_bridge.core.texts import ENGLISH
from acs_aaep_bridge.telemetry.labels import DEAD_LETTER_CODES, SESSION_NOTES

ROOT = Path(__file__).parents[2]
MAPPING = (ROOT / "docs" / "mapping.md").read_text(encoding="utf-8")


def section(number: int) -> str:
    return re.split(r"^## \d+\. ", MAPPING, flags=re.MULTILINE)[number]


def cells(text: str) -> list[list[str]]:
    """The rows of all tables in `text`, without their rules."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if set("".join(row)) != {"-"}]


def test_the_documented_sentences_are_those_that_are_spoken() -> None:
    documented = {tuple(row[1:]) for row in cells(section(3)) if len(row) == 3} - {("normal", "terse")}
    spoken = {(row.normal, row.terse) for row in ENGLISH.rows.values()} | {
        (row.spoken, "") for row in ENGLISH.rows.values() if row.spoken
    }
    assert documented == spoken


def test_every_dead_letter_code_is_documented_and_no_other() -> None:
    documented = [row[0].strip("`") for row in cells(section(8)) if row[0].startswith("`")]
    assert sorted(documented) == sorted(DEAD_LETTER_CODES)


def test_every_documented_note_is_one_that_is_counted() -> None:
    documented = set(re.findall(r"\(`([a-z_]+)`\)", section(6)))
    assert documented <= set(SESSION_NOTES)
    assert {"duplicate", "late", "after_end", "held", "orphan_result", "no_request"} <= documented
