"""Topics are created as the bridge needs them, and refused where events would be lost."""

from __future__ import annotations

import pytest
from tests.brokers import topics as independent
from tests.brokers.kafka import Kafka

from acs_aaep_bridge.config import Config, load
from acs_aaep_bridge.core.model import StageName
from acs_aaep_bridge.errors import TopicError
from acs_aaep_bridge.kafka import topics
from acs_aaep_bridge.kafka.client import Clients
from acs_aaep_bridge.kafka.topics import TopicInfo

BOTH: tuple[StageName, ...] = ("normalize", "lifecycle")
NAMES = load("", {}).topics
SOUND = {
    "acs.events.raw": TopicInfo(6, "delete", 2_000_000),
    NAMES.normalized: TopicInfo(6, "delete", 2_000_000),
    NAMES.lifecycle: TopicInfo(6, "delete", 1_048_588),
    NAMES.dead_letter: TopicInfo(1, "delete", 2_200_000),
    NAMES.changelog: TopicInfo(6, "compact", 1_048_588),
}


def _config(**settings: str) -> Config:
    return load("", {}, {name.replace("__", "."): value for name, value in settings.items()})


def test_sound_topics_have_no_problems() -> None:
    """What `topics create` makes passes the check."""
    assert topics.problems(_config(), BOTH, SOUND) == ([], [])


def test_every_missing_topic_is_named_at_once() -> None:
    """One error names all of them, and the command that makes them."""
    wrong, _ = topics.problems(_config(), BOTH, {})
    assert len(wrong) == 1
    assert all(name in wrong[0] for name in SOUND)
    assert "topics create" in wrong[0]


@pytest.mark.parametrize(
    ("topic", "info", "words"),
    [
        (NAMES.changelog, TopicInfo(5, "compact", None), "has 5 partitions"),
        (NAMES.changelog, TopicInfo(6, "delete", None), "must be compact"),
        (NAMES.changelog, TopicInfo(6, "compact,delete", None), "must be compact"),
        (NAMES.changelog, TopicInfo(6, "compact", 100_000), "max.message.bytes"),
        (NAMES.normalized, TopicInfo(6, "compact", None), "delete all events of a key"),
        (NAMES.lifecycle, TopicInfo(6, "delete", 65_536), "max.message.bytes"),
        (NAMES.dead_letter, TopicInfo(6, "compact", None), "delete all events of a key"),
    ],
)
def test_a_topic_that_would_lose_something_is_refused(topic: str, info: TopicInfo, words: str) -> None:
    """The error names the topic, the setting and why it matters."""
    (problem,), _ = topics.problems(_config(), BOTH, SOUND | {topic: info})
    assert topic in problem
    assert words in problem


@pytest.mark.parametrize(
    ("topic", "info", "words"),
    [
        ("acs.events.raw", TopicInfo(6, "compact", 100), "compaction"),
        (NAMES.dead_letter, TopicInfo(6, "delete", 1_000_000), "replaced by a reference"),
    ],
)
def test_what_is_only_odd_is_a_warning(topic: str, info: TopicInfo, words: str) -> None:
    """A compacted input is its owner's choice; a dead-letter topic that takes less has its fallback."""
    wrong, (odd,) = topics.problems(_config(), BOTH, SOUND | {topic: info})
    assert wrong == []
    assert words in odd


def test_each_stage_needs_its_own_topics_only() -> None:
    """The normalize stage runs without the lifecycle topics, and the lifecycle stage without the raw ones."""
    config = _config()
    assert set(topics.roles(config, ["normalize"], [])) == {"acs.events.raw", NAMES.normalized, NAMES.dead_letter}
    assert set(topics.roles(config, ["lifecycle"], [])) == set(SOUND) - {"acs.events.raw"}


def test_a_pattern_takes_what_exists_and_never_kafkas_own_topics() -> None:
    """`.*` would otherwise mean the offsets topic too, and our own outputs are no input."""
    config = _config(input__topics="", input__pattern=r"acs\.events\.raw.*")
    existing = ["acs.events.raw", "acs.events.raw.eu", "__consumer_offsets", "other"]
    inputs = [name for name, role in topics.roles(config, BOTH, existing).items() if role == "input"]
    assert inputs == ["acs.events.raw", "acs.events.raw.eu"]
    _, odd = topics.problems(config, BOTH, {name: info for name, info in SOUND.items() if name != "acs.events.raw"})
    assert "no topic matches" in odd[0]


def test_the_changelog_gets_as_many_partitions_as_the_normalized_topic_has() -> None:
    """Whatever is configured: they must agree."""
    planned = topics.plan(_config(topics__create__partitions="3"), BOTH, {NAMES.normalized: TopicInfo(7)})
    assert {topic.name: topic.num_partitions for topic in planned} == {
        "acs.events.raw": 3,
        NAMES.lifecycle: 3,
        NAMES.changelog: 7,
        NAMES.dead_letter: 3,
    }


async def test_create_then_check_on_a_broker(kafka: Kafka) -> None:
    """On real Kafka: refused before, made once with what they need, accepted after, left alone the second time."""
    prefix = independent.unique("topics")
    names = {"normalized": "n", "lifecycle": "l", "dead_letter": "d", "changelog": "c"}
    settings = {f"topics__{role}": f"{prefix}.{name}" for role, name in names.items()}
    config = _config(
        kafka__bootstrap_servers=kafka.bootstrap, input__topics=f"{prefix}.r", topics__create__partitions="2", **settings
    )
    clients = Clients(config)
    with pytest.raises(TopicError, match="missing"):
        await topics.check(config, BOTH, clients)
    made = await topics.create(config, BOTH, clients)
    assert sorted(made) == sorted(f"{prefix}.{name}" for name in "rnldc")
    report = await topics.check(config, BOTH, clients)
    assert report.warnings == []
    assert report.topics[f"{prefix}.c"].cleanup == "compact"
    assert report.limit(f"{prefix}.d") >= report.limit(f"{prefix}.r") + (64 << 10)
    assert await topics.create(config, BOTH, clients) == []
