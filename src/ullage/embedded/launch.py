"""The start options of an embedded server: one frozen, hashable value.

It knows nothing of processes; `server` starts what this describes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ullage.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Launch:
    """Describe one start of the server. Raises ConfigurationError for values that cannot work.

    `window` is llama.cpp's `-c`, in tokens, shared by all slots. One request gets `window / slots`,
    rounded up by the server to a multiple of 256. With `unified_pool` each slot may use the whole
    window, and concurrent requests can then starve each other. `port` 0 takes a free one. `batch`
    is in tokens, `start_timeout_s` in seconds. `threads` None means every processor this process
    may use. `alias` is the model name that the server reports, `chat_template` the text of a Jinja
    template instead of the model's own. With `log` the server's warnings and errors are appended to
    that file. `trained` is the window that the model was trained on, if known: YaRN extends it to a
    larger one. Without it the server would silently reduce a larger window.
    """

    window: int = 2048
    slots: int = 1
    unified_pool: bool = False
    port: int = 0
    batch: int = 256
    threads: int | None = None
    alias: str | None = None
    chat_template: str | None = None
    api_key: str | None = None
    start_timeout_s: float = 120.0
    log: Path | None = None
    trained: int | None = None

    def __post_init__(self) -> None:
        # llama.cpp b11549 aborts on a window of 1 token.
        _demand("window", self.window, 2)
        _demand("slots", self.slots, 1)
        _demand("batch", self.batch, 1)
        _demand("threads", self.processors, 1)
        _demand("port", self.port, 0)
        _demand("trained", 1 if self.trained is None else self.trained, 1)
        if self.port > 65535:
            raise ConfigurationError(f"port is {self.port}, the largest one is 65535")
        if not self.start_timeout_s > 0:
            raise ConfigurationError(
                f"start_timeout_s is {self.start_timeout_s}, it must be more than 0"
            )

    @property
    def slot_window(self) -> int:
        """The window of one request, in tokens."""
        return self.window if self.unified_pool else self.window // self.slots

    @property
    def stretch(self) -> float:
        """The ratio of one request's window to the trained one, at least 1."""
        return max(self.slot_window / self.trained, 1.0) if self.trained else 1.0

    @property
    def processors(self) -> int:
        """The number of threads the server computes with."""
        if self.threads is not None:
            return self.threads
        affinity = getattr(os, "sched_getaffinity", None)  # Linux only
        return len(affinity(0)) if affinity else os.cpu_count() or 1


def _demand(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigurationError(f"{name} is {value}, the server needs at least {least}")
