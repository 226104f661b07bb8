"""Codex counters: lifetime totals of a thread, split into turns by their baselines (4.4, D5, D15, D16).

Wire receipt: ``{total: Counters, last: Counters, modelContextWindow?}``, verbatim. File receipt, one per model
response: ``{provider:"codex", source:"file", call, model, usage}`` with ``usage`` as the rollout file spells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile
from typing import Any, Final

import msgspec

from turnlog.model import Event, Gap
from turnlog.usage import gaps
from turnlog.usage.calls import call_streams, differences
from turnlog.usage.envelope import Count
from turnlog.usage.groups import Group, from_file
from turnlog.usage.streams import SUMS, Counters, Stream, Tally, with_total_input

RAW = ("input", "output", "cached", "reasoning", "write")
KNOWN = RAW[:4]
"""Counters that every version reports; the start is known when each of these has a baseline (4.4)."""

_PARTS = {
    "total_input": ("input",),
    "input": ("input", "cached", "write"),
    "output": ("output",),
    "cache_read": ("cached",),
    "cache_write": ("write",),
    "reasoning": ("reasoning",),
}
Raw = dict[str, int]


class _Counters(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cached_input_tokens: Count | None = None
    reasoning_output_tokens: Count | None = None
    cache_write_input_tokens: Count | None = None


_NOTHING: Final = _Counters()


class _FileCounters(msgspec.Struct, frozen=True):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cached_input_tokens: Count | None = None
    reasoning_output_tokens: Count | None = None
    cache_write_input_tokens: Count | None = None


class _Payload(msgspec.Struct, frozen=True, rename="camel"):
    total: _Counters
    last: _Counters | None = None
    model_context_window: Count | None = None
    model: str | None = None


class _Receipt(msgspec.Struct, frozen=True):
    seq: int
    total: Raw
    last: _Counters
    window: int | None
    model: str | None


def turn_streams(group: Group, onto: Stream | None = None) -> tuple[list[Stream], list[Gap]]:
    """Reduce the native rows of one Codex turn; returns its streams and the gaps that belong to none.

    The files' calls are summed where there are any, because the wire is never final; the wire is then compared. Else
    the wire is one stream, which continues ``onto``, a partial recorder stream of the same turn (4.4, D11).
    """
    calls, loose = call_streams(group, _call)
    told = [event for event in group.usage if not from_file(event)]
    receipts = []
    for event, receipt in zip(told, _decode(told), strict=True):
        if receipt is None:
            loose.append(gaps.schema(event.seq, group.id))
        else:
            receipts.append(receipt)
    if not receipts:
        return calls, loose
    if not calls:
        return [_wire(group, receipts, onto)], loose
    wire = _wire(group, receipts, None)
    suffix = any(gap.kind == "start_unknown" for gap in wire.gaps)
    return calls, [*loose, *differences(group, [wire], calls, lowered_only=suffix)]


def _wire(group: Group, receipts: Sequence[_Receipt], onto: Stream | None) -> Stream:
    turn = _Turn(group, receipts)
    stream = turn.fold(onto)
    own = turn.without_predecessor()
    if own is None:
        return stream
    # Promise 5: a predecessor's baseline is the better witness, but where it takes something away, say so.
    fallen = {gap.counter for gap in stream.gaps if gap.kind == "decrease"}
    plain = stream if onto is None else turn.fold(None)
    taken = []
    for name in SUMS:
        before, after = own.counter(name), plain.counter(name)
        if name not in fallen and before is not None and (after is None or after < before):
            taken.append(gaps.witness_mismatch(stream.id, name, before, after))
    return msgspec.structs.replace(stream, gaps=(*stream.gaps, *taken))


class _Turn:
    """One turn's receipts with the baseline they are counted from."""

    def __init__(self, group: Group, receipts: Sequence[_Receipt], *, alone: bool = False) -> None:
        self.group, self.receipts = group, receipts
        before = [] if alone else [receipt for receipt in _decode(group.predecessor) if receipt is not None]
        self.last: Raw = {}
        self.largest: Raw = {}
        for receipt in before:
            self.last.update(receipt.total)
            for name, value in receipt.total.items():
                if value >= self.largest.get(name, 0):
                    self.largest[name] = value
        first = receipts[0]
        last = _raw(first.last)
        self.own = {
            name: first.total[name] - last[name]
            for name in RAW
            if name in first.total and name in last and first.total[name] >= last[name]
        }
        # The first receipt alone decides about a new epoch: a later fall is a fall inside the turn (D16).
        both = [name for name in RAW if name in first.total and name in self.last]
        self.reset = next((name for name in both if first.total[name] < self.last[name]), None)
        self.base = dict.fromkeys(RAW, 0) if self.reset else self.own | self.largest

    def without_predecessor(self) -> Stream | None:
        """The same turn counted from its own baseline, if the predecessor's may have lowered a counter.

        Codex repeats the predecessor's last totals when a turn begins with a steer or a compaction (seen on 0.171).
        Such a repetition is no receipt of this turn, so it is no witness of where the turn began.
        """
        receipts = list(dropwhile(lambda receipt: receipt.total == self.last, self.receipts))
        if self.reset or not receipts:
            return None
        alone = _Turn(self.group, receipts, alone=True)
        lowered = any(self.largest.get(name, 0) > base for name, base in alone.own.items())
        return alone.fold(None) if lowered else None

    def fold(self, onto: Stream | None) -> Stream:
        group, first = self.group, self.receipts[0]
        tally = Tally(_opened(group) if onto is None else _continued(group, onto))
        if group.started is None or any(name not in self.last and self.base.get(name) != 0 for name in KNOWN):
            tally.start_unknown(first.seq)
        if self.reset is not None:
            counter = _name(self.reset)
            tally.gaps.append(
                gaps.counter_reset(tally.id, first.seq, counter, self.last[self.reset], first.total[self.reset])
            )
        first_told = 0 if onto is not None or not self._rises() else len(self.receipts) - 1
        self._pass_over(tally, self.receipts[:first_told])
        seen: Raw = {}
        for receipt in self.receipts[first_told:]:
            self._receipt(tally, receipt, seen)
        self._cache_writes(tally)
        return tally.stream()

    def _rises(self) -> bool:
        """Tell whether no counter ever falls, as in nearly all turns: the last receipt then tells every sum."""
        first, base = self.receipts[0].total, self.base
        delta = {name: value - base[name] for name, value in first.items() if name in base}
        if any(value < 0 for value in delta.values()) or _normal(delta, {}).get("input", 0) < 0:
            return False
        parts = "input" in delta and "cached" in delta
        names, before, window, held = first.keys(), first, None, None
        for receipt in self.receipts:
            total = receipt.total
            if total.keys() != names:
                return False
            for name, value in total.items():
                if value < before[name]:
                    return False
            before = total
            if parts:
                fresh = total["input"] - total["cached"] - (total["write"] if "write" in delta else 0)
                if held is not None and fresh < held:
                    return False
                held = fresh
            if receipt.window is not None:
                if window is not None and receipt.window < window:
                    return False
                window = receipt.window
        return True

    @staticmethod
    def _pass_over(tally: Tally, receipts: Sequence[_Receipt]) -> None:
        """Take from receipts what a later one does not tell: their places, the peak, the window and the model."""
        for receipt in receipts:
            tally.seqs.append(receipt.seq)
            tally.model = tally.model or receipt.model
        for name, values in (
            ("peak", [each.last.input_tokens for each in receipts]),
            ("window", [each.window for each in receipts]),
        ):
            known = [value for value in values if value is not None]
            if known:
                tally.counters[name] = max(known)

    def _receipt(self, tally: Tally, receipt: _Receipt, seen: Raw) -> None:
        delta = {name: value - self.base[name] for name, value in receipt.total.items() if name in self.base}
        fallen = {name for name, value in delta.items() if value < 0}
        for counter, parts in _PARTS.items():
            if parts[0] in fallen:
                self._fall(tally, receipt, counter, _normal(delta, seen).get(counter))
        for name, value in delta.items():
            seen[name] = max(value, seen.get(name, 0))
        counters: dict[str, int | None] = {
            counter: None if value < 0 or fallen.intersection(_PARTS[counter]) else value
            for counter, value in _normal(delta, seen).items()
        }
        tally.observe({**counters, "peak": receipt.last.input_tokens, "window": receipt.window}, receipt.seq)
        tally.model = tally.model or receipt.model

    def _fall(self, tally: Tally, receipt: _Receipt, counter: str, value: int | None) -> None:
        """Note a counter below the turn's baseline: inside the turn, or between the predecessor's last and largest."""
        held = tally.counters.get(counter)
        if held is not None:
            tally.gaps.append(gaps.decrease(tally.id, receipt.seq, counter, held, value))
        elif not any(gap.kind == "decrease" and gap.counter == counter for gap in tally.gaps):
            before, after = _normal(self.largest, {}).get(counter), _normal(receipt.total, {}).get(counter)
            tally.gaps.append(gaps.decrease(tally.id, receipt.seq, counter, before, after))

    def _cache_writes(self, tally: Tally) -> None:
        """Cache writes absent everywhere are simply not known; absent in some receipts they are a gap (D15)."""
        lacking = [receipt.seq for receipt in self.receipts if "write" not in receipt.total]
        known_before = "write" in self.last or not self.last or self.base.get("write") == 0
        if len(lacking) == len(self.receipts):
            return
        if lacking or not known_before:
            seq = lacking[0] if lacking else self.receipts[0].seq
            tally.gaps.append(gaps.missing_counter(tally.id, "cache_write", seq))


