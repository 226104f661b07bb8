"""A quick look at Codex' rollouts: only records that count, or that say what is counted, are decoded."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final

import msgspec
import orjson

from turnlog.errors import InvalidError
from turnlog.harness.codex import sources
from turnlog.harness.codex.counting import Counting, Memory
from turnlog.harness.codex.dig import inner, number, text
from turnlog.harness.codex.lineage import Kin
from turnlog.harness.codex.totals import Totals
from turnlog.harness.quick import Blocks, Call, Look
from turnlog.harness.reading import Find, Source, Trouble
from turnlog.harness.salvage import read_line

# What a record is stands at its beginning. A line that begins in any other way is decoded.
_NOTHING: Final = re.compile(
    rb'\{"timestamp":"[0-9TZ:.+-]{20,35}",(?:"ordinal":\d{1,18},)?"type":"'
    rb'(?:response_item"|world_state"|compacted"|ghost_snapshot"'
    rb'|event_msg","payload":\{"type":"(?:(item_completed)"|(task_complete|turn_aborted)"'
    rb'|(?!token_count"|task_|turn_|thread_settings_|entered_|exited_)[a-z_]+"))'
).match
_STAMP: Final = b'{"timestamp":"'
_ITEM: Final = b'"type":"response_item"'
_TYPED: Final = len('{"timestamp":"2026-01-02T03:04:05.678Z",')
_REVIEW: Final = b'ReviewMode"'
_INFO: Final = b'"info":{'
_LIMITS: Final = b',"rate_limits":'
_TOTAL: Final = b'"total_token_usage":'
_TOLD: Final = b'"thread_token_usage":'
_SEEN: Final = 512
"""Numbered records remembered, to know the end of a file that was written twice."""


class Quick:
    """Looks at rollouts, one after another. ``find`` gives the lines of another conversation's own file."""

    def __init__(self, find: Find) -> None:
        self._blocks = Blocks()
        self._find = find

    def look(self, source: Source) -> Look:
        """Return the calls of one rollout. Raises OSError.

        One pass over its bytes; what cannot count is not decoded, so damage there is not seen.
        """
        found = _Rollout(source, self._find)
        for buffer, begin, end, place in self._blocks.of(source, found.look):
            start, find = begin, buffer.find
            with memoryview(buffer) as view:
                while start < end:
                    stop = find(b"\n", start, end)
                    if stop < 0:
                        stop = end
                    if buffer.startswith(_ITEM, start + _TYPED) and buffer.startswith(_STAMP, start):
                        start = stop + 1  # most lines, told without the expression
                        continue
                    known = _NOTHING(buffer, start, stop)
                    if known is None or (
                        known.lastindex is not None
                        and (find(_REVIEW, start, stop) >= 0 if known.lastindex == 1 else found.reviewing)
                    ):
                        with view[start:stop] as line:
                            found.line(line, place + start)
                    start = stop + 1
        return found.end()


class _Counting(Counting):
    """Counts as every reader of rollouts does, and makes calls of it instead of receipts."""

    def __init__(self, memory: Memory, find: Find, look: Look) -> None:
        super().__init__(memory, find)
        self._look = look

    def note(self, gap: str, at: int | None, offset: int, **more: Any) -> None:
        self._look.loose.append((self.memory.kin.thread, gap, self._look.moment(at)))

    def _call(
        self,
        name: str,
        usage: Totals,
        at: int | None,
        offset: int,
        *,
        tier: str | None,
        turn: str | None = None,
        gaps: list[dict[str, Any]] | None = None,
        rivals: tuple[str, ...] = (),
    ) -> None:
        everything, cached = usage.get("input_tokens"), usage.get("cached_input_tokens")
        write = usage.get("cache_write_input_tokens")
        fresh = None
        if everything is not None and cached is not None:
            fresh = everything - cached - (write or 0)
        self._look.calls.append(
            Call(
                f"codex:{name}",
                self.memory.kin.thread,
                self._look.moment(at),
                self.memory.model,
                tier or self.memory.tier,
                self.memory.service,
                None if fresh is None or fresh < 0 else fresh,
                usage.get("output_tokens"),
                everything,
                cached,
                write,
                None,
                usage.get("reasoning_output_tokens"),
                gaps=tuple(each["kind"] for each in gaps or ()),
                rivals=rivals,
            )
        )


class _Rollout:
    def __init__(self, source: Source, find: Find) -> None:
        name = PurePath(source.path).name
        thread = source.thread or name.removesuffix(".zst").removesuffix(".jsonl")
        self.look = Look()
        self._memory = Memory(Kin(thread))
        self._counting = _Counting(self._memory, find, self.look)
        self._seen: dict[int, int] = {}
        self._most = _SEEN
        if sources.continues(name):
            self._repeats(find(thread) or ())
        self._info = b""
        self._told = b""

    def line(self, line: memoryview, offset: int) -> None:
        """Take one line that may count."""
        raw, memory = bytes(line), self._memory
        begin = raw.find(_INFO)
        info = b""
        if begin >= 0:
            info = raw[begin : raw.find(_LIMITS, begin)]
            if info == self._info:
                return  # the same totals again
            if self._told and not memory.inherited and _object(raw, _TOTAL) == self._told:
                # The totals that the record before them told.
                memory.totals, memory.pending, self._info = memory.told, [], info
                return
        totals, told = memory.totals, memory.told
        try:
            record = orjson.loads(raw)
        except orjson.JSONDecodeError:
            self._odd(raw, offset)
        else:
            if isinstance(record, dict):
                self._take(record, raw, offset)
        if info and memory.totals is not totals:
            self._info = info
        elif memory.told is not told:
            self._told = b"" if memory.told is None else _object(raw, _TOLD)

    @property
    def reviewing(self) -> bool:
        """Whether a review runs, which the end of a turn would end."""
        return self._memory.reviewing is not None

    def end(self) -> Look:
        self.look.troubles += self._counting.troubles
        return self.look

    def _repeats(self, lines: Iterable[bytes]) -> None:
        """Know the records of the conversation's other file, which this one may repeat."""
        for line in lines:
            for _, record in read_line(line, 0)[0]:
                ordinal = number(record, "ordinal")
                if ordinal is not None:
                    self._seen[ordinal] = zlib.crc32(line.rstrip(b"\r\n"))
        self._most += len(self._seen)

    def _odd(self, raw: bytes, offset: int) -> None:
        records, troubles = read_line(raw, offset)
        thread = self._memory.kin.thread
        self.look.troubles += [msgspec.structs.replace(each, session=thread) for each in troubles]
        for place, record in records:
            self._take(record, raw, place)

    def _take(self, record: Mapping[str, Any], raw: bytes, offset: int) -> None:
        ordinal = number(record, "ordinal")
        if ordinal is not None:
            digest = zlib.crc32(raw)
            if self._seen.get(ordinal) == digest:
                return
            self._seen[ordinal] = digest
            if len(self._seen) > self._most:
                del self._seen[next(iter(self._seen))]
        if record.get("type") == "session_meta" and not self._memory.begun:
            payload = inner(record, "payload")
            cwd = text(payload, "cwd")
            if cwd is not None:
                self.look.cwds[text(payload, "id") or self._memory.kin.thread] = cwd
        try:
            self._counting.take(record, offset)
        except InvalidError as error:
            thread = self._memory.kin.thread
            self.look.troubles.append(Trouble("schema", offset, len(raw), str(error), session=thread))


def _object(raw: bytes, name: bytes) -> bytes:
    """Return the flat object behind a name, as it is written."""
    begin = raw.find(name) + len(name)
    return raw[begin : raw.find(b"}", begin) + 1]
