"""What is particular to Ollama's own API: options, frames, prompts without messages, refusals.

Pure functions over fields and bytes; who sends what, and when, is the application's. Source of
the shapes: ollama docs/api.md and api/types.go of 2026-08. The refusals stand here for all
dialects, since a server that cuts in silence is why the proxy ever writes one (decision 34).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ullage.core.dialects.sse import Garbled
from ullage.core.messages.transcript import Dialect

MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a line at most; the last one of `/api/generate` repeats the context as numbers."""

MOST_TOKENS: Final = 2**40
"""Beyond it a number is no number of tokens."""

Fields = Mapping[str, Any]


# --- what is asked --------------------------------------------------------------------------------


def streams(fields: Fields) -> bool:
    """Tell whether a request is answered with a stream: unless it says `"stream": false`."""
    return fields.get("stream") is not False


def options(
    fields: Fields, *, num_ctx: int | None = None, num_predict: int | None = None
) -> dict[str, Any] | None:
    """Return what to put in the place of a request's `options`, None where it stays as it is.

    `num_ctx` is the operator's, in tokens: the same for every request to a model, whatever a
    request asks for, because the server loads the model anew when it changes. `num_predict` is a
    lowered limit of the answer, in tokens.
    """
    given = fields.get("options")
    asked = dict(given) if isinstance(given, Mapping) else {}
    wanted = {"num_ctx": num_ctx, "num_predict": num_predict}
    new = {name: value for name, value in wanted.items() if value is not None}
    return None if new.items() <= asked.items() else {**asked, **new}


def window(fields: Fields, num_ctx: int | None = None) -> int | None:
    """Return the window that a request will be given, in tokens, None where only the server knows.

    It is the operator's `num_ctx`, else the one that the request asks for. The server caps both
    at the trained length.
    """
    return num_ctx if num_ctx is not None else _tokens(_option(fields, "num_ctx"))


def output(fields: Fields) -> int | None:
    """Return the limit of the answer, in tokens, None where there is none.

    The server's default, -1, is none; so is -2, "until the window is full".
    """
    return _tokens(_option(fields, "num_predict"))


def _option(fields: Fields, name: str) -> Any:
    given = fields.get("options")
    return given.get(name) if isinstance(given, Mapping) else None


