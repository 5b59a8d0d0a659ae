"""The agent: a model, its tools and a guard, which runs turns of sessions.

It is configuration that any number of sessions can share; only their logs hold what happened. It
combines the modules that `core.session.turn` decides with, and decides nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from ullage import config
from ullage.agent.continuing import (
    LARGEST,
    afollow_session,
    begin_next,
    find_kept,
    hold_back,
    is_full,
    is_large,
)
from ullage.agent.guides import read_guides
from ullage.agent.keeping import Place, SessionStore
from ullage.agent.kit import Kit, Words, state_window
from ullage.agent.options import (
    Equipment,
    TurnOptions,
    check_names,
    check_values,
    read_bound,
    restrict,
)
from ullage.agent.originals import SessionPast
from ullage.agent.session import Live, Session, find_state_folder
from ullage.agent.showing import show_event
from ullage.agent.subagents import Subagents, make_tool
from ullage.agent.submitting import TakesTurns, Ticket, check_place, name_turn
from ullage.agent.summarizing import OwnModel, choose_summarizer
from ullage.agent.turning import Turning
from ullage.config.settings import SAME
from ullage.core.compaction.policy import Policy
from ullage.core.errors import (
    BusyWriter,
    ConfigurationError,
    ContextWindowUnknown,
    UllageError,
)
from ullage.core.guard.events import CompactionFailed
from ullage.core.messages.redaction import Redactor
from ullage.core.session.caching import find_root
from ullage.core.session.instructions import SUBAGENT, Context, Guide, briefing
from ullage.core.session.log.fold import FailedUser
from ullage.core.session.log.render import Renderer, render_tools
from ullage.core.session.permissions import Posture
from ullage.core.session.skills import find_mentioned
from ullage.core.session.tools import Spec
from ullage.core.session.turn.effects import Ended, TurnOrder
from ullage.core.values.pickling import Unpicklable
from ullage.guard.guard import Guard
from ullage.guard.port import Port
from ullage.providers import Provider, StreamProvider, read_provider
from ullage.runtime import default
from ullage.tools import Executor, Sandbox
from ullage.tools.telling import PlanTool, RecallTool, SearchBackTool
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.tokens.window import Window
    from ullage.guard.summarizer import Summarize
    from ullage.guard.view import View

Result = TypeVar("Result")

SHELL: Final = Sandbox()
"""By default, commands write only in the workspace and have no network."""

HALF: Final = 0.5
"""The share of the window that a manual compaction aims at by default."""


@dataclass(frozen=True, slots=True)
class Compacting:
    """The result of a manual compaction or its dry run; `checkpoint` is None without a change."""

    checkpoint: Checkpoint | None
    reason: str
    view: View


class Agent(Unpicklable):
    """Runs turns of sessions with one model, guarded by its window.

    ::

        agent = ullage.Agent(ullage.Provider("qwen3-8b", "http://127.0.0.1:8080/v1"))
        with ullage.Session.create(ullage.open_log("sqlite:work.db")) as session:
            print(agent.run(session, "What is in the cellar?").text)

    `provider` may be an object with its own stream (`ullage.StreamProvider`). `workspace` is the
    folder that tools work in; without it, the only tools are plan, recall and search. All other
    options are in `Equipment`. Raises ConfigurationError for invalid values.
    """

    instead = "pickle agent.provider and agent.policy, and make an agent of them there"

    def __init__(
        self,
        provider: Provider | StreamProvider,
        *,
        workspace: Path | str | None = None,
        **equipment: Unpack[Equipment],
    ) -> None:
        check_names(equipment, Equipment)
        runtime = equipment.get("runtime")
        self.provider = read_provider(provider)
        self.workspace = None if workspace is None else Path(workspace)
        self.skills = tuple(equipment.get("skills", ()))
        self.runtime = runtime if runtime is not None else default()
        self._equipment = equipment
        self._said_of = (self.provider.base_url, self.provider.model)
        policy = equipment.get("policy")
        self._policy = Policy.read(self.runtime.settings.policy if policy is None else policy)
        if self._policy.client_compacts:
            raise ConfigurationError(
                f"the policy {self._policy.name} leaves compaction to a proxy's clients, and an "
                'agent has none: take another one, such as "ladder"'
            )
        self._summarizer = choose_summarizer(self.runtime, equipment.get("summarizer"))
        self._secrets = (*equipment.get("secrets", ()), *config.credentials())
        self._subagents = Subagents.read(equipment.get("subagents"))
        self._gated = equipment.get("gated", True)
        self._session_bytes = read_bound(equipment.get("session_bytes", LARGEST))

    @property
    def policy(self) -> Policy:
        """The policy: the actions as the window fills."""
        return self._policy

    def derive(self, provider: Provider | StreamProvider, changes: Equipment) -> Agent:
        """Return an agent with another provider and changed equipment, otherwise the same."""
        secrets = (*self._secrets, *self.provider.secrets())
        own: Equipment = {**self._equipment, "runtime": self.runtime, "secrets": secrets}
        equipment: Equipment = {**own, **changes}
        return Agent(provider, workspace=self.workspace, **equipment)

    # --- turns ----------------------------------------------------------------------------------

    async def arun(self, session: Session, text: str, **options: Unpack[TurnOptions]) -> Ended:
        """Run one turn to its end, while the session's listeners receive its events.

        Failures of models and tools are in the result. Raises BusyWriter while a turn of this
        session runs, here or elsewhere, Fenced if another writer took it over, StoreError if the
        log cannot be written, ConfigurationError for invalid options.
        """
        if type(text) is not str or not (text.strip() or options.get("parts")):
            raise ConfigurationError(f"a turn begins with what a person says, not {text!r:.80}")
        made = await self._move_on(session, text, options)
        if made is None:
            return await self._turn(session, text, options)
        try:
            ended = await self._turn(made, text, options)
        finally:
            await made.aclose()
        return replace(ended, continued=ended.continued or made.name)

    async def aresume(self, session: Session, **options: Unpack[TurnOptions]) -> Ended | None:
        """Continue the turn that was cut off, or try the last failed one again.

        An interrupted turn is continued, too. Returns None if the last turn was answered; raises as
        `arun` does. The turn gets no more rights than it had when it began.
        """
        _free(session)
        await session.arenew()
        onward = await self._find_onward(session)
        if onward is not None:
            return await self._resume_onward(session, onward, options)
        begun = session.known.turn or session.known.unanswered
        if begun is None:
            return None
        return await self._turn(session, None, restrict(begun.data, options))

    def run(self, session: Session, text: str, **options: Unpack[TurnOptions]) -> Ended:
        """Do the same as `arun`, blocking; for programs without an event loop."""
        return _blocking(self.arun(session, text, **options))

    def resume(self, session: Session, **options: Unpack[TurnOptions]) -> Ended | None:
        """Do the same as `aresume`, blocking."""
        return _blocking(self.aresume(session, **options))

    def start(
        self, session: Session, text: str, **options: Unpack[TurnOptions]
    ) -> asyncio.Task[Ended]:
        """Begin a turn as a task of the running loop; cancel it to interrupt the turn.

        Raises BusyWriter at once if a turn of this session runs.
        """
        _free(session)
        return asyncio.get_running_loop().create_task(self.arun(session, text, **options))

    async def asubmit(
        self, queue: TakesTurns[Ticket], session: Session | str, text: str, **options: Any
    ) -> Ticket:
        """Let a worker of a queue (`ullage.JobQueue`) run a turn; return the queue's ticket for it.

        A missing session is created. `options` are those of a job, such as tenant, priority, key
        and agent: the worker's own agent of that name runs it, not this one. Raises the errors of
        the queue, and ConfigurationError for a session of another store.
        """
        return await queue.asubmit(check_place(queue, session), text, **options)

    def submit(
        self, queue: TakesTurns[Ticket], session: Session | str, text: str, **options: Any
    ) -> Ticket:
        """Do the same as `asubmit`, blocking."""
        return queue.submit(check_place(queue, session), text, **options)

    async def _turn(self, session: Session, text: str | None, options: TurnOptions) -> Ended:
        check_names(options, TurnOptions)
        check_values(options)
        _free(session)
        session.busy = True
        try:
            await session.arenew()
            onward = None if text is None else await self._leave_large(session, options)
            if onward is not None:
                return await self._run_onward(session, onward, str(text), options)
            kit = self._kit(session, options)
            await self._report_model_switch(kit)
            ended = await Turning(kit, self._order(kit, text, options)).run()
            clean = session.redactor.text
            ended = replace(ended, text=clean(ended.text), error=clean(ended.error))
        finally:
            session.busy = False
        return await self._continue_in_new_session(kit, ended)

    # --- continuing in a new session ------------------------------------------------------------

    async def _find_onward(self, session: Session) -> Session | None:
        """Return the session that continues a large one, or None."""
        large = is_large(session.known, self._session_bytes)
        return await afollow_session(session) if large else None

    async def _leave_large(self, session: Session, options: TurnOptions) -> Session | None:
        """Return the session for the next turn of a large one: a new one, or the last of its chain.

        Returns None for a small session, or after a failure to begin a new one, which is reported.
        """
        if not is_large(session.known, self._session_bytes):
            return None
        onward = await afollow_session(session)
        if onward is None:
            session.onward = onward = await self._begin_next(self._kit(session, options, dry=True))
        return onward

    async def _run_onward(
        self, session: Session, onward: Session, text: str, options: TurnOptions
    ) -> Ended:
        """Run a turn of a large session in the one that continues it."""
        session.hand_on(onward)
        try:
            ended = await self._turn(onward, text, options)
        finally:
            await onward.aclose()
        return replace(ended, continued=ended.continued or onward.name)

    async def _resume_onward(
        self, session: Session, onward: Session, options: TurnOptions
    ) -> Ended | None:
        """Continue the turn of the session that continues a large one."""
        session.hand_on(onward)
        session.busy = True  # so nobody else runs a turn there and closes it
        try:
            ended = await self.aresume(onward, **options)
        finally:
            session.busy = False
            await onward.aclose()
        return None if ended is None else replace(ended, continued=ended.continued or onward.name)

    async def _move_on(self, session: Session, text: str, options: TurnOptions) -> Session | None:
        """Begin a new session if the policy wants one before this turn, else return None."""
        if not self.policy.new_session:
            return None
        check_names(options, TurnOptions)
        _free(session)
        session.busy = True
        try:
            await session.arenew()
            if is_large(session.known, self._session_bytes):
                return None  # the turn moves by itself
            kit = self._kit(session, options, dry=True)
            full = await is_full(kit, self.policy, text)
            made = await self._begin_next(kit) if full else None
        finally:
            session.busy = False
        if made is not None:
            session.hand_on(made)
        return made

    async def _continue_in_new_session(self, kit: Kit, ended: Ended) -> Ended:
        """Begin a new session after a turn that ended under pressure, if the policy wants one."""
        if not ended.ok or not await is_full(kit, self.policy):
            return ended
        made = await self._begin_next(kit)
        if made is None:
            return ended
        await made.aclose()
        return replace(ended, continued=made.name)

    async def _begin_next(self, kit: Kit) -> Session | None:
        """Begin the session that continues this one; on failure report it and return None."""
        try:
            kept = find_kept(kit.session.known, self._session_bytes)
            return await begin_next(kit, kept=kept)
        except UllageError as error:
            told = {"text": f"no new session was begun: {error}"}
            kit.session.publish(Live(kit.session.name, "status", told))
            return None

    def _order(self, kit: Kit, text: str | None, options: TurnOptions) -> TurnOrder:
        most = options.get("max_iterations")
        if most is not None and (type(most) is not int or most < 1):
            raise ConfigurationError(f"max_iterations is 1 or more, or None, not {most!r}")
        session, fold = kit.session, kit.session.known
        cut = fold.turn
        named = find_mentioned(text or "", self.skills)
        name = cut.turn if text is None and cut is not None else name_turn(fold, options)
        ways = (f"show {session.name}", f"resume {session.name}", f"resume {session.name} TEXT")
        lost = fold.unanswered if text is None and cut is None else None
        return TurnOrder(
            turn=name,
            model=kit.provider.model,
            dialect=kit.provider.dialect,
            text=text,
            parts=tuple(options.get("parts") or ()),
            mode=kit.posture.mode,
            permission=kit.posture.permission,
            dry_run=options.get("dry_run", False),
            max_iterations=most,
            skills=tuple(skill for skill in named if fold.skills.get(skill.name) != skill.hash),
            budget=options.get("budget"),
            commands=tuple(f"ullage {words}" for words in ways),
            again="" if lost is None else lost.turn,
            served=session.redactor.data(self._describe_serving(kit)),
        )

    def _describe_serving(self, kit: Kit) -> dict[str, Any]:
        """Return the data that a later start needs to continue in the same way."""
        made = kit.provider.to_record()
        if self.workspace is not None:
            made["workspace"] = str(self.workspace.absolute())
        return made

    # --- between turns --------------------------------------------------------------------------

    async def aview(self, session: Session, **options: Unpack[TurnOptions]) -> View:
        """Return the request that would be sent now; nothing is recorded."""
        await session.afold()
        kit = self._kit(session, options, dry=True)
        return await kit.port.aprepare(kit.request(), kit.provider.dialect)

    async def acompact(
        self,
        session: Session,
        *,
        target_tokens: int | None = None,
        target_ratio: float | None = None,
        provider: Provider | StreamProvider | None = None,
        dry_run: bool = False,
    ) -> Compacting:
        """Compact the session's history now, to half of the window by default.

        Raises ConfigurationError for an invalid target, and ContextWindowUnknown if a ratio was
        given and the window is unknown.
        """
        await session.afold()
        kit = self._kit(session, {"provider": provider}, dry=dry_run)
        target = target_tokens
        if target is None:
            target = int(
                await self._find_input_limit(kit) * (HALF if target_ratio is None else target_ratio)
            )
        if type(target) is not int or target < 1:
            raise ConfigurationError(f"a compaction goes to 1 token or more, not {target!r}")
        return await _compact_history(kit, target)

    async def asummarise(self, session: Session, name: str | None = None) -> Session:
        """Begin a new session with a summary of this one, and link the two.

        Raises ConfigurationError if there is nothing to summarise, CompactionError if the
        summarizer gave nothing: then no session is begun.
        """
        if all(isinstance(item, FailedUser) for item in (await session.afold()).items):
            raise ConfigurationError(f"session {session.name} has nothing to summarise yet")
        kit = self._kit(session, {}, dry=True)
        kept = find_kept(session.known, self._session_bytes)
        return await begin_next(kit, name, kept=kept)

    def uncompact(self, session: Session) -> Checkpoint | None:
        """Undo the last compaction; return it, or None without one."""
        session.refresh()
        kit = self._kit(session, {})
        return kit.port.undo(kit.request(), kit.provider.dialect)

    async def awindow(self, provider: Provider | StreamProvider | None = None) -> Window:
        """Return the window of the agent's model, or of another provider's model."""
        question = self._question(read_provider(provider or self.provider))
        return await self.runtime.windows.awindow(question)

    async def _find_input_limit(self, kit: Kit) -> int:
        window = await kit.port.awindow()
        if window.input_tokens is None:
            raise ContextWindowUnknown(
                kit.provider.model, "Give target_tokens, or the window to the agent."
            )
        return window.input_tokens

    async def aswitch(self, session: Session, provider: Provider | StreamProvider) -> View:
        """Switch to another model: find and report its window, and compact the history if needed.

        Returns the request that would be sent now.
        """
        self.provider = read_provider(provider)
        await session.afold()
        kit = self._kit(session, {})
        await self._report_model_switch(kit)
        return await kit.port.aprepare(kit.request(), kit.provider.dialect)

    async def _report_model_switch(self, kit: Kit) -> None:
        """Report a change of the model and its effect on the window."""
        before = kit.session.known.usage
        if before is None or before[1] == kit.provider.model:
            return
        kit.trigger = "model_switch"
        window = await kit.port.awindow()
        first = window.explain().partition("\n")[0]
        text = f"the model was {before[1]}, now it is {first}"
        kit.session.publish(Live(kit.session.name, "status", {"text": text}))

    # --- the equipment of a turn ----------------------------------------------------------------

    def _kit(self, session: Session, options: TurnOptions, *, dry: bool = False) -> Kit:
        provider = read_provider(options.get("provider") or self.provider)
        provider = replace(
            provider, options={**provider.options, **(options.get("provider_options") or {})}
        )
        provider, _ = self._state_window(provider)
        mode, permission = options.get("mode", "build"), options.get("permission", "auto")
        posture = Posture(mode, permission, tuple(self._equipment.get("writes", ())))
        asked = getattr(self._summarizer, "secrets", ())
        secrets = (*self._secrets, *provider.secrets(), *asked)
        session.redactor = Redactor(secrets, keys=self.runtime.settings.redact_keys)
        executor = (self._equipment.get("executor") or self._standard)(session)
        subagent = make_tool(self, self._subagents, session, posture)
        executor = executor if subagent is None else executor.extend(subagent)
        offered = [spec.name for spec in executor.specs(Posture())]
        renderer = Renderer(provider.dialect, provider.model, self._read, offered)
        words = Words(
            provider,
            briefing(
                self._context(session),
                mode=mode,
                permission=permission,
                skills=self.skills,
                presenter_context=session.redactor.data(options.get("presenter_context") or {}),
                guides=[
                    guide._replace(text=session.redactor.text(guide.text))
                    for guide in self.read_guides()
                ],
            ),
        )
        before = len(words.messages())
        question = self._question(provider)
        prices = self.runtime.windows.prices(question)
        store = SessionStore(
            Place(
                session,
                provider.dialect,
                question.place,
                lambda: [*[0] * before, *renderer.seqs],
                prices,
                dry=dry,
            )
        )
        kit = Kit(
            session=session,
            provider=provider,
            port=self._port(session, provider, store, executor),
            store=store,
            executor=executor,
            renderer=renderer,
            posture=posture,
            words=words,
            tools=list(render_tools(executor.specs(posture), provider.dialect)),
            prices=prices,
            ask=options.get("ask"),
            gated=self._gated,
        )
        if subagent is not None:
            subagent.kit = kit
        return kit

    def _port(
        self, session: Session, provider: Provider, store: SessionStore, executor: Executor
    ) -> Port:
        policy = self.policy.spare() if session.known.is_spared else self.policy
        traits = {spec.name: spec.again for spec in executor.specs(Posture())}
        return Guard(
            provider.model,
            base_url=provider.server_url,
            api_key=provider.api_key,
            window=self._state_window(provider)[1],
            dialect=provider.dialect,
            policy=replace(hold_back(policy), results={**traits, **policy.results}),
            summarizer=self._find_summarizer(session, provider),
            store=store,
            on_event=lambda event: show_event(session, event),
            runtime=self.runtime,
        ).port

    def _find_summarizer(self, session: Session, provider: Provider) -> Summarize | None:
        """Return the summarizer of a session: for "same", the model that answers in it."""
        if self._summarizer != SAME:
            return self._summarizer

        def tell(characters: int) -> None:
            told = {"state": "summarising", "characters": characters}
            session.publish(Live(session.name, "status", told))

        return OwnModel(provider, self.runtime, self._question(provider), tell)

    def read_guides(self, tell: Callable[[str], object] | None = None) -> tuple[Guide, ...]:
        """Return the current guides of the project, if the agent is to read them.

        `tell` is called with a sentence for each file that is left out or cut.
        """
        if self.workspace is None or not self._equipment.get("instructions"):
            return ()
        return read_guides(self.workspace, tell)

    def list_tools(self, session: Session, **options: Unpack[TurnOptions]) -> list[Spec]:
        """Return the tools that a model gets in a turn with these options."""
        kit = self._kit(session, options, dry=True)
        return list(kit.executor.specs(kit.posture))

    def _context(self, session: Session) -> Context:
        where = "none" if self.workspace is None else str(self.workspace.absolute())
        role = SUBAGENT if session.known.created.get("parent") else "main"
        return Context(session.name, where, role, find_root(session.known, session.name))

    def _standard(self, session: Session) -> Executor:
        past = SessionPast(session.name, session.originals)
        if self.workspace is None:  # tools that touch no file
            tools = (PlanTool(), RecallTool(past), SearchBackTool(past))
            return Executor(Path.cwd(), tools=tools)
        state, shell = (
            find_state_folder(session.log.url, self.workspace),
            self._equipment.get("shell", SHELL),
        )
        return Executor(self.workspace, state=state, shell=shell, past=past)

    def _read(self, name: str, wanted: str) -> str | None:
        found = (s.text for s in self.skills if (s.name, s.hash) == (name, wanted))
        return next(found, None)

    def _state_window(self, provider: Provider) -> tuple[Provider, int | None]:
        """Return a provider and its window; the agent's window applies only to its own model."""
        same = (provider.base_url, provider.model) == self._said_of
        return state_window(provider, self._equipment.get("window") if same else None)

    def _question(self, provider: Provider) -> Question:
        provider, window = self._state_window(provider)
        return Question(provider.model, provider.server_url, provider.api_key, window)


async def _compact_history(kit: Kit, target: int) -> Compacting:
    view = await kit.port.acompact(kit.request(), kit.provider.dialect, target)
    made = view.prepared.checkpoint
    reasons = [e.reason for e in view.prepared.events if isinstance(e, CompactionFailed)]
    return Compacting(made, reasons[-1] if reasons else "", view)


def _free(session: Session) -> None:
    if session.busy:
        raise BusyWriter(
            f"a turn of session {session.name} is under way: wait for it, or interrupt it"
        )


def _blocking(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise ConfigurationError("an event loop runs here: use the async twin of this call")
