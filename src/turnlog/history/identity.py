"""The provider's own id of a conversation, from the evidence of one input (3.7, D8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from turnlog.model import Event, Gap, ProviderSession
from turnlog.usage import gaps
from turnlog.usage.envelope import AccountSelected, AttemptStarted, SessionObserved, decode_envelope
from turnlog.usage.evidence import EVENTS, observations, ordinal

FRESH = "provider-session:"
LEGACY = "provider-session.json"

_Found = tuple[int, Any]  # ledger seq, evidence


class _Publication(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: Literal[1]
    provider_session_id: str
    account_id: str | None = None


def provider_session(rows: Sequence[Event]) -> ProviderSession | None:
    """Answer which provider conversation an input talked to; ``rows`` are its summary, in any order (R7.1).

    Rank (R7.6): the newest fresh publication, whole (R7.2); else the last session observed in the events, with the
    account known for its attempt up to there (R7.4); else the older sidecar. Rows of the evidence consulted that cannot
    be used are gaps of kind ``schema`` (D8). None when no evidence names a conversation.
    """
    fresh: list[_Found] = []
    lines: list[tuple[int | None, int, Any]] = []
    legacy: list[_Found] = []
    for seq, source, evidence in observations(rows):
        if source is None:
            continue
        if source.startswith(FRESH):
            fresh.append((seq, evidence))
        elif source == LEGACY:
            legacy.append((seq, evidence))
        elif source.startswith(EVENTS):
            lines.append((ordinal(source), seq, evidence))
    bad: list[Gap] = []
    published = _newest(fresh, bad)
    if published is not None:
        return _answer(published, "publication", bad)
    observed = _fold(lines, bad)
    if observed is not None:
        return _answer(observed, "events", bad)
    published = _newest(legacy, bad)
    return None if published is None else _answer(published, "legacy", bad)


def _answer(named: _Publication, source: str, bad: Sequence[Gap]) -> ProviderSession:
    return ProviderSession(
        provider_session_id=named.provider_session_id, account_id=named.account_id, source=source, gaps=tuple(bad)
    )


def _newest(found: Sequence[_Found], bad: list[Gap]) -> _Publication | None:
    """Return the newest publication that has schema 1 and an id (R7.3); newer ones without are gaps."""
    for seq, evidence in sorted(found, key=lambda each: each[0], reverse=True):
        try:
            published = msgspec.convert(evidence, _Publication)
        except msgspec.ValidationError:
            published = None
        if published is not None and published.provider_session_id:
            return published
        bad.append(gaps.schema(seq))
    return None


def _fold(lines: Sequence[tuple[int | None, int, Any]], bad: list[Gap]) -> _Publication | None:
    """Fold the events in ordinal order: an account is never carried to another attempt (R7.4)."""
    accounts: dict[str, str | None] = {}
    found: _Publication | None = None
    for position, seq, evidence in sorted(lines, key=lambda line: (line[0] or 0, line[1])):
        envelope = None if position is None else decode_envelope(seq, evidence)
        if envelope is None or envelope.schema != 1:
            bad.append(gaps.schema(seq))
            continue
        match envelope.body:
            case AttemptStarted() | AccountSelected() as body:
                accounts[body.attempt_key] = body.account_id
            case SessionObserved() as body if body.provider_session_id:
                account = accounts.get(body.attempt_key)
                found = _Publication(schema_version=1, provider_session_id=body.provider_session_id, account_id=account)
            case SessionObserved():
                bad.append(gaps.schema(seq))
            case _:
                pass
    return found
