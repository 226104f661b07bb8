"""Rollouts made line by line, and what a reading of them comes to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from turnlog.harness.codex.reader import READER
from turnlog.harness.reading import Find, Found, Reading, Source

T0 = 1_790_000_000_000
"""When the first line of a made rollout was written: 2026-09-21T14:13:20Z."""

Counts = Mapping[str, int] | int
"""A usage object, or so much input and a tenth of it output."""

NAMES = (
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "cache_write_input_tokens",
)


def uuid7(ms: int, tail: int = 0) -> str:
    """Return a version 7 UUID of an instant."""
    digits = f"{ms:012x}7000{0x8000_0000_0000_0000 + tail:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


PARENT = uuid7(T0 - 100_000, 1)
CHILD = uuid7(T0, 2)


def stamp(ms: int) -> str:
    """Return an instant as rollouts spell it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def usage(*counters: int, total: int | None = None) -> dict[str, int]:
    """Return a usage object: input, cached, output, reasoning, written; as many as are given."""
    made = dict(zip(NAMES, counters, strict=False))
    whole = made.get("input_tokens", 0) + made.get("output_tokens", 0)
    return made | {"total_tokens": whole if total is None else total}


class Rollout:
    """A rollout that is being written. ``clock`` is the next line's time, in ms behind T0."""

    def __init__(self, thread: str = CHILD, *, clock: int = 0, ordinal: int | None = None, **meta: Any) -> None:
        self.thread = thread
        self.clock = clock
        self.ordinal = ordinal
        self.lines: list[bytes] = []
        if meta.pop("headed", True):
            self.meta(thread, **meta)

    def add(self, kind: str, payload: Any, **more: Any) -> Rollout:
        """Write a record."""
        record: dict[str, Any] = {"timestamp": stamp(T0 + self.clock)}
        if self.ordinal is not None:
            record["ordinal"] = self.ordinal
            self.ordinal += 1
        self.clock += 10
        whole = record | {"type": kind, "payload": payload} | more
        return self.raw(json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode())

    def raw(self, line: bytes) -> Rollout:
        self.lines.append(line)
        return self

    def wait(self, ms: int) -> Rollout:
        self.clock += ms
        return self

    def meta(self, thread: str, **more: Any) -> Rollout:
        meta = {"id": thread, "timestamp": stamp(T0 + self.clock), "cwd": "/src/app", "cli_version": "0.140.0"}
        return self.add("session_meta", meta | more)

    def event(self, kind: str, **more: Any) -> Rollout:
        return self.add("event_msg", {"type": kind, **more})

    def item(self, kind: str, **more: Any) -> Rollout:
        return self.add("response_item", {"type": kind, **more})

    def context(self, model: str = "gpt-5.5", **more: Any) -> Rollout:
        return self.add("turn_context", {"model": model, "cwd": "/src/app", **more})

    def started(self, turn: str, **more: Any) -> Rollout:
        return self.event("task_started", turn_id=turn, **more)

    def ended(self, turn: str, last: str | None = "done", **more: Any) -> Rollout:
        return self.event("task_complete", turn_id=turn, last_agent_message=last, **more)

    def prompt(self, text: str) -> Rollout:
        content = [{"type": "input_text", "text": text}]
        return self.item("message", role="user", content=content).event("user_message", message=text)

    def said(self, text: str) -> Rollout:
        return self.item("message", role="assistant", content=[{"type": "output_text", "text": text}])

    def count(self, total: Counts, last: Counts | None = None, **more: Any) -> Rollout:
        """Write running totals; a number is so much input and a tenth of it output."""
        info: dict[str, Any] = {"total_token_usage": _spread(total), "model_context_window": 258_400}
        if last is not None:
            info["last_token_usage"] = _spread(last)
        return self.event("token_count", info=info, **more)

    def record(self, response: str | None, used: Counts, told: Counts | None = None, **more: Any) -> Rollout:
        payload = {"thread_id": self.thread, "response_id": response, "usage": _spread(used)}
        if told is not None:
            payload["thread_token_usage"] = _spread(told)
        return self.add("token_usage_record", payload | more)

    @property
    def bytes(self) -> bytes:
        return b"\n".join(self.lines) + b"\n"


