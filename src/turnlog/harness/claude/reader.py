"""Claude Code's session files for the importer: which records belong to which conversation, and what they tell.

A record of ``user``, ``assistant`` or ``system`` belongs to the session it names, everything else to the file's: stale
ids stand on notes of hooks. Records that name neither themselves nor a message cannot be told from rewritten ones, so
their session is the file's too. An agent's file is a conversation of its own below the session it names.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from turnlog.clock import now_ms
from turnlog.errors import UnavailableError
from turnlog.harness.claude.conversation import Conversation, Place, Sink, Thread
from turnlog.harness.claude.counting import repeated_counters, usage_of
from turnlog.harness.claude.course import INTERRUPTED, blocks, is_injected, is_prompt, kind_of, words
from turnlog.harness.claude.decode import PROVIDER, SYNTHETIC, member, one_line
from turnlog.harness.claude.embedded import embedded
from turnlog.harness.claude.passages import is_progress, is_text, passages, skippable, spoken
from turnlog.harness.claude.sources import AGENT, Walk, agent_of, folder_of, usual
from turnlog.harness.reading import Decoder, Find, Passage, Reading, Rows, Source, Spoken, Trouble
from turnlog.harness.salvage import has_zone, instant, read_line

VERSION: Final = 1
THREADS: Final = 32
"""Conversations of one file that are remembered at once: those that spoke last."""

MARGIN: Final = 86_400_000
"""Milliseconds that another machine's clock may be ahead."""

_TITLES: Final = {"summary": ("summary", 1), "ai-title": ("aiTitle", 1), "custom-title": ("customTitle", 2)}


class _State(msgspec.Struct):
    """What a decoder hands on. ``own`` is the file's session, ``named`` whether the file's name is one of its ids.

    ``since`` is when the file was begun, as notes before its first message tell (unix ms): what it repeats of another
    session is older.
    """

    own: str | None = None
    since: int | None = None
    named: bool = False
    parent: str | None = None
    linked: bool = False
    told: list[str] = []
    threads: list[Thread] = []


