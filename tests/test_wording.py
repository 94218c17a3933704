"""Whatever is wrong with the configuration is told in our words, with the option's path and what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from acs_aaep_bridge.config import Config, load
from acs_aaep_bridge.errors import ConfigError, Problem

ODD: tuple[object, ...] = (5, -5, 1.5, 10**30, "x y", "", True, [], [1], [""], {}, {"a": 1}, {"a": None}, {5: "b"}, None)
PYDANTIC = re.compile(r"[Ii]nput|should|[Vv]alid |[Tt]uple|[Dd]ictionary|instance|\^|<class|Value error")


def sections(kind: object) -> Iterator[type[BaseModel]]:
    for one in (kind, *getattr(kind, "__args__", ())):
        if isinstance(one, type) and issubclass(one, BaseModel):
            yield one


def options(model: type[BaseModel] = Config) -> Iterator[tuple[str, ...]]:
    """The path of every section and option there is."""
    for name, field in model.model_fields.items():
        yield (name,)
        for inner in sections(field.annotation):
            yield from ((name, *rest) for rest in options(inner))


def problems(text: str) -> tuple[Problem, ...]:
    try:
        load(text, {})
    except ConfigError as error:
        return error.problems
    return ()


def written(path: tuple[str, ...], value: object) -> str:
    """As YAML, of which JSON is a part, save for names that are no text."""
    tree = json.dumps(value).replace('"5":', "5:")
    for name in reversed(path):
        tree = f'{{"{name}": {tree}}}'
    return tree


@pytest.mark.parametrize("path", list(options()), ids=".".join)
def test_no_option_is_complained_about_in_the_words_of_a_library(path: tuple[str, ...]) -> None:
    """Every wrong kind of value, for every option: the path is the option's, and the words tell what to write."""
    for value in ODD:
        for problem in problems(written(path, value)):
            assert not PYDANTIC.search(problem.message), problem
            assert problem.path.split(".")[0] == path[0] or not problem.path, problem


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kafka: 5", "kafka: is a section: write its options below it, each on a line of its own, indented"),
        ("input: {topics: 5}", "input.topics: is a list: write [one, another], or each on a line of its own after a dash"),
        ("mapping: {risk: 3}", "mapping.risk: is a table: write `name: value` lines below it, indented"),
        ("kafka: {idempotence: maybe}", "kafka.idempotence: write true or false"),
        ("http: {port: many}", "http.port: write a whole number"),
        ("http: {port: 70000}", "http.port: must be 65535 or less"),
        ("sessions: {grace: 500ms}", "sessions.grace: must be 1s or more"),
        ("kafka: {max_in_flight: 1KiB}", "kafka.max_in_flight: must be 1MiB or more"),
        ("delivery: 3", "delivery: write 'exactly_once' or 'at_least_once'"),
        ("5: 3", "5: the name of an option is text, and this is not: put it in quotes, or take it out"),
        (
            "content: {names: {5: a}}",
            "content.names.5: the name of an option is text, and this is not: put it in quotes, or take it out",
        ),
        (
            "topics: {normalized: a b}",
            "topics.normalized: write the name of a topic: at most 249 letters, digits, dots, underscores and hyphens",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_its_cure(text: str, says: str) -> None:
    assert says in [str(problem) for problem in problems(text)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kafka:\n  a: [1\n  b: 2\n", "line 3, column 4: expected"),
        ("kafka:\n\tb: 2\n", "line 2, column 1: found character"),
        ("log: {}\nkafka: \x00\n", "line 2, column 8: found the character U+0000, which YAML does not allow"),
        ("kafka: &a [*b]\n", "line 1, column 12: found undefined alias"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: expected a single document in the stream, but found another document"),
        ("a: hidden\na: hidden\n", 'line 2, column 1: found duplicate key "a"'),
    ],
)
def test_a_slip_in_the_yaml_is_told_with_file_line_and_column(text: str, says: str) -> None:
    """And with nothing of what is written there."""
    with pytest.raises(ConfigError) as raised:
        load(text, {}, None, "/etc/bridge.yaml")
    (problem,) = raised.value.problems
    assert str(problem).startswith(f"/etc/bridge.yaml: not valid YAML: {says}")
    assert "hidden" not in str(problem)
