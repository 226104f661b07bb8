"""The harness suite on scripted programs: what needs no agent, and what a real one cannot be made to show."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest

from tests.harness.driving import until
from turnlog.harness import Harness, HarnessConfig, harness_for
from turnlog.testing.codex_peer import THREAD, completed
from turnlog.testing.harness_suite import HarnessSuite
from turnlog.testing.harness_suite_claude import claude_player
from turnlog.testing.harness_suite_codex import codex_player
from turnlog.testing.harness_suite_opencode import OpenCodePlayer
from turnlog.testing.harness_suite_stage import put

pytestmark = pytest.mark.timeout(150)


class PeerLab:
    """Folders of one test, with a scripted program in them."""

    provider: ClassVar[str]
    structured = True
    steerable = True
    adoptable = False
    asks = True
    strange: ClassVar[tuple[str, ...]] = ()

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "peer"
        self.folder.mkdir()
        self.made = root / "made"
        self.env: dict[str, str] = {}

    def harness(self, *, mortal: bool = False, **config: Any) -> Harness:
        settings = {"title": "peer", "permissions": "allow", "state_dir": self.root / "state", **config}
        return harness_for(self.provider)(HarnessConfig(cwd=self.root, env=self.env, **settings))

    def prompt(self, scenario: str) -> str:
        return f"<{scenario}>"

    def release(self) -> None:
        put(self.folder, "release")

    async def kill_engine(self, harness: Harness) -> None:
        pid = (await harness.start()).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    async def foreign_turn(self, thread: str) -> str | None:
        return None

    async def babble(self, harness: Harness) -> bool:
        put(self.folder, "say", "\n".join(self.strange))
        await until(lambda: not (self.folder / "say").exists())  # what comes now is said afterwards
        return True


class OpenCodeLab(PeerLab):
    provider = "opencode"
    structured = False
    adoptable = True
    strange = (
        'data: {"type": "novelty.happened", "properties": {"sessionID": "ses_0000", "text": "hm"}}',
        "data: {broken",
        ": a comment",
        'data: {"type": "message.updated", "properties": {"info": {"id": 7}}}',
        'data: {"type": "message.part.updated", "properties": {"part": {"id": "p", "type": "hologram"}}}',
        "event: novelty\ndata: []",
    )

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.peer = OpenCodePlayer(self.folder, self.made)
        self.peer.__enter__()

    def harness(self, *, mortal: bool = False, **config: Any) -> Harness:
        return super().harness(endpoint=self.peer.url, **config)

    async def kill_engine(self, harness: Harness) -> None:
        killed = self.peer
        await asyncio.to_thread(killed.close)
        self.peer = OpenCodePlayer(self.folder, self.made, killed)
        self.peer.__enter__()

    async def foreign_turn(self, thread: str) -> str | None:
        return self.peer.foreign(thread, self.prompt("text"))

    async def retell(self, harness: Harness, turn: str, text: str) -> bool:
        self.peer.retell(await harness.open_thread(), turn, text)
        return True

    async def babble(self, harness: Harness) -> bool:
        self.peer.stage(await harness.open_thread())
        return await super().babble(harness)


class CodexLab(PeerLab):
    provider = "codex"
    strange = (
        '{"method": "novelty/happened", "params": {"threadId": "T", "turnId": "turn_9"}}',
        '{"method": "item/completed", "params": {"threadId": "T", "turnId": "turn_9", "item": {"type": "hologram"}}}',
        "not JSON at all",
        "[1, 2]",
        '{"id": "who?", "method": "novelty/ask", "params": {}}',
        '{"id": 4711, "result": {}}',
    )

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.env = {"TURNLOG_CODEX_BIN": str(codex_player(self.folder, self.made))}

    async def retell(self, harness: Harness, turn: str, text: str) -> bool:
        said = completed(turn, text=text, thread=THREAD)
        put(self.folder, "say", orjson.dumps({"method": said["say"], "params": said["params"]}).decode())
        return True


class ClaudeLab(PeerLab):
    provider = "claude"
    strange = (
        '{"type": "novelty", "text": "hm"}',
        '{"type": "system", "subtype": "novelty"}',
        "not JSON at all",
        "[1, 2]",
        '{"type": "stream_event", "event": {"type": "hologram"}}',
        '{"type": "control_request", "request_id": "who", "request": {"subtype": "novelty"}}',
    )

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        config = str(root / "home")
        self.env = {"TURNLOG_CLAUDE_BIN": str(claude_player(self.folder, self.made)), "CLAUDE_CONFIG_DIR": config}

    async def retell(self, harness: Harness, turn: str, text: str) -> bool:
        line = {"type": "result", "subtype": "success", "is_error": False, "result": text, "uuid": "another"}
        put(self.folder, "say", orjson.dumps({**line, "user_message_uuid": turn}).decode())
        return True


class TestOpenCodePeer(HarnessSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Iterator[OpenCodeLab]:
        made = OpenCodeLab(tmp_path)
        yield made
        made.peer.close()


class TestCodexPeer(HarnessSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> CodexLab:
        return CodexLab(tmp_path)


class TestClaudePeer(HarnessSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> ClaudeLab:
        return ClaudeLab(tmp_path)
