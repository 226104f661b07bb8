"""What the suite needs from a provider's author, and the words its tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, Self

import msgspec
import pytest

from turnlog.harness import Ask, Batch, Child, ConversationEvent, Harness, Note, SteerOutcome
from turnlog.receipts import Receipt, canonical
from turnlog.testing.harness_suite_stage import ANSWER, SCHEMA, SECRET, VALUE

__all__ = ["ANSWER", "SCHEMA", "SECRET", "VALUE", "Driven", "HarnessTests", "Lab", "distinct", "recovered"]

SECONDS: Final = 60.0
"""How long anything may take that is waited for."""


class Lab(Protocol):
    """One provider under test, fresh for each test. See ``turnlog.testing.harness_suite`` for the scenarios."""

    provider: str
    structured: bool
    """The provider itself answers to a JSON Schema."""

    steerable: bool
    """A running turn takes more words."""

    adoptable: bool
    """A ``mortal`` engine can be taken over by another harness object after ``detach``."""

    asks: bool
    """The provider can be made to ask for a permission."""

    @property
    def made(self) -> Path:
        """The file that the command of the scenario ``tool`` makes."""
        ...

    def harness(self, *, mortal: bool = False, **config: Any) -> Harness:
        """Return a harness that was not started; ``config`` are members of HarnessConfig.

        Unless told otherwise its policy is ``allow``. All harnesses of one lab share folder and state folder.
        ``mortal``: its engine may die in this test, so it serves nobody else.
        """
        ...

    def prompt(self, scenario: str) -> str:
        """Return the words that make the provider play a scenario."""
        ...

    def release(self) -> None:
        """Let the scenario ``hang`` go on to its end."""
        ...

    async def kill_engine(self, harness: Harness) -> None:
        """Kill the engine of a ``mortal`` harness as ``kill -9`` does."""
        ...

    async def foreign_turn(self, thread: str) -> str | None:
        """Let another client have a turn (scenario ``text``) and return its id; None when there can be no other."""
        ...

    async def retell(self, harness: Harness, turn: str, text: str) -> bool:
        """Make the provider tell an ended turn again with another answer; False when it cannot be made to."""
        ...

    async def babble(self, harness: Harness) -> bool:
        """Make the provider say what no version we know says, unreadable words too; False when it cannot be made to."""
        ...


class Sent(msgspec.Struct, frozen=True):
    """A request of ours and the turn that it began."""

    request: str
    turn: str


class Driven:
    """A started harness with an open thread, observed until the block ends; then H1 and H7 are checked.

    ``leave``: at the end the engine is left alone (``detach``) instead of ended.
    """

    def __init__(self, harness: Harness, *, leave: bool = False) -> None:
        self.harness = harness
        self.thread = ""
        self.batches: list[Batch] = []
        self.sent: list[Sent] = []
        self.ended = False
        self._leave = leave
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.harness.start()
            self.thread = await self.harness.open_thread()
        except BaseException:
            await self.harness.stop()
            raise
        self._task = asyncio.create_task(self._run())
        await self.until(lambda: bool(self.batches))  # as a driver does: nothing is sent before the first look
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await (self.harness.detach() if self._leave else self.harness.stop())
        await self.finished()
        if kind is None:
            check(self)

    async def _run(self) -> None:
        try:
            async for batch in self.harness.observe():
                async with self._changed:
                    self.batches.append(batch)
                    self._changed.notify_all()
        finally:
            async with self._changed:
                self.ended = True
                self._changed.notify_all()

    async def until(self, found: Callable[[], bool]) -> None:
        """Wait until a condition holds that a batch, or the end, can make true."""
        async with self._changed:
            try:
                async with asyncio.timeout(SECONDS):
                    await self._changed.wait_for(found)
            except TimeoutError:
                raise AssertionError(f"not seen within {SECONDS:g} s; seen: {self.batches}") from None

    async def finished(self) -> None:
        """Wait for the end of the observation; an error of it comes out here."""
        if self._task is not None:
            async with asyncio.timeout(SECONDS):
                await self._task

    async def idle(self) -> None:
        """Wait until nothing works: a program may tell how a turn ended just before it calls itself idle."""
        async with asyncio.timeout(SECONDS):
            while await self.harness.busy():  # noqa: ASYNC110 - nothing tells it
                await asyncio.sleep(0.01)

    # --- doing ------------------------------------------------------------------------------------------------------

    async def send(self, text: str, **more: Any) -> Sent:
        """Begin a turn."""
        request = self.harness.new_request_id()
        told = await self.harness.send(request, text, **more)
        turn = told or self.harness.turn_of(request)
        assert turn is not None, "neither we nor the provider chose a turn id"
        sent = Sent(request, turn)
        self.sent.append(sent)
        return sent

    async def steer(self, text: str) -> tuple[Sent, SteerOutcome]:
        """Say something into the running turn. Where the provider chooses ids, the request stands for its turn."""
        request = self.harness.new_request_id()
        outcome = await self.harness.steer(request, text)
        sent = Sent(request, self.harness.turn_of(request) or request)
        if outcome is SteerOutcome.SENT:
            self.sent.append(sent)
        return sent, outcome

    async def turn(self, text: str, **more: Any) -> Sent:
        """Begin a turn and wait for its end."""
        sent = await self.send(text, **more)
        await self.end_of(sent.turn)
        return sent

    async def speaking(self, text: str) -> Sent:
        """Begin a turn and wait until its answer comes."""
        sent = await self.send(text)
        await self.until(lambda: "text_delta" in self.types(sent.turn))
        return sent

    async def end_of(self, turn: str) -> Any:
        """Wait for a turn's completion and return its payload."""
        await self.until(lambda: bool(self.payloads("completed", turn)))
        return self.payloads("completed", turn)[0]

    # --- what was seen ----------------------------------------------------------------------------------------------

    @property
    def receipts(self) -> list[Receipt]:
        """Receipts in the order they came, each once, as a ledger keeps them."""
        return distinct(receipt for batch in self.batches for receipt in batch.receipts)

    @property
    def events(self) -> list[ConversationEvent]:
        return [event for batch in self.batches for event in batch.events]

    @property
    def notes(self) -> list[Note]:
        return [note for batch in self.batches for note in batch.notes]

    @property
    def asks(self) -> list[Ask]:
        return [ask for batch in self.batches for ask in batch.asks]

    @property
    def children(self) -> list[Child]:
        return [child for batch in self.batches for child in batch.children]

    @property
    def settled(self) -> dict[str, str]:
        return {request: by for batch in self.batches for request, by in batch.settled}

    @property
    def accepted(self) -> set[tuple[str, str]]:
        return {pair for batch in self.batches for pair in batch.accepted}

    @property
    def stalled(self) -> set[str]:
        return {name for batch in self.batches for name in batch.stalled}

    def kinds(self, turn: str) -> list[str]:
        """Return the kinds of a turn's receipts in order."""
        return [receipt.kind for receipt in self.receipts if (receipt.thread, receipt.turn) == (self.thread, turn)]

    def payloads(self, kind: str, turn: str) -> list[Any]:
        """Return the distinct payloads of one kind of a turn."""
        wanted = (self.thread, turn, kind)
        return [r.payload for r in self.receipts if (r.thread, r.turn, r.kind) == wanted]

    def types(self, turn: str) -> list[str]:
        """Return the types of a turn's events in order."""
        return [event.type for event in self.events if event.turn_id == turn]

    def text(self, turn: str) -> str:
        """Return the streamed text of a turn."""
        wanted = ("text_delta", turn)
        return "".join(event.content or "" for event in self.events if (event.type, event.turn_id) == wanted)

    def items(self, turn: str, event_type: str) -> list[dict[str, Any]]:
        """Return the tools and commands that events of one type tell about a turn."""
        found = [e.item for e in self.events if (e.turn_id, e.type) == (turn, event_type) and e.item is not None]
        return [item for item in found if item["kind"] in {"tool", "command"}]


