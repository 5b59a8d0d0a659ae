"""Writes docs/reference/: the API, the guard's events and the errors, from the code.

`make docs` runs `python -m tools.reference`; a test fails if a page differs from its output.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, get_args

import ullage
from ullage.core.errors import UllageError
from ullage.core.guard import events

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "ullage"
FOLDER: Final = ROOT / "docs" / "reference"

ACTS: Final[Mapping[str, Sequence[str]]] = {
    "ConfigurationError": (
        "you",
        "A setting, an option, an argument or an installation cannot work as it is.",
        "The message names the value, its place, what would be right, and what to change.",
    ),
    "ContextWindowUnknown": (
        "you",
        "No override, no server and no table row tells the window, and a number is needed.",
        "Give `window=` or `--window N`, or the address of a server ([servers](../servers.md)).",
    ),
    "ContextTooLargeError": (
        "you",
        "What must stay is larger than the window, or than what the output leaves of it.",
        "Lower `max_tokens`, unpin, shorten system text or tools, or take a larger window.",
    ),
    "MalformedHistoryError": (
        "you",
        "The messages break the dialect's protocol; `index` says where.",
        "`ullage.repair(messages)` mends by rule; `ullage validate FILE` lists all that is wrong.",
    ),
    "CompactionError": (
        "you",
        "A compaction has no target, or one that makes no sense.",
        "Give `target_tokens`, or `target_ratio` with a window.",
    ),
    "ProviderError": (
        "whoever runs the model server",
        "It cannot be reached, was not started, or sent an invalid response.",
        "Look whether it runs (`ullage doctor`), and at its address and key.",
    ),
    "QueueFull": (
        "whoever submits",
        "More jobs wait than the queue, or this tenant, may have.",
        "Submit again later, start workers, or raise the limit ([workers](../workers.md)).",
    ),
    "StoreError": (
        "whoever runs the store",
        "Durable state cannot be read or written.",
        "The message names the file or server: look at its rights, its disk and its version.",
    ),
    "StoreAway": (
        "whoever runs the store",
        "The store is full or cannot be reached, and may be back soon.",
        "Free the disk or start the server again, and ask again.",
    ),
    "BusyWriter": (
        "you",
        "Another program kept the session or the store locked.",
        "End the other program, or wait until its lease has ended.",
    ),
    "Fenced": (
        "whoever wrote",
        "Another writer took the session over. Nothing was written.",
        "Stop, and read the session anew before another try.",
    ),
    "CorruptLog": (
        "whoever runs the log",
        "An event was changed, removed or damaged.",
        "`ullage verify SESSION` lists faults; `ullage fork SESSION --at N` goes on before them.",
    ),
    "UnknownSession": (
        "you",
        "No session of this name is in the log that was opened.",
        "`ullage sessions` lists those there are; `--store` names another log.",
    ),
}
"""For each error: who must act, the cause, the remedy."""

AREAS: Final[Sequence[tuple[str, Sequence[str]]]] = (
    (
        "Measure",
        (
            *("core.tokens", "api.functions", "api.context", "api.tally"),
            *("core.dialects", "core.errors", "sdk"),
        ),
    ),
    ("Guard a client", ("guard", "api.wrap", "core.summary", "runtime")),
    ("Make smaller, read back", ("api", "core.compaction", "storage")),
    ("Sessions and agents", ("agent", "core.session", "providers", "workers")),
)
"""The headings of the API page, and the modules whose names are listed under each."""


def flow(doc: str | None) -> str:
    """Return a docstring as Markdown: an indented part after `::` becomes a block of Python."""
    text = re.sub(
        r"^::\n\n((?: {4}.*\n?|\n)+)", _fence, inspect.cleandoc(doc or ""), flags=re.MULTILINE
    )
    return text.strip()


def _fence(found: re.Match[str]) -> str:
    kind = "text" if "+--" in found[1] else "py"
    return f"```{kind}\n{inspect.cleandoc(found[1])}\n```\n\n"


def list_parameters(value: Any) -> tuple[list[str], str]:
    """Return the parameters of a function or class with their types, and the return type."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return [], ""
    parts, stars = [], {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
    bare = False
    for each in signature.parameters.values():
        bare = bare or each.kind.name == "VAR_POSITIONAL"
        if each.kind.name == "KEYWORD_ONLY" and not bare:
            parts.append("*")
            bare = True
        part = stars.get(each.kind.name, "") + each.name
        part += f": {_write_type(each.annotation)}" if each.annotation is not each.empty else ""
        if each.default is not each.empty:
            plain = each.default is None or isinstance(each.default, bool | int | float | str)
            part += f" = {each.default!r}" if plain else " = ..."
        if part not in ("self", "cls"):
            parts.append(part)
    told = _write_type(signature.return_annotation)
    return parts, "" if told in ("None", "_empty") else f" -> {told}"


def _write_type(kind: Any) -> str:
    text = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    return text.strip("'\"") if kind is not None else "None"


# ── the API ─────────────────────────────────────────────────────────────────────────────────────


def write_api() -> str:
    """Return the page of the public names."""
    lines = [
        "# API\n",
        (
            "Generated by `make docs` from `ullage.__all__` and the docstrings. Besides there are "
            "[errors](errors.md) and [events](events.md). All else is internal and may change.\n"
        ),
    ]
    left = {name: getattr(ullage, name) for name in ullage.__all__}
    rooms = {name: left.pop(name) for name in list(left) if isinstance(left[name], ModuleType)}
    left = {name: value for name, value in left.items() if not _is_error(value)}
    for title, homes in AREAS:
        taken = [name for name in left if _belongs(left[name], homes)]
        lines.append(f"## {title}\n")
        for name in sorted(taken, key=str.lower):
            lines.extend(_entry(name, left.pop(name)))
    if left:
        raise SystemExit(f"no heading of AREAS in tools/reference.py takes {', '.join(left)}")
    lines.append("## Modules\n")
    lines.extend(f"### ullage.{name}\n\n{_first(room)}\n" for name, room in rooms.items())
    return "\n".join(lines)


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, UllageError)


