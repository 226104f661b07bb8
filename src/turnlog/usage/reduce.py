"""The pipeline from the rows of one input to its usage (4.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from turnlog.model import Event, EventKind, Gap, Usage
from turnlog.usage import claude, codex, gaps, opencode, pruned, witness
from turnlog.usage.evidence import Evidence, Manifest, Terminal, collect, observations
from turnlog.usage.groups import Group, from_file, group_rows
from turnlog.usage.recorder import Attempt, Recorded, reduce_envelopes
from turnlog.usage.streams import Stream, total, with_missing_counters, with_total_input

Predecessors = Mapping[tuple[str, str], Sequence[Event]]
ENDLESS: Final = ("unknown:", "lost:", "idle:")
"""Sources of observations ``<word>:<thread>:<turn>``: a command, recovery or a harness learned no end of the turn."""

START_UNKNOWN: Final = "gap:start_unknown:"
START_TOLD: Final = "start_told:"
"""With a place in a file: it does not tell what its totals there are counted from, and another file does."""

_NONE: Final[Predecessors] = MappingProxyType({})


class Reduction(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows of one input say.

    ``usage`` is ``total(streams, loose_gaps)``. ``loose_gaps`` belong to no stream: rows that could not be decoded, or
    that are out of order. ``evidence_gaps_from_observations`` counts observations that could not be decoded (4.2 step
    1); they are not in ``usage``. ``first_attempt_at`` is unix milliseconds (3.8 b).
    """

    usage: Usage
    streams: tuple[Stream, ...]
    loose_gaps: tuple[Gap, ...] = ()
    evidence_gaps_from_observations: int = 0
    first_attempt_at: int | None = None
    manifest: Manifest | None = None
    terminal: Terminal | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def evidence_gaps(self) -> int:
        """All gaps of the input's evidence, a missing manifest among them (R16.8)."""
        return self.evidence_gaps_from_observations + self.usage.gaps + (self.manifest is None)


def reduce_usage(
    events: Sequence[Event], *, predecessors: Predecessors = _NONE, copied: Collection[str] = ()
) -> Reduction:
    """Reduce the summary rows of one input, given in any order; a row given twice counts once.

    ``predecessors[(thread, turn)]`` are the rows, before its start, of the turn that immediately preceded it in the
    whole thread, if that turn had completed by then (D5); empty when there is no such turn. Turns it does not name are
    looked up among ``events``. ``copied`` are calls, by their identity in every source, that another conversation owns:
    what was kept of them does not count. Never raises: what cannot be used is a gap.
    """
    evidence, recorded, streams, loose = _reduce(events, predecessors, copied)
    return Reduction(
        usage=total(streams, loose),
        streams=streams,
        loose_gaps=loose,
        evidence_gaps_from_observations=evidence.gaps,
        first_attempt_at=recorded.first_attempt_at,
        manifest=evidence.manifest,
        terminal=evidence.terminal,
        attempts=recorded.attempts,
    )


def reduce_streams(
    events: Sequence[Event], *, predecessors: Predecessors = _NONE, copied: Collection[str] = ()
) -> tuple[tuple[Stream, ...], tuple[Gap, ...]]:
    """Return the streams and loose gaps of ``reduce_usage`` alone, for whoever adds them up in another way."""
    _, _, streams, loose = _reduce(events, predecessors, copied)
    return streams, loose


def _reduce(
    events: Sequence[Event], predecessors: Predecessors, copied: Collection[str]
) -> tuple[Evidence, Recorded, tuple[Stream, ...], tuple[Gap, ...]]:
    rows = [row for _, row in sorted({event.seq: event for event in events}.items())]
    seen = [row for row in rows if row.kind is EventKind.OBSERVED]
    evidence = collect(seen)
    recorded = reduce_envelopes(evidence.envelopes)
    every = group_rows(rows, predecessors)
    groups = [group for group in every if group.usage]
    fold = _Fold(recorded, claude.running_costs(group for group in groups if group.provider == "claude"))
    for group in groups:
        fold.group(group)
    streams = with_missing_counters(with_total_input(stream) for stream in fold.result())
    loose = [*recorded.gaps, *fold.gaps, *_unfinished(every, seen), *_told(seen)]
    stones, bad = pruned.tombstones(seen)
    if stones or bad:
        streams = tuple(pruned.merge(streams, stones, copied))
        loose += [gap for stone in stones for gap in stone.loose] + bad
    return evidence, recorded, streams, tuple(loose)


