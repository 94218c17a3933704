"""The runbook has a section for everything that can wake somebody, and for nothing else."""

from __future__ import annotations

import re

from tests.telemetry.test_rules import ALERTS
from tests.tools import ROOT

from acs_aaep_bridge.cli.program import EXIT_CODES
from acs_aaep_bridge.telemetry.labels import BLOCKS, DEAD_LETTER_CODES
from acs_aaep_bridge.telemetry.metrics import CATALOGUE, PREFIX, series_names

RUNBOOK = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
SERIES = {name for metric in CATALOGUE for name in series_names(metric)}


def subsections(title: str) -> list[str]:
    """The headings under one heading."""
    part = re.split(rf"^## {title}$", RUNBOOK, flags=re.MULTILINE)[1]
    return re.findall(r"^### (.+)$", re.split(r"^## ", part, flags=re.MULTILINE)[0], re.MULTILINE)


def test_every_alert_has_its_section() -> None:
    assert subsections("Alerts") == list(dict.fromkeys(subsections("Alerts")))
    assert set(subsections("Alerts")) == set(ALERTS)


def test_every_dead_letter_code_has_its_section() -> None:
    assert subsections("Dead-letter codes") == list(DEAD_LETTER_CODES)


def test_every_reason_for_a_blocked_partition_has_its_section() -> None:
    assert subsections("Blocked partitions") == list(BLOCKS)


def test_every_exit_code_has_its_row() -> None:
    documented = re.findall(r"^\| (\d+) \|", RUNBOOK, re.MULTILINE)
    assert set(re.findall(r"^  (\d+) ", EXIT_CODES, re.MULTILINE)) == set(documented) - {"137"}


def test_the_metrics_it_names_exist() -> None:
    assert set(re.findall(rf"{PREFIX}\w+", RUNBOOK)) <= SERIES


def test_every_section_it_points_to_is_there() -> None:
    titles = re.findall(r"^#+ (.+)$", RUNBOOK, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([^)]+)\)", RUNBOOK)) <= anchors
