"""The frameworks that `make integrations` runs: where each lives, and what its seam can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Row:
    """One framework: its title, its distribution, the seam, and what cannot be done there.

    `cannot` is one sentence, "" where all holds. `same` is False where the framework's own requests
    differ from the plain guard's so that compactions fall in other turns; `cannot` says why.
    """

    title: str
    distribution: str
    seam: str
    cannot: str = ""
    same: bool = True


ROWS: Final[Mapping[str, Row]] = {
    "langchain": Row(
        "LangChain, LangGraph",
        "langchain",
        "`AgentMiddleware.wrap_model_call`",
        "Usage of a streamed answer is learned where the model reports it (`stream_usage=True`).",
    ),
}
"""By the name of the adapter's module."""

IN_CI: Final = ("langchain",)
"""Those that every run of CI installs and runs."""
