"""OpenCode's older folders, exported files, and where all of it is looked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw
import orjson
import pytest

from tests.harness.opencode_stored import (
    Db,
    answered,
    asked,
    counters,
    decoded,
    everything,
    kinds,
    lines,
    notes,
    read,
    said,
    source,
)
from turnlog.errors import UnavailableError
from turnlog.harness.opencode import storage
from turnlog.harness.opencode.reader import READER
from turnlog.harness.reading import Passage

Json = dict[str, Any]


class Folder:
    """A storage folder under a test's hand. ``old``: the first layout."""

    def __init__(self, path: Path, *, old: bool = False) -> None:
        self.path, self._old = path, old
        self._clock = 1_700_000_000_000_000_000
        for name in ("session/info", "session/message", "session/part") if old else ("session", "message", "part"):
            (path / name).mkdir(parents=True)

    def put(self, name: str, value: Json | bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else orjson.dumps(value, option=orjson.OPT_INDENT_2))
        return path

    def session(self, name: str, created: int = 1000, **more: Any) -> Path:
        value = {"id": name, "title": "t", "directory": "/r/app", "time": {"created": created, "updated": created}}
        where = f"session/info/{name}.json" if self._old else f"session/prj/{name}.json"
        return self.put(where, {"version": "1.1.65", "projectID": "prj", **value, **more})

    def message(self, session: str, name: str, value: Json) -> Path:
        base = "session/message" if self._old else "message"
        return self.put(f"{base}/{session}/{name}.json", {"id": name, "sessionID": session, **value})

    def part(self, session: str, message: str, name: str, value: Json) -> Path:
        where = f"session/part/{session}/{message}" if self._old else f"part/{message}"
        return self.put(f"{where}/{name}.json", {"id": name, "sessionID": session, "messageID": message, **value})

    def turn(self, session: str, number: int, at: int, text: str = "hi", **answer: Any) -> None:
        """Store what ``Db.turn`` stores."""
        user, reply = f"msg_{session}_{number}a", f"msg_{session}_{number}b"
        self.message(session, user, asked(at))
        self.part(session, user, f"prt_{user}", {"type": "text", "text": f"ask {number}"})
        self.message(session, reply, answered(user, at + 10, **answer))
        self.part(session, reply, f"prt_{reply}", said(text))


def found(variables: dict[str, str], *roots: Path) -> list[str]:
    return [each.path for each in READER.discover(variables, roots)]


@pytest.mark.parametrize("old", [False, True])
def test_a_folder_gives_the_receipts_the_database_gives_so_one_of_them_is_known(tmp_path: Path, old: bool) -> None:
    folder = Folder(tmp_path / "storage", old=old)
    db = Db(tmp_path / "opencode.db")
    folder.session("s1")
    db.session("s1", version="1.1.65")
    for number in range(3):
        folder.turn("s1", number, 1000 + number * 100, tokens=counters(10, 5, 2))
        db.turn("s1", number, 1000 + number * 100, tokens=counters(10, 5, 2))
    db.turn("s1", 3, 1900, tokens=counters(10, 5, 2))
    one, other = read(folder.path), read(db.path)
    receipts = [
        {(each.turn, each.kind, each.payload, each.call) for each in each_one.found} for each_one in (one, other)
    ]
    assert receipts[0] < receipts[1]
    assert everything(one, other) == everything(other, one) == everything(other)
    assert everything(other)["input_tokens"] == 40
    assert everything(one)["input_tokens"] == 30


def test_what_only_the_folder_has_and_what_only_the_database_has_both_count(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "storage")
    db = Db(tmp_path / "opencode.db")
    folder.session("s1")
    folder.turn("s1", 1, 1000)
    db.session("s2")
    db.turn("s2", 1, 5000)
    assert everything(read(folder.path), read(db.path))["streams"] == 2


def test_a_project_names_the_root(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "storage")
    folder.session("s1")
    folder.put("project/prj.json", {"id": "prj", "worktree": "/r/app"})
    assert [(each.root, each.cwd, each.title) for each in read(folder.path).facts] == [("/r/app", "/r/app", "t")]


