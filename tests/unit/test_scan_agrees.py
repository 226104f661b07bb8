"""A quick look counts what the importer counts, bucket by bucket, on every kind of history."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.unit.scan_files import answer, claude, codex, codex_line, count, meta, record, result, started, used, uuid7
from tests.unit.scan_files import variables as variables_of
from turnlog.intake import readers
from turnlog.intake.importer import import_sources
from turnlog.intake.scan import scan_usage
from turnlog.ledger import open_store
from turnlog.queries.rollup import refresh
from turnlog.usage.buckets import Bucket
from turnlog.usage.prices import Book, Call, Estimate

UNSEEN = {"start_unknown", "unfinished"}
"""Gaps of turns: a quick look sees calls alone."""

P, C, T1, T2, T3 = (uuid7(number) for number in (0, 5_000_000, 1000, 2000, 5_001_000))


class Prices:
    """A dollar for a token of output in an ordinary tier, where a model is known."""

    version = "1"
    source = "made up"

    def estimate(self, call: Call) -> Estimate | None:
        if call.model is None or call.tier is not None or call.output is None:
            return None
        return Estimate(usd=float(call.output), model=call.model, version="1", lower_bound=call.cache_write_1h is None)


def _streamed(folder: Path) -> None:
    claude(folder, "s1.jsonl", [answer("m1", 1), result(), answer("m1", 120), answer("m2", 5, at="10:20:00")])


def _partly(folder: Path) -> None:
    """Services that tell the input in the first line or in the last one alone."""
    nothing = {
        "input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_creation": None,
    }
    lines = [answer("m1", 0), answer("m1", 20, usage=nothing), answer("m2", 1, usage=nothing), answer("m2", 20)]
    lines += [answer("m3", 20), answer("m3", 1, usage={"input_tokens": 900}), answer("m4", 20, usage=nothing)]
    claude(folder, "s1.jsonl", [*lines, json.dumps(answer("m4", 20)), json.dumps(answer("m4", 3, usage=nothing))])


def _resumed(folder: Path) -> None:
    claude(folder, "s1.jsonl", [answer("m1", 120), answer("m2", 7)])
    claude(folder, "s2.jsonl", [answer("m1", 120, session="s2"), answer("m3", 9, session="s2", at="12:00:00")])


def _forked(folder: Path) -> None:
    claude(folder, "s1.jsonl", [answer("m1", 120)])
    claude(folder, "s2.jsonl", [answer("m1", 120, session="s2", forkedFrom={"sessionId": "s1"})])


def _agents(folder: Path) -> None:
    part = {name: answer("m2", 3)[name] for name in ("message", "requestId", "uuid", "type", "timestamp")}
    data = {"type": "agent_progress", "agentId": "a1", "message": part}
    progress = {"type": "progress", "sessionId": "s1", "uuid": "u9", "data": data}
    claude(folder, "s1.jsonl", [answer("m1", 120), progress, answer("m9", 4, isSidechain=True, agentId="a2")])
    claude(folder, "s1/subagents/agent-a1.jsonl", [answer("m3", 4, isSidechain=True, agentId="a1")])


def _strange(folder: Path) -> None:
    lines: list[Any] = [
        answer("m1", 120, usage={"speed": "fast"}),
        answer("m2", 5, usage={"input_tokens": -4, "cache_creation": None}),
        answer("m3", 6, usage={"input_tokens": 3.0}),
        answer("m4", None),
        answer(None, 3),
        answer("m1", 7, requestId="other", model="claude-haiku-4-5", usage={"input_tokens": 1}),
        answer("m5", 0, model="<synthetic>"),
        '{"type":"assistant","mess' + orjson.dumps(answer("m6", 8)).decode(),
        orjson.dumps(answer("m7", 9)).decode() + orjson.dumps(answer("m8", 2)).decode(),
        json.dumps(answer("m9", 4)),
    ]
    untyped = answer("m10", 11)
    del untyped["type"]
    claude(folder, "s1.jsonl", [*lines, untyped])


def _reused(folder: Path) -> None:
    """Gateways that use ids again: in another session, often in one, in copies of some of it, without a request id."""

    def said(session: str, request: str | None, fresh: int, output: int, **more: Any) -> Any:
        line = answer("m1", output, session=session, requestId=request, usage={"input_tokens": fresh}, **more)
        return json.dumps(line) if fresh % 3 else line

    claude(folder, "s1.jsonl", [said("s1", "r1", 10, 50)])
    claude(folder, "s2.jsonl", [said("s2", "r2", 99, 7, model="other")])
    claude(folder, "s3.jsonl", [said("s3", f"r{number}", 100 + number, number) for number in range(3, 15)])
    claude(folder, "s4.jsonl", [said("s4", f"r{number}", 100 + number, number) for number in range(9, 15)])
    claude(folder, "s5.jsonl", [said("s5", None, 10, 49), said("s5", "r99", 99, 6, model="other")])


def _timeless(folder: Path) -> None:
    """Calls of which no time is known, of the file's own conversation and of one that no other line tells of."""
    lines = [answer("m1", 0), answer("m2", 0, at="never T"), answer("m3", 0, session="s9", at="never T")]
    claude(folder, "s1.jsonl", [*lines, json.dumps(answer("m4", 3, session="s9", at="never T"))])


