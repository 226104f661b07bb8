"""A reader for tests of the importer itself: each line says what is to be taken from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from turnlog.errors import UnavailableError
from turnlog.harness.reading import (
    Facts,
    Find,
    Found,
    Passage,
    Reading,
    Rows,
    Source,
    Spoken,
)
from turnlog.harness.salvage import read_line
from turnlog.receipts import canonical


def line(session: str, turn: str, kind: str = "usage", *, at: int = 1000, text: str = "", **more: Any) -> bytes:
    return orjson.dumps({"s": session, "t": turn, "k": kind, "at": at, "text": text, **more})


def call(session: str, turn: str, name: str, *, at: int = 1000, out: int = 5, **more: Any) -> bytes:
    payload = {
        "provider": "claude",
        "source": "file",
        "call": name,
        "model": "m",
        "usage": {"input_tokens": 10, "output_tokens": out},
    }
    return line(session, turn, at=at, payload=payload, call=name, **more)


class PlainDecoder:
    def __init__(self, state: bytes | None) -> None:
        self._seen = int(state or 0)
        self._reading = Reading()

    def line(self, raw: bytes, offset: int) -> None:
        values, troubles = read_line(raw, offset)
        reading = self._reading
        reading.troubles += troubles
        reading.lines += 1
        self._seen += 1
        for _, value in values:
            session, turn = value["s"], value["t"]
            reading.facts.append(Facts(session=session, at=value["at"], cwd=value.get("cwd")))
            if value["k"] != "talk":
                rivals = tuple(value.get("rivals", ()))
                payload = canonical(value.get("payload", {}))
                weight = value.get("payload", {}).get("usage", {}).get("output_tokens", 0)
                found = Found(
                    session, session, turn, value["k"], payload, value["at"], offset, value.get("call"), rivals, weight
                )
                reading.found.append(found)
            if passages := READER.passages(raw):
                reading.spoken.append(Spoken(session, turn, value["at"], offset, passages))

    def end(self) -> None:
        pass

    def take(self) -> Reading:
        taken, self._reading = self._reading, Reading()
        return taken

    def state(self) -> bytes:
        return str(self._seen).encode()


class PlainReader:
    provider = "claude"
    version = 1

    def discover(self, variables: Mapping[str, str], roots: Sequence[Path]) -> Iterator[Source]:
        for root in roots or self.usual(variables):
            for path in sorted(root.rglob("*.jsonl*")):
                yield Source("claude", str(path), "zst" if path.suffix == ".zst" else "jsonl", path.name.split(".")[0])

    def unlisted(self) -> list[tuple[str, str]]:
        return []

    def usual(self, variables: Mapping[str, str]) -> list[Path]:
        return [Path(variables["PLAIN"])]

    def decoder(self, source: Source, state: bytes | None, find: Find) -> PlainDecoder:
        return PlainDecoder(state)

    def rows(self, source: Source) -> Rows:
        raise UnavailableError("no rows here")

    def passages(self, raw: bytes) -> tuple[Passage, ...]:
        try:
            text = orjson.loads(raw).get("text", "")
        except orjson.JSONDecodeError:
            return ()
        return (Passage("user", text),) if text else ()


READER = PlainReader()
