"""Turns as receipts and events: answers, tools, errors, schemas, turns of other clients."""

from __future__ import annotations

import pytest

from turnlog.harness import Batch, Delivery
from turnlog.receipts import canonical
from turnlog.testing.harness_suite_base import (
    ANSWER,
    SCHEMA,
    SECRET,
    VALUE,
    Driven,
    HarnessTests,
    Lab,
    recovered,
)


class TurnTests(HarnessTests):
    """What a turn looks like."""

    async def test_the_lab_and_the_harness_agree(self, lab: Lab) -> None:
        harness = lab.harness()
        assert (harness.provider, harness.structured) == (lab.provider, lab.structured)
        assert harness.adoptable or not lab.adoptable
        await harness.preflight()
        await harness.stop()  # never started: nothing to end
        assert not await harness.alive()
        assert not await harness.busy()

    async def test_the_first_batch_comes_though_nothing_happened(self, lab: Lab) -> None:
        harness = lab.harness()
        async with Driven(harness) as driven:
            assert driven.batches == [Batch()]
            assert (await harness.alive(), await harness.busy()) == (True, False)
            assert await harness.start() == await harness.start()
            assert await harness.open_thread() == driven.thread
            names = [harness.new_request_id() for _ in range(100)]
            assert sorted(set(names)) == sorted(names)
            assert await recovered(harness) == Batch()

    async def test_text(self, lab: Lab) -> None:
        async with Driven(lab.harness()) as driven:
            sent = await driven.turn(lab.prompt("text"))
            kinds = driven.kinds(sent.turn)
            assert (kinds[0], kinds[-1]) == ("started", "completed"), "H7"
            assert set(kinds[1:-1]) == {"usage", "output"}
            assert driven.payloads("output", sent.turn) == [{"text": ANSWER}]
            assert driven.payloads("completed", sent.turn)[0]["status"] == "completed"
            types = driven.types(sent.turn)
            assert (types[0], types[-1]) == ("turn_started", "turn_completed")
            assert "error" not in types
            assert "usage_checkpoint" in types
            assert driven.text(sent.turn) == ANSWER
            assert {(receipt.thread, receipt.turn) for receipt in driven.receipts} == {(driven.thread, sent.turn)}
            assert (driven.notes, driven.asks, driven.children) == ([], [], [])
            if driven.harness.turn_of(sent.request) is None:
                assert driven.accepted == {(sent.request, sent.turn)}, "the provider's id is told"
            else:
                assert sent.turn == driven.harness.turn_of(sent.request)
            await driven.idle()
            await recovered(driven.harness)

    async def test_turns_of_one_conversation_are_kept_apart(self, lab: Lab) -> None:
        async with Driven(lab.harness()) as driven:
            turns = [await driven.turn(lab.prompt("text")) for _ in range(3)]
            assert len({sent.turn for sent in turns}) == len(turns)
            for sent in turns:
                assert driven.kinds(sent.turn)[0] == "started"
                assert driven.payloads("usage", sent.turn)
                assert driven.payloads("output", sent.turn) == [{"text": ANSWER}]
                assert driven.text(sent.turn) == ANSWER
            ends = [event.turn_id for event in driven.events if event.type == "turn_completed"]
            assert ends == [sent.turn for sent in turns]

    async def test_a_tool(self, lab: Lab) -> None:
        async with Driven(lab.harness()) as driven:
            sent = await driven.turn(lab.prompt("tool"))
            (begun,), (ended,) = (
                driven.items(sent.turn, "item_started"),
                driven.items(sent.turn, "item_completed"),
            )
            assert (begun["id"], begun["kind"]) == (ended["id"], ended["kind"])
            assert begun["state"] in {"pending", "running"}
            assert ended["state"] == "completed"
            assert lab.made.name in ended["summary"]
            assert ended["duration_ms"] >= 0
            assert lab.made.exists()
            assert driven.payloads("output", sent.turn) == [{"text": ANSWER}]
            assert driven.asks == [], "the policy allows it"
            await recovered(driven.harness)

    async def test_two_steps(self, lab: Lab) -> None:
        async with Driven(lab.harness()) as driven:
            sent = await driven.turn(lab.prompt("steps"))
            begun, ended = driven.items(sent.turn, "item_started"), driven.items(sent.turn, "item_completed")
            assert [item["id"] for item in begun] == [item["id"] for item in ended]
            assert [item["state"] for item in ended] == ["completed"] * 2
            kinds = driven.kinds(sent.turn)
            assert [kinds.count(kind) for kind in ("started", "output", "completed")] == [1, 1, 1]
            assert driven.types(sent.turn).count("usage_checkpoint") > 1, "what was used so far is told on the way"
            assert driven.payloads("output", sent.turn) == [{"text": ANSWER}]

    async def test_an_error(self, lab: Lab) -> None:
        async with Driven(lab.harness()) as driven:
            sent = await driven.turn(lab.prompt("error"))
            assert driven.payloads("completed", sent.turn)[0]["status"] == "failed"
            assert driven.payloads("output", sent.turn) == [], "the words of an error are no answer"
            assert driven.types(sent.turn)[-2:] == ["error", "turn_completed"]
            (error,) = [event for event in driven.events if event.type == "error"]
            assert error.code == f"{lab.provider}_error"
            assert "authorization" in (error.message or "").lower(), "the provider's own words"
            again = await driven.turn(lab.prompt("text"))
            assert driven.payloads("output", again.turn) == [{"text": ANSWER}]
            told = [*driven.batches, await recovered(driven.harness)]
            for batch in told:
                for payload in (*batch.receipts, *batch.events, *batch.notes):
                    assert SECRET not in repr(payload), "errors are sanitised (6.2.5)"

    async def test_a_structured_answer(self, lab: Lab) -> None:
        if not lab.structured:
            pytest.skip(f"{lab.provider} answers in words; the driver asks it for JSON and checks that")
        harness = lab.harness()
        async with Driven(harness) as driven:
            sent = await driven.turn(lab.prompt("structured"), schema=SCHEMA)
            assert driven.payloads("output", sent.turn) == [{"value": VALUE}]
            plain = await driven.turn(lab.prompt("text"))
            assert driven.payloads("output", plain.turn) == [{"text": ANSWER}]
        own = frozenset({sent.request, plain.request})
        async with Driven(lab.harness(thread=driven.thread, own_requests=own)) as later:
            told = [r for r in (await recovered(later.harness)).receipts if (r.kind, r.turn) == ("output", sent.turn)]
            assert [receipt.payload for receipt in told] in ([], [{"value": VALUE}]), "the same after a restart"

    async def test_a_turn_of_another_client(self, lab: Lab) -> None:
        async with Driven(lab.harness()) as driven:
            ours = await driven.turn(lab.prompt("text"))
            theirs = await lab.foreign_turn(driven.thread)
            if theirs is None:
                pytest.skip(f"a conversation of {lab.provider} has one client")
            await driven.end_of(theirs)
            assert driven.payloads("output", theirs) == [{"text": ANSWER}], "H2"
            assert driven.payloads("usage", theirs)
            assert driven.types(theirs) == [], "H1"
            assert await driven.harness.lookup(ours.request) is Delivery.FOUND
            again = await driven.turn(lab.prompt("text"))
            assert driven.payloads("started", again.turn) == [{}]

    async def test_a_turn_told_differently(self, lab: Lab) -> None:
        """Intake keeps the first answer and retains another one (D9); a harness may also note it by itself."""
        async with Driven(lab.harness()) as driven:
            sent = await driven.turn(lab.prompt("text"))
            if not await lab.retell(driven.harness, sent.turn, "another answer"):
                pytest.skip(f"this {lab.provider} cannot be made to contradict itself")

            def told() -> bool:
                noted = any(note.turn == sent.turn for note in driven.notes)
                return noted or len(driven.payloads("output", sent.turn)) > 1

            await driven.until(told)
            answers = driven.payloads("output", sent.turn)
            assert answers in ([{"text": ANSWER}], [{"text": ANSWER}, {"text": "another answer"}])
            again = await driven.turn(lab.prompt("text"))
            assert driven.payloads("output", again.turn) == [{"text": ANSWER}]
            assert driven.types(sent.turn).count("turn_completed") == 1
            assert not driven.ended

    async def test_words_of_a_newer_version(self, lab: Lab) -> None:
        """They are noted or ignored; nothing else is lost with them (promise 7)."""
        async with Driven(lab.harness()) as driven:
            before = await driven.turn(lab.prompt("text"))
            if not await lab.babble(driven.harness):
                pytest.skip(f"this {lab.provider} says only what we know")
            after = await driven.turn(lab.prompt("text"))
            assert driven.payloads("output", after.turn) == [{"text": ANSWER}]
            assert {receipt.turn for receipt in driven.receipts} == {before.turn, after.turn}
            assert len(driven.notes) == len({note.source for note in driven.notes})
            canonical([note.evidence for note in driven.notes])
            assert not driven.ended
