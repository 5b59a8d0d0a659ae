"""A job: one turn of a session that some worker is to run, and what became of it.

Plain values that every engine carries; they know no engine and run nothing.
"""

from __future__ import annotations

import uuid
from typing import Any, Final, Literal

import msgspec

from ullage.core.errors import ConfigurationError
from ullage.storage.log import check_name

LONGEST_TENANT: Final = 120
"""Characters of a tenant's name: engines keep it as the name of a queue."""

LONGEST_KEY: Final = 200

PRIORITIES: Final = range(-100, 101)
"""Of a tenant's jobs that of the highest priority runs first; between tenants it says nothing."""

JobState = Literal["waiting", "running", "done", "failed", "cancelled"]

ENDED: Final[frozenset[JobState]] = frozenset({"done", "failed", "cancelled"})


class TurnJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn to be run: `text` is what a person says in `session`, which is made if it lacks.

    `id` is the turn's in the log. Two jobs of a tenant with one `key` are one. `agent` names the
    agent of the worker that runs it; `mode`, `permission`, `max_iterations` and `options` (body
    fields for the provider) are those of `TurnOptions`.
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
    """How a job ended: `text` is the answer, whole or as far as it came.

    `reason` and `error` say why it is no success, in the words of `Ended`. `session` is the one
    that the turn ran in, which may be one that the job's goes on in.
    """

    state: Literal["done", "failed", "cancelled"]
    session: str
    text: str = ""
    reason: str = ""
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.state == "done"

    def to_text(self) -> str:
        """Return it as JSON."""
        clean = {name: _clean(getattr(self, name)) for name in ("text", "error")}
        return msgspec.json.encode(msgspec.structs.replace(self, **clean)).decode()


def _clean(text: str) -> str:
    """Return a text as UTF-8 can carry it: half a pair of surrogates becomes a mark."""
    return text.encode("utf-8", "replace").decode()


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its queue has it: `worker` names the one that runs it now.

    `attempts` are the workers that ended while they ran it. Times are Unix seconds, 0 for not yet.
    """

    job: TurnJob
    state: JobState
    attempts: int = 0
    worker: str = ""
    submitted: float = 0.0
    ended: float = 0.0
    outcome: JobOutcome | None = None


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant as its queue has it: jobs that wait and run, and the most that may."""

    name: str
    waiting: int
    running: int
    most_waiting: int
    most_running: int


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as its queue has it: `silent_s` are the seconds since its last sign of life."""

    name: str
    slots: int
    running: int
    silent_s: float
    draining: bool = False


class QueueReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a queue: its tenants, its workers, and the jobs that were touched last."""

    tenants: list[TenantRow]
    workers: list[WorkerRow]
    jobs: list[JobRow]


def blank_texts(report: QueueReport) -> dict[str, Any]:
    """Return a report as plain data, without what people said and what was answered."""
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
"""Of a tenant that nobody set limits for."""


def make_job(session: str, text: str, **more: Any) -> TurnJob:
    """Return a job with an id by chance; raises ConfigurationError for one that cannot be."""
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
    """Return the job of a JSON text."""
    return msgspec.json.decode(text, type=TurnJob)


def read_outcome(text: str | bytes) -> JobOutcome:
    """Return the outcome of a JSON text."""
    return msgspec.json.decode(text, type=JobOutcome)
