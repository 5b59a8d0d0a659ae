"""An upstream that calls tools as it is scripted, and real clients that ask it through a proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anthropic
import openai

from tests.proxy.serving import PATHS, Proxy, asked, proxied
from tests.support.faults import Answer, FaultServer, of_json, sse
from ullage.config.serving import ModelRule
from ullage.core.search.names import RECALL, SEARCH

DIALECTS = ("openai_chat", "anthropic", "openai_responses")
OURS = {RECALL, SEARCH}
RULES = (ModelRule(window=4096, recall_tools=True),)
Call = tuple[str, str]
"""The name of a tool and its arguments."""

FIND: Call = (SEARCH, json.dumps({"query": "port of the staging database"}))
WEATHER: Call = ("weather", '{"city": "Kiel"}')
SECRET = "The port of the staging database is 8123."
USAGE = {"prompt_tokens": 1_600, "completion_tokens": 7, "total_tokens": 1_607}


def history(fact: str = SECRET, turns: int = 24) -> list[dict[str, str]]:
    """Return a conversation too long for the window, a fact early in an answer of it."""
    said: list[dict[str, str]] = [{"role": "user", "content": "Help me with the pump, please."}]
    for turn in range(turns):
        more = fact if turn == 3 else ""
        said.append({"role": "assistant", "content": f"Answer {turn}. {more} " + "so it is. " * 60})
        said.append({"role": "user", "content": f"Question {turn}: " + "what of this? " * 30})
    return said


def tool(dialect: str, name: str) -> dict[str, Any]:
    """Return a tool of the client's."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    if dialect == "anthropic":
        return {"name": name, "description": "d", "input_schema": schema}
    if dialect == "openai_responses":
        return {"type": "function", "name": name, "description": "d", "parameters": schema}
    return {
        "type": "function",
        "function": {"name": name, "description": "d", "parameters": schema},
    }


def body(dialect: str, *, stream: bool = False, **more: Any) -> dict[str, Any]:
    """Return a request whose history is compacted."""
    name = "input" if dialect == "openai_responses" else "messages"
    limit = {"max_tokens": 64} if dialect == "anthropic" else {}
    return {"model": "m", "stream": stream, name: history(), **limit, **more}


# --- what a scripted model answers ----------------------------------------------------------------


def whole(dialect: str, text: str, *calls: Call, used: int = 1_600) -> Answer:
    """Answer whole: a text, then calls; `used` are the tokens of the prompt in Chat Completions."""
    if dialect == "anthropic":
        blocks: list[Any] = [{"type": "text", "text": text}] if text else []
        blocks += [
            {"type": "tool_use", "id": f"t{n}", "name": name, "input": json.loads(given)}
            for n, (name, given) in enumerate(calls)
        ]
        stop = "tool_use" if calls else "end_turn"
        usage = {"input_tokens": 1_600, "output_tokens": 7}
        head = {"id": "msg", "type": "message", "role": "assistant", "model": "m"}
        return of_json(
            {**head, "content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": usage}
        )
    if dialect == "openai_responses":
        return of_json(response("r", *items("r", text, *calls)))
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {"id": f"c{n}", "type": "function", "function": {"name": called, "arguments": given}}
            for n, (called, given) in enumerate(calls)
        ]
    choice: dict[str, Any] = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if calls else "stop",
    }
    named: dict[str, Any] = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    usage = {**USAGE, "prompt_tokens": used, "total_tokens": used + 7}
    return of_json({**named, "choices": [choice], "usage": usage})


def items(name: str, text: str, *calls: Call) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if text:
        part = {"type": "output_text", "text": text, "annotations": []}
        made.append(
            {"id": f"m-{name}", "type": "message", "role": "assistant", "content": [part],
             "status": "completed"}
        )  # fmt: skip
    for n, (called, given) in enumerate(calls):
        made.append(
            {"id": f"f{n}-{name}", "type": "function_call", "call_id": f"c{n}", "name": called,
             "arguments": given, "status": "completed"}
        )  # fmt: skip
    return made