def test_only_objects_that_changed_come_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "storage")
    folder.session("s1")
    folder.turn("s1", 1, 1000)
    folder.message("s1", "m8", asked(3000))
    folder.message("s1", "m9", answered("m8", 3010, completed=None, tokens=counters(0, 0)))
    first = lines(folder.path)
    cursor = first[-1][1]
    assert lines(folder.path, cursor) == []
    folder.message("s1", "m9", answered("m8", 3010, tokens=counters(7, 7)))
    again = lines(folder.path, cursor)
    assert [(line["table"], line["id"]) for line in (orjson.loads(raw) for raw, _ in again)] == [
        ("message", "m9"),
        ("turn", "m8"),
    ]
    reading = decoded([raw for raw, _ in (*first, *again)])
    assert everything(reading)["input_tokens"] == 107
    assert lines(folder.path, again[-1][1]) == []


def test_an_object_that_is_half_written_is_a_problem_and_comes_whole_later(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "storage")
    folder.session("s1")
    folder.turn("s1", 1, 1000)
    folder.put("message/s1/m9.json", b'{"id":"m9","role":"assis')
    first = lines(folder.path)
    reading = decoded([raw for raw, _ in first])
    assert [(each.kind, each.session) for each in reading.troubles] == [("bad_json", "s1")]
    assert everything(reading)["streams"] == 1
    folder.message("s1", "m9", answered("msg_s1_1a", 2000))
    assert everything(reading, decoded([raw for raw, _ in lines(folder.path, first[-1][1])]))["streams"] == 2


def test_an_id_inside_an_object_beats_the_name_of_its_file(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "storage")
    folder.session("s1")
    folder.put("message/s1/msg_0001.json", {"id": "u", "sessionID": "s1", **asked(1)})
    folder.put("message/s1/msg_0002.json", {"id": "a", "sessionID": "s1", **answered(None, 2)})
    folder.put("part/a/001.json", {"type": "text", "text": "in its folder", "time": {"end": 1}})
    folder.put("part/p.json", {"messageID": "a", "id": "p", "type": "text", "text": "loose", "time": {"end": 1}})
    reading = read(folder.path)
    assert kinds(reading, "u") == ["completed", "output", "started", "usage"]
    assert [each.passages[0].text for each in reading.spoken] == ["in its folder", "loose"]


def test_messages_with_their_text_inside_and_messages_of_the_first_releases(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "storage")
    folder.put("message/s1/m1.json", {"id": "m1", "type": "user", "text": "why", "time": {"created": 1}})
    model = {"providerID": "p", "modelID": "model-a"}
    times = {"created": 2, "completed": 3}
    block = {"type": "text", "text": "so"}
    value = {
        "id": "m2",
        "type": "assistant",
        "model": model,
        "tokens": counters(5, 1),
        "time": times,
        "content": [block],
    }
    folder.put("message/s1/m2.json", value)
    said_so = [{"type": "text", "text": "and?"}]
    first = {"id": "m3", "role": "user", "parts": said_so, "metadata": {"time": {"created": 4}, "sessionID": "s1"}}
    call = {"toolName": "bash", "args": {"command": "ls"}, "result": "a"}
    assistant = {"modelID": "model-a", "providerID": "p", "cost": 0.1, "tokens": counters(6, 2), "system": ["long"]}
    metadata = {"time": {"created": 5, "completed": 6}, "sessionID": "s1", "assistant": assistant}
    parts = [{"type": "tool-invocation", "toolInvocation": call}, {"type": "text", "text": "thus"}]
    folder.put("message/s1/m3.json", first)
    folder.put("message/s1/m4.json", {"id": "m4", "role": "assistant", "parts": parts, "metadata": metadata})
    reading = read(folder.path)
    assert everything(reading)["input_tokens"] == 11
    assert [(each.turn, each.kind) for each in reading.found if each.kind == "usage"] == [
        ("m1", "usage"),
        ("m3", "usage"),
    ]
    assert b"long" not in b"".join(each.payload.encode() for each in reading.found)
    assert [passage for each in reading.spoken for passage in each.passages] == [
        Passage("user", "why"),
        Passage("assistant", "so"),
        Passage("user", "and?"),
        Passage("tool_input", '{"command":"ls"}', "bash"),
        Passage("tool_output", "a", "bash"),
        Passage("assistant", "thus"),
    ]
    assert notes(reading) == ["unknown:s1:m1", "unknown:s1:m3"]  # no finish: how they ended, nobody wrote down


