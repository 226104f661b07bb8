"""Work that was named when a conversation began: recorded as declared, with its first turn and ever after."""

from __future__ import annotations

import pytest

from tests.drive.conftest import Desk, answering

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("named", ["task", "wave"])
async def test_work_that_was_named_is_declared_and_stays_so(desk: Desk, named: str) -> None:
    wave = desk.ledger.create_wave("w", repo=str(desk.root))
    project = desk.ledger.create_project(wave.id, external_id="p")
    task = desk.ledger.create_task(project.id, external_id="i", identifier="ABC-1")
    answering(desk.peer)
    result = await desk.run(**({"task_id": task.id} if named == "task" else {"wave_id": wave.id}))
    session = desk.ledger.session(result.session_id)
    assert session is not None
    assert (session.wave_id, session.work_source) == (wave.id, "declared")
    assert desk.ledger.input_history(result.session_id).work_source == "declared"
    await desk.resume()
    assert desk.ledger.input_history(result.session_id).work_source == "declared"
