"""llm's conversation, logged in its database, with a model that our plugin guards."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

import llm
import sqlite_utils
from llm.cli import load_conversation, logs_db_path
from llm.parts import Message, TextPart, ToolResultPart
from llm.plugins import load_plugins, pm

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.llm import PLUGIN, find_window, make_counter


def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


class LlmDriver:
    """One conversation."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._enter()
        load_plugins()
        if not pm.is_registered(PLUGIN):
            pm.register(PLUGIN)
        self._runner = asyncio.Runner()
        self._conversation: Any = None
        self.switch(setup.model, setup.window)

    def _enter(self) -> None:
        os.environ["LLM_USER_PATH"] = str(self._setup.folder)

    def switch(self, model: str, window: int) -> None:
        named = {"model_id": model, "model_name": model, "api_base": self._setup.url}
        listed = [{**named, "api_key_name": "openai", "supports_tools": True}]
        (self._setup.folder / "extra-openai-models.yaml").write_text(json.dumps(listed))
        name = f"ullage/{model}" if self._setup.guarded else model
        find = llm.get_async_model if self._setup.asynchronous else llm.get_model
        self._model = find(name)
        before = self._conversation
        self._conversation = self._model.conversation(
            tools=[read_log, *(PLUGIN.guard.tools if self._setup.guarded else [])]
        )
        if before is not None:
            self._conversation.id, self._conversation.responses = before.id, before.responses

    def say(self, text: str) -> str:
        self._enter()
        chain = self._conversation.chain(
            text, system=INSTRUCTIONS, chain_limit=0, options=self._setup.limit()
        )
        said = self._runner.run(chain.text()) if self._setup.asynchronous else chain.text()
        with sqlite_utils.Database(logs_db_path()) as db:
            llm.migrations.migrate(db)
            chain.log_to_db(db)
        return str(said)

    def reopen(self) -> bool:
        vars(PLUGIN).pop("guard", None)  # a new guard: what it knows is in the log database
        tools = self._conversation.tools
        held = load_conversation(self._conversation.id, async_=self._setup.asynchronous)
        self._conversation = held
        held.tools = [tools[0], *PLUGIN.guard.tools]
        return True

    def read_results(self) -> list[str]:
        held = load_conversation(self._conversation.id)
        chain = held._build_full_chain("", [], [], None)
        parts = [part for message in chain for part in message.parts]
        return [part.output for part in parts if isinstance(part, ToolResultPart)]

    def find_window(self) -> int | None:
        return find_window(self._model.inner)

    def count(self, text: str) -> int:
        return make_counter(self._model.inner.model_id)([Message("user", [TextPart(text)])])


def open_driver(setup: Setup) -> LlmDriver:
    return LlmDriver(setup)
