"""A ledger, a scripted OpenCode and a listener for driving in process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import turnlog
from turnlog import Event, EventKind, Ledger
from turnlog.drive import RunOptions, Stop, TurnResult, resume, run
from turnlog.harness import Ask, ConversationEvent
from turnlog.testing.opencode_peer import OpenCodePeer, assistant


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Person:
    """What a person at the terminal sees, and answers."""

    def __init__(self) -> None:
        self.events: list[ConversationEvent] = []
        self.notices: list[str] = []
        self.asks: list[Ask] = []
        self.session_id = ""
        self.says: str | None = None

    def session(self, session_id: str, artifact_key: str) -> None:
        self.session_id = session_id

    def event(self, event: ConversationEvent) -> None:
        self.events.append(event)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    async def permission(self, ask: Ask) -> str | None:
        self.asks.append(ask)
        if self.says is None:
            await anyio.sleep_forever()
        return self.says


class Desk:
    """One ledger and one scripted server."""

    def __init__(self, root: Path, peer: OpenCodePeer) -> None:
        self.root = root
        self.peer = peer
        self.ledger: Ledger = turnlog.open_ledger(f"sqlite:///{root / 'ledger.db'}")
        self.person = Person()
        self.stop = Stop()

    def options(self, **more: Any) -> RunOptions:
        values: dict[str, Any] = {
            "state_dir": self.root / "state",
            "cwd": self.root,
            "endpoint": self.peer.url,
            "permissions": "ask",
            "timeout_s": 20.0,
        }
        return RunOptions(**{**values, **more})

    async def run(self, prompt: str = "hello", **more: Any) -> TurnResult:
        return await run(self.ledger, self.ledger.start_exec().id, prompt, self.options(**more), self.person, self.stop)

    async def resume(self, prompt: str = "again", session: str | None = None, **more: Any) -> TurnResult:
        return await resume(
            self.ledger,
            self.ledger.start_exec().id,
            session or self.person.session_id,
            prompt,
            self.options(**more),
            self.person,
            self.stop,
        )

    def history(self) -> list[Event]:
        return self.ledger.history(self.person.session_id)

    def kinds(self) -> list[str]:
        return [str(event.kind) for event in self.history() if event.turn is not None]

    def observed(self, source: str) -> list[Event]:
        return [
            event
            for event in self.history()
            if event.kind is EventKind.OBSERVED and str(event.payload.get("source", "")).startswith(source)
        ]

    async def seen(self, found: Callable[[], Any], seconds: float = 10.0) -> Any:
        """Wait on a fact while the conversation is driven; the poll has a deadline."""
        with anyio.fail_after(seconds):
            while not (value := found()):  # noqa: ASYNC110 - the fact is in the ledger, which sets no event
                await anyio.sleep(0.01)
        return value


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with OpenCodePeer() as peer:
        desk = Desk(tmp_path, peer)
        yield desk
        desk.ledger.close()


def answering(peer: OpenCodePeer, text: str = "done", **more: Any) -> None:
    """Let the peer complete every prompt at once."""

    def answer(thread: str, request: str, _: str) -> None:
        values: dict[str, Any] = {"completed": 2, "finish": "stop", "texts": [text], **more}
        peer.put(thread, assistant(f"{request}_a", request, **values))

    peer.answers = answer
