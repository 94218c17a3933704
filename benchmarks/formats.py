"""CPU per event of each format and of a signature, without Kafka: `python -m benchmarks.formats`.

The same 600-byte stops go through the normalize stage in each input format, out in each output format, and under each
signature mode; the lifecycle stage reads them back in both. Figures are taken as in `benchmarks.core`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import Any

import fastavro
import orjson

from acs_aaep_bridge.config import Config, load
from acs_aaep_bridge.core.encode_avro import normalized_schema
from acs_aaep_bridge.core.model import Emit, Headers, Record, Stage, WriterSchema
from acs_aaep_bridge.core.reading import EventReader
from acs_aaep_bridge.core.signature import sign
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.core.writers import WriterSchemas, framed
from benchmarks.core import PER_ROUND, RECEIVED, ROUNDS, SIZE, Figure, measure, stops

INPUT_ID, OUTPUT_ID = 1, 2
SECRET = b"0123456789abcdef0123456789abcdef"
_UUID = {"type": "string", "logicalType": "uuid"}
_PARAMS = {
    "type": "record",
    "name": "Params",
    "fields": [
        {"name": "acs_version", "type": "string"},
        {"name": "request_id", "type": _UUID},
        {"name": "timestamp", "type": "string"},
        {"name": "metadata", "type": {"type": "map", "values": "string"}},
        {"name": "payload_json", "type": "string"},
    ],
}
REQUEST = {
    "type": "record",
    "name": "Request",
    "fields": [
        *({"name": name, "type": "string"} for name in ("jsonrpc", "method", "id")),
        {"name": "params", "type": _PARAMS},
    ],
}
_PARSED = fastavro.parse_schema(REQUEST)
_STRUCTURED: Headers = (("content-type", b"application/cloudevents+json"),)
_BINARY: Headers = (
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/agents"),
    ("ce_type", b"acs.hook"),
    ("content-type", b"application/json"),
)


def figures() -> dict[str, list[Figure]]:
    """By what is varied. Blocks for some ten seconds."""
    plain = stops(ROUNDS * PER_ROUND)
    every = "input: {formats: [json, avro, cloudevents]}\nschema_registry: {url: 'http://registry'}\n"
    signed = [_with(record, orjson.dumps(sign(orjson.loads(record.value or b""), SECRET, "k"))) for record in plain]
    mixed = [
        ("JSON", plain),
        ("binary CloudEvent", [record._replace(headers=_BINARY) for record in plain]),
        ("structured CloudEvent", [_with(record, _structured(record), _STRUCTURED) for record in plain]),
        ("Avro", [_with(record, framed(INPUT_ID, _avro(record))) for record in plain]),
    ]
    return {
        "in": [_normalize(f"{name} in", every, records) for name, records in mixed],
        "out": [_normalize("JSON out", "", plain), _normalize("Avro out", "", plain, avro_id=OUTPUT_ID)],
        "signature": [
            _normalize(f"signature.mode: {mode}", f"signature: {{mode: '{mode}', keys: {{k: {{env: X}}}}}}", signed)
            for mode in ("off", "verify")
        ],
        "guard": [_normalize("replay guard on", "input: {replay_guard: true}", plain)],
        "read back": [_read_back("JSON read back", plain, None), _read_back("Avro read back", plain, OUTPUT_ID)],
    }


def _with(record: Record, value: bytes, headers: Headers = ()) -> Record:
    return record._replace(value=value, headers=headers)


def _structured(record: Record) -> bytes:
    event = {"specversion": "1.0", "id": "1", "source": "/agents", "type": "acs.hook"}
    return orjson.dumps({**event, "data": orjson.loads(record.value or b"")})


def _avro(record: Record) -> bytes:
    request: dict[str, Any] = orjson.loads(record.value or b"")
    params = request["params"]
    params["payload_json"] = orjson.dumps(params.pop("payload")).decode()
    out = BytesIO()
    fastavro.schemaless_writer(out, _PARSED, request)
    return out.getvalue()


def _stage(text: str, avro_id: int | None = None) -> Stage:
    stage = build_stage("normalize", load(text, {}), secrets={"k": SECRET}, avro_id=avro_id)
    stage.learn(INPUT_ID, WriterSchema("AVRO", json.dumps(REQUEST)))
    return stage


def _normalize(name: str, text: str, records: Iterable[Record], avro_id: int | None = None) -> Figure:
    stage = _stage(text, avro_id)
    state = stage.new_state()

    def applied(record: Record) -> None:
        (outcome,) = stage.apply(record, state, RECEIVED)
        assert type(outcome) is Emit, outcome

    return measure(name, applied, records)


def _read_back(name: str, records: Sequence[Record], avro_id: int | None) -> Figure:
    stage = _stage("", avro_id)
    state = stage.new_state()
    normalized = [
        _with(record, outgoing.value or b"")
        for record in records
        for outcome in stage.apply(record, state, RECEIVED)
        if isinstance(outcome, Emit)
        for outgoing in outcome.outgoing
    ]
    schemas = WriterSchemas()
    schemas.learn(OUTPUT_ID, WriterSchema("AVRO", normalized_schema()))
    return measure(name, _reading(EventReader(Config().limits, schemas)), normalized)


def _reading(reader: EventReader) -> Callable[[Record], object]:
    def read(record: Record) -> object:
        event = reader(record.value or b"")
        assert type(event) is dict
        return event

    return read


def main() -> None:
    print(f"CPU per {SIZE}-byte subagentStop in the normalize stage, µs{'best':>12}{'mean':>8}")
    for group in figures().values():
        for figure in group:
            print(f"{figure.name:<50}{figure.best:>10.2f}{figure.mean:>8.2f}")


if __name__ == "__main__":
    main()
