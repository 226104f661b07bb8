"""Usage of a wave is its own; what lies in waves below it is named, not added."""

from __future__ import annotations

import pytest

import turnlog
from tests.surfaces.conftest import Turnlog
from tests.surfaces.scenes import Scene
from turnlog.surfaces.cli import usage_nested

NOTE = "Nested waves with usage of their own are not counted here: "


def used(ledger: turnlog.Ledger, wave: str, tokens: int) -> None:
    session = ledger.create_session(cwd="/r", wave_id=wave).id
    ledger.record(session, "t", "one", "started", {})
    usage = {"inputTokens": tokens, "cachedInputTokens": 0, "outputTokens": 1, "reasoningOutputTokens": 0}
    ledger.record(session, "t", "one", "usage", {"total": usage, "last": usage})
    ledger.record(session, "t", "one", "completed", {"status": "completed"})


@pytest.fixture
def waves(scene: Scene) -> list[str]:
    """``checkout`` with two below it, one below those, and one beside it; all but ``checkout`` and one have usage."""
    with turnlog.open_ledger(scene.url) as ledger:
        top = ledger.create_wave("checkout", repo="/r").id
        payments = ledger.create_wave("payments", repo="/r", parent_id=top).id
        cards = ledger.create_wave("cards", repo="/r", parent_id=payments).id
        idle = ledger.create_wave("idle", repo="/r", parent_id=top).id
        beside = ledger.create_wave("beside", repo="/r").id
        for wave, tokens in ((payments, 10), (cards, 20), (beside, 40)):
            used(ledger, wave, tokens)
    return [top, payments, cards, idle, beside]


@pytest.mark.parametrize("by_id", [False, True])
def test_a_wave_without_usage_names_those_below_it_that_have_some(
    turnlog_: Turnlog, waves: list[str], by_id: bool
) -> None:
    said = turnlog_("usage", "total", "--no-import", "--wave", waves[0] if by_id else "checkout", "--json")
    assert said.json["totals"]["tokens"]["input"] is None
    assert said.err == f"{NOTE}checkout/payments, checkout/payments/cards.\n"
    shown = turnlog_("usage", "--no-import", "--wave", "checkout").err
    assert "No usage was recorded" in shown
    assert NOTE in shown


def test_a_wave_with_usage_keeps_its_numbers_and_names_the_one_below(turnlog_: Turnlog, waves: list[str]) -> None:
    said = turnlog_("usage", "total", "--no-import", "--wave", "checkout/payments", "--json")
    assert said.json["totals"]["tokens"]["input"] == 10
    assert said.err == f"{NOTE}checkout/payments/cards.\n"
    for word in ("checkout/payments/cards", "beside"):
        assert turnlog_("usage", "total", "--no-import", "--wave", word, "--json").err == ""


def test_what_the_report_leaves_out_is_left_out_of_the_note(turnlog_: Turnlog, waves: list[str]) -> None:
    argv = ("usage", "total", "--no-import", "--wave", "checkout", "--json")
    assert NOTE not in turnlog_(*argv, "--until", "2001-01-01").err
    assert NOTE not in turnlog_(*argv, "--provider", "opencode").err


def test_waves_that_were_not_looked_at_are_counted(
    turnlog_: Turnlog, waves: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_nested, "NESTED", 1)
    said = turnlog_("usage", "total", "--no-import", "--wave", "checkout", "--json")
    assert said.err.endswith("2 more nested waves were not looked at.\n")
