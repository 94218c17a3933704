"""The extension is described three times, for validators, for JSON-LD and for people, and always the same."""

from __future__ import annotations

import json
from pathlib import Path

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.schemas import shipped

ROOT = Path(__file__).parents[2]
SCHEMA = shipped().schema("urn:acs-aaep-bridge:schema:extension:acs:v1")
CONTEXT = json.loads((ROOT / "schemas/extension/acs.context.jsonld").read_text(encoding="utf-8"))["@context"]["acs"]["@context"]
PAGE = (ROOT / "docs/extension.md").read_text(encoding="utf-8")


def test_the_context_has_a_term_for_every_member_and_no_other() -> None:
    assert set(CONTEXT) == set(SCHEMA["properties"])
    assert set(CONTEXT["summary_provenance"]["@context"]) == set(SCHEMA["properties"]["summary_provenance"]["properties"])


def test_the_page_names_every_member_and_the_context_that_events_give() -> None:
    members = {*SCHEMA["properties"], *SCHEMA["properties"]["summary_provenance"]["properties"]}
    assert [name for name in sorted(members) if f"`{name}`" not in PAGE] == []
    assert Config().mapping.extension_context in PAGE
