"""A driver that cannot reach its ledger: it sends nothing, loses nothing, and ends its turn before its lease does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from tests.drive.conftest import Desk, answering
from turnlog import EventKind, UnavailableError
from turnlog.drive import TurnResult
from turnlog.testing.opencode_peer import assistant

pytestmark = pytest.mark.anyio

PROMPT = "POST /session/[^/]+/prompt_async"
ABORT = "POST /session/[^/]+/abort"
VERBS = ("heartbeat", "driving", "take_batch", "retain_for_turn", "change_token", "requests", "take_requests")
SHORT = 1.2


class Cut:
    """The ledger is out of reach: calls fail, or hang like a connection that nobody answers."""

    def __init__(self, desk: Desk, patch: pytest.MonkeyPatch) -> None:
        self.desk = desk
        self.patch = patch
        self.back = threading.Event()
        self.tried: list[str] = []

    @contextmanager
    def cut(self, *, hangs: bool = False) -> Iterator[None]:
        with self.patch.context() as patched:
            for name in VERBS:
                real = getattr(self.desk.ledger, name)

                def call(*args: Any, name: str = name, real: Any = real, **more: Any) -> Any:
                    self.tried.append(name)
                    if hangs:
                        self.back.wait(30)
                    if not self.back.is_set():
                        raise UnavailableError("the network is cut")
                    return real(*args, **more)

                patched.setattr(self.desk.ledger, name, call)
            try:
                yield
            finally:
                self.back.set()


@pytest.fixture
def cut(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Cut:
    return Cut(desk, monkeypatch)


def complete(desk: Desk) -> str:
    """Let the provider end the turn that was asked; return its id."""
    sent = next(each for each in desk.peer.seen if each.path.endswith("/prompt_async"))
    thread, request = sent.path.split("/")[2], str(sent.body["messageID"])
    desk.peer.put(thread, assistant(f"{request}_a", request, completed=2, finish="stop", texts=["done"]))
    return request


async def test_a_short_cut_loses_nothing(desk: Desk, cut: Cut) -> None:
    results: list[TurnResult] = []

    async def drive() -> None:
        results.append(await desk.run(lease_s=30.0))

    desk.peer.answers = lambda thread, request, _: desk.peer.put(thread, assistant(f"{request}_a", request))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        await desk.seen(lambda: desk.person.session_id and "started" in desk.kinds())
        with cut.cut():
            complete(desk)
            await desk.seen(lambda: cut.tried.count("take_batch") > 1)
    assert [(result.status, result.answer.text if result.answer else "") for result in results] == [
        ("completed", "done")
    ]
    assert desk.peer.count(PROMPT) == 1
    assert desk.kinds().count("completed") == 1


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("keep", [False, True])
async def test_a_long_cut_ends_the_turn_before_the_lease_does(desk: Desk, cut: Cut, hangs: bool, keep: bool) -> None:
    failures: list[UnavailableError] = []

    async def drive() -> None:
        try:
            await desk.run(lease_s=SHORT, keep_engine=keep)
        except UnavailableError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        await desk.seen(lambda: desk.peer.count(PROMPT))
        began = anyio.current_time()
        with cut.cut(hangs=hangs):
            await desk.seen(lambda: desk.peer.count(ABORT))
            assert anyio.current_time() - began < SHORT, "the turn ended within the lease"
            await desk.seen(lambda: any("could not be reached" in each for each in desk.person.notices))
    [failure] = failures
    assert "the turn was ended" in failure.message
    assert desk.peer.count(PROMPT) == 1
    assert desk.peer.count(ABORT) == 1
    assert desk.kinds().count("completed") == 0, "its outcome is the provider's to tell"


async def test_nothing_is_sent_by_a_driver_that_was_cut_off(desk: Desk, cut: Cut) -> None:
    """Also not when the ledger is back: its engine is gone, and perhaps its conversation."""
    seat_seen: list[Any] = []
    from turnlog.drive import attempt

    sit = attempt.Hold.sit

    async def remember(self: Any, *args: Any, **more: Any) -> Any:
        seat = await sit(self, *args, **more)
        seat_seen.append(seat)
        return seat

    cut.patch.setattr(attempt.Hold, "sit", remember)

    async def drive() -> None:
        with pytest.raises(UnavailableError):
            await desk.run(lease_s=SHORT)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        await desk.seen(lambda: desk.peer.count(PROMPT))
        with cut.cut():
            await desk.seen(lambda: desk.peer.count(ABORT))
    with pytest.raises(UnavailableError, match="cut off"):
        async with seat_seen[0].dispatch():
            raise AssertionError
    answering(desk.peer)
    assert (await desk.resume()).status == "completed"
    assert [str(e.kind) for e in desk.history() if e.kind is EventKind.REQUESTED] == ["requested"] * 2
