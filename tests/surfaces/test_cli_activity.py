"""What was recorded lately, for a person and for a program."""

from __future__ import annotations

from pathlib import Path

import pytest

import turnlog
from tests.surfaces.conftest import Turnlog
from tests.surfaces.histories import CHILD, MAIN, Rollout
from tests.surfaces.scenes import BAD, Scene

MEMBERS = {
    "at", "kind", "subject", "id", "session", "turn", "task", "task_identifier", "wave", "wave_name", "title",
    "outcome", "detail", "imported",
}  # fmt: skip


def test_activity_as_json(turnlog_: Turnlog, scene: Scene) -> None:
    value = turnlog_("activity", "--since", "all", "--json").json
    assert (value["schema_version"], value["next"]) == (1, None)
    assert all(set(each) == MEMBERS for each in value["activity"])
    assert [each["at"] for each in value["activity"]] == sorted(
        (each["at"] for each in value["activity"]), reverse=True
    )
    assert [(each["kind"], each["session"]) for each in value["activity"]] == [
        ("conversation_closed", scene.closed),
        ("input_captured", scene.closed),
        ("input_captured", scene.gappy),
        ("input_completion_recorded", scene.fixed),
        ("input_captured", scene.fixed),
    ]
    ended = value["activity"][3]
    assert (ended["turn"], ended["outcome"], ended["imported"]) == (BAD, "failed", False)


def test_activity_for_a_person(turnlog_: Turnlog, scene: Scene) -> None:
    with turnlog.open_ledger(scene.url) as ledger:
        ledger.request(scene.gappy, "steer", "no \x1b[2Kmore\nof that")
    shown = turnlog_("activity", "--since", "2026-01-01")
    assert shown.lines[0].split() == ["TIME", "WHAT", "WORK", "SESSION", "TITLE"]
    assert "steer: queued" in shown.lines[1]
    assert "Größe 日本語: no more of that" in shown.lines[1]
    assert "\x1b" not in shown.out
    assert [line.split()[2] for line in shown.lines[2:]] == ["closed", "asked", "asked", "failed", "asked"]
    assert turnlog_("activity", "--since", "1s").code == 0


def test_pages(turnlog_: Turnlog, scene: Scene) -> None:
    whole = turnlog_("activity", "--since", "all", "--json").json["activity"]
    first = turnlog_("activity", "--since", "all", "--limit", "2", "--json").json
    rest = turnlog_("activity", "--since", "all", "--cursor", first["next"], "--json").json
    assert first["activity"] + rest["activity"] == whole
    assert turnlog_("activity", "--since", "all", "--limit", "2").err == f"more: --cursor {first['next']}\n"


@pytest.mark.parametrize("argv", [["--limit", "0"], ["--limit", "201"], ["--cursor", "x"], ["--since", "lately"]])
def test_what_cannot_be_asked(turnlog_: Turnlog, scene: Scene, argv: list[str]) -> None:
    assert turnlog_("activity", *argv).code == 2


def test_nothing_is_said_to_be_nothing(turnlog_: Turnlog) -> None:
    turnlog.open_ledger().close()
    assert turnlog_("activity").err.startswith("Nothing was recorded since ")
    assert turnlog_("activity", "--json").json["activity"] == []


def test_imported_conversations_are_provider_history_and_for_no_task(turnlog_: Turnlog, tmp_path: Path) -> None:
    """Also where their folder is the worktree of a task: nobody asked turnlog for them."""
    root = tmp_path / "codex"
    folder = tmp_path / "app"
    (folder / ".git").mkdir(parents=True)
    rollout = Rollout(MAIN, cwd=str(folder))
    rollout.turn("turn_1", "fix it")
    rollout.answer("turn_1", "done")
    rollout.save(root)
    child = Rollout(CHILD, cwd=str(folder), source={"subagent": {"thread_spawn": {"parent_thread_id": MAIN}}})
    child.turn("turn_2", "look")
    child.answer("turn_2", "seen")
    child.save(root)
    with turnlog.open_ledger() as ledger:
        wave = ledger.create_wave("w", repo=str(folder))
        project = ledger.create_project(wave.id, external_id="p")
        ledger.create_task(project.id, external_id="i", identifier="ABC-1", worktree=folder)
        ledger.import_histories(provider="codex", roots=[root])
        found, _ = ledger.activity()
        session = ledger.session(f"codex:{MAIN}")
        assert session is not None
        assert (session.task_id, session.wave_id, session.work_source) == (None, None, None)
    told = [each for each in found if each.session is not None]
    assert [(each.kind, each.session, each.imported, each.task) for each in told] == [
        ("input_completion_recorded", f"codex:{MAIN}", True, None),
        ("provider_history_recorded", f"codex:{MAIN}", True, None),
    ]
    assert told[0].turn == "turn_1"
