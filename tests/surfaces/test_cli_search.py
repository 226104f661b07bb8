"""``turnlog search`` and the transcript of ``turnlog show``, over histories that were really imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import turnlog
from tests import postgres_server
from tests.postgres_server import PostgresSetup
from tests.surfaces import histories
from tests.surfaces.conftest import Turnlog
from tests.surfaces.scenes import Scene
from turnlog.surfaces.cli import search_fresh, usage_fresh

MAIN, CHILD = f"codex:{histories.MAIN}", f"codex:{histories.CHILD}"


@pytest.fixture
def imported(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/ledger.db"
    histories.write(tmp_path / "codex")
    histories.read(url, tmp_path / "codex")
    return url


# --- search


def test_search(turnlog_: Turnlog, imported: str) -> None:
    shown = turnlog_("search", "login")
    assert shown.code == 0
    assert shown.lines == [
        f"{MAIN}  user  2026-02-02 02:40  turn turn-1",
        "  please fix the login <b>test</b> ```py assert 1",
    ]
    assert shown.err == ""


def test_search_as_json(turnlog_: Turnlog, imported: str) -> None:
    value = turnlog_("search", "time zone", "--role", "assistant", "--json").json
    assert value["schema_version"] == 1
    assert (value["next"], value["ranked"], value["problems"]) == (None, "all", [])
    (hit,) = value["hits"]
    assert {name: hit[name] for name in ("session", "provider", "turn", "role", "at")} == {
        "session": MAIN,
        "provider": "codex",
        "turn": "turn-1",
        "role": "assistant",
        "at": "2026-02-02T02:40:08.000Z",
    }
    assert [hit["snippet"][start:end] for start, end in hit["marks"]] == ["time", "zone", "zone"]
    assert hit["score"] > 0


def test_search_by_pages(turnlog_: Turnlog, imported: str) -> None:
    first = turnlog_("search", "the", "--limit", "1", "--json").json
    second = turnlog_("search", "the", "--limit", "1", "--cursor", first["next"], "--json").json
    assert first["hits"] != second["hits"]
    assert turnlog_("search", "the", "--limit", "1").err == f"more: --cursor {first['next']}\n"
    refused = turnlog_("search", "zone", "--cursor", first["next"])
    assert (refused.code, refused.err.splitlines()[0]) == (2, "turnlog: this cursor belongs to another search")


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("thanks",), 1),
        (("thanks", "OR", "around"), 2),
        (("--session", CHILD, "nothing"), 1),
        (("--session", MAIN, "nothing"), 0),
        (("--project", "app", "thanks"), 1),
        (("--project", "app", "unheard"), 0),
        (("--provider", "claude", "thanks"), 0),
        (("--since", "2026-02-02T02:40:10Z", "login"), 0),
        (("--since", "2026-02-02", "login"), 1),
        (("--role", "tool", "output"), 2),
        (("--role", "tool_input", "make"), 1),
    ],
)
def test_search_filters(turnlog_: Turnlog, imported: str, words: tuple[str, ...], count: int) -> None:
    assert len(turnlog_("search", *words, "--json").json["hits"]) == count


def test_a_search_in_an_unknown_folder_is_refused(turnlog_: Turnlog, imported: str) -> None:
    said = turnlog_("search", "--project", "other", "thanks", "--json")
    assert (said.code, said.out) == (1, "")
    assert said.error["message"] == "no repository or folder 'other'"
    assert turnlog_("search", "--project", "/home/me", "unheard").code == 0


def test_search_hides_secrets_unless_told_otherwise(turnlog_: Turnlog, imported: str) -> None:
    assert "sk-live" not in turnlog_("search", "export").out
    assert "[redacted]" in turnlog_("search", "export").out
    assert "sk-live-abcdef1234567890abcd" in turnlog_("search", "export", "--no-redact").out


def test_a_query_is_never_a_syntax_error(turnlog_: Turnlog, imported: str) -> None:
    for query in ('"', "a AND", "NEAR(", "x:y", "*", "(", "'; DROP TABLE passages", "^a*", "a-b", "-", "\x00"):
        shown = turnlog_("search", "--", query)
        assert shown.code == 0 or shown.err.startswith("turnlog: nothing to search for\n")
    assert turnlog_("search", "login").code == 0


def test_search_finds_nothing(turnlog_: Turnlog, imported: str) -> None:
    shown = turnlog_("search", "unheardof")
    assert (shown.code, shown.out, shown.err) == (0, "", "nothing matches\n")


def test_search_without_any_import_says_what_to_do(turnlog_: Turnlog, scene: Scene) -> None:
    shown = turnlog_("search", "login")
    assert shown.code == 1
    assert "no history was imported" in shown.err
    assert "hint: `turnlog import`" in shown.err


def test_search_of_histories_imported_without_archive_says_so(turnlog_: Turnlog, tmp_path: Path) -> None:
    histories.write(tmp_path / "codex")
    histories.read(f"sqlite:///{tmp_path}/ledger.db", tmp_path / "codex", archive=False)
    shown = turnlog_("search", "login", "--json")
    assert shown.code == 1
    assert shown.error["code"] == "unavailable"
    assert "without their text" in shown.error["message"]
    told = turnlog_("show", MAIN)
    assert told.code == 0
    assert "its files were imported without their text" in told.err


def test_search_says_that_some_histories_have_no_text(turnlog_: Turnlog, imported: str, tmp_path: Path) -> None:
    other = histories.Rollout("019c1000-0000-7000-8000-000000000009")
    other.turn("turn-9", "please fix the login page")
    other.save(tmp_path / "second")
    histories.read(imported, tmp_path / "second", archive=False)
    shown = turnlog_("search", "login")
    assert (shown.code, len(shown.lines)) == (0, 2)
    assert shown.err == "some histories were imported without their text; they are not searched\n"


def test_search_of_a_teams_ledger_says_how_text_comes_into_it(turnlog_: Turnlog, imported: str) -> None:
    team = PostgresSetup(postgres_server.shared()).url()
    assert turnlog_("ledger", "push", team).code == 0
    shown = turnlog_("--ledger", team, "search", "login")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith("turnlog: there is nothing to search: no text was pushed into this ledger\nhint: ")
    assert "--with-archive" in shown.err
    assert turnlog_("ledger", "push", team, "--with-archive").code == 0
    found = turnlog_("--ledger", team, "search", "login")
    assert (found.code, len(found.lines), found.err) == (0, 2, "")


def test_search_refuses_wrong_words(turnlog_: Turnlog, imported: str) -> None:
    for words in (
        ("--role", "robot", "x"),
        ("--provider", "nobody", "x"),
        ("--limit", "0", "x"),
        ("--since", "soon", "x"),
        ("--", "-x"),
    ):
        shown = turnlog_("search", *words)
        assert shown.code == 2
        assert "hint: " in shown.err


# --- what is new on disk


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Histories where their program keeps them, of which nothing is imported."""
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    histories.write(tmp_path / "codex")
    return tmp_path / "codex"


