"""A writer's Avro schema made safe to read with, and made to yield plain JSON values.

Each type that JSON lacks gets one of our own logical types, whose readers stand in `core.avro`. What would be dangerous
to read is refused, since the compiled reader takes any schema at its word: it recurses without a limit (five kilobytes
of a recursive type end the process), and reads 2^60 items where they take no bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from acs_aaep_bridge.core.model import Json, WriterSchema

MAX_DEPTH = 64
MAX_FREE = 100

LOGICAL = frozenset(
    {
        ("int", "date"),
        ("int", "time-millis"),
        ("long", "time-micros"),
        ("long", "timestamp-millis"),
        ("long", "timestamp-micros"),
        ("long", "timestamp-nanos"),
        ("long", "local-timestamp-millis"),
        ("long", "local-timestamp-micros"),
        ("long", "local-timestamp-nanos"),
    }
)
_WIDTHS = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
_NAMED = frozenset({"record", "error", "enum", "fixed"})


class UnusableSchema(ValueError):
    """The writer's schema cannot be used; the text says why, without quoting it."""


class Shape(NamedTuple):
    """A rewritten type: the fewest bytes a value takes, how many values in it may take none, and how deep it nests."""

    schema: Json
    width: int
    free: int
    height: int


def readable(schema: WriterSchema) -> Json:
    """The schema to read with. Raises UnusableSchema."""
    known: dict[str, tuple[Mapping[str, Json], str]] = {}
    for _, text in schema.references:
        _collect(_parse(text), "", known, 0)
    return _Walk(known).visit(_parse(schema.text), "", 0).schema


def _parse(text: str) -> Json:
    if text.strip() in _WIDTHS:
        return text.strip()  # registries also hold the bare name of a primitive type, without quotes
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise UnusableSchema("its text is not JSON") from None


def _collect(node: Json, namespace: str, known: dict[str, tuple[Mapping[str, Json], str]], depth: int) -> None:
    """Remember the named types of a referenced schema; they are written out where they are first used."""
    _bounded(depth)
    if isinstance(node, list):
        for branch in node:
            _collect(branch, namespace, known, depth + 1)
    elif isinstance(node, dict):
        if node.get("type") in ("record", "error", "enum", "fixed"):
            name, namespace = _fullname(node, namespace)
            known[name] = (node, namespace)
        for member in ("fields", "items", "values", "type"):
            if isinstance(node.get(member), (dict, list)):
                _collect(node[member], namespace, known, depth + 1)


class _Walk:
    """One walk over a schema. `known` are named types of the references, with the namespace inside each."""

    def __init__(self, known: Mapping[str, tuple[Mapping[str, Json], str]]) -> None:
        self._known = known
        self._done: dict[str, Shape] = {}
        self._open: set[str] = set()

    def visit(self, node: Json, namespace: str, depth: int) -> Shape:
        _bounded(depth)
        if isinstance(node, str):
            return _primitive(node, {}) if node in _WIDTHS else self._reference(node, namespace, depth)
        if isinstance(node, list):
            return self._union(node, namespace, depth)
        if not isinstance(node, dict):
            raise UnusableSchema("it holds something that is no Avro type")
        kind = node.get("type")
        return self._object(kind, node, namespace, depth) if isinstance(kind, str) else self.visit(kind, namespace, depth + 1)

    def _object(self, kind: str, node: Mapping[str, Json], namespace: str, depth: int) -> Shape:
        if kind in _WIDTHS:
            return _primitive(kind, node)
        if kind in _NAMED:
            return self._define(node, namespace, depth)
        if kind in {"array", "map"}:
            return self._collection(kind, node, namespace, depth)
        return self._reference(kind, namespace, depth)

    def _union(self, branches: list[Json], namespace: str, depth: int) -> Shape:
        shapes = [self.visit(branch, namespace, depth + 1) for branch in branches]
        free = max((shape.free for shape in shapes), default=0)
        return _checked(Shape([shape.schema for shape in shapes], 1, free, 1 + max((s.height for s in shapes), default=0)))

    def _collection(self, kind: str, node: Mapping[str, Json], namespace: str, depth: int) -> Shape:
        member = "items" if kind == "array" else "values"
        inner = self.visit(node.get(member), namespace, depth + 1)
        if kind == "array" and not inner.width:
            raise UnusableSchema("it has an array whose items take no bytes")
        return _checked(Shape({"type": kind, member: inner.schema}, 1, inner.free, 1 + inner.height))

    def _reference(self, name: str, namespace: str, depth: int) -> Shape:
        for full in [name] if "." in name or not namespace else [f"{namespace}.{name}", name]:
            if full in self._open:
                raise UnusableSchema("it is recursive; free JSON is carried as text, in payload_json")
            if full in self._done:
                return self._done[full]
            if full in self._known:
                node, outer = self._known[full]
                return self._define(node, outer, depth + 1)
        raise UnusableSchema("it names a type that neither it nor its references define")

    def _define(self, node: Mapping[str, Json], namespace: str, depth: int) -> Shape:
        name, namespace = _fullname(node, namespace)
        if name in self._done or name in self._open:
            raise UnusableSchema("it defines one name twice")
        if node["type"] == "enum":
            self._done[name] = shape = _enum(node)
            return shape
        if node["type"] == "fixed":
            shape = _fixed(node, name)
        else:
            self._open.add(name)
            shape = self._record(node, name, namespace, depth)
            self._open.remove(name)
        self._done[name] = shape._replace(schema=name)
        return shape

    def _record(self, node: Mapping[str, Json], name: str, namespace: str, depth: int) -> Shape:
        listed = node.get("fields")
        fields = listed if isinstance(listed, list) else []
        if not all(isinstance(field, dict) and isinstance(field.get("name"), str) for field in fields):
            raise UnusableSchema("a field of a record has no name")
        shapes = {field["name"]: self.visit(field.get("type"), namespace, depth + 1) for field in fields}
        width = sum(shape.width for shape in shapes.values())
        rewritten = {
            "type": "record",
            "name": name,
            "logicalType": "bridge-record",
            "fields": [{"name": field, "type": shape.schema} for field, shape in shapes.items()],
        }
        free = sum(shape.free for shape in shapes.values()) + (not width)
        return _checked(Shape(rewritten, width, free, 1 + max((s.height for s in shapes.values()), default=0)))


def _bounded(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise UnusableSchema(f"it is nested deeper than {MAX_DEPTH} levels")


def _checked(shape: Shape) -> Shape:
    _bounded(shape.height)
    if shape.free > MAX_FREE:
        raise UnusableSchema(f"it has more than {MAX_FREE} values that take no bytes")
    return shape


def _fullname(node: Mapping[str, Json], namespace: str) -> tuple[str, str]:
    """A definition's full name, and the namespace that names inside it are looked up in."""
    name = node.get("name")
    if not isinstance(name, str) or not name:
        raise UnusableSchema("it defines a type without a name")
    if "." in name:
        return name, name.rpartition(".")[0]
    own = node.get("namespace", namespace)
    return (f"{own}.{name}", own) if isinstance(own, str) and own else (name, "")


def _enum(node: Mapping[str, Json]) -> Shape:
    """An enum is an int on the wire. Read as one, an index outside the symbols is an error, a negative one too."""
    symbols = node.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise UnusableSchema("it has an enum without symbols")
    return Shape({"type": "int", "logicalType": "bridge-enum", "bridge": symbols}, 1, 0, 0)


def _fixed(node: Mapping[str, Json], name: str) -> Shape:
    size = node.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise UnusableSchema("it has a fixed type without a size")
    defined: dict[str, Json] = {"type": "fixed", "name": name, "size": size, "logicalType": "bridge-bytes"}
    if node.get("logicalType") == "decimal":
        defined |= {"logicalType": "bridge-decimal", "bridge": _scale(node)}
    elif node.get("logicalType") == "uuid" and size == 16:
        defined["logicalType"] = "bridge-uuid"
    return Shape(defined, size, int(not size), 0)


def _primitive(kind: str, node: Mapping[str, Json]) -> Shape:
    logical = node.get("logicalType")
    schema: Json = kind
    if kind == "bytes" and logical == "decimal":
        schema = {"type": kind, "logicalType": "bridge-decimal", "bridge": _scale(node)}
    elif (kind, logical) in LOGICAL:
        schema = {"type": kind, "logicalType": f"bridge-{logical}"}
    elif kind == "bytes":
        schema = {"type": kind, "logicalType": "bridge-bytes"}
    elif kind in {"float", "double"}:
        schema = {"type": kind, "logicalType": "bridge-finite"}
    return Shape(schema, _WIDTHS[kind], int(kind == "null"), 0)


def _scale(node: Mapping[str, Json]) -> int:
    scale = node.get("scale", 0)
    if not isinstance(scale, int) or not 0 <= scale <= 1_000:
        raise UnusableSchema("it has a decimal without a usable scale")
    return scale
