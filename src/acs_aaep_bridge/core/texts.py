"""Every sentence that is spoken or shown, by language (docs/mapping.md, 3). These are all the texts there are.

Another language is another `Language`: whole sentences with its own word order, its plural rule and its units of time.
Placeholders are written in lower case; at the start of a sentence the words that stand in for a missing name are
capitalized, names are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Row(NamedTuple):
    """What is said about one thing that happens.

    `spoken` replaces `normal` when there is a first sentence ({short}) of the result; `timed` and `told` are the detailed
    form, where `{after}` holds steps and time, without and with the whole result ({value}).
    """

    normal: str
    terse: str
    spoken: str = ""
    timed: str = ""
    told: str = ""


class Language(NamedTuple):
    """`plural` gives the form ("one", "other", …) that a count takes in `steps` and in `units` (largest unit first)."""

    tag: str
    direction: str
    agent: str
    subagent: str
    tool: str
    rows: Mapping[str, Row]
    after: str
    after_both: str
    steps: Mapping[str, str]
    units: tuple[tuple[int, Mapping[str, str]], ...]
    plural: Callable[[int], str]


ENGLISH = Language(
    tag="en",
    direction="ltr",
    agent="agent",
    subagent="subagent",
    tool="tool",
    rows={
        "request_started": Row("{agent} is working.", "{agent} working."),
        "request_completed": Row("{agent} is done.", "{agent} done."),
        "request_errored": Row("{agent} ran into an error.", "{agent} failed."),
        "request_interrupted": Row("{agent} was interrupted.", "{agent} interrupted."),
        "request_deferred": Row("{agent} is waiting for a decision.", "{agent} waiting."),
        "request_denied": Row("A policy denied the request to {agent}.", "{agent} denied."),
        "request_stopped": Row("{agent} was stopped.", "{agent} stopped."),
        "request_timed_out": Row("{agent} ran out of time.", "{agent} timed out."),
        "request_ended": Row("{agent} ended: {reason}.", "{agent} ended."),
        "request_ended_bare": Row("{agent} ended.", "{agent} ended."),
        "request_unreported": Row("No result was reported for {agent}.", "{agent}: no result."),
        "request_superseded": Row("{agent} goes on as {child}.", "{child}."),
        "subagent_started": Row("{agent} is starting {child}.", "{child} starting."),
        "subagent_active": Row("{child} is active.", "{child} active."),
        "subagent_completed": Row(
            "{child} finished.",
            "{child} done.",
            "{child} finished. It says: {short}",
            "{child} finished{after}.",
            "{child} finished{after}. It says: {value}",
        ),
        "subagent_failed": Row(
            "{child} failed.",
            "{child} failed.",
            "{child} failed. It says: {short}",
            "{child} failed{after}.",
            "{child} failed{after}. It says: {value}",
        ),
        "subagent_cancelled": Row("{child} was cancelled.", "{child} cancelled.", timed="{child} was cancelled{after}."),
        "subagent_timed_out": Row("{child} ran out of time.", "{child} timed out.", timed="{child} ran out of time{after}."),
        "subagent_denied": Row("{child} was not started: a policy denied it.", "{child} denied."),
        "subagent_ended": Row("{child} ended: {reason}.", "{child} ended.", timed="{child} ended{after}: {reason}."),
        "subagent_ended_bare": Row("{child} ended.", "{child} ended.", timed="{child} ended{after}."),
        "subagent_unreported": Row("No result was reported for {child}.", "{child}: no result."),
        "tool_invoked": Row("{who} is using {tool}.", "{tool}."),
        "tool_success": Row("{tool} finished.", "{tool} done."),
        "tool_failure": Row("{tool} failed.", "{tool} failed."),
        "tool_timeout": Row("{tool} timed out.", "{tool} timed out."),
        "tool_blocked": Row("{tool} was blocked by a policy.", "{tool} blocked."),
        "tool_unanswered": Row("No result was reported for {tool}.", "{tool}: no result."),
        "condensing": Row("{who} is condensing its memory.", "Condensing."),
    },
    after=" after {one}",
    after_both=" after {steps} and {time}",
    steps={"one": "{n} step", "other": "{n} steps"},
    units=(
        (86_400, {"one": "{n} day", "other": "{n} days"}),
        (3_600, {"one": "{n} hour", "other": "{n} hours"}),
        (60, {"one": "{n} minute", "other": "{n} minutes"}),
        (1, {"one": "{n} second", "other": "{n} seconds"}),
    ),
    plural=lambda n: "one" if n == 1 else "other",
)

LANGUAGES: Mapping[str, Language] = {language.tag: language for language in (ENGLISH,)}