def _belongs(value: Any, homes: Sequence[str]) -> bool:
    home = str(value.__module__).removeprefix("ullage.")
    return any(home == each or home.startswith(f"{each}.") for each in homes)


def _first(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def _entry(name: str, value: Any) -> Iterator[str]:
    told = str(value.__doc__ or "")
    protocol = getattr(value, "_is_protocol", False)
    yield f"### {name}\n\n```py\n{name if protocol else _wrap(name, value)}\n```\n"
    if not told.startswith(f"{name}("):
        yield f"{flow(told)}\n"
    if not isinstance(value, type):
        return
    members = [
        row for each in sorted(vars(value)) if (row := _member(name, each, vars(value)[each]))
    ]
    if members:
        yield "| of it | what it is |\n|---|---|"
        yield from members
        yield ""


def _wrap(name: str, value: Any) -> str:
    """Return a call on one line, or with one parameter per line if it is long."""
    parts, told = list_parameters(value)
    whole = f"{name}({', '.join(parts)}){told}"
    if len(whole) <= 88:
        return whole
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){told}"


def _member(owner: str, name: str, value: Any) -> str:
    """Return the row of a public method or property, or "" for anything else."""
    if name.startswith("_"):
        return ""
    if isinstance(value, property):
        return f"| `.{name}` | {_cell(value)} |"
    inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not inspect.isfunction(inner):
        return ""
    parts, told = list_parameters(inner)
    before = owner if inner is not value else ""
    call = f"{before}.{name}({', '.join(parts)}){told}".replace("|", "\\|")
    return f"| `{call}` | {_cell(inner)} |"


def _cell(value: Any) -> str:
    return _first(value).replace("|", "\\|")


# ── events ──────────────────────────────────────────────────────────────────────────────────────