def _searched(folder: Path) -> None:
    """Calls that searched the web, which the last line of one alone tells; and one that could have."""

    def searches(number: int) -> dict[str, Any]:
        return {"server_tool_use": {"web_search_requests": number, "web_fetch_requests": 0}}

    lines = [answer("m1", 5, usage=searches(2)), answer("m2", 1, usage=searches(0)), answer("m2", 9, usage=searches(1))]
    claude(
        folder, "s1.jsonl", [*lines, answer("m3", 7, usage=searches(0)), json.dumps(answer("m4", 3, usage=searches(1)))]
    )


def _reemitted(folder: Path) -> None:
    lines = [meta(P), *started(T1), count(used(1000)), count(used(1000), second=3), count(None, second=4)]
    codex(folder, P, [*lines, count(used(2500, 25, 90), used(1500, 15, 50), 5), *started(T2, 6)])


def _recorded(folder: Path) -> None:
    one, both = used(1000), used(2500, 25, 90)
    lines = [meta(P), *started(T1), record(P, T1, "r1", one, one, ordinal=3), count(one, ordinal=4)]
    lines += [record(P, T1, "r2", used(1500, 15, 50), both, 3, ordinal=5), count(both, used(1500, 15, 50), 3)]
    lines.append(
        codex_line("event_msg", {"type": "thread_settings_applied", "thread_settings": {"service_tier": "fast"}})
    )
    lines.append(record(P, T1, "rc", used(4600, 9, 0), used(7100, 34, 90), 4, ordinal=8))
    codex(folder, P, lines)


def _codex_forks(folder: Path) -> None:
    history = [*started(T1), count(used(1000)), count(used(2500, 25), used(1500, 15, 0), 3)]
    codex(folder, P, [meta(P), *history])
    codex(folder, C, [meta(C, forked_from_id=P), meta(P), *history, *started(T3, 6), count(used(3550, 30), second=7)])


def _codex_unnamed_turns(folder: Path) -> None:
    history = [count(used(1000)), count(used(2500, 25), used(1500, 15, 0), 3)]
    codex(folder, P, [meta(P), *history])
    codex(folder, C, [meta(C), meta(P), *history, count(used(3550, 30), used(1050, 5, 0), 7)])


