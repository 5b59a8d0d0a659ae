"""Seeded texts of the kinds that a conversation carries, and of the kinds that break tokenizers."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator, Mapping

PROSE = """the window of a model holds what it can read at once; when the history grows beyond it
older turns must go, but a call and its result stay together, and the task is never lost. don't
we'll I'VE They're HTTPServer snake_case camelCase v2.0.1 e.g. naïve façade Größe"""
WORDS = tuple(PROSE.split())
CHINESE = (
    "上下文窗口决定模型一次能读多少内容\uff0c超出之后旧消息必须删除或总结。"
    "工具调用与结果要成对保留\uff01"
)
JAPANESE = "トークン数を少なく見積もると、要求は拒否されます。カタカナとひらがなと漢字。"
KOREAN = "컨텍스트가 가득 차면 오래된 도구 결과를 먼저 지웁니다. "
ARABIC = "نافذة السياق تحدد مقدار ما يقرؤه النموذج، وما زاد عنها يُحذف أو يُلخَّص. ١٢٣٤٥ "
HINDI = "संदर्भ की सीमा पार होने पर पुराने संदेश हटाए जाते हैं। उपकरण के परिणाम १२३ साथ रहते हैं। "
THAI = "เมื่อบริบทเต็ม ข้อความเก่าต้องถูกลบหรือสรุป "
RUSSIAN = "Если история не помещается, старые сообщения сокращаются; вызов и ответ вместе. "
EMOJI = "✅ ❌ 🚀 👩‍💻 🇯🇵 ⚠️ 👍🏽 → … “quoted” 𝛼𝛽 1️⃣ "
SPECIAL = ("<|endoftext|>", "<|im_start|>user\n", "<|endofprompt|>", "<|fim_prefix|>", "[INST]")
CODE = '''
    def resolve(self, claims: list[Claim], *, now: float) -> Window | None:
        """Return the narrowest claim that holds."""
        if not claims or claims[0].tokens <= 0:
            raise ValueError(f"{claims!r} is no window")  # TODO(x): explain
\t\treturn min(claims, key=lambda c: (c.tokens, -c.weight))   \r\n
'''
Make = Callable[[random.Random, int], str]


def _drawn(*pieces: str) -> Make:
    return lambda rng, size: "".join(rng.choices(pieces, k=max(1, size // 4)))[:size]


def _cut(text: str) -> Make:
    def make(rng: random.Random, size: int) -> str:
        start = rng.randrange(len(text))
        return (text * (2 + size // len(text)))[start : start + size]

    return make


def _prose(rng: random.Random, size: int) -> str:
    return " ".join(rng.choices(WORDS, k=1 + size // 5))


def _table(rng: random.Random, size: int) -> str:
    rows = [
        {"id": rng.getrandbits(60), "ok": rng.random() < 0.5, "at": rng.random(), "who": "größe"}
        for _ in range(1 + size // 80)
    ]
    return json.dumps(rows, indent=rng.choice((None, 2)), ensure_ascii=rng.random() < 0.5)


def _base64(rng: random.Random, size: int) -> str:
    return base64.b64encode(rng.randbytes(size * 3 // 4)).decode()


def _bytes(rng: random.Random, size: int) -> str:
    return rng.randbytes(size).decode("utf-8", "replace")


def _any_code_point(rng: random.Random, size: int) -> str:
    return "".join(chr(rng.randrange(0x110000)) for _ in range(size))


def _runs(rng: random.Random, size: int) -> str:
    alphabet = " \t\n\r-=_/'a1é中🚀\u00a0\u0301\u3000\0"
    return "".join(rng.choice(alphabet) * rng.randrange(1, 40) for _ in range(1 + size // 20))


KINDS: Mapping[str, Make] = {
    "prose": _prose,
    "code": _cut(CODE),
    "json": _table,
    "chinese": _cut(CHINESE),
    "japanese": _cut(JAPANESE),
    "korean": _cut(KOREAN),
    "arabic": _cut(ARABIC),
    "hindi": _cut(HINDI),
    "thai": _cut(THAI),
    "russian": _cut(RUSSIAN),
    "emoji": _drawn(*EMOJI, " "),
    "mixed": _drawn(*WORDS, CHINESE[:7], HINDI[:9], *EMOJI, "\n", "  ", CODE[:40]),
    "base64": _base64,
    "bytes": _bytes,
    "any code point": _any_code_point,
    "runs": _runs,
    "special tokens": _drawn(*SPECIAL, " x", "\n"),
    "contractions": _drawn("'\u017f", "'s", "'LL", "'", "\u017f", "K", " don't", "it\u2019s", " a"),
    "white space": _drawn(" ", "  ", "\t", "\n", "\r\n", "\u2003", "\u0085", "\x1c", "x", "1"),
    "new in Unicode 17": _drawn(
        "\u088f", "\U000323b0", "\U00016ea0", "\U0001e6f5", "\U0002cea2", "a", " ", "中", "1", "."
    ),
    "new in Unicode 15 and 16": _drawn(
        "\u1c89", "\u1c8a", "\U00031350", "\U00010d41", "\U00011241", "\u0897", "A", "b", " ", "7"
    ),
}


def texts(kind: str, *, count: int, longest: int) -> Iterator[str]:
    """Yield `count` texts of a kind, from a few characters to about `longest`."""
    rng = random.Random(f"{kind}/{count}/{longest}")
    for _ in range(count):
        yield KINDS[kind](rng, round(2 + longest ** rng.random()))
