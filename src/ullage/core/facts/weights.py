"""The weights for the worth of a segment: a small table that `make weights` learns.

docs/weights.md describes how it was learned, and the effect of each weight. This module holds no
word of any language, and reads nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Weights(NamedTuple):
    """The weight of each kind of evidence; `salience` says how they combine.

    - `rarity`: exponent of a word's rarity, from 1 on. A higher value lowers the worth of words
      that are in a few messages.
    - `plain`: limit for the sum of rare words of letters alone.
    - `number`, `signed`, `name`: a rare word with a digit, with a sign inside, with a capital
      letter inside a sentence, relative to one of letters alone.
    - `taken_up`: a rare word that a later message uses.
    - `question`: the asking part of a question, relative to a statement.
    - `worn`: the loss of a segment whose word pairs all came in other messages.
    - `cue`: factor per two points of a sentence's rule cues, above `salience.UNSURE`.
    - `denial`: a denying sentence, relative to an affirming one.
    - `document`, `pasted`: text that may be, or is, somebody else's, relative to a person's own.
    - `bulk`: number of segments of a message above which each is worth less.
    - `length`: exponent of the tokens that divide a segment's worth.
    - `assistant`, `tool`: their text, relative to a person's.
    - `report`: a model's words after its work with tools, relative to its other words.
    """

    rarity: float
    plain: float
    number: float
    signed: float
    name: float
    taken_up: float
    question: float
    worn: float
    cue: float
    denial: float
    document: float
    pasted: float
    bulk: float
    length: float
    assistant: float
    report: float
    tool: float


LEARNED: Final = Weights(
    rarity=3.36,
    plain=12.59,
    number=4.0,
    signed=1.22,
    name=4.0,
    taken_up=1.4,
    question=0.2,
    worn=0.95,
    cue=1.33,
    denial=1.4,
    document=0.5,
    pasted=0.25,
    bulk=14.14,
    length=0.76,
    assistant=0.3,
    report=2.0,
    tool=0.3,
)
