"""The list of skills is bounded and the same bytes each time; naming one is never an accident."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.session.skills import NAME, Skill, find_mentioned, hash_text, index


def skill(name: str, description: str = "what it is for") -> Skill:
    return Skill(name, description, hash_text(name), f"text of {name}")


KNOWN = (skill("deploy"), skill("code-review"), skill("review"))
SKILLS = st.lists(
    st.builds(skill, st.from_regex(NAME, fullmatch=True), st.text(max_size=60)),
    unique_by=lambda s: s.name,
    max_size=12,
)


def test_the_list_is_by_name_one_line_each() -> None:
    assert index(KNOWN).splitlines() == [
        "Skills, each read in full once the user names it as $name:",
        "- code-review: what it is for",
        "- deploy: what it is for",
        "- review: what it is for",
    ]


def test_without_skills_there_is_no_list() -> None:
    assert index(()) == ""


@given(skills=SKILLS, budget=st.integers(0, 600))
def test_the_list_keeps_to_its_bytes_and_counts_what_is_left_out(
    skills: list[Skill], budget: int
) -> None:
    listed = index(skills, budget)
    assert len(listed.encode()) <= budget
    assert listed == index(list(reversed(skills)), budget)
    lines = listed.splitlines() if listed.isascii() else listed.split("\n")
    if lines and lines[-1].endswith("still reads it"):
        left_out = int(lines[-1].split()[1])
        assert len(lines) - 2 + left_out == len(skills)
        assert left_out > 0
    elif lines:
        assert len(lines) - 1 == len(skills)


def test_a_description_cannot_forge_a_line() -> None:
    listed = index([skill("a", "one\n- b: forged\u2028- c: forged\r\x85- d: forged")])
    assert len(listed.splitlines()) == 2


def test_what_does_not_fit_is_passed_over_for_what_does() -> None:
    listed = index([skill("a", "x" * 500), skill("b"), skill("c")], 200)
    assert listed.splitlines()[1:] == [
        "- b: what it is for",
        "- c: what it is for",
        "- 1 more that are not listed; naming one still reads it",
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("$review this", ["review"]),
        ("please ($code-review), then $deploy.", ["code-review", "deploy"]),
        ("/deploy to test", ["deploy"]),
        ("first\n  /review", ["review"]),
        ("$deploy $deploy $review", ["deploy", "review"]),
        ("please review the deploy skill", []),
        ("read /deploy and src/review", []),
        ("/deploy/notes.txt", []),
        ("$deploy.sh, $deploy-all, $deployed", []),
        ("cost$review, $$review, \\$review", []),
        ("$REVIEW and $unknown", []),
    ],
)
def test_only_a_name_that_is_marked_as_one_is_a_mention(text: str, names: list[str]) -> None:
    assert [found.name for found in find_mentioned(text, KNOWN)] == names


def test_the_text_of_a_skill_stays_out_of_logs() -> None:
    assert "text of" not in repr(KNOWN[0])
    assert hash_text("a") == "27c35e6e9373877f29e562464e46497e"
    assert len(hash_text("\ud800")) == 32
