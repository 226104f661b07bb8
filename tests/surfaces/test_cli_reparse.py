"""What ``turnlog import`` says where it has nothing to read: the archive is empty, or --root names nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import turnlog
from tests.surfaces import histories
from tests.surfaces.conftest import Turnlog


@pytest.fixture
def root(tmp_path: Path) -> str:
    histories.write(tmp_path / "codex")
    return str(tmp_path / "codex")


def test_reading_again_before_anything_was_imported(turnlog_: Turnlog) -> None:
    said = turnlog_("import", "--reparse")
    assert (said.code, said.out) == (0, "")
    assert said.err == (
        "Nothing was imported yet, so there is nothing to read again; `turnlog import` reads what is on disk.\n"
    )


def test_reading_again_what_was_imported_without_an_archive(turnlog_: Turnlog, root: str) -> None:
    assert turnlog_("import", "--provider", "codex", "--root", root, "--no-archive").code == 0
    for more in ([], ["--provider", "codex"]):
        said = turnlog_("import", "--reparse", *more)
        assert (said.code, said.out) == (0, "")
        assert said.err.startswith("No bytes are archived: what was imported was imported with --no-archive. ")
    assert turnlog_("import", "--reparse", "--json").json["found"] == 0


def test_reading_again_what_was_pruned(turnlog_: Turnlog, root: str) -> None:
    assert turnlog_("import", "--provider", "codex", "--root", root).code == 0
    assert turnlog_("import", "--reparse").out.startswith("2 sources, ")
    assert turnlog_("prune", "--older-than", "7d", "--yes").code == 0
    said = turnlog_("import", "--reparse")
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("No bytes are archived any more: they were pruned, last on ")


def test_reading_again_a_provider_of_which_nothing_is_archived(turnlog_: Turnlog, root: str) -> None:
    assert turnlog_("import", "--provider", "codex", "--root", root).code == 0
    said = turnlog_("import", "--reparse", "--provider", "claude")
    assert (
        said.err
        == "What is archived of claude, if anything, was pushed here or pruned in part; it is not read again.\n"
    )


def test_nothing_on_disk_is_said_as_before(turnlog_: Turnlog) -> None:
    assert turnlog_("import").err.startswith("No histories were found; ")


@pytest.mark.parametrize("name", ["", " "])
@pytest.mark.parametrize("watch", [False, True])
def test_an_empty_root_is_no_folder(
    turnlog_: Turnlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, watch: bool
) -> None:
    histories.write(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    said = turnlog_("--json", "import", "--root", name, *(["--watch"] if watch else []))
    assert said.code == 2
    assert said.error["message"] == "--root names no folder"
    assert said.error["hint"] == "name one, like --root ~/.codex, or leave --root out"
    with turnlog.open_ledger() as ledger:
        assert ledger.sessions(all=True) == []
