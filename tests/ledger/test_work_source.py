"""Where the work of a conversation was found: ``declared`` for what was named when it began, ``bound`` afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ledger.moving_scenes import new_ledger, own_home
from turnlog import Ledger, open_ledger

__all__ = ["own_home"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_ledger(request.param, tmp_path)


def work(ledger: Ledger) -> tuple[str, str]:
    wave = ledger.create_wave("area", repo="/r")
    project = ledger.create_project(wave.id, external_id="p")
    return wave.id, ledger.create_task(project.id, external_id="issue", identifier="ABC-1").id


def sources(ledger: Ledger, session: str) -> tuple[str | None, str | None, object]:
    """Return what the conversation, its record and its capture say."""
    found = ledger.session(session)
    assert found is not None
    payload = ledger.history(session)[-1].payload
    assert isinstance(payload, dict)
    return found.work_source, ledger.input_history(found.artifact_key).work_source, payload["work_source"]


@pytest.mark.parametrize("named", ["task", "wave", "both"])
def test_work_that_is_named_at_the_beginning_is_declared(url: str, named: str) -> None:
    with open_ledger(url) as ledger:
        wave, task = work(ledger)
        session = ledger.create_session(
            cwd="/r", task_id=None if named == "wave" else task, wave_id=None if named == "task" else wave
        )
        assert session.wave_id == wave
        assert sources(ledger, session.id) == ("declared", "declared", "declared")
        assert ledger.create_session(id=session.id, artifact_key=session.artifact_key, cwd="/r") == session
        ledger.publish_input(session.id, ledger.replace_input(session.id, session.captured).captured)
        assert sources(ledger, session.id) == ("declared", "declared", "declared")


def test_no_work_has_no_source_and_a_bind_is_bound(url: str) -> None:
    with open_ledger(url) as ledger:
        _, task = work(ledger)
        session = ledger.create_session(cwd="/r")
        assert sources(ledger, session.id) == (None, None, None)
        bound = ledger.bind_session(session.id, session.captured, task)
        assert bound.work_source == "bound"
        assert sources(ledger, session.id) == ("bound", None, None)
        ledger.publish_input(session.id, ledger.replace_input(session.id, session.captured).captured)
        assert sources(ledger, session.id) == ("bound", "bound", "bound")