def test_an_export_gives_the_receipts_the_database_gives(tmp_path: Path) -> None:
    db = Db(tmp_path / "opencode.db")
    db.session("s1")
    db.turn("s1", 1, 1000)
    reply = {"id": "msg_s1_1b", "sessionID": "s1", **answered("msg_s1_1a", 1010)}
    user = {"id": "msg_s1_1a", "sessionID": "s1", **asked(1000)}
    info = {"id": "s1", "version": "1.18.33", "title": "t", "directory": "/r/app", "time": {"created": 1000}}
    messages = [{"info": user, "parts": []}, {"info": reply, "parts": [{"id": "p", **said("hi")}]}]
    path = tmp_path / "s1.json"
    path.write_bytes(orjson.dumps({"info": info, "messages": messages}, option=orjson.OPT_INDENT_2))
    assert {(each.kind, each.payload) for each in read(path).found} == {
        (each.kind, each.payload) for each in read(db.path).found
    }
    cursor = lines(path)[-1][1]
    assert lines(path, cursor) == []
    messages.append({"info": {"id": "m9", "sessionID": "s1", **answered("msg_s1_1a", 2000)}, "parts": []})
    path.write_bytes(orjson.dumps({"info": info, "messages": messages}))
    os.utime(path, ns=(1, 1))
    assert everything(decoded([raw for raw, _ in lines(path, cursor)]))["streams"] == 2


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"info":{}}', b'{"info":{"id":"s"},"messages":7}'])
def test_a_file_that_is_no_export_is_unavailable(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UnavailableError):
        READER.rows(source(path))


def test_an_export_too_large_to_hold_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "EXPORT_LIMIT", 10)
    path = tmp_path / "x.json"
    path.write_bytes(b'{"info":{"id":"s"},"messages":[]}')
    with pytest.raises(UnavailableError, match="larger"):
        READER.rows(source(path))


def test_the_usual_place_has_databases_and_folders_of_both_layouts(tmp_path: Path) -> None:
    data = tmp_path / "data" / "opencode"
    Folder(data / "storage")
    Folder(data / "project" / "slug" / "storage", old=True)
    Db(data / "opencode.db").close()
    Db(data / "opencode-dev.db").close()
    (data / "other.db").write_bytes(b"")
    Db(tmp_path / "elsewhere.db").close()
    variables = {"XDG_DATA_HOME": str(tmp_path / "data"), "OPENCODE_DB": str(tmp_path / "elsewhere.db")}
    names = ["opencode-dev.db", "opencode.db", "storage", "project/slug/storage"]
    assert found(variables) == [str(tmp_path / "elsewhere.db"), *(str(data / name) for name in names)]
    assert READER.usual(variables) == [data, tmp_path / "elsewhere.db"]
    assert READER.usual({"HOME": "/h"}) == [Path("/h/.local/share/opencode")]
    assert found({"HOME": str(tmp_path / "nobody")}) == []


def test_a_root_gives_what_is_opencodes_by_content_and_nothing_twice(tmp_path: Path) -> None:
    root = tmp_path / "root"
    Folder(root / "a" / "storage_v2")
    Db(root / "renamed.db").close()
    foreign = apsw.Connection(str(root / "foreign.db"))
    foreign.execute("CREATE TABLE messages (id)")
    foreign.close()
    (root / "opencode-broken.db").write_bytes(b"oops")
    (root / "export.json").write_bytes(b'{ "info": {"id": "s"}, "messages": []}')
    (root / "package.json").write_bytes(b'{"name": "x"}')
    (root / "loop").symlink_to(root)
    (root / "again.db").symlink_to(root / "renamed.db")
    (tmp_path / "link").symlink_to(root)
    assert found({}, tmp_path / "link", root) == [
        str(tmp_path / "link" / name) for name in ("again.db", "export.json", "opencode-broken.db", "a/storage_v2")
    ]
    assert found({}, root / "export.json") == [str(root / "export.json")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0)
    assert found({}, tmp_path) == []
    assert [path for path, _ in READER.unlisted()] == [str(tmp_path / "shut")]
