"""The slow ones: every retry of a broken model, kills at every point, long conversations (make soak)."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.drive.conftest import Person
from tests.live.cli import Cli, begun, engine_of, events, kill_group, observed, session_of, status_of, until
from tests.live.programs import PROVIDERS, command_line
from turnlog import EventKind
from turnlog.drive import RunOptions, Stop
from turnlog.drive.attempt import watched
from turnlog.drive.claim import take
from turnlog.drive.seat import Seat, harness_of
from turnlog.drive.turns import begin_turn, wait_turn
from turnlog.harness.opencode.live import OpenCodeHarness
from turnlog.testing.opencode_home import opencode_home
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]

TURNS = 200


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


@pytest.fixture
def cli(stub: StubLlm, tmp_path: Path) -> Cli:
    stub.reset()  # what an earlier test asked is nothing to wait for
    home = opencode_home(tmp_path, stub.url)
    return Cli(tmp_path, home.work, home.env)


def test_a_model_that_fails_for_ever_fails_the_turn(cli: Cli) -> None:
    running = cli.start("run", "[[stub: error500]] go")
    out, _ = running.process.communicate(timeout=180)
    assert running.process.returncode == 1, out
    session = session_of(cli)
    (turn,) = [str(event.turn) for event in begun(cli, session)]
    assert status_of(cli, session, turn) == "failed"
    cli.recover_changes_nothing(session)


def test_an_interrupt_while_the_program_waits_to_retry(cli: Cli, stub: StubLlm) -> None:
    running = cli.start("run", "[[stub: error500]] go")
    session = session_of(cli)
    begun(cli, session)
    stub.wait(lambda log: any(entry["outcome"] == "500" for entry in log), 60)
    running.signal(signal.SIGINT)
    result = running.result(130)
    assert result["status"] in {"interrupted", "unknown"}
    assert result["usage"]["input_tokens"] is None
    cli.recover_changes_nothing(session)


def _observed_launch(cli: Cli) -> bool:
    session = session_of(cli)
    return any("spawn_requested" in repr(event.payload) for event in events(cli, session))


def _has(kind: EventKind) -> Callable[[Cli], bool]:
    return lambda cli: any(event.kind is kind for event in events(cli, session_of(cli)))


def _tool_runs(cli: Cli) -> bool:
    return (cli.work / "began").exists()


POINTS: dict[str, Callable[[Cli], bool]] = {
    "launching": _observed_launch,
    "intended": _has(EventKind.REQUESTED),
    "streaming": _has(EventKind.STARTED),
    "in a tool": _tool_runs,
    "completed": _has(EventKind.COMPLETED),
}
PROMPTS = {
    "streaming": "[[stub: slow n=60 delay=0.1]] go",
    "in a tool": "[[stub: tool cmd=touch_began;sleep_4]] go",
}


@pytest.mark.parametrize("victim", ["engine", "turnlog", "both"])
@pytest.mark.parametrize("point", list(POINTS))
@pytest.mark.parametrize("provider", PROVIDERS)
def test_killed_at(stub: StubLlm, tmp_path: Path, provider: str, point: str, victim: str) -> None:
    cli = command_line(provider, tmp_path, stub)
    prompt = PROMPTS.get(point, "[[stub: text]] go")
    running = cli.start("run", "--provider", provider, "--permissions", "allow", prompt)
    until(lambda: POINTS[point](cli), point)
    session = session_of(cli)
    engine = _engine(cli, session, running.process.pid, point, provider)
    if victim != "engine":
        running.kill()
    if victim != "turnlog" and engine is not None and engine.is_running():
        with_group(engine)
    if victim == "engine":
        running.result(None)
    cli.recover_changes_nothing(session)
    went_on = cli.resume(session, "[[stub: text text=on]] go")
    assert (went_on["status"], went_on["answer"]) == ("completed", "on")
    cli.recover_changes_nothing(session)
    rows = events(cli, session)
    for kind in (EventKind.STARTED, EventKind.COMPLETED):
        turns = [event.turn for event in rows if event.kind is kind]
        assert len(turns) == len(set(turns)), "nothing is doubled"
    assert all(event.exec_id for event in rows if event.kind is EventKind.STARTED)
    if point == "completed":
        assert next(event.turn for event in rows if event.kind is EventKind.STARTED) in [
            event.turn for event in rows if event.kind is EventKind.COMPLETED
        ]
    assert not observed(cli, session, "conflict:")
    with cli.ledger() as ledger:
        left = [intent.request_id for intent in ledger.outstanding_intents(session)]
    # Claude's file names a line some time after it was asked: that it does not is no proof, so the request stays open.
    assert left == [] or (provider == "claude" and point == "intended" and len(left) == 1)


def _engine(cli: Cli, session: str, turnlog_pid: int, point: str, provider: str) -> psutil.Process | None:
    if point == "launching":
        try:
            children = psutil.Process(turnlog_pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return None
        return next((each for each in children if provider in each.name()), None)
    try:
        return engine_of(cli, session)
    except psutil.NoSuchProcess:
        return None


def with_group(engine: psutil.Process) -> None:
    try:
        kill_group(engine)
    except ProcessLookupError:
        return


INTERRUPTIONS = {
    "stream": ("[[stub: slow n=600 delay=0.1]] go", _has(EventKind.STARTED)),
    "tool": ("[[stub: tool cmd=touch_began;sleep_60]] go", _tool_runs),
    "approval": ("[[stub: tool cmd=touch_made]] go", lambda cli: bool(observed(cli, session_of(cli), "permission:"))),
}


@pytest.mark.parametrize("point", list(INTERRUPTIONS))
@pytest.mark.parametrize("provider", PROVIDERS)
def test_interrupted_during(stub: StubLlm, tmp_path: Path, provider: str, point: str) -> None:
    asks = point == "approval"
    cli = command_line(provider, tmp_path, stub, asks=asks)
    prompt, reached = INTERRUPTIONS[point]
    policy = "ask" if asks else "allow"
    running = cli.start("run", "--provider", provider, "--permissions", policy, prompt)
    until(lambda: reached(cli), point)
    session = session_of(cli)
    running.signal(signal.SIGINT)
    result = running.result(130)
    assert result["status"] in {"interrupted", "unknown"}
    assert not (cli.work / "made").exists()
    cli.recover_changes_nothing(session)
    assert cli.resume(session, "[[stub: text text=on]] go")["answer"] == "on"
    cli.recover_changes_nothing(session)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_long_conversation_stays_flat(stub: StubLlm, tmp_path: Path, provider: str) -> None:
    cli = command_line(provider, tmp_path, stub)
    seen = asyncio.run(_long(cli))
    rss, seconds, read = seen["rss"], seen["seconds"], seen["bytes"]
    print(f"\n{provider}: RSS of turnlog at turn 20 {rss[0] / 1e6:.0f} MB, at turn {TURNS} {rss[1] / 1e6:.0f} MB")
    print(f"{provider}: ten turns took {seconds[0]:.2f} s at turn 20, {seconds[1]:.2f} s at turn {TURNS}")
    assert rss[1] - rss[0] < 30e6
    if provider == "opencode":
        print(f"{provider}: bytes read per turn {read[0]:.0f} at turn 20, {read[1]:.0f} at turn {TURNS}")
        assert read[1] < 2 * read[0], "what is read per turn does not grow with the conversation"


async def _long(cli: Cli) -> dict[str, tuple[float, float]]:
    ledger = cli.ledger()
    session = ledger.create_session(cwd=str(cli.work), provider=cli.provider)
    claim = take(ledger, session, ledger.start_exec().id, endpoint=None, replace=False, adoptable=True)
    options = RunOptions(state_dir=cli.root / "state", cwd=cli.work, permissions="allow")
    harness = harness_of(session, options, None, frozenset(), cli.env)
    seat = Seat(ledger, session, claim, harness, options, Person())
    marks: list[tuple[int, float, int]] = []
    try:
        await seat.start()
        async with watched(seat):
            for number in range(1, TURNS + 1):
                turn, _ = await begin_turn(seat, f"[[stub: text text=turn-{number}]]", {})
                assert (await wait_turn(seat, turn, Stop(), math.inf)).status == "completed"
                if number in {10, 20, TURNS - 10, TURNS}:
                    read = harness.http.bytes_read if isinstance(harness, OpenCodeHarness) else 0
                    marks.append((psutil.Process().memory_info().rss, time.monotonic(), read))
    finally:
        await harness.stop()
        ledger.close()
    (_, time0, bytes0), (rss1, time1, bytes1), (_, time2, bytes2), (rss3, time3, bytes3) = marks
    return {
        "rss": (rss1, rss3),
        "seconds": (time1 - time0, time3 - time2),
        "bytes": ((bytes1 - bytes0) / 10, (bytes3 - bytes2) / 10),
    }
