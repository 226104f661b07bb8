"""A turn that a living engine ends while its new driver looks at it is not given up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.drive.conftest import Desk
from turnlog import EventKind
from turnlog.drive import turns
from turnlog.testing.opencode_peer import Seen, assistant

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("when", ["before the first question", "while it was waited for"])
async def test_an_end_that_is_still_on_its_way_is_read_before_a_turn_counts_as_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The engine is idle by the time it is asked, but nobody has told yet how the turn ended."""
    peer, asked, sent = desk.peer, 0, ""

    def begin(thread: str, request: str, _: str) -> None:
        nonlocal sent
        sent = request
        peer.status(thread, "busy")
        peer.put(thread, assistant(f"{request}_a", request))

    peer.answers = begin
    monkeypatch.setattr(turns, "GRACE_S", 0.3)
    first = await desk.run(timeout_s=0.5, keep_engine=True)
    assert first.status == "unknown"
    thread = first.thread
    assert thread is not None

    answer = peer.answer

    def ends_when_asked(seen: Seen) -> tuple[int, Any, dict[str, str]]:
        nonlocal asked
        if seen.path == "/session/status":
            asked += 1
            if asked == (1 if when == "before the first question" else 2):
                ended = assistant(f"{sent}_a", sent, completed=2, finish="stop", texts=["late"])
                peer.put(thread, ended, tell=False)
                peer.statuses.clear()
        return answer(seen)

    peer.answer = ends_when_asked  # type: ignore[method-assign]
    peer.answers = lambda thread, request, _: peer.put(
        thread, assistant(f"{request}_a", request, created=9, completed=10, finish="stop", texts=["next"])
    )
    second = await desk.resume()
    assert second.answer is not None
    assert second.answer.text == "next"
    done = [event.turn for event in desk.history() if event.kind is EventKind.COMPLETED]
    assert done == [first.turn, second.turn]
    assert desk.observed("lost:") == []