EVENTS_HEAD: Final = """\
# Events

Generated by `make docs` from `ullage.events`. A guard calls `on_event` with these values, in the
order in which things happened; each says what happened and carries no behaviour. The events of a
session are those of [the log](../log.md); [metrics](../metrics.md) are made of these.

```python
import ullage


def listen(event: ullage.events.Event) -> None:
    if isinstance(event, ullage.events.Compacted):
        print("compacted", event.checkpoint.trigger)


guard = ullage.Guard("gpt-4o", on_event=listen)
```
"""


def write_events() -> str:
    """Return the page of a guard's events: the classes of its union, with their fields."""
    lines = [EVENTS_HEAD]
    kinds = [*get_args(events.Event), *events.Notice.__subclasses__()]
    for kind in sorted(kinds, key=lambda each: each.__name__):
        lines.append(f"## {kind.__name__}\n\n{flow(kind.__doc__)}\n")
        lines.append("| field | value | default |\n|---|---|---|")
        for each in dataclasses.fields(kind):
            value = str(each.type).replace("|", "\\|")
            presumed = "" if each.default is dataclasses.MISSING else f"`{each.default!r}`"
            lines.append(f"| `{each.name}` | `{value}` | {presumed} |")
        lines.append("")
    return "\n".join(lines)


# ── errors ──────────────────────────────────────────────────────────────────────────────────────


ERRORS_HEAD: Final = """\
# Errors

Generated by `make docs` from `ullage.errors` and from every place that raises one. What providers
say, and what it means, is in the [FAQ](../faq.md).

Each error has a `code` for programs and a message for people. The message has what happened, the
value, the limit and what to do; `…` stands for a value. A command that ends with an error has exit
code 1, with `BusyWriter` 5, with `UnknownSession` 2; with `--json` it prints the code.

| error | code | who must act | cause | what to do |
|---|---|---|---|---|"""


def write_errors() -> str:
    """Return the page of the errors: who must act, cause and remedy, and every message."""
    told = list_messages()
    lines = [ERRORS_HEAD]
    kinds = list(_walk(UllageError))
    for kind in kinds:
        acts = " | ".join(ACTS[kind.__name__])
        lines.append(f"| [{kind.__name__}](#{kind.__name__.lower()}) | `{kind.code}` | {acts} |")
    for kind in kinds:
        lines.append(f"\n## {kind.__name__}\n\n{flow(kind.__doc__)}\n")
        for room, texts in sorted(told.get(kind.__name__, {}).items()):
            lines.append(f"From `{room}`:\n")
            lines.extend(f"- {_quote(text)}" for text in sorted(texts))
            lines.append("")
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def _walk(kind: type[UllageError]) -> Iterator[type[UllageError]]:
    for each in kind.__subclasses__():
        if each.__module__ == "ullage.core.errors":
            yield each
            yield from _walk(each)


def _quote(text: str) -> str:
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def list_messages() -> dict[str, dict[str, set[str]]]:
    """Return the messages by class and by room, read from the source."""
    found: dict[str, dict[str, set[str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        where = path.relative_to(SOURCE)
        room = where.parts[1 if where.parts[0] == "core" else 0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                text = _read_text(node.args[0])
                if node.func.id in ACTS and sum(map(str.isalpha, text)) > 9:
                    found.setdefault(node.func.id, {}).setdefault(room, set()).add(text)
    return found


def _read_text(node: ast.expr) -> str:
    """Return a text as in the source, with each value in it as `…`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split())
    if isinstance(node, ast.JoinedStr):
        parts = (p.value if isinstance(p, ast.Constant) else "…" for p in node.values)
        return " ".join("".join(map(str, parts)).split())
    return ""


PAGES: Final = {"api.md": write_api, "events.md": write_events, "errors.md": write_errors}

if __name__ == "__main__":
    for page, write in PAGES.items():
        (FOLDER / page).write_text(write().rstrip() + "\n", "utf-8")
