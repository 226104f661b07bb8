"""The reader of Codex's rollouts: from their lines to facts, receipts, text and problems."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final

import msgspec

from turnlog.errors import InvalidError, UnavailableError
from turnlog.harness.codex import sources
from turnlog.harness.codex.counting import Counting, Memory
from turnlog.harness.codex.dig import number
from turnlog.harness.codex.lineage import Kin
from turnlog.harness.codex.passages import passages_of
from turnlog.harness.codex.story import Past, Story
from turnlog.harness.reading import Decoder, Find, Passage, Reader, Reading, Rows, Source, Spoken, Trouble
from turnlog.harness.salvage import instant, read_line

_RECENT: Final = 512
"""Ordinals remembered, to know lines that are there twice."""


_KINDS: Final = ("response_item", "event_msg", "turn_context", "token_usage_record", "compacted", "session_meta", None)
_EVENTS: Final = frozenset(
    {
        "token_count",
        "task_started",
        "task_complete",
        "turn_aborted",
        "user_message",
        "item_completed",
        "entered_review_mode",
        "exited_review_mode",
        "thread_settings_applied",
        "thread_rolled_back",
        "thread_name_updated",
        "error",
        "stream_error",
    }
)
_THINGS: Final = ("UserMessage", "EnteredReviewMode", "ExitedReviewMode")
_QUIET: Final = re.compile(
    rb'"event_msg","payload":\{"type":"(?:(?:agent_message|agent_reasoning|agent_reasoning_raw_content|exec_command_end'
    rb'|mcp_tool_call_end|patch_apply_end|web_search_end|context_compacted|image_generation_end|guardian_assessment)"'
    rb'|item_completed","thread_id":"[^"]*","turn_id":"[^"]*","item":\{"type":"'
    rb'(?:AgentMessage|Reasoning|CommandExecution|FileChange|McpToolCall|Extension|ContextCompaction|SubAgentActivity)")'
)
"""How the kind is written of lines that need no decoding: they tell nothing, if the line is one whole record."""

_INPUT: Final = b'"input_tokens"'
_OUTPUT: Final = b'"output_tokens"'
_EVENT: Final = b'"event_msg"'
_COUNT: Final = b'"event_msg","payload":{"type":"token_count","info":{'
_FRONT: Final = 96
"""Bytes in which a record's kind stands, behind its time and number."""

_TOTALS: Final[tuple[str, ...]] = ("total_token_usage", "last_token_usage")
_USAGES: Final[tuple[str, ...]] = ("usage", "turn_token_usage", "thread_token_usage")
_BEGIN: Final = b'{"timestamp":"'


class _State(msgspec.Struct, array_like=True):
    memory: Memory
    past: Past
    ordinals: dict[int, int] = {}
    newest: int = -1
    clashed: bool = False