class ClaudeDecoder:
    """Reads one session file. Time is linear in its bytes; memory is bounded by its longest line and open turns."""

    def __init__(self, source: Source, state: bytes | None, find: Find, *, latest: int) -> None:
        self._name = Path(source.path).name.removesuffix(".jsonl")
        self._agent = agent_of(source.path)
        self._folder = folder_of(source.path)
        self._path = source.path
        self._find = find
        self._latest = latest
        self._state = _State() if state is None else msgspec.json.decode(state, type=_State)
        self._sink = Sink()
        self._talks = {thread.session: Conversation(self._sink, thread) for thread in self._state.threads}

    def line(self, raw: bytes, offset: int) -> None:
        reading = self._sink.reading
        reading.lines += 1
        # A file's first notes say when it was begun.
        begins = self._state.own is None and raw.startswith(b'{"type":"queue-operation"')
        if skippable(raw) and not begins:
            return
        if is_progress(raw) and is_text(raw) and (inner := embedded(raw)) is not None:
            self._embedded(inner, offset, len(raw))
            return
        lines, troubles = read_line(raw, offset)
        for each in troubles:
            reading.troubles.append(msgspec.structs.replace(each, session=self._state.own))
        said: list[Passage] = []
        told: tuple[Conversation | None, int | None] = (None, None)
        for place, line in lines:
            found = self._record(line, raw if len(lines) == 1 else b"", Place(place, len(raw) - place + offset, None))
            if more := spoken(line):
                said += more
                told = told if told[0] is not None else found
        if said:
            talk, when = told
            talk = talk or self._own()
            turn = talk.turn_id
            reading.spoken.append(Spoken(talk.thread.session, turn, when, offset, tuple(said)))

    def end(self) -> None:
        for talk in self._talks.values():
            talk.end()
        state = self._state
        if self._agent is None and state.own is not None and not state.named and self._once("alias"):
            self._sink.fact(state.own, aliases=(self._name,))

    def take(self) -> Reading:
        return self._sink.take()

    def state(self) -> bytes:
        self._state.threads = [talk.thread for talk in self._talks.values()]
        return msgspec.json.encode(self._state)

    def _record(self, line: dict[str, Any], raw: bytes, place: Place) -> tuple[Conversation | None, int | None]:
        kind = kind_of(line)
        if kind in {"user", "assistant"}:
            talk = self._talk(line)
            place.when = self._when(line, place)
            talk.met(line, place.when)
            if place.when is None:
                place.when = talk.thread.latest
            if kind == "user":
                self._user(line, raw, talk, place)
            else:
                self._assistant(line, raw, talk, place)
            return talk, place.when
        place.when = instant(line.get("timestamp"))
        if self._state.own is None and place.when is not None and place.when <= self._latest:
            self._state.since = max(place.when, self._state.since or 0)
        if kind == "system":
            if (known := self._noted(line)) is not None:
                known.system(line, place)
        elif kind == "attachment":
            talk = self._own()
            talk.thread.branches.passed(line)
            attachment = member(line, "attachment")
            if attachment.get("type") == "structured_output" and talk.thread.turn is not None:
                talk.thread.turn.structured(attachment)
            return talk, place.when
        elif kind == "progress":
            self._embedded(line, place.offset, place.length)
        elif isinstance(kind, str):
            self._told(kind, line)
        return None, None

    def _told(self, kind: str, line: Mapping[str, Any]) -> None:
        """Take what is said of the file's session as a whole."""
        if kind in _TITLES and self._state.own is not None:
            member_name, rank = _TITLES[kind]
            title = line.get(member_name)
            talk = self._own()
            foreign = kind == "summary" and not talk.thread.branches.knows(line.get("leafUuid"))
            if isinstance(title, str) and title.strip() and not foreign:
                given = {"title": one_line(title)[:200], "title_rank": rank, "title_at": talk.thread.latest}
                self._sink.fact(talk.thread.session, **given)
        elif kind == "relocated" and isinstance(cwd := line.get("relocatedCwd"), str) and self._state.own is not None:
            self._own().moved(cwd)
        elif kind == "worktree-state" and self._state.own is not None:
            root = member(line, "worktreeSession").get("originalCwd")
            if isinstance(root, str) and root:
                self._sink.fact(self._own().thread.session, root=root)

    def _user(self, line: dict[str, Any], raw: bytes, talk: Conversation, place: Place) -> None:
        message = member(line, "message")
        content = blocks(message)
        results = [block for block in content if block.get("type") == "tool_result"]
        side = self._side(line)
        if results:
            talk.thread.branches.passed(line)
            talk.answered(line, results, _name(line, raw), place)
            answer = line.get("toolUseResult")
            if isinstance(answer, dict) and isinstance(agent := answer.get("agentId"), str) and agent:
                self._child(agent, talk)
            return
        text = words(message, content)
        marked = line.get("interruptedMessageId")
        turn = talk.thread.turn
        if text.startswith(INTERRUPTED):
            talk.thread.branches.passed(line)
            talk.interrupted()
        elif line.get("isCompactSummary"):
            talk.thread.branches.passed(line)
            if not talk.thread.compacting:
                talk.compacted(line, {}, place)
            talk.thread.compacting = False
        elif not side and is_prompt(line, text, content):
            if marked is not None and turn is not None and marked in (turn.last, turn.newest):
                talk.interrupted()
            talk.prompt(line, _name(line, raw), text, place)
        else:
            talk.thread.branches.passed(line)
            if line.get("isMeta") and not is_injected(text):
                talk.urged()

    def _assistant(self, line: dict[str, Any], raw: bytes, talk: Conversation, place: Place) -> None:
        message = member(line, "message")
        content = blocks(message)
        if message.get("model") == SYNTHETIC:
            talk.thread.branches.passed(line)
            talk.failed(line, content, place)
            return
        counted = usage_of(line, raw)
        if counted is None:
            return
        if counted.usage is not None and raw and repeated_counters(raw, counted.usage):
            detail = "a counter is told twice; the last was taken"
            trouble = Trouble("duplicate_key", place.offset, place.length, detail, talk.thread.session)
            self._sink.reading.troubles.append(trouble)
        origin = member(line, "forkedFrom").get("sessionId")
        rivals = (origin,) if isinstance(origin, str) and origin != talk.thread.session else ()
        if rivals and self._once(f"fork:{talk.thread.session}"):
            self._sink.fact(talk.thread.session, parent=origin, relation="fork")
        call = talk.called(counted, place, _name(line, raw), rivals, since=self._state.since)
        if self._side(line):
            talk.thread.tools += [str(block.get("id")) for block in content if block.get("type") == "tool_use"]
        else:
            talk.said(line, message, content, call, place)

    def _embedded(self, line: Mapping[str, Any], offset: int, length: int) -> None:
        """Count what an agent's message uses that its parent's note of progress repeats."""
        data = member(line, "data")
        inner, agent = member(data, "message"), data.get("agentId")
        if not isinstance(agent, str) or not agent or inner.get("type") not in ("assistant", "user"):
            return
        talk = self._child(agent, self._own())
        place = Place(offset, length, instant(inner.get("timestamp")))
        talk.met({}, place.when)
        if inner["type"] == "user" and talk.thread.turn is None:
            talk.launched(_name(inner, b""), place)
        if inner["type"] == "assistant" and (counted := usage_of(inner)) is not None and counted.usage is not None:
            talk.called(counted, place, _name(inner, b""))

    def _talk(self, line: Mapping[str, Any]) -> Conversation:
        """Return the conversation that a user or assistant record belongs to."""
        state = self._state
        named = line.get("sessionId")
        session = named if isinstance(named, str) and named else None
        state.named = state.named or session == self._name
        if self._agent is not None:
            return self._agents(session, line)
        before = state.own
        if session is None or (before is not None and session != before and not _anchored(line)):
            session = before or self._name
        if state.own is None or (session == self._name and session != state.own):
            state.own = session
        talk = self._open(session)
        if before is not None and before != state.own:
            self._sink.fact(session, parent=before, relation="continuation")
        agent = line.get("agentId")
        if line.get("isSidechain") and isinstance(agent, str) and agent:
            return self._child(agent, talk)
        return talk

    def _agents(self, session: str | None, line: Mapping[str, Any]) -> Conversation:
        """Return the conversation of an agent's file: one, whatever its records name."""
        state = self._state
        if state.own is not None:
            return self._own()
        named = line.get("agentId")
        agent = named if isinstance(named, str) and named else str(self._agent)
        if session in {agent, f"{AGENT}{agent}"} or not _anchored(line):
            session = None
        parent = session or self._folder
        state.parent = parent
        state.own = f"{parent}/{agent}" if parent is not None else f"{AGENT}{agent}"
        talk = self._open(state.own, first_turn=f"agent:{agent}")
        meta = self._meta()
        told: dict[str, Any] = {"relation": "subagent"} if parent is not None else {}
        if parent is not None:
            turn = self._parent_turn(parent, line.get("promptId"), meta.get("toolUseId"))
            told |= {"parent": parent} | ({} if turn is None else {"parent_turn": turn})
        if isinstance(title := meta.get("description"), str) and title.strip():
            told |= {"title": one_line(title)[:200], "title_rank": 1}
            talk.thread.titled = True
        self._sink.fact(state.own, **told)
        return talk

    def _noted(self, line: Mapping[str, Any]) -> Conversation | None:
        """Return the conversation that a system record is about; it begins none."""
        named = line.get("sessionId")
        if self._agent is None and isinstance(named, str) and _anchored(line):
            return self._talks.get(named)
        return self._own() if self._state.own is not None else None

    def _own(self) -> Conversation:
        """Return the conversation of the file itself."""
        return self._open(self._state.own or self._name)

    def _child(self, agent: str, talk: Conversation) -> Conversation:
        """Return the conversation of an agent that ``talk`` began, and tell of it."""
        parent = talk.thread.session
        session = f"{self._state.parent or parent.partition('/')[0]}/{agent}"
        child = self._open(session, first_turn=f"agent:{agent}")
        if self._once(f"agent:{session}") and session != parent:
            turn = talk.turn_id
            told = {"parent": parent, "relation": "subagent"} | ({} if turn is None else {"parent_turn": turn})
            self._sink.fact(session, **told)
        return child

    def _open(self, session: str, first_turn: str | None = None) -> Conversation:
        talk = self._talks.get(session)
        if talk is not None:
            if len(self._talks) > 1:
                self._talks[session] = self._talks.pop(session)  # the newest stay
        else:
            talk = Conversation(self._sink, Thread(session=session, first_turn=first_turn))
            self._talks[session] = talk
            if len(self._talks) > THREADS:
                self._talks.pop(next(name for name in self._talks if name != self._state.own)).flush()
        return talk

    def _side(self, line: Mapping[str, Any]) -> bool:
        """Tell whether a record is an agent's, in the file of the session that began it, without saying whose."""
        if self._agent is not None or not line.get("isSidechain"):
            return False
        return not isinstance(line.get("agentId"), str)

    def _when(self, line: Mapping[str, Any], place: Place) -> int | None:
        told = line.get("timestamp")
        when = instant(told)
        kind = None
        if when is None:
            kind = "time_missing"
        elif isinstance(told, str) and not has_zone(told):
            kind = "time_without_zone"
        elif when > self._latest:
            kind = "time_in_future"
        if kind is not None and self._once(kind):
            detail = "the first such record of this file"
            trouble = Trouble(kind, place.offset, place.length, detail, self._state.own, usage=False)
            self._sink.reading.troubles.append(trouble)
        return when

    def _once(self, what: str) -> bool:
        """Tell whether this was not said before; remembers the newest two hundred."""
        if what in self._state.told:
            return False
        self._state.told.append(what)
        del self._state.told[:-200]
        return True

    def _meta(self) -> dict[str, Any]:
        """Return what stands beside an agent's file about it."""
        with contextlib.suppress(OSError, orjson.JSONDecodeError):
            found = orjson.loads(Path(self._path).with_suffix(".meta.json").read_bytes())
            return found if isinstance(found, dict) else {}
        return {}

    def _parent_turn(self, parent: str, prompt: object, tool: object) -> str | None:
        """Look in the parent's own lines for the turn that began this agent; linear in them."""
        wanted = {name: str(value).encode() for name, value in (("prompt", prompt), ("tool", tool)) if value}
        lines = self._find(parent) if wanted else None
        turn: str | None = None
        for raw in lines or ():
            if not any(mark in raw for mark in wanted.values()) and b'"type":"user"' not in raw:
                continue
            if b'"tool_result"' in raw:
                continue
            for _, line in read_line(raw, 0)[0]:
                message = member(line, "message")
                content = blocks(message)
                if line.get("type") == "user" and is_prompt(line, words(message, content), content):
                    turn = _name(line, raw)
                    if prompt and line.get("promptId") == prompt:
                        return turn
                elif tool and any(block.get("id") == tool for block in content):
                    return turn
        return None


