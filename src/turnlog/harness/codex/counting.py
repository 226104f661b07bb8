"""What a Codex conversation used, call by call, from the few kinds of rollout records that tell of it.

Two witnesses are read. ``token_usage_record`` (0.15x on) tells one response by its id. ``token_count`` (0.4x on) tells
running totals, again and again: a call is what they grew by. Where both tell of the same response it counts once.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from turnlog.harness.codex.dig import inner, moment, text
from turnlog.harness.codex.lineage import Kin, Lineage
from turnlog.harness.codex.prompts import prompt_of, typed
from turnlog.harness.codex.totals import Totals, counters, difference, fallen, less, same, spelled, together
from turnlog.harness.reading import Find, Found, Noted, Trouble
from turnlog.harness.salvage import instant
from turnlog.receipts import canonical

MARKERS: Final = (
    b'"token_count"',
    b'"token_usage_record"',
    b'"session_meta"',
    b'"turn_context"',
    b'"task_started"',
    b'"thread_settings_applied"',
    b'entered_review_mode"',
    b'exited_review_mode"',
    b'EnteredReviewMode"',
    b'ExitedReviewMode"',
    b'"user_message"',
    b'"user"',
)
"""A line that holds none of these, and is not the first of its file, changes nothing here and need not be parsed.