def _codex_based(folder: Path) -> None:
    """Forks that copied nothing, of a parent that is there, and of one that is not."""
    codex(folder, P, [meta(P), *started(T1), count(used(1000))])
    for child, parent in ((C, P), (uuid7(6_000_000), uuid7(7))):
        base = {"thread_id": parent, "end_ordinal_exclusive": 9}
        step = count(used(3550, 30), used(700, 10, 0), 7)
        codex(folder, child, [meta(child, forked_from_id=parent, history_base=base), *started(T3, 6), step])


def _codex_resets(folder: Path) -> None:
    phantom = dict.fromkeys(used(0), 0) | {"total_tokens": 258_400}
    lines = [meta(P), *started(T1), count(used(80_000)), count(phantom, phantom, 3), *started(T2, 4)]
    codex(folder, P, [*lines, count(used(7000), second=5), count(used(6000), second=6), '{"torn'])


def _returns(folder: Path) -> None:
    """Lines that end in carriage returns alone, the last one with and without one, and cut short."""
    _streamed(folder)
    _codex_forks(folder)
    claude(folder, "s3.jsonl", [answer("m3", 120, session="s3"), answer("m4", 5, session="s3")], end="")
    claude(folder, "s4.jsonl", [answer("m5", 120, session="s4"), '{"torn'], end="")
    for path in (folder / "claude" / "projects").rglob("*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r"))
        os.utime(path, (1, 1))
    for path in (folder / "codex").rglob("*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r"))


def _opencode(folder: Path) -> None:
    info = {"role": "assistant", "modelID": "m", "providerID": "openai", "cost": 0.5, "finish": "stop"}
    tokens = {"input": 10, "output": 20, "reasoning": 6, "cache": {"read": 30, "write": 0}}
    whole = {**info, "time": {"created": 1_788_257_000_000, "completed": 1_788_257_009_000}}
    messages = [
        {**whole, "tokens": {**tokens, "total": 66}},
        {**whole, "tokens": tokens, "time": {"created": 1_788_257_100_000}},
    ]
    for number, session in enumerate(("ses_1", "ses_2")):
        place = folder / "data" / "opencode" / "storage"
        told = {"id": session, "version": "1.2.0", "directory": "/d", "time": {"created": 1_788_256_000_000 + number}}
        (place / "session" / "p").mkdir(parents=True, exist_ok=True)
        (place / "session" / "p" / f"{session}.json").write_text(json.dumps(told))
        for index, message in enumerate(messages):
            path = place / "message" / session / f"msg_{number}{index}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"id": path.stem, "sessionID": session, **message}))


@pytest.mark.parametrize(
    "make",
    [
        _streamed,
        _partly,
        _resumed,
        _forked,
        _agents,
        _strange,
        _reused,
        _timeless,
        _searched,
        _reemitted,
        _recorded,
        _codex_forks,
        _codex_unnamed_turns,
        _codex_based,
        _codex_resets,
        _returns,
        _opencode,
    ],
)
def test_a_quick_look_counts_what_the_importer_counts(tmp_path: Path, make: Any) -> None:
    make(tmp_path)
    variables = variables_of(tmp_path)
    book: Book = Prices()
    found = scan_usage(readers(), variables, prices=lambda: book)
    store = open_store(f"sqlite:///{tmp_path / 'ledger.db'}")
    try:
        import_sources(store, readers(), variables=variables)
        refresh(store, lambda: book)
        with store.rollups.read() as tx:
            told = {session: tx.buckets(number) for number, session in tx.numbers()}
    finally:
        store.close()
    assert _comparable(found.buckets) == _comparable(told)


def _comparable(found: dict[str, list[Bucket]]) -> dict[str, list[object]]:
    told = {}
    for session, buckets in found.items():
        rows: list[object] = []
        for each in sorted(buckets, key=lambda bucket: (bucket.start, str(bucket.kind))):
            gaps = {kind: number for kind, number in each.sums.gaps.items() if kind not in UNSEEN}
            if each.sums.streams or gaps:
                each.sums.gaps = gaps
                rows.append(each)
        if rows:
            told[session] = rows
    return told