def _unfinished(groups: Iterable[Group], rows: Iterable[Event]) -> Iterator[Gap]:
    """Yield a gap for each turn without completion of which an observation says that nobody learned its end.

    A turn that may still run has no such observation, and no gap; its receipts are simply not all there yet.
    """
    told = {source for _, source, _ in observations(rows) if source is not None and source.startswith(ENDLESS)}
    for group in groups:
        if group.started is not None and group.completed is None:
            suffix = f"{group.thread}:{group.turn}"
            if any(f"{word}{suffix}" in told for word in ENDLESS):
                yield gaps.unfinished(group.id, group.started.seq)


def _told(rows: Iterable[Event]) -> Iterator[Gap]:
    """Yield a gap for each note of usage that a provider's own files do not tell, like that of a compaction."""
    told = {source for _, source, _ in observations(rows) if source is not None and source.startswith(START_TOLD)}
    for seq, source, evidence in observations(rows):
        if source is None or not isinstance(evidence, dict):
            continue
        if source.startswith(START_UNKNOWN) and START_TOLD + source.removeprefix(START_UNKNOWN) in told:
            continue
        if source.startswith("gap:") and isinstance(kind := evidence.get("gap"), str):
            yield gaps.told(seq, kind)
        elif source.startswith("compaction:") and evidence.get("usage") is None:
            yield gaps.told(seq, "compaction_unrecorded")


class _Doubt:
    """Turns and recorder streams that cannot be told apart, closed under sharing a stream (D18)."""

    def __init__(self, group: Group, recorders: set[str], natives: list[Stream]) -> None:
        self.group, self.recorders, self.natives = group, recorders, natives


class _Fold:
    def __init__(self, recorded: Recorded, costs: claude.Costs) -> None:
        self.gaps: list[Gap] = []
        self._recorded, self._costs = recorded, costs
        self._free = dict(recorded.streams)  # not yet counted with a native group
        self._native: list[Stream] = []
        self._doubts: list[_Doubt] = []

    def group(self, group: Group) -> None:
        match = witness.match_group(self._recorded, group)
        if match.streams and not match.sure:
            self._doubt(group, match)
            return
        recorder = self._free.get(match.streams[0]) if match.streams else None
        if recorder is not None and self._continues(group, recorder):
            streams, loose = codex.turn_streams(group, recorder)
        else:
            streams, loose = self._reduce(group)
            if recorder is not None and streams:
                streams = (
                    [witness.prefer_final(recorder, streams, group)]
                    if recorder.final
                    else witness.prefer_native(streams, recorder, group)
                )
        self.gaps += loose
        if streams:
            self._native += streams
            if recorder is not None:
                del self._free[recorder.id]

    def result(self) -> list[Stream]:
        """All streams: recorders that stand alone, then native ones, then what is in doubt."""
        doubtful = [self._settle(doubt) for doubt in self._doubts]
        return [*self._free.values(), *self._native, *doubtful]

    def _continues(self, group: Group, recorder: Stream) -> bool:
        """A partial recording of a Codex turn is continued by the wire, not dropped (4.4, D11)."""
        return group.provider == "codex" and not recorder.final and not any(map(from_file, group.usage))

    def _reduce(self, group: Group) -> tuple[list[Stream], list[Gap]]:
        match group.provider:
            case "opencode":
                return opencode.turn_streams(group)
            case "claude":
                return claude.turn_streams(group, self._costs)
            case _:
                return codex.turn_streams(group)

    def _doubt(self, group: Group, match: witness.Match) -> None:
        natives, loose = self._reduce(group)
        self.gaps += loose
        if not natives:
            return
        doubt = _Doubt(group, set(match.streams), natives)
        for other in [other for other in self._doubts if other.recorders & doubt.recorders]:
            self._doubts.remove(other)
            doubt.recorders |= other.recorders
            doubt.natives = [*other.natives, *doubt.natives]
        self._doubts.append(doubt)

    def _settle(self, doubt: _Doubt) -> Stream:
        recorders = [
            self._free.pop(key) for key in self._recorded.streams if key in doubt.recorders & self._free.keys()
        ]
        return witness.larger(doubt.natives, recorders, doubt.group)
