"""Requests in root sessions: which hook opens one, belongs to one, or ends one (docs/mapping.md, 6, rules 1 and 2).

A turn is compared by its digest. `closed` turns are those this session remembers as ended.
"""

from __future__ import annotations

from acs_aaep_bridge.core import calls, identity, output
from acs_aaep_bridge.core.announce import Words
from acs_aaep_bridge.core.draft import PROGRESS_UPDATED, Draft, Event, Moment
from acs_aaep_bridge.core.endings import ANSWERED, UNREPORTED, end, of_session, of_turn
from acs_aaep_bridge.core.normalized import USER_MESSAGE, Hook, digest
from acs_aaep_bridge.core.session import MAX_REMEMBERED_TURNS, THINKING, Answer, Ending, Open


def turn_start(draft: Draft, hook: Hook) -> None:
    """Begins a request; or joins the one that its turn, or its own late report, belongs to."""
    open_, turn = draft.open, draft.turn
    if open_ is not None and open_.has_turn(turn):
        if turn == open_.turn and open_.inferred:
            draft.open = open_._replace(started=hook.at)
        elif turn == open_.turn and not draft.state.turns:
            pass  # a message opened it and named the turn; this is the report of the turn itself
        else:
            draft.drop("duplicate")
            return
    elif open_ is not None and _nests(draft, open_, hook):
        pass
    elif open_ is not None and (not draft.state.turns or open_.inferred) and open_.turn is None and not _is_closed(draft):
        draft.open = open_._replace(turn=turn, started=hook.at if open_.started is None else open_.started)
    else:
        _begin(draft, hook, hook.context.request_id if hook.turn is None or _is_closed(draft) else hook.turn, reported=True)
    draft.state = draft.state._replace(turns=True)


def message(draft: Draft, hook: Hook) -> None:
    """`userMessage` and `agentTrigger`: in a host without turns each begins a request, save a message after its trigger."""
    open_, turn = draft.open, draft.turn
    follows = open_ is not None and open_.triggered and hook.context.hook == USER_MESSAGE
    if open_ is not None and (open_.has_turn(turn) or _nests(draft, open_, hook)):
        pass
    elif _is_closed(draft):
        draft.drop("after_end")
        return
    elif open_ is not None and (draft.state.turns or follows) and (turn is None or open_.turn is None):
        _adopt(draft)
    elif draft.state.turns and turn is None:
        draft.drop("no_request")
        return
    else:
        _begin(draft, hook, hook.turn or hook.context.request_id, reported=not draft.state.turns)
    draft.change_state(THINKING)
    draft.triggered = hook.context.hook != USER_MESSAGE


def tool_request(draft: Draft, hook: Hook) -> None:
    if _enter(draft, hook):
        calls.invoke(draft, hook)


def tool_result(draft: Draft, hook: Hook) -> None:
    """Opens nothing: without its call it has nothing to say."""
    open_ = draft.open
    if _is_closed(draft) and not (open_ is not None and open_.has_turn(draft.turn)):
        draft.drop("after_end")
    elif open_ is None:
        draft.drop("no_request")
    elif draft.turn is not None and not open_.has_turn(draft.turn) and not _nests(draft, open_, hook) and open_.turn is not None:
        draft.drop("orphan_result")
    else:
        _adopt(draft)
        calls.answer(draft, hook)


def response(draft: Draft, hook: Hook) -> None:
    """In a host without turns nothing else says that a request is done, so it is when nothing follows for a while."""
    if not _enter(draft, hook):
        return
    output.write(draft, hook)
    if output.is_thought(hook):
        return
    draft.state = draft.state._replace(responded=True)
    if not draft.state.turns and not draft.current.calls:
        grace = draft.policy.timing.grace
        draft.answer = Answer(draft.now + grace, hook.stamp + grace)


def compaction(draft: Draft, hook: Hook) -> None:
    if _enter(draft, hook):
        condense(draft)


