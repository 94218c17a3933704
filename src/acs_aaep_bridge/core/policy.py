"""What the configuration decides about sessions and their texts, prepared once."""

from __future__ import annotations

from typing import NamedTuple

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.announce import Announcer

CORE_CONTEXT = "https://aaep-protocol.org/context/v1"


class Timing(NamedTuple):
    """`config.sessions`: all in ms; `idle` 0 means never."""

    grace: int
    subagent_idle: int
    idle: int
    retention: int
    max_open: int


class Policy(NamedTuple):
    """Shared by every event of a stage; the dicts are read-only by agreement."""

    announcer: Announcer
    contexts: list[str]
    hints: dict[str, dict[str, str]]
    output_hints: dict[str, str]
    agent_output: str
    include_arguments: bool
    include_summary: bool
    redacting: bool
    risk: dict[str, str]
    timing: Timing


def prepare(config: Config) -> Policy:
    """The policy that `config` asks for."""
    content, sessions = config.content, config.sessions
    announcer = Announcer(content.language, content.names, content.redact, content.include_summary)
    language = announcer.language
    hints = {way: {"primary_language": language.tag, "text_direction": way} for way in ("ltr", "rtl", "auto")}
    return Policy(
        announcer,
        [CORE_CONTEXT, config.mapping.extension_context],
        {"own": hints[language.direction], "auto": hints["auto"]},
        {"primary_language": content.agent_language, "text_direction": "auto"},
        content.agent_output,
        content.include_arguments,
        content.include_summary,
        content.redact,
        dict(config.mapping.risk),
        Timing(
            sessions.grace,
            sessions.subagent_idle_timeout,
            sessions.idle_timeout,
            max(1, sessions.closed_retention),  # not forgotten as it ends: its entry carries what is still to be said
            sessions.max_open_per_partition,
        ),
    )
