"""A function that sends a request, as `Guard.call` and its variants call it.

This module sorts the caller's keywords: those of the conversation, the names that the function has
for them, and those that are passed on unchanged. It prepares nothing and knows nothing of windows.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import registry as dialects
from ullage.core.dialects.thinking import lower_thinking
from ullage.core.errors import ConfigurationError

if TYPE_CHECKING:
    from ullage.core.dialects.dialect import Dialect
    from ullage.core.messages.transcript import DialectName

PREPARED: Final = frozenset({"tools", "max_tokens", "pins", "sections", "system"})
"""Keywords of `Guard.prepare`."""

OURS: Final = frozenset({"pins", "sections"})
"""Keywords that are never passed to the function."""

NEWER: Final[Mapping[str, str]] = {"max_tokens": "max_completion_tokens"}
"""Newer names of Chat Completions for old keywords."""

OWN_MODEL: Final = "got multiple values for keyword argument 'model'"
"""Python's error message for a call that names a model twice."""


@functools.cache
def fields() -> Mapping[str, str]:
    """Return the fields that `Guard.prepare` takes, by their names in the dialects."""
    found = {"messages": "messages"}
    for known in dialects.dialects():
        if not known.fields.single:
            found |= {own: field for field, own in known.fields.names.items()}
            found |= dict.fromkeys(known.fields.output, "max_tokens")
    return found


