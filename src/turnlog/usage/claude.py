"""Claude counters: per call from files, per turn from the wire (D1).

Wire receipt, one per result: ``{provider:"claude", source:"wire", result_id, model_usage|null, usage, total_cost_usd,
interrupted}``; without ``source`` it is the older shape ``{provider, usage}``. File receipt, one per call:
``{provider:"claude", source:"file", call, model, usage}``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from turnlog.model import Event, Gap
from turnlog.usage import gaps
from turnlog.usage.calls import added, call_streams, differences, only
from turnlog.usage.envelope import Count
from turnlog.usage.groups import Group, Key, from_file
from turnlog.usage.prices import WEB_SEARCH, searches_of
from turnlog.usage.streams import Counters, Stream, Tally, is_cost

Costs = Mapping[Key, float | None]
"""What each turn added to its process's running total, in USD; None when the total before it is not known."""


class _Split(msgspec.Struct, frozen=True):
    ephemeral_1h_input_tokens: Count | None = None


class _Details(msgspec.Struct, frozen=True):
    thinking_tokens: Count | None = None


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: _Split | None = None
    output_tokens_details: _Details | None = None
    server_tool_use: Any = None


class _ModelUsage(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    hour: Count | None = msgspec.field(default=None, name="cacheCreationEphemeral1hInputTokens")
    thinking_tokens: Count | None = None
    context_window: Count | None = None
    searches: Any = msgspec.field(default=None, name="webSearchRequests")
    cost: Any = msgspec.field(default=None, name="costUSD")


class _Result(msgspec.Struct, frozen=True):
    usage: _Usage | None = None
    model_usage: dict[str, _ModelUsage] | None = None
    result_id: str | None = None
    model: str | None = None
    interrupted: bool = False


def turn_streams(group: Group, costs: Costs) -> tuple[list[Stream], list[Gap]]:
    """Reduce the native rows of one Claude turn; returns its streams and the gaps that belong to none.

    With both witnesses the wire is summed when it is final (no interrupted result) and the file is compared; else the
    file is summed. The peak always comes from calls, the cost always from the wire.
    """
    calls, loose = call_streams(group, read_call)
    wire, main, more = _wire(group, costs)
    loose += more
    if wire is None or not calls:
        return calls if wire is None else [wire], loose
    mismatches = _mismatches(group, wire, main, calls)
    if wire.final:
        peaks = [call.peak for call in calls if call.peak is not None]
        summed = msgspec.structs.replace(
            wire,
            peak=max(peaks, default=None),
            model=wire.model or only([call.model for call in calls]),
            seqs=tuple(sorted({*wire.seqs, *(seq for call in calls for seq in call.seqs)})),
            gaps=(*wire.gaps, *mismatches),
        )
        return [summed], loose
    newest = calls[-1]
    kept = [gap for gap in wire.gaps if gap.kind in {"interrupted", "schema"} or gap.counter == "cost"]
    calls[-1] = msgspec.structs.replace(
        newest,
        cost=wire.cost,
        seqs=tuple(sorted({*newest.seqs, *wire.seqs})),
        gaps=(*newest.gaps, *kept, *mismatches),
    )
    return calls, loose


def _mismatches(group: Group, wire: Stream, main: Stream, calls: Sequence[Stream]) -> list[Gap]:
    """Compare what the file tells of a turn with the wire: a gap per counter that fits none of the wire's two sums.

    A result counts the whole turn and its main loop alone; calls of subagents lie in files of their own.
    """
    whole = {gap.counter for gap in differences(group, [wire], calls, lowered_only=False)}
    found = differences(group, [main], calls, lowered_only=False) if whole else ()
    return [gap for gap in found if gap.counter in whole]


def running_costs(groups: Iterable[Group]) -> Costs:
    """Split the running ``total_cost_usd`` of each thread into turns: differences between consecutive results (D1).

    A falling total is a new process with base 0, and so is the first result of a thread. Where an earlier turn is known
    but not its total, or the turn has no start, the base is unknown and so is the turn's cost. A turn without a cost is
    not in the result.
    """
    threads: dict[str | None, dict[int, tuple[Group | None, float]]] = {}
    for group in groups:
        results = threads.setdefault(group.thread, {})
        for owner, rows in ((None, group.predecessor), (group, group.usage)):
            for event in rows:
                total = _running_total(event)
                # A predecessor's row may also be among the groups: then it has its owner.
                if total is not None and (owner is not None or event.seq not in results):
                    results[event.seq] = (owner, total)
    costs: dict[Key, float | None] = {}
    for results in threads.values():
        before: float | None = None
        for seq in sorted(results):
            owner, total = results[seq]
            if owner is not None:
                _add_cost(costs, owner, before, total)
            before = total
    return costs


def _add_cost(costs: dict[Key, float | None], group: Group, before: float | None, total: float) -> None:
    key = (group.thread, group.turn)
    held = costs.get(key, 0.0)
    if held is None or (before is None and (group.started is None or group.follows)):
        costs[key] = None
        return
    step = total if before is None or total < before else total - before
    # Rounded far below a receipt's precision, so that 0.30 - 0.10 is 0.20.
    costs[key] = round(held + step, 12)


def _running_total(event: Event) -> float | None:
    if from_file(event) or not isinstance(event.payload, dict):
        return None
    total: object = event.payload.get("total_cost_usd")
    return float(total) if is_cost(total) else None


def _wire(group: Group, costs: Costs) -> tuple[Stream | None, Stream, list[Gap]]:
    """Return the turn as the wire tells it whole (None: it does not), its main loop alone, and gaps without stream."""
    blank = Stream(id=group.id, provider="claude", at=group.at, thread=group.thread, turn=group.turn)
    results: dict[str | None, Tally] = {}
    mains: dict[str | None, Tally] = {}
    loose: list[Gap] = []
    models: list[str | None] = []
    told: list[float | None] = []
    interrupted = searched = False
    for event in group.usage:
        if from_file(event):
            continue
        result = _decode(event)
        if result is None:
            loose.append(gaps.schema(event.seq, group.id))
            continue
        tally = results.setdefault(result.result_id, Tally(blank))
        counters = _result_counters(result)
        told_main = _counters(result.usage or _Usage())
        main = {name: counters[name] if value is None else value for name, value in told_main.items()}
        if result.interrupted:
            interrupted = True
            counters, main = ({name: value or None for name, value in each.items()} for each in (counters, main))
            tally.once(gaps.interrupted(group.id, event.seq))
        tally.observe(counters, event.seq)
        mains.setdefault(result.result_id, Tally(blank)).observe(main, event.seq)
        searched = searched or _searched(result)
        models += [result.model, *(result.model_usage or ())]
        told.append(_told_cost(result))
        cost = event.payload.get("total_cost_usd")
        if cost is not None and not is_cost(cost):
            tally.gaps.append(gaps.schema(event.seq, group.id, "cost"))
    if not results:
        return None, blank, loose
    parts = [tally.stream() for tally in results.values()]
    turn = Tally(msgspec.structs.replace(blank, tier=WEB_SEARCH) if searched else blank)
    turn.final, turn.model = not interrupted, only(models)
    turn.seqs = [seq for part in parts for seq in part.seqs]
    turn.gaps = [gap for part in parts for gap in part.gaps]
    turn.counters = _sums(parts)
    windows = [part.window for part in parts if part.window is not None]
    if windows:
        turn.counters["window"] = max(windows)
    _settle(turn, group, costs, told)
    main_loop = msgspec.structs.replace(blank, **_sums([tally.stream() for tally in mains.values()]))
    return turn.stream(), main_loop, loose


def _searched(result: _Result) -> bool:
    told = [each.searches for each in (result.model_usage or {}).values()]
    if result.usage is not None:
        told.append(searches_of(result.usage.server_tool_use))
    return any(isinstance(each, int) and each > 0 for each in told)


def _sums(parts: Sequence[Stream]) -> dict[str, int]:
    return {name: value for name, value in added(parts).items() if value is not None}


def _told_cost(result: _Result) -> float | None:
    """Return the cost of this turn where its own model usage tells it whole.

    It needs no running total: after a killed process Claude's total goes on from an older state, and a difference of
    totals would count work twice.
    """
    costs = [each.cost for each in (result.model_usage or {}).values()]
    return math.fsum(costs) if costs and all(is_cost(each) for each in costs) else None


def _settle(turn: Tally, group: Group, costs: Costs, told: Sequence[float | None]) -> None:
    """Give a turn its cost, and say once if its start, or the total it continues, is not known."""
    key = (group.thread, group.turn)
    known = [cost for cost in told if cost is not None]
    whole = len(known) == len(told)
    turn.cost = round(math.fsum(known), 12) if whole else costs.get(key)
    if not turn.final and turn.cost == 0:
        turn.cost = None
    if group.started is None:
        turn.start_unknown(turn.seqs[0])
    elif not whole and key in costs and costs[key] is None:
        turn.start_unknown(turn.seqs[0], "cost")


def _decode(event: Event) -> _Result | None:
    try:
        result = msgspec.convert(event.payload, _Result)
    except msgspec.ValidationError:
        return None
    return result if result.usage is not None or result.model_usage else None


def _result_counters(result: _Result) -> Counters:
    """Count this turn's usage over all models, subagents included, if told; else that of the main loop."""
    usage = result.usage or _Usage()
    counters = _counters(usage)
    if not result.model_usage:
        return counters
    models = list(result.model_usage.values())
    summed = _parts(
        _sum([each.input_tokens for each in models]),
        _sum([each.output_tokens for each in models]),
        _sum([each.cache_read_input_tokens for each in models]),
        _sum([each.cache_creation_input_tokens for each in models]),
    )
    hour = _sum([each.hour for each in models])
    thinking = _sum([each.thinking_tokens for each in models])
    windows = [each.context_window for each in models if each.context_window is not None]
    return {
        **summed,
        "cache_write_1h": counters["cache_write_1h"] if hour is None else hour,
        "reasoning": counters["reasoning"] if thinking is None else thinking,
        "window": max(windows, default=None),
    }


def read_call(usage: Any) -> Counters:
    """Read the usage object of one call. Raises msgspec.ValidationError when a counter is none."""
    counters = _counters(msgspec.convert(usage, _Usage))
    return {**counters, "peak": counters["total_input"]}


def _counters(usage: _Usage) -> Counters:
    parts = _parts(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_input_tokens,
        usage.cache_creation_input_tokens,
    )
    split, details = usage.cache_creation, usage.output_tokens_details
    return {
        **parts,
        "cache_write_1h": None if split is None else split.ephemeral_1h_input_tokens,
        "reasoning": None if details is None else details.thinking_tokens,
    }


def _parts(fresh: int | None, output: int | None, read: int | None, write: int | None) -> Counters:
    everything = None if fresh is None or read is None or write is None else fresh + read + write
    return {"input": fresh, "output": output, "total_input": everything, "cache_read": read, "cache_write": write}


def _sum(values: Sequence[int | None]) -> int | None:
    """Add values up if every one is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