def condense(draft: Draft) -> None:
    """`progress.updated` with the text, in a root as in a subagent."""
    texts = draft.policy.announcer.texts("condensing", draft.who())
    fields = {**texts, "progress": {"description": texts["summary_normal"]}}
    at = draft.say(draft.current, Event(PROGRESS_UPDATED, fields, "background"))
    draft.open = draft.current._replace(last=at)


def turn_end(draft: Draft, hook: Hook) -> None:
    """Ends its request. For a turn that nobody has heard of it makes a session of its own and leaves the open one alone."""
    open_, turn = draft.open, draft.turn
    if open_ is not None and (turn == open_.turn or (open_.turn is None and not _is_closed(draft))):
        _adopt(draft)
        end(draft, draft.current, of_turn(hook, draft), draft.moment)
    elif open_ is not None and (open_.has_turn(turn) or _nests(draft, open_, hook)):
        return
    elif _is_closed(draft):
        draft.drop("late" if turn in draft.state.late else "duplicate")
    else:
        key = hook.turn or hook.context.request_id
        own = draft.begin(_session(draft, key), "request_started", Words(agent=draft.agent()), reported=False)._replace(turn=turn)
        end(draft, own, of_turn(hook, draft), draft.moment)
        draft.elsewhere = True


def session_end(draft: Draft, hook: Hook) -> None:
    if draft.open is None:
        draft.drop("no_request")
    else:
        end(draft, draft.open, of_session(hook, draft), draft.moment)


def end_unanswered(draft: Draft, open_: Open, at: int) -> None:
    """The open request ends because the next one begins: done where its answer was given, else nobody reported a result."""
    if open_.answer is not None:
        end(draft, open_, Ending(ANSWERED), Moment(open_.context, min(at, open_.answer.stamp)))
    else:
        end(draft, open_, Ending(UNREPORTED), Moment(open_.context, at))


def _enter(draft: Draft, hook: Hook) -> bool:
    """Make the request that this hook belongs to the open one; False when there is none and it may not open one."""
    open_, turn = draft.open, draft.turn
    if turn is None:
        if open_ is None and draft.state.turns:
            draft.drop("no_request")
            return False
        if open_ is None:
            _begin(draft, hook, hook.context.request_id, reported=False)
        return True
    if open_ is not None and (open_.has_turn(turn) or _nests(draft, open_, hook)):
        return True
    if _is_closed(draft):
        draft.drop("after_end")
        return False
    if open_ is not None and open_.turn is None:
        _adopt(draft)
    else:
        _begin(draft, hook, hook.turn or hook.context.request_id, reported=False)
    return True


def _begin(draft: Draft, hook: Hook, key: str, reported: bool) -> None:
    if draft.open is not None:
        end_unanswered(draft, draft.open, hook.at)
    opened = draft.begin(_session(draft, key), "request_started", Words(agent=draft.agent()), reported)
    draft.open = opened._replace(turn=draft.turn)


def _session(draft: Draft, key: str) -> str:
    return identity.request_session(draft.state.subject, key)


def _adopt(draft: Draft) -> None:
    """The first turn id seen becomes the turn of a request that has none."""
    if draft.open is not None and draft.open.turn is None and draft.turn is not None:
        draft.open = draft.open._replace(turn=draft.turn)


def _nests(draft: Draft, open_: Open, hook: Hook) -> bool:
    """Whether the hook's turn is one inside the open request; if so it is remembered as such."""
    if draft.turn is None or hook.parent_turn is None or not open_.has_turn(digest(hook.parent_turn)):
        return False
    if _is_closed(draft):
        return False
    draft.open = open_._replace(nested=(*open_.nested, draft.turn)[-MAX_REMEMBERED_TURNS:])
    return True


def _is_closed(draft: Draft) -> bool:
    return draft.turn is not None and draft.turn in draft.state.closed
