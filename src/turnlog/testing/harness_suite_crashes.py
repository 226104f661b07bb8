"""Ends that nobody wanted, and the wanted one: engines and drivers that die, lost answers, closing."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnlog.errors import TurnlogError
from turnlog.harness import Batch, Delivery
from turnlog.testing.harness_suite_base import ANSWER, Driven, HarnessTests, Lab, distinct, recovered


class CrashTests(HarnessTests):
    """What is left when something ends."""

    async def test_a_killed_engine_completes_nothing(self, lab: Lab) -> None:
        async with Driven(lab.harness(mortal=True)) as driven:
            done = await driven.turn(lab.prompt("text"))
            sent = await driven.speaking(lab.prompt("hang"))
            await lab.kill_engine(driven.harness)
            await driven.finished()
            assert driven.payloads("completed", sent.turn) == [], "H4"
            assert (await driven.harness.alive(), await driven.harness.busy()) == (False, False)
            note = driven.notes[-1]
            assert note.source.startswith(f"disconnect:{driven.thread}:")
            assert note.turn == sent.turn
            assert note.evidence["terminal_error_class"]
            assert note.evidence["stream_started_at"] <= note.evidence["stream_ended_at"]
            (error,) = [event for event in driven.events if event.type == "error"]
            assert (error.code, error.turn_id) == (f"{lab.provider}_disconnected", sent.turn)
            assert await driven.harness.lookup(sent.request) is not Delivery.ABSENT
            with pytest.raises(TurnlogError):
                await driven.harness.send(driven.harness.new_request_id(), lab.prompt("text"))
        own = frozenset({done.request, sent.request})
        async with Driven(lab.harness(mortal=True, thread=driven.thread, own_requests=own)) as later:
            assert later.thread == driven.thread
            told = await recovered(later.harness)
            agree(driven, told)
            await later.until(lambda: bool(later.payloads("completed", sent.turn) or sent.turn in later.stalled))
            assert [end["status"] for end in later.payloads("completed", sent.turn)] in ([], ["interrupted"])
            found = await later.harness.lookup(sent.request)
            assert found is not Delivery.ABSENT, "a program may be killed before it writes; that proves nothing"
            assert (found is Delivery.FOUND) == (later.kinds(sent.turn)[:1] == ["started"])
            assert later.events == [], "H8"
            again = await later.turn(lab.prompt("text"))
            assert later.payloads("output", again.turn) == [{"text": ANSWER}]
            assert sent.turn not in {turn for _, turn in later.settled.items()}

    async def test_another_driver_goes_on(self, lab: Lab) -> None:
        async with Driven(lab.harness(mortal=True), leave=True) as driven:
            engine = await driven.harness.start()
            done = await driven.turn(lab.prompt("text"))
            sent = await driven.speaking(lab.prompt("hang"))
        if not lab.adoptable:
            lab.release()  # no engine begins while this one works
        own = frozenset({done.request, sent.request})
        async with Driven(lab.harness(mortal=True, thread=driven.thread, own_requests=own)) as later:
            assert ((await later.harness.start()).pid == engine.pid) == lab.adoptable
            if lab.adoptable:
                assert await later.harness.busy(), "it was left at work"
                lab.release()
            await later.until(lambda: bool(later.payloads("completed", sent.turn) or sent.turn in later.stalled))
            if lab.adoptable:
                assert later.payloads("completed", sent.turn)[0]["status"] == "completed", "its engine went on"
            assert later.events == [], "no boundary events for turns of another object (H8)"
            seen = distinct([*driven.receipts, *later.receipts])
            for turn in (done.turn, sent.turn):
                for kind in ("started", "output", "completed"):
                    assert len([r for r in seen if (r.turn, r.kind) == (turn, kind)]) <= 1, "the same, told twice"
            assert (driven.thread, sent.turn, "started") in {(r.thread, r.turn, r.kind) for r in seen}
            agree(later, await recovered(later.harness))
            again = await later.turn(lab.prompt("text"))
            assert later.types(again.turn)[0] == "turn_started"
            assert later.payloads("output", again.turn) == [{"text": ANSWER}]

    async def test_a_stranger_to_the_conversation_gives_no_starts(self, lab: Lab, tmp_path: Path) -> None:
        """It knows neither our requests nor our state folder: only what the provider itself tells."""
        async with Driven(lab.harness()) as driven:
            sent = await driven.turn(lab.prompt("text"))
        async with Driven(lab.harness(thread=driven.thread, state_dir=tmp_path / "elsewhere")) as later:
            told = await recovered(later.harness)
            agree(driven, told)
            # A harness need not tell again what it already gave to whoever observed it.
            kinds = {receipt.kind for receipt in (*later.receipts, *told.receipts) if receipt.turn == sent.turn}
            assert {"output", "completed"} <= kinds, "H2"
            assert "started" not in kinds, "H3"
            assert later.events == []

    async def test_a_stranger_finds_what_the_history_names(self, lab: Lab, tmp_path: Path) -> None:
        """A state folder can be lost; a request that the provider's history names was delivered all the same."""
        async with Driven(lab.harness()) as driven:
            sent = await driven.turn(lab.prompt("text"))
        async with Driven(lab.harness(thread=driven.thread, state_dir=tmp_path / "elsewhere")) as later:
            assert await later.harness.lookup(sent.request) is Delivery.FOUND

    async def test_lookup(self, lab: Lab) -> None:
        harness = lab.harness()
        async with Driven(harness) as driven:
            assert await harness.lookup(harness.new_request_id()) is not Delivery.FOUND, "there is no history yet"
            sent = await driven.turn(lab.prompt("text"))
            assert await harness.lookup(sent.request) is Delivery.FOUND
            assert await harness.lookup(harness.new_request_id()) is Delivery.ABSENT
            running = await driven.speaking(lab.prompt("hang"))
            assert await harness.lookup(running.request) is Delivery.FOUND
            lab.release()
            await driven.end_of(running.turn)

    async def test_nothing_comes_after_stop(self, lab: Lab) -> None:
        harness = lab.harness()
        async with Driven(harness) as driven:
            sent = await driven.speaking(lab.prompt("hang"))
            await harness.stop()
            seen = len(driven.batches)
            await driven.finished()
            assert len(driven.batches) == seen
            assert driven.payloads("completed", sent.turn) == []
            assert driven.notes == [], "a wanted end is no disconnect"
            assert not await harness.busy()
            await harness.stop()
            await harness.detach()
            with pytest.raises(TurnlogError):
                await harness.send(harness.new_request_id(), lab.prompt("text"))
        lab.release()


def agree(driven: Driven, told: Batch) -> None:
    """Check that a history says nothing else about ended turns than what was seen live."""
    for kind, member in (("output", None), ("completed", "status")):
        live = {r.turn: r.payload for r in driven.receipts if (r.kind, r.thread) == (kind, driven.thread)}
        for receipt in told.receipts:
            if receipt.kind == kind and receipt.turn in live:
                seen = live[receipt.turn]
                assert receipt.payload == seen if member is None else receipt.payload[member] == seen[member]