def _name(line: Mapping[str, Any], raw: bytes) -> str:
    """Return what names a record: its uuid, else a digest."""
    name = line.get("uuid")
    if isinstance(name, str) and name:
        return name
    return f"line:{hashlib.sha256(raw or orjson.dumps(line, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]}"


def _anchored(line: Mapping[str, Any]) -> bool:
    """Tell whether a record names itself or its message."""
    return isinstance(line.get("uuid"), str) or isinstance(member(line, "message").get("id"), str)


class ClaudeReader:
    """Reads Claude Code's session files."""

    provider = PROVIDER
    version = VERSION

    def __init__(self) -> None:
        self._unlisted: list[tuple[str, str]] = []

    def discover(self, variables: Mapping[str, str], roots: Sequence[Path]) -> Iterator[Source]:
        walk = Walk()
        self._unlisted = walk.unlisted
        yield from walk.sources(roots or usual(variables), trusted=not roots)

    def unlisted(self) -> list[tuple[str, str]]:
        return list(self._unlisted)

    def usual(self, variables: Mapping[str, str]) -> list[Path]:
        return usual(variables)

    def decoder(self, source: Source, state: bytes | None, find: Find) -> Decoder:
        return ClaudeDecoder(source, state, find, latest=now_ms() + MARGIN)

    def rows(self, source: Source) -> Rows:
        raise UnavailableError(f"no rows in {source.path}", hint="Claude's sessions are files of lines")

    def passages(self, raw: bytes) -> tuple[Passage, ...]:
        return passages(raw)


READER: Final = ClaudeReader()
