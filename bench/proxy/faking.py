"""How the fake upstream is to behave, and what it was asked: values, no sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

Usage = Literal["asked", "always", "never"]
FAULTS: Final = (
    "429", "500", "garbage", "cut", "ends", "hang", "mute", "restart",
)  # fmt: skip
"""What may happen to a request for an answer instead of it.

`garbage`: frames that are none; `cut`: the connection is closed halfway; `ends`: the stream ends
without its last event; `hang`: nothing more comes after the first chunk; `mute`: not even a head
comes; `restart`: every connection is cut, and the window is the smaller one from then on.
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the fake does; sizes in tokens, times in seconds.

    `usage`: when a stream of Chat tells its tokens. `window`: None means no limit; `silent`: what
    is over it is cut without a word and not refused. `listed`: the window a model was trained for,
    which Ollama lists. `tells`: the paths on which the window can be asked for: `props` (llama.cpp)
    and `ollama` (/api/ps and /api/show). `faults` befall the next requests, one each; "" is none.
    """

    chunks: int = 20
    interval_s: float = 0.0
    first_s: float = 0.0
    usage: Usage = "asked"
    window: int | None = None
    silent: bool = False
    smaller: int | None = None
    listed: int = 131_072
    tells: tuple[str, ...] = ()
    model: str = "bench"
    faults: tuple[str, ...] = ()

    def but(self, told: Mapping[str, Any]) -> Settings:
        """Return the settings with some of them set from JSON.

        Raises:
            ValueError: there is no such setting or fault.
        """
        known = {field.name for field in fields(self)}
        if unknown := set(told) - known:
            raise ValueError(f"no setting {', '.join(sorted(unknown))}: {', '.join(sorted(known))}")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in told.items()
        }
        if wrong := set(values.get("faults", ())) - {*FAULTS, ""}:
            raise ValueError(f"no fault {', '.join(sorted(wrong))}: {', '.join(FAULTS)}")
        return replace(self, **values)


@dataclass(slots=True)
class Counts:
    """What the fake has seen. `left`: clients that went before their answer's end."""

    requests: int = 0
    answered: int = 0
    refused: int = 0
    cut: int = 0
    left: int = 0
    probes: int = 0
