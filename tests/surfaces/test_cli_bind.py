"""Binding a conversation to a task, and what is shown of it before and afterwards."""

from __future__ import annotations

import pytest

import turnlog
from tests.surfaces.conftest import Turnlog
from tests.surfaces.scenes import Scene, build

__all__ = ["build"]


@pytest.fixture
def tasks(scene: Scene) -> tuple[str, str]:
    with turnlog.open_ledger(scene.url) as ledger:
        wave = ledger.create_wave("tests", repo="/r")
        project = ledger.create_project(wave.id, external_id="p", slug="p")
        one, two = (
            ledger.create_task(project.id, external_id=name, identifier=name, title=name) for name in ("ABC-1", "ABC-2")
        )
    return one.id, two.id


def test_a_dry_run_tells_and_does_nothing(turnlog_: Turnlog, scene: Scene, tasks: tuple[str, str]) -> None:
    shown = turnlog_("bind", scene.fixed, "--task", "ABC-1", "--dry-run")
    assert shown.code == 0
    head, _, before, during, after = shown.lines
    assert head == "would bind “Fix the login test” (session aaaa00000000) to task ABC-1, for good"
    assert before.split()[:4] == ["before", "2", "12,000", "800"]
    assert during.split()[:3] == ["during", "0", "-"]
    assert after.split()[:3] == ["after", "0", "-"]
    assert shown.err.startswith("2 turns before and during the bind stay as recorded; ")
    with turnlog.open_ledger(scene.url) as ledger:
        found = ledger.session(scene.fixed)
        assert found is not None
        assert (found.task_id, found.bound_at) == (None, None)
    value = turnlog_("bind", scene.fixed, "--task", "ABC-1", "--dry-run", "--json").json
    assert (value["dry_run"], value["already"], value["bound_at"]) == (True, False, None)
    assert (value["before"]["turns"], value["before"]["tokens"]["input"]) == (2, 12_000)
    assert value["prospective"]["tokens"]["input"] is None
    assert value["post_hoc"]["tokens"]["input"] == 12_000


def test_a_bind_is_for_good(turnlog_: Turnlog, scene: Scene, tasks: tuple[str, str]) -> None:
    done = turnlog_("bind", "aaaa", "--task", "ABC-1", "--json")
    assert done.code == 0
    assert (done.json["task"], done.json["session"], done.json["already"]) == (tasks[0], scene.fixed, False)
    assert done.json["bound_at"] is not None
    again = turnlog_("bind", "aaaa", "--task", "abc-1", "--json").json
    assert again == {**done.json, "already": True}
    assert "nothing to do" in turnlog_("bind", "aaaa", "--task", "ABC-1").lines[0]
    for more in ([], ["--dry-run"]):
        refused = turnlog_("bind", "aaaa", "--task", "ABC-2", "--json", *more)
        assert (refused.code, refused.error["code"]) == (4, "conflict")
        assert refused.error["message"] == f"session {scene.fixed} is for task ABC-1 already"
        assert "turnlog run --task" in refused.error["hint"]
    assert turnlog_("activity", "--since", "all", "--json").json["activity"][0]["kind"] == "bound"


def test_what_is_unknown_is_refused(turnlog_: Turnlog, scene: Scene, tasks: tuple[str, str]) -> None:
    assert turnlog_("bind", "zzzz", "--task", "ABC-1").code == 1
    assert turnlog_("bind", scene.fixed, "--task", "ABC-9").code == 1
    assert turnlog_("bind", scene.fixed).code == 2
    ambiguous = turnlog_("bind", scene.fixed, "--task", "task_")
    assert ambiguous.code == 2
    assert all(each in ambiguous.err for each in tasks)


def test_usage_around_binds(turnlog_: Turnlog, scene: Scene, tasks: tuple[str, str]) -> None:
    assert turnlog_("usage", "--binds").err == "No conversation was bound to a task; `turnlog bind` does that.\n"
    turnlog_("bind", scene.gappy, "--task", "ABC-1")
    value = turnlog_("usage", "--binds", "--json").json
    assert set(value) == {"schema_version", "binds", "tasks", "next"}
    (bind,) = value["binds"]
    assert bind["during"]["turns"] == 1, "its end is not known, and it was the newest"
    assert bind["during"]["tokens"]["input"] == 1_200_000
    assert bind["during"]["gaps"], "the coverage stands beside the sum"
    (total,) = value["tasks"]
    assert (total["prospective"]["tokens"]["input"], total["post_hoc"]["tokens"]["input"]) == (None, 1_200_000)
    page = turnlog_("usage", "--binds")
    assert [line.split()[0] for line in page.lines[1:]] == ["aaab00000000", "during", "after", "ABC-1", "ABC-1"]
    assert "≥1,200,000" in page.out
    assert turnlog_("usage", "--binds", "--task", "ABC-2", "--json").json["binds"] == []
    for more in (["daily"], ["--until", "2026-01-01"], ["--csv"], ["--breakdown"]):
        assert turnlog_("usage", "--binds", *more).code == 2
