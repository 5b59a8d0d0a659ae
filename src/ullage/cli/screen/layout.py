"""The layout of the part below: running work, input line, bottom row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, StyleAndTextTuples
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.widgets import SearchToolbar

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.cli.screen.app import Screen

MENU: Final = 8
"""Rows of the menu of completions."""

MOST_INPUT: Final = 10
"""Most rows of the input line."""

LEAST_INPUT: Final = 5
"""Rows kept free for the input line, the sign of life and the bottom row."""


def make_layout(screen: Screen) -> Layout:
    """Return the layout of a screen."""
    search = SearchToolbar(backward_search_prompt="search back: ", forward_search_prompt="search: ")
    control = BufferControl(buffer=screen.buffer, search_buffer_control=search.control)
    line = Window(
        control,
        wrap_lines=True,
        dont_extend_height=True,
        height=lambda: Dimension(min=MENU if _has_menu(screen) else 1, max=MOST_INPUT),
        get_line_prefix=lambda number, wraps: _draw_prefix(screen, number, wraps),
    )
    body = HSplit(
        [
            _make_rows(lambda: ANSI(screen.draw_live()), lambda: screen.is_working),
            _make_rows(
                lambda: [("class:sign", screen.feed.draw_sign(screen.columns - 1))],
                lambda: bool(screen.feed.what) and not screen.question.is_open,
            ),
            _make_rows(
                lambda: [("class:queue", "\n".join(screen.draw_queue()))],
                lambda: bool(screen.queued),
            ),
            line,
            search,
            Window(
                FormattedTextControl(lambda: [("", screen.draw_toolbar())]),
                height=1,
                style=lambda: screen.toolbar.style,
            ),
        ]
    )
    menu = Float(CompletionsMenu(max_height=MENU, scroll_offset=1), xcursor=True, ycursor=True)
    return Layout(FloatContainer(body, [menu]), focused_element=control)


def _has_menu(screen: Screen) -> bool:
    state = screen.buffer.complete_state
    return state is not None and bool(state.completions)


def _make_rows(
    text: Callable[[], AnyFormattedText], shows: Callable[[], bool]
) -> ConditionalContainer:
    window = Window(FormattedTextControl(text), dont_extend_height=True, wrap_lines=False)
    return ConditionalContainer(window, Condition(shows))


def _draw_prefix(screen: Screen, number: int, wraps: int) -> StyleAndTextTuples:
    """Return the text before a row of the input line: the prompt, or the same width."""
    style = "class:question" if screen.question.is_open else "class:prompt"
    prompt = screen.prompt
    if number or wraps:
        return [(style, ("... " if not wraps else "").rjust(min(len(prompt), 8)))]
    return [(style, prompt)]
