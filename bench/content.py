"""Text as coding agents see it: one function per kind, each `(random, characters) -> text`.

Everything is drawn from the given generator, so the same seed gives the same text. The module does
not know messages.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator, Mapping


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


THINGS = _words(
    """account address archive bucket channel claim column cookie coupon device digest domain draft
    event export feature filter folder grant header import index invoice label lease member metric
    node offer order packet page payment permit pipeline plugin profile quota receipt region report
    route sample schema secret segment signal ticket tenant token upload vendor"""
)
DEEDS = _words(
    """accept append assign bind cancel collect convert deliver detach emit enqueue expire fetch
    freeze group inspect join lock migrate notify pack patch prune publish rebuild reject rename
    replay reserve revoke rotate scan seal split stage store submit sync tally trace unlock"""
)
TRAITS = _words("active broken closed cold empty exact first hidden idle latest local manual open")
PLACES = ("app/billing", "app/web", "app/jobs", "lib/store", "lib/wire", "tests", "scripts", "docs")
ENDINGS = ("py", "py", "py", "ts", "rs", "sql", "yaml", "md")
REMARKS = (
    "The {thing} is {trait} before {place} gets to {deed} it, which is why the check fails.",
    "I will look at {path} before I touch the {thing}.",
    "Only {n} of the {m} cases go through the {trait} {thing}; the others never reach it.",
    "`{deed}_{thing}` returns None there, and the caller takes that for a {trait} {thing}.",
    "The tests for the {thing} pass now; {path} still has {n} warnings.",
    "That can stay as it is: the {thing} belongs to {place} and nobody else may {deed} it.",
    "Before I go on I want to see who else calls `{deed}_{thing}`.",
)
FOREIGN = (
    "请先检查配置文件, 再重新运行测试。如果缓存已经过期, 就不要使用旧的结果。",
    "このモジュールは設定を読み込み、接続を確立してから処理を開始します。",
    "서버가 응답하지 않으면 잠시 기다린 뒤 다시 시도하십시오. ",
    "Проверьте журнал: соединение закрыто до того, как пришёл ответ. ",
    "यह फ़ाइल पहले से मौजूद है, इसलिए नई प्रति नहीं बनाई गई। ",
    "تعذر فتح الملف لأن المسار غير موجود. ",
    "Die Prüfung schlägt fehl, weil der Schlüssel für «Größe» fehlt. ",
)
PICTURES = ("✅ ok ", "❌ failed ", "⚠️ slow ", "🚀 ", "🧵 ", "👩‍🔬 ", "→ ", "… ")

Make = Callable[[random.Random, int], str]


def word(rng: random.Random) -> str:
    """Return the name of a thing."""
    return rng.choice(THINGS)


def path(rng: random.Random) -> str:
    """Return the path of a source file."""
    ending = rng.choice(ENDINGS)
    return f"{rng.choice(PLACES)}/{rng.choice(DEEDS)}_{word(rng)}.{ending}"


def remark(rng: random.Random, template: str) -> str:
    """Fill in a sentence about code."""
    return template.format(
        thing=word(rng),
        trait=rng.choice(TRAITS),
        deed=rng.choice(DEEDS),
        place=rng.choice(PLACES),
        path=path(rng),
        n=rng.randrange(2, 90),
        m=rng.randrange(90, 4_000),
    )


def prose(rng: random.Random, characters: int) -> str:
    """Return an assistant's text between calls."""
    return _grown(lambda: remark(rng, rng.choice(REMARKS)) + " ", characters).rstrip()


def source(rng: random.Random, characters: int) -> str:
    """Return a numbered listing, as file-reading tools return it."""
    lines = _grown_lines(lambda: _function(rng), characters)
    return "\n".join(f"{number:5}|{line}" for number, line in enumerate(lines, 1))


def log(rng: random.Random, characters: int) -> str:
    """Return the lines of a service's log."""
    second = rng.randrange(80_000)

    def line() -> str:
        nonlocal second
        second += rng.randrange(40)
        clock = f"{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"
        level = rng.choice(("INFO", "INFO", "DEBUG", "WARNING", "ERROR"))
        return (
            f"2025-11-{rng.randrange(1, 29):02}T{clock}.{rng.randrange(1000):03}Z {level:7} "
            f"{rng.choice(PLACES)} {rng.choice(DEEDS)} {word(rng)}={rng.getrandbits(48):012x} "
            f"in {rng.uniform(0.2, 800):.1f} ms ({rng.choice((200, 200, 202, 404, 503))})\n"
        )

    return _grown(line, characters)


