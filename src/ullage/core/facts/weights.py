"""The weights by which a segment is worth keeping: a small table that `make weights` learns.

docs/weights.md says how it was learned, and what each weight does to what is kept. It holds no
word of any language, and reads nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Weights(NamedTuple):
    """What each kind of evidence counts; `salience` says how they work together.

    `rarity`: the power of a word's rarity that counts, from 1 on: the higher, the less of what is
    in a few messages. `plain`: what rare words of letters alone come to at most. `number`,
    `signed`, `name`: a rare word with a digit, with a sign within, with a capital letter where no
    sentence begins, beside one of letters alone. `taken_up`: a rare word that a later message uses.
    `question`: what asks in a question, beside what tells. `worn`: how much a segment loses whose
    every pair of words came in other messages. `cue`: how much each two points of a sentence's cues
    of a rule count, from `salience.UNSURE` on. `denial`: what says that something is not so, beside
    what says that it is. `document`, `pasted`: what may be, and what is, somebody else's text
    beside a person's own. `bulk`: segments of a message from which on each is worth less. `length`:
    to which power the tokens of a segment divide its worth. `assistant`, `tool`: their text beside
    a person's. `report`: what a model says behind its work with tools, beside its other words.
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
