"""Reads a provider's error: what is too big, by how much, and how certain that is.

Order: statuses that never mean overflow, structured codes, then the table of wordings (`wordings`):
vetoes, totals before inputs, anchored sentences, and a generic tier marked `likely`. Reads bodies
in any form: objects, lists, JSON inside strings, frames of a stream. This module knows no HTTP
client and decides no recovery.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ullage.core.errors import ErrorKind, Kind
from ullage.core.messages.fields import as_mapping

if TYPE_CHECKING:
    from ullage.core.dialects.wordings import Wording

STATUSES: Final[Mapping[int, Kind]] = {402: "quota", 429: "rate_limit"}

ABSENT: Final = frozenset({404, 405})
"""Statuses for something that does not exist; a `likely` wording with them means nothing."""

FORBIDDEN: Final = frozenset({401, 403})
"""Statuses that refuse the caller: no wording with them is about size."""


def classify(
    status: int | None, body: Any, *, headers: Mapping[str, str] | None = None
) -> ErrorKind:
    """Classify an error response. `body` is text, bytes, or the parsed body; never raises.

    `status` may be 200: some servers report an overflow inside a stream. An unknown body is None; a
    body that is known to be empty is "". `headers` separate a rate limit from a sentence that only
    looks like an overflow.
    """
    fields, texts = _open(body)
    texts = [_plain(text) for text in texts[:_MOST]]
    refused = STATUSES.get(status or 0)
    if status in FORBIDDEN:
        return ErrorKind("quota" if _is_quota(fields, texts) else "other", structured=True)
    if refused is not None:
        return ErrorKind("quota" if _is_quota(fields, texts) else refused)
    read = _by_code(fields, texts) or match_wording(texts)
    if read is None:
        return _classify_status(status, body, headers)
    if read.certainty == "likely" and status in ABSENT:
        return ErrorKind("other")
    if read.certainty == "likely" and _waits(headers):
        return ErrorKind("rate_limit")
    return read


def match_wording(texts: Sequence[str], rows: Sequence[Wording] | None = None) -> ErrorKind | None:
    """Return the meaning of the first row that matches these texts, or None.

    The table is loaded with the first error, because most programs never see one.
    """
    if rows is None:
        from ullage.core.dialects.wordings import ROWS

        rows = ROWS
    for row in rows:
        for text in texts:
            found = row.pattern.search(text)
            if found is not None:
                return replace(_read(row, found.groupdict()), said=found[0])
    return None


def doubt_quoted(kind: ErrorKind, request: Iterable[Any]) -> ErrorKind:
    """Return the meaning of an error whose words may be quoted from the request itself.

    Validators quote the text that they refuse. So a sentence that the client wrote proves nothing:
    it gives no limit and no law of a model, and an overflow is only `likely`. `request` holds the
    values of the request, in which the words are searched.
    """
    said = _fold(kind.said)
    if len(said) < SHORTEST_QUOTE or not any(said in _fold(text) for text in _list_texts(request)):
        return kind
    if kind.kind in ("input", "total"):
        return ErrorKind(kind.kind, certainty="likely", said=kind.said)
    return ErrorKind("other", certainty="likely", said=kind.said)


SHORTEST_QUOTE: Final = 8
"""Characters below which a wording is too short to be a quoted sentence."""

_MARKS: Final = str.maketrans("", "", "\\\"'`")


def _fold(text: str) -> str:
    """Return a text without case, quotation marks, thousands separators and repeated spaces."""
    return " ".join(_SEPARATOR.sub("", text).translate(_MARKS).casefold().split())


def _list_texts(values: Iterable[Any]) -> Iterator[str]:
    """Yield the texts in values, including names of fields, at any depth."""
    waiting = [*values]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            waiting += value
        elif hasattr(value, "__dict__"):
            waiting.append(vars(value))


def _read(row: Wording, named: Mapping[str, str | None]) -> ErrorKind:
    limit, size, more, output = (
        _number(named.get(name)) for name in ("limit", "input", "more", "output")
    )
    size = size + more if size is not None and more is not None else size
    kind = row.kind
    if kind == "total" and (output == 0 or (size or 0) > (limit or _ENDLESS)):
        kind = "input"  # no output limit would have helped
    return ErrorKind(kind, limit or None, size, row.certainty, row.about, output_tokens=output)


_ENDLESS: Final = 10**12


def _number(digits: str | None) -> int | None:
    """Return a number of tokens, or None for "128k" or too many digits, as we do not guess."""
    return int(digits) if digits and digits.isascii() and digits.isdigit() else None


def _by_code(fields: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> ErrorKind | None:
    for inner, kind in _find_codes(fields):
        if kind != "input":
            return ErrorKind(kind, structured=True)
        limit, size = _int(inner, "n_ctx"), _int(inner, "n_prompt_tokens")
        said = match_wording(texts)
        if limit is None and said is not None and said.kind in ("input", "total"):
            return replace(said, certainty="certain", structured=True)
        return ErrorKind("input", limit, size, structured=True)
    return None


def _find_codes(fields: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Kind]]:
    from ullage.core.dialects.wordings import CODES

    return [
        (inner, CODES[code.lower()])
        for inner in fields
        for code in (inner.get(name) for name in ("type", "code", "__type", "Code"))
        if isinstance(code, str) and code.lower() in CODES
    ]


def _is_quota(fields: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> bool:
    """Tell whether money or a plan ran out, so that waiting is no help: by code, else by words."""
    kinds = [kind for _, kind in _find_codes(fields) if kind in ("quota", "rate_limit")]
    if kinds:
        return "quota" in kinds
    said = match_wording(texts)
    return said is not None and said.kind == "quota"


def _classify_status(status: int | None, body: Any, headers: Mapping[str, str] | None) -> ErrorKind:
    """Return the meaning of a status and headers if no words are known."""
    if _is_used_up(headers):
        return ErrorKind("rate_limit")
    if status == 413:
        return ErrorKind("bytes")  # RFC 9110, 15.5.14: content too large
    if status == 400 and isinstance(body, str | bytes | bytearray) and not body.strip():
        return ErrorKind("input", certainty="likely")  # Cerebras sends nothing else
    return ErrorKind("other")


def _waits(headers: Mapping[str, str] | None) -> bool:
    return _is_used_up(headers) or any(name.lower() == "retry-after" for name in headers or ())


def _is_used_up(headers: Mapping[str, str] | None) -> bool:
    """Tell whether a rate limit has nothing left, such as `x-ratelimit-remaining-tokens: 0`."""
    return any(
        "ratelimit" in name.lower() and "remaining" in name.lower() and str(value).strip() == "0"
        for name, value in (headers or {}).items()
    )


_SEPARATOR: Final = re.compile(r"(?<=\d)(?<!\[\d)[,_\u00a0\u2009\u202f'](?=\d{3}(?!\d))")
_TAG: Final = re.compile(r"</?[a-zA-Z!][^<>]{0,200}>")
_MANY_DIGITS: Final = re.compile(r"\d{13,}")
_HEAD, _TAIL = 16_384, 4_096


def _plain(text: str) -> str:
    """Return a text as the table needs it: its ends, no tags, numbers without separators.

    The error is at the beginning, or at the end of a traceback; the middle of a longer text is an
    echo of the request.
    """
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    text = _TAG.sub(" ", text.replace("\u2019", "'"))
    return _MANY_DIGITS.sub("?", _SEPARATOR.sub("", text))


_Opened = tuple[list[Mapping[str, Any]], list[str]]

_DEEPEST: Final = 8
"""Levels of nesting that are read; the deepest body seen has five (a list, JSON in a string)."""

_MOST: Final = 32
"""Texts and members of a list that are read; one error has only a few."""

_NAMES: Final = (
    *("error", "errors", "message", "msg", "detail", "details", "metadata", "raw"),
    *("Error", "Message", "errorMessage", "error_message", "violations", "quotaId", "body"),
)
_INNER: Final = ("response", "incomplete_details", "innererror")
"""Fields that are read only if they are objects: as text, `response` is the model's answer
(Ollama).
"""


def _open(body: Any, depth: int = 0) -> _Opened:
    """Return the objects that may have codes, outermost first, and the texts to search."""
    if depth > _DEEPEST:
        return [], []
    if isinstance(body, bytes | bytearray):
        body = bytes(body).decode("utf-8", "replace")
    if isinstance(body, str):
        inner = _parse_frames(body)
        if inner:
            return _all([_open(part, depth + 1) for part in inner])
        return _all([([], [body]), *(_open(part, depth + 1) for part in _find_quoted(body))])
    if isinstance(body, list | tuple):
        return _all([_open(part, depth + 1) for part in body[:_MOST]])
    fields = as_mapping(body)
    if fields is None:
        return [], []
    parts = [fields.get(name) for name in _NAMES]
    parts += [part for name in _INNER if not isinstance(part := fields.get(name), str | bytes)]
    return _all([([fields], []), *(_open(part, depth + 1) for part in parts)])


def _all(opened: list[_Opened]) -> _Opened:
    return [o for objects, _ in opened for o in objects], [t for _, texts in opened for t in texts]


def _parse_frames(text: str) -> list[Any]:
    """Return the JSON value of a text, or those of the frames of a stream (`data: {...}`)."""
    frames = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
    frames = [*frames[:_MOST], *frames[_MOST:][-_MOST:]]  # an error begins or ends a stream
    found: list[Any] = []
    for frame in frames:
        try:
            inner = json.loads(frame) if frame.lstrip()[:1] in ("{", "[", '"') else None
        except (ValueError, RecursionError):
            continue
        if isinstance(inner, dict | list | str):
            found.append(inner)
    return found


def _find_quoted(text: str) -> list[Any]:
    """Return the JSON object inside a sentence (`400 {"error": ...}`), if there is one."""
    start = text.find('{"', 0, _HEAD)
    try:
        return [json.JSONDecoder().raw_decode(text, start)[0]] if start >= 0 else []
    except (ValueError, RecursionError):
        return []


def _int(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
