"""The keys of the screen. The module knows the actions, not how they work."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

    from ullage.cli.screen.app import Screen

CONTINUES: Final = "\\"
"""A line that ends with it continues in the next one."""


def bind_keys(screen: Screen) -> KeyBindings:
    """Return the key bindings on top of those of a line editor."""
    keys = KeyBindings()
    working = Condition(lambda: screen.is_working)
    _bind_line(keys, screen)

    @keys.add("c-c", filter=~is_searching)
    @keys.add(Keys.SIGINT)
    def _interrupt(_: KeyPressEvent) -> None:
        screen.interrupt()

    @keys.add("escape", filter=working & ~has_completions & ~is_searching)
    def _escape(_: KeyPressEvent) -> None:
        screen.stop()

    @keys.add("c-d", filter=~is_searching)
    def _end(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.delete()
        else:
            screen.leave(0)

    @keys.add("c-o")
    def _unfold(_: KeyPressEvent) -> None:
        screen.unfold("")

    @keys.add("c-l")
    def _redraw(_: KeyPressEvent) -> None:
        screen.draw_anew()

    @keys.add("c-x", "c-e")
    def _edit(_: KeyPressEvent) -> None:
        screen.edit()

    @keys.add("c-z", filter=Condition(lambda: hasattr(signal, "SIGTSTP")))
    def _suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    return keys


def _bind_line(keys: KeyBindings, screen: Screen) -> None:
    @keys.add("enter", filter=~is_searching)
    @keys.add("c-j", filter=~is_searching)
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.complete_state = None  # takes the choice; the next Enter sends it
        elif buffer.text.endswith(CONTINUES) and not screen.question.is_open:
            buffer.delete_before_cursor(len(CONTINUES))
            buffer.newline(copy_margin=False)
        else:
            screen.submit()

    @keys.add("escape", "enter")
    def _newline(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add(Keys.BracketedPaste)
    def _paste(event: KeyPressEvent) -> None:
        screen.paste(event.data)

    @keys.add("backspace", filter=Condition(lambda: screen.has_label))
    def _erase(_: KeyPressEvent) -> None:
        screen.erase_label()
