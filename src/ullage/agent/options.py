"""The equipment of an agent and the options of a turn, and checks of both.

The module only checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ullage.core.errors import ConfigurationError
from ullage.core.tokens.budget import TurnBudget

if TYPE_CHECKING:
    from ullage.agent.kit import Asking
    from ullage.agent.session import Session
    from ullage.agent.subagents import Subagents
    from ullage.core.compaction.policy import Policy
    from ullage.core.session.permissions import Mode, Permission, Rule
    from ullage.core.session.skills import Skill
    from ullage.guard.summarizer import Summarize
    from ullage.providers import Provider, StreamProvider
    from ullage.runtime import Runtime
    from ullage.tools import Executor, Sandbox

WANTED: Final[Mapping[str, type]] = MappingProxyType(
    {
        "provider_options": Mapping,
        "presenter_context": Mapping,
        "parts": Sequence,
        "dry_run": bool,
        "budget": TurnBudget,
        "turn": str,
    }
)
"""The type of an option's value, if it is not None."""


class TurnOptions(TypedDict, total=False):
    """The options of one turn; every key may be left out.

    `provider` replaces the agent's own, `provider_options` are body fields that it gets unchanged.
    `mode` is build or plan, `permission` auto, ask or read_only; `dry_run` runs no tool.
    `max_iterations` limits the calls of the model. `presenter_context` is what the person looks at.
    `parts` is content in addition to the text. `budget` limits the turn's use. `turn` names a new
    turn in the log, for example after its job; by default the name is random.
    """

    provider: Provider | StreamProvider | None
    provider_options: Mapping[str, Any] | None
    dry_run: bool
    mode: Mode
    permission: Permission
    max_iterations: int | None
    presenter_context: Mapping[str, Any] | None
    parts: Sequence[Mapping[str, Any]]
    budget: TurnBudget | None
    ask: Asking | None
    turn: str | None


class Equipment(TypedDict, total=False):
    """The equipment of an agent; every key may be left out.

    `executor` makes the tools of a session instead of the standard ones. `shell` limits what
    commands may reach, None turns them off; they are also off if the system cannot enforce the
    limits. `writes` are write policies by path. `skills` are listed in the prompt and read when
    named. `secrets` are values that no log and no model may see, in addition to the provider's key
    and to environment variables named as keys, tokens, secrets or passwords. `policy`, `summarizer`
    and `window` are those of `Guard`, as is `runtime`; the summarizer "same" is the provider that
    answers. `subagents` lets the model give tasks to subagents: True, a depth, or `Subagents(...)`.
    `instructions` True reads AGENTS.md of the workspace and of the folders above it, up to the root
    of the repository, for every turn (`agent.guides`). `gated` False runs calls that may send data
    out without asking, even if the session holds private data and text of others. `session_bytes`
    limits the size of a session's events; beyond it the next turn begins in a new, linked session
    (64 MB); with None there is no limit.
    """

    executor: Callable[[Session], Executor] | None
    shell: Sandbox | None
    policy: Policy | str | None
    summarizer: Summarize | str | None
    window: int | None
    writes: Sequence[Rule]
    skills: Sequence[Skill]
    secrets: Sequence[str]
    runtime: Runtime | None
    subagents: Subagents | bool | int | None
    gated: bool
    session_bytes: int | None
    instructions: bool


def check_names(given: Mapping[str, object], options: type) -> None:
    """Raise TypeError for an unknown option."""
    names: frozenset[str] = options.__optional_keys__  # type: ignore[attr-defined]  # a TypedDict
    unknown = given.keys() - names
    if unknown:
        raise TypeError(f"no option {min(unknown)!r}: there are {', '.join(sorted(names))}")


def check_values(options: TurnOptions) -> None:
    """Raise ConfigurationError for an option with an invalid value."""
    for name, wanted in WANTED.items():
        value = options.get(name)
        if value is not None and not isinstance(value, wanted):
            raise ConfigurationError(f"{name} is {value!r:.60}, not a {wanted.__name__}")
    if not all(isinstance(part, Mapping) for part in options.get("parts") or ()):
        raise ConfigurationError("parts are mappings, such as {'type': 'text', 'text': ...}")


def read_bound(most: object) -> int | None:
    """Return a bound of bytes, or None for no bound; raises ConfigurationError otherwise."""
    if most is not None and (type(most) is not int or most < 1):
        raise ConfigurationError(f"session_bytes is 1 or more, or None, not {most!r}")
    return most


def restrict(begun: Mapping[str, Any], options: TurnOptions) -> TurnOptions:
    """Return the options of a continued turn: the stricter of its old and new ones."""
    made: TurnOptions = {**options}
    if begun.get("mode") == "plan":
        made["mode"] = "plan"
    order: tuple[Permission, ...] = ("auto", "ask", "read_only")
    then = begun.get("permission")
    if then in order:
        made["permission"] = max(then, options.get("permission", "auto"), key=order.index)
    made["dry_run"] = bool(begun.get("dry_run")) or options.get("dry_run", False)
    return made
