"""A model server and clients that use all of a proxy at once: dialects, streams, stored histories.

The server has a window that it tells nobody until it refuses a prompt, reports usage, streams in
pieces, and keeps histories behind the ids of its responses. It remembers of each prompt what it was
about, by digests. A client is a tenant with a key of its own; its conversations grow.
"""

from __future__ import annotations

import http.server
import itertools
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Literal, Self

import httpx2

from tests.proxy.strangers import MODEL, PROSE, Vocabulary

WINDOW: Final = 6_000
PIECES: Final = 6
Dialect = Literal["chat", "messages", "responses", "chained"]
PATHS: Final[Mapping[Dialect, str]] = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "chained": "/v1/responses",
}
ENDS: Final[Mapping[str, str]] = {
    "/v1/chat/completions": "data: [DONE]",
    "/v1/messages": "event: message_stop",
    "/v1/responses": "event: response.completed",
}
REFUSAL: Final = (
    "This model's maximum context length is {window} tokens. However, your messages resulted in "
    "{tokens} tokens. Please reduce the length of the messages."
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A prompt as it came: its body and messages by digest, its tokens, whether it was refused."""

    body: bytes
    messages: tuple[bytes, ...]
    tokens: int
    refused: bool


class ModelServer:
    """The server. `seen` are prompts by what the client called the turn, in order."""

    def __init__(self, window: int = WINDOW, pause_s: float = 0.05) -> None:
        self.window, self.pause_s = window, pause_s
        self.vocabulary = Vocabulary()
        self.seen: dict[str, list[Seen]] = defaultdict(list)
        self.refused = 0
        self._held: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._http = _Http(self)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def root_url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def take(self, path: str, raw: bytes) -> tuple[int, Any]:
        """Answer a request: a status, and JSON or the pieces of a stream."""
        fields = json.loads(raw)
        said = fields.get("input", fields.get("messages"))
        before = fields.get("previous_response_id")
        held = self._held.get(before, 0) if before else 0
        tokens = held + self.vocabulary.fixed(None) + sum(map(self._size, said))
        refused = tokens >= self.window
        with self._lock:
            number = next(self._numbers)
            made = tuple(digest(json.dumps(message).encode()) for message in said)
            self.seen[_name(fields)].append(Seen(digest(raw), made, tokens, refused))
            self.refused += refused
        if refused:
            text = REFUSAL.format(window=self.window, tokens=tokens)
            return 400, {"error": {"message": text, "type": "invalid_request_error"}}
        text = f"Noted as item {number % 7}. {PROSE}"
        told = _ANSWERS[path](text, tokens, self.vocabulary.text(text), number)
        if path == "/v1/responses":
            self._held[told[0]["id"]] = tokens + self.vocabulary.text(text)
        return 200, told[1] if fields.get("stream") else told[0]

    def _size(self, message: Mapping[str, Any]) -> int:
        said = message.get("content")
        if isinstance(said, list):
            said = " ".join(str(part.get("text", "")) for part in said)
        return self.vocabulary.message + self.vocabulary.text(str(said))


def digest(data: bytes) -> bytes:
    """Return what bytes are known by."""
    return blake2b(data, digest_size=8).digest()


def _name(fields: Mapping[str, Any]) -> str:
    return str(fields.get("user") or (fields.get("metadata") or {}).get("user_id"))


def _answer_chat(text: str, used: int, said: int, number: int) -> tuple[Any, list[str]]:
    usage = {"prompt_tokens": used, "completion_tokens": said, "total_tokens": used + said}
    base = {"id": f"c{number}", "object": "chat.completion", "model": MODEL}
    made: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    deltas: list[dict[str, Any]] = [{"content": piece} for piece in _cut(text)]
    deltas[0] = {"role": "assistant", **deltas[0]}
    ends = [None] * len(deltas) + ["stop"]
    choices = [
        {"index": 0, "delta": delta, "finish_reason": end}
        for delta, end in zip([*deltas, {}], ends, strict=True)
    ]
    stream = [_event({**base, "choices": [one]}) for one in choices]
    stream.append(_event({**base, "choices": [], "usage": usage}) + "data: [DONE]\n\n")
    return {**base, "choices": [made], "usage": usage}, stream


def _answer_messages(text: str, used: int, said: int, number: int) -> tuple[Any, list[str]]:
    usage = {"input_tokens": used, "output_tokens": said}
    base = {"id": f"m{number}", "type": "message", "role": "assistant", "model": MODEL}
    block = {"type": "text", "text": text}
    whole = {**base, "content": [block], "stop_reason": "end_turn", "usage": usage}
    start = {"type": "message_start", "message": {**base, "content": [], "usage": usage}}
    opened = {"type": "content_block_start", "index": 0, "content_block": {**block, "text": ""}}
    deltas: list[dict[str, Any]] = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": piece},
        }
        for piece in _cut(text)
    ]
    ended: list[dict[str, Any]] = [
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": said},
        },
        {"type": "message_stop"},
    ]
    events: list[dict[str, Any]] = [start, opened, *deltas, *ended]
    return whole, [_event(one, str(one["type"])) for one in events]


def _answer_responses(text: str, used: int, said: int, number: int) -> tuple[Any, list[str]]:
    usage = {"input_tokens": used, "output_tokens": said, "total_tokens": used + said}
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": f"i{number}", "role": "assistant", "status": "completed"}
    base: dict[str, Any] = {"id": f"resp_{number}", "object": "response", "model": MODEL}
    done = {**item, "content": [part]}
    whole = {**base, "status": "completed", "output": [done], "usage": usage}
    place: dict[str, Any] = {"output_index": 0, "content_index": 0, "item_id": item["id"]}
    created = {**base, "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": created},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        *({"type": "response.output_text.delta", "delta": p, **place} for p in _cut(text)),
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": whole},
    ]
    numbered = ({**one, "sequence_number": at} for at, one in enumerate(events))
    return whole, [_event(one, str(one["type"])) for one in numbered]


_ANSWERS: Final = {
    "/v1/chat/completions": _answer_chat,
    "/v1/messages": _answer_messages,
    "/v1/responses": _answer_responses,
}


def _cut(text: str) -> list[str]:
    size = -(-len(text) // PIECES)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _event(value: Any, name: str = "") -> str:
    return f"{f'event: {name}' + chr(10) if name else ''}data: {json.dumps(value)}\n\n"


class _Http(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, owner: ModelServer) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms
    server: _Http

    def log_message(self, *args: object) -> None:
        """Keep the test's output clean."""

    def do_GET(self) -> None:
        card = {"id": MODEL, "object": "model"}
        known = self.path == "/v1/models"
        self._send(200 if known else 404, {"object": "list", "data": [card]} if known else {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path not in _ANSWERS:
            self._send(404, {"error": {"message": "not found", "type": "not_found"}})
            return
        status, told = self.server.owner.take(self.path, body)
        with suppress(OSError):  # who asked was killed
            self._tell(status, told)

    def _tell(self, status: int, told: Any) -> None:
        if not isinstance(told, list):
            self._send(status, told)
            return
        self.send_response(status)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for piece in told:
            self.wfile.write(piece.encode())
            time.sleep(self.server.owner.pause_s)

    def _send(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


# --- clients --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Failure:
    """A turn that was not answered: when it was under way (`time.monotonic`), and why."""

    began: float
    ended: float
    why: str


@dataclass(slots=True)
class Record:
    """What became of the turns of all clients."""

    turns: int = 0
    again: int = 0
    compacted: int = 0
    unmeasured: int = 0
    failures: list[Failure] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class MixedClient(threading.Thread):
    """A tenant that holds one conversation after the other, until told to stop.

    Each turn goes to `url`. Every fifth history is sent twice more, as a known prefix. With
    `keeps_open` its connection stays open between turns. `after_turn` is told the name of the
    conversation, the turn, and its messages.
    """

    def __init__(
        self, number: int, url: str, dialect: Dialect, *, streams: bool, keeps_open: bool
    ) -> None:
        super().__init__(daemon=True)
        self.number, self.dialect, self.record = number, dialect, Record()
        self._url, self._streams, self._keeps_open = url, streams, keeps_open
        self._random = random.Random(number)
        self._ended = threading.Event()
        self.turns, self.sizes = 40, (2, 9)
        self.pause_s = 0.2
        self.after_turn: Callable[[str, int, Sequence[Any]], None] = lambda *_: None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Hold conversations until told to stop."""
        try:
            with httpx2.Client(timeout=60, trust_env=False) as http:
                for one in itertools.count():
                    if self._ended.is_set():
                        return
                    self._hold(http, f"{self.number}.{one}")
        except BaseException as error:  # noqa: BLE001 - told by whoever stops it
            self.error = error

    def stop(self) -> None:
        """Begin no more turns; raises what went wrong in the client itself."""
        self._ended.set()
        self.join(120)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error

    def _hold(self, http: httpx2.Client, name: str) -> None:
        said: list[dict[str, Any]] = []
        before: str | None = None
        if self.dialect == "chat":
            said.append({"role": "system", "content": f"You are clerk {name}."})
        turns = self.turns if self.dialect != "chained" else self.turns // 2  # nothing shortens it
        for turn in range(turns):
            size = self._random.randint(*self.sizes)
            said.append({"role": "user", "content": f"Question {turn} of {name}: {PROSE * size}"})
            body = self._write(name, turn, said, before)
            answer = self._answer(http, body)
            if answer is None:
                return
            if turn % 5 == 4 and self.dialect != "chained":
                for _ in range(2):
                    self.record.again += 1
                    if self._answer(http, body) is None:
                        return
            text, before = answer
            said.append({"role": "assistant", "content": text})
            self.after_turn(name, turn, said)
            if self._ended.wait(self.pause_s):
                return

    def _write(
        self, name: str, turn: int, said: list[dict[str, Any]], before: str | None
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": MODEL, "stream": self._streams}
        tag = f"{name}/{turn}"
        if self.dialect == "messages":
            return {**body, "messages": said, "max_tokens": 256, "metadata": {"user_id": tag}}
        if self.dialect == "chat":
            return {**body, "messages": said, "max_tokens": 256, "user": tag}
        if self.dialect == "responses":
            return {**body, "input": said, "max_output_tokens": 256, "user": tag}
        named = {"previous_response_id": before} if before else {}
        short = [{"role": "user", "content": said[-1]["content"][:400]}]
        return {**body, "input": short, "user": tag, **named}

    def _answer(self, http: httpx2.Client, body: dict[str, Any]) -> tuple[str, str | None] | None:
        """Send until it is answered; what fails is noted. None where it is time to stop."""
        while True:
            began = time.monotonic()
            try:
                found = self._send(http, body)
            except (httpx2.TransportError, TurnError) as error:
                why = f"{self.dialect} {'stream' if self._streams else 'whole'}: {error!r}"
                self.record.failures.append(Failure(began, time.monotonic(), why))
                if self._ended.wait(0.2):
                    return None
                continue
            self.record.turns += 1
            self.record.seconds.append(time.monotonic() - began)
            return found

    def _send(self, http: httpx2.Client, body: dict[str, Any]) -> tuple[str, str | None]:
        path = PATHS[self.dialect]
        headers = {"authorization": f"Bearer key-of-{self.number}"}
        if self.dialect == "messages":
            headers = {"x-api-key": f"key-of-{self.number}", "anthropic-version": "2023-06-01"}
        if not self._keeps_open:
            headers["connection"] = "close"
        answer = http.post(self._url + path, json=body, headers=headers)
        if answer.status_code != 200:
            raise TurnError(f"{answer.status_code} {answer.text:.300}")
        self.record.compacted += "x-ullage-compaction" in answer.headers
        if "used=" not in answer.headers.get("x-ullage-context", ""):
            self.record.unmeasured += 1
        if not self._streams:
            return _read_whole(path, answer.json())
        if ENDS[path] not in answer.text or '"error"' in answer.text:
            raise TurnError(f"a stream without its end: {answer.text[-300:]}")
        return _read_stream(path, answer.text)


class TurnError(Exception):
    """A turn that was not answered as it should be."""


def _read_whole(path: str, told: Mapping[str, Any]) -> tuple[str, str | None]:
    if path == "/v1/chat/completions":
        return told["choices"][0]["message"]["content"], None
    if path == "/v1/messages":
        return told["content"][0]["text"], None
    return told["output"][0]["content"][0]["text"], told["id"]


def _read_stream(path: str, text: str) -> tuple[str, str | None]:
    events = list(_list_events(text))
    if path == "/v1/chat/completions":
        deltas = [one["choices"][0]["delta"] for one in events if one["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas), None
    if path == "/v1/messages":
        deltas = [one["delta"] for one in events if one["type"] == "content_block_delta"]
        return "".join(delta["text"] for delta in deltas), None
    ended = next(one["response"] for one in events if one["type"] == "response.completed")
    return _read_whole(path, ended)


def _list_events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))