def distinct(receipts: Any) -> list[Receipt]:
    """Return receipts once each, in order."""
    found: dict[tuple[str, str, str, str], Receipt] = {}
    for receipt in receipts:
        found.setdefault((receipt.thread, receipt.turn, receipt.kind, canonical(receipt.payload)), receipt)
    return list(found.values())


def identity(batch: Batch) -> Any:
    """Return everything a batch says, in a form that two readings of one history can be compared by."""
    receipts = sorted((r.thread, r.turn, r.kind, canonical(r.payload)) for r in batch.receipts)
    notes = sorted((note.source, canonical(note.evidence)) for note in batch.notes)
    return receipts, notes, sorted(batch.settled), sorted(batch.accepted), sorted(batch.stalled)


async def recovered(harness: Harness) -> Batch:
    """Read the provider's history twice, with the same result (promise 2) and without events."""
    first, second = await harness.recover(), await harness.recover()
    assert identity(first) == identity(second)
    assert first.events == second.events == ()
    assert first.asks == second.asks == ()
    return first


def check(driven: Driven) -> None:
    """Check the rules that hold for whatever was seen: H1, H7, and who may get a start."""
    turns = {sent.turn for sent in driven.sent}
    for turn in turns:
        types = driven.types(turn)
        assert types.count("turn_started") <= 1, types
        assert types.count("turn_completed") <= 1, types
        told = [kind for kind in types if not kind.startswith(("permission_", "status_"))]
        if "turn_started" in told:
            assert told[0] == "turn_started", "a start comes before content"
        if "turn_completed" in told:
            assert "turn_started" in told
            assert told.index("turn_completed") == len(told) - 1, "nothing comes after the end"
            (end,) = [event for event in driven.events if (event.type, event.turn_id) == ("turn_completed", turn)]
            assert ("error" in told[-2:]) == (end.status != "completed"), "an error stands directly before a bad end"
        kinds = driven.kinds(turn)
        if "started" in kinds:
            assert kinds.index("started") == 0
        assert kinds.count("started") <= 1
    for receipt in driven.receipts:
        if receipt.kind == "started":
            assert receipt.payload == {}
    strangers = [event for event in driven.events if event.turn_id not in turns and event.turn_id is not None]
    assert {event.type for event in strangers} <= {"permission_asked", "permission_settled"}, strangers


class HarnessTests:
    """Base of the suite's classes."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        """Harnesses run on asyncio."""
        return "asyncio"
