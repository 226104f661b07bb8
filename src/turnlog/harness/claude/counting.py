"""What one assistant line says about a model call: pure, for every reader of Claude's files.

One call is written as a line per content block, each with the whole usage; the input counters are equal, the output
grows. Whoever reads keeps the line with the most output of each call, and no counter less than any line had.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import orjson

from turnlog.harness.claude.decode import SYNTHETIC

COUNTERS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
INPUTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""Counters that every line of one call repeats."""

_NESTED: Final = (
    ("cache_creation", "ephemeral_5m_input_tokens"),
    ("cache_creation", "ephemeral_1h_input_tokens"),
    ("output_tokens_details", "thinking_tokens"),
)
_NAMES: Final = tuple(f'"{name}"'.encode() for name in COUNTERS)
_ANY: Final = b'_tokens"'
_LARGEST: Final = 2**63 - 1


class Counted(msgspec.Struct):
    """One line of a model call. ``call`` names the call, ``usage`` is as written, but for counters that are none.

    ``at`` is the line's own time as written. ``problems`` names counters that could not be used, with their values.
    """

    call: str
    request: str | None
    model: str | None
    usage: dict[str, Any] | None
    at: Any
    problems: tuple[str, ...] = ()


def usage_of(line: Mapping[str, Any], raw: bytes = b"") -> Counted | None:
    """Return what an ``assistant`` record, or one that a progress line embeds, says of a call; None if it is no call.

    Messages that Claude wrote itself (``<synthetic>``: errors, fillers) are no calls. A call is named by its
    ``message.id``, else by the record's ``uuid``, else by a digest of ``raw``, or of the record when that is empty.
    ``usage`` is None when the record has none. Constant time but for the digest.
    """
    message = line.get("message")
    if not isinstance(message, dict) or message.get("model") == SYNTHETIC:
        return None
    usage = message.get("usage")
    name = message.get("id") or line.get("uuid")
    if not isinstance(name, str):
        name = f"line:{hashlib.sha256(raw or orjson.dumps(line, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]}"
    request, model = line.get("requestId"), message.get("model")
    found = Counted(
        name,
        request if isinstance(request, str) and request else None,
        model if isinstance(model, str) else None,
        usage if isinstance(usage, dict) else None,
        line.get("timestamp"),
    )
    if found.usage is not None:
        found.usage, found.problems = _cleaned(found.usage)
    return found


def output_of(usage: Mapping[str, Any] | None) -> int:
    """Return the output tokens of a usage object; below zero when it has none."""
    value = None if usage is None else usage.get("output_tokens")
    return value if isinstance(value, int) else -1