def run_output(rng: random.Random, characters: int) -> str:
    """Return the output of a test runner."""

    def line() -> str:
        if rng.random() < 0.7:
            marks = "." * rng.randrange(4, 50) + rng.choice(("", "", "F", "s."))
            return f"tests/test_{word(rng)}.py {marks} [{rng.randrange(100):3}%]\n"
        thing, got, wanted = word(rng), rng.randrange(50), rng.randrange(50)
        return (
            f"_____ test_{rng.choice(DEEDS)}_{thing} _____\n\n    def test(self):\n"
            f">       assert {thing}.size == {wanted}\nE       assert {got} == {wanted}\n\n"
            f"{path(rng)}:{rng.randrange(500)}: AssertionError\n"
        )

    summary = f"{rng.randrange(9)} failed, {rng.randrange(800)} passed in {rng.uniform(1, 90):.2f}s"
    return f"{_grown(line, characters)}===== {summary} ====="


def patch(rng: random.Random, characters: int) -> str:
    """Return a unified diff."""

    def hunk() -> str:
        name, start = path(rng), rng.randrange(900)
        body = "".join(
            f"{rng.choice(' +-')}    {word(rng)} = {rng.choice(DEEDS)}({word(rng)}, {start})\n"
            for _ in range(rng.randrange(3, 14))
        )
        return f"--- a/{name}\n+++ b/{name}\n@@ -{start},8 +{start},9 @@\n{body}"

    return _grown(hunk, characters)


def hits(rng: random.Random, characters: int) -> str:
    """Return the results of a search."""
    return _grown(
        lambda: f"{path(rng)}:{rng.randrange(999)}: {rng.choice(DEEDS)}_{word(rng)}({word(rng)})\n",
        characters,
    )


def records(rng: random.Random, characters: int) -> str:
    """Return JSON, half of it indented."""
    rows = [
        {
            "id": f"{rng.getrandbits(96):024x}",
            "kind": word(rng),
            "open": rng.random() < 0.5,
            "weight": round(rng.uniform(0, 100), 4),
            "labels": rng.sample(TRAITS, rng.randrange(4)),
            "path": path(rng),
        }
        for _ in range(1 + characters // 170)
    ]
    return json.dumps({"rows": rows, "more": False}, indent=rng.choice((None, 2)))


def minified(rng: random.Random, characters: int) -> str:
    """Return a bundler's output: one line."""
    letters = "abcdefghijklmnopqrstuvwxyz"

    def chunk() -> str:
        a, b, c = rng.sample(letters, 3)
        return (
            f"var {a}=function({b},{c}){{return {b}.{rng.choice(DEEDS)}?{c}[{rng.randrange(99)}]"
            f':({b}.{word(rng)}="{rng.getrandbits(24):06x}",!{rng.randrange(2)})}};'
        )

    return _grown(chunk, characters)


def encoded(rng: random.Random, characters: int) -> str:
    """Return base64 text, as of a picture or an archive."""
    return base64.b64encode(rng.randbytes(max(12, characters * 3 // 4))).decode()


def foreign(rng: random.Random, characters: int) -> str:
    """Return sentences in Chinese, Japanese, Korean, Russian, Hindi, Arabic and German."""
    return _grown(lambda: rng.choice(FOREIGN), characters)


def chinese(rng: random.Random, characters: int) -> str:
    """Return only Chinese text, for the table by kind."""
    return _grown(lambda: "".join(rng.sample(FOREIGN[0], len(FOREIGN[0]))), characters)


def pictures(rng: random.Random, characters: int) -> str:
    """Return a status report full of emoji."""
    return _grown(lambda: rng.choice(PICTURES) + word(rng) + rng.choice(" \n"), characters)


KINDS: Mapping[str, Make] = {
    "prose": prose,
    "source": source,
    "log": log,
    "test run": run_output,
    "diff": patch,
    "search hits": hits,
    "JSON": records,
    "minified": minified,
    "base64": encoded,
    "Chinese": chinese,
    "seven languages": foreign,
    "emoji": pictures,
}


def _grown(more: Callable[[], str], characters: int) -> str:
    parts, size = [], 0
    while size < characters:
        parts.append(more())
        size += len(parts[-1])
    return "".join(parts)


def _grown_lines(more: Callable[[], Iterator[str]], characters: int) -> list[str]:
    lines: list[str] = []
    size = 0
    while size < characters:
        block = list(more())
        lines += block
        size += sum(map(len, block)) + 7 * len(block)
    return lines


def _function(rng: random.Random) -> Iterator[str]:
    thing, other, deed = word(rng), word(rng), rng.choice(DEEDS)
    yield f"def {deed}_{thing}({other}: {thing.title()}, most: int = {rng.randrange(200)}) -> bool:"
    yield f'    """{remark(rng, rng.choice(REMARKS))}"""'
    yield f"    for entry in {other}.{rng.choice(DEEDS)}(most):"
    yield f"        if entry.{rng.choice(TRAITS)} and entry.{word(rng)} != {rng.randrange(9)}:"
    yield f'            raise LookupError(f"no {thing} for {{entry.{word(rng)}!r}}")'
    yield f"    return bool({other}.{word(rng)})"
    yield ""
