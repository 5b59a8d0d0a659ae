"""The state that guards and plain functions share: vocabularies, windows, read messages, lessons.

One `Runtime` can be passed everywhere. `default()` is the one exception to "no module state": it is
built on first use, and again after a fork. This module decides nothing about a conversation.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ullage import config
from ullage.config.settings import Settings
from ullage.core.compaction.turns import alternate
from ullage.core.dialects import registry as dialects
from ullage.core.dialects.families import NO_LIMITS, find_family
from ullage.core.errors import MalformedHistoryError
from ullage.core.guard.learned import NOTHING, calibrate_meter
from ullage.core.values.pickling import Unpicklable
from ullage.counters import Vocabularies, remote, vocabulary
from ullage.lessons import Lessons
from ullage.storage import MemoryStore, open_store
from ullage.storage.protocol import DAY_S, STANDARD, WEEK_S, StoreLimits
from ullage.storage.shelter import shelter
from ullage.transport import HttpRequest, Timeouts, Transport
from ullage.windows import Question, Resolver, ResolverOptions

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from ullage.core.dialects.families import Law, RequestLimits
    from ullage.core.guard.conversation import Conversation
    from ullage.core.guard.learned import Learned
    from ullage.core.messages.size import Size
    from ullage.core.messages.transcript import Codec, DialectName, Message, Transcript
    from ullage.core.tokens.calibration import Calibration, ReportedSize, Taught
    from ullage.core.tokens.counting import Measure, Meter
    from ullage.counters import Vocabulary
    from ullage.storage import Store
    from ullage.telemetry.protocol import Listener

REMEMBERED: Final = 64 * 1024 * 1024
"""Approximate bytes of read messages that are kept per dialect, and again as many for whole
histories.
"""

BESIDE: Final = 1_000
"""Approximate bytes of a message in addition to its text."""

MOST_TOOLS: Final = 200
"""Most tool lists whose sizes are kept."""

MOST_METERS: Final = 1_000

OPEN_WEIGHTS: Final = "o200k_harmony"
"""The vocabulary of OpenAI's open models, which others serve with a public template."""


class Messages(dict[Any, "Message"]):
    """Messages that were read, by content; above about `most` bytes all are dropped."""

    def __init__(self, most: int = REMEMBERED) -> None:
        super().__init__()
        self._most = most
        self._weight = 0
        self._lock = threading.Lock()

    def __setitem__(self, key: Any, message: Message) -> None:
        with self._lock:
            if key not in self:
                self._weight += weight(message)
            if self._weight > self._most:
                self.clear()
                self._weight = weight(message)
            super().__setitem__(key, message)


def weight(message: Message) -> int:
    """Return the approximate bytes of a message."""
    return BESIDE + message.characters


