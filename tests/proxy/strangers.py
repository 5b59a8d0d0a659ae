"""Servers that nobody knows beforehand, and clients that go on talking to them through the proxy.

They count with a vocabulary of their own that no counter here has, remember each prompt they were
sent, and refuse or cut what is over their window. They answer nothing that is of any use but sizes.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self

import httpx2

from tests.proxy.serving import Proxy

WINDOW: Final = 4_096
LISTED: Final = 131_072
MODEL: Final = "nobody-7b"

PATHS: Final = ("/v1/chat/completions", "/api/chat", "/v1/messages")

Wording = Literal["both", "limit", "fit", "none", "odd"]

WORDS: Final[Mapping[Wording, str]] = {
    "both": "This model's maximum context length is {window} tokens. However, your messages "
    "resulted in {tokens} tokens. Please reduce the length of the messages.",
    "limit": "Prompt is too long (limit {window} tokens)",
    "fit": "the prompt does not fit into the context window of {window} tokens",
    "none": "Prompt exceeds max length",
    "odd": "input is too long for the context window",
}

PROSE: Final = (
    "the ledger of the eastern warehouse lists forty crates of lamp oil which the harbour master "
    "signed for on the ninth although the ship that carried them had not been unloaded then "
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """How a server counts: words in pieces of `letters`, `message` tokens around each message.

    `tools` is the share of the schemas' text that the template shows; `opening` comes once.
    """

    letters: int = 5
    message: int = 4
    tools: float = 1.0
    opening: int = 20

    def text(self, text: str) -> int:
        """Return the tokens of text."""
        pieces = re.finditer(r"\w+|[^\w\s]", text)
        return sum(-(-len(piece[0]) // self.letters) for piece in pieces)

    def message_size(self, message: Mapping[str, Any]) -> int:
        """Return the tokens of a message with its calls."""
        said = message.get("content")
        spoken = said if isinstance(said, str) else json.dumps(said) if said else ""
        calls = message.get("tool_calls")
        return self.message + self.text(spoken) + (self.text(json.dumps(calls)) if calls else 0)

    def fixed(self, tools: Any) -> int:
        """Return the tokens of what stands around the messages."""
        shown = round(self.tools * self.text(json.dumps(tools))) if tools else 0
        return self.opening + shown


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it came: the bytes of the body, its size, and what became of it."""

    path: str
    body: bytes
    tokens: int
    refused: bool = False
    cut: bool = False
    key: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The body, parsed."""
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass(slots=True)
class Told:
    """An answer: the status and its JSON."""

    status: int
    value: Any


class Stranger:
    """An OpenAI-compatible server with a window that it tells nobody.

    `wording` is how it refuses; `reports` whether answers tell their usage; `strict` refuses also
    where the prompt and `max_tokens` together are over the window.
    """

    def __init__(
        self,
        *,
        wording: Wording = "both",
        vocabulary: Vocabulary = Vocabulary(),
        reports: bool = True,
        strict: bool = False,
    ) -> None:
        self.wording = wording
        self.vocabulary = vocabulary
        self.reports = reports
        self.strict = strict
        self.window = WINDOW
        self.prompts: list[Prompt] = []
        self.probes: list[str] = []
        self._lock = threading.Lock()
        self._http = _Http(self)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def root_url(self) -> str:
        """The address, `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def take(self, method: str, path: str, body: bytes, key: str) -> Told:
        """Answer a request."""
        if method == "POST" and path in PATHS:
            return self._conversed(path, body, key)
        with self._lock:
            self.probes.append(f"{method} {path}")
        return self.known(path)

    def known(self, path: str) -> Told:
        """Answer a question about itself: with nothing but its name."""
        if path == "/v1/models":
            return Told(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        return Told(404, {"error": {"message": "not found", "type": "not_found"}})

    def size(self, fields: Mapping[str, Any]) -> int:
        """Return the tokens of a request's prompt."""
        sizes = map(self.vocabulary.message_size, fields["messages"])
        return self.vocabulary.fixed(fields.get("tools")) + sum(sizes)

    def admitted(self, fields: Mapping[str, Any], tokens: int) -> tuple[int, bool]:
        """Return the tokens of the prompt that is read, and whether it is refused."""
        output = (fields.get("max_tokens") or 0) if self.strict else 0
        return tokens, tokens >= self.window or tokens + output > self.window

    def _conversed(self, path: str, body: bytes, key: str) -> Told:
        fields = json.loads(body)
        tokens = self.size(fields)
        read, refused = self.admitted(fields, tokens)
        with self._lock:
            self.prompts.append(Prompt(path, body, tokens, refused, read < tokens, key))
        if refused:
            output = (fields.get("max_tokens") or 0) if self.strict else 0
            text = WORDS[self.wording].format(window=self.window, tokens=tokens + output)
            return Told(400, {"error": {"message": text, "type": "invalid_request_error"}})
        return self.answered(path, fields, read)

    def answered(self, path: str, fields: Mapping[str, Any], read: int) -> Told:
        """Return an answer to a prompt of which so many tokens were read."""
        made = _message(fields)
        said = self.vocabulary.message_size(made)
        usage = {"prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said}
        if path == "/v1/messages":
            text = {"type": "text", "text": made["content"] or "Noted."}
            spent = {"input_tokens": read, "output_tokens": said}
            told = {"type": "message", "role": "assistant", "content": [text], "usage": spent}
            return Told(200, {"id": "m", "model": MODEL, "stop_reason": "end_turn", **told})
        ended = "tool_calls" if "tool_calls" in made else "stop"
        choice = {"index": 0, "message": made, "finish_reason": ended}
        answer: dict[str, Any] = {"id": "c", "object": "chat.completion", "choices": [choice]}
        return Told(200, {**answer, "model": MODEL, **({"usage": usage} if self.reports else {})})


class LookAlike(Stranger):
    """An Ollama that was loaded at its default window and cuts what is longer, without a word.

    It drops the oldest messages beside the system's; where the last alone is too long, it keeps
    half of the window (ollama server/prompt.go, pull request 18399). `tells` is whether `/api/ps`
    names the allocated window, as versions since 0.11 do.
    """

    def __init__(self, *, tells: bool = True, vocabulary: Vocabulary = Vocabulary()) -> None:
        super().__init__(vocabulary=vocabulary)
        self.tells = tells

    def known(self, path: str) -> Told:
        """Answer as Ollama does."""
        if path == "/v1/models":
            card = {"id": MODEL, "object": "model", "owned_by": "library"}
            return Told(200, {"object": "list", "data": [card]})
        if path == "/api/ps":
            running: dict[str, Any] = {"name": MODEL, "model": MODEL, "size": 1, "size_vram": 0}
            told = {"context_length": self.window} if self.tells else {}
            return Told(200, {"models": [{**running, **told}]})
        if path == "/api/show":
            info = {"general.architecture": "llama", "llama.context_length": LISTED}
            return Told(200, {"model_info": info, "parameters": "", "details": {}})
        if path == "/api/version":
            return Told(200, {"version": "0.34.2"})
        return Told(404, {"error": "not found"})

    def admitted(self, fields: Mapping[str, Any], tokens: int) -> tuple[int, bool]:
        """Return the tokens that are left of a prompt; nothing is ever refused."""
        kept = list(fields["messages"])
        while tokens > self.window:
            oldest = next((i for i, m in enumerate(kept[:-1]) if m["role"] != "system"), None)
            if oldest is None:
                return self.window // 2 + 2, False
            del kept[oldest]
            tokens = self.size({**fields, "messages": kept})
        return tokens, False

    def answered(self, path: str, fields: Mapping[str, Any], read: int) -> Told:
        """Return an answer of the API that was asked."""
        if path != "/api/chat":
            return super().answered(path, fields, read)
        made = _message(fields)
        said = self.vocabulary.message_size(made)
        told: dict[str, Any] = {"model": MODEL, "message": made, "done": True}
        return Told(
            200, {**told, "done_reason": "stop", "prompt_eval_count": read, "eval_count": said}
        )


def _message(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reply: a call where the request has tools, else two sentences."""
    turn = len(fields["messages"])
    if not fields.get("tools"):
        return {"role": "assistant", "content": f"Noted as item {turn}. {PROSE[:90]}"}
    asked: dict[str, Any] = {"name": "read_file", "arguments": json.dumps({"path": f"{turn}.txt"})}
    call = {"id": f"call_{turn}", "type": "function", "function": asked}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class _Http(http.server.ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(self, owner: Stranger) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms
    # HTTP/1.0: each connection ends with its answer, so that no thread waits for a second request
    server: _Http

    def log_message(self, *args: object) -> None:
        """Keep the test's output clean."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = self.headers.get("Authorization") or ""
        told = self.server.owner.take(self.command, self.path, body, key)
        data = json.dumps(told.value).encode()
        self.send_response(told.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


# --- clients --------------------------------------------------------------------------------------

TOOLS: Final[Sequence[Mapping[str, Any]]] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{what}. The path is relative to the folder of the project.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Where it is, such as notes/a.txt"},
                    "limit": {"type": "integer", "description": "How many lines at most"},
                },
                "required": ["path"],
            },
        },
    }
    for name, what in (
        ("read_file", "Read a text file"),
        ("list_folder", "List what is in a folder"),
        ("search", "Search all files for a word"),
        ("write_file", "Write a text file anew"),
    )
)


@dataclass(slots=True)
class Talk:
    """A conversation that a client keeps whole and sends whole, as clients do."""

    messages: list[dict[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    max_tokens: int | None = None
    path: str = "/v1/chat/completions"
    headers: Mapping[str, str] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)
    answers: list[httpx2.Response] = field(default_factory=list)

    def asked(self, proxy: Proxy) -> httpx2.Response:
        """Send the conversation; keep the answer in it, unless it is none."""
        body: dict[str, Any] = {"model": MODEL, "messages": self.messages, "stream": False}
        if self.tools is not None:
            body["tools"] = list(self.tools)
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        answer = proxy.client.post(proxy.url + self.path, json=body, headers=dict(self.headers))
        self.statuses.append(answer.status_code)
        self.answers.append(answer)
        if answer.status_code == 200:
            told = answer.json()
            self.messages.append(told.get("message") or told["choices"][0]["message"])
        else:
            self.messages.append({"role": "assistant", "content": "(no answer)"})
        return answer

    @property
    def failed(self) -> int:
        """How many turns came to nothing."""
        return sum(status != 200 for status in self.statuses)


def schemas(times: int) -> list[Mapping[str, Any]]:
    """Return the tools so many times, under names of their own."""
    return [
        {**tool, "function": {**tool["function"], "name": f"{tool['function']['name']}_{number}"}}
        for number in range(times)
        for tool in TOOLS
    ]


def working(times: int = 1, **how: Any) -> Talk:
    """Return an agent at work, with four tools or so many times four."""
    task = f"Go through the files of the ledger one by one and tell what is missing. {PROSE * 3}"
    operator = f"You are a clerk who reads files with care. {PROSE * 4}"
    opening = [{"role": "system", "content": operator}, {"role": "user", "content": task}]
    return Talk(opening, schemas(times), **how)


def chatting(**how: Any) -> Talk:
    """Return somebody who chats, without tools."""
    return Talk([{"role": "system", "content": "You are a patient listener."}], **how)


def result(talk: Talk, turn: int, size: int = 1_300) -> None:
    """Put the result of the last call into a conversation: prose of so many characters."""
    text = f"file {turn}: " + (PROSE * (size // len(PROSE) + 1))[:size]
    calls = talk.messages[-1].get("tool_calls")
    if calls:
        talk.messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": text})
    else:
        talk.messages.append({"role": "user", "content": text})


def remark(talk: Talk, turn: int) -> None:
    """Put a short message of the user into a conversation."""
    said = f"Remark {turn}: {PROSE[turn % 40 : turn % 40 + 160]}"
    talk.messages.append({"role": "user", "content": said})
