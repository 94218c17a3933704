"""Which hook does what: one row per hook, one column for root sessions and one for subagents' (docs/mapping.md, 6).

A hook without a row says nothing and opens nothing, in either kind of session; it only shows that the session is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from acs_aaep_bridge.core import normalized, requests, subagents
from acs_aaep_bridge.core.draft import Draft
from acs_aaep_bridge.core.normalized import Hook

Rule = Callable[[Draft, Hook], None]


class Translator(NamedTuple):
    root: Rule
    subagent: Rule


TRANSLATORS: Mapping[str, Translator] = {
    normalized.SUBAGENT_START: Translator(subagents.start, subagents.start),
    normalized.SUBAGENT_STOP: Translator(subagents.stop, subagents.stop),
    normalized.TURN_START: Translator(requests.turn_start, subagents.turn_start),
    normalized.TURN_END: Translator(requests.turn_end, subagents.turn_end),
    normalized.USER_MESSAGE: Translator(requests.message, subagents.ignored),
    normalized.AGENT_TRIGGER: Translator(requests.message, subagents.ignored),
    normalized.TOOL_REQUEST: Translator(requests.tool_request, subagents.tool_request),
    normalized.TOOL_RESULT: Translator(requests.tool_result, subagents.tool_result),
    normalized.AGENT_RESPONSE: Translator(requests.response, subagents.response),
    normalized.PRE_COMPACT: Translator(requests.compaction, subagents.compaction),
    normalized.SESSION_END: Translator(requests.session_end, subagents.session_end),
}