class _Bounded(dict[Any, Any]):
    """A dict with a limited number of entries; when it is full, all are dropped."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) >= self._most and key not in self:
            self.clear()
        super().__setitem__(key, value)


class Runtime(Unpicklable):
    """Shared caches and lessons. Safe to share between threads and event loops.

    Without `settings` no files and no environment are read, and no lesson is kept on disk. `store`
    keeps checkpoints, conversations and originals. If neither it nor the settings name a store,
    checkpoints and conversations stay in memory and originals are not kept. `remembered` limits the
    read messages that are kept, in approximate bytes per dialect.
    """

    instead = (
        "make one in the other process; its settings can be pickled: "
        "ullage.Runtime(settings=runtime.settings)"
    )

    def __init__(
        self,
        *,
        transport: Transport | None = None,
        store: Store | None = None,
        settings: Settings | None = None,
        now: Callable[[], float] = time.time,
        remembered: int = REMEMBERED,
    ) -> None:
        self.settings = settings or Settings()
        held = self.settings
        limits = Timeouts(held.connect_timeout_s, held.read_timeout_s)
        self.transport = transport or Transport(limits)
        options = ResolverOptions(
            context_windows=held.context_windows,
            window_places=held.window_places,
            base_models=held.base_models,
            offline=held.offline,
            folder=Path(held.cache_dir) if held.cache_dir else None,
        )
        self.windows = Resolver(self.transport, now, options)
        self.lessons = Lessons(options.folder, now)
        self.outputs: MutableMapping[str, tuple[int, float]] = _Bounded(MOST_METERS)
        """Per model that refuses a prompt without room for the output: the output tokens that
        programs request without telling the guard (0 if they tell it), and the time of the refusal.
        """
        self.now = now
        self.metrics: Listener | None = None
        self._store = None if store is None else shelter(store)
        self._memory = MemoryStore()
        self.vocabularies = Vocabularies(engine=held.counter)
        self._remembered = remembered
        self._codecs: dict[DialectName, Codec] = {}
        self._counts = remote.Counts()
        self._meters: MutableMapping[object, Meter] = _Bounded(MOST_METERS)
        self._calibrated: MutableMapping[tuple[str, str], tuple[Calibration | None, Meter]]
        self._calibrated = _Bounded(MOST_METERS)
        self._plain: MutableMapping[tuple[str | None, str], Meter] = _Bounded(MOST_METERS)
        self._dropped: MutableMapping[str, frozenset[str]] = _Bounded(MOST_METERS)
        self.unable: set[str] = set()
        self._tools: MutableMapping[str, Size] = _Bounded(MOST_TOOLS)
        self._loaded: MutableMapping[tuple[str | None, DialectName], None] = _Bounded(MOST_METERS)
        self._lock = threading.Lock()

    @property
    def kept(self) -> Store | None:
        """The configured store, opened on first use, or None."""
        url = self.settings.store
        if self._store is None and url is not None:
            with self._lock:
                if self._store is None:
                    self._store = self._open(url)
        return self._store

    def _open(self, url: str) -> Store:
        held = self.settings
        return shelter(open_store(url, limits=self._limits, embeddings=held.embeddings))

    @property
    def _limits(self) -> StoreLimits:
        """How long the configured store keeps unused data."""
        days = self.settings.retention_days
        return STANDARD if days is None else StoreLimits(ttl_s=min(days * DAY_S, WEEK_S))

    @property
    def is_store_due(self) -> bool:
        """True if a store is configured and not open yet."""
        return self._store is None and self.settings.store is not None

    @property
    def store(self) -> Store:
        """The store of checkpoints and conversations: the configured one, or memory."""
        return self.kept or self._memory

    def find_laws(self, question: Question) -> frozenset[Law]:
        """Return the laws of a model for a history: from its family, and from its refusals.

        The server's chat template, if known, shows whether roles must take turns.
        """
        taught = self.lessons.find(question.own_key).laws
        served: frozenset[Law] = frozenset()
        if self.windows.wants_turns(question):
            served = frozenset({"alternation"})
        return find_family(question.model).laws | taught | served

    def find_limits(self, question: Question) -> RequestLimits:
        """Return the limits of a model's provider apart from tokens; other servers have none."""
        if not self.windows.is_hosted(question):
            return NO_LIMITS
        return find_family(question.model).limits

    def take_in(self, question: Question, conversation: Conversation) -> Conversation:
        """Merge the lessons that a conversation carries, unless the model was forgotten since."""
        learned = conversation.learned
        if learned is NOTHING:
            return conversation
        before = self.lessons.find(question.own_key)
        if not self.lessons.take_in(question.own_key, learned):
            return replace(conversation, learned=NOTHING, suspect=None)
        if self.lessons.find(question.own_key) is not before:
            self._plain.clear()
        self.windows.take_in(question, learned.claims)
        return conversation

    def forget(self, question: Question | None = None) -> None:
        """Forget everything probed and learned about a model at its endpoint, or about all."""
        self.windows.forget(question)
        self.lessons.forget(None if question is None else question.own_key)
        if question is None:
            self.outputs.clear()
        else:
            self.outputs.pop(question.own_key, None)
        self._plain.clear()

    def hear_lesson(self, key: str, learned: Learned) -> None:
        """Take over what another process learned about a model's counting and laws."""
        if self.lessons.take_in(key, learned):
            self._plain.clear()

    def hear_forgotten(self, key: str, own_key: str, at: float) -> None:
        """Forget a model as another process was asked to, `at` seconds since the epoch."""
        self.windows.forget_key(key, at)
        self.lessons.forget(own_key, at)
        self.outputs.pop(own_key, None)
        self._plain.clear()

    def codec_for(self, dialect: DialectName) -> Codec:
        """Return the codec of a dialect; the messages that it has read are shared."""
        codec = self._codecs.get(dialect)
        if codec is None:
            from ullage.core.messages.readings import Readings

            memo, readings = Messages(self._remembered), Readings(self._remembered)
            codec = self._codecs[dialect] = dialects.find(dialect).make_codec(memo, readings)
        return codec

    def read(self, body: Measurable) -> Transcript:
        """Read a request; if its dialect is not given, detect it (see the transcript's rules)."""
        body = body.normalise()
        return self.codec_for(body.find_dialect()).read(body.messages)

    def measure(self, question: Question, transcript: Transcript, body: Measurable) -> Measure:
        """Measure a request that was read."""
        from ullage.core.tokens.counting import measure

        meter = self.meter(question, transcript.rules.dialect)
        system = system_text(body.system)
        return measure(transcript, meter, system=system, tools=body.tools)

    def meter(self, question: Question, dialect: DialectName = dialects.DEFAULT) -> Meter:
        """Return the meter for a model; it is exact if the vocabulary is known and available.

        A server that is not a known provider's may serve anything under any name. There, only the
        ids of open weights are trusted, and the server's reports calibrate the meter. If the
        vocabulary is not available, the band of its family applies.
        """
        alone = question.asks_nobody
        meter = self._plain.get((question.model, dialect)) if alone else None
        if meter is not None:
            return meter
        asked = question.own_key, dialect
        learned = self.lessons.find(question.own_key).calibration
        last = self._calibrated.get(asked)
        if last is not None and last[0] is learned:
            return last[1]
        known = self.vocabularies.best(vocabulary(question.model))
        key = (known, self.windows.is_hosted(question), question.model, dialect)
        plain = self._meters.get(key)
        if plain is None:
            plain = self._meters[key] = self._meter(*key)
        meter = calibrate_meter(plain, learned)
        if alone:
            self._plain[question.model, dialect] = meter
        else:
            self._calibrated[asked] = learned, meter
        return meter

    def _meter(
        self,
        known: Vocabulary,
        hosted: bool,  # noqa: FBT001 - a fact of the question, not a switch
        model: str | None,
        dialect: DialectName,
    ) -> Meter:
        from ullage.core.dialects.framing import UNKNOWN_TEMPLATE
        from ullage.core.messages.media import image_rule
        from ullage.core.tokens.counting import EXACT, Meter
        from ullage.counters.bands import band

        counter = self.vocabularies.counter(known.name)
        exact, found = _is_exact(known, hosted=hosted), dialects.find(dialect)
        framing = found.framing if hosted else UNKNOWN_TEMPLATE
        if exact and known.name != OPEN_WEIGHTS and found.own_framing is not None:
            framing = found.own_framing
        framing = replace(framing, image=image_rule(model))
        if exact:
            return Meter(counter, framing, EXACT, "exact", seen=self._tools)
        scale = EXACT if known.exact and known.family else band(known.family)
        return Meter(counter, framing, scale, "estimate", seen=self._tools)

    def is_loaded(self, question: Question, dialect: DialectName) -> bool:
        """Tell whether a request for a model can be read and measured without loading anything."""
        return (question.model, dialect) in self._loaded

    def load(self, question: Question, dialect: DialectName) -> None:
        """Load the codec of a dialect and the vocabulary of a model."""
        self.codec_for(dialect)
        self.meter(question, dialect).counter.count(".")
        self._loaded[question.model, dialect] = None

    def text_meter(self, model: str | None) -> Meter:
        """Return the meter for a model given only by name; one look-up after the first call."""
        return self._plain.get((model, dialects.DEFAULT)) or self.meter(Question(model))

    def learn(
        self, question: Question, reading: ReportedSize, worked_out: Taught | None = None
    ) -> None:
        """Calibrate with one report, as `Lessons.learn` does; an impossible report is ignored."""
        self.lessons.learn(question.own_key, reading, worked_out)
        self._plain.clear()

    def server_count(
        self, question: Question, dialect: DialectName, body: Measurable
    ) -> int | None:
        """Ask the server to count a request; return None if it cannot count or does not answer."""
        ask = self._count(question, dialect, body)
        if ask is None:
            return None
        known = self._counts.find_count(ask)
        return known if known is not None else self._counts.keep_count(ask, self.transport.ask(ask))

    async def aserver_count(
        self, question: Question, dialect: DialectName, body: Measurable
    ) -> int | None:
        """Do as `server_count`, without blocking the event loop."""
        ask = self._count(question, dialect, body)
        if ask is None:
            return None
        known = self._counts.find_count(ask)
        if known is not None:
            return known
        return self._counts.keep_count(ask, await self.transport.aask(ask))

    def dropped_rows(self, question: Question) -> frozenset[str] | None:
        """Return the rows of a context report that a server's chat template leaves out.

        Returns None if the server was not recognised or cannot tell. The server is asked until it
        answers.
        """
        from ullage.counters import template

        known, found = self._dropped.get(question.key), self.windows.counts_at(question)
        if known is not None or found is None or found[0] != template.SERVER:
            return known
        told = template.find_dropped(
            self.transport.ask(template.asking(found[1], question.api_key))
        )
        if told is not None:
            self._dropped[question.key] = told
        return told

    def _count(
        self, question: Question, dialect: DialectName, body: Measurable
    ) -> HttpRequest | None:
        found = self.windows.counts_at(question)
        if found is None:
            return None
        server, base = found
        messages = body.messages
        if "alternation" in self.find_laws(question):  # the template rejects other histories
            codec = self.codec_for(dialect)
            messages = alternate(codec.read(messages), codec)
        prompt = remote.Prompt(
            dialects.find(dialect),
            question.model or "",
            plain(messages),
            plain(body.tools),
            body.system,
        )
        return remote.asking(remote.CountingServer(server, base, question.api_key), prompt)


