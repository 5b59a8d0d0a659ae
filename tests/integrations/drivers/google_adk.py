"""Google's ADK over the wire of Gemini, its sessions in the framework's own SQLite service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.models import Gemini
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.google_adk import AdkGuard, find_threshold, make_counter

APP, USER = "station", "keeper"


def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


class AdkDriver:
    """One session of an app: streamed where the setup is asynchronous."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._url = setup.url.removesuffix("/v1")
        self._loop = asyncio.Runner()
        self._held = setup.folder / f"adk-{len(list(setup.folder.iterdir()))}.db"
        self._service = SqliteSessionService(str(self._held))
        made: Any = self._loop.run(self._service.create_session(app_name=APP, user_id=USER))
        self._id = made.id
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        self._model = model
        spoken = Gemini(model=model, base_url=self._url, client_kwargs={"api_key": "none"})
        agent = LlmAgent(
            name="keeper",
            model=spoken,
            instruction=INSTRUCTIONS,
            tools=[read_log],
            generate_content_config=types.GenerateContentConfig(
                **self._setup.limit("max_output_tokens")
            ),
        )
        plugins: Any = [AdkGuard()] if self._setup.guarded else []
        app = App(name=APP, root_agent=agent, plugins=plugins)
        self._runner = Runner(app=app, session_service=self._service)

    def say(self, text: str) -> str:
        return self._loop.run(self._say(text))

    async def _say(self, text: str) -> str:
        mode = StreamingMode.SSE if self._setup.asynchronous else StreamingMode.NONE
        said = types.Content(role="user", parts=[types.Part(text=text)])
        last = ""
        async for event in self._runner.run_async(
            user_id=USER,
            session_id=self._id,
            new_message=said,
            run_config=RunConfig(streaming_mode=mode),
        ):
            if event.is_final_response() and event.content:
                last = "".join(part.text or "" for part in event.content.parts)
            if event.error_code:
                raise RuntimeError(f"{event.error_code}: {event.error_message}")
        return last

    def reopen(self) -> bool:
        self._service = SqliteSessionService(str(self._held))
        self.switch(self._model, 0)
        return True

    def read_results(self) -> list[str]:
        held: Any = self._loop.run(
            self._service.get_session(app_name=APP, user_id=USER, session_id=self._id)
        )
        found = [r for event in held.events for r in event.get_function_responses()]
        return [r.response["result"] for r in found]

    def find_window(self) -> int | None:
        found = find_threshold(self._model, 1.0, base_url=self._url)
        return EventsCompactionConfig(token_threshold=found, event_retention_size=9).token_threshold

    def count(self, text: str) -> int:
        said = types.Content(role="user", parts=[types.Part(text=text)])
        return make_counter(self._model)([said])


def open_driver(setup: Setup) -> AdkDriver:
    return AdkDriver(setup)
