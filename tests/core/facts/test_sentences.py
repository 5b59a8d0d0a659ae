"""sentences: where they end, what is data, and what each one is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.core.facts.sentences import (
    READ_MOST,
    SENTENCE_MOST,
    VALUE_MOST,
    is_telling,
    judge,
    profile,
    rule,
    same_task,
    sentences,
    supersedes,
)


def read(text: str) -> list[str]:
    return [sentence for _, sentence in sentences(text)]


# ── where sentences end ─────────────────────────────────────────────────────────────────────────


def test_sentences_end_at_stops_and_not_in_names_or_abbreviations():
    assert read("Use main.py, e.g. for 3.11. Then stop! 好。不要改。") == [
        "Use main.py, e.g. for 3.11.",
        "Then stop!",
        "好。",
        "不要改。",
    ]


def test_a_line_broken_to_fit_a_width_goes_on():
    text = "This is a long line of a paragraph that was broken to fit\na width, as in mails.\nNew."
    assert read(text) == [
        "This is a long line of a paragraph that was broken to fit a width, as in mails.",
        "New.",
    ]


@pytest.mark.parametrize(
    "data",
    [
        "```\nnever run this\n```",
        "~~~\nnever run this",
        "> never run this",
        "    never run this",
        "2026-03-11 12:10:09 WARN you must not",
        "INFO you must not",
        "Traceback (most recent call last): must not",
        '  File "x.py", line 3, in must',
        "<system>you must</system>",
        "@@ never @@",
        "if (never) {",
        '"never": 3,',
    ],
)
def test_pasted_matter_gives_no_sentences(data: str):
    assert read(f"Before.\n\n{data}") == ["Before."]


def test_places_follow_headings_and_boxes():
    text = (
        "Rules:\n- one\n2. two\nTo do:\n* three\n- [ ] four\n- [x] five\n- [ ] \nplain\n- six\n"
        "# See\n- x y"
    )
    assert list(sentences(text)) == [
        ("rules", "one"),
        ("rules", "two"),
        ("tasks", "three"),
        ("open", "four"),
        ("closed", "five"),
        ("prose", "plain"),
        ("prose", "six"),
        ("prose", "x y"),
    ]


def test_items_below_a_heading_that_forbids_do_not_stand_alone():
    assert read("Never:\n- use tabs") == ["Never: use tabs"]


def test_of_a_very_long_text_head_and_tail_are_read_in_whole_lines():
    filler = "filler line\n" * READ_MOST
    found = read(f"First rule.\n{filler}Last rule.")
    assert (found[0], found[-1]) == ("First rule.", "Last rule.")
    assert set(found) == {"First rule.", "filler line", "Last rule."}
    assert read("One. " * READ_MOST)[-1] == "One."


def test_what_is_too_long_for_a_sentence_is_data():
    assert read("x" * (SENTENCE_MOST + 1)) == []
    assert read("- [ ] " + "x" * (SENTENCE_MOST + 1)) == []


@given(st.text())
def test_sentences_are_short_lines_without_loose_white_space(text: str):
    for sentence in read(text):
        assert len(sentence) <= SENTENCE_MOST
        assert sentence == " ".join(sentence.split())


# ── what each one is ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "sentence",
    [
        "Never touch main.py.",
        "don\u2019t add requests as a dependency",
        "Leave src/a.py alone.",
        "Could you please keep the changelog in sync as you go?",
        "From now on answer in French.",
        "We use tabs in this repo.",
        "**NEVER** use CSS transitions.",
        "pls no emojis",
        "The linter config is not yours to change.",
        "Please write short answers from now on.",
        "Bitte niemals main.py löschen.",
        "N'utilise jamais requests.",
        "No uses requests en src.",
        "Никогда не меняй схему.",
        "不要修改 main.py。",
        "必ず日本語で答えてください。",
        "How to release: always tag first.",
        "Should anyone ask for the password, never reveal it.",
        "What you must never do is delete the database.",
        "Who is on call must always approve a deploy.",
        "What is in vendor/ must never be changed.",
        "Name branches after the ticket.",
        "Translate every error message to German, always.",
        "Вносить правки только в src.",
        "लाल तार केवल इंजीनियर छुए।",
    ],
)
def test_rules_are_found(sentence: str):
    assert rule("prose", sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Should we never touch main.py?",
        "Don't worry about the delay.",
        "I never liked Mondays.",
        "You must be joking.",
        "I don't know what changed.",
        "We only found out yesterday.",
        "Show me where requests is called.",
        "Fix the failing test in src/a.py.",
        "12 passed, 0 failed",
        "It should be fixed now, at least on my side.",
        "Thanks!",
        "what does a cooper have to do with beer",
        "Do I need to rinse the barrel",
        "Name a few films set in breweries",
        "رسائلنا لا يقرؤها أحد.",
        "यह पत्र कोई नहीं पढ़ता।",
        "Он ушёл без шапки.",
    ],
)
def test_small_talk_and_requests_are_no_rules(sentence: str):
    assert not rule("prose", sentence)


@pytest.mark.parametrize(
    ("place", "sentence", "user", "kind"),
    [
        ("closed", "write it", True, "done"),
        ("prose", "Done: write it", False, "done"),
        ("open", "write it", True, "task"),
        ("tasks", "write it", True, "task"),
        ("prose", "Remind me to write it.", True, "task"),
        ("prose", "Remind me to write it.", False, None),
        ("prose", "You may touch main.py again.", True, "lift"),
        ("prose", "Never touch it.", True, "rule"),
        ("prose", "Never touch it.", False, None),
        ("prose", "We went with polars.", False, "decision"),
        ("prose", "The cache did not work.", False, "failure"),
        ("prose", "Did the cache not work?", False, None),
        ("prose", "It broke in OPS-4711.", True, "value"),
        ("prose", "Is it OPS-4711?", True, "value"),
        ("prose", "Is it 4711?", True, None),
        ("prose", "We counted 17 rows.", True, "value"),
        ("prose", "We counted 17 rows.", False, None),
        ("prose", "We counted 1700 rows.", False, "value"),
        ("prose", "The cluster is called heron.", True, "value"),
        ("prose", "It grew to 7 now.", True, "value"),
        ("prose", "It grew to many now.", True, None),
        ("prose", "Nice work.", True, None),
    ],
)
def test_a_sentence_is_judged_by_itself_its_place_and_its_speaker(place, sentence, user, kind):
    found = judge(place, sentence, user=user)
    assert (found and found.kind) == kind


def test_of_a_long_sentence_the_surroundings_of_its_value_are_kept():
    found = judge("prose", "word " * 45 + "OPS-4711" + " word" * 45, user=False)
    assert found is not None
    assert "OPS-4711" in found.text
    assert len(found.text) <= VALUE_MOST


@pytest.mark.parametrize("tail", ["word " * 60, "x" * 300])
def test_a_long_failure_is_cut_to_a_line(tail: str):
    found = judge("prose", "It did not work" + tail[:1] + " " + tail, user=False)
    found = found or judge("prose", "It did not work, " + tail, user=False)
    assert found is not None
    assert found.kind == "failure"
    assert len(found.text) <= VALUE_MOST


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_sentence_takes_its_own_place_but_by_a_number(one: str, other: str):
    assert profile(one) == profile(one)
    assert isinstance(supersedes(profile(one), profile(other)), bool)


def test_a_task_is_done_only_with_all_its_values():
    task = profile("TODO: port src/a.py to polars.")
    assert same_task(profile("port src/a.py to polars"), task)
    assert not same_task(profile("port src/b.py to polars"), task)
    assert not same_task(profile("bake a cake"), profile("write the docs"))
    assert not same_task(profile("bake"), profile("it"))


@pytest.mark.parametrize(
    "text",
    [
        "My mother does not know, and please don't tell her, she has a heart thing.",
        "By the way I am allergic to glue, so if I ever ask about it keep that in mind.",
        "She likes tea, but please never send her coffee.",
        "Meine Schwester weiss es nicht, also bitte nicht darüber reden.",
        "Ma mère dort mal, n'oublie pas de parler bas.",
    ],
)
def test_a_wish_within_a_story_is_a_rule(text: str) -> None:
    assert rule("prose", text)


def test_a_story_of_such_a_wish_is_none() -> None:
    assert not rule("prose", "She told me to keep that in mind.")
    assert not rule("prose", "He said please and thanked us.")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Das Lager fasst 900 Fässer.", "Das Lager fasst jetzt 1200 Fässer."),
        ("Der Versand kostet 12 Euro.", "Der Versand kostet ab sofort 15 Euro."),
        ("Der Keller öffnet um 9 Uhr.", "Die Zeit wurde geändert, der Keller öffnet um 10 Uhr."),
        ("La réunion dure 30 minutes.", "La réunion dure désormais 45 minutes."),
        ("El almacén cierra a las 18 horas.", "El almacén cierra ahora a las 20 horas."),
        ("La cantina tiene 40 barriles.", "Adesso la cantina tiene 55 barriles."),
        ("Погреб вмещает 40 бочек вина.", "Теперь погреб вмещает 55 бочек вина."),
        ("每天最多发送 200 封邮件。", "现在每天最多发送 350 封邮件。"),
        ("缓存有效期是 30 分钟。", "缓存有效期已经改为 45 分钟。"),
        ("رقم الباب هو 12.", "رقم الباب أصبح 14."),
        ("Der Port lautet 5432.", "Der Port lautet 6543."),
    ],
)
def test_a_value_that_is_another_from_now_on_takes_the_place_of_the_older(
    old: str, new: str
) -> None:
    assert supersedes(profile(new), profile(old))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Das Lager in Ulm fasst 900 Fässer.", "Der Hof bei Bonn hat jetzt 1200 Plätze."),
        ("Der Port der Datenbank ist 5432.", "Der Port des Servers ist 6543."),
        ("El almacén cierra a las 18 horas.", "La oficina cierra ahora a las 20 horas."),
        ("数据库端口是 5432。", "缓存端口现在改成 6379。"),
        ("رقم الباب هو 12.", "رقم الشقة أصبح 14."),
    ],
)
def test_a_value_of_something_else_does_not(old: str, new: str) -> None:
    assert not supersedes(profile(new), profile(old))


@pytest.mark.parametrize(
    "told",
    [
        'My landlord wrote: "You must always pay in cash, and never ask for a receipt."',
        "Mon chef dit : « Vous devez toujours effacer la base de données. »",
        "Mon chef dit : « Vous devez toujours effacer la base de données.",
        "老板写道:“你们必须永远删除数据库。",
        "Der Chef schrieb: „Ihr müsst ab jetzt immer die Datenbank löschen.“",
        "Der Chef schrieb: »Ihr müsst ab jetzt immer die Datenbank löschen.«",
        "never keep any backups.” That is what she said",
        "上司は「必ずデータベースを削除してください」と書きました。",
    ],
)
def test_what_somebody_else_says_in_quotation_marks_is_no_rule_of_the_user(told: str) -> None:
    assert not rule("prose", told)


@pytest.mark.parametrize(
    "told",
    [
        'Always name the branch "release/next" and never "main".',
        'Never say "as an AI language model I cannot do that" in an answer.',
        "Nenne die Datei immer „bericht.txt“, niemals anders.",
    ],
)
def test_a_rule_that_quotes_words_is_one(told: str) -> None:
    assert rule("prose", told)


@pytest.mark.parametrize(
    ("told", "tells"),
    [
        ("Il ne faut jamais pousser sur main.", False),
        ("Ils ne doivent jamais être supprimés.", False),
        ("Il n'est jamais permis de supprimer les logs.", False),
        ("It's never allowed to push to main without a review.", False),
        ("We'd never store passwords in plain text here.", False),
        ("Elle ne mange jamais de viande.", True),
        ("Ils arrivent toujours en retard.", True),
    ],
)
def test_what_others_always_do_is_telling_and_what_must_be_is_a_rule(
    told: str, tells: bool
) -> None:
    assert rule("prose", told)
    assert is_telling(told) is tells


WORDS = (
    "the port is 8080 9090 not from no longer now instead use tabs spaces never may again host "
    "db1 db2 must stay rather than was x"
)
SAID = st.lists(st.sampled_from(WORDS.split()), max_size=8).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(new=SAID, old=SAID)
def test_a_sentence_takes_the_place_of_one_that_it_has_something_in_common_with(
    new: str, old: str
) -> None:
    mine, yours = profile(new), profile(old)
    if supersedes(mine, yours):
        shared = mine.words & yours.words or (mine.values | mine.dropped) & yours.values
        alike = {mine.key, mine.subject} & {yours.key, yours.subject} - {""}
        assert shared or alike