def _spread(told: Counts) -> Mapping[str, int]:
    return usage(told, 0, told // 10, 0) if isinstance(told, int) else told


def source(thread: str | None = None, *, path: str | None = None) -> Source:
    name = f"rollout-2026-09-21T14-13-20-{thread or CHILD}.jsonl"
    return Source("codex", path or f"/codex/sessions/2026/09/21/{name}", "jsonl", thread)


def finder(*rollouts: Rollout) -> Find:
    files = {each.thread: each.lines for each in rollouts}
    return files.get


def read(rollout: Rollout | bytes, *others: Rollout, path: str | None = None, cut: int | None = None) -> Reading:
    """Read a rollout as an importer does; ``cut`` hands over to a new decoder behind every so many lines."""
    thread = rollout.thread if isinstance(rollout, Rollout) else CHILD
    data = rollout.bytes if isinstance(rollout, Rollout) else rollout
    find = finder(*others)
    decoder = READER.decoder(source(thread, path=path), None, find)
    whole = Reading()
    offset = 0
    for place, line in enumerate(data.split(b"\n")):
        if line:
            decoder.line(line, offset)
        offset += len(line) + 1
        if cut and place % cut == 0:
            _join(whole, decoder.take())
            decoder = READER.decoder(source(thread, path=path), decoder.state(), find)
    decoder.end()
    _join(whole, decoder.take())
    return whole


def _join(whole: Reading, part: Reading) -> None:
    whole.facts += part.facts
    whole.found += part.found
    whole.noted += part.noted
    whole.spoken += part.spoken
    whole.troubles += part.troubles
    whole.inherited += part.inherited
    whole.dropped += part.dropped
    whole.lines += part.lines
    whole.wanted = whole.wanted or part.wanted


def of_kind(reading: Reading, kind: str) -> list[Found]:
    return [each for each in reading.found if each.kind == kind]


def payload(found: Found) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(found.payload)
    return value


def spent(reading: Reading) -> list[tuple[int, ...]]:
    """Return (input, cached, output, reasoning) of each usage receipt."""
    used = [payload(each)["usage"] for each in of_kind(reading, "usage")]
    return [tuple(each.get(name, 0) for name in NAMES[:4]) for each in used]


def inputs(reading: Reading) -> list[int]:
    return [each[0] for each in spent(reading)]


def owned(readings: Iterable[Reading]) -> dict[str, list[int]]:
    """Return the inputs that count in each conversation, where the ledger lets copies count nowhere."""
    found = [each for reading in readings for each in of_kind(reading, "usage")]
    holders = {(each.session, each.call) for each in found}
    kept: dict[str, list[int]] = {}
    for each in found:
        if not any((rival, each.call) in holders for rival in each.rivals):
            kept.setdefault(each.session, []).append(payload(each)["usage"]["input_tokens"])
    return kept


def gaps(reading: Reading) -> list[str]:
    """Return the kinds of gaps that were noted and not taken back, and those that receipts carry."""
    told = {f"gap:start_unknown:{place}" for word, _, place in _sources(reading) if word == "start_told"}
    noted = [orjson.loads(each.evidence).get("gap") for each in reading.noted if each.source not in told]
    carried = [gap["kind"] for each in of_kind(reading, "usage") for gap in payload(each).get("gaps", [])]
    return [each for each in (*noted, *carried) if each is not None]


def _sources(reading: Reading) -> list[tuple[str, str, str]]:
    return [each.source.partition(":") for each in reading.noted]


def kinds(reading: Reading) -> list[str]:
    return [each.kind for each in reading.troubles]


def ends(reading: Reading) -> list[tuple[str, str]]:
    return [(each.turn, payload(each)["status"]) for each in of_kind(reading, "completed")]


def fact(reading: Reading, name: str) -> Sequence[Any]:
    return [value for each in reading.facts if (value := getattr(each, name)) is not None]
