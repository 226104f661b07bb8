"""Work on the command line: waves, projects, tasks, what a folder says, and titles that are asked for."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.surfaces.conftest import Turnlog
from tests.surfaces.test_cli_run import Drive, driven
from turnlog.surfaces.cli import gh

__all__ = ["driven"]


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def task(turnlog_: Turnlog, repo: Path) -> str:
    assert turnlog_("work", "wave", "create", "checkout").code == 0
    assert turnlog_("work", "wave", "create", "payments", "--parent", "checkout").code == 0
    assert turnlog_("work", "project", "create", "Card payments", "--wave", "checkout/payments").code == 0
    made = turnlog_(
        "work", "task", "create", "https://linear.app/acme/issue/ABC-123/x", "--project", "card-payments",
        "--title", "Refunds", "--json",
    )  # fmt: skip
    made_id: str = made.json["task"]["id"]
    return made_id


def test_from_nothing_to_a_task(turnlog_: Turnlog, repo: Path, task: str) -> None:
    shown = turnlog_("work", "task", "show", "abc-123", "--json").json
    assert shown["schema_version"] == 1
    assert {**shown["task"], "created_at": None} == {
        "id": task,
        "project_id": shown["project"]["id"],
        "external_id": "linear:acme/ABC-123",
        "identifier": "ABC-123",
        "title": "Refunds",
        "created_at": None,
        "started_at": None,
        "wave_id": shown["wave"]["id"],
        "worktree": None,
        "retired_at": None,
        "external": {"kind": "linear", "url": "https://linear.app/acme/issue/ABC-123"},
    }
    assert (shown["project"]["slug"], shown["project"]["name"]) == ("card-payments", "Card payments")
    assert (shown["wave"]["slug"], shown["wave"]["repo"]) == ("checkout/payments", str(repo))
    assert (shown["prs"], shown["sessions"], shown["truncated"]) == ([], [], False)
    page = turnlog_("work", "task", "show", "ABC-123")
    assert [line.split()[0] for line in page.lines] == [
        "task", "title", "project", "wave", "id", "external", "created",
    ]  # fmt: skip


def test_a_task_shows_its_pull_requests_and_conversations(turnlog_: Turnlog, task: str) -> None:
    assert turnlog_("work", "task", "pr", "ABC-123", "https://github.com/me/shop/pull/7", "--title", "Refund").code == 0
    assert turnlog_("work", "task", "pr", "ABC-123", "me/shop#7").code == 0
    with turnlog.open_ledger() as ledger:
        made = ledger.create_session(cwd="/f", title="on \x1b[31mit\x1b[0m", task_id=task)
    shown = turnlog_("work", "task", "show", "me/shop#7", "--json").json
    assert [(each["identifier"], each["title"], each["url"]) for each in shown["prs"]] == [
        ("me/shop#7", "Refund", "https://github.com/me/shop/pull/7")
    ]
    assert shown["sessions"] == [{"id": made.id, "title": made.title, "work_source": "declared"}]
    page = turnlog_("work", "task", "show", task).out
    assert "me/shop#7" in page
    assert "on it" in page
    assert "\x1b" not in page


def test_lists_have_pages(turnlog_: Turnlog, task: str) -> None:
    for kind, first in (("task", "ABC-123"), ("project", "card-payments"), ("wave", "checkout/payments")):
        value = turnlog_("work", kind, "list", "--json").json
        assert value["next"] is None
        row = value[f"{kind}s"][0]
        assert first in (row.get("identifier"), row.get("slug"))
        assert turnlog_("work", kind, "list").lines[1].split()[0] == first
    one = turnlog_("work", "wave", "list", "--limit", "1", "--json").json
    rest = turnlog_("work", "wave", "list", "--limit", "1", "--cursor", one["next"], "--json").json
    assert [each["slug"] for each in (*one["waves"], *rest["waves"])] == ["checkout/payments", "checkout"]
    assert rest["next"] is None
    assert turnlog_("work", "wave", "list", "--parent", "checkout", "--json").json["waves"][0]["name"] == "payments"
    assert turnlog_("work", "task", "list", "--wave", "checkout", "--json").json["tasks"] == []
    assert turnlog_("work", "wave", "list", "--limit", "-1").code == 2
    assert turnlog_("work", "wave", "show", "checkout", "--json").json["waves"][0]["slug"] == "checkout/payments"
    assert "ABC-123" in turnlog_("work", "project", "show", "card-payments").out


def test_retired_work_is_out_of_the_way(turnlog_: Turnlog, task: str) -> None:
    assert turnlog_("work", "task", "retire", "ABC-123").out == "task ABC-123 is retired\n"
    assert turnlog_("work", "task", "list").err.startswith("no task; ")
    assert turnlog_("work", "task", "list", "--all", "--json").json["tasks"][0]["retired_at"] is not None
    assert turnlog_("work", "project", "retire", "card-payments").code == 0
    assert turnlog_("work", "wave", "retire", "checkout").code == 0
    for argv in (
        ["run", "--task", "ABC-123", "x"],
        ["run", "--wave", "checkout/payments", "x"],
        ["work", "task", "create", "ABC-9", "--project", "card-payments"],
        ["work", "project", "create", "x", "--wave", "checkout"],
        ["work", "wave", "create", "x", "--parent", "checkout"],
    ):
        refused = turnlog_(*argv, "--json")
        assert (refused.code, refused.error["code"]) == (4, "conflict"), argv
        assert "is retired" in refused.error["message"]
    assert turnlog_("work", "wave", "create", "checkout").code == 0


@pytest.mark.parametrize(
    ("argv", "code", "what", "hint"),
    [
        (["wave", "create", ""], 2, "'' is no wave name", None),
        (["wave", "create", "a/b"], 2, "'a/b' is no wave name", "a wave's name is one path segment; --parent nests it"),
        (["wave", "create", "checkout"], 4, "there is a wave checkout in its place already", None),
        (["wave", "show", "payments"], 1, "no wave 'payments'", "did you mean checkout/payments? "),
        (["wave", "create", "x", "--repo", "/nowhere/at/all"], 2, "/nowhere/at/all is not a folder", None),
        (["project", "create", "!!!", "--wave", "checkout"], 2, "'' is no short name", None),
        (["project", "create", "x"], 2, "missing option '--wave'", None),
        (["task", "create", " ", "--project", "card-payments"], 2, "an empty reference names nothing", None),
        (["task", "create", "x", "--project", "nope"], 1, "no project 'nope'", None),
        (["task", "create", "ABC-123", "--project", "card-payments", "--title", " "], 2, "the title is empty", None),
        (["task", "show", "ABC-12"], 1, "no task 'ABC-12'", "did you mean ABC-123? "),
        (["task", "worktree", "ABC-123"], 2, "name a folder, or --forget", None),
        (["task", "worktree", "ABC-123", "/nowhere/at/all"], 2, "/nowhere/at/all is not a folder", None),
        (["task"], 2, "`turnlog work task` needs to be told what", "try `turnlog work task create`"),
    ],
)
def test_what_is_refused_says_what_to_do(
    turnlog_: Turnlog, task: str, argv: list[str], code: int, what: str, hint: str | None
) -> None:
    shown = turnlog_("work", *argv)
    assert (shown.code, shown.out) == (code, "")
    first, second = shown.err.splitlines()
    assert first == f"turnlog: {what}"
    assert second.startswith(f"hint: {hint or ''}")


@pytest.mark.parametrize("reference", ["https://github.com/o/r/issues/abc", "https://[broken", "Fix the login"])
def test_a_link_that_is_none_is_a_name(turnlog_: Turnlog, task: str, reference: str) -> None:
    made = turnlog_("work", "task", "create", reference, "--project", "card-payments", "--json").json["task"]
    assert (made["external_id"], made["identifier"], made["external"]) == (
        reference,
        reference,
        {"kind": "plain", "url": None},
    )
    assert turnlog_("work", "task", "show", reference, "--json").json["task"]["id"] == made["id"]


# --- titles


def program(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "gh").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "gh").chmod(0o755)


def ask(turnlog_: Turnlog, *more: str) -> tuple[Any, str]:
    argv = ["work", "task", "create", "https://github.com/Me/shop/issues/12", "--project", "card-payments"]
    shown = turnlog_(*argv, "--json", *more)
    assert shown.code == 0
    return shown.json["task"]["title"], shown.err


def test_a_title_is_asked_of_gh_only_when_wanted(
    turnlog_: Turnlog, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", f'echo "$@" > {tmp_path}/asked; printf "Fix \\033[31mit\\033[0m\\n"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert ask(turnlog_) == (None, "")
    assert not (tmp_path / "asked").exists()
    assert turnlog_("work", "task", "retire", "me/shop#12").code == 0
    assert ask(turnlog_, "--ask-title") == ("Fix it", "")
    assert (tmp_path / "asked").read_text().split() == ["api", "repos/me/shop/issues/12", "--jq", ".title"]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("echo 'not logged in' >&2; exit 4", "no title: gh failed: not logged in\n"),
        ("exit 0", "no title: gh told nothing\n"),
        ("sleep 60 & sleep 60", "no title: gh did not answer within 0.2 s\n"),
    ],
)
def test_gh_that_fails_says_nothing_or_hangs_costs_only_the_title(
    turnlog_: Turnlog, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, note: str
) -> None:
    program(tmp_path / "bin", text)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(gh, "TIMEOUT_S", 0.2 if "sleep" in text else gh.TIMEOUT_S)
    began = time.monotonic()
    assert ask(turnlog_, "--ask-title") == (None, note)
    assert time.monotonic() - began < 30


def test_gh_that_is_not_there_or_lies_in_this_folder(
    turnlog_: Turnlog, task: str, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(repo, "echo planted")
    monkeypatch.setenv("PATH", f"{os.pathsep}.{os.pathsep}/nowhere")
    assert ask(turnlog_, "--ask-title") == (None, "no title: the gh program is not there\n")
    shown = turnlog_("work", "task", "create", "ABC-7", "--project", "card-payments", "--ask-title")
    assert shown.err == "no title: ABC-7 is not of GitHub\n"


# --- what a folder says


def test_a_run_in_a_worktree_is_for_its_task_unless_it_says_otherwise(
    turnlog_: Turnlog, driven: Drive, task: str, repo: Path
) -> None:
    fake = driven(None)
    assert turnlog_("run", "x").code == 0
    assert fake.options is not None
    assert (fake.options.task_id, fake.options.wave_id, fake.options.work_source) == (None, None, None)
    assert turnlog_("work", "task", "worktree", "ABC-123", ".").out == f"task ABC-123  {repo}\n"
    shown = turnlog_("run", "x")
    assert shown.err.startswith("for task ABC-123, by its checkout\n")
    assert (fake.options.task_id, fake.options.work_source) == (task, "checkout")
    assert "checkout" not in turnlog_("run", "--json", "x").err
    turnlog_("work", "task", "create", "ABC-2", "--project", "card-payments")
    assert turnlog_("run", "--task", "ABC-2", "x").code == 0
    assert (fake.options.task_id != task, fake.options.work_source) == (True, None)
    assert turnlog_("run", "--wave", "checkout", "x").code == 0
    assert (fake.options.task_id, fake.options.work_source) == (None, None)
    turnlog_("work", "task", "worktree", "ABC-123", "--forget")
    assert turnlog_("run", "x").code == 0
    assert fake.options.task_id is None


def test_resume_never_attributes_by_the_folder(turnlog_: Turnlog, driven: Drive, task: str, repo: Path) -> None:
    fake = driven(None)
    with turnlog.open_ledger() as ledger:
        known = ledger.create_session(cwd=str(repo), title="before").id
    turnlog_("work", "task", "worktree", "ABC-123", ".")
    assert turnlog_("resume", known, "x").code == 0
    assert fake.options is not None
    assert (fake.options.task_id, fake.options.wave_id) == (None, None)


def test_what_the_folder_said_is_marked_wherever_it_is_shown(turnlog_: Turnlog, task: str) -> None:
    with turnlog.open_ledger() as ledger:
        ledger.create_session(id="session_by", cwd="/f", title="By", task_id=task, work_source="checkout")
        mixed = ledger.create_session(id="session_mixed", cwd="/f", title="Mixed")
        ledger.record(mixed.id, "t", "one", "started", {})
        ledger.bind_session(mixed.id, mixed.captured, task)
        ledger.record(mixed.id, "t", "two", "started", {})
    rows = {each["id"]: each for each in turnlog_("sessions", "--json").json["sessions"]}
    assert rows["session_by"]["work"] == {"label": "task/ABC-123 (checkout)", "mixed": False}
    assert rows["session_mixed"]["work"] == {"label": "mixed", "mixed": True}
    assert "task/ABC-123 (checkout)" in turnlog_("sessions").out
    assert "mixed" in turnlog_("sessions").out
    inputs = turnlog_("inputs", "--since", "all").out
    assert "task/ABC-123 (checkout)" in inputs
    assert "mixed (see providers)" in inputs
    assert "task/ABC-123 (checkout)" in turnlog_("show", "session_by").out
    assert "mixed" in turnlog_("show", "session_mixed").out
    # Also where no single input is mixed: the newer one begins after the binding.
    with turnlog.open_ledger() as ledger:
        later = ledger.create_session(id="session_later", cwd="/f", title="Later")
        ledger.record(later.id, "t2", "one", "started", {})
        bound = ledger.bind_session(later.id, later.captured, task)
        ledger.publish_input(later.id, ledger.replace_input(later.id, bound.captured).captured)
        ledger.record(later.id, "t2", "two", "started", {})
    shown = turnlog_("show", "session_later").lines
    assert [line.split(None, 1)[1] for line in shown if line.startswith("work ")] == ["mixed, now task/ABC-123"]
    by = {each["session_id"]: each for each in turnlog_("inputs", "--since", "all", "--json").json["inputs"]}
    assert (by["session_by"]["work_source"], by["session_mixed"]["work_source"]) == ("checkout", None)
