"""The closed sets of label values. A value outside its set is counted as `other`: nothing from a payload becomes a series."""

from __future__ import annotations

from typing import Final

from acs_aaep_bridge.core.hooks import HOOKS

OTHER: Final = "other"

STAGES: Final = ("normalize", "lifecycle")
ROLES: Final = ("consumer", "producer", "admin", "registry")
RESULTS: Final = ("emitted", "absorbed", "skipped", "rejected")
COMMIT_OUTCOMES: Final = ("ok", "failed", "lost")
TAKE_OUTCOMES: Final = ("ok", "failed")
SIGNATURES: Final = ("unsigned", "unverified", "verified")
BLOCKS: Final = ("out_of_range", "unreadable_state", "unpublishable")

METHODS: Final = (*HOOKS, "system/ping", OTHER)

SESSION_NOTES: Final = (
    "duplicate",
    "late",
    "after_end",
    "orphan_result",
    "no_request",
    "inferred_start",
    "inferred_end",
    "superseded",
    "held",
    "clock_ahead",
    "replayed",
)

DEAD_LETTER_CODES: Final = (
    "not_utf8",
    "malformed_json",
    "too_deep",
    "too_large",
    "not_an_object",
    "unknown_method",
    "unsupported_version",
    "envelope_invalid",
    "payload_invalid",
    "invalid_timestamp",
    "signature_invalid",
    "signature_missing",
    "unsupported_format",
    "cloudevent_invalid",
    "undecodable_avro",
    "unknown_schema",
    "self_parent",
    "parent_mismatch",
    "undecodable_headers",
    "output_too_large",
    "output_invalid",
)

# Which outcomes each AAEP type can carry, as the hosts report them; "" is a type that has none.
LIFECYCLE_OUTCOMES: Final[dict[str, tuple[str, ...]]] = {
    "aaep:agent.session.started": ("",),
    "aaep:agent.session.completed": ("completed",),
    "aaep:agent.session.errored": ("failed", "error"),
    "aaep:agent.session.cancelled": (
        "cancelled",
        "timeout",
        "denied_at_spawn",
        "denied_at_start",
        "interrupted",
        "deferred",
        "abandoned",
        "session_ended",
        "no_result_reported",
        "superseded",
    ),
    "aaep:agent.state.changed": ("",),
    "aaep:agent.progress.updated": ("",),
    "aaep:agent.tool.invoked": ("",),
    "aaep:agent.tool.completed": ("success", "failure", "timeout", "blocked", "unanswered"),
    "aaep:agent.output.streaming": ("",),
}
LIFECYCLE_TYPES: Final = (*LIFECYCLE_OUTCOMES, OTHER)

# Label name -> its whole set; a label that is not here (topic, partition, versions) comes from the configuration or the build.
CLOSED: Final[dict[str, tuple[str, ...]]] = {
    "stage": STAGES,
    "role": ROLES,
    "method": METHODS,
    "result": RESULTS,
    "kind": SESSION_NOTES,
    "code": DEAD_LETTER_CODES,
    "status": SIGNATURES,
    "reason": BLOCKS,
    "type": LIFECYCLE_TYPES,
}


def one_of(values: tuple[str, ...], value: str) -> str:
    """`value` if it is in the closed set, else `other`."""
    return value if value in values else OTHER
