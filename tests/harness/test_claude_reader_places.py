"""Where Claude's session files are found, and which files are none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.harness.claude_reading import AT, OTHER, SESSION, file_of, prompt, read, record, said, text
from turnlog.errors import UnavailableError
from turnlog.harness.claude.reader import READER, ClaudeReader
from turnlog.harness.reading import Source

LINES = file_of(prompt("p1"), said("m1", text("x")))


def write(path: Path, content: bytes = LINES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def names(found: list[Source], root: Path) -> list[str]:
    return [str(Path(each.path).relative_to(root)) for each in found]


def test_the_usual_places() -> None:
    home = {"HOME": "/h"}
    assert READER.usual(home)[:2] == [Path("/h/.config/claude/projects"), Path("/h/.claude/projects")]
    assert READER.usual(home | {"CLAUDE_CONFIG_DIR": "/a, /b/projects,,/a"}) == [
        Path("/a/projects"),
        Path("/b/projects"),
    ]
    assert READER.usual(home | {"CLAUDE_CONFIG_DIR": ""}) == READER.usual(home)
    assert READER.usual(home | {"XDG_CONFIG_HOME": "/c"})[0] == Path("/c/claude/projects")


def test_sessions_and_agents_at_any_depth(tmp_path: Path) -> None:
    base = tmp_path / ".claude" / "projects" / "-app"
    agents = base / SESSION / "subagents"
    for path in (
        base / f"{SESSION}.jsonl",
        base / "agent-a1.jsonl",
        agents / "agent-a2.jsonl",
        agents / "workflows" / "wf_1" / "agent-a3.jsonl",
        agents / "workflows" / "wf_1" / "journal.jsonl",
        base / SESSION / "tool-results" / "t1.txt",
        tmp_path / ".claude" / "history.jsonl",
        tmp_path / ".config" / "claude" / "projects" / "-b" / f"{OTHER}.jsonl",
    ):
        write(path)
    found = list(READER.discover({"HOME": str(tmp_path)}, []))
    assert {(each.path.removeprefix(f"{base}/"), each.thread, each.rank) for each in found[1:]} == {
        (f"{SESSION}.jsonl", SESSION, 0),
        ("agent-a1.jsonl", "agent-a1", 1),
        (f"{SESSION}/subagents/agent-a2.jsonl", f"{SESSION}/a2", 1),
        (f"{SESSION}/subagents/workflows/wf_1/agent-a3.jsonl", f"{SESSION}/a3", 1),
    }
    assert (found[0].thread, found[0].provider, found[0].kind) == (OTHER, "claude", "jsonl")
    assert READER.unlisted() == []


def test_only_claudes_files_are_taken_from_any_folder(tmp_path: Path) -> None:
    envelope = {"timestamp": AT, "type": "session_meta", "payload": {"id": "x"}}
    parts = record("user", uuid="u", message={"role": "user", "parts": [{"text": "hi"}]})
    alike = prompt("u", sessionId="session-1")
    headless = {"sessionId": "s", "timestamp": AT, "message": {"role": "assistant", "id": "m", "usage": {}}}
    files: dict[str, Any] = {
        f"{SESSION}.jsonl": [record("mode"), prompt("p1")],
        "any name.jsonl": [{"type": "summary", "summary": "x", "leafUuid": "y"}],
        "damaged.jsonl": [b'{"type":"user', prompt("p1")],
        "early.jsonl": [headless],
        "long.jsonl": [prompt("p1", "x" * 200_000)],
        "rollout-2026-01-01T00-00-00-x.jsonl": [prompt("p1")],
        "a.jsonl": [envelope],
        "b.jsonl": [parts],
        "session-1.jsonl": [alike],
        "c.jsonl": [{"role": "user", "message": {"role": "user", "content": "x"}}],
        "d.jsonl": [{"type": "session", "id": "x"}, {"type": "message", "message": {"role": "user"}}],
        "e.jsonl": [b""],
        "f.jsonl": [b"[1]", b"rubbish"],
        "history.jsonl": [{"display": "x"}],
        "g.json": [prompt("p1")],
    }
    for name, lines in files.items():
        write(tmp_path / "sub" / name, file_of(*lines))
    found = list(READER.discover({"HOME": "/nowhere"}, [tmp_path]))
    assert names(found, tmp_path / "sub") == sorted(list(files)[:5])


def test_a_root_may_be_a_link_or_a_file_and_loops_end(tmp_path: Path) -> None:
    real = write(tmp_path / "real" / f"{SESSION}.jsonl")
    (tmp_path / "real" / "loop").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "again.jsonl").symlink_to(real)
    (tmp_path / "real" / "nowhere.jsonl").symlink_to(tmp_path / "gone")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for roots in ([tmp_path / "link"], [real], [tmp_path / "real", tmp_path / "link", real]):
        assert [each.path for each in READER.discover({}, roots)] == [str(real)]
    assert list(READER.discover({}, [tmp_path / "missing"])) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_folders_without_permission_are_named_as_any_user(tmp_path: Path) -> None:
    write(tmp_path / "closed" / f"{SESSION}.jsonl")
    (tmp_path / "closed").chmod(0)
    reader = ClaudeReader()
    try:
        assert list(reader.discover({}, [tmp_path])) == []
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert [path for path, _ in reader.unlisted()] == [str(tmp_path / "closed")]


def test_folders_that_cannot_be_listed_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "closed" / f"{SESSION}.jsonl")
    kept = write(tmp_path / "open" / f"{OTHER}.jsonl")
    listing = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr(os, "scandir", refuse)
    reader = ClaudeReader()
    assert [each.path for each in reader.discover({}, [tmp_path])] == [str(kept)]
    assert reader.unlisted() == [(str(tmp_path / "closed"), "Permission denied")]


def test_what_stands_beside_an_agents_file(tmp_path: Path) -> None:
    path = write(tmp_path / SESSION / "subagents" / "agent-a1.jsonl")
    parent = file_of(prompt("p4"), said("m1", {"type": "tool_use", "id": "toolu_7", "name": "Task", "input": {}}))
    meta = {"agentType": "Explore", "description": "Look around", "toolUseId": "toolu_7"}
    path.with_suffix(".meta.json").write_bytes(orjson.dumps(meta))
    lines = [prompt("s1", "long words", isSidechain=True, agentId="a1")]
    told = read(*lines, path=str(path), parents={SESSION: parent.split(b"\n")}).fact(f"{SESSION}/a1")
    assert (told["title"], told["title_rank"], told["parent_turn"]) == ("Look around", 1, "p4")
    path.with_suffix(".meta.json").write_bytes(b"{")
    assert read(*lines, path=str(path)).fact(f"{SESSION}/a1")["title"] == "long words"


def test_a_session_file_has_no_rows() -> None:
    with pytest.raises(UnavailableError):
        READER.rows(Source("claude", "/x.jsonl", "rows"))


def test_a_decoder_goes_on_from_its_state() -> None:
    source = Source("claude", f"/x/{SESSION}.jsonl", "jsonl")
    first = READER.decoder(source, None, lambda _: None)
    first.line(orjson.dumps(prompt("p1")), 0)
    assert [each.kind for each in first.take().found] == ["started"]
    second = READER.decoder(source, first.state(), lambda _: None)
    second.line(orjson.dumps(said("m1", text("x"), stop="end_turn")), 500)
    second.end()
    taken = second.take()
    assert [(each.kind, each.turn) for each in taken.found] == [
        ("usage", "p1"),
        ("output", "p1"),
        ("completed", "p1"),
    ]
    assert taken.lines == 1
    assert second.take().found == []