def joined(before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what two lines of one call tell together: the one with most output, and of each counter the larger.

    Some services tell the input in the first line alone, others in the last: then the rest has zeros. O(counters).
    """
    if before is None or after is None:
        return before if after is None else after
    most, other = (after, before) if output_of(after) >= output_of(before) else (before, after)
    made = most
    for name in COUNTERS:
        if _less(most.get(name), other.get(name)):
            made = {**made, name: other[name]}
    for outer, name in _NESTED:
        held, told = made.get(outer), other.get(outer)
        if isinstance(told, dict) and _less(held.get(name) if isinstance(held, dict) else None, told.get(name)):
            made = {**made, outer: {**(held if isinstance(held, dict) else {}), name: told[name]}}
    return made


def _less(value: Any, other: Any) -> bool:
    return isinstance(other, int) and (not isinstance(value, int) or value < other)


def repeated_counters(raw: bytes, usage: Mapping[str, Any]) -> bool:
    """Tell whether a counter's key occurs twice in one object of a line: which value was meant is not known.

    Counts occurrences first; only a line that has more than its usage explains is decoded again. Linear.
    """
    told = orjson.dumps(usage)
    if raw.count(_ANY) == told.count(_ANY) or all(raw.count(name) <= told.count(name) for name in _NAMES):
        return False
    repeated = False

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        made = dict(members)
        if len(made) != len(members):
            names = [name for name, _ in members]
            repeated = repeated or any(names.count(name) > 1 for name in (*COUNTERS, "usage", "message"))
        return made

    try:
        json.loads(raw, object_pairs_hook=pairs, strict=False)
    except (ValueError, RecursionError):
        return False  # not one object: its damage is told otherwise
    return repeated


def advisors(call: str, usage: Mapping[str, Any]) -> tuple[list[tuple[str, str | None, dict[str, Any]]], bool]:
    """Return (call, model, usage) of the advisor calls that a message's ``iterations`` tell beside its own sums.

    They count only if the message's own iterations alone add up to its sums. The second value tells that this cannot be
    decided: then none is counted. Linear in the iterations.
    """
    told = usage.get("iterations")
    entries = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    others = [each for each in entries if each.get("type") == "advisor_message"]
    if not others:
        return [], False
    own = [each for each in entries if each.get("type") != "advisor_message"]
    if not own or not _add_up(own, usage):
        return [], not _add_up(entries, usage)
    if _add_up(entries, usage):
        return [], False  # nothing was used
    found: list[tuple[str, str | None, dict[str, Any]]] = []
    for number, each in enumerate(others, 1):
        model = each.get("model")
        cleaned, _ = _cleaned({name: value for name, value in each.items() if name not in {"type", "model"}})
        found.append((f"{call}#advisor:{number}", model if isinstance(model, str) else None, cleaned))
    return found, False


def split_disagrees(usage: Mapping[str, Any]) -> bool:
    """Tell whether the cache writes by lifetime are not those of the whole call."""
    split, whole = usage.get("cache_creation"), usage.get("cache_creation_input_tokens")
    if not isinstance(split, dict) or not isinstance(whole, int):
        return False
    parts = [value for value in split.values() if isinstance(value, int)]
    return bool(parts) and sum(parts) != whole


def _add_up(entries: list[dict[str, Any]], usage: Mapping[str, Any]) -> bool:
    for name in COUNTERS:
        whole = usage.get(name)
        parts = [value for each in entries if isinstance(value := each.get(name), int)]
        if isinstance(whole, int) and sum(parts) != whole:
            return False
    return True


def _cleaned(usage: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Leave out counters that are no whole numbers from zero on: the rest of the call counts."""
    if _plain(usage):
        return usage, ()
    bad = list(_bad(usage))
    made = dict(usage)
    problems = []
    for outer, name, value in bad:
        holder = made
        if outer is not None:
            holder = made[outer] = dict(made[outer])
        if isinstance(value, float) and value.is_integer() and 0 <= value <= _LARGEST:
            holder[name] = int(value)
        else:
            del holder[name]
            problems.append(f"{name}={str(value)[:40]}")
    return made, tuple(problems)


def _plain(usage: Mapping[str, Any]) -> bool:
    """Tell quickly that every counter is one: almost every line's are."""
    for name in COUNTERS:
        value = usage.get(name)
        if value is not None and (type(value) is not int or not 0 <= value <= _LARGEST):
            return False
    for outer in ("cache_creation", "output_tokens_details"):
        holder = usage.get(outer)
        if holder is not None:
            if type(holder) is not dict:
                return False
            for value in holder.values():
                if type(value) is not int or not 0 <= value <= _LARGEST:
                    return False
    return True


def _bad(usage: Mapping[str, Any]) -> Iterator[tuple[str | None, str, Any]]:
    for name in COUNTERS:
        value = usage.get(name)
        if value is not None and not _counts(value):
            yield None, name, value
    for outer in ("cache_creation", "output_tokens_details"):
        if usage.get(outer) is not None and not isinstance(usage[outer], dict):
            yield None, outer, usage[outer]
    for outer, name in _NESTED:
        holder = usage.get(outer)
        if isinstance(holder, dict) and (value := holder.get(name)) is not None and not _counts(value):
            yield outer, name, value


def _counts(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST
