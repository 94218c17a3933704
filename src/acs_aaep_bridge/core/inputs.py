"""Which format a raw record is in, decided record by record, and its request as JSON text (docs/formats.md).

The zero byte of a schema registry's wire format decides first, except that a content type of CloudEvents wins over it;
what is neither is JSON, whatever its content type says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core import cloudevents
from acs_aaep_bridge.core.decode import Batch, elements, read
from acs_aaep_bridge.core.model import Json, Record, Reject, Violation, WriterSchema
from acs_aaep_bridge.core.signature import has_duplicate_keys
from acs_aaep_bridge.core.writers import MAGIC, Unreadable, WriterSchemas

_AVRO_TYPES: Final = frozenset({"application/avro", "avro/binary", "application/vnd.apache.avro+binary"})


class Inputs:
    """Turns records into JSON text. Learns writers' schemas; otherwise nothing is kept between records."""

    def __init__(self, config: Config) -> None:
        self._formats = frozenset(config.input.formats)
        self._limits = config.limits
        self._outer = config.limits.model_copy(update={"max_depth": config.limits.max_depth + 1})
        self._plain = "json" in config.input.formats
        self._strict = config.signature.mode != "off"
        self._schemas = WriterSchemas()

    def wants(self, records: Iterable[Record]) -> frozenset[int]:
        """Ids of schemas that these records need and that are not known; none while Avro is not among `input.formats`."""
        return self._schemas.wants(records) if "avro" in self._formats else frozenset()

    def learn(self, schema_id: int, schema: WriterSchema | None) -> None:
        self._schemas.learn(schema_id, schema)

    def read(self, record: Record, value: bytes) -> Json | Batch | Reject:
        """The request in `value`, which is the record's, not judged yet, or a batch. Never raises on bad input."""
        if record.headers or not self._plain or value[:1] == MAGIC:
            found = self._found(record, value)
            if not isinstance(found, bytes):
                return _reject(found) if isinstance(found, Unreadable) else found
            value = found
        content = read(value, self._limits)
        return self._without_duplicates(content, value) if self._strict else content

    def _found(self, record: Record, value: bytes) -> bytes | Reject | Unreadable:
        media = cloudevents.media_type(record.headers)
        if media.startswith(cloudevents.STRUCTURED):
            return self._structured(media, value)
        attributes = cloudevents.attributes(record.headers) if "cloudevents" in self._formats else None
        if attributes is not None and (wrong := cloudevents.problem(attributes, "")):
            return wrong
        if value[:1] == MAGIC:
            return self._framed(value)
        if media in _AVRO_TYPES and value.lstrip(b" \t\r\n")[:1] not in (b"{", b"["):
            return Unreadable(
                "unsupported_format", "the record is Avro without a schema id: send it in the registry's wire format"
            )
        return value if attributes is not None or "json" in self._formats else _refused("json")

    def _framed(self, value: bytes) -> bytes | Reject | Unreadable:
        if "avro" not in self._formats:
            return _refused("avro")
        text = self._schemas.text(value)
        if isinstance(text, bytes) and len(text) > self._limits.max_record_bytes:
            message = f"decoded from Avro the record has {len(text)} bytes, limits.max_record_bytes is "
            return Unreadable("too_large", f"{message}{self._limits.max_record_bytes}: send smaller records, or raise the limit")
        return text

    def _structured(self, media: str, value: bytes) -> bytes | Reject | Unreadable:
        if "cloudevents" not in self._formats:
            return _refused("cloudevents")
        if wrong := cloudevents.unsupported(media):
            return wrong
        document = read(value, self._outer)
        if type(document) is Reject:
            return document
        if self._strict and has_duplicate_keys(value):
            return DUPLICATE_KEYS
        return cloudevents.data(document)

    def _without_duplicates(self, content: Json | Batch, text: bytes) -> Json | Batch:
        """What was read from `text`, each request in which an object names a member twice replaced by its Reject.

        Parsers keep one of the two silently, so the signature could be checked on one request and another be meant. Where
        no signature is checked the last member wins, as in most readers, and this is not asked.
        """
        if type(content) is Reject:
            return content
        if type(content) is not Batch:
            return DUPLICATE_KEYS if has_duplicate_keys(text) else content
        parts = elements(text) or []
        twice = [
            type(request) is not Reject and has_duplicate_keys(part)
            for request, part in zip(content.requests, parts, strict=True)
        ]
        requests = [DUPLICATE_KEYS if bad else request for request, bad in zip(content.requests, twice, strict=True)]
        return content._replace(requests=requests)


DUPLICATE_KEYS: Final = Reject(
    "normalize",
    "malformed_json",
    "an object names one member twice; where signatures are checked this is refused, since readers differ in which one they take",
)


def _refused(form: str) -> Reject:
    what = {"json": "plain JSON", "avro": "in a schema registry's wire format", "cloudevents": "a structured CloudEvent"}[form]
    return Reject("normalize", "unsupported_format", f"the record is {what}, and {form} is not among input.formats")


def _reject(found: Unreadable) -> Reject:
    violations = (Violation(found.pointer, "format"),) if found.pointer else ()
    return Reject("normalize", found.code, found.message, violations)