def response(name: str, *output: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 1_600, "output_tokens": 7, "total_tokens": 1_607,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    return {
        "id": name, "object": "response", "created_at": 1, "model": "m", "status": "completed",
        "output": [*output], "usage": usage, "parallel_tool_calls": True, "tool_choice": "auto",
        "tools": [],
    }  # fmt: skip


def streamed(dialect: str, text: str, *calls: Call, name: str = "x") -> Answer:
    """Answer as a stream: a text in two pieces, then calls, each in pieces."""
    return sse(*EVENTS[dialect](name, text, calls))


def chat_events(name: str, text: str, calls: Sequence[Call]) -> Iterator[Any]:
    def chunk(delta: Any, finish: str | None = None) -> Any:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        head = {"id": name, "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return {**head, "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(text):
        yield chunk({"content": piece})
    for n, (called, given) in enumerate(calls):
        function = {"name": called, "arguments": ""}
        yield chunk(
            {"tool_calls": [{"index": n, "id": f"c{n}", "type": "function", "function": function}]}
        )
        for piece in pieces(given):
            yield chunk({"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if calls else "stop")
    yield {**chunk({}), "choices": [], "usage": USAGE}
    yield "[DONE]"


def messages_events(name: str, text: str, calls: Sequence[Call]) -> Iterator[Any]:
    usage = {"input_tokens": 1_600, "output_tokens": 1}
    head = {"id": name, "type": "message", "role": "assistant", "model": "m", "content": []}
    ends = {"stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": {**head, **ends}}
    yield {"type": "ping"}
    blocks: list[Any] = [({"type": "text", "text": ""}, "text_delta", "text", text)] if text else []
    blocks += [
        ({"type": "tool_use", "id": f"t{n}", "name": called, "input": {}},
         "input_json_delta", "partial_json", given)
        for n, (called, given) in enumerate(calls)
    ]  # fmt: skip
    for index, (start, kind, field, value) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for piece in pieces(value):
            delta = {"type": kind, field: piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 7}}
    yield {"type": "message_stop"}


def responses_events(name: str, text: str, calls: Sequence[Call]) -> Iterator[Any]:
    begun = {**response(name), "status": "in_progress", "usage": None}
    made: list[Any] = [{"type": "response.created", "response": begun}]
    made.append({"type": "response.in_progress", "response": begun})
    for index, item in enumerate(items(name, text, *calls)):
        at: dict[str, Any] = {"output_index": index}
        empty_field = "content" if item["type"] == "message" else "arguments"
        open_item = {**item, "status": "in_progress", empty_field: type(item[empty_field])()}
        made.append({"type": "response.output_item.added", **at, "item": open_item})
        of: dict[str, Any] = {**at, "item_id": item["id"]}
        if item["type"] == "message":
            (part,) = item["content"]
            of["content_index"] = 0
            empty = {**part, "text": ""}
            made.append({"type": "response.content_part.added", **of, "part": empty})
            made += [
                {"type": "response.output_text.delta", **of, "delta": piece, "logprobs": []}
                for piece in pieces(text)
            ]
            made.append({"type": "response.output_text.done", **of, "text": text, "logprobs": []})
            made.append({"type": "response.content_part.done", **of, "part": part})
        else:
            kind = "response.function_call_arguments"
            given = item["arguments"]
            made += [{"type": f"{kind}.delta", **of, "delta": piece} for piece in pieces(given)]
            made.append({"type": f"{kind}.done", **of, "arguments": given, "name": item["name"]})
        made.append({"type": "response.output_item.done", **at, "item": item})
    made.append(
        {"type": "response.completed", "response": response(name, *items(name, text, *calls))}
    )
    for number, event in enumerate(made):
        yield {**event, "sequence_number": number}


EVENTS = {
    "openai_chat": chat_events,
    "anthropic": messages_events,
    "openai_responses": responses_events,
}


def pieces(text: str) -> list[str]:
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece]


def answer(dialect: str, stream: bool, text: str, *calls: Call, name: str = "x") -> Answer:
    return streamed(dialect, text, *calls, name=name) if stream else whole(dialect, text, *calls)


# --- the client's side ----------------------------------------------------------------------------


class Counting(FaultServer):
    """An upstream that plays a script and reports prompts about as large as they are."""

    def take(self, request: Any) -> Answer:
        """Put the size of the request into the answer."""
        played = super().take(request)
        size = str(len(request.body) // 5).encode()
        return replace(played, blocks=tuple(b.replace(b"1600", size) for b in played.blocks))


@contextmanager
def running(
    dialect: str,
    *script: Answer,
    rules: tuple[ModelRule, ...] = RULES,
    kind: type[FaultServer] = FaultServer,
    **more: Any,
) -> Iterator[tuple[Proxy, FaultServer]]:
    """Run a proxy before an upstream that plays a script."""
    with (
        kind({f"POST {PATHS[dialect]}": script}) as server,
        proxied(server.root_url, rules=rules, **more) as proxy,
    ):
        yield proxy, server


def bodies(server: FaultServer) -> list[Any]:
    return [json.loads(request.body) for request in asked(server)]


def names(request: Any) -> list[str]:
    return [t.get("name") or t["function"]["name"] for t in request.get("tools", [])]


def results(request: Any) -> list[str]:
    """Return the results of our calls that a request carries."""
    said = request.get("messages") or request["input"]
    found = [m["content"] for m in said if m.get("role") == "tool"]
    found += [m["output"] for m in said if m.get("type") == "function_call_output"]
    for message in said:
        if isinstance(message.get("content"), list):
            found += [b["content"] for b in message["content"] if b.get("type") == "tool_result"]
    return found


class Told:
    """What a client's SDK made of an answer: its text, the tools it is to run, how it ended."""

    def __init__(self, text: str, calls: list[str], stop: str | None) -> None:
        self.text, self.calls, self.stop = text, calls, stop


def ask(dialect: str, url: str, given: Mapping[str, Any]) -> Told:
    """Ask by the SDK of a dialect, streamed where the request says so."""
    fields = {k: v for k, v in given.items() if k != "stream"}
    if dialect == "anthropic":
        with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as claude:
            if given["stream"]:
                with claude.messages.stream(**fields) as events:
                    message = events.get_final_message()
            else:
                message = claude.messages.create(**fields)
        text = "|".join(b.text for b in message.content if b.type == "text")
        calls = [b.name for b in message.content if b.type == "tool_use"]
        return Told(text, calls, message.stop_reason)
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        if dialect == "openai_responses":
            if given["stream"]:
                spoken, final = _listen(client, fields)
                assert "".join(spoken) == final.output_text
            else:
                final = client.responses.create(**fields)
            called = [item.name for item in final.output if item.type == "function_call"]
            texts = [
                getattr(part, "text", "")
                for item in final.output
                if item.type == "message"
                for part in item.content
            ]
            return Told("|".join(texts), called, final.status)
        if given["stream"]:
            with client.chat.completions.stream(**fields) as events:
                done = events.get_final_completion()
        else:
            done = client.chat.completions.create(**fields)
        (choice,) = done.choices
        calls = [c.function.name for c in choice.message.tool_calls or ()]
        return Told(choice.message.content or "", calls, choice.finish_reason)


def _listen(client: openai.OpenAI, fields: Mapping[str, Any]) -> tuple[list[str], Any]:
    """Return the pieces of text of a response, and the whole of it.

    The SDK's helper checks the order of events; it cannot read llama.cpp's, which have no places.
    """
    if fields["model"] == "tiny":
        events = [*client.responses.create(**fields, stream=True)]
        final: Any = next(e.response for e in events if e.type == "response.completed")
        return [e.delta for e in events if e.type == "response.output_text.delta"], final
    with client.responses.stream(**fields) as stream:
        spoken = [e.delta for e in stream if e.type == "response.output_text.delta"]
        return spoken, stream.get_final_response()
