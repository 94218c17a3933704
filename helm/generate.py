"""Writes what the chart takes from elsewhere in the repository: `python helm/generate.py`.

`values.schema.json` and the table in `README.md` come from `values.yaml` (and the bridge's own configuration schema),
`files/` are copies of the alert rules and the dashboard, since a chart can read nothing outside its folder.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from acs_aaep_bridge.config import Config

ROOT: Final = Path(__file__).resolve().parent.parent
CHART: Final = ROOT / "helm/acs-aaep-bridge"
COPIES: Final = {
    "rules.yaml": ROOT / "config/prometheus/rules.yaml",
    "dashboard.json": ROOT / "config/grafana/acs-aaep-bridge.json",
}

# Handed on to Kubernetes (or to templates) as they are.
FREE: Final = {
    "global",
    "affinity",
    "nodeSelector",
    "resources",
    "podSecurityContext",
    "containerSecurityContext",
    "startupProbe",
    "livenessProbe",
    "readinessProbe",
    "prometheusRule.overrides",
}
# Text to text.
MAPS: Final = {"commonLabels", "podLabels", "podAnnotations"}
STRINGS: Final = {"type": "array", "items": {"type": "string", "minLength": 1}}
NUMBER_OR_SHARE: Final = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+%$"}]}
DURATION: Final = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
SHARE_OR_NULL: Final = {"anyOf": [*NUMBER_OR_SHARE["anyOf"], {"type": "null"}]}
PORT: Final = {"type": "integer", "minimum": 1, "maximum": 65535}

# What a default value does not show.
REFINED: Final[dict[str, Any]] = {
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.pullSecrets": STRINGS,
    "stages": {"enum": ["together", "apart"]},
    "partitions": {"type": "integer", "minimum": 1},
    "kafka.bootstrapServers": {**STRINGS, "minItems": 1},
    "kafka.sasl.mechanism": {"enum": ["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]},
    "signature.mode": {"enum": ["off", "verify", "require"]},
    "signature.keyIds": STRINGS,
    "replicaCount": {"type": "integer", "minimum": 0},
    "updateStrategy.maxSurge": NUMBER_OR_SHARE,
    "updateStrategy.maxUnavailable": NUMBER_OR_SHARE,
    "terminationGracePeriodSeconds": {"type": ["integer", "null"], "minimum": 1},
    "keda.minReplicaCount": {"type": "integer", "minimum": 1},
    "keda.maxReplicaCount": {"type": "integer", "minimum": 1},
    "keda.lagThreshold": {"type": "integer", "minimum": 1},
    "podDisruptionBudget.maxUnavailable": SHARE_OR_NULL,
    "podDisruptionBudget.minAvailable": SHARE_OR_NULL,
    "serviceMonitor.interval": DURATION,
    "serviceMonitor.scrapeTimeout": DURATION,
    "podMonitor.interval": DURATION,
    "podMonitor.scrapeTimeout": DURATION,
    "prometheusRule.disabled": STRINGS,
    "networkPolicy.kafkaPorts": {"type": "array", "items": PORT, "minItems": 1},
}
# Left to the templates, which say better than a schema why they are refused.
REFUSED_LATER: Final[dict[str, tuple[str, ...]]] = {
    "kafka.sasl": ("password",),
    "kafka.sasl.oauth": ("clientSecret",),
    "kafka.tls": ("keyPassword",),
    "signature": ("keys", "secret", "secrets"),
}
# What a stage may have of its own when the two run apart.
WORKLOAD: Final = (
    "replicaCount",
    "updateStrategy",
    "staticMembership",
    "keda",
    "podDisruptionBudget",
    "resources",
    "startupProbe",
    "livenessProbe",
    "readinessProbe",
    "podLabels",
    "podAnnotations",
    "priorityClassName",
    "nodeSelector",
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "extraEnv",
    "extraEnvFrom",
    "extraVolumes",
    "extraVolumeMounts",
    "extraContainers",
    "extraInitContainers",
)


def _typed(path: str, value: Any) -> dict[str, Any]:
    """The schema of one value, told from its default unless a table above knows better."""
    if path in REFINED:
        return dict(REFINED[path])
    if isinstance(value, dict):
        return _object(path, value)
    kinds = {bool: "boolean", int: "integer", list: "array"}
    return {"type": kinds.get(type(value), "string")} | ({"minimum": 0} if type(value) is int else {})


def _object(path: str, value: dict[str, Any]) -> dict[str, Any]:
    if path in FREE:
        return {"type": "object"}
    if path in MAPS or path.rpartition(".")[2] in {"labels", "annotations"}:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    properties = {key: _typed(f"{path}.{key}" if path else key, item) for key, item in value.items()}
    properties |= {key: {} for key in REFUSED_LATER.get(path, ())}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _config_schema() -> tuple[dict[str, Any], dict[str, Any]]:
    """The bridge's configuration schema and its definitions; an inline secret is refused by the templates."""
    schema = Config.model_json_schema()
    definitions = schema.pop("$defs")
    definitions["Secret"] = {}
    return schema, definitions


def schema_text() -> str:
    """`values.schema.json`."""
    values = YAML(typ="safe", pure=True).load(CHART / "values.yaml")
    schema = _typed("", values)
    properties = schema["properties"]
    workload = {"type": "object", "additionalProperties": False, "properties": {key: properties[key] for key in WORKLOAD}}
    properties["config"], definitions = _config_schema()
    properties["normalize"] = properties["lifecycle"] = {"$ref": "#/$defs/workload"}
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **schema, "$defs": {**definitions, "workload": workload}}
    return json.dumps(whole, indent=2) + "\n"


def documented() -> list[tuple[str, str, str]]:
    """(path, default, meaning) of every value, in file order."""
    rows: list[tuple[str, str, str]] = []
    stack: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in (CHART / "values.yaml").read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text.startswith("#"):
            comment = [text[4:].strip()] if text.startswith("# --") else ([*comment, text[1:].strip()] if comment else [])
            continue
        found = re.match(r"^( *)([A-Za-z][A-Za-z0-9_]*):(?: (.*))?$", line)
        if found is None:
            comment = [] if not text else comment
            continue
        indent = len(found[1])
        while stack and stack[-1][0] >= indent:
            stack.pop()
        stack.append((indent, found[2]))
        if found[3] is not None or comment:
            rows.append((".".join(name for _, name in stack), found[3] or "", " ".join(comment)))
        comment = []
    return rows


def readme_text() -> str:
    """`README.md` of the chart."""
    rows = [f"| `{path}` | {f'`{default}`' if default else ''} | {meaning} |" for path, default, meaning in documented()]
    head = (ROOT / "helm/README.head.md").read_text(encoding="utf-8")
    return head + "\n| value | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def outputs() -> dict[Path, str]:
    """Every generated file and its text."""
    copies = {CHART / "files" / name: source.read_text(encoding="utf-8") for name, source in COPIES.items()}
    return {CHART / "values.schema.json": schema_text(), CHART / "README.md": readme_text(), **copies}


if __name__ == "__main__":
    for path, text in outputs().items():
        path.write_text(text, encoding="utf-8")
