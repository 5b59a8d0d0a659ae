"""A call of a client's method: taken apart for a guard, and put together again for the SDK.

The parts of a conversation are found by their places in the keywords. If the guard leaves a part
unchanged, the SDK gets the caller's very object. This module knows no guard.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ullage.api.wrap.methods import GuardedMethod
from ullage.core.dialects.client import GivenMessages, Path
from ullage.core.dialects.thinking import lower_thinking
from ullage.core.messages.fields import field_of
from ullage.guard.call import is_given

KEY: Final = "idempotency-key"


class CallSender:
    """Send a call with its conversation replaced by the guard's view.

    `parts` is what the guard gets from the call. If a method's answer holds its stream in a field,
    `answer` is the whole answer.
    """

    def __init__(
        self,
        method: Callable[..., Any],
        how: GuardedMethod,
        given: Mapping[str, Any],
        client: Any,
    ) -> None:
        self._method = method
        self._how = how
        self._client = client
        self._sent: Mapping[str, Any] | None = None
        self._given, self._reading, self.parts = _read_parts(how, given)
        self.answer: Mapping[str, Any] = {}

    def __call__(self, **view: Any) -> Any:
        """Send the guard's view; return the answer, or the stream inside it."""
        for name in ("model", "stream"):  # the caller's own values stay
            view.pop(name, None)
        made = self._method(**self._fields(view))
        if self._how.method.holds is None:
            return made
        return self._await_stream(made) if inspect.isawaitable(made) else self._open(made)

    def hand_out(self, stream: Any) -> Any:
        """Return a watched stream in the place where the SDK has it: in its answer, or alone."""
        holds = self._how.method.holds
        return stream if holds is None else {**self.answer, holds: stream}

    def _open(self, answer: Mapping[str, Any]) -> Any:
        self.answer = answer
        return answer[self._how.method.holds or ""]

    async def _await_stream(self, answer: Any) -> Any:
        return self._open(await answer)

    def _fields(self, view: Mapping[str, Any]) -> dict[str, Any]:
        """Return the caller's keywords with the fields of the view; unchanged ones stay the same.

        A request that is sent again with another body gets a new idempotency key.
        """
        made, before = dict(self._given), self._sent
        self._sent = view
        for name, value in self._name_parts(view):
            path = find_place(self._how.places[name], made)
            if path is None or _is_same(self.parts.get(name), value):
                continue
            put = self._reading.write(value) if name == "messages" else value
            made = _put(made, path, put)
            if name == "max_tokens" and type(self.parts.get(name)) is int:
                made |= lower_thinking(made, self.parts[name], value)
        changed = before is not None and any(before.get(k) is not v for k, v in view.items())
        return _renew_key(made, self._how.form.headers, self._client) if changed else made

    def _name_parts(self, view: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the parts of a view under our names for them."""
        fields = self._how.dialect.fields
        named = {own: part for part, own in fields.names.items()}
        named |= dict.fromkeys(fields.output, "max_tokens")
        for name, value in view.items():
            if name == fields.inside:
                yield "max_tokens", value[fields.limit]
            else:
                yield named.get(name, name), value


def find_place(places: Sequence[Path], given: Mapping[str, Any]) -> Path | None:
    """Return the first of the places where a call gives a value."""
    return next((path for path in places if is_given(_get(given, path))), None)


def bind(
    method: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return all arguments of a call by name, or None if the method hides its parameters."""
    if not args:
        return {**given}
    try:
        shown = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # written in C, or has no signature
        return None
    names = [p.name for p in shown if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    bound = dict(zip(names, args, strict=False))
    return None if len(args) > len(names) or bound.keys() & given else {**bound, **given}


def _read_parts(
    how: GuardedMethod, given: Mapping[str, Any]
) -> tuple[dict[str, Any], GivenMessages, dict[str, Any]]:
    """Return the keywords with lists that can be read twice, the messages, and all parts."""
    made, parts = {**given}, dict[str, Any]()
    for name, places in how.places.items():
        path = find_place(places, made)
        if path is None:
            continue
        value = _get(made, path)
        if name in ("messages", "tools") and (listed := _make_list(value)) is not value:
            made, value = _put(made, path, listed), listed
        parts[name] = value
    reading = how.form.read_messages(parts.get("messages"))
    parts["messages"] = reading.messages
    if "tools" in parts:
        parts["tools"] = _describe_tools(parts["tools"])
    if how.form.read_system is not None and "system" in parts:
        parts["system"] = how.form.read_system(parts["system"])
    if how.dialect.fields.inside is not None and not _is_limit(parts.get("max_tokens")):
        parts.pop("max_tokens", None)
    return made, reading, parts


def _is_limit(value: Any) -> bool:
    """Tell whether a number in an object of options limits an answer; below 1 it does not."""
    return type(value) is int and value > 0


def _get(given: Any, path: Path) -> Any:
    for name in path:
        given = field_of(given, name) if given is not None else None
    return given


def _put(holder: Any, path: Path, value: Any) -> Any:
    """Return a copy of a mapping or of an SDK object with another value at the end of a path."""
    name, rest = path[0], path[1:]
    new = value if not rest else _put(field_of(holder, name), rest, value)
    if isinstance(holder, Mapping):
        return {**holder, name: new}
    return holder.model_copy(update={name: new})


def _is_same(own: Any, value: Any) -> bool:
    """Tell whether a part of a view is exactly what the caller gave."""
    if own is value or (type(own) is int and own == value):
        return True
    if isinstance(own, str) and type(value) is list:  # Responses accepts a text as one message
        return len(value) == 1 and value[0] == {"role": "user", "content": own}
    if not isinstance(own, list | tuple) or not isinstance(value, list):
        return False
    return len(own) == len(value) and all(a is b for a, b in zip(own, value, strict=True))


def _make_list(value: Any) -> Any:
    """Return an iterable as a list that can be read twice; texts, lists and objects unchanged."""
    whole = value is None or isinstance(value, str | list | tuple | Mapping)
    whole = whole or hasattr(value, "model_dump")
    return value if whole or not hasattr(value, "__iter__") else list(value)


def _describe_tools(tools: Any) -> Any:
    """Return tools in a form that can be measured; some SDKs accept plain functions as tools."""
    if not isinstance(tools, list | tuple) or not any(map(_is_function, tools)):
        return tools
    return [_describe(tool) if _is_function(tool) else tool for tool in tools]


def _is_function(tool: Any) -> bool:
    return callable(tool) and not isinstance(tool, Mapping) and not hasattr(tool, "model_dump")


def _describe(function: Any) -> dict[str, Any]:
    """Return a function as a tool of about the size of the SDK's own description."""
    try:
        shown = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # written in C, or has no signature
        shown = []
    properties = {p.name: {"type": str(p.annotation)} for p in shown}
    said = {"name": getattr(function, "__name__", ""), "description": inspect.getdoc(function)}
    return {**said, "parameters": {"type": "object", "properties": properties}}


def _renew_key(fields: dict[str, Any], keyword: str | None, client: Any) -> dict[str, Any]:
    """Replace the idempotency key of a call, if it has one, with a new one.

    Keys that the SDKs make themselves are new with each call anyway.
    """
    if keyword is None:
        return fields
    headers = fields.get(keyword) or {}
    standing = getattr(client, "default_headers", None) or {}
    if not any(name.lower() == KEY for name in (*headers, *standing)):
        return fields
    kept = {name: value for name, value in headers.items() if name.lower() != KEY}
    return {**fields, keyword: {**kept, "Idempotency-Key": uuid.uuid4().hex}}
