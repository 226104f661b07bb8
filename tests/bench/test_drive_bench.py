"""What driving a turn adds to talking to the provider directly: real OpenCode, engine running, in process."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from pathlib import Path

import httpx
import pytest

import turnlog
from tests.bench.nobody import Nobody
from turnlog.drive import RunOptions, Stop, resume, run
from turnlog.drive.attempt import watched
from turnlog.drive.claim import take
from turnlog.drive.seat import Seat, harness_of
from turnlog.drive.turns import begin_turn, wait_turn
from turnlog.harness import HarnessConfig
from turnlog.harness.opencode.live import OpenCodeHarness
from turnlog.testing.opencode_home import opencode_home
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

TURNS = 15
BUDGET_MS = 30.0
PROMPT = "[[stub: text text=ok]]"


async def _measure(root: Path, stub: StubLlm) -> tuple[list[float], list[float], list[float]]:
    home = opencode_home(root, stub.url)
    config = HarnessConfig(cwd=home.work, title="bench", state_dir=home.state, permissions="allow", env=home.env)
    owner = OpenCodeHarness(config)
    endpoint = (await owner.start()).endpoint or ""
    (password_file,) = home.state.glob("opencode-*.password")
    password = password_file.read_text()
    attached = endpoint.replace("http://", f"http://opencode:{password}@")
    ledger = turnlog.open_ledger(f"sqlite:///{root / 'ledger.db'}")
    options = RunOptions(state_dir=root / "state", cwd=home.work, endpoint=attached, permissions="allow", timeout_s=60)
    direct, turns, commands = [], [], []
    try:
        first = await run(ledger, ledger.start_exec().id, PROMPT, options, Nobody(), Stop())
        session = ledger.session(first.session_id)
        assert session is not None
        auth = ("opencode", password)
        async with httpx.AsyncClient(base_url=endpoint, auth=auth, timeout=60, trust_env=False) as client:
            made = (await client.post("/session", json={"title": "direct"})).json()["id"]
            body = {"parts": [{"type": "text", "text": PROMPT}]}
            await client.post(f"/session/{made}/message", json=body)
            for _ in range(TURNS):
                begun = time.perf_counter()
                await resume(ledger, ledger.start_exec().id, session.id, PROMPT, options, Nobody(), Stop())
                commands.append((time.perf_counter() - begun) * 1000)
            claim = take(ledger, session, ledger.start_exec().id, endpoint=attached, replace=False, adoptable=True)
            harness = harness_of(session, options, first.thread, frozenset(), {})
            seat = Seat(ledger, session, claim, harness, options, Nobody())
            await seat.start()
            async with watched(seat):
                for _ in range(TURNS):  # by turns, so that both see the same machine
                    begun = time.perf_counter()
                    await client.post(f"/session/{made}/message", json=body)
                    direct.append((time.perf_counter() - begun) * 1000)
                    begun = time.perf_counter()
                    turn, _ = await begin_turn(seat, PROMPT, {})
                    assert (await wait_turn(seat, turn, Stop(), math.inf)).status == "completed"
                    turns.append((time.perf_counter() - begun) * 1000)
            await harness.detach()
    finally:
        await owner.stop()
        ledger.close()
    return direct, turns, commands


def test_overhead_per_driven_turn(tmp_path: Path) -> None:
    with StubLlm() as stub:
        direct, turns, commands = asyncio.run(_measure(tmp_path, stub))
    raw, ours, whole = (statistics.median(each) for each in (direct, turns, commands))
    added = statistics.median(b - a for a, b in zip(direct, turns, strict=True))
    word = "PASS" if added <= BUDGET_MS else "MISS"
    print(f"\nOpenCode turn: direct {raw:.0f} ms, driven {ours:.0f} ms ({ours / raw:.2f} ×)")
    print(f"{word}: {added:.0f} ms added per turn of an open conversation (budget {BUDGET_MS:.0f} ms)")
    print(f"whole resume in process, attach and first look included: {whole:.0f} ms ({whole / raw:.2f} ×)")
    assert len(turns) == TURNS
