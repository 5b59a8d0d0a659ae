"""Replicas of a proxy: sends the lessons of this one, and takes in those of the others.

| kind | sent when | effect at the others |
|---|---|---|
| counting | reports agree, or a model refused a history by a law | lessons of the runtime |
| window | an event says more of a window than the last record | ledger of evidence |
| forgotten | somebody made the proxy forget the lessons about a model | the same |
| refused | an upstream refuses a field that was added | not added either |
| steering | an operator pinned a message, or undid a compaction | the same |

Sizes of histories and readable references are found by name (`stored`, `fitting`). The module
decides nothing about a request.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ullage.core.guard.learned import Learned
from ullage.windows.question import BY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.core.tokens.claim import Claim
    from ullage.proxy.guarding import Guarding, Refused
    from ullage.proxy.sharing import Sharing
    from ullage.proxy.steering import Steering
    from ullage.runtime import Runtime
    from ullage.storage import Store
    from ullage.windows import Question

TOPIC: Final = "learned"
"""The topic of these shared records: one look finds them all."""

REFUSED: Final = ("what", "upstream", "model", "party")


class Replicas:
    """Connects one proxy with its replicas. `guarding` is made by the latest configuration."""

    def __init__(self, sharing: Sharing, runtime: Runtime) -> None:
        self._sharing, self._runtime = sharing, runtime
        self._guarding: Guarding | None = None
        self._heard: list[Callable[[Guarding], None]] = []
        self._forgotten: dict[str, float] = {}
        self._ears: Mapping[str, Callable[[str, Mapping[str, Any]], None]] = {
            "counting": self._hear_lesson,
            "window": self._hear_claims,
            "forgotten": self._hear_forgotten,
            "refused": self._hear_refused,
            "steering": self._hear_steering,
        }
        sharing.listen(TOPIC, self._hear)

    @property
    def backlog(self) -> int:
        """Number of records that wait to be written for the others."""
        return self._sharing.backlog

    async def begin(self, store: Store) -> None:
        """Take in the records of the others so far; tell and hear from now on."""
        await self._sharing.begin(store)
        if self._sharing.is_on:
            self._runtime.lessons.tell = self._tell_lesson
            self._runtime.windows.ledger.tell = self._tell_claims

    async def aclose(self) -> None:
        """Write the pending records, then stop."""
        self._runtime.lessons.tell = self._runtime.windows.ledger.tell = None
        await self._sharing.aclose()

    def join(self, guarding: Guarding, before: Guarding | None = None) -> Guarding:
        """Connect guards with the replicas; they continue with the state of those `before` them."""
        if before is not None:
            guarding.steering, guarding.refused = before.steering, before.refused
        guarding.tell_refused, guarding.tell_steered = self._tell_refused, self._tell_steering
        self._guarding = guarding
        heard, self._heard = self._heard, []
        for take_in in heard:
            take_in(guarding)
        return guarding

    def forget(self, question: Question) -> None:
        """Forget the lessons about a model, here and at the other replicas."""
        self._runtime.forget(question)
        value = {"own": question.own_key, "at": self._runtime.now()}
        self._sharing.tell(TOPIC, question.key, "forgotten", value)

    # --- telling --------------------------------------------------------------------------------

    def _tell_lesson(self, key: str, learned: Learned) -> None:
        self._sharing.tell(TOPIC, key, "counting", learned.to_dict())

    def _tell_claims(self, key: str, claims: tuple[Claim, ...]) -> None:
        value = {"claims": [asdict(claim) for claim in claims]}
        self._sharing.tell(TOPIC, key, "window", value)

    def _tell_refused(self, refused: Refused) -> None:
        value = dict(zip(REFUSED, refused, strict=True))
        self._sharing.tell(TOPIC, "|".join(refused), "refused", value)

    def _tell_steering(self, named: bytes, steering: Steering) -> None:
        pins = sorted(pin.hex() for pin in steering.pins.get(named, ()))
        value = {"pins": pins, "spared": named in steering.spared}
        self._sharing.tell(TOPIC, named.hex(), "steering", value)

    # --- hearing --------------------------------------------------------------------------------

    def _hear(self, scope: str, name: str, value: Mapping[str, Any]) -> None:
        """Take in a record of another replica; unknown names of newer versions are skipped."""
        ear = self._ears.get(name)
        if ear is not None:
            ear(scope, value)

    def _hear_lesson(self, scope: str, value: Mapping[str, Any]) -> None:
        self._runtime.hear_lesson(scope, Learned.from_dict(value))

    def _hear_claims(self, scope: str, value: Mapping[str, Any]) -> None:
        claims = Learned.from_dict({"calibration": None, "laws": (), "at": 0.0, **value}).claims
        since = self._forgotten.get(scope.partition(BY)[0], 0.0)
        self._runtime.windows.hear(scope, [claim for claim in claims if claim.at > since])

    def _hear_forgotten(self, scope: str, value: Mapping[str, Any]) -> None:
        at = float(value["at"])
        if at > self._forgotten.get(scope, 0.0):
            self._forgotten[scope] = at
            self._runtime.hear_forgotten(scope, str(value["own"]), at)

    def _hear_refused(self, scope: str, value: Mapping[str, Any]) -> None:
        del scope
        what, root, model, party = (str(value[name]) for name in REFUSED)
        refused = what, root, model, party
        self._have_taken_in(lambda guarding: guarding.refused.add(refused))

    def _hear_steering(self, scope: str, value: Mapping[str, Any]) -> None:
        named, spared = bytes.fromhex(scope), bool(value["spared"])
        pins = frozenset(bytes.fromhex(pin) for pin in value["pins"])
        self._have_taken_in(lambda guarding: guarding.take_in(named, pins, spared=spared))

    def _have_taken_in(self, take_in: Callable[[Guarding], None]) -> None:
        """Apply a change to the guards, or to the first ones once they exist."""
        if self._guarding is None:
            self._heard.append(take_in)
        else:
            take_in(self._guarding)
