"""Every JSON Schema the bridge ships, loaded once, and the validators compiled from them.

Formats (uuid, date-time, uri) are asserted. A `$ref` is resolved among the shipped schemas and nowhere else: what is
missing is an error at start, never a request to the network. `docs/mapping.md` lists what the compiled validators decide
where JSON Schema leaves room (leap seconds, year 0000, non-ASCII digits).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn, Protocol

import jsonschema_rs
import orjson

from acs_aaep_bridge.core.model import Json, Violation

MAX_VIOLATIONS = 64
_MAX_POINTER = 512
_MAX_MEMBERS = 256
_MAX_DEPTH = 12


class Validator(Protocol):
    """A compiled schema. `is_valid` is the hot path; `violations` names what is wrong."""

    def is_valid(self, instance: Json) -> bool: ...
    def validate(self, instance: Json) -> None: ...
    def iter_errors(self, instance: Json) -> Iterable[jsonschema_rs.ValidationError]: ...


class SchemaSet:
    """Schemas by `$id`. Immutable; compiling is done by the caller, once, since it costs milliseconds."""

    def __init__(self, schemas: Iterable[Mapping[str, Json]]) -> None:
        self._schemas = {str(schema["$id"]): dict(schema) for schema in schemas}
        self._registry = jsonschema_rs.Registry(list(self._schemas.items()), retriever=_refuse)

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._schemas)

    def schema(self, schema_id: str) -> dict[str, Json]:
        """The schema with this `$id`; KeyError when none is shipped. Read-only by agreement."""
        return self._schemas[schema_id]

    def validator(self, schema_id: str) -> Validator:
        """The schema with this `$id`, compiled. Raises when one of its references is not shipped."""
        return self.compile(self._schemas[schema_id])

    def compile(self, schema: Mapping[str, Json]) -> Validator:
        """A schema made in code, compiled; its references are resolved among the shipped ones."""
        return jsonschema_rs.Draft202012Validator(
            dict(schema),
            validate_formats=True,
            ignore_unknown_formats=False,
            registry=self._registry,
            retriever=_refuse,
        )

    def replacing(self, schema: Mapping[str, Json]) -> SchemaSet:
        """The same set with the schema of that `$id` replaced."""
        return SchemaSet((self._schemas | {str(schema["$id"]): dict(schema)}).values())


def violations(validator: Validator, instance: Json) -> tuple[Violation, ...]:
    """What breaks the schema, at most `MAX_VIOLATIONS`, in the schema's order; empty when the instance is valid.

    `required` points at the missing member. Values never appear. Very long lists and objects are judged by their first
    members, so that one hostile megabyte cannot block the event loop for seconds.
    """
    found = dict.fromkeys(_violation(error) for error in validator.iter_errors(_bounded(instance, _MAX_DEPTH)))
    if not found:
        try:
            validator.validate(instance)
        except jsonschema_rs.ValidationError as error:
            found = {_violation(error): None}
    return tuple(islice(found, MAX_VIOLATIONS))


def pointer(path: Iterable[str | int]) -> str:
    """The JSON pointer (RFC 6901) of a path.

    It ends at an enclosing value where it would grow longer than 512 characters, or hold what a terminal could obey.
    """
    text = ""
    for part in path:
        longer = text + "/" + str(part).replace("~", "~0").replace("/", "~1")
        if len(longer) > _MAX_POINTER or not longer.isprintable():
            break
        text = longer
    return text


def _violation(error: jsonschema_rs.ValidationError) -> Violation:
    path = error.instance_path
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        path = [*path, error.kind.property]
    return Violation(pointer(path), error.kind.name)


def _bounded(value: Json, depth: int) -> Json:
    """`value` with lists and objects cut to their first members; what a schema may require is kept."""
    if depth == 0:
        return value
    if isinstance(value, list):
        return [_bounded(item, depth - 1) for item in value[:MAX_VIOLATIONS]]
    if isinstance(value, dict):
        kept = value.items() if len(value) <= _MAX_MEMBERS else _first_and_known(value)
        return {name: _bounded(item, depth - 1) for name, item in kept}
    return value


def _first_and_known(value: dict[str, Json]) -> Iterable[tuple[str, Json]]:
    known = ((name, value[name]) for name in _known_names() if name in value)
    return chain(islice(value.items(), MAX_VIOLATIONS), known)


@cache
def shipped() -> SchemaSet:
    """All schemas of this distribution. Blocks to read some dozens of small files, once per process."""
    documents = (orjson.loads(file.read_bytes()) for file in _json_files(folder()))
    return SchemaSet(document for document in documents if "$id" in document)


def folder() -> Traversable:
    """Where the schemas lie: inside the installed package, or beside `src` in a source tree."""
    packaged = files("acs_aaep_bridge") / "schemas"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "schemas"


def _json_files(root: Traversable) -> Iterable[Traversable]:
    for entry in sorted(root.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _json_files(entry)
        elif entry.name.endswith(".json"):
            yield entry


@cache
def _known_names() -> tuple[str, ...]:
    names: dict[str, None] = {}
    pending: list[Any] = [shipped().schema(schema_id) for schema_id in sorted(shipped().ids)]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            names.update(dict.fromkeys(part.get("properties", ())))
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return tuple(names)


def _refuse(uri: str) -> NoReturn:
    raise LookupError(f"the schema {uri} is referred to but not shipped")
