"""`ullage docs`: a real process that serves a zip to this machine, and to nobody else."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import webbrowser
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import ullage
from ullage.cli import site
from ullage.cli.docs import find_page
from ullage.cli.main import main
from ullage.core.errors import ConfigurationError

FILES = {
    "index.html": b"<p>first</p>",
    "proxy.html": b"<p>proxy</p>",
    "howto/ollama.html": b"<p>ollama</p>",
    "concepts/log.html": b"<p>a log</p>",
    "design/log.html": b"<p>a log again</p>",
    "404.html": b"<p>no such page</p>",
    "site.css": b"p {}",
}
NAMES = sorted(name.removesuffix(".html") for name in FILES if name.endswith(".html"))


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package beside nothing, whose documentation is a small zip."""
    package = tmp_path / "lib" / "ullage"
    package.mkdir(parents=True)
    path = package / "docs.zip"
    with zipfile.ZipFile(path, "w") as opened:
        for name, body in FILES.items():
            opened.writestr(name, body)
    monkeypatch.setattr(ullage, "__file__", str(package / "__init__.py"))
    return path


@pytest.fixture
def served() -> Iterator[int]:
    with site.SiteServer(("127.0.0.1", 0), FILES) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def ask(port: int, path: str, method: str = "GET", host: str = "") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    told = answer.status, answer.headers.get("Content-Type", ""), answer.read()
    connection.close()
    return told


def test_files_are_served_by_their_names_and_kinds(served: int) -> None:
    assert ask(served, "/") == (200, "text/html; charset=utf-8", FILES["index.html"])
    assert ask(served, "/proxy.html?q=1")[2] == FILES["proxy.html"]
    assert ask(served, "/site.css") == (200, "text/css; charset=utf-8", b"p {}")
    assert ask(served, "/proxy.html", "HEAD")[2] == b""
    assert ask(served, "/proxy.html", host="localhost:1")[0] == 200


@pytest.mark.parametrize("path", ["/../proxy.html", "/%2e%2e/etc/passwd", "/howto/"])
def test_nothing_but_a_name_in_the_zip_is_found(served: int, path: str) -> None:
    assert ask(served, path)[0] == 404
    assert ask(served, path)[2] == FILES["404.html"]


def test_other_hosts_and_other_methods_are_refused(served: int) -> None:
    assert ask(served, "/", host="evil.example")[0] == 403
    assert ask(served, "/", "POST")[0] == 501


def test_a_browser_is_told_to_load_nothing_from_elsewhere(served: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served, timeout=20)
    connection.request("GET", "/")
    answer = connection.getresponse()
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'")
    assert "http" not in policy
    connection.close()


def test_a_browser_that_goes_away_is_no_news_and_a_bug_is(
    served: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for told, said in ((BrokenPipeError("gone"), ""), (RuntimeError("a bug"), "a bug")):

        def fail(_: site.SiteHandler, told: Exception = told) -> None:
            raise told

        monkeypatch.setattr(site.SiteHandler, "do_HEAD", fail)
        with pytest.raises(http.client.RemoteDisconnected):
            ask(served, "/", "HEAD")
        assert said in capfd.readouterr().err if said else capfd.readouterr().err == ""


def test_a_page_is_found_by_its_name_or_by_the_end_of_it() -> None:
    assert find_page("", NAMES) == ""
    assert find_page("proxy.md", NAMES) == "proxy"
    assert find_page("howto/ollama", NAMES) == find_page("ollama", NAMES) == "howto/ollama"
    with pytest.raises(ConfigurationError, match=r"choose from concepts/log, design/log"):
        find_page("log", NAMES)
    with pytest.raises(ConfigurationError, match="did you mean 'proxy'"):
        find_page("proxi", NAMES)
    with pytest.raises(ConfigurationError, match="see --list"):
        find_page("zzzz", NAMES)


@pytest.mark.usefixtures("archive")
def test_the_pages_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "--list"]) == 0
    listed = capsys.readouterr().out.split()
    assert listed == ["concepts/log", "design/log", "howto/ollama", "index", "proxy"]


@pytest.mark.usefixtures("archive")
def test_a_browser_is_opened_at_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []

    def interrupt(_: site.SiteServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(site.SiteServer, "serve_forever", interrupt)
    assert main(["docs", "proxy"]) == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/proxy\.html", opened[0])
    assert "no browser was found" in capsys.readouterr().err


def test_an_installation_without_pages_says_how_to_get_them(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.write_bytes(b"no zip")
    assert main(["docs"]) == 1
    assert "docs.zip cannot be read" in capsys.readouterr().err
    archive.unlink()
    assert main(["docs"]) == 1
    said = capsys.readouterr().err
    assert "released wheel; in a checkout run `make site` and `.venv/bin/ullage docs`, or" in said
    (archive.parents[2] / "docs").mkdir()
    archive.parents[2].joinpath("src").mkdir()
    archive.parent.rename(archive.parents[2] / "src" / "ullage")
    monkeypatch.setattr(
        ullage, "__file__", str(archive.parents[2] / "src" / "ullage" / "__init__.py")
    )
    assert main(["docs", "--list"]) == 1
    assert "run `make site`, which builds it, or read docs/" in capsys.readouterr().err


def test_a_port_that_is_taken_is_an_error(
    archive: Path, served: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert archive.is_file()
    assert main(["docs", "--print", "--port", str(served)]) == 1
    assert "choose another by --port" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="SIGINT is sent to the process")
def test_a_process_prints_its_address_serves_and_ends_at_an_interrupt(tmp_path: Path) -> None:
    code = (
        "import sys, ullage; from pathlib import Path; ullage.__file__ = sys.argv[1]; "
        "from ullage.cli.main import main; sys.exit(main(['docs', '--print', 'proxy']))"
    )
    place = tmp_path / "lib" / "ullage"
    place.mkdir(parents=True)
    with zipfile.ZipFile(place / "docs.zip", "w") as opened:
        opened.writestr("proxy.html", "<p>proxy</p>")
    command = [sys.executable, "-c", code, str(place / "__init__.py")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/proxy\.html", child.stderr.readline())
        assert found
        assert ask(int(found[1]), "/proxy.html")[2] == b"<p>proxy</p>"
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=20) == 0
