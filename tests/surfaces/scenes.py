"""A small ledger with everything that a surface has to show, made through the public API at fixed times."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

import turnlog
from turnlog.model import Driver

BEGIN = 1_770_000_000_000
"""2026-02-02T02:40:00Z"""

THREAD = "ses_1"


class Scene(msgspec.Struct, frozen=True):
    """What the ledger of ``build`` holds. Every receipt is one second after the one before."""

    url: str
    fixed: str
    """A finished conversation: turn ``done`` completed with an answer, turn ``bad`` failed."""

    gappy: str
    """An open one: its only turn has usage with a gap, no cost, a waiting question; its driver is dead."""

    closed: str


DONE, BAD, OPEN = "msg_done_0000000000000001", "msg_bad_00000000000000002", "msg_open_0000000000000003"
ANSWER = "It was \x1b[31mthe time zone\x1b[0m.\nFixed."


def clock() -> Iterator[int]:
    yield from count(BEGIN, 1000)


def message(name: str, *, fresh: int, out: int, cached: int = 0, cost: float | None, at: int = BEGIN) -> dict[str, Any]:
    tokens = {"input": fresh, "output": out, "reasoning": 0, "cache": {"read": cached, "write": 0}}
    return {
        "provider": "opencode",
        "session_version": "1.18.33",
        "message": {
            "id": name,
            "role": "assistant",
            "providerID": "stub",
            "modelID": "stub-model",
            "cost": cost,
            "tokens": {**tokens, "total": fresh + out + cached},
            "time": {"created": at, "completed": at + 500},
            "finish": "stop",
        },
    }


def begin(ledger: turnlog.Ledger, session: str, driver: Driver, turn: str, text: str = "go") -> None:
    assert driver.exec_id is not None
    ledger.intend_turn(session, driver, THREAD, turn, {"text": text}, turn=turn)
    ledger.record_turn_origin(session, THREAD, turn, driver.provider_generation, driver.exec_id)


def claimed(ledger: turnlog.Ledger, session: str, thread: str = THREAD) -> Driver:
    started = ledger.start_exec(command=["turnlog", "run", "x"], cwd="/w")
    driver = ledger.claim_driver(session, None, started.id)
    ledger.record_connection(session, driver, "http://127.0.0.1:4096", thread)
    return driver


def build(path: Path) -> Scene:
    ticks = clock()
    url = f"sqlite:///{path}"
    with turnlog.open_ledger(url, now=lambda: next(ticks)) as ledger:
        fixed = ledger.create_session(
            id="session_aaaa0000000000000000000000000001",
            artifact_key="11110000000000000000000000000001",
            title="Fix the \x1b[31mlogin\x1b[0m test",
            cwd="/home/me/project",
            repo="/home/me/project",
            provider="opencode",
            model="stub/stub-model",
        ).id
        driver = claimed(ledger, fixed)
        begin(ledger, fixed, driver, DONE, "fix it")
        ledger.record(fixed, THREAD, DONE, "usage", message("m1", fresh=12_000, out=800, cached=3_000, cost=0.0123))
        ledger.record(fixed, THREAD, DONE, "output", {"text": ANSWER})
        ledger.record(fixed, THREAD, DONE, "completed", {"status": "completed"})
        begin(ledger, fixed, driver, BAD, "again")
        error = {"name": "APIError", "data": {"message": "rate \x1b]0;x\x07limited"}}
        ledger.record(fixed, THREAD, BAD, "completed", {"status": "failed", "error": error})
        ledger.finish_driver(fixed, driver, "failed")

        gappy = ledger.create_session(
            id="session_aaab0000000000000000000000000002",
            artifact_key="22220000000000000000000000000002",
            title="Größe 日本語",
            cwd="/home/me/other",
            provider="opencode",
        ).id
        other = claimed(ledger, gappy, "ses_2")
        assert other.exec_id is not None
        ledger.record_turn_origin(gappy, "ses_2", OPEN, other.provider_generation, other.exec_id)
        day = BEGIN + 86_400_000
        ledger.record(gappy, "ses_2", OPEN, "usage", message("m2", fresh=1_200_000, out=80_000, cost=None, at=day))
        nameless = {"provider": "opencode", "session_version": "1.18.33", "message": {"role": "assistant"}}
        ledger.record(gappy, "ses_2", OPEN, "usage", nameless)
        question = {"action": "bash", "detail": "rm \x1b[2Kbuild", "turn": OPEN}
        ledger.retain_for_turn(gappy, "ses_2", OPEN, "permission:per_one:asked", question)
        ledger.retain_for_turn(gappy, "ses_2", OPEN, "permission:per_two:asked", question)
        ledger.retain_for_turn(
            gappy, "ses_2", OPEN, "permission:per_two:answered", {"answer": "once", "by": "terminal"}
        )
        ledger.end_exec(other.exec_id, "failed")  # it ended without letting go of the conversation

        closed = ledger.create_session(
            id="session_cccc0000000000000000000000000003",
            artifact_key="33330000000000000000000000000003",
            title="old one",
            cwd="/tmp",
            provider="opencode",
        )
        ledger.complete_session(closed.id, closed.captured)
    return Scene(url, fixed, gappy, closed.id)
