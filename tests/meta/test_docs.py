"""The documentation says what the code does, wherever both can be compared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from acs_aaep_bridge.cli.program import COMMANDS, EXIT_CODES
from acs_aaep_bridge.core.texts import ENGLISH
from acs_aaep_bridge.telemetry.labels import DEAD_LETTER_CODES, SESSION_NOTES
from acs_aaep_bridge.telemetry.metrics import table

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
    documented = [row[0].strip("`") for row in cells(section(8)) if re.fullmatch(r"`[a-z0-9_]+`", row[0])]
    assert sorted(documented) == sorted(DEAD_LETTER_CODES)


def test_every_documented_note_is_one_that_is_counted() -> None:
    documented = set(re.findall(r"\(`([a-z_]+)`\)", section(6)))
    assert documented <= set(SESSION_NOTES)
    assert {"duplicate", "late", "after_end", "held", "orphan_result", "no_request"} <= documented


def test_the_members_of_the_extension_are_documented() -> None:
    """All of them, and which are always there."""
    schema = json.loads((ROOT / "schemas" / "extension" / "acs.schema.json").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "extension.md").read_text(encoding="utf-8").partition("## Members")[2]
    there = {name: row[2] for row in cells(text)[1:] for name in re.findall(r"`([a-z_]+)`", row[0])}
    assert there.keys() == schema["properties"].keys()
    assert {name for name, when in there.items() if when == "always"} == set(schema["required"])


README = ROOT / "README.md"
METRICS = re.compile(r"(<!-- metrics: .*? -->\n)(.*?)(<!-- /metrics -->)", re.DOTALL)


def test_the_readme_has_the_metric_catalogue() -> None:
    text = README.read_text(encoding="utf-8")
    current = METRICS.sub(lambda match: match[1] + table() + match[3], text)
    if text != current:
        README.write_text(current, encoding="utf-8")
        pytest.fail("the metrics in README.md were not up to date; they are now, look at the difference")


def test_the_readme_names_every_exit_code() -> None:
    readme = re.search(r"^## Exit codes$(.*?)^## ", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert readme
    documented = {row[0] for row in cells(readme[1]) if row[0].isdecimal()}
    assert documented == set(re.findall(r"^  (\d+) ", EXIT_CODES, re.MULTILINE))


@pytest.mark.parametrize("path", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]), ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_commands_in_the_readme_exist() -> None:
    text = README.read_text(encoding="utf-8")
    for name in set(re.findall(r"acs-aaep-bridge ([a-z]+)(?= )", "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)))):
        assert name in COMMANDS
