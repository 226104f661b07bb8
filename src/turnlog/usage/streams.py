"""Streams: what is summed. One stream is one cumulative series of counters: a turn, a message, a call, a recording."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final, Literal, TypeGuard

import msgspec

from turnlog.model import Gap, Usage
from turnlog.usage import gaps

SUMS: Final = ("input", "output", "total_input", "reasoning", "cache_read", "cache_write", "cache_write_1h")
"""Counters that add up over streams."""

REQUIRED: Final = ("input", "output", "total_input", "cache_read", "cache_write")
"""Counters whose absence from one stream of an input is a gap (D17). Every provider class reports all of them."""

I64_MAX: Final = 2**63 - 1

_HELD: Final = (*SUMS, "peak", "window")
_values: Final = attrgetter(*_HELD)

Source = Literal["native", "recorder", "merged"]
Counters = Mapping[str, int | None]


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of an input with what stands behind it.

    Counters are tokens in the one meaning of D15, None = nobody reported it; ``cost`` is USD as the provider reported.
    ``service`` is whose model it was, ``tier`` what changes its price, where a receipt tells.
    ``at`` is unix milliseconds: when the turn or call began by the provider's own time, else when we recorded its start
    or first receipt. ``final`` says that a receipt was the provider's last word. ``source`` says which witness the
    numbers come from. ``seqs`` are the ledger rows read. ``gaps`` are this stream's alone.
    """

    id: str
    provider: str
    at: int
    model: str | None = None
    service: str | None = None
    tier: str | None = None
    thread: str | None = None
    turn: str | None = None
    attempt_key: str | None = None
    final: bool = False
    source: Source = "native"
    input: int | None = None
    output: int | None = None
    total_input: int | None = None
    peak: int | None = None
    window: int | None = None
    reasoning: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    cost: float | None = None
    seqs: tuple[int, ...] = ()
    gaps: tuple[Gap, ...] = ()

    def counter(self, name: str) -> int | None:
        """Return the counter of that name: one of ``SUMS``, ``peak`` or ``window``."""
        value: int | None = getattr(self, name)
        return value


class Tally:
    """A stream while its receipts are folded (4.3 rules 6 to 10). Receipts are given in order."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.id = stream.id
        self.final = stream.final
        self.model = stream.model
        self.cost = stream.cost
        self.counters = {name: value for name, value in zip(_HELD, _values(stream), strict=True) if value is not None}
        self.seqs = list(stream.seqs)
        self.gaps = list(stream.gaps)

    def once(self, gap: Gap) -> None:
        """Note a gap of a kind that a stream has only once, however many receipts show it (D6)."""
        if all(each.kind != gap.kind for each in self.gaps):
            self.gaps.append(gap)

    def start_unknown(self, seq: int, counter: str | None = None) -> None:
        """Note once that the stream may have begun before what was seen (D6)."""
        self.once(gaps.start_unknown(self.id, seq, counter))

    def observe(self, counters: Counters, seq: int, *, falls: bool = True) -> None:
        """Fold one receipt: the maximum stays, absent counters stay as they are.

        A smaller counter is a gap unless ``falls`` is false. The peak is a running maximum and never a gap (D2).
        """
        self.seqs.append(seq)
        for name, value in counters.items():
            if value is None:
                continue
            held = self.counters.get(name)
            if held is None or value > held:
                self.counters[name] = value
            elif value < held and falls and name != "peak":
                self.gaps.append(gaps.decrease(self.id, seq, name, held, value))

    def observe_cost(self, cost: object, seq: int) -> None:
        """Fold a running cost in USD: None says nothing; what is no cost is a gap and is ignored (4.3 rule 10)."""
        if cost is None:
            return
        if not is_cost(cost):
            self.gaps.append(gaps.schema(seq, self.id, "cost"))
        elif self.cost is None or cost >= self.cost:
            self.cost = float(cost)
        else:
            self.gaps.append(gaps.decrease(self.id, seq, "cost", self.cost, cost))

    def stream(self) -> Stream:
        """Return what was folded."""
        return msgspec.structs.replace(
            self._stream,
            final=self.final,
            model=self.model,
            cost=self.cost,
            seqs=tuple(sorted(set(self.seqs))),
            gaps=tuple(self.gaps),
            **self.counters,
        )


def is_cost(value: object) -> TypeGuard[int | float]:
    """Tell whether a JSON value can be a cost: a finite number that is not negative."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def with_total_input(stream: Stream) -> Stream:
    """Count input and its known cache parts as total input where the stream has no total (D15)."""
    if stream.total_input is not None or stream.input is None:
        return stream
    parts = stream.input + (stream.cache_read or 0) + (stream.cache_write or 0)
    return msgspec.structs.replace(stream, total_input=parts)


def with_missing_counters(streams: Iterable[Stream]) -> tuple[Stream, ...]:
    """Give every stream of one input a gap for each counter that others report and it lacks (D17).

    A counter that a gap of the stream already names does not lack silently and gets no second gap.
    """
    rows = tuple(streams)
    told = [(name, list(map(attrgetter(name), rows))) for name in REQUIRED]
    lacking: dict[int, list[str]] = {}
    for name, values in told:
        if None in values and any(value is not None for value in values):
            for place, value in enumerate(values):
                if value is None:
                    lacking.setdefault(place, []).append(name)
    if not lacking:
        return rows
    return tuple(_with_missing(stream, lacking.get(place, [])) for place, stream in enumerate(rows))


def _with_missing(stream: Stream, lacking: Iterable[str]) -> Stream:
    named = {gap.counter for gap in stream.gaps}
    new = [gaps.missing_counter(stream.id, name) for name in lacking if name not in named]
    return msgspec.structs.replace(stream, gaps=(*stream.gaps, *new)) if new else stream


def total(streams: Iterable[Stream], loose: Iterable[Gap] = ()) -> Usage:
    """Add streams up to a Usage: sums, maxima of peak and window, all gaps (4.3).

    ``loose`` are gaps that belong to no stream. A value that does not fit a signed 64-bit integer becomes None with a
    gap ``overflow``. Any grouping of the same streams gives numbers that add up; D17's gaps were made per input.
    """
    rows = tuple(streams)
    found = [*loose, *(gap for stream in rows for gap in stream.gaps)]

    def fold(name: str) -> int | None:
        known: list[int] = [value for value in map(attrgetter(name), rows) if value is not None]
        if not known:
            return None
        value = max(known) if name in {"peak", "window"} else sum(known)
        if value > I64_MAX:
            found.append(gaps.overflow(name))
            return None
        return value

    values = {
        "input_tokens": fold("input"),
        "output_tokens": fold("output"),
        "total_input_tokens": fold("total_input"),
        "peak_input_tokens": fold("peak"),
        "context_window_tokens": fold("window"),
        "reasoning_tokens": fold("reasoning"),
        "cache_read_tokens": fold("cache_read"),
        "cache_write_tokens": fold("cache_write"),
        "cache_write_1h_tokens": fold("cache_write_1h"),
    }
    costs = [stream.cost for stream in rows if stream.cost is not None]
    return Usage(
        streams=len(rows),
        final_streams=sum(stream.final for stream in rows),
        gaps=len(found),
        gap_list=tuple(found),
        # fsum: the sum does not depend on the order of the streams.
        cost_usd=math.fsum(costs) if costs else None,
        **values,
    )
