"""Subagents: started and stopped by their parent's hooks, acting by their own (docs/mapping.md, 6, rules 1 to 3).

The parent's hooks and the subagent's own usually travel in different partitions, so any of them may come first. A stop
and the subagent's `sessionEnd` therefore wait for each other, briefly.
"""

from __future__ import annotations

import orjson

from acs_aaep_bridge.core import calls, identity, output
from acs_aaep_bridge.core.announce import Words
from acs_aaep_bridge.core.cut import cut, cut_to
from acs_aaep_bridge.core.draft import UNKNOWN_AGENT, Draft, Moment
from acs_aaep_bridge.core.endings import SUPERSEDED, end, of_session, of_stop
from acs_aaep_bridge.core.normalized import Hook, text
from acs_aaep_bridge.core.requests import condense
from acs_aaep_bridge.core.session import IDLE, THINKING, Ending, Held, Subagent

MAX_HELD_BYTES = 40 << 10
MAX_ENDING_BYTES = 64 << 10
_NEVER_WAIT = frozenset({"stop:failed", "stop:denied_at_spawn"})
_MAX_REQUESTED_BY = 256


def start(draft: Draft, hook: Hook) -> None:
    """`subagentStart`: `started`; after an inferred one it only tells name and time."""
    subagent, open_ = draft.state.subagent, draft.open
    if subagent is not None and subagent.ended:
        draft.drop("after_end")
    elif subagent is None:
        _become(draft, hook)
        requested_by = cut(f"agent:{hook.context.agent_id or UNKNOWN_AGENT}", _MAX_REQUESTED_BY)
        _open(draft, "subagent_started", Words(draft.agent(), draft.child()), requested_by)
    elif open_ is not None and open_.inferred:
        draft.open = open_._replace(started=hook.at)
        draft.state = draft.state._replace(subagent=subagent._replace(name=_announced(hook)))
    else:
        draft.drop("duplicate")


def stop(draft: Draft, hook: Hook) -> None:
    """`subagentStop`: the terminal event, at once or when what it waits for has come."""
    subagent, held = draft.state.subagent, draft.state.held
    if subagent is not None and subagent.ended:
        draft.drop("late" if subagent.ended == "silence" else "duplicate")
        return
    if held is not None and held.is_stop:
        draft.drop("duplicate")
        return
    if subagent is None:
        _become(draft, hook)
        _open(draft, "subagent_active", Words(child=draft.child()), None)
    ending = of_stop(hook, draft)
    if held is None and _must_wait(draft, ending):
        _hold(draft, hook, ending, is_stop=True)
        return
    end(draft, draft.current, ending, draft.moment)


def session_end(draft: Draft, hook: Hook) -> None:
    """The subagent's own end waits for the stop, which knows more; a stop that waited for the subagent need wait no longer."""
    subagent, held = draft.state.subagent, draft.state.held
    if subagent is not None and subagent.ended:
        draft.drop("late" if subagent.ended == "silence" else "duplicate")
    elif held is None:
        _hold(draft, hook, of_session(hook, draft), is_stop=False)
    elif held.is_stop:
        release(draft, held)
    else:
        draft.drop("duplicate")


def turn_start(draft: Draft, hook: Hook) -> None:
    if _alive(draft):
        draft.change_state(THINKING)
        _go_on(draft)


def turn_end(draft: Draft, hook: Hook) -> None:
    if _alive(draft) and draft.open is not None:
        draft.open = calls.close_calls(draft, draft.open, draft.moment)
        draft.change_state(IDLE)
        _go_on(draft)


def tool_request(draft: Draft, hook: Hook) -> None:
    if _alive(draft):
        calls.invoke(draft, hook)


def tool_result(draft: Draft, hook: Hook) -> None:
    if _alive(draft):
        calls.answer(draft, hook)
        _go_on(draft)


def response(draft: Draft, hook: Hook) -> None:
    if _alive(draft):
        output.write(draft, hook)
        if not output.is_thought(hook):
            draft.state = draft.state._replace(responded=True)
        _go_on(draft)


def compaction(draft: Draft, hook: Hook) -> None:
    if _alive(draft):
        condense(draft)


def ignored(draft: Draft, hook: Hook) -> None:
    """A hook that says nothing in a subagent, but shows that it is alive."""
    _alive(draft)


def release(draft: Draft, held: Held) -> None:
    """The terminal event of what was held, at its own time."""
    end(draft, draft.current, held.ending, Moment(held.context, held.at))


def _alive(draft: Draft) -> bool:
    if draft.open is None:
        draft.drop("after_end")
    return not draft.dropped


def _become(draft: Draft, hook: Hook) -> None:
    """This session turns out to be a subagent's. A request that was open in it ends first."""
    subagent = Subagent(hook.context.parent, _announced(hook))
    open_ = draft.open
    if open_ is not None:
        child = draft.policy.announcer.child(draft.state.subject, subagent.name)
        end(draft, open_, Ending(SUPERSEDED, successor=child), Moment(open_.context, hook.at))
    draft.state = draft.state._replace(subagent=subagent)


def _open(draft: Draft, row: str, words: Words, requested_by: str | None) -> None:
    sess = identity.subagent_session(draft.state.subject)
    reported = requested_by is not None
    draft.open = draft.begin(sess, row, words, reported, {"requested_by": requested_by} if reported else None)


def _announced(hook: Hook) -> str | None:
    """The name in `subagent_descriptor`, bounded for keeping; the announcer cleans it when it speaks."""
    descriptor = hook.payload.get("subagent_descriptor")
    name = text(descriptor, "agent_name") or text(descriptor, "agent_id")
    return name[:256] if name else None


def _must_wait(draft: Draft, ending: Ending) -> bool:
    open_ = draft.open
    if ending.row in _NEVER_WAIT or open_ is None:
        return False
    return bool(open_.calls) or (draft.policy.agent_output == "all" and not draft.state.responded)


def _hold(draft: Draft, hook: Hook, ending: Ending, is_stop: bool) -> None:
    due = draft.now + draft.policy.timing.grace
    if ending.result is not None:
        room = min(MAX_HELD_BYTES, MAX_ENDING_BYTES - len(orjson.dumps(ending.extension)))
        kept = cut_to(ending.result.text, room, lambda part: len(orjson.dumps(part)))
        ending = ending._replace(result=ending.result._replace(text=kept))
    draft.state = draft.state._replace(held=Held(is_stop, due, hook.at, hook.context, ending))
    draft.notes.append("held")


def _go_on(draft: Draft) -> None:
    """Release a held stop when what it waited for has come."""
    held = draft.state.held
    if held is not None and held.is_stop and draft.open is not None and not _must_wait(draft, held.ending):
        release(draft, held)
