"""A quick look at Codex' rollouts: only records that count, or that say what is counted, are decoded."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypedDict

import msgspec
import orjson

from turnlog.errors import InvalidError
from turnlog.harness.codex import sources
from turnlog.harness.codex.counting import Counting, Memory, Response
from turnlog.harness.codex.dig import inner, number, text
from turnlog.harness.codex.lineage import Kin
from turnlog.harness.codex.totals import NAMES, Totals, same
from turnlog.harness.quick import Blocks, Call, Look
from turnlog.harness.reading import Find, Source, Trouble
from turnlog.harness.salvage import instant, read_line

# What a record is stands at its beginning. A line that begins in any other way is decoded.
_NOTHING: Final = re.compile(
    rb'\{"timestamp":"[0-9TZ:.+-]{20,35}+",(?:"ordinal":\d{1,18}+,)?"type":"'
    rb'(?:response_item"|world_state"|compacted"|ghost_snapshot"'
    rb'|event_msg","payload":\{"type":"(?:(item_completed)"|(task_complete|turn_aborted)"'
    rb'|(?!token_count"|task_|turn_|thread_settings_|entered_|exited_)[a-z_]++"))'
).match
_NUMBER: Final = re.compile(rb'\{"timestamp":"[^"\\]{20,35}","ordinal":(\d{1,18}),').match
_REVIEW: Final = b'ReviewMode"'
_INFO: Final = b'"info":{'
_LIMITS: Final = b',"rate_limits":'
_TOTAL: Final = b'"total_token_usage":'
_TOLD: Final = b'"thread_token_usage":'
_RECORD: Final = b'"type":"token_usage_record"'
_HEAD: Final = 160
"""Bytes of a line in which these stand, where it is written as usual."""
_SEEN: Final = 512
"""Numbered records remembered, to know the end of a file that was written twice."""


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


if TYPE_CHECKING:
    _Usage = Totals
else:
    # Decoded to what ``totals.counters`` makes of it. What that would complain of is no such thing.
    _Usage = TypedDict("_Usage", dict.fromkeys(NAMES, _Count), total=False)


class _Info(msgspec.Struct, gc=False):
    total: _Usage = msgspec.field(name="total_token_usage")
    last: _Usage | None = msgspec.field(name="last_token_usage", default=None)
    service_tier: str | None = None


class _CountPayload(msgspec.Struct, gc=False):
    type: Literal["token_count"]
    info: _Info
    service_tier: str | None = None


class _CountLine(msgspec.Struct, gc=False):
    timestamp: str
    type: Literal["event_msg"]
    payload: _CountPayload
    ordinal: _Count | None = None


class _ResponsePayload(msgspec.Struct, gc=False):
    usage: _Usage
    told: _Usage | None = msgspec.field(name="thread_token_usage", default=None)
    thread_id: str | None = None
    turn_id: str | None = None
    response_id: str | None = None
    service_tier: str | None = None


class _ResponseLine(msgspec.Struct, gc=False):
    timestamp: str
    type: Literal["token_usage_record"]
    payload: _ResponsePayload
    ordinal: _Count | None = None


# Half the price of decoding all of a line: the rest of it is only checked for being JSON.
_count: Final = msgspec.json.Decoder(_CountLine).decode
_response: Final = msgspec.json.Decoder(_ResponseLine).decode
_UNUSUAL: Final = (msgspec.DecodeError, RecursionError)


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
        nothing = _NOTHING
        for buffer, begin, end, place in self._blocks.of(source, found.look):
            start, find, line = begin, buffer.find, found.line
            with memoryview(buffer) as view:
                while start < end:
                    stop = find(b"\n", start, end)
                    if stop < 0:
                        stop = end
                    known = nothing(buffer, start, stop)
                    if known is None or (
                        known.lastindex is not None
                        and (find(_REVIEW, start, stop) >= 0 if known.lastindex == 1 else found.reviewing)
                    ):
                        line(bytes(view[start:stop]), place + start)
                    start = stop + 1
        return found.end()


class _Counting(Counting):
    """Counts as every reader of rollouts does, and makes calls of it instead of receipts."""

    def __init__(self, memory: Memory, find: Find, look: Look) -> None:
        super().__init__(memory, find)
        self._look = look

    def start(self, total: Totals, at: int | None, offset: int, *, alone: bool, known: bool) -> None:
        if not known:
            self.note("start_unknown", at, offset)

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
                gaps=tuple([each["kind"] for each in gaps]) if gaps else (),
                rivals=rivals,
            )
        )


class _Rollout:
    def __init__(self, source: Source, find: Find) -> None:
        name = PurePath(source.path).name
        thread = source.thread or sources.thread_of(name) or name.removesuffix(".zst").removesuffix(".jsonl")
        self.look = Look()
        self._memory = Memory(Kin(thread))
        self._counting = _Counting(self._memory, find, self.look)
        self._seen: dict[int, int] = {}
        self._most = _SEEN
        if sources.continues(name):
            self._repeats(find(thread) or ())
        self._info = b""
        self._told = b""

    def line(self, raw: bytes, offset: int) -> None:
        """Take one line that may count."""
        memory = self._memory
        begin = raw.find(_INFO, 0, _HEAD)
        info = b""
        if begin >= 0:
            info = raw[begin : raw.find(_LIMITS, begin)]
            if info == self._info:
                if _whole(raw, begin):
                    self._numbered(raw)
                    return  # the same totals again
            elif self._told and not memory.inherited and _object(raw, _TOTAL) == self._told and _whole(raw, begin):
                if not self._numbered(raw):
                    # The totals that the record before them told, or those of before once more.
                    if memory.totals is None or memory.told is None or not same(memory.totals, memory.told):
                        memory.totals, memory.pending = memory.told, []
                    self._info = info
                return
        totals, told = memory.totals, memory.told
        if not (self._count(raw, offset) if info else self._response(raw, offset)):
            self._any(raw, offset)
        if memory.totals is not totals:
            self._info = info
        if memory.told is not told:
            self._told = b"" if memory.told is None else _object(raw, _TOLD)

    def _count(self, raw: bytes, offset: int) -> bool:
        """Take running totals as they are usually written; tells whether the line is that."""
        try:
            record = _count(raw)
        except _UNUSUAL:
            return False
        payload, info = record.payload, record.payload.info
        if not info.total or not raw.isascii():  # bytes that are no UTF-8 were passed over
            return False
        if record.ordinal is None or not self._again(record.ordinal, raw):
            tier = payload.service_tier or info.service_tier
            at = instant(record.timestamp)
            self._counting.counted(info.total, info.last or None, at, offset, tier.lower() if tier else None)
            self._memory.begun = True
        return True

    def _response(self, raw: bytes, offset: int) -> bool:
        """Take a record of one response as it is usually written; tells whether the line is that."""
        if raw.find(_RECORD, 0, _HEAD) < 0:
            return False
        try:
            record = _response(raw)
        except _UNUSUAL:
            return False
        told = record.payload
        if not told.usage or not raw.isascii():
            return False
        if record.ordinal is None or not self._again(record.ordinal, raw):
            tier = told.service_tier
            response = Response(
                told.usage,
                told.told or None,
                told.thread_id or None,
                told.turn_id or None,
                told.response_id or None,
                tier.lower() if tier else None,
            )
            self._counting.responded(response, instant(record.timestamp), offset)
            self._memory.begun = True
        return True

    def _any(self, raw: bytes, offset: int) -> None:
        """Take a line of whatever kind and spelling."""
        try:
            record = orjson.loads(raw)
        except orjson.JSONDecodeError:
            self._odd(raw, offset)
        else:
            if isinstance(record, dict):
                self._take(record, raw, offset)

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

    def _again(self, ordinal: int, raw: bytes) -> bool:
        """Tell whether a numbered record is the end of a file written twice, and remember it."""
        digest, seen = zlib.crc32(raw), self._seen
        if seen.get(ordinal) == digest:
            return True
        seen[ordinal] = digest
        if len(seen) > self._most:
            del seen[next(iter(seen))]
        return False

    def _numbered(self, raw: bytes) -> bool:
        """Do what ``_again`` does, for a line that is not decoded."""
        number = _NUMBER(raw) if self._seen else None  # the first record of a file has one, or none has
        return number is not None and self._again(int(number[1]), raw)

    def _take(self, record: Mapping[str, Any], raw: bytes, offset: int) -> None:
        ordinal = number(record, "ordinal")
        if ordinal is not None and self._again(ordinal, raw):
            return
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


def _whole(raw: bytes, begin: int) -> bool:
    """Tell whether a line looks neither cut nor like several, so that what it repeats is all that it holds."""
    return raw.endswith(b"}}}") and raw.find(b"T", begin) < 0  # of another record's timestamp: found ten times as fast


def _object(raw: bytes, name: bytes) -> bytes:
    """Return the flat object behind a name, as it is written."""
    begin = raw.find(name) + len(name)
    return raw[begin : raw.find(b"}", begin) + 1]
