"""The permissions that the runbook lists are enough to run, and no more than that. Tried on a broker with an authorizer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from tests.bridge import Bridge, Names, caught_up, running, topics_for
from tests.brokers import topics
from tests.brokers.process import until
from tests.brokers.secure import PASSWORD, USER, SecureKafka
from tests.tools import ROOT
from tests.traffic import mixed

from acs_aaep_bridge.config import Config

KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional id": ResourceType.TRANSACTIONAL_ID}
DEFAULTS = Config()


class Grant(NamedTuple):
    kind: ResourceType
    prefixed: bool
    name: str
    operation: AclOperation


def documented() -> list[Grant]:
    """One grant for each operation in the runbook's table."""
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8").split("<!-- acl -->")[1].split("<!-- /acl -->")[0]
    grants = []
    for kind, pattern, name, operations in re.findall(r"^\| ([a-z ]+) \| (literal|prefixed) \| `(.+?)` \| (.+?) \|$", text, re.M):
        for word in operations.split(", "):
            operation = AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).upper()]
            grants.append(Grant(KINDS[kind], pattern == "prefixed", name, operation))
    return grants


GRANTS = documented()


def ours(grant: Grant, names: Names) -> str:
    """The default name in the table, as this test calls it."""
    default = DEFAULTS.topics
    topics_by_default = {
        DEFAULTS.input.topics[0]: names.raw,
        default.normalized: names.normalized,
        default.lifecycle: names.lifecycle,
        default.dead_letter: names.dead_letter,
        default.changelog: names.changelog,
    }
    return topics_by_default.get(grant.name) or grant.name.replace(DEFAULTS.kafka.group_prefix, names.prefix)


def allow(broker: SecureKafka, names: Names, grants: list[Grant]) -> None:
    for grant in grants:
        broker.allow(grant.kind, ours(grant, names), grant.operation, prefixed=grant.prefixed)


@pytest.fixture
def broker(secure_kafka: SecureKafka) -> Iterator[SecureKafka]:
    """The broker, on which the bridge's user may do nothing yet."""
    secure_kafka.allow_nothing()
    yield secure_kafka
    secure_kafka.allow_nothing()


def settings(broker: SecureKafka, names: Names, folder: Path, **sections: Any) -> dict[str, Any]:
    password = folder / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    tree = names.settings(**sections)
    tree["kafka"] |= {
        "bootstrap_servers": broker.kafka.address("SCRAM"),
        "tls": {"enabled": True, "ca_file": str(broker.authority.file)},
        "sasl": {"mechanism": "SCRAM-SHA-512", "username": USER, "password": {"file": str(password)}},
    }
    return tree


def test_the_table_names_what_the_bridge_uses() -> None:
    names = {grant.name for grant in GRANTS if grant.kind is ResourceType.TOPIC}
    used = {*DEFAULTS.input.topics, *(getattr(DEFAULTS.topics, name) for name in type(DEFAULTS.topics).model_fields)}
    assert names == {name for name in used if isinstance(name, str)}
    assert {grant.name for grant in GRANTS if grant.kind is ResourceType.GROUP} == {
        DEFAULTS.group("normalize"),
        DEFAULTS.group("lifecycle"),
    }


def test_they_are_enough_for_both_stages(broker: SecureKafka, tmp_path: Path) -> None:
    names = topics_for(broker.bootstrap, "acl", 2)
    allow(broker, names, GRANTS)
    topics.fill(broker.bootstrap, names.raw, ((sent.key, sent.value) for sent in mixed(1, 500)))
    with running(tmp_path, settings(broker, names, tmp_path)) as bridge:
        caught_up(names, bridge)
        assert bridge.total("dead_letters_total")[()] > 0
        assert bridge.total("lifecycle_events_total")[()] > 0
        assert bridge.stop() == 0


def test_at_least_once_needs_no_transactional_id_and_settings_need_not_be_readable(broker: SecureKafka, tmp_path: Path) -> None:
    names = topics_for(broker.bootstrap, "acl", 2)
    spared = [grant for grant in GRANTS if grant.kind is ResourceType.TRANSACTIONAL_ID]
    spared += [grant for grant in GRANTS if grant.operation is AclOperation.DESCRIBE_CONFIGS]
    allow(broker, names, [grant for grant in GRANTS if grant not in spared])
    topics.fill(broker.bootstrap, names.raw, ((sent.key, sent.value) for sent in mixed(1, 500)))
    with running(tmp_path, settings(broker, names, tmp_path, delivery="at_least_once")) as bridge:
        caught_up(names, bridge)
        assert bridge.stop() == 0


# Read and Write imply Describe, and DescribeConfigs is for the check at the start only.
NEEDED = [grant for grant in GRANTS if grant.operation not in {AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS}]


@pytest.mark.parametrize("left_out", NEEDED, ids=lambda grant: f"{grant.name} {grant.operation.name}")
def test_each_is_needed_and_its_want_is_named(broker: SecureKafka, tmp_path: Path, left_out: Grant) -> None:
    """Without it the bridge ends with exit code 3, or stays and says on /readyz or in the log what it may not do."""
    names = topics_for(broker.bootstrap, "acl", 1)
    allow(broker, names, [grant for grant in GRANTS if grant != left_out])
    topics.fill(broker.bootstrap, names.raw, ((sent.key, sent.value) for sent in mixed(1, 200)))
    topics.fill(broker.bootstrap, names.changelog, [(b"somebody", None)])  # so that there is something to be restored
    bridge = Bridge(tmp_path, settings(broker, names, tmp_path))

    def complains() -> bool:
        return bool(re.search(r"(?i)authoriz|not allowed|may not", bridge.child.output()))

    try:
        until(complains, 60, f"a complaint without {left_out}", pause=0.2)
        if not bridge.child.running():
            assert bridge.child.wait(1) == 3
        assert "Traceback" not in bridge.child.output()
    except AssertionError as error:
        raise AssertionError(f"{error}; /readyz: {bridge.get('/readyz')}\n{bridge.child.tail()}") from None
    finally:
        bridge.kill()
