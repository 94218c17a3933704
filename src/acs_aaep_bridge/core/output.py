"""What the agent writes, in chunks that can be spoken as they are (docs/mapping.md, 6: `content.agent_output`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import orjson
import regex

from acs_aaep_bridge.core import identity
from acs_aaep_bridge.core.clean import clean_lines
from acs_aaep_bridge.core.cut import boundary
from acs_aaep_bridge.core.draft import OUTPUT_STREAMING, Draft, Event
from acs_aaep_bridge.core.normalized import Hook
from acs_aaep_bridge.core.session import WRITING_OUTPUT

MAX_CHUNK = 16_000
MAX_CHUNK_BYTES = 48 << 10
THOUGHT = "afterAgentThought"

_SENTENCE = regex.compile(r"(?r)(?:[.!?…](?=\s)|[。！？\n])\s?")
_WORD = regex.compile(r"(?r)\s")


class Chunk(NamedTuple):
    text: str
    position: int
    complete: bool


def is_thought(hook: Hook) -> bool:
    """Whether the host marks this response as the agent's thinking, which is never output."""
    return hook.metadata.get("cursor_event") == THOUGHT


def write(draft: Draft, hook: Hook) -> None:
    """An `agentResponse`: `writing_output`, and its text where the policy lets it be spoken."""
    if is_thought(hook):
        return
    draft.change_state(WRITING_OUTPUT)
    if draft.policy.agent_output != "all" and (draft.policy.agent_output != "root" or draft.state.subagent is not None):
        return
    for chunk in chunks(text_of(hook, draft.policy.redacting)):
        fields = {
            "chunk": chunk.text,
            "position": chunk.position,
            "complete": chunk.complete,
            "coalesce_hint": "completion" if chunk.complete else "paragraph",
            "output_id": identity.output(hook.context.request_id),
        }
        at = draft.say(draft.current, Event(OUTPUT_STREAMING, fields, draft.quiet(), hints=draft.policy.output_hints))
        draft.open = draft.current._replace(last=at)


def text_of(hook: Hook, redacting: bool) -> str:
    """The text items of a response, joined by newlines and cleaned."""
    content = hook.payload.get("content")
    items = content if isinstance(content, list) else []
    texts = [
        item["value"]
        for item in items
        if isinstance(item, dict) and item.get("type") == "text" and isinstance(item.get("value"), str)
    ]
    return clean_lines("\n".join(texts), redacting)


def chunks(text: str) -> Iterator[Chunk]:
    """`text` in order and whole, each chunk within the limits and ended at a sentence or a word where there is one."""
    position = 0
    while position < len(text):
        size = _size(text, position)
        yield Chunk(text[position : position + size], position, position + size == len(text))
        position += size


def _size(text: str, position: int) -> int:
    rest = text[position : position + MAX_CHUNK + 1]
    limit = min(len(rest), MAX_CHUNK)
    while (size := len(orjson.dumps(rest[:limit]))) > MAX_CHUNK_BYTES:
        limit = min(limit - 1, limit * MAX_CHUNK_BYTES // size)
    if limit == len(rest):
        return limit
    for end in (_SENTENCE, _WORD):
        match = end.search(rest, limit // 2, limit)
        if match is not None:
            return match.end()
    return boundary(rest, limit) or limit
