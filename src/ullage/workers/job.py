"""A job: one turn of a session for a worker to run, and its outcome.

Plain values for every engine; they know no engine and run nothing.
"""

from __future__ import annotations

import uuid
from typing import Any, Final, Literal

import msgspec

from ullage.core.errors import ConfigurationError
from ullage.storage.log import check_name

LONGEST_TENANT: Final = 120
"""Longest name of a tenant, in characters: engines use it as the name of a queue."""

LONGEST_KEY: Final = 200

PRIORITIES: Final = range(-100, 101)
"""Among a tenant's jobs the highest priority runs first; it has no effect between tenants."""

JobState = Literal["waiting", "running", "done", "failed", "cancelled"]

ENDED: Final[frozenset[JobState]] = frozenset({"done", "failed", "cancelled"})


class TurnJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn to run: `text` is the user's message in `session`, which is created if missing.

    `id` is the turn's id in the log. Two jobs of a tenant with one `key` are the same job. `agent`
    names the worker's agent that runs it. `mode`, `permission`, `max_iterations` and `options`
    (body fields for the provider) are those of `TurnOptions`.
    """

    id: str
    session: str
    text: str
    tenant: str = "default"
    priority: int = 0
    key: str = ""
    agent: str = "default"
    mode: Literal["build", "plan"] = "build"
    permission: Literal["auto", "ask", "read_only"] = "auto"
    max_iterations: int | None = None
    options: dict[str, Any] = {}

    def to_text(self) -> str:
        """Return it as JSON."""
        return msgspec.json.encode(self).decode()


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a job ended: `text` is the answer, complete or partial.

    `reason` and `error` say why it failed, in the words of `Ended`. `session` is the session in
    which the turn ran, which may be a continuation of the job's.
    """

    state: Literal["done", "failed", "cancelled"]
    session: str
    text: str = ""
    reason: str = ""
    error: str = ""

    @property
    def ok(self) -> bool:
        """Tell whether there is an answer."""
        return self.state == "done"

    def to_text(self) -> str:
        """Return it as JSON."""
        clean = {name: _clean(getattr(self, name)) for name in ("text", "error")}
        return msgspec.json.encode(msgspec.structs.replace(self, **clean)).decode()


def _clean(text: str) -> str:
    """Return a text that UTF-8 can encode: a lone surrogate becomes `?`."""
    return text.encode("utf-8", "replace").decode()


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its queue records it: `worker` names the one that runs it now.

    `attempts` is the number of workers that died while they ran it. Times are Unix seconds, 0 for
    not yet.
    """

    job: TurnJob
    state: JobState
    attempts: int = 0
    worker: str = ""
    submitted: float = 0.0
    ended: float = 0.0
    outcome: JobOutcome | None = None


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant as its queue records it: its waiting and running jobs, and the limits of both."""

    name: str
    waiting: int
    running: int
    most_waiting: int
    most_running: int


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as its queue records it: `silent_s` is the seconds since its last heartbeat."""

    name: str
    slots: int
    running: int
    silent_s: float
    draining: bool = False


class QueueReport(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a queue: its tenants, its workers, and the newest jobs."""

    tenants: list[TenantRow]
    workers: list[WorkerRow]
    jobs: list[JobRow]


def blank_texts(report: QueueReport) -> dict[str, Any]:
    """Return a report as plain data, without user messages and answers."""
    made: dict[str, Any] = msgspec.to_builtins(report)
    for row in made["jobs"]:
        row["outcome"] = None
        row["job"] = {"tenant": "default", **row["job"], "text": ""}
    return made


class TenantLimits(msgspec.Struct, frozen=True):
    """The most jobs of a tenant that may run at once, and that may wait."""

    running: int = 8
    waiting: int = 1_000

    def __post_init__(self) -> None:
        for name in ("running", "waiting"):
            if getattr(self, name) < 0:
                raise ConfigurationError(
                    f"the limit {name} of a tenant is 0 or more, not {getattr(self, name)}"
                )


STANDARD_LIMITS: Final = TenantLimits()
"""Limits of a tenant without limits of its own."""


def make_job(session: str, text: str, **more: Any) -> TurnJob:
    """Return a job with a random id; raises ConfigurationError if it is invalid."""
    if not text.strip():
        raise ConfigurationError(f"a turn begins with what a person says, not {text!r:.80}")
    given = {name: value for name, value in more.items() if value is not None}
    unknown = given.keys() - set(TurnJob.__struct_fields__)
    if unknown:
        raise ConfigurationError(
            f"a job has no {min(unknown)!r}: it has {', '.join(TurnJob.__struct_fields__)}"
        )
    made = {"id": uuid.uuid4().hex[:16], "session": check_name(session), "text": text, **given}
    try:
        job = msgspec.convert(made, TurnJob)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"this job cannot be: {error}") from error
    if job.priority not in PRIORITIES:
        raise ConfigurationError(
            f"the priority of a job is {PRIORITIES[0]} to {PRIORITIES[-1]}, not {job.priority}"
        )
    if not 0 < len(job.tenant) <= LONGEST_TENANT or not job.tenant.isprintable():
        raise ConfigurationError(
            f"{job.tenant!r:.60} cannot name a tenant: 1 to {LONGEST_TENANT} printable characters"
        )
    if len(job.key) > LONGEST_KEY:
        raise ConfigurationError(
            f"the key of a job has {len(job.key)} characters, the most are {LONGEST_KEY}"
        )
    return job


def make_cancelled(session: str) -> JobOutcome:
    """Return the outcome of a job that was cancelled."""
    said = "the job was cancelled"
    return JobOutcome(state="cancelled", session=session, reason="interrupted", error=said)


def read_job(text: str | bytes) -> TurnJob:
    """Return the job in a JSON text."""
    return msgspec.json.decode(text, type=TurnJob)


def read_outcome(text: str | bytes) -> JobOutcome:
    """Return the outcome in a JSON text."""
    return msgspec.json.decode(text, type=JobOutcome)
