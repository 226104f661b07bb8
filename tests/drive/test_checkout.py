"""A conversation that its folder attributed: recorded as such with its first turn."""

from __future__ import annotations

import pytest

from tests.drive.conftest import Desk, answering

pytestmark = pytest.mark.anyio


async def test_the_attribution_of_a_checkout_is_marked_and_reaches_the_turn(desk: Desk) -> None:
    wave = desk.ledger.create_wave("w", repo=str(desk.root))
    project = desk.ledger.create_project(wave.id, external_id="p")
    task = desk.ledger.create_task(project.id, external_id="i", identifier="ABC-1", worktree=desk.root)
    found = desk.ledger.checkout_work(desk.root)
    assert found is not None
    answering(desk.peer)
    result = await desk.run(task_id=found.task_id, wave_id=found.wave_id, work_source="checkout")
    session = desk.ledger.session(result.session_id)
    assert session is not None
    assert (session.task_id, session.wave_id, session.work_source) == (task.id, wave.id, "checkout")
    assert {event.task_id for event in desk.history() if event.turn == result.turn} == {task.id}
    assert desk.ledger.input_history(result.session_id).work_source == "checkout"
    await desk.resume()
    assert desk.ledger.input_history(result.session_id).work_source == "checkout"
