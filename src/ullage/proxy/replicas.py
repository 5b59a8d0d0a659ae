"""What one replica of a proxy learned, told to the others, and what they did, taken in.

| what | told when | what is done with it |
|---|---|---|
| counting | reports agree, or a model refused a history by a law | lessons of the runtime |
| window | an event says more of a window than what was told | ledger of evidence |
| forgotten | somebody had what was learned of a model forgotten | the same here |
| refused | an upstream minds a field that was added | not added here, either |
| steering | an operator pinned a message, or took a compaction back | the same here |

Sizes of histories and readable references are found by name (`stored`, `fitting`). It decides
nothing about a request.
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
"""What replicas call all of this among their shared records: one look has it all."""

REFUSED: Final = ("what", "upstream", "model", "party")


class Replicas:
    """Connects one proxy with those beside it. `guarding` is what a configuration made last."""

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
        """How many records wait to be written for the others."""
        return self._sharing.backlog

    async def begin(self, store: Store) -> None:
        """Take in what the others have told so far; tell and hear from now on."""
        await self._sharing.begin(store)
        if self._sharing.is_on:
            self._runtime.lessons.tell = self._tell_lesson
            self._runtime.windows.ledger.tell = self._tell_claims

    async def aclose(self) -> None:
        """Tell what is still to be told, and nothing more."""
        self._runtime.lessons.tell = self._runtime.windows.ledger.tell = None
        await self._sharing.aclose()

    def join(self, guarding: Guarding, before: Guarding | None = None) -> Guarding:
        """Have guards tell and hear; they go on with what those `before` them were told."""
        if before is not None:
            guarding.steering, guarding.refused = before.steering, before.refused
        guarding.tell_refused, guarding.tell_steered = self._tell_refused, self._tell_steering
        self._guarding = guarding
        heard, self._heard = self._heard, []
        for take_in in heard:
            take_in(guarding)
        return guarding

    def forget(self, question: Question) -> None:
        """Forget what was learned of a model, here and at the others."""
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
        """Take in what another replica told; what a newer one may tell is left."""
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
        """Have guards take something in: those that there are, else the first ones."""
        if self._guarding is None:
            self._heard.append(take_in)
        else:
            take_in(self._guarding)
