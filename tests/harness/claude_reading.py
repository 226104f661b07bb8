"""Small session files of Claude's shape, and what the reader takes from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson

from turnlog.harness.claude.reader import ClaudeDecoder
from turnlog.harness.reading import Facts, Found, Noted, Reading, Source, Spoken, Trouble

SESSION = "5a1d0000-0000-4000-8000-000000000001"
OTHER = "5a1d0000-0000-4000-8000-000000000002"
WHEN = 1_770_091_506_007
AT = "2026-02-03T04:05:06.007Z"
LATER = "2026-02-03T04:09:00.000Z"


def usage(output: int = 50, fresh: int = 10, **more: Any) -> dict[str, Any]:
    counters = {"input_tokens": fresh, "output_tokens": output, "cache_read_input_tokens": 4}
    return {**counters, "cache_creation_input_tokens": 0, **more}


def record(kind: str, **more: Any) -> dict[str, Any]:
    head = {"parentUuid": None, "isSidechain": False, "cwd": "/home/dev/app", "sessionId": SESSION, "version": "2.1.40"}
    return {**head, "type": kind, "timestamp": AT, **more}


def prompt(uuid: str, text: str = "go", **more: Any) -> dict[str, Any]:
    return record("user", uuid=uuid, message={"role": "user", "content": text}, **more)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(name: str = "t1", of: str = "Bash", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": of, "input": given}


def said(
    name: str,
    *content: dict[str, Any],
    stop: str | None = None,
    used: Mapping[str, Any] | None = None,
    model: str = "m-1",
    **more: Any,
) -> dict[str, Any]:
    message = {"id": name, "role": "assistant", "model": model, "content": list(content), "stop_reason": stop}
    if used is None:
        used = usage()
    return record("assistant", **{"uuid": f"a-{name}", "message": {**message, "usage": used}, **more})


def result(name: str = "t1", content: Any = "x", **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": name, "content": content}
    return record("user", **{"uuid": f"r-{name}", "message": {"role": "user", "content": [block]}, **more})


def system(kind: str, **more: Any) -> dict[str, Any]:
    return record("system", subtype=kind, **{"uuid": f"s-{kind}", **more})


def progress(agent: str, inner: dict[str, Any], **more: Any) -> dict[str, Any]:
    kept = {name: inner[name] for name in ("type", "uuid", "timestamp", "message") if name in inner}
    data = {"message": kept, "normalizedMessages": [], "type": "agent_progress", "prompt": "p", "agentId": agent}
    return record("progress", data=data, uuid="progress", **more)


def synthetic(words: str, **more: Any) -> dict[str, Any]:
    message = {"id": "s", "model": "<synthetic>", "content": [text(words)], "usage": usage(0, 0)}
    return record("assistant", uuid="synthetic", message=message, **more)


class Read:
    """What was taken from the lines of a file, in one look or several."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        self.facts: list[Facts] = []
        self.found: list[Found] = []
        self.noted: list[Noted] = []
        self.spoken: list[Spoken] = []
        self.troubles: list[Trouble] = []
        self.dropped = 0
        for each in readings:
            self.facts += each.facts
            self.found += each.found
            self.noted += each.noted
            self.spoken += each.spoken
            self.troubles += each.troubles
            self.dropped += each.dropped

    def calls(self) -> dict[str, tuple[int, int]]:
        """(fresh input, output) of each call: the largest told, as the ledger counts."""
        known: dict[str, tuple[int, int]] = {}
        for each in self.found:
            if each.kind == "usage":
                used = orjson.loads(each.payload)["usage"]
                before = known.get(str(each.call), (0, 0))
                now = (used.get("input_tokens", 0), used.get("output_tokens", 0))
                known[str(each.call)] = (max(before[0], now[0]), max(before[1], now[1]))
        return known

    def turns(self, kind: str) -> list[tuple[str, str]]:
        """(session, turn) of each receipt of a kind."""
        return [(each.session, each.turn) for each in self.found if each.kind == kind]

    def payload(self, kind: str, turn: str) -> Any:
        found = [orjson.loads(each.payload) for each in self.found if (each.kind, each.turn) == (kind, turn)]
        return found[0] if found else None

    def fact(self, session: str = SESSION) -> dict[str, Any]:
        """Everything that is told of a session; later words win."""
        known: dict[str, Any] = {}
        for each in self.facts:
            if each.session == session:
                known |= {k: v for k, v in msgspec.structs.asdict(each).items() if v is not None and v != ()}
        return known

    def kinds(self) -> list[str]:
        return [each.kind for each in self.troubles]


def file_of(*entries: dict[str, Any] | bytes) -> bytes:
    return b"".join((each if isinstance(each, bytes) else orjson.dumps(each)) + b"\n" for each in entries)


def read(
    *entries: dict[str, Any] | bytes,
    path: str = f"/x/projects/-app/{SESSION}.jsonl",
    parents: Mapping[str, list[bytes]] | None = None,
    cuts: Iterable[int] = (),
    looks: Iterable[int] = (),
) -> Read:
    """Read a file; after lines in ``cuts`` another decoder goes on, after those in ``looks`` the file ended."""
    source = Source("claude", path, "jsonl")
    known = parents or {}
    decoder = ClaudeDecoder(source, None, known.get, latest=WHEN + 10**9)
    readings, offset = [], 0
    for number, raw in enumerate(file_of(*entries).split(b"\n")):
        decoder.line(raw, offset)
        offset += len(raw) + 1
        if number in set(looks):
            decoder.end()
        if number in {*cuts, *looks}:
            readings.append(decoder.take())
            decoder = ClaudeDecoder(source, decoder.state(), known.get, latest=WHEN + 10**9)
    decoder.end()
    return Read([*readings, decoder.take()])