@dataclass(frozen=True, slots=True)
class Measurable:
    """A caller's request, to be measured.

    `system` is text, Anthropic's blocks or None. If `dialect` is None, it is detected from the
    shape.
    """

    messages: Any
    tools: Any = None
    system: Any = None
    dialect: str | None = None

    def find_dialect(self) -> DialectName:
        """Return the given dialect, or else the one that the shape shows."""
        if self.dialect is not None:
            return dialects.parse_name(self.dialect)
        return dialects.recognise(self.messages, system=self.system, tools=self.tools)

    def normalise(self) -> Measurable:
        """Return the same request with its dialect and with a list of messages that can be edited.

        A string is accepted as one user message if the given dialect allows that (Responses API).
        Raises MalformedHistoryError for anything else that is no list.
        """
        messages = self.messages
        if isinstance(messages, str) and self.dialect is not None:
            dialect = self.find_dialect()
            if dialects.find(dialect).fields.takes_text:
                said = {"role": "user", "content": messages}
                return replace(self, messages=[said], dialect=dialect)
        if not isinstance(messages, Sequence) or isinstance(messages, str | bytes | bytearray):
            from ullage.core.messages.foreign import name_kind

            raise MalformedHistoryError(
                f"messages must be a list of messages, not {name_kind(messages)}: "
                f"{_instead(messages)}"
            )
        return replace(self, dialect=self.find_dialect())


