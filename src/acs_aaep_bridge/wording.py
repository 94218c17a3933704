"""What is wrong with an option, in the words of who writes the file: what stands where, and what to write instead.

The rows are the kinds of error that pydantic finds; a test goes through every option and meets no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
HTTP_URL = r"^https?://"
LANGUAGE_TAG = r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$"
URI = r"^[A-Za-z][A-Za-z0-9+.-]*:\S+$"

_PATTERNS: Mapping[str, str] = {
    TOPIC: "write the name of a topic: at most 249 letters, digits, dots, underscores and hyphens",
    HTTP_URL: "write an address that begins with http:// or https://",
    LANGUAGE_TAG: "write a language tag, like en or pt-BR",
    URI: "write a URI, like https://… or urn:…",
}
_ROWS: Mapping[str, str] = {
    "extra_forbidden": "there is no such option; `acs-aaep-bridge config schema` lists them",
    "missing": "is required",
    "model_type": "is a section: write its options below it, each on a line of its own, indented",
    "dict_type": "is a table: write `name: value` lines below it, indented",
    "tuple_type": "is a list: write [one, another], or each on a line of its own after a dash",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "invalid_key": "the name of an option is text, and this is not: put it in quotes, or take it out",
    "string_type": "write text, in quotes where it looks like a number, a date or true",
    "path_type": "write the path of a file",
    "bool_parsing": "write true or false",
    "bool_type": "write true or false",
    "int_from_float": "write a whole number",
    "int_parsing": "write a whole number",
    "int_parsing_size": "write a smaller number",
    "int_type": "write a whole number",
    "float_parsing": "write a number",
    "float_type": "write a number",
    "finite_number": "write a number",
    "greater_than_equal": "must be {ge:g} or more",
    "less_than_equal": "must be {le:g} or less",
    "literal_error": "write {expected}",
}


def words(error: Mapping[str, Any]) -> tuple[str, str]:
    """The dotted path of the option in one of pydantic's error dicts, and what to tell. Never the value that was written."""
    kind, context, path = error["type"], error.get("ctx", {}), [str(part) for part in error["loc"]]
    if path[-1:] == ["[key]"]:
        return ".".join(path[:-1]), _ROWS["invalid_key"]
    row = _PATTERNS.get(context["pattern"]) if kind == "string_pattern_mismatch" else _ROWS.get(kind)
    message = row.format_map(context) if row is not None else str(error["msg"]).removeprefix("Value error, ")
    return ".".join(path), message