def another(root: Path, prompt: str) -> Path:
    other = histories.Rollout("019c1000-0000-7000-8000-000000000009")
    other.turn("turn-9", prompt)
    return other.save(root)


def test_a_search_reads_what_is_new_on_disk_first(turnlog_: Turnlog, on_disk: Path) -> None:
    assert turnlog_("search", "login", "--no-import").code == 1
    shown = turnlog_("search", "login")
    assert (shown.code, len(shown.lines), shown.err) == (0, 2, "")
    another(on_disk, "please fix the login page")
    assert len(turnlog_("search", "login", "--no-import").lines) == 2
    assert len(turnlog_("search", "login", "--json").json["hits"]) == 2


def test_a_page_that_continues_a_search_reads_nothing_new(turnlog_: Turnlog, on_disk: Path) -> None:
    first = turnlog_("search", "the", "--limit", "1", "--json").json
    another(on_disk, "the newest of all")
    assert first["next"] is not None
    turnlog_("search", "the", "--limit", "1", "--cursor", first["next"])
    assert turnlog_("search", "newest", "--no-import", "--json").json["hits"] == []


def test_a_search_does_without_much_new_history_and_says_so(
    turnlog_: Turnlog, on_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(usage_fresh, "AT_ONCE", 0)

    def start(url: str) -> bool:
        started.append(url)
        return True

    monkeypatch.setattr(search_fresh, "import_behind", start)
    shown = turnlog_("search", "login")
    assert shown.code == 1
    assert shown.err.splitlines() == [
        "0 MB of history is imported in the background; this search lacks it; `turnlog import` reads it now",
        "turnlog: there is nothing to search yet: history is being imported",
        "hint: `turnlog import` reads it now",
    ]
    assert turnlog_("import").code == 0
    another(on_disk, "please fix the login page")
    shown = turnlog_("search", "login")
    assert (shown.code, len(shown.lines), shown.err.count("\n")) == (0, 2, 1)
    assert "is imported in the background; this search lacks it" in shown.err
    assert started == [f"sqlite:///{tmp_path}/ledger.db"] * 2


def test_a_search_says_that_files_could_not_be_read(turnlog_: Turnlog, on_disk: Path) -> None:
    with another(on_disk, "please").open("ab") as file:
        file.write(b"{torn\n")
    shown = turnlog_("search", "login")
    assert shown.code == 0
    assert shown.err == "1 problem in 3 files that were read; `turnlog import` shows them\n"


# --- show


def test_show_prints_the_transcript(turnlog_: Turnlog, imported: str) -> None:
    shown = turnlog_("show", MAIN)
    assert shown.code == 0
    text = shown.out[shown.out.index("\ntranscript\n") :]
    assert text.splitlines()[1:12] == [
        "transcript",
        "",
        "user · 2026-02-02 02:40:04",
        "please fix the login <b>test</b>",
        "```py",
        "assert 1",
        "",
        "reasoning · 2026-02-02 02:40:05",
        "the **time zone** is wrong",
        '  exec_command {"cmd": "export api_key=[redacted]"}',
        "  | line 0 of the output",
    ]
    assert "  | line 11 of the output\n  | … 40 lines, 869 characters in all\n" in text
    assert "line 12 of the output" not in text
    assert "\n  tool failed\n  | Process exited with code 2\n" in text
    assert "--full shows all of it" in shown.err
    assert "\x1b" not in shown.out


def test_show_whole_facts_only_and_with_secrets(turnlog_: Turnlog, imported: str) -> None:
    whole = turnlog_("show", MAIN, "--full", "--no-redact")
    assert "  | line 39 of the output\n" in whole.out
    assert "sk-live-abcdef1234567890abcd" in whole.out
    assert "--full" not in whole.err
    assert "transcript" not in turnlog_("show", MAIN, "--no-transcript").out


def test_show_hides_secrets_in_titles_and_answers_too(turnlog_: Turnlog, scene: Scene) -> None:
    secret = f"SK{'0123456789abcdef' * 2}"
    with turnlog.open_ledger(scene.url) as ledger:
        ledger.rename_session(scene.fixed, f"use {secret}")
        ledger.record(scene.fixed, "t", "z", "started", {})
        ledger.record(scene.fixed, "t", "z", "output", {"text": f"I stored {secret}."})
        ledger.record(scene.fixed, "t", "z", "completed", {"status": "completed"})
    hidden, whole = turnlog_("show", "aaaa"), turnlog_("show", "aaaa", "--no-redact")
    assert secret not in hidden.out
    assert hidden.out.startswith("use [redacted]\n")
    assert "I stored [redacted]." in hidden.out
    assert whole.out.startswith(f"use {secret}\n")
    assert f"I stored {secret}." in whole.out
    lines = turnlog_("export", scene.fixed, "--format", "jsonl").out
    assert secret not in lines
    assert '"title":"use [redacted]"' in lines
    assert secret in turnlog_("export", scene.fixed, "--format", "jsonl", "--no-redact").out


def test_show_of_a_driven_conversation_tells_its_prompts_and_answers(turnlog_: Turnlog, scene: Scene) -> None:
    text = turnlog_("show", "aaaa").out
    said = text[text.index("\ntranscript\n") :]
    assert "user · 2026-02-02" in said
    assert "\nfix it\n" in said
    assert "\nIt was the time zone.\nFixed.\n" in said
    assert "\nagain\n" in said


def test_show_as_json_is_the_facts(turnlog_: Turnlog, imported: str) -> None:
    assert "transcript" not in json.loads(turnlog_("show", MAIN, "--json").out)


def test_show_of_a_damaged_archive_tells_the_rest_and_exits_with_problems(
    turnlog_: Turnlog, imported: str, tmp_path: Path
) -> None:
    import apsw

    connection = apsw.Connection(str(tmp_path / "ledger.db"))
    connection.execute("UPDATE archive SET data = zeroblob(10)")
    connection.close()
    shown = turnlog_("show", MAIN)
    assert shown.code == 3
    assert "(the archive is damaged:" in shown.out
    assert "passages could not be read" in shown.err
    assert turnlog_("search", "login", "--json").code == 3
    assert turnlog_("export", MAIN).code == 3
