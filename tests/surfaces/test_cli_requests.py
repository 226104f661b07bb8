"""Steer, interrupt and permit: a request to the driving process, and what became of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import turnlog
from tests.surfaces.conftest import Turnlog
from tests.surfaces.scenes import OPEN, Scene
from turnlog.model import Request
from turnlog.surfaces.cli import requests


@contextmanager
def driving(url: str, session_id: str, settle: Callable[[turnlog.Ledger, Request], None]) -> Iterator[list[Request]]:
    """Play the process that drives a conversation: take requests and settle them, until the block ends."""
    taken: list[Request] = []
    over, ready = threading.Event(), threading.Event()

    def drive() -> None:
        with turnlog.open_ledger(url) as ledger:
            mine = ledger.start_exec(command="driver")
            driver = ledger.claim_driver(session_id, ledger.driver(session_id), mine.id)
            ready.set()
            while not over.wait(0.01):
                for request in ledger.take_requests(session_id, driver):
                    taken.append(request)
                    settle(ledger, request)
            ledger.release_driver(session_id, driver)
            ledger.end_exec(mine.id, "succeeded")

    thread = threading.Thread(target=drive)
    thread.start()
    assert ready.wait(30)
    try:
        yield taken
    finally:
        over.set()
        thread.join(30)


def settling(state: str, detail: str | None = None) -> Callable[[turnlog.Ledger, Request], None]:
    return lambda ledger, request: ledger.settle_request(request.id, state, detail)


def leaving(_: turnlog.Ledger, __: Request) -> None:
    """Take a request and never say what became of it."""


def test_an_accepted_steer(turnlog_: Turnlog, scene: Scene) -> None:
    with driving(scene.url, scene.fixed, settling("accepted")) as taken:
        shown = turnlog_("steer", "aaaa", "leave the tests alone")
    assert (shown.code, shown.out, shown.err) == (0, "said: session aaaa00000000\n", "")
    assert [(each.kind, each.text) for each in taken] == [("steer", "leave the tests alone")]
    with turnlog.open_ledger(scene.url) as ledger:
        by = ledger.exec(taken[0].by_exec or "")
    assert by is not None
    assert (by.outcome, by.exit_code) == ("succeeded", 0)


def test_an_accepted_interrupt_as_json(turnlog_: Turnlog, scene: Scene) -> None:
    with driving(scene.url, scene.fixed, settling("accepted")) as taken:
        value = turnlog_("interrupt", "aaaa", "--json").json
    assert (value["request"]["kind"], value["request"]["state"]) == ("interrupt", "accepted")
    assert value["request"]["id"] == taken[0].id


@pytest.mark.parametrize("word", ["per_one", "per_o"])
def test_a_permission_by_id_or_its_beginning(turnlog_: Turnlog, scene: Scene, word: str) -> None:
    with driving(scene.url, scene.gappy, settling("accepted")) as taken:
        assert turnlog_("permit", "aaab", word, "always").code == 0
    assert [(each.kind, each.text) for each in taken] == [("permission", "per_one always")]


@pytest.mark.parametrize(
    ("word", "answer", "code", "what"),
    [
        ("per_two", "once", 4, "question per_two was answered already: once"),
        ("per_nine", "once", 1, "no question 'per_nine' in this session"),
        ("per_one", "maybe", 2, "invalid value"),
    ],
)
def test_a_permission_that_cannot_be_meant(
    turnlog_: Turnlog, scene: Scene, word: str, answer: str, code: int, what: str
) -> None:
    with driving(scene.url, scene.gappy, settling("accepted")) as taken:
        shown = turnlog_("permit", "aaab", word, answer)
    assert shown.code == code
    assert shown.err.startswith(f"turnlog: {what}")
    assert taken == []


def test_an_ambiguous_permission(turnlog_: Turnlog, scene: Scene) -> None:
    with turnlog.open_ledger(scene.url) as ledger:
        question = {"action": "bash", "detail": "ls", "turn": OPEN}
        ledger.retain_for_turn(scene.gappy, "ses_2", OPEN, "permission:per_other:asked", question)
    with driving(scene.url, scene.gappy, settling("accepted")):
        assert turnlog_("permit", "aaab", "per_o", "once").err.startswith("turnlog: question per_o is ambiguous\n")


@pytest.mark.parametrize(
    ("state", "detail", "code", "what"),
    [
        ("not_steerable", None, 4, "the turn takes no text now"),
        ("refused", "the \x1b[1mprovider\x1b[0m said no", 4, "the steer was refused: the provider said no"),
        ("uncertain", "no answer", 5, "whether the steer reached the agent is not known: no answer"),
    ],
)
def test_a_steer_that_was_not_accepted(
    turnlog_: Turnlog, scene: Scene, state: str, detail: str | None, code: int, what: str
) -> None:
    with driving(scene.url, scene.fixed, settling(state, detail)) as taken:
        shown = turnlog_("steer", "aaaa", "more")
    assert (shown.code, shown.out) == (code, "")
    first, second = shown.err.splitlines()
    assert first == f"turnlog: {what}"
    assert second.startswith("hint: ")
    with turnlog.open_ledger(scene.url) as ledger:
        by = ledger.exec(taken[0].by_exec or "")
    assert by is not None
    assert (by.outcome, by.exit_code) == ("failed", code)


def test_a_request_that_was_taken_but_not_settled_is_uncertain(
    turnlog_: Turnlog, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WAIT_S", 0.5)
    with driving(scene.url, scene.fixed, leaving) as taken:
        shown = turnlog_("steer", "aaaa", "more", "--json")
    assert len(taken) == 1
    assert (shown.code, shown.error["code"]) == (5, "uncertain")


def test_a_request_that_nobody_took_is_withdrawn(
    turnlog_: Turnlog, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WAIT_S", 0.1)
    with turnlog.open_ledger(scene.url) as ledger:
        mine = ledger.start_exec(command="a driver that hangs")
        driver = ledger.claim_driver(scene.fixed, ledger.driver(scene.fixed), mine.id)
        shown = turnlog_("steer", "aaaa", "too late")
        assert shown.code == 4
        assert "withdrawn: nobody took it" in shown.err
        assert ledger.take_requests(scene.fixed, driver) == []
        ledger.release_driver(scene.fixed, driver)


@pytest.mark.parametrize(
    ("session", "what", "hint"),
    [
        ("aaaa", "nothing is running in session aaaa00000000", 'the next turn is `turnlog resume aaaa00000000 "…"`'),
        (
            "aaab",
            "the process that drove session aaab00000000 is gone",
            "`turnlog recover aaab00000000` finds out how far it came",
        ),
    ],
)
def test_without_a_living_driver_nothing_is_asked(
    turnlog_: Turnlog, scene: Scene, session: str, what: str, hint: str
) -> None:
    for argv in (["steer", session, "x"], ["interrupt", session], ["permit", session, "per_one", "once"]):
        shown = turnlog_(*argv)
        assert (shown.code, shown.err) == (4, f"turnlog: {what}\nhint: {hint}\n")
    with turnlog.open_ledger(scene.url) as ledger:
        assert [each for name in (scene.fixed, scene.gappy) for each in ledger.requests(name)] == []


@pytest.mark.parametrize("text", ["", "  \n", "a\x00b"])
def test_text_that_cannot_be_said(turnlog_: Turnlog, scene: Scene, text: str) -> None:
    assert turnlog_("steer", "aaaa", text).code == 2
