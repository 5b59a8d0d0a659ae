"""Tell where a message turns from what somebody asks to the text that they ask about.

"This is from their readme, does it fit us?" and a paragraph that speaks of nobody: the paragraph is
perhaps another's. Its lines keep their worth as words, and lay down nothing. Nothing proves it, as
traces do (`copied`); that the person speaks of themselves below disproves it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ullage.core.facts import cues
from ullage.core.facts.copied import is_link, is_listed, treats
from ullage.core.facts.patterns import BeyondAscii

INTRO: Final = 240
"""Characters of first words that ask about a text: who goes on longer has more to say."""

LEAST: Final = 60
"""Characters of a text that is asked about; a third of it beyond ASCII, where fewer say as much."""

_THAT: Final = re.compile(
    r"(?<!\w)(?:this|these|that|those|it|its|he|she|they|them|their|his|here|below|following"
    r"|attached|pasted|dies(?:e[nmrs]?)?|das|der|hier|folgende[nmrs]?|ihre?[nmrs]?|sein[emnrs]?"
    r"|ce(?:t|tte|s)?|ça|cela|ceci|voici|leurs?|est[aeo]s?|es[aeo]s?|aquí|su|ist[oae]|aqui"
    r"|quest[oaie]|ecco|это\w?|эт[аиуо]т?|вот|их|deze|dit|dat|ten|ta|te"
    r"|\u0647\u0630[\u0627\u0647]|यह|ये|इस\w*|वह)(?![\w\u0900-\u097f])"
)
_THAT_UNSPACED: Final = BeyondAscii(r"这|那|以下|下面|この|これ|その|それ|이것|이거|다음|아래|이 ")
"""A text is pointed at, or what somebody did is spoken of. Arabic "this" is escaped."""

_HERE: Final = re.compile(
    r"(?:here(?:'s| is| are| was)|hier (?:ist|sind|steht)|voici|ecco|вот)\b|这是"
)
"""Words that hand over a text."""

_MAKES: Final = re.compile(
    r"(?<!\w)(?:help|write|(?<!you )make|create|build|draft|plan|design|implement|add|fix|set up"
    r"|schreib\w*|hilf\w*|helfen|erstell\w*|mach\w*|bau\w*|plan\w*|aide\w*|écri[rstv]\w*|fais|faire"
    r"|ayud\w*|escrib\w*|haz|hacer|crea\w*|aiut\w*|scriv\w*|помо[гч]\w*|напиш\w*|сдела\w*|मदद|बना|लिख)"
    r"(?![\w\u0900-\u097f])|帮我[写做画想]|请[写做]|作って|書いて|手伝|써 ?줘|만들어"
)
"""Something is to be made: what stands below is how."""

_STOPS: Final = re.compile(r"[.!?\u2026](?=\s|$)|[\u0964\u3002\uff01\uff1f\u061f\u06d4]")
_ASKING: Final = ("?", "\uff1f", "\u061f", "\u037e")


def find_shown(lines: Sequence[str]) -> int:
    """Return the first line of a text that is asked about, the end of the message without one."""
    begun = next((n for n, line in enumerate(lines) if line.strip()), len(lines))
    opening = begun
    while opening < len(lines) and lines[opening].strip():
        opening += 1
        if lines[opening - 1].rstrip().endswith((*_ASKING, ":", "\uff1a")):
            break
    intro = " ".join(lines[begun:opening]).strip()
    told = [line for line in lines[opening:] if line.strip()]
    if len(intro) > INTRO or not _is_text(told) or not _asks_about(intro, told):
        return len(lines)
    return opening


def _is_text(told: Sequence[str]) -> bool:
    """Tell whether lines are a text of some length in which nobody speaks of themselves."""
    whole = " ".join(told)
    enough = LEAST if whole.isascii() else LEAST // 3
    if len(whole) < enough or (len(told) < 2 and len(_STOPS.findall(whole)) < 2):
        return False
    return not any(map(is_link, told)) and not _speaks(whole)


def _asks_about(intro: str, told: Sequence[str]) -> bool:
    """Tell whether words ask about a text, or for something to be done to it, and tell no rule.

    A list behind what is to be done says how.
    """
    lower = intro.lower()
    if cues.RULE_HEADING.search(lower) or _MAKES.search(lower):
        return False
    if _HERE.match(lower) or (treats(intro) and not all(map(is_listed, told))):
        return True
    points = _THAT.search(lower) is not None or _THAT_UNSPACED.search(lower) is not None
    return points and lower.rstrip("\"')]»”*_ ").endswith((*_ASKING, ":", "\uff1a"))


def _speaks(told: str) -> bool:
    lower = told.lower()
    return (
        cues.SPEAKERS.search(lower) is not None or cues.SPEAKERS_UNSPACED.search(lower) is not None
    )
