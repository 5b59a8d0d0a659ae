"""Permissions: a posture, write policies by path, and the verdict on a call by what it touches.

The checks run in this order: state directory, plan mode, policy, permission. A person's answers,
and the grants for the rest of a session that follow from them, are values here too. This module
knows no tools, files or people. Paths are text relative to the workspace, with `/` between their
parts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from ullage.core.errors import ConfigurationError

Mode = Literal["plan", "build"]
Permission = Literal["auto", "ask", "read_only"]
Verdict = Literal["allow", "ask", "deny"]

SearchArea = Literal["once", "same", "pattern", "tool"]

ANY_DEPTH: Final = "**"

PLAIN_COMMAND: Final = re.compile(r"[A-Za-z0-9_./:,@+ -]+")
"""Only characters without a meaning for a shell; no `=`, `~`, quotes, globs or line ends."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A write policy: the verdict on writing to paths that match a glob; the first match wins.

    `*` and `?` match characters within a name, `**` any number of folders. A glob that matches a
    folder applies to everything in it. Raises ConfigurationError for a glob that can match nothing
    in a workspace, or for an unknown verdict.
    """

    path: str
    verdict: Verdict

    def __post_init__(self) -> None:
        _demand("verdict of a write policy", self.verdict, get_args(Verdict))
        parts = self.path.split("/")
        if not self.path.strip("/") or parts[0] == "" or ".." in parts:
            raise ConfigurationError(
                f"the path of a write policy is {self.path!r}: it is a glob beneath the workspace, "
                "such as 'src/**' or 'main.py', and neither begins with / nor holds '..'"
            )

    def covers(self, path: str) -> bool:
        """Tell whether the rule applies to a path, or to a folder that contains it.

        Rules that ask or deny ignore case, because some file systems do too.
        """
        if self.verdict == "allow":
            return covers(self.path, path)
        return covers(_fold_case(self.path), _fold_case(path))


@dataclass(frozen=True, slots=True)
class Posture:
    """The mode and permissions of a turn; raises ConfigurationError for unknown values."""

    mode: Mode = "build"
    permission: Permission = "auto"
    writes: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        _demand("mode", self.mode, get_args(Mode))
        _demand("permission", self.permission, get_args(Permission))

    @property
    def reads_only(self) -> bool:
        """True if nothing may be changed, whatever a policy allows."""
        return self.mode == "plan" or self.permission == "read_only"


class Access(NamedTuple):
    """The things that a call would touch.

    `writes` are paths in the workspace that it would change. A `command` may change any of them,
    unless it is `safe`: known to be read-only. `text` is the command. `protected` calls try to
    access the state directory.
    """

    changes: bool = False
    writes: tuple[str, ...] = ()
    command: bool = False
    safe: bool = False
    protected: bool = False
    text: str = ""


class Decision(NamedTuple):
    """A verdict, the reason in one sentence, and the check that gave it."""

    verdict: Verdict
    reason: str = ""
    by: Literal["state", "policy", "permission", "mode", "grant", "outside", ""] = ""


PLANNING: Final = "plan mode: nothing is written; describe the change in the plan"
"""The message to a model that tries to change something in plan mode."""

ALLOWED: Final = Decision("allow")


# ── a person's answers ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Consent:
    """A person's answer to a call that needs permission.

    `reason` is sent to the model with a refusal. With a permission, `scope` names the calls that
    need no question for the rest of the session: none (`once`), calls about the same thing
    (`same`), calls of this tool that match `pattern` (`pattern`), or every call of this tool
    (`tool`). Raises ConfigurationError for an unknown or unsuitable scope.
    """

    allowed: bool
    reason: str = ""
    scope: SearchArea = "once"
    pattern: str = ""

    def __post_init__(self) -> None:
        _demand("scope of a permission", self.scope, get_args(SearchArea))
        if (self.scope == "pattern") is not bool(self.pattern):
            raise ConfigurationError("a pattern goes with the scope 'pattern', and only with that")
        if self.scope != "once" and not self.allowed:
            raise ConfigurationError(f"a refusal has the scope 'once', not {self.scope!r}")


class CallSubject(NamedTuple):
    """The subject of a call: the whole command, the path of a file, or the arguments as JSON."""

    tool: str
    kind: Literal["command", "path", "arguments"]
    text: str


@dataclass(frozen=True, slots=True)
class Grant:
    """Calls that a person allowed for the rest of a session.

    A pattern of paths is a glob, as in `Rule`. A pattern of commands is the first words of a
    command; a command with any character that a shell interprets (`;`, `|`, `$`, a line end, ...)
    never matches a pattern. Raises ConfigurationError for a pattern that can match nothing.
    """

    subject: CallSubject
    scope: SearchArea
    pattern: str = ""

    def __post_init__(self) -> None:
        if self.scope != "pattern":
            return
        if self.subject.kind == "path":
            Rule(self.pattern, "allow")
        elif self.subject.kind == "arguments":
            raise ConfigurationError(f"{self.subject.tool} has no patterns: allow the same or all")
        elif not PLAIN_COMMAND.fullmatch(self.pattern) or not self.pattern.strip():
            raise ConfigurationError(
                f"the pattern {self.pattern!r} is not plain words: a pattern of commands is the "
                "words that they begin with, such as 'git log'"
            )

    def covers(self, subject: CallSubject) -> bool:
        """Tell whether this grant allows a call without a question."""
        if subject.tool != self.subject.tool:
            return False
        if self.scope == "tool":
            return True
        if subject.kind != self.subject.kind:
            return False
        if self.scope != "pattern":
            return self.scope == "same" and subject.text == self.subject.text
        if subject.kind == "path":
            return covers(self.pattern, subject.text)
        words = self.pattern.split()
        plain = PLAIN_COMMAND.fullmatch(subject.text) is not None
        return plain and subject.text.split()[: len(words)] == words

    def __str__(self) -> str:
        """Describe the allowed calls in words."""
        tool, kind, text = self.subject
        if self.scope == "tool":
            return f"every call of {tool}"
        if self.scope == "pattern":
            how = "commands that begin with" if kind == "command" else "paths like"
            return f"{tool}: {how} {self.pattern!r}"
        return f"{tool}: this {kind} again" + (f" ({text})" if kind == "path" else "")


# ── the decision by a posture ───────────────────────────────────────────────────────────────────


def decide(access: Access, posture: Posture) -> Decision:
    """Return the decision of a posture on a call."""
    if access.protected:
        return Decision("deny", "the state directory is closed to tools", "state")
    if not access.changes:
        return ALLOWED
    if posture.mode == "plan":
        return _reads_only(posture)
    policy = _policy(access, posture.writes)
    if policy.verdict != "deny" and posture.reads_only:
        return _reads_only(posture)
    if policy.by or access.safe or posture.permission != "ask":
        return policy
    what = "commands run" if access.command else "changes are made"
    return Decision("ask", f"the permission is ask: {what} when a person agrees", "permission")


def covers(glob: str, path: str) -> bool:
    """Tell whether a glob matches a path or one of the folders that contain it."""
    pattern = tuple(part for part in glob.split("/") if part not in {"", "."})
    names = tuple(part for part in path.split("/") if part not in {"", "."})
    return any(_parts_match(pattern, names[:end]) for end in range(len(names), 0, -1))


def matches(glob: str, path: str) -> bool:
    """Tell whether a glob matches a whole path; one without `/` matches its last name."""
    names = tuple(path.split("/"))
    pattern = tuple(glob.removeprefix("/").split("/"))
    return _parts_match((ANY_DEPTH, *pattern) if "/" not in glob else pattern, names)


def _reads_only(posture: Posture) -> Decision:
    if posture.mode == "plan":
        return Decision("deny", PLANNING, "mode")
    return Decision("deny", "the permission is read_only", "permission")


def _policy(access: Access, rules: Sequence[Rule]) -> Decision:
    """Return the strictest verdict of the rules on the paths; allow if no rule applies."""
    if access.command:
        if not access.safe and any(rule.verdict != "allow" for rule in rules):
            reason = "a command could write where the write policies hold back"
            return Decision("ask", reason, "policy")
        return ALLOWED
    found = [_rule_of(path, rules) for path in access.writes]
    for verdict in ("deny", "ask"):
        for path, rule in zip(access.writes, found, strict=True):
            if rule is not None and rule.verdict == verdict:
                reason = f"the write policy {rule.path!r} says {verdict} for {path!r}"
                return Decision(rule.verdict, reason, "policy")
    if found and all(found):
        return Decision("allow", "the write policies allow it", "policy")
    return ALLOWED


def _rule_of(path: str, rules: Sequence[Rule]) -> Rule | None:
    return next((rule for rule in rules if rule.covers(path)), None)


def _parts_match(pattern: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Match a path in at most `len(pattern) * len(names)` steps: only the last `**` is widened."""
    at = position = 0
    wide, behind = -1, 0
    while position < len(names):
        if at < len(pattern) and pattern[at] == ANY_DEPTH:
            wide, behind = at, position
            at += 1
        elif at < len(pattern) and _name_matches(pattern[at], names[position]):
            at, position = at + 1, position + 1
        elif wide >= 0:
            behind += 1
            at, position = wide + 1, behind
        else:
            return False
    return all(part == ANY_DEPTH for part in pattern[at:])


def _name_matches(pattern: str, name: str) -> bool:
    """Match one name; here too, only the last `*` is widened."""
    at = position = 0
    wide, behind = -1, 0
    while position < len(name):
        if at < len(pattern) and pattern[at] == "*":
            wide, behind = at, position
            at += 1
        elif at < len(pattern) and pattern[at] in {"?", name[position]}:
            at, position = at + 1, position + 1
        elif wide >= 0:
            behind += 1
            at, position = wide + 1, behind
        else:
            return False
    return not pattern[at:].strip("*")


def _fold_case(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _demand(what: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigurationError(f"the {what} is {value!r}; there are {', '.join(allowed)}")
