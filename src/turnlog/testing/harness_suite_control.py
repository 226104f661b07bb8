"""What is said to a running turn: interrupts, steers, permissions, and policies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from turnlog.errors import InvalidError, RefusedError
from turnlog.harness import Delivery, SteerOutcome
from turnlog.testing.harness_suite_base import ANSWER, Driven, HarnessTests, Lab, Sent, recovered


class ControlTests(HarnessTests):
    """How a running turn is told something."""

    async def test_busy_while_a_turn_runs(self, lab: Lab) -> None:
        async with Driven(lab.harness()) as driven:
            sent = await driven.speaking(lab.prompt("hang"))
            assert await driven.harness.busy()
            assert driven.payloads("completed", sent.turn) == [], "H4"
            lab.release()
            await driven.end_of(sent.turn)
            await driven.idle()
            assert driven.payloads("output", sent.turn) == [{"text": ANSWER}]

    async def test_interrupt(self, lab: Lab) -> None:
        harness = lab.harness()
        async with Driven(harness) as driven:
            await harness.interrupt()  # idle: nothing
            sent = await driven.speaking(lab.prompt("slow"))
            await asyncio.gather(harness.interrupt(), harness.interrupt())
            end = await driven.end_of(sent.turn)
            assert end["status"] == "interrupted", "the provider's own word"
            assert driven.types(sent.turn)[-2:] == ["error", "turn_completed"]
            for output in driven.payloads("output", sent.turn):
                assert output["text"] == driven.text(sent.turn), "what came is kept"
            await driven.idle()
            await harness.interrupt()  # idle again: nothing
            assert not await harness.busy()
            again = await driven.turn(lab.prompt("text"))
            assert driven.payloads("output", again.turn) == [{"text": ANSWER}]
            assert len(driven.payloads("completed", sent.turn)) == 1
            await recovered(harness)

    async def test_steer_when_idle(self, lab: Lab) -> None:
        harness = lab.harness()
        async with Driven(harness) as driven:
            before, outcome = await driven.steer(lab.prompt("text"))
            assert outcome is SteerOutcome.NOT_STEERABLE
            with pytest.raises(InvalidError):
                await driven.steer(" ")
            await driven.turn(lab.prompt("text"))
            await driven.idle()
            after, outcome = await driven.steer(lab.prompt("text"))
            assert outcome is SteerOutcome.NOT_STEERABLE
            assert len({receipt.turn for receipt in driven.receipts}) == 1
            for sent in (before, after):
                assert await harness.lookup(sent.request) is Delivery.ABSENT

    async def test_steer_while_it_speaks(self, lab: Lab) -> None:
        async with Driven(lab.harness()) as driven:
            first = await driven.speaking(lab.prompt("hang"))
            await self._steer(lab, driven, first)

    async def test_steer_between_steps(self, lab: Lab) -> None:
        async with Driven(lab.harness()) as driven:
            first = await driven.send(lab.prompt("loop"))
            await driven.until(lambda: "item_started" in driven.types(first.turn))
            await self._steer(lab, driven, first)

    async def _steer(self, lab: Lab, driven: Driven, first: Sent) -> None:
        """Whatever the provider makes of it, both requests have an end that they can be followed to (D19)."""
        steer, outcome = await driven.steer(lab.prompt("text"))
        if not lab.steerable:
            assert outcome is SteerOutcome.NOT_STEERABLE
            return
        assert outcome is SteerOutcome.SENT
        lab.release()  # what hangs may end, now that this was said into it

        def ends() -> list[str]:
            return [last(sent.turn, driven.settled) for sent in (first, steer)]

        await driven.until(lambda: all(driven.payloads("completed", turn) for turn in ends()))
        assert driven.payloads("output", ends()[1]) == [{"text": ANSWER}], "the steer was answered"
        assert await driven.harness.lookup(steer.request) is Delivery.FOUND
        await driven.idle()
        for turn, by in driven.settled.items():
            assert driven.payloads("completed", turn) == [], "what another turn took over has no end of its own"
            assert [note.evidence for note in driven.notes if note.source.endswith(turn)] == [{"by": by}]
        again = await driven.turn(lab.prompt("text"))
        assert driven.payloads("output", again.turn) == [{"text": ANSWER}]
        await recovered(driven.harness)

    async def test_a_permission_given(self, lab: Lab) -> None:
        if not lab.asks:
            pytest.skip(f"this {lab.provider} asks for nothing")
        harness = lab.harness(permissions="ask")
        async with Driven(harness) as driven:
            sent = await driven.send(lab.prompt("tool"))
            await driven.until(lambda: bool(driven.asks))
            (ask,) = driven.asks
            assert (ask.thread, ask.turn) == (driven.thread, sent.turn)
            assert lab.made.name in ask.detail
            assert "\n" not in ask.detail
            assert await harness.busy()
            assert not lab.made.exists()
            await harness.answer(ask.id, "once")
            await driven.end_of(sent.turn)
            assert lab.made.exists()
            assert driven.payloads("output", sent.turn) == [{"text": ANSWER}]
            told = [(e.type, e.turn_id, e.status) for e in driven.events if e.type.startswith("permission_")]
            assert told == [("permission_asked", sent.turn, None), ("permission_settled", sent.turn, "once")]
            assert [item["state"] for item in driven.items(sent.turn, "item_completed")] == ["completed"]
            with pytest.raises(RefusedError):
                await harness.answer(ask.id, "once")

    async def test_a_permission_refused(self, lab: Lab) -> None:
        if not lab.asks:
            pytest.skip(f"this {lab.provider} asks for nothing")
        harness = lab.harness(permissions="ask")
        async with Driven(harness) as driven:
            sent = await driven.send(lab.prompt("tool"))
            await driven.until(lambda: bool(driven.asks))
            await harness.answer(driven.asks[0].id, "reject")
            end = await driven.end_of(sent.turn)
            assert end["status"] == "completed", "the turn goes on without it"
            assert not lab.made.exists()
            assert [item["state"] for item in driven.items(sent.turn, "item_completed")] != ["completed"]
            assert [e.status for e in driven.events if e.type == "permission_settled"] == ["reject"]
            assert len(driven.asks) == 1

    async def test_an_interrupt_withdraws_a_question(self, lab: Lab) -> None:
        if not lab.asks:
            pytest.skip(f"this {lab.provider} asks for nothing")
        harness = lab.harness(permissions="ask")
        async with Driven(harness) as driven:
            sent = await driven.send(lab.prompt("tool"))
            await driven.until(lambda: bool(driven.asks))
            await harness.interrupt()
            end = await driven.end_of(sent.turn)
            assert end["status"] == "interrupted"
            assert not lab.made.exists()
            again = await driven.turn(lab.prompt("text"))
            assert driven.payloads("output", again.turn) == [{"text": ANSWER}]

    async def test_the_policy_deny_runs_nothing(self, lab: Lab) -> None:
        harness = lab.harness(permissions="deny")
        async with Driven(harness) as driven:
            sent = await driven.turn(lab.prompt("tool"))
            assert driven.payloads("completed", sent.turn)[0]["status"] == "completed"
            assert not lab.made.exists()
            assert driven.asks == [], "nobody is asked"
            assert "completed" not in [item["state"] for item in driven.items(sent.turn, "item_completed")]


def last(turn: str, settled: Mapping[str, str]) -> str:
    """Return the turn that took over the work of another one in the end."""
    while turn in settled:
        turn = settled[turn]
    return turn