class RolloutDecoder:
    """Reads one rollout of any version. Memory: one line, and what the state holds (some KB)."""

    def __init__(self, source: Source, state: bytes | None, find: Find) -> None:
        name = PurePath(source.path).name
        if state is None:
            thread = source.thread or sources.thread_of(name) or name.removesuffix(".zst").removesuffix(".jsonl")
            self._state = _State(Memory(Kin(thread)), Past())
        else:
            self._state = msgspec.msgpack.decode(state, type=_State)
        self._find = find
        self._counting = Counting(self._state.memory, find)
        self._story = Story(self._state.past, self._counting, source.path)
        self._reading = Reading()
        self._continues = sources.continues(name)
        self._count = b""
        self._other: dict[int, int] | None = None
        self._alone: str | None = None

    def line(self, raw: bytes, offset: int) -> None:
        """Take one line: O(its length)."""
        memory = self._state.memory
        self._reading.lines += 1
        known = memory.begun and self._story.past.introduced
        event = raw.find(_EVENT, 0, _FRONT) if known else -1
        if event >= 0:
            if raw.startswith(_COUNT, event):
                if raw[event:] == self._count:
                    self._reading.dropped += 1  # the same totals and limits again, at another time
                    return
            elif _QUIET.match(raw, event) and raw.endswith(b"}}") and raw.find(_BEGIN, 1) < 0:
                return
        totals = memory.totals
        records, troubles = read_line(raw, offset)
        if troubles:
            self._reading.troubles += [msgspec.structs.replace(each, session=memory.kin.thread) for each in troubles]
        passages: tuple[Passage, ...] = ()
        at = None
        for place, record in records:
            said = self._take(record, raw, place, sole=len(records) == 1)
            if said and not memory.inherited:
                passages += said
                at = instant(record.get("timestamp"))
        if event >= 0 and memory.totals is not totals:
            self._count = raw[event:]
        if passages:
            self._reading.spoken.append(Spoken(memory.kin.thread, memory.turn, at, offset, passages))

    def _take(self, record: Mapping[str, Any], raw: bytes, place: int, *, sole: bool) -> tuple[Passage, ...]:
        """Take one record of a line, and return its text. ``sole``: it is all that the line holds."""
        reading, memory = self._reading, self._state.memory
        if "ordinal" in record and self._repeated(record, raw, place):
            reading.dropped += 1
            return ()
        if record.get("type") != "response_item":
            if memory.begun and self._story.past.introduced and _silent(record):
                return ()
            if sole and _doubled(record, raw):
                reading.troubles.append(Trouble("duplicate_key", place, len(raw), session=memory.kin.thread))
        try:
            self._counting.take(record, place)
            self._story.take(record, place)
        except InvalidError as error:
            reading.troubles.append(Trouble("schema", place, len(raw), str(error), session=memory.kin.thread))
            return ()
        return passages_of(record)

    def end(self) -> None:
        """Nothing is held back but that a turn has no end yet."""
        self._story.unfinished()

    def take(self) -> Reading:
        """Return what was taken since the last call."""
        reading, counting, story = self._reading, self._counting, self._story
        reading.facts, story.facts = story.facts, []
        reading.found = sorted(counting.found + story.found, key=lambda each: each.offset)
        reading.noted = counting.noted + story.noted
        reading.troubles += counting.troubles
        reading.wanted, counting.lineage.missing = counting.lineage.missing or self._alone, None
        reading.inherited, reading.dropped = counting.inherited, reading.dropped + counting.dropped
        counting.found, story.found, counting.noted, story.noted, counting.troubles = [], [], [], [], []
        counting.inherited = counting.dropped = 0
        self._reading = Reading()
        return reading

    def state(self) -> bytes:
        """Return what a later decoder needs to go on."""
        self._state.past = self._story.past
        return msgspec.msgpack.encode(self._state)

    def _repeated(self, record: Mapping[str, Any], raw: bytes, offset: int) -> bool:
        """Tell whether a numbered record was there before, word by word; note a number given twice."""
        ordinal = number(record, "ordinal")
        if ordinal is None:
            return False
        state, sum_ = self._state, zlib.crc32(raw)
        before = state.ordinals.get(ordinal) if ordinal <= state.newest else None
        if before == sum_:
            return True
        if self._continues and before is None:
            before = self._others().get(ordinal, sum_)
        if before not in {None, sum_} and not state.clashed:
            # Told once: behind a revert every number is given twice.
            state.clashed = True
            thread = state.memory.kin.thread
            detail = f"ordinal {ordinal}"
            trouble = Trouble("duplicate_ordinal", offset, len(raw), detail, session=thread, usage=False)
            self._reading.troubles.append(trouble)
        state.newest = max(ordinal, state.newest)
        state.ordinals[ordinal] = sum_
        if len(state.ordinals) > _RECENT:
            del state.ordinals[next(iter(state.ordinals))]
        return False

    def _others(self) -> dict[int, int]:
        """Return the numbered records of the conversation's other file, which this one goes on from."""
        if self._other is None:
            self._other = {}
            lines = self._find(self._state.memory.kin.thread)
            if lines is None:
                self._alone = self._state.memory.kin.thread
            for line in lines or ():
                for _, record in read_line(line, 0)[0]:
                    ordinal = number(record, "ordinal")
                    if ordinal is not None:
                        self._other[ordinal] = zlib.crc32(line.rstrip(b"\r\n"))
        return self._other


def _silent(record: Mapping[str, Any]) -> bool:
    """Tell whether a record of a file that has begun tells nothing: most events only repeat an item."""
    kind, payload = record.get("type"), record.get("payload")
    if not isinstance(payload, dict):
        return False
    if kind == "event_msg":
        event = payload.get("type")
        if not isinstance(event, str) or event not in _EVENTS:
            return True
        if event == "item_completed":
            item = payload.get("item")
            return isinstance(item, dict) and item.get("type") not in _THINGS
        return False
    return kind not in _KINDS


def _doubled(record: Mapping[str, Any], raw: bytes) -> bool:
    """Tell whether a counter is named twice in one object: the last one counts, and nobody knows which is right."""
    payload = record.get("payload")
    if not isinstance(payload, dict):
        return False
    holder: Any = payload
    names = _TOTALS
    if payload.get("type") == "token_count":
        holder = payload.get("info")
    elif record.get("type") == "token_usage_record":
        names = _USAGES
    else:
        return False
    told = sum(name in holder for name in names) if isinstance(holder, dict) else 0
    return told > 0 and max(raw.count(_INPUT), raw.count(_OUTPUT)) > told


class CodexReader:
    """How Codex's files are read."""

    provider = "codex"
    version = 1

    def __init__(self) -> None:
        self._unlisted: list[tuple[str, str]] = []

    def discover(self, variables: Mapping[str, str], roots: Sequence[Path]) -> Iterator[Source]:
        """Yield the rollouts below ``roots``, or below Codex's own folders: O(directory entries).

        A source's rank is when its conversation began, as far as the name tells: parents come before children.
        """
        self._unlisted = []
        return sources.discover(roots or self.usual(variables), self._unlisted, named=not roots)

    def unlisted(self) -> list[tuple[str, str]]:
        """Return the folders that the last ``discover`` could not list."""
        return list(self._unlisted)

    def usual(self, variables: Mapping[str, str]) -> list[Path]:
        """Return the folders looked at when no root is given."""
        return sources.usual(variables)

    def decoder(self, source: Source, state: bytes | None, find: Find) -> Decoder:
        """Return a decoder of one rollout."""
        return RolloutDecoder(source, state, find)

    def rows(self, source: Source) -> Rows:
        """Rollouts have lines. Raises UnavailableError."""
        raise UnavailableError(f"{source.path} is no database", hint="it is read line by line")

    def passages(self, raw: bytes) -> tuple[Passage, ...]:
        """Return the text of one line: O(its length)."""
        return tuple(passage for _, record in read_line(raw, 0)[0] for passage in passages_of(record))


READER: Final[Reader] = CodexReader()
