"""An error in a few words, for a log line or a readiness reason."""

from __future__ import annotations


def describe(error: BaseException) -> str:
    """Its class and what it says, once each: some of aiokafka's name their class in their text as well."""
    name, text = type(error).__name__, " ".join(str(error).split())
    return text if text.startswith(name) else f"{name}: {text}" if text else name
