"""The guards of a proxy, by everything they differ in: upstream, model, credential, rule.

The most recently used guards and questions are kept. The module does not know answers.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Literal

from ullage.core.compaction.policy import Policy
from ullage.core.guard.events import SummaryFailed, TruncationDetected, WindowCramped
from ullage.guard.guard import Guard
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage.config.serving import ModelRule, Serve
    from ullage.guard.port import Port
    from ullage.guard.summarizer import Summarize
    from ullage.proxy.call import ProxyCall
    from ullage.runtime import Runtime
    from ullage.storage import Store

log = logging.getLogger("ullage.proxy")

MOST_GUARDS: Final = 1_000

OFF: Final = Policy.off()


class Ports:
    """Ports of guards by upstream, model, credential and rule. For any thread."""

    def __init__(
        self,
        serve: Serve,
        runtime: Runtime,
        store: Store,
        summarizer: Summarize | Literal["same"] | None,
    ) -> None:
        self._serve = serve
        self._runtime = runtime
        self._store = store
        self._summarizer = summarizer
        self._guards: OrderedDict[tuple[Any, ...], Port] = OrderedDict()
        self._last: dict[tuple[Any, ...], tuple[ModelRule, Port]] = {}
        self._questions: dict[tuple[Any, ...], Question] = {}
        self._lock = threading.Lock()

    def find(self, call: ProxyCall) -> Port:
        """Return the port of the guard of a call, limited to the conversations of its session."""
        about = (self.make_question(call), call.upstream.name, call.form.dialect)
        with self._lock:
            last = self._last.get(about)
            if last is not None and last[0] is call.rule:
                port = last[1]
            else:
                port = self._find_guard(call, *about)
                if len(self._last) >= MOST_GUARDS:
                    self._last.clear()
                self._last[about] = call.rule, port
        apart = call.apart
        return port if apart is None else port.isolate(apart)

    def _find_guard(self, call: ProxyCall, question: Question, *about: Any) -> Port:
        """Return the port of a question and a rule, for all sessions."""
        rule = call.rule
        key = (question, *about, rule)
        made = self._guards.pop(key, None)
        if made is None:
            made = (
                Guard(
                    question.model,
                    base_url=question.base_url,
                    api_key=question.api_key,
                    window=question.override,
                    policy=OFF if rule.observe else find_policy(call),
                    summarizer=self._summarizer,
                    store=self._store,
                    on_event=log_event,
                    dialect=call.form.dialect,
                    runtime=self._runtime,
                )
                .port.relay(keeps=self.is_keeping(call))
                .attribute(call.party)
            )
        self._guards[key] = made
        if len(self._guards) > MOST_GUARDS:
            self._guards.popitem(last=False)
        return made

    def is_keeping(self, call: ProxyCall) -> bool:
        """Tell whether the left-out text of a call is kept."""
        return self._serve.store_transcripts or bool(call.rule.recall_tools)

    def make_question(self, call: ProxyCall) -> Question:
        """Return the question about a call's window; the same object each time."""
        asked = call.model, call.upstream.root, call.credential, self._window(call), call.party
        found = self._questions.get(asked)
        if found is None:
            model, root, credential, window, party = asked
            found = Question(model, f"{root}/v1", credential, window, party=party)
            if len(self._questions) >= MOST_GUARDS:
                self._questions.clear()
            self._questions[asked] = found
        return found

    def _window(self, call: ProxyCall) -> int | None:
        """Return the window in tokens from the operator's rule or the request itself, or None."""
        if call.rule.window is not None:
            return call.rule.window
        options = call.form.spoken.options
        return None if options is None else options.window(call.body.fields, self._serve.num_ctx)


def find_policy(call: ProxyCall) -> Policy:
    """Return the policy of a call; `Serve.rule` has one for every request."""
    return call.rule.policy or Policy.ladder()


def log_event(event: Any) -> None:
    """Log the events that an operator has to know; headers, pages and metrics show the rest."""
    if isinstance(event, TruncationDetected):
        log.warning("a server cut a prompt in silence: %s", event.truncation)
    elif isinstance(event, WindowCramped | SummaryFailed):
        log.warning("%s", event.text)
