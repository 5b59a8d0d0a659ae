"""What people said outlives compactions, in any language, and more of it than by a plain rule.

The conversations are made of other phrases than those that cues know. A fact stands within a
question about something else, as people put it.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest

import ullage

MODEL = "gpt-4o"
TURNS = 120
PARTS = 6


class Tongue(NamedTuple):
    """Phrases of a language: what is asked, of which topics, what is answered, and the facts."""

    asked: tuple[str, ...]
    topics: tuple[str, ...]
    answers: tuple[str, ...]
    facts: tuple[str, ...]
    space: str = " "


TONGUES = {
    "English": Tongue(
        ("Can you explain how {} works?", "Thanks! Now what about {}?", "Tell me more of {}."),
        ("caching", "indexing", "queues", "logging", "load balancing", "unit tests", "locks"),
        ("In short, {} is widely used, helps a system along, and is worth learning well.",
         "When {} is put to work, speed and upkeep have to be weighed, or it gets complex."),
        ("My sister Mirela lives in Tartu.", "Region for the staging cluster: ap-north-4",
         "I prefer answers with a drawing.", "The van comes on 14 May.", "Our dog eats no chicken.",
         "Kofi pays the invoices now.", "We settled on the oak table.", "My father was a joiner."),
    ),
    "German": Tongue(
        ("Kannst du mir {} erklären?", "Danke! Und was ist mit {}?", "Mehr zu {}, bitte."),
        ("Zwischenspeichern", "Warteschlangen", "Protokollen", "Lastverteilung", "Sperren"),
        ("Kurz gesagt ist {} weit verbreitet, hilft einem System und lohnt das Lernen sehr.",
         "Wer {} einsetzt, muss Tempo und Pflege abwägen, sonst wird es schnell schwierig."),
        ("Meine Tochter Ingrid wohnt in Graz.", "Der Schlüssel liegt bei Herrn Kowalski.",
         "Ich vertrage keine Nüsse.", "Das Angebot gilt bis zum 9. März.", "Opa war Tischler."),
    ),
    "Chinese": Tongue(
        ("请解释一下{}的原理。", "你能告诉我更多关于{}的内容吗?", "谢谢! 那么{}怎么样?"),
        ("缓存", "索引", "垃圾回收", "并发", "日志", "消息队列", "单元测试", "负载均衡"),
        ("{}是一种常见的技术, 它可以提高系统的效率, 并且在很多场景下都非常有用。",
         "在实际项目中, 使用{}时需要注意性能和可维护性之间的平衡。"),
        ("我妹妹李娜住在昆明。", "我对花生过敏。", "我们选了青岛的供应商。", "我父亲是木匠。",
         "预算上限是91万元。", "生产数据库在华北3区。"),
        "",
    ),
    "Japanese": Tongue(
        ("{}について教えてください。", "{}の仕組みがよく分かりません。", "では{}はどうですか?"),
        ("キャッシュ", "索引", "並行処理", "通信", "待ち行列", "単体テスト", "負荷分散"),
        ("{}はよく使われる技術で、システムの効率を高めることができます。",
         "実際の開発では、{}を使うときに性能と保守性のバランスに注意します。"),
        ("妹の美咲は札幌に住んでいます。", "私は甲殻類アレルギーです。", "祖父は大工でした。",
         "締め切りは5月17日に変わりました。"),
        "",
    ),
    "Hindi": Tongue(
        ("कृपया {} के बारे में बताइए।", "{} कैसे काम करता है?", "धन्यवाद! अब {} समझाइए।"),
        ("कैश", "डेटाबेस", "नेटवर्क", "परीक्षण", "लॉग", "कतार"),
        ("{} एक सामान्य तकनीक है जो प्रणाली की दक्षता बढ़ाती है और कई जगह उपयोगी है।",
         "व्यवहार में {} का उपयोग करते समय गति और रखरखाव का संतुलन ज़रूरी है।"),
        ("मेरी बहन अंजलि जयपुर में रहती है।", "चाबी रमेश के पास है।", "बजट 91 हज़ार रुपये है।"),
    ),
    "Arabic": Tongue(
        ("من فضلك اشرح لي {}.", "كيف يعمل {}؟", "شكرا! وماذا عن {}؟"),
        ("الذاكرة", "قاعدة البيانات", "الشبكة", "الاختبار", "السجل"),
        ("تعد {} تقنية شائعة تزيد من كفاءة النظام وهي مفيدة في حالات كثيرة.",
         "عند استخدام {} في المشاريع يجب الانتباه إلى التوازن بين الأداء وسهولة الصيانة."),
        ("أختي ليلى تعيش في عمان.", "المفتاح عند سامي.", "الميزانية 91 ألف دينار."),
    ),
}  # fmt: skip


def converse(tongue: Tongue, seed: int) -> list[dict[str, Any]]:
    """Return a conversation in which each fact is said once, beside a question."""
    drawn = random.Random(seed)
    turns = sorted(drawn.sample(range(1, TURNS - 4), len(tongue.facts)))
    where = dict(zip(turns, tongue.facts, strict=True))
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You help people."}]
    for turn in range(TURNS):
        asked = drawn.choice(tongue.asked).format(drawn.choice(tongue.topics))
        said = asked + tongue.space + where[turn] if turn in where else asked
        answer = [drawn.choice(tongue.answers).format(drawn.choice(tongue.topics)) for _ in "12345"]
        messages.append({"role": "user", "content": said})
        messages.append({"role": "assistant", "content": "\n".join(answer)})
    return messages


def read(messages: Any) -> str:
    return "\n".join(str(message["content"]) for message in messages)


@pytest.mark.parametrize("share", [0.06, 0.1, 0.2])
@pytest.mark.parametrize("name", TONGUES)
def test_facts_outlive_six_compactions_in_any_language(name: str, share: float) -> None:
    tongue = TONGUES[name]
    messages = converse(tongue, 5)
    target = int(ullage.count(messages, model=MODEL).tokens * share)
    step, kept = len(messages) // PARTS, list[Any]()
    for start in range(0, len(messages), step):
        kept += messages[start : start + step]
        if ullage.count(kept, model=MODEL).tokens > target:
            made = ullage.compact(kept, model=MODEL, target_tokens=target)
            kept = list(made.messages)
            assert made.reached
    assert [fact for fact in tongue.facts if fact not in read(kept)] == []


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("name", TONGUES)
def test_no_fewer_facts_are_kept_than_by_the_newest_words_of_people_alone(
    name: str, share: float
) -> None:
    tongue = TONGUES[name]
    messages = converse(tongue, 7)
    target = int(ullage.count(messages, model=MODEL).tokens * share)
    plain = [messages[0], messages[1]]
    for message in reversed(messages[2:]):
        if message["role"] == "user":
            plain.append(message)
            if ullage.count(plain, model=MODEL).tokens > target:
                break
    made = ullage.compact(messages, model=MODEL, target_tokens=target)
    kept = {fact for fact in tongue.facts if fact in read(made.messages)}
    assert kept >= {fact for fact in tongue.facts if fact in read(plain[:-1])}
    assert ullage.count(made.messages, model=MODEL).tokens > 0.85 * target
