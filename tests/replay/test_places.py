"""Where sessions lie: files, folders, conversations a line, logs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import ullage
from tests.replay.recording import save
from ullage import importers
from ullage.core.errors import ConfigurationError
from ullage.core.session.log.event import Draft
from ullage.replay.places import list_log, list_places, load_place
from ullage.storage import ndjson


def test_a_folder_holds_sessions_at_any_depth_each_once(tmp_path: Path) -> None:
    one, two = save(tmp_path, "one.json", 10), save(tmp_path / "deep" / "er", "two.json", 12)
    (tmp_path / "notes.txt").write_text("nothing")
    found = list_places([tmp_path, one])
    assert sorted(place.name for place in found) == sorted([str(one), str(two)])
    assert all(place.size > 1_000 for place in found)


def test_conversations_a_line_are_sessions_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "trajectories.jsonl"
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"task {n}"},
                {"role": "assistant", "content": "é"},
            ]
        }
        for n in range(3)
    ]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n\n")
    places = list_places([path])
    assert len(places) == 3
    loaded = [load_place(place.name) for place in places]
    assert [session.messages[0]["content"] for session in loaded] == ["task 0", "task 1", "task 2"]
    assert [place.name for place in list_places([places[1].name])] == [places[1].name]


def test_requests_of_one_conversation_stay_one_session(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    history = [{"role": "user" if n % 2 == 0 else "assistant", "content": str(n)} for n in range(6)]
    path.write_text("".join(json.dumps({"messages": history[: n + 1]}) + "\n" for n in (0, 2, 4)))
    assert [place.name for place in list_places([path])] == [str(path)]
    for lines in (
        ["not json"],
        [json.dumps({"messages": []})] * 2,
        ["[1]", "[2]"],
        [json.dumps(5)] * 2,
    ):
        path.write_text("\n".join(lines))
        assert [place.name for place in list_places([path])] == [str(path)]


def test_sessions_of_ullages_own_are_read_from_the_log_and_from_an_export(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    log = ullage.open_log(url)
    with ullage.Session.create(log, "cellar") as session:
        session.record([Draft("user_message", {"text": "How full?"})])
    log.close()
    (place,) = list_log(url)
    assert place.name == f"log:cellar@{url}"
    loaded = load_place(place.name)
    assert (loaded.id, loaded.source) == ("cellar", "ullage")
    assert loaded.messages == ({"role": "user", "content": "How full?"},)
    assert list_places([place.name])[0].name == place.name
    log = ullage.open_log(url)
    exported = tmp_path / "cellar.ndjson"
    exported.write_bytes(b"".join(ndjson.lines(log.read("cellar"))))
    log.close()
    assert load_place(str(exported)).messages == loaded.messages


def test_files_of_programs_are_read_as_their_importers_read_them() -> None:
    assert load_place(str(importers.SAMPLE)).source == "claude"
    assert load_place(str(importers.SAMPLE), "claude").model == "claude-sonnet-4-5"


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not there: give a session file"):
        list_places([tmp_path / "gone.json"])
    with pytest.raises(ConfigurationError, match="no session is in"):
        list_places([tmp_path])
    with pytest.raises(ConfigurationError, match="no session is in nothing"):
        list_places([])


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="there on Linux alone")
def test_a_file_that_cannot_be_read_ends_no_listing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to("/proc/self/mem")  # opens, and reading it fails
    save(tmp_path, "b.json", 10)
    names = [place.name for place in list_places([tmp_path])]
    assert names == [str(tmp_path / "a.jsonl"), str(tmp_path / "b.json")]


def test_a_file_may_be_called_like_a_line_of_another(tmp_path: Path) -> None:
    for name in ("a #bytes=1-20.json", "b#bytes=1-20"):
        path = save(tmp_path, name, 10)
        (place,) = list_places([path])
        assert (place.name, place.size) == (str(path), path.stat().st_size)
        assert len(load_place(place.name).messages) == 10
    path = tmp_path / "c#bytes=0-1.jsonl"
    lines = [{"messages": [{"role": "user", "content": f"task {n}"}] * 2} for n in range(2)]
    path.write_text("\n".join(map(json.dumps, lines)))
    loaded = [load_place(place.name) for place in list_places([path])]
    assert [session.messages[0]["content"] for session in loaded] == ["task 0", "task 1"]
    with pytest.raises(ConfigurationError, match="is not there"):
        list_places([f"{path}#bytes=0-x"])


def test_a_session_has_one_name_from_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, "one.json", 10)
    monkeypatch.chdir(tmp_path)
    assert [place.name for place in list_places(["one.json", "./one.json", path])] == [str(path)]


def test_compressed_sessions_are_read_and_compressed_collections_are_named(tmp_path: Path) -> None:
    path = save(tmp_path, "one.json", 10)
    packed = tmp_path / "two.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert load_place(str(packed)).messages == load_place(str(path)).messages
    lines = [{"messages": [{"role": "user", "content": f"task {n}"}] * 2} for n in range(2)]
    many = tmp_path / "many.jsonl.gz"
    many.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    with pytest.raises(ConfigurationError, match="a conversation a line and is compressed: decom"):
        load_place(str(many))
    many.write_bytes(many.read_bytes()[:-20])
    with pytest.raises(ConfigurationError, match="cannot be decompressed"):
        load_place(str(many))


def test_a_logged_session_may_have_any_name(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log@home.db'}"
    log = ullage.open_log(url)
    for name in ("a@b", "mail:me@host"):
        with ullage.Session.create(log, name) as session:
            session.record([Draft("user_message", {"text": name})])
    log.close()
    loaded = [load_place(place.name) for place in list_log(url)]
    assert {session.id for session in loaded} == {"a@b", "mail:me@host"}
    with pytest.raises(ConfigurationError, match="names no session of a log: give log:NAME@URL"):
        load_place("log:cellar")
