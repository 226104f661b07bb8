"""One conversation while its lines are read: turns, calls that may still grow, what is told of it.

What is remembered between lines is what the open turn needs; it goes into the decoder's state (``Thread``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from turnlog.errors import InvalidError
from turnlog.harness.claude.branches import Branches
from turnlog.harness.claude.counting import INPUTS, Counted, advisors, joined, output_of, split_disagrees
from turnlog.harness.claude.course import FINAL, Course, made_itself, verdict
from turnlog.harness.claude.decode import PROVIDER, member, one_line, self_turn
from turnlog.harness.reading import Facts, Found, Noted, Reading, Trouble
from turnlog.harness.salvage import has_zone, instant
from turnlog.receipts import canonical
from turnlog.usage.identity import marked

HELD: Final = 8
"""Calls of a conversation that are remembered: their lines may be separated by others, and by other calls."""

TOOLS: Final = 64
"""Tool calls that are remembered as known beside those without an answer."""

_COMMAND: Final = re.compile(r"<command-name>\s*(.*?)\s*</command-name>", re.DOTALL)
_ARGUMENTS: Final = re.compile(r"<command-args>\s*(.*?)\s*</command-args>", re.DOTALL)
_AROUND: Final = re.compile(r"<(ide_\w+|system-reminder|command-message)>.*?</\1>", re.DOTALL)

NO_END: Final = {"why": "the file tells no end"}
"""Evidence of a turn that stops while the model, or a tool, was still to answer: what that used is unknown."""

TITLE: Final = 120
"""Longest title made of a prompt, in characters."""


class Place(msgspec.Struct):
    """Where a record is: byte ``offset`` and ``length`` of its line, ``when`` it says it was written (unix ms)."""

    offset: int
    length: int
    when: int | None


class Call(msgspec.Struct):
    """A model call. ``at`` and ``when`` are its first line's; ``fresh``: more is known than was given.

    ``id`` is the call's, ``name`` what it is remembered by: another one where an id was used again.
    """

    name: str
    request: str | None
    model: str | None
    usage: dict[str, Any] | None
    at: Any
    when: int | None
    offset: int
    length: int
    turn: str
    rivals: tuple[str, ...] = ()
    fresh: bool = True
    id: str | None = None


class Turn(Course, kw_only=True):
    """The turn that runs. ``id`` is None for a self-made turn before its first call; ``given``: its end was told."""

    uuid: str
    id: str | None
    offset: int
    when: int | None
    ended_offset: int = 0
    newest: str | None = None
    given: bool = False
    reopened: bool = False


class Thread(msgspec.Struct, kw_only=True):
    """What is remembered of a conversation. ``first_turn`` names the first turn where its prompt does not.

    ``latest`` is the time of its newest record that has one, unix ms.
    """

    session: str
    first_turn: str | None = None
    at: int | None = None
    latest: int | None = None
    cwd: str | None = None
    version: str | None = None
    model: str | None = None
    titled: bool = False
    began: bool = False
    reasons: bool = False
    compacting: bool = False
    turn: Turn | None = None
    calls: dict[str, Call] = {}
    tools: list[str] = []
    branches: Branches = msgspec.field(default_factory=Branches)


class Sink:
    """Gathers what was found since it was last emptied."""

    def __init__(self) -> None:
        self.reading = Reading()
        self._facts: dict[str, dict[str, Any]] = {}

    def fact(self, session: str, **told: Any) -> None:
        """Say something of a conversation; later words replace earlier ones, but for a title of a higher rank."""
        known = self._facts.setdefault(session, {})
        if "title" in told and known.get("title_rank", 0) > told["title_rank"]:
            told = {name: value for name, value in told.items() if not name.startswith("title")}
        known.update(told)

    def take(self) -> Reading:
        """Return everything, and forget it."""
        taken, self.reading = self.reading, Reading()
        taken.facts = [Facts(session=session, **told) for session, told in self._facts.items()]
        self._facts = {}
        return taken


class Conversation:
    """Takes the records of one conversation."""

    def __init__(self, sink: Sink, thread: Thread) -> None:
        self._sink = sink
        self.thread = thread

    @property
    def turn_id(self) -> str | None:
        """The id of the turn that runs, as far as it is known."""
        turn = self.thread.turn
        return None if turn is None else turn.id

    def met(self, line: Mapping[str, Any], when: int | None) -> None:
        """Note what a record says of the whole conversation."""
        thread = self.thread
        told: dict[str, Any] = {}
        if when is not None:
            thread.latest = when
        if when is not None and (thread.at is None or when < thread.at):
            thread.at = told["at"] = when
        if thread.cwd is None and isinstance(cwd := line.get("cwd"), str) and cwd:
            thread.cwd = told["cwd"] = cwd
        version = line.get("version")
        if version != thread.version and isinstance(version, str):
            thread.version = told["version"] = version
        if told or not thread.began:
            self._sink.fact(thread.session, **told)

    def moved(self, cwd: str) -> None:
        """The conversation goes on in another folder."""
        self.thread.cwd = cwd
        self._sink.fact(self.thread.session, cwd=cwd)

    def prompt(self, line: Mapping[str, Any], name: str, text: str, place: Place) -> None:
        """A prompt begins a turn. Constant time."""
        thread = self.thread
        thread.branches.prompted(line)
        if thread.turn is not None and thread.turn.uuid == name:
            self._sink.reading.dropped += 1
            return
        self.flush()
        self._settle(followed=True)
        by_itself = made_itself(line, text)
        turn = name
        if thread.first_turn is not None:
            by_itself = False
            turn = name if thread.began else thread.first_turn
        thread.turn = Turn(uuid=name, id=None if by_itself else turn, offset=place.offset, when=place.when)
        thread.began = True
        if not by_itself:
            self._start(thread.turn)
            if not thread.titled and (title := one_line(_asked(text[: 16 * TITLE]))[:TITLE]):
                thread.titled = True
                self._sink.fact(thread.session, title=title, title_rank=0)

    def launched(self, name: str, place: Place) -> None:
        """An agent's own prompt, as its parent's file repeats it: the first user record of the agent."""
        turn = self._turn(name, place)
        self._start(turn)

    def answered(self, line: Mapping[str, Any], results: Sequence[Mapping[str, Any]], name: str, place: Place) -> None:
        """Tool calls have results."""
        thread = self.thread
        turn = self._turn(name, place)
        known = {*thread.tools, *turn.open_tools}
        if thread.began and any(str(block.get("tool_use_id")) not in known for block in results):
            # The line of the call was never written, and so nobody knows what it used.
            detail = str(results[0].get("tool_use_id"))[:80]
            trouble = Trouble("missing_call", place.offset, place.length, detail, thread.session)
            self._sink.reading.troubles.append(trouble)
        turn.answered(results, line)
        thread.began = True

    def interrupted(self) -> None:
        """The running turn was interrupted."""
        if self.thread.turn is not None:
            self.thread.turn.interrupted = True

    def urged(self) -> None:
        """Claude told its model to go on."""
        if self.thread.turn is not None:
            self.thread.turn.waits = True

    def failed(self, line: Mapping[str, Any], content: Sequence[Mapping[str, Any]], place: Place) -> None:
        """Claude wrote a message itself."""
        if self.thread.turn is not None:
            self.thread.turn.failed(line, content)
            self.thread.turn.ended_offset = place.offset

    def called(
        self, counted: Counted, place: Place, name: str, rivals: tuple[str, ...] = (), *, since: int | None = None
    ) -> Call:
        """Count a line of a model call; it is given when the conversation has gone on behind it. Constant time.

        ``since``: the call came into the file no earlier (unix ms); one that is older was copied from another session.
        """
        thread, troubles = self.thread, self._sink.reading.troubles
        turn = self._turn(name, place)
        if turn.id is None:
            turn.id = self_turn(counted.call)
            self._start(turn)
        for problem in counted.problems:
            troubles.append(Trouble("bad_counter", place.offset, place.length, problem, thread.session))
        key = counted.call
        held = thread.calls.get(key)
        if held is not None and _other(held, counted):
            key = f"{counted.call}~{counted.request}"
            held = thread.calls.get(key)
        if held is None:
            # As written, so that every reader gives the same receipt; but a time without zone is understood by nobody.
            at = place.when if isinstance(counted.at, str) and not has_zone(counted.at) else counted.at
            when = place.when if place.when is None or since is None else max(place.when, since)
            held = Call(
                key, counted.request, counted.model, counted.usage, at, when, place.offset, place.length, turn.id
            )
            held.rivals, held.id = rivals, counted.call
            thread.calls[key] = held
            while len(thread.calls) > HELD:
                self._give(thread.calls.pop(next(iter(thread.calls))))
            if counted.model is not None and counted.model != thread.model:
                thread.model = counted.model
                self._sink.fact(thread.session, model=counted.model)
        else:
            thread.calls[key] = thread.calls.pop(key)
            self._sink.reading.dropped += 1
            usage = joined(held.usage, counted.usage)
            if usage != held.usage:
                if output_of(counted.usage) >= output_of(held.usage):
                    held.offset, held.length = place.offset, place.length
                held.usage, held.fresh = usage, True
            held.model = held.model or counted.model
            held.request = held.request or counted.request
        thread.began = True
        return held

    def said(
        self,
        line: Mapping[str, Any],
        message: Mapping[str, Any],
        content: Sequence[Mapping[str, Any]],
        call: Call,
        place: Place,
    ) -> None:
        """The main loop's model said something in ``call``."""
        thread, turn = self.thread, self.thread.turn
        for block in content:
            if block.get("type") == "tool_use":
                thread.tools.append(str(block.get("id")))
        del thread.tools[:-TOOLS]
        if turn is None or call.turn != turn.id:
            return  # the rest of a message that began before this turn
        if turn.given and not turn.reopened:
            turn.reopened = True
            evidence = {"provider": PROVIDER, "message_id": call.name}
            self._note(f"reopened:{thread.session}:{turn.id}", evidence, place.when, turn.id)
        turn.said(call.name, line, message, content)
        thread.reasons = thread.reasons or turn.reason in FINAL
        name = line.get("uuid")
        turn.newest = name if isinstance(name, str) else None
        turn.ended_offset = place.offset
        if thread.branches.spoke(line):
            where = {"provider": PROVIDER, "uuid": turn.newest, "parent": line.get("parentUuid")}
            self._note(f"concurrent_writers:{thread.session}", where, place.when, turn.id)

    def system(self, line: Mapping[str, Any], place: Place) -> None:
        """Claude noted something beside the conversation."""
        thread, turn, kind = self.thread, self.thread.turn, line.get("subtype")
        thread.branches.passed(line)
        if kind in ("stop_hook_summary", "turn_duration"):
            if turn is not None and not turn.waits and not line.get("preventedContinuation"):
                turn.closed = True
        elif kind == "compact_boundary":
            thread.compacting = True
            self.compacted(line, member(line, "compactMetadata"), place)
        elif kind == "model_refusal_fallback" and turn is not None:
            retracted = line.get("retractedMessageUuids")
            if isinstance(retracted, list) and turn.newest is not None and turn.newest in retracted:
                turn.text = None

    def compacted(self, line: Mapping[str, Any], told: Mapping[str, Any], place: Place) -> None:
        """The context was summarised; the request that did it is in no file."""
        evidence: dict[str, Any] = {
            "provider": PROVIDER,
            "trigger": told.get("trigger"),
            "before_tokens": told.get("preTokens"),
            "after_tokens": told.get("postTokens"),
            "usage": None,
        }
        self._note(f"compaction:{line.get('uuid') or place.offset}", evidence, place.when, self.turn_id)

    def flush(self) -> None:
        """Give the calls that were held back. They stay known: a later line may tell more."""
        for call in self.thread.calls.values():
            self._give(call)

    def end(self) -> None:
        """Give what the lines so far tell."""
        self.flush()
        self._settle(followed=False)

    def _turn(self, name: str, place: Place) -> Turn:
        """Return the turn that runs; lines before any prompt belong to one that is named by the first of them."""
        thread = self.thread
        if thread.turn is None:
            known = thread.first_turn or name
            thread.turn = Turn(uuid="", id=known, offset=place.offset, when=place.when)
        return thread.turn

    def _start(self, turn: Turn) -> None:
        self._found("started", {}, turn, turn.when, turn.offset)

    def _settle(self, *, followed: bool) -> None:
        turn = self.thread.turn
        if turn is None or turn.id is None or turn.given:
            return
        output, completion = verdict(turn, followed=followed, reasons=self.thread.reasons)
        if completion is None:
            if turn.waits or turn.open_tools:
                self._note(f"unknown:{self.thread.session}:{turn.id}", NO_END, turn.when, turn.id)
            return
        when = instant(turn.ended_at)
        if output is not None:
            self._found("output", output, turn, when, turn.ended_offset)
        self._found("completed", completion, turn, when, turn.ended_offset)
        turn.given, turn.text, turn.value = True, None, None

    def _give(self, call: Call) -> None:
        if not call.fresh:
            return
        call.fresh = False
        session, reading = self.thread.session, self._sink.reading
        place = (call.offset, call.length)
        if call.usage is None:
            reading.troubles.append(Trouble("missing_usage", *place, call.name, session))
            return
        name = call.id or call.name
        self._count(call, name, call.model, call.usage)
        if "iterations" in call.usage:
            more, undecided = advisors(name, call.usage)
            for advisor, model, usage in more:
                self._count(call, advisor, model, usage)
            if undecided:
                reading.troubles.append(Trouble("advisor_usage", *place, call.name, session))
        if split_disagrees(call.usage):
            reading.troubles.append(Trouble("cache_split", *place, call.name, session, usage=False))

    def _count(self, call: Call, name: str, model: str | None, usage: dict[str, Any]) -> None:
        payload = {"provider": PROVIDER, "source": "file", "call": name, "model": model, "usage": usage, "at": call.at}
        if call.request is not None:
            payload["request"] = call.request
        session = self.thread.session
        try:
            text = canonical(payload)
        except InvalidError as error:
            trouble = Trouble("bad_usage", call.offset, call.length, error.message[:200], session)
            self._sink.reading.troubles.append(trouble)
            return
        identity = marked(f"{PROVIDER}:{name}", call.request, model, *map(usage.get, INPUTS))
        self._sink.reading.found.append(
            Found(
                session,
                session,
                call.turn,
                "usage",
                text,
                call.when,
                call.offset,
                identity,
                call.rivals,
                weight=max(output_of(usage), 0),
            )
        )

    def _found(self, kind: str, payload: dict[str, Any], turn: Turn, when: int | None, offset: int) -> None:
        session = self.thread.session
        try:
            text = canonical(payload)
        except InvalidError as error:
            trouble = Trouble(f"bad_{kind}", offset, 0, error.message[:200], session, usage=False)
            self._sink.reading.troubles.append(trouble)
            return
        self._sink.reading.found.append(Found(session, session, str(turn.id), kind, text, when, offset))

    def _note(self, source: str, evidence: dict[str, Any], when: int | None, turn: str | None) -> None:
        try:
            text = canonical(evidence)
        except InvalidError:
            return  # nothing of it can be kept
        self._sink.reading.noted.append(Noted(self.thread.session, source, text, when, turn))


def _asked(text: str) -> str:
    """Return what a person asked, for a title: a command with its arguments, or the text alone."""
    command = _COMMAND.search(text)
    if command is not None:
        given = _ARGUMENTS.search(text)
        return f"{command[1]} {given[1] if given else ''}"
    return _AROUND.sub("", text).strip() or text


def _other(held: Call, counted: Counted) -> bool:
    """Tell whether a line with a known id is another call: gateways use ids again."""
    if not held.request or not counted.request or held.request == counted.request:
        return False
    if counted.model != held.model:
        return True
    before, after = held.usage or {}, counted.usage or {}
    return any(before.get(name) != after.get(name) for name in INPUTS)