def _tokens(value: object) -> int | None:
    """Return a number of tokens; the server takes the whole part of any number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return int(value) if 1 <= value < MOST_TOKENS else None


@dataclass(frozen=True, slots=True)
class Single:
    """A request of `/api/generate`, as it is counted: `messages` in Ollama's dialect.

    `context` is the tokens of an earlier answer that go along with it, already counted. Without
    messages and context the request loads or unloads the model, and there is nothing to check.
    """

    messages: tuple[Mapping[str, Any], ...] = ()
    context: int = 0


def single(fields: Fields) -> Single:
    """Return what a request of `/api/generate` puts before the model.

    It is one prompt: it can be checked against the window and cannot be compacted. Fields of
    another type than the API's are the server's to refuse, and count nothing here.
    """
    said = {name: _text(fields.get(name)) for name in ("system", "template", "prompt", "suffix")}
    messages: list[Mapping[str, Any]] = []
    operator = "\n".join(text for text in (said["system"], said["template"]) if text)
    if operator:
        messages.append({"role": "system", "content": operator})
    images = fields.get("images")
    seen = {"images": list(images)} if isinstance(images, Sequence) and _shows(images) else {}
    prompt = "\n".join(text for text in (said["prompt"], said["suffix"]) if text)
    if prompt or seen:
        messages.append({"role": "user", "content": prompt, **seen})
    context = fields.get("context")
    asks = bool(prompt or seen)
    held = len(context) if asks and isinstance(context, list | tuple) else 0
    return Single(tuple(messages) if asks else (), held)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _shows(images: Sequence[Any]) -> bool:
    return not isinstance(images, str) and any(isinstance(image, str) for image in images)


# --- what is answered -----------------------------------------------------------------------------


class Frames:
    """Lines of an answer as their bytes pass, and what they tell.

    A line ends at LF and nowhere else. `begun` tells that content has arrived, `ended` that the
    terminal line (`"done": true`) has; `failed` is the error that came in its place. `report` is
    what to learn from, complete with the terminal line.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.begun = self.ended = False
        self.failed: Mapping[str, Any] | None = None
        self.report: Mapping[str, Any] | None = None
        self._most = most_bytes
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, each as it came and with its LF.

        Raises Garbled for a line over the bound; the stream is of no use after it.
        """
        *lines, rest = data.split(b"\n")
        found: list[bytes] = []
        for line in lines:
            self._grown(line)
            whole = b"".join(self._held) + b"\n"
            self._held, self._size = [], 0
            self._read(whole)
            found.append(whole)
        if rest:
            self._grown(rest)
        return found

    def rest(self) -> bytes:
        """Return what is left at the end of the stream: a line without its LF, or nothing.

        An answer that is no stream is one such line.
        """
        left, self._held, self._size = b"".join(self._held), [], 0
        self._read(left)
        return left

    def _grown(self, piece: bytes) -> None:
        self._held.append(piece)
        self._size += len(piece)
        if self._size > self._most:
            raise Garbled(
                f"a line of the answer is longer than {self._most:,} bytes, the most that is "
                "taken: is the upstream an Ollama?"
            )

    def _read(self, line: bytes) -> None:
        """Read a line that may tell something; of content, only the first one does."""
        if self.begun and _TELLING.search(line) is None:
            return
        try:
            event = _JSON.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if not isinstance(event, Mapping):
            return
        if event.get("error"):
            self.failed = event
            return
        self.begun = self.begun or _says(event)
        if event.get("done") is True:
            self.ended = self.begun = True
            self.report = {name: value for name, value in event.items() if name in REPORTED}


REPORTED: Final = frozenset(
    {"model", "done_reason", "prompt_eval_count", "prompt_eval_cached_count", "eval_count"}
)
"""Fields of the terminal line that tell of its size; the rest is content and durations."""

_TELLING: Final = re.compile(rb'"done"\s*:\s*true|"error"')
"""What a line has that ends an answer. Inside a string of JSON the quotes would be escaped."""

_JSON: Final = msgspec.json.Decoder()


def _says(event: Fields) -> bool:
    """Tell whether a line has content: text, thinking or calls, of a chat or of a prompt."""
    message = event.get("message")
    held = message if isinstance(message, Mapping) else {}
    said = (held.get("content"), held.get("thinking"), held.get("tool_calls"))
    return any((*said, event.get("response"), event.get("thinking")))


def broken_off(text: str, left: bytes = b"") -> bytes:
    """Return the line by which a client learns that the stream stopped before its end.

    `left` is what was sent last; where that is half a line, it is ended first.
    """
    line = json.dumps({"error": text}).encode("ascii") + b"\n"
    return b"\n" + line if left and not left.endswith(b"\n") else line


# --- what is refused ------------------------------------------------------------------------------

TOO_LARGE: Final = 400


def too_large(dialect: Dialect, tokens: int, bound: int) -> tuple[int, bytes]:
    """Return status and body that refuse a prompt in the words clients of a dialect know.

    `tokens` is the size of the prompt, `bound` the most that is taken.
    """
    if dialect == "anthropic":
        text = f"prompt is too long: {tokens} tokens > {bound} maximum"
        inner = {"type": "invalid_request_error", "message": text}
        return _refusal({"type": "error", "error": inner})
    if dialect == "ollama_chat":
        text = (
            f"the prompt is longer than the context length currently available to the model: "
            f"{tokens} tokens > {bound}; shorten the prompt, adjust the context length in "
            "settings, or use a model with a longer context length"
        )
        return _refusal({"error": text})
    field = "input" if dialect == "openai_responses" else "messages"
    text = (
        f"This model's maximum context length is {bound} tokens. However, your messages resulted "
        f"in {tokens} tokens. Please reduce the length of the messages."
    )
    return _refusal(
        {
            "error": {
                "message": text,
                "type": "invalid_request_error",
                "param": field,
                "code": "context_length_exceeded",
            }
        }
    )


def _refusal(body: Mapping[str, Any]) -> tuple[int, bytes]:
    return TOO_LARGE, json.dumps(body).encode("ascii")
