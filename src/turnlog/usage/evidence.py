"""Evidence as observations carry it: envelopes, the manifest, the terminal (semantics 2.3.4, 2.3.5, 3.14).

Decoding never raises: what cannot be decoded is None, and whoever asked counts a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from turnlog.clock import from_rfc3339
from turnlog.model import Event, EventKind
from turnlog.usage.envelope import Envelope, decode_envelope

EVENTS: Final = "events.jsonl:"


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Membership in a flow, as a manifest tells it."""

    kind: Literal["independent", "step"]
    task_id: str | None = None
    task_pr_id: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an input was launched with (2.3.4). ``flow`` None is unknown membership, not independence."""

    schema_version: Literal[1]
    artifact_key: str
    created_at: str
    harness: str
    surface: str
    cwd: str
    caller_artifact_key: str | None = None
    model: str | None = None
    repo: str | None = None
    worktree: str | None = None
    skill: str | None = None
    host: str | None = None
    flow: Flow | None = None


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """How the launched command ended (2.3.5)."""

    schema_version: Literal[1]
    outcome: Literal["completed", "failed", "interrupted"]
    ended_at: str
    result_ref: Any = None

    @property
    def ended_ms(self) -> int | None:
        """The end in unix milliseconds; a decoded terminal has one."""
        return from_rfc3339(self.ended_at)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The observations of one input: envelopes in ordinal order (R4.4), and ``gaps`` that cannot be decoded (4.2)."""

    envelopes: tuple[Envelope, ...]
    manifest: Manifest | None
    terminal: Terminal | None
    gaps: int


def decode_manifest(evidence: Any) -> Manifest | None:
    """Decode a manifest; None when its schema is not 1, a member has the wrong type or the time is none."""
    try:
        manifest = msgspec.convert(evidence, Manifest)
    except msgspec.ValidationError:
        return None
    return manifest if from_rfc3339(manifest.created_at) is not None else None


def decode_terminal(evidence: Any) -> Terminal | None:
    """Decode a terminal; None when its schema is not 1, the outcome is no known word or the time is none."""
    try:
        terminal = msgspec.convert(evidence, Terminal)
    except msgspec.ValidationError:
        return None
    return terminal if terminal.ended_ms is not None else None


def ordinal(source: str) -> int | None:
    """Return n of a source ``events.jsonl:<n>``; None when that is not a plain decimal number."""
    digits = source.removeprefix(EVENTS)
    return int(digits) if digits != source and digits.isascii() and digits.isdigit() else None


def observations(rows: Iterable[Event]) -> Iterator[tuple[int, str | None, Any]]:
    """Yield (ledger seq, source, evidence) of the observed rows; source None when the payload names none."""
    for row in rows:
        if row.kind is EventKind.OBSERVED:
            payload = row.payload if isinstance(row.payload, dict) else {}
            source = payload.get("source")
            yield row.seq, source if isinstance(source, str) else None, payload.get("evidence")


def collect(rows: Iterable[Event]) -> Evidence:
    """Decode the observations of one input (4.2 step 1). Sources that are no evidence of usage are passed over."""
    lines: list[tuple[int, int, Envelope]] = []
    manifest: Manifest | None = None
    terminal: Terminal | None = None
    bad = 0
    for seq, source, evidence in observations(rows):
        if source == "manifest.json":
            manifest = decode_manifest(evidence)
            bad += manifest is None
        elif source == "terminal.json":
            terminal = decode_terminal(evidence)
            bad += terminal is None
        elif source is None:
            bad += 1
        elif source.startswith(EVENTS):
            position, envelope = ordinal(source), decode_envelope(seq, evidence)
            if position is None or envelope is None:
                bad += 1
            else:
                lines.append((position, seq, envelope))
    lines.sort(key=lambda line: line[:2])
    return Evidence(envelopes=tuple(line[2] for line in lines), manifest=manifest, terminal=terminal, gaps=bad)


def event_times(evidences: Iterable[Any]) -> list[int]:
    """Return the unix milliseconds of evidences given in R5.7's order; those without a time are skipped (R6.1)."""
    stamps = (from_rfc3339(each.get("observed_at")) for each in evidences if isinstance(each, dict))
    return [stamp for stamp in stamps if stamp is not None]