def keywords(dialect: DialectName, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request under the names of a dialect's client, without None values."""
    place = dialects.find(dialect).fields
    names = place.names
    made = {names.get(k, k): value for k, value in values.items() if value is not None}
    join = dialects.find(dialect).join_turns
    if join is not None and place.messages in made:
        made[place.messages] = join(made[place.messages])
    if place.inside is not None and place.limit in made:
        made[place.inside] = {place.limit: made.pop(place.limit)}
    return made


def is_given(value: Any) -> bool:
    """Tell whether a keyword has a value, other than None and the SDKs' "not given" marks."""
    return value is not None and type(value).__name__ not in ("NotGiven", "Omit", "Unset")


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A function, the conversation that it will send, and its other arguments.

    `prepared` holds keywords of `Guard.prepare`. `passed` goes to the function unchanged; it
    contains the guard's model if `model_added`. `names` has the caller's own name for a field.
    `dialect` is the one that messages, keywords or the function show, or None. `taken` are the
    parameters of the function, or None if its signature is unknown.
    """

    fn: Callable[..., Any]
    messages: Any
    prepared: Mapping[str, Any]
    passed: Mapping[str, Any]
    names: Mapping[str, str]
    dialect: DialectName | None
    taken: Mapping[str, inspect.Parameter] | None
    model_added: bool = False

    def send(self, view: Mapping[str, Any]) -> Any:
        """Call the function with a prepared request and its other arguments."""
        try:
            return self.fn(**self.fields(view))
        except TypeError as error:
            without = self._without_model(error)
        return without.send(view)

    async def asend(self, view: Mapping[str, Any]) -> Any:
        """Do as `send` with an async function, or one that returns an async stream."""
        try:
            made = self.fn(**self.fields(view))
            return await made if inspect.isawaitable(made) else made
        except TypeError as error:
            without = self._without_model(error)
        return await without.asend(view)

    def _without_model(self, error: TypeError) -> GuardedCall:
        """Return the same call without a model, for a function that names one; raise other errors.

        The signature of `lambda **request: create(model="mine", **request)` does not show that it
        takes no model. Its inner call then fails before anything is sent.
        """
        if not (self.model_added and OWN_MODEL in str(error)):
            raise error
        passed = {name: value for name, value in self.passed.items() if name != "model"}
        return replace(self, passed=passed, model_added=False)

    def streaming(self) -> Mapping[str, bool]:
        """Return the keyword that makes the function stream, `stream=True`, if it takes that."""
        shown = self.taken is not None and "stream" in self.taken
        takes = shown or (_has_field(self.dialect, "stream") and self._takes("stream"))
        return {"stream": True} if takes else {}

    def fields(self, view: Mapping[str, Any]) -> dict[str, Any]:
        """Return all keywords; those of a prepared request have names that the function takes."""
        made, insides = self._lower_thinking(view), _insides()
        for name, value in view.items():
            if name not in insides:
                made[self._name(name)] = value
            elif self._takes(name):
                made[name] = {**(made.get(name) or {}), **value}
            else:
                made |= {self._name(own): limit for own, limit in value.items()}
        return made

    def _lower_thinking(self, view: Mapping[str, Any]) -> dict[str, Any]:
        """Return the passed keywords, with a thinking budget that fits a lowered `max_tokens`."""
        asked, given = self.prepared.get("max_tokens"), _find_limit(view)
        if type(asked) is not int or given is None:
            return dict(self.passed)
        return {**self.passed, **lower_thinking(self.passed, asked, given)}

    @property
    def beside(self) -> Mapping[str, Any]:
        """The request's fields apart from the conversation, as far as the function gets them."""
        extra = self.passed.get("extra_body")
        return {**self.passed, **extra} if isinstance(extra, Mapping) else self.passed

    def _name(self, name: str) -> str:
        """Return the first name for a field that the function takes, by default the dialect's."""
        known = fields()
        field = known.get(name, name)
        own = self.names.get(field, name)
        newer = [own] if own == NEWER.get(name) else []
        others = [other for other, of in known.items() if of == field]
        wanted = (*newer, name, own, field, *others)
        return next((found for found in wanted if self._takes(found)), name)

    def _takes(self, name: str) -> bool:
        return self.taken is None or name in self.taken or has_more(self.taken)


def _find_limit(view: Mapping[str, Any]) -> int | None:
    """Return the limit of the answer in a prepared request, or None."""
    known, insides = fields(), _insides()
    found: int | None = None
    for name, value in view.items():
        if name in insides:
            found = next(iter(value.values()), None)
        elif known.get(name, name) == "max_tokens":
            found = value
    return found


def _has_field(dialect: DialectName | None, name: str) -> bool:
    """Tell whether requests of a dialect carry a field of ours; some put it in the URL instead."""
    return dialect is None or name not in dialects.find(dialect).fields.leaves_out


def has_more(taken: Mapping[str, inspect.Parameter]) -> bool:
    """Tell whether a function takes any keyword."""
    return any(p.kind is p.VAR_KEYWORD for p in taken.values())


def parameters(fn: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """Return the keyword parameters of a function, or None if its signature is unknown."""
    try:
        found = inspect.signature(fn).parameters
    except (TypeError, ValueError):  # written in C, or has no signature
        return None
    no_keyword = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    return {name: p for name, p in found.items() if p.kind not in no_keyword}


def read_call(
    fn: Callable[..., Any], messages: Any, options: Mapping[str, Any], model: str | None
) -> GuardedCall:
    """Sort the keywords of a call; pass `model` on if the function takes one.

    Keywords that `functools.partial` holds for the function count as given. Raises
    ConfigurationError for a field that is given under two names.
    """
    if isinstance(fn, functools.partial):
        options = {**fn.keywords, **options}
        fn = functools.partial(fn.func, *fn.args) if fn.args else fn.func
    taken, known = parameters(fn), fields()
    prepared: dict[str, Any] = {}
    passed: dict[str, Any] = {}
    names: dict[str, str] = {} if messages is None else {"messages": "position"}
    for name, value in options.items():
        field = known.get(name, name)
        if (field not in PREPARED and field != "messages") or not is_given(value):
            if value is not None or field not in PREPARED:
                passed[name] = value
            continue
        if field in names:
            raise ConfigurationError(
                f"the {field} of this call are given twice, by {names[field]} and by {name}: "
                "leave one of them out"
            )
        names[field], prepared[field] = name, value
    if "messages" in prepared:
        messages = prepared.pop("messages")
    dialect = _dialect(messages, names, taken or {})
    if dialect is not None and "max_tokens" not in prepared:
        _read_inside(dialect, prepared, passed)
    more = taken is not None and _has_field(dialect, "model") and has_more(taken)
    wants = more or (taken is not None and "model" in taken)
    added = wants and model is not None and "model" not in passed
    if added:
        passed["model"] = model
    return GuardedCall(fn, messages, prepared, passed, names, dialect, taken, added)


def _dialect(
    messages: Any, names: Mapping[str, str], taken: Mapping[str, inspect.Parameter]
) -> DialectName | None:
    """Return the dialect that messages, keywords or the function show, in this order."""
    shown = None if isinstance(messages, str) else dialects.detect(messages)
    if shown is not None:
        return shown
    fits = not taken or has_more(taken)
    for known in dialects.dialects():
        shows = not known.shape.keywords.isdisjoint(names.values())
        if shows and (fits or known.fields.messages in taken):
            return known.name
    return next((d.name for d in _by_parameters() if d.shape.parameters <= taken.keys()), None)


@functools.cache
def _by_parameters() -> Sequence[Dialect]:
    """Return the dialects; first those whose clients have the most parameters of their own."""
    known = (d for d in dialects.dialects() if d.shape.parameters)
    return sorted(known, key=lambda d: -len(d.shape.parameters))


@functools.cache
def _insides() -> frozenset[str]:
    """Return the fields in which dialects nest the limit of an answer."""
    return frozenset(d.fields.inside for d in dialects.dialects() if d.fields.inside is not None)


def _read_inside(dialect: DialectName, prepared: dict[str, Any], passed: Mapping[str, Any]) -> None:
    """Read the answer limit from the field that holds it; values below 1 are no limit (-1, -2)."""
    place = dialects.find(dialect).fields
    held = passed.get(place.inside) if place.inside is not None else None
    most = held.get(place.limit) if isinstance(held, Mapping) else None
    if type(most) is int and most > 0:
        prepared["max_tokens"] = most


def refuse_stream(call: GuardedCall, own: str, twin: str, *, wanted: bool) -> None:
    """Raise ConfigurationError for a `stream=` that contradicts the method that was called."""
    said = call.passed.get("stream")
    if is_given(said) and bool(said) is not wanted:
        what = "an answer as a stream" if wanted else "a whole answer"
        raise ConfigurationError(
            f"Guard.{own} returns {what}, and stream={said!r} was given: use Guard.{twin}, or "
            "leave stream out"
        )


def refuse_awaitable(answer: Any) -> Any:
    """Return an answer; raise ConfigurationError for one that must be awaited first."""
    if not inspect.isawaitable(answer):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()  # nothing was sent yet
    raise ConfigurationError(
        "Guard.call was given an async function, whose answer must be awaited: use "
        "await guard.acall(...)"
    )
