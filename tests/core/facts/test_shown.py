"""What somebody asks about is perhaps another's: it lays down nothing, and its words are kept."""

from __future__ import annotations

import pytest

from tests.core.facts.rounds import compact_three_times
from ullage.core.facts.quoting import drop_quoted, read_origins
from ullage.core.facts.segments import split_sentences

SHOWN = {
    "manual": (
        "Here is what the museum handed out. Sum it up in two lines.\n\n"
        "Care of the looms\n\n1. Always oil the frame in the morning.\n2. Never lean on "
        "the beam.\n\n"
        "Threads are to be wound by hand, and every knot has to be shown to the warden."
    ),
    "question": (
        "this hangs on the door of the wash house, may they do that?\n\n"
        "Machines must be wiped after each use. Drying in the attic is never allowed. Every tenant "
        "has to sweep on Fridays."
    ),
    "one line below": (
        "what does this mean for the shop?\n"
        "The lessee must insure all windows. Signs may never cover the gable. Keys are "
        "to be handed "
        "over on the last day."
    ),
    "German": (
        "Das steht im Vertrag vom Fitnessstudio, ist das üblich?\n\n"
        "Handtücher sind stets unterzulegen. Gäste dürfen nie mitgebracht werden. Jedes Mitglied "
        "muss den Spind abends leeren."
    ),
    "Chinese": (
        "这是学校发的通知\uff0c有没有问题\uff1f\n\n"
        "学生一律不得带手机。每天必须穿校服。迟到三次务必通知家长。"
    ),
    "Hindi": ("स्कूल ने यह सूचना दी है, क्या यह ठीक है?\n\nफ़ोन लाना मना है। हर छात्र को वर्दी पहननी होगी।"),
    "prompt": (
        "Is this a good prompt for a bot of the library?\n\n"
        "You are Quill, a calm helper. Always name the shelf. Never recommend a shop."
    ),
}

OWN = {
    "makes": (
        "Help me write this up.\n\n"
        "Keep it under 300 words. Never name the donors. Always in past tense."
    ),
    "speaks": (
        "What about this?\n\n"
        "We never meet on Mondays. Every draft has to go through my sister first."
    ),
    "rules": (
        "These rules hold for this project:\n\n"
        "Never force-push. Always squash. Use tabs in all files of it."
    ),
    "no text": "Does that suit you?",
    "link": (
        "What is this?\nhttps://example.org/pumps\n"
        "Never open the valve. Always wear the gloves of the shop."
    ),
    "review": (
        "Please review the repo.\n\nNever push to main directly. Always use tabs. The port is 8443."
    ),
    "translate": (
        "Translate the docs to French.\n\nNever translate code. Product names stay in English."
    ),
    "explain": (
        "Explain how auth works.\n\nDo not edit any file. Never run the server. Answer in German."
    ),
    "correct": (
        "Correct the tests in tests/.\n\n"
        "Do not change src/api.py. Never skip tests. Sign all commits."
    ),
    "session": (
        "Remember this for the session:\nNever deploy on Fridays. The database stays on port 5433."
    ),
    "beachte": "Bitte beachte das:\n- Niemals nach main pushen\n- Der Port muss 8443 bleiben",
    "voici": (
        "Voici les contraintes:\n- Ne jamais pousser sur main\n- Toujours tester les migrations"
    ),
    "heading": "Review the PR.\n\nRules:\n- never approve without tests\n- all answers in German",
    "works": (
        "Can you check it works?\n\nDon't touch the config. Never run migrations. Keep port 5433."
    ),
    "repository": (
        "Can you review this repository?\n\nNever push to main. Always run the linter before."
    ),
    "matters": (
        "Here's what matters:\n\nNever call before nine. Always answer in French, in one line."
    ),
    "plain": (
        "Never call before nine. Always write in French.\n\n"
        "The shop has two doors. Use the left one."
    ),
    "code": (
        "What does it do?\n```\nx = 1\n```\n"
        "Never change the name of it. Always run the tests before you show it."
    ),
}


def list_shown(text: str) -> list[str]:
    return [line.text for line in read_origins(text) if line.origin == "shown" and line.text]


@pytest.mark.parametrize("name", SHOWN)
def test_a_text_that_is_asked_about_lays_down_nothing(name: str):
    text = SHOWN[name]
    assert drop_quoted(text).strip() == text.splitlines()[0]


@pytest.mark.parametrize("name", OWN)
def test_who_asks_for_something_or_speaks_lays_down_rules(name: str):
    assert list_shown(OWN[name]) == []


@pytest.mark.parametrize("name", SHOWN)
def test_through_three_compactions_it_is_no_rule(name: str):
    said = [
        {"role": "user", "content": "Advise me on the small things of my shop."},
        {"role": "assistant", "content": "Gladly."},
        {"role": "user", "content": "You must always keep the drawer 8123 shut."},
        {"role": "assistant", "content": "I will."},
        {"role": "user", "content": SHOWN[name]},
        {"role": "assistant", "content": "It asks for care."},
    ]
    laid = split_sentences(SHOWN[name].splitlines()[-1])
    block = compact_three_times(said)
    rules = block.split("Rules and decisions")[1].split("Said by the user")[0]
    assert "8123" in rules
    assert not any(sentence in rules for sentence in laid)
    if list_shown(SHOWN[name]):  # the others have traces of another hand
        assert any(sentence in block for sentence in laid)
