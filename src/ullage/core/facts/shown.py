"""Find where a message turns from a person's question to the text that it is about.

"This is from their readme, does it fit us?" and an impersonal paragraph: the paragraph may be
somebody else's. Its lines keep their worth as words, but are not called rules. There is no proof,
as traces give it (`copied`). If the person speaks of themselves below, the text is their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ullage.core.facts import cues
from ullage.core.facts.copied import is_link
from ullage.core.facts.patterns import BeyondAscii, LatePattern
from ullage.core.facts.voice import is_impersonal, treats

INTRO: Final = 240
"""Characters of first words that ask about a text: longer ones have more to say."""

LEAST: Final = 60
"""Characters of the text in question; a third of it outside ASCII, where fewer say as much."""

_BEHIND: Final = (
    r"(?=\s+(?:is|are|was|means?|from|hangs?|any|an?|the|ok|okay|normal|good|true|right|legal|fair"
    r"|for|in|on|so|to|sounds?|looks?|seems?)\b|\s*[,?.!:]|\s*$)"
)
_THAT: Final = LatePattern(
    rf"(?<!\w)(?:(?:this|that|these|those){_BEHIND}|das(?=\s*[,?.!:]|$"
    r"| ist\b| steht\b| h\u00e4ngt\b)"
    r"|dies(?=[,?. ])|ça|cela|ceci|c'est|esto|eso|aquí|questo|ciò|это|deze|dit"
    r"|\u0647\u0630[\u0627\u0647]|यह|ये|इसका)(?![\w\u0900-\u097f])"
)
_THAT_UNSPACED: Final = BeyondAscii(r"这是|这[封份段篇条]|これ|この文|이것|이거")
"""A text is pointed at and not named ("this repository" is). Arabic "this" is escaped."""

_MAKES: Final = LatePattern(
    r"(?<!\w)(?:help|write|(?<!you )make|create|build|draft|plan|design|implement|add|fix|set up"
    r"|schreib\w*|hilf\w*|helfen|erstell\w*|mach\w*|bau\w*|plan\w*|aide\w*|écri[rstv]\w*|fais|faire"
    r"|ayud\w*|escrib\w*|haz|hacer|crea\w*|aiut\w*|scriv\w*|помо[гч]\w*|напиш\w*|сдела\w*|मदद|बना|लिख"
    r"|remember|note|mind|keep|stick|follow|observe|beacht\w*|merk\w*|gilt|gelten|retiens|respecte\w*"
    r"|recuerda|respeta\w*|anota|ricorda|запомни\w*|соблюдай\w*|याद)(?![\w\u0900-\u097f])"
    r"|帮我[写做画想]|请[写做记注]|记住|注意|作って|書いて|手伝|守って|써 ?줘|만들어|기억"
)
"""A request to make something, or to keep it in mind: the text below then specifies it."""

_HERE: Final = LatePattern(
    r"(?:here(?:'s| is| are| was)|hier (?:ist|sind|steht)|voici|ecco|вот)\b|这是"
)
"""Words that hand over a text."""

_STOPS: Final = LatePattern(r"[.!?\u2026](?=\s|$)|[\u0964\u3002\uff01\uff1f\u061f\u06d4]")
_ASKING: Final = ("?", "\uff1f", "\u061f", "\u037e")


def find_shown(lines: Sequence[str]) -> int:
    """Return the first line of a text in question, or the number of lines without one."""
    begun = next((n for n, line in enumerate(lines) if line.strip()), len(lines))
    opening = begun
    while opening < len(lines) and lines[opening].strip():
        opening += 1
        if lines[opening - 1].rstrip().endswith((*_ASKING, ":", "\uff1a")):
            break
    intro = " ".join(lines[begun:opening]).strip()
    told = [line for line in lines[opening:] if line.strip()]
    if len(intro) > INTRO or not _asks_about(intro) or not _is_text(told):
        return len(lines)
    return opening


def _is_text(told: Sequence[str]) -> bool:
    """Tell whether lines are a text of some length in which nobody speaks of themselves."""
    whole = " ".join(told)
    enough = LEAST if whole.isascii() else LEAST // 3
    if len(whole) < enough or (len(told) < 2 and len(_STOPS.findall(whole)) < 2):
        return False
    if any(map(is_link, told)) or any(cues.RULE_HEADING.search(line.lower()) for line in told):
        return False
    return is_impersonal(whole, may_address=True)


def _asks_about(intro: str) -> bool:
    """Tell whether words ask about a text that they point to, or hand it over with a question."""
    lower = intro.lower()
    asks = lower.rstrip("\"')]»”*_ ").endswith(_ASKING)
    if _HERE.match(lower):
        about = asks or treats(intro)
    else:
        about = asks and (_THAT.stands_in(lower) or _THAT_UNSPACED.search(lower) is not None)
    return about and not (cues.RULE_HEADING.stands_in(lower) or _MAKES.stands_in(lower))
