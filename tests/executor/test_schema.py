"""Arguments against a schema: accepted is what the standard accepts, and faults are named."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.executor.calls import fields
from ullage.tools import schema
from ullage.tools.schema import ArgumentsRefused

SCHEMA = fields(
    {
        "path": {"type": "string", "minLength": 1},
        "depth": {"type": "integer", "minimum": 1, "maximum": 9},
        "share": {"type": "number", "minimum": 0},
        "all": {"type": "boolean"},
        "kind": {"enum": ["a", "b"]},
        "steps": {
            "type": "array",
            "maxItems": 2,
            "items": fields({"text": {"type": "string"}}, "text"),
        },
    },
    "path",
)

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 12),
    st.sampled_from(["", "a", "text"]),
    st.floats(-1, 2),
    st.lists(st.one_of(st.just({"text": "x"}), st.just({"text": 1}), st.just({})), max_size=3),
)
arguments = st.dictionaries(
    st.sampled_from(["path", "depth", "share", "all", "kind", "steps", "other"]), values
)


def refusal(given: str, wanted: dict[str, Any] = SCHEMA) -> str:
    with pytest.raises(ArgumentsRefused) as caught:
        schema.read(given, wanted)
    return str(caught.value)


@given(arguments)
def test_it_accepts_what_the_standard_accepts(given) -> None:
    standard = jsonschema.Draft202012Validator(SCHEMA)
    # The standard takes 1.0 for an integer; here it is refused, as code counts with it.
    integral = any(isinstance(each, float) and each.is_integer() for each in given.values())
    if standard.is_valid(given) and not integral:
        assert schema.read(json.dumps(given), SCHEMA) == given
    elif not standard.is_valid(given):
        assert refusal(json.dumps(given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{}", "path is missing"),
        ('{"path": ""}', "path is empty"),
        ('{"path": 1}', "path is integer, it must be string"),
        ('{"path": null}', "path is null, it must be string"),
        ('{"path": true}', "path is a boolean, it must be string"),
        ('{"path": "a", "depth": 0}', "depth is 0, the least is 1"),
        ('{"path": "a", "depth": 10}', "depth is 10, the most is 9"),
        ('{"path": "a", "depth": true}', "depth is a boolean, it must be integer"),
        ('{"path": "a", "kind": "c"}', "kind is 'c', it must be one of a, b"),
        ('{"path": "a", "steps": [{}]}', "steps[0].text is missing"),
        ('{"path": "a", "steps": [{}, {}, {}]}', "steps has 3 items; the most is 2"),
        ('{"path": "a", "depht": 1}', "there is no argument 'depht'; there are path, depth"),
        ("[1]", "the arguments are an object, not array"),
        ("{", "the arguments are no JSON"),
        ('{"path": NaN}', "NaN is no number of JSON"),
        ("[" * 100_000, "the arguments are no JSON"),
    ],
)
def test_a_fault_names_the_argument_and_what_it_must_be(given, said) -> None:
    assert said in refusal(given)


def test_several_faults_are_told_at_once() -> None:
    assert refusal('{"depth": "x", "all": 1}').count(";") == 2


def test_a_text_that_is_too_short_is_told_from_an_empty_one() -> None:
    wanted = fields({"a": {"type": "string", "minLength": 2}})
    assert refusal('{"a": "x"}', wanted) == "a is too short"


def test_no_text_at_all_is_a_call_without_arguments() -> None:
    assert schema.read(" ", fields({})) == {}


def test_arguments_beyond_measure_are_refused_unread() -> None:
    assert "characters; the most is" in refusal(" " * (schema.LONGEST_ARGUMENTS + 1))