Prompts are among them because up to 0.80 only they separate turns; who wants sums alone may leave the last two out.
"""

START_TOLD: Final = "start_told:"
"""With a place: another file tells what the totals there are counted from, so that ``start_unknown`` is no gap."""

UNNAMED: Final = "start"
"""The turn of what was used before any turn can be told."""

_LEAVING: Final = ("exited_review_mode", "task_complete", "turn_aborted")
_RECENT: Final = 128
"""Steps and responses remembered, to know the repeated end of a file that was written twice."""


class Memory(msgspec.Struct):
    """What counting needs to go on. ``totals`` are the newest running totals, ``told`` those of the newest record.

    ``pending`` are responses of this turn whose step in the totals did not come yet, ``loose`` steps without response.
    ``exhausted``: the context window was exceeded since the turn began. ``doubted``: only the parents' files can tell
    whether the turn was copied from there.
    """

    kin: Kin
    turn: str | None = None
    named: bool = False
    inherited: bool = False
    doubted: bool = False
    reviewing: str | None = None
    prompted: str | None = None
    model: str | None = None
    service: str | None = None
    tier: str | None = None
    totals: Totals | None = None
    told: Totals | None = None
    pending: list[Totals] = []
    loose: list[Totals] = []
    chain: str = ""
    newest: int | None = None
    steps: int = 0
    seen: list[int] = []
    responses: list[str] = []
    begun: bool = False
    exhausted: bool = False


class Response(msgspec.Struct, frozen=True, gc=False):
    """What a record tells of one response: its usage, and the running totals (``told``) with it."""

    usage: Totals
    told: Totals | None
    thread: str | None
    turn: str | None
    id: str | None
    tier: str | None


class Counting:
    """Counts one file. Give it the parsed records in order, then look at ``found``, ``noted`` and ``troubles``.

    ``found`` are usage receipts ``{provider, source, call, model, usage, at, service?, tier?, gaps?}``; ``gaps`` are
    ``{kind, counter?, before?, after?}`` in the words of ``turnlog.usage.gaps``. ``inherited`` counts steps that a
    copied history repeats, ``dropped`` repetitions of the same event. A record costs O(1), but for at most one reading
    of the parents' files where only those can tell what was copied.
    """

    def __init__(self, memory: Memory, find: Find) -> None:
        self.memory = memory
        self.lineage = Lineage(memory.kin, find)
        self.found: list[Found] = []
        self.noted: list[Noted] = []
        self.troubles: list[Trouble] = []
        self.inherited = 0
        self.dropped = 0

    def take(self, record: Mapping[str, Any], offset: int) -> None:
        """Take one record of the file, which begins at byte ``offset``. What tells nothing of usage is passed over."""
        kind, payload = record.get("type"), record.get("payload")
        if not isinstance(payload, dict):
            self._bare(record, offset)
            return
        if kind == "event_msg":
            self._event(record, payload, offset)
        elif kind == "response_item":
            if payload.get("role") == "user" and prompt_of(payload) is not None:
                self._prompt("item", offset)
        elif kind == "token_usage_record":
            self._record(payload, instant(record.get("timestamp")), offset)
        elif kind == "turn_context":
            self._context(payload)
        elif kind == "session_meta":
            self._meta(payload, instant(record.get("timestamp")))
        self.memory.begun = True

    # --- whose file, which turn

    def _meta(self, payload: Mapping[str, Any], at: int | None) -> None:
        kin = self.memory.kin
        identifier = text(payload, "id")
        if not kin.known and (not self.memory.begun or identifier == kin.thread):
            kin.introduced(payload, at)
            self.memory.service = text(payload, "model_provider")
        else:
            kin.descends(payload)

    def _bare(self, record: Mapping[str, Any], offset: int) -> None:
        """Take a record of 0.3x and before: items without an envelope, and a first line without a type."""
        memory = self.memory
        if record.get("type") is None and not memory.begun and text(record, "id") is not None:
            memory.kin.introduced(record, instant(record.get("timestamp")))
        elif record.get("role") == "user" and prompt_of(record) is not None:
            self._prompt("item", offset)
        memory.begun = True

    def _event(self, record: Mapping[str, Any], payload: Mapping[str, Any], offset: int) -> None:
        kind = payload.get("type")
        if kind == "token_count":
            self._count(record, payload, offset)
        elif kind == "task_started":
            self._started(payload)
        elif kind == "user_message":
            if typed(text(payload, "message") or "") is not None:
                self._prompt("event", offset)
        elif kind == "entered_review_mode":
            self.memory.reviewing = text(payload, "turn_id") or ""
        elif kind == "thread_settings_applied":
            self._settings(inner(payload, "thread_settings"))
        elif kind in _LEAVING:
            self.memory.reviewing = None
        elif kind == "item_completed":
            item = inner(payload, "item").get("type")
            if item == "EnteredReviewMode":
                self.memory.reviewing = text(payload, "turn_id") or ""
                self._turn(self.memory.reviewing or None, None)
            elif item == "ExitedReviewMode":
                self.memory.reviewing = None

    def _started(self, payload: Mapping[str, Any]) -> None:
        turn = text(payload, "turn_id")
        if self.memory.reviewing is not None:
            # A review runs in a conversation of its own, and this names the turn there.
            turn = text(payload, "root_turn_id") or self.memory.reviewing or None
        self._turn(turn, moment(payload.get("started_at")))

    def _context(self, payload: Mapping[str, Any]) -> None:
        self._turn(text(payload, "turn_id"), None)
        self.memory.model = text(payload, "model") or self.memory.model
        if "service_tier" in payload:
            self.memory.tier = _tier(payload)

    def _settings(self, settings: Mapping[str, Any]) -> None:
        self.memory.service = text(settings, "model_provider_id") or self.memory.service
        if "service_tier" in settings:
            self.memory.tier = _tier(settings)

    def _turn(self, turn: str | None, started: int | None) -> None:
        memory = self.memory
        if turn is None or turn == memory.turn:
            return
        memory.named = True
        inherited = self.lineage.inherited(turn, started)
        memory.inherited, memory.doubted = bool(inherited), self.lineage.told(turn, started) is None
        memory.kin.ours = memory.kin.ours or inherited is False
        memory.chain = ""
        self._begin(turn)

    def _begin(self, turn: str) -> None:
        memory = self.memory
        memory.turn, memory.steps = turn, 0
        memory.pending, memory.loose = [], []
        memory.exhausted = False

    def _prompt(self, kind: str, offset: int) -> None:
        """Take a prompt: written twice, as an event and as an item, and where turns have no ids the begin of one."""
        memory = self.memory
        if memory.named:
            return
        if memory.prompted not in {None, kind}:
            memory.prompted = None
            return
        memory.prompted = kind
        self._begin(f"prompt-{offset}")

    # --- running totals

    def _count(self, record: Mapping[str, Any], payload: Mapping[str, Any], offset: int) -> None:
        info = payload.get("info")
        if not isinstance(info, dict):
            return
        bad: list[str] = []
        told = info.get("total_token_usage")
        total, last = counters(told, bad), counters(info.get("last_token_usage"), bad)
        if bad or total is None:
            self._bad(offset, bad or ["total_token_usage"])
        if total is not None:
            self.counted(total, last, instant(record.get("timestamp")), offset, _tier(payload, info))

    def counted(self, total: Totals, last: Totals | None, at: int | None, offset: int, tier: str | None) -> None:
        """Take running totals: what they grew by is a call. ``last`` is the newest response alone, ``at`` unix ms."""
        memory = self.memory
        before = memory.totals
        if before is not None and same(total, before):
            self.dropped += 1
            return
        if not any(total.values()):
            # The context window was exceeded: the counters are set back, and total_tokens holds the window's size.
            memory.exhausted = True
            self.dropped += 1
            memory.totals, memory.told = total, None
            self._link(total, at)
            return
        if memory.inherited:
            self.inherited += 1
            memory.totals = total
            return
        if self._explained(total, last):
            self.dropped += 1
            memory.totals = total
            return
        if at is not None:
            if before is not None and memory.newest is not None and at < memory.newest and fallen(total, before):
                self._late(total, at, offset)
                return
            memory.newest = max(at, memory.newest or at)
        self._step(total, last, at, offset, tier=tier)

    def _explained(self, total: Totals, last: Totals | None) -> bool:
        """Tell whether the step to ``total`` is one whose response a record told already."""
        memory = self.memory
        if memory.told is not None and same(total, memory.told):
            memory.pending = []
            return True
        if not memory.pending:
            return False
        step = less(total, memory.totals) if memory.totals is not None and not fallen(total, memory.totals) else None
        for each in (last, step):
            for place, usage in enumerate(memory.pending):
                if each is not None and same(each, usage):
                    del memory.pending[place]
                    return True
        if step is not None and same(step, together(memory.pending)):
            memory.pending = []
            return True
        return False

    def _late(self, total: Totals, at: int, offset: int) -> None:
        """Take totals that are older and smaller than the newest: repeated or out of order, so counted with those."""
        self.dropped += 1
        if _mark(spelled(total), at) not in self.memory.seen:
            self.note("order", at, offset, before=self.memory.newest, after=at)

    def _step(self, total: Totals, last: Totals | None, at: int | None, offset: int, *, tier: str | None) -> None:
        memory = self.memory
        before, least = memory.totals, None
        if before is None:
            before, alone = self._baseline(total, last)
            self.start(total, at, offset, alone=alone, known=before is not None)
            least = self._least(last) if before is None or not alone else None
        memory.totals = total
        name = self._link(total, at)
        usage, gaps = (least or {}, []) if before is None else difference(total, before, last)
        if not any(usage.values()):
            self.dropped += before is not None
            return
        memory.steps += 1
        memory.prompted = None
        if memory.named and memory.turn is not None:
            memory.loose = [*memory.loose[-7:], usage]
            # A turn that may be a copy has the name that its original has, whether the parent's file is there or not.
            rivals = tuple(memory.kin.parents) if memory.doubted else ()
            name = f"{rivals[0] if rivals else memory.kin.thread}:{memory.turn}:{name}"
        else:
            ancestors = self.lineage.ancestors()
            root = ancestors[-1] if ancestors else memory.kin.thread
            name, rivals = f"{root}:{name}", tuple(ancestors)
        if least is not None and least != usage:
            # What the file alone tells is told in any case: which files are there must leave no trace.
            self._call(name, least, at, offset, tier=tier, rivals=rivals)
        self._call(name, usage, at, offset, tier=tier, gaps=gaps, rivals=rivals)

    def _least(self, last: Totals | None) -> Totals | None:
        """Return what the first step of a file used at least, where its totals began in another one: its response."""
        memory = self.memory
        own = memory.kin.base is not None or (memory.named and not memory.doubted)
        return last if own and last is not None and any(last.values()) else None

    def _baseline(self, total: Totals, last: Totals | None) -> tuple[Totals | None, bool]:
        """Return what a file's first totals are counted from, None when nothing tells; and if it tells it alone."""
        kin = self.memory.kin
        if last is not None and same(last, total):
            return {}, True
        if kin.base is not None:
            base = self.lineage.base()
            return None if base is None or fallen(total, base) else base, False
        if self.memory.named:
            return None if kin.parents else {}, True
        if not kin.parents or kin.copied:
            return {}, True
        return None if self.lineage.orphaned() else {}, False

    def _link(self, total: Totals, at: int | None) -> str:
        """Chain totals to those before them: the name of a step that has no other, equal in every copy."""
        memory, counts = self.memory, spelled(total)
        memory.chain = hashlib.blake2b(f"{memory.chain}/{counts}".encode(), digest_size=12).hexdigest()
        memory.seen.append(_mark(counts, at))
        if len(memory.seen) > _RECENT:
            del memory.seen[0]
        return memory.chain

    # --- responses

    def _record(self, payload: Mapping[str, Any], at: int | None, offset: int) -> None:
        owner = text(payload, "thread_id")
        if self._copied(owner):
            self.inherited += 1
            return
        bad: list[str] = []
        usage = counters(payload.get("usage"), bad)
        if bad or usage is None:
            self._bad(offset, bad or ["usage"])
        if usage is None:
            return
        response = Response(
            usage,
            counters(payload.get("thread_token_usage")),
            owner,
            text(payload, "turn_id"),
            text(payload, "response_id"),
            _tier(payload),
        )
        self.responded(response, at, offset)

    def _copied(self, owner: str | None) -> bool:
        """Tell whether a response belongs to a copied history."""
        memory = self.memory
        # A file whose first line is lost may not know its own name: then it is taken at its word.
        return memory.inherited if owner is None else owner != memory.kin.thread and memory.kin.known

    def responded(self, response: Response, at: int | None, offset: int) -> None:
        """Take one response: a call. ``at`` is unix ms."""
        memory, usage, told = self.memory, response.usage, response.told
        if self._copied(response.thread):
            self.inherited += 1
            return
        memory.told = told or memory.told
        turn = response.turn or memory.turn
        # A record names its thread, so a copy is known as one; ids of responses begin again with some services.
        identity = response.id or f"{turn}:{spelled(usage)}:{spelled(told or {})}"
        name = f"{response.thread or memory.kin.thread}:{identity}"
        if identity in memory.responses:
            self.dropped += 1
            return
        memory.responses.append(identity)
        if len(memory.responses) > _RECENT:
            del memory.responses[0]
        if turn == memory.turn:
            for place, step in enumerate(memory.loose):
                if same(step, usage):
                    del memory.loose[place]
                    self.dropped += 1
                    return
            memory.pending = [*memory.pending, usage]
        memory.steps += 1
        memory.prompted = None
        self._call(name, usage, at, offset, tier=response.tier, turn=turn)

    # --- what comes out

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
        memory = self.memory
        call = f"codex:{name}"
        payload: dict[str, Any] = {"provider": "codex", "source": "file", "call": call, "model": memory.model}
        payload |= {"usage": usage, "at": at}
        tier = tier or memory.tier
        for word, value in (("service", memory.service), ("tier", tier)):
            if value is not None:
                payload[word] = value
        if gaps:
            payload["gaps"] = gaps
        self.found.append(
            Found(
                memory.kin.thread,
                memory.kin.thread,
                turn or memory.turn or UNNAMED,
                "usage",
                canonical(payload),
                at,
                offset,
                call,
                rivals,
            )
        )

    def start(self, total: Totals, at: int | None, offset: int, *, alone: bool, known: bool) -> None:
        """Note that a file does not tell what its first totals are counted from; and if another one does.

        The other file may be found later: so the first note is made in any case, and the second takes it back.
        """
        if alone and known:
            return
        self.note("start_unknown", at, offset, totals=total)
        if known:
            evidence = canonical({"provider": "codex", "offset": offset})
            memory = self.memory
            self.noted.append(Noted(memory.kin.thread, f"{START_TOLD}{offset}", evidence, at, memory.turn))

    def note(self, gap: str, at: int | None, offset: int, **more: Any) -> None:
        """Note that the conversation's sums lack something, with the place that shows it."""
        evidence = {"provider": "codex", "gap": gap, "offset": offset, **more}
        memory = self.memory
        self.noted.append(Noted(memory.kin.thread, f"gap:{gap}:{offset}", canonical(evidence), at, memory.turn))

    def _bad(self, offset: int, names: list[str]) -> None:
        detail = ", ".join(dict.fromkeys(names))
        self.troubles.append(Trouble("bad_counter", offset, 0, detail, session=self.memory.kin.thread))


def _mark(counts: str, at: int | None) -> int:
    return zlib.crc32(f"{at}:{counts}".encode())


def _tier(*holders: Mapping[str, Any]) -> str | None:
    return next((tier.lower() for holder in holders if (tier := text(holder, "service_tier"))), None)