def _normal(raw: Raw, seen: Raw) -> Raw:
    """Spell raw counters in the one meaning of D15: fresh input is what is neither read from nor written to a cache.

    ``seen`` are the largest parts of earlier receipts: input never gains what a falling or absent part gave up.
    """
    counters = {counter: raw[parts[0]] for counter, parts in _PARTS.items() if parts[0] in raw and counter != "input"}
    if "input" in raw and "cached" in raw:
        cached = max(raw["cached"], seen.get("cached", 0))
        write = max(raw.get("write", 0), seen.get("write", 0))
        counters["input"] = raw["input"] - cached - write
    return counters


def _name(raw: str) -> str:
    return {"input": "total_input", "cached": "cache_read", "write": "cache_write"}.get(raw, raw)


def _opened(group: Group) -> Stream:
    return Stream(id=group.id, provider="codex", at=group.at, thread=group.thread, turn=group.turn)


def _continued(group: Group, onto: Stream) -> Stream:
    known = with_total_input(onto)
    return msgspec.structs.replace(known, thread=group.thread, turn=group.turn, at=group.at, source="merged")


def _decode(events: Sequence[Event]) -> list[_Receipt | None]:
    """Return what each receipt says; None where it has another shape."""
    found: list[_Payload | None]
    try:
        found = msgspec.convert([event.payload for event in events], list[_Payload | None])
    except msgspec.ValidationError:
        found = [_payload(event.payload) for event in events]
    return [
        None
        if payload is None
        else _Receipt(
            event.seq, _raw(payload.total), payload.last or _NOTHING, payload.model_context_window, payload.model
        )
        for event, payload in zip(events, found, strict=True)
    ]


def _payload(value: Any) -> _Payload | None:
    try:
        return msgspec.convert(value, _Payload)
    except msgspec.ValidationError:
        return None


def _raw(counters: _Counters | _FileCounters) -> Raw:
    raw: Raw = {}
    if (value := counters.input_tokens) is not None:
        raw["input"] = value
    if (value := counters.output_tokens) is not None:
        raw["output"] = value
    if (value := counters.cached_input_tokens) is not None:
        raw["cached"] = value
    if (value := counters.reasoning_output_tokens) is not None:
        raw["reasoning"] = value
    if (value := counters.cache_write_input_tokens) is not None:
        raw["write"] = value
    return raw


def _call(usage: Any) -> Counters:
    raw = _raw(msgspec.convert(usage, _FileCounters))
    counters: dict[str, int | None] = {**_normal(raw, {}), "peak": raw.get("input")}
    if (fresh := counters.get("input")) is not None and fresh < 0:
        counters["input"] = None
    return counters