def _is_exact(known: Vocabulary, *, hosted: bool) -> bool:
    """Tell whether vocabulary and framing are the model's own, so that no report corrects them."""
    return known.exact and hosted and known.family is None


SAID: Final = '[{"role": "user", "content": text}]'


def _instead(value: Any) -> str:
    """Return advice for a caller who passed something other than a list."""
    from ullage.core.messages.foreign import find_adapter

    held = value if isinstance(value, Mapping) else {}
    adapter = find_adapter(value)
    advice = (
        (
            isinstance(value, str | bytes | bytearray),
            f"ullage.count_text(text) counts a text; for one message of the user pass {SAID}",
        ),
        (
            isinstance(held.get("messages", held.get("input")), list),
            'this is a whole request; pass its "messages" or "input"',
        ),
        (
            isinstance(held.get("choices"), list),
            "this is a whole answer; pass the history with its message at the end",
        ),
        (
            hasattr(value, "to_messages"),  # a prompt of LangChain
            "pass its messages: convert_to_openai_messages(prompt.to_messages())",
        ),
        (adapter is not None, f"pass a list, and {adapter}"),
        (
            isinstance(value, Mapping) or hasattr(value, "model_dump"),
            "for one message pass a list that holds it, such as [message]",
        ),
        (hasattr(value, "__iter__"), "pass list(messages), which can be read more than once"),
    )
    whole = 'pass the whole history, such as [{"role": "user", "content": "..."}]'
    return next((said for holds, said in advice if holds), whole)


