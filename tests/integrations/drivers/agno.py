"""Agno's agent on a SQLite database, guarded by a wrapped model."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.message import Message
from agno.models.openai import OpenAIChat

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.agno import AgnoGuard, find_window, make_counter


def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


class AgnoDriver:
    """One session of an agent."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._db = SqliteDb(db_file=str(setup.folder / f"{uuid.uuid4()}.db"))
        self._runner = asyncio.Runner()
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        url = self._setup.url
        given = {"api_key": "sk-none", "max_retries": 0, **self._setup.limit()}
        self._model = OpenAIChat(id=model, base_url=url, **given)
        guard = AgnoGuard() if self._setup.guarded else None
        self._agent = Agent(
            model=guard.wrap(self._model) if guard else self._model,
            tools=[read_log, *(guard.tools if guard else [])],
            pre_hooks=[guard.begin] if guard else None,
            system_message=INSTRUCTIONS,
            db=self._db,
            session_id="one",
            add_history_to_context=True,
            num_history_runs=1_000,
            telemetry=False,
        )

    def say(self, text: str) -> str:
        if self._setup.asynchronous:
            return str(self._runner.run(self._agent.arun(text)).content)
        return str(self._agent.run(text).content)

    def reopen(self) -> bool:
        self.switch(self._model.id, 0)  # a new guard: what it knows is in the session's state
        return True

    def read_results(self) -> list[str]:
        held = self._agent.get_session_messages(session_id="one")
        return [str(m.content) for m in held if m.role == "tool"]

    def find_window(self) -> int | None:
        return find_window(self._model)

    def count(self, text: str) -> int:
        return make_counter(self._model.id)([Message(role="user", content=text)])


def open_driver(setup: Setup) -> AgnoDriver:
    return AgnoDriver(setup)
