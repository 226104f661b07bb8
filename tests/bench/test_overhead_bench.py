"""What driving a turn adds to talking to the program directly, over its own pipe: real Codex and Claude, in process."""

from __future__ import annotations

import asyncio
import math
import os
import statistics
import time
import uuid
from pathlib import Path
from typing import Any, Self

import orjson
import pytest

import turnlog
from tests.bench.nobody import Nobody
from turnlog.drive import RunOptions, Stop, run
from turnlog.drive.attempt import watched
from turnlog.drive.claim import take
from turnlog.drive.seat import Seat, harness_of
from turnlog.drive.turns import begin_turn, wait_turn
from turnlog.harness import HarnessConfig
from turnlog.harness._process import locate
from turnlog.harness.claude.launch import Wish, arguments
from turnlog.testing.claude_home import claude_home
from turnlog.testing.codex_home import codex_home
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

TURNS = 30
BUDGET_MS = 30.0
PROMPT = "[[stub: text text=ok]]"


class Direct:
    """The program without us: lines out, lines in."""

    def __init__(self, argv: list[str], work: Path, env: dict[str, str]) -> None:
        self._argv = argv
        self._work = work
        self._env = env

    async def __aenter__(self) -> Self:
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            cwd=self._work,
            env={**os.environ, **self._env},
            stdin=pipe,
            stdout=pipe,
            stderr=nothing,
            limit=1 << 24,
        )
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def open(self) -> None:
        """Say hello."""

    async def turn(self) -> None:
        """Have one turn, from the prompt to the end that the program tells."""

    def say(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(value) + b"\n")

    async def until(self, **members: Any) -> Any:
        """Read lines up to one with these members."""
        assert self._process.stdout is not None
        while True:
            line = orjson.loads(await self._process.stdout.readline())
            if all(line.get(name) == value for name, value in members.items()):
                return line


class DirectCodex(Direct):
    async def open(self) -> None:
        client = {"name": "direct", "title": "direct", "version": "1"}
        self.say({"id": 1, "method": "initialize", "params": {"clientInfo": client}})
        await self.until(id=1)
        self.say({"method": "initialized"})
        settings = {"approvalPolicy": "never", "sandbox": "danger-full-access", "cwd": str(self._work)}
        self.say({"id": 2, "method": "thread/start", "params": settings})
        self._thread = (await self.until(id=2))["result"]["thread"]["id"]

    async def turn(self) -> None:
        params = {"threadId": self._thread, "input": [{"type": "text", "text": PROMPT}]}
        self.say({"id": 3, "method": "turn/start", "params": params})
        await self.until(method="turn/completed")


class DirectClaude(Direct):
    async def turn(self) -> None:
        content = [{"type": "text", "text": PROMPT}]
        self.say({"type": "user", "uuid": str(uuid.uuid4()), "message": {"role": "user", "content": content}})
        await self.until(type="result")


def program(provider: str, root: Path, stub: StubLlm) -> tuple[Direct, Path, dict[str, str]]:
    """Return the program to talk to, with folder and environment for both ways."""
    if provider == "codex":
        codex = codex_home(root, stub.url)
        argv = [str(locate("codex", {**os.environ, **codex.env}, cwd=codex.work)), "app-server"]
        return DirectCodex(argv, codex.work, codex.env), codex.work, codex.env
    claude = claude_home(root, stub.url)
    env = {**claude.env, "IS_SANDBOX": "1"}
    config = HarnessConfig(cwd=claude.work, title="direct", state_dir=claude.state, permissions="allow", env=env)
    words = arguments(config, str(uuid.uuid4()), Wish(), resume=False)
    argv = [str(locate("claude", {**os.environ, **env}, cwd=claude.work)), *words]
    return DirectClaude(argv, claude.work, env), claude.work, env


async def _measure(provider: str, root: Path, stub: StubLlm) -> tuple[list[float], list[float]]:
    direct, work, env = program(provider, root, stub)
    ledger = turnlog.open_ledger(f"sqlite:///{root / 'ledger.db'}")
    options = RunOptions(
        provider=provider, state_dir=root / "engines", cwd=work, permissions="allow", timeout_s=60, title="bench"
    )
    alone: list[float] = []
    driven: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        first = await run(ledger, ledger.start_exec().id, PROMPT, options, Nobody(), Stop())
        session = ledger.session(first.session_id)
        assert session is not None
        claim = take(ledger, session, ledger.start_exec().id, endpoint=None, replace=False, adoptable=False)
        harness = harness_of(session, options, first.thread, frozenset(), env)
        seat = Seat(ledger, session, claim, harness, options, Nobody())
        try:
            await seat.start()
            async with direct, watched(seat):
                await direct.turn()
                for _ in range(TURNS):  # by turns, so that both see the same machine
                    begun = time.perf_counter()
                    await direct.turn()
                    alone.append((time.perf_counter() - begun) * 1000)
                    begun = time.perf_counter()
                    turn, _ = await begin_turn(seat, PROMPT, {})
                    assert (await wait_turn(seat, turn, Stop(), math.inf)).status == "completed"
                    driven.append((time.perf_counter() - begun) * 1000)
        finally:
            await harness.stop()
            ledger.close()
    return alone, driven


@pytest.mark.parametrize("provider", ["codex", "claude"])
def test_overhead_per_driven_turn(provider: str, tmp_path: Path) -> None:
    with StubLlm() as stub:
        alone, driven = asyncio.run(_measure(provider, tmp_path, stub))
    raw, ours = statistics.median(alone), statistics.median(driven)
    added = statistics.median(b - a for a, b in zip(alone, driven, strict=True))
    word = "PASS" if added <= BUDGET_MS else "MISS"
    print(f"\n{provider.capitalize()} turn: direct {raw:.0f} ms, driven {ours:.0f} ms ({ours / raw:.2f} ×)")
    print(f"{word}: {added:.0f} ms added per turn of an open conversation (budget {BUDGET_MS:.0f} ms)")
    assert len(driven) == TURNS