class RequestOptions(TypedDict, total=False):
    """The parts of a request apart from its messages, and its target; every key may be left out.

    `dialect` is a dialect's name, by default detected from the shape. `system` is text or blocks of
    text. `base_url`, `provider` and `api_key` name the server of `model`. `runtime` holds caches
    and lessons; by default it is that of the process.
    """

    model: str | None
    tools: Sequence[Any] | None
    system: Any
    dialect: str | None
    base_url: str | None
    provider: str | None
    api_key: str | None
    runtime: Runtime | None


def parse_options(messages: Any, given: RequestOptions) -> tuple[Runtime, Question, Measurable]:
    """Return runtime, question and body of a request; raises TypeError for an unknown key."""
    unknown = given.keys() - RequestOptions.__optional_keys__
    if unknown:
        known = ", ".join(sorted(RequestOptions.__optional_keys__))
        raise TypeError(f"no option {min(unknown)!r}: there are {known}")
    question = Question(
        given.get("model"),
        given.get("base_url"),
        given.get("api_key"),
        provider=given.get("provider"),
    )
    body = Measurable(messages, given.get("tools"), given.get("system"), given.get("dialect"))
    return given.get("runtime") or default(), question, body


def system_text(system: Any) -> str | None:
    """Return the text of a system prompt: a string, or blocks with text."""
    if system is None or isinstance(system, str):
        return system
    blocks = [b.model_dump() if hasattr(b, "model_dump") else b for b in system]
    return "\n".join(str(b.get("text", "")) if isinstance(b, Mapping) else str(b) for b in blocks)


def plain(items: Any) -> Any:
    """Return messages or tools as plain JSON data: SDK objects become mappings."""
    if items is None or isinstance(items, str):
        return items
    return [_plain(item) for item in items]


def _plain(item: Any) -> Any:
    """Return one item; its content blocks and calls may be SDK objects too."""
    if not isinstance(item, Mapping):
        return _dump_model(item)
    lists = {k: [_dump_model(v) for v in value] for k, value in item.items() if type(value) is list}
    return {**item, **lists}


def _dump_model(value: Any) -> Any:
    return value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value


class _Default:
    """The holder of this process's default runtime."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Drop the runtime, so that the next call builds a new one, for example after a fork."""
        self.runtime: Runtime | None = None
        self.lock = threading.Lock()

    def get(self) -> Runtime:
        with self.lock:
            if self.runtime is None:
                self.runtime = make_runtime()
            return self.runtime


def _settings() -> Settings:
    """Return the settings from files and environment; lessons go to the user's cache by default."""
    import platformdirs

    config.set_log_levels()
    settings = config.load().settings
    config.set_log_levels(levels=settings.logging)
    folder = settings.cache_dir or platformdirs.user_cache_dir("ullage", appauthor=False)
    return replace(settings, cache_dir=folder)


_default = _Default()


def make_runtime(*, remembered: int = REMEMBERED) -> Runtime:
    """Return a runtime with this user's settings; arguments are those of `Runtime`."""
    return Runtime(settings=_settings(), remembered=remembered)


def default() -> Runtime:
    """Return this process's default runtime, built on first use."""
    return _default.get()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_default.renew)
