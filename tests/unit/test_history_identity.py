"""Provider session identity (3.7, D8)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.usage_cases import Rows, attempt_started, observed_session
from turnlog.history import provider_session
from turnlog.model import EventKind, Gap, ProviderSession


def account(name: str | None, attempt: str) -> dict[str, Any]:
    return {"type": "provider_account_selected", "attempt_key": attempt, "account_id": name}


def published(identity: Any, name: str | None = None, schema: int = 1) -> dict[str, Any]:
    return {"schema_version": schema, "provider_session_id": identity, "account_id": name}


def found(rows: Rows) -> tuple[str, str | None, str]:
    session = provider_session(rows)
    assert session is not None
    assert session.gaps == ()
    return session.provider_session_id, session.account_id, session.source


def test_seed_sequence() -> None:
    rows = Rows()
    rows.line(observed_session("second-thread", "second"), ordinal=2)
    rows.line(account("recorded", "second"), ordinal=1)
    assert found(rows) == ("second-thread", "recorded", "events")
    rows.line(observed_session("first-thread", "first"), ordinal=0)
    assert found(rows) == ("second-thread", "recorded", "events")
    rows.line(observed_session("unknown-account", "unknown"), ordinal=3)
    assert found(rows) == ("unknown-account", None, "events")
    rows.observe("provider-session:fresh", published("fresh-thread"))
    rows.observe("provider-session.json", published("legacy-thread", "legacy"))
    assert found(rows) == ("fresh-thread", None, "publication")
    assert provider_session(list(reversed(rows))) == provider_session(rows)


def test_nothing_known() -> None:
    rows = Rows()
    assert provider_session(rows) is None
    rows.start()
    rows.seen(attempt_started())
    assert provider_session(rows) is None


def test_accounts_of_three_attempts() -> None:
    rows = Rows()
    for name, attempt in (("primary", "attempt-1"), ("fallback", "attempt-2"), (None, "attempt-3")):
        rows.seen(account(name, attempt), observed_session(f"session-{attempt}", attempt))
    assert found(rows) == ("session-attempt-3", None, "events")


def test_account_known_later_does_not_count() -> None:
    rows = Rows()
    rows.seen(observed_session("here"), account("late", "attempt"))
    assert found(rows) == ("here", None, "events")


def test_attempt_start_names_and_resets_the_account() -> None:
    rows = Rows()
    rows.seen({**attempt_started(), "account_id": "first"}, observed_session("here"))
    assert found(rows) == ("here", "first", "events")
    rows.seen(attempt_started(), observed_session("here"))
    assert found(rows) == ("here", None, "events")


def test_newest_fresh_publication_wins() -> None:
    rows = Rows()
    rows.observe("provider-session:a", published("one", "a"))
    rows.observe("provider-session:b", published("two"))
    assert found(rows) == ("two", None, "publication")


def test_legacy_is_the_last_resort() -> None:
    rows = Rows()
    rows.observe("provider-session.json", published("legacy-thread", "legacy"))
    assert found(rows) == ("legacy-thread", "legacy", "legacy")
    rows.seen(observed_session("event-thread"))
    assert found(rows) == ("event-thread", None, "events")


@pytest.mark.parametrize("bad", [published("x", schema=2), published(""), published(None), published(7), "text", None])
def test_bad_publication_is_skipped_with_a_gap(bad: Any) -> None:
    rows = Rows()
    rows.observe("provider-session:good", published("good"))
    row = rows.observe("provider-session:bad", bad)
    assert provider_session(rows) == ProviderSession(
        provider_session_id="good", account_id=None, source="publication", gaps=(Gap(kind="schema", seq=row.seq),)
    )


def test_events_answer_when_no_publication_is_good() -> None:
    rows = Rows()
    rows.observe("provider-session:bad", published(""))
    rows.seen(observed_session("event-thread"))
    session = provider_session(rows)
    assert session is not None
    assert (session.provider_session_id, session.source, len(session.gaps)) == ("event-thread", "events", 1)


def test_bad_rows_of_the_fold_are_gaps() -> None:
    rows = Rows()
    rows.seen(observed_session("here"))
    bad = [
        rows.observe("events.jsonl:1", {"partial": "event"}),
        rows.observe("events.jsonl:x", rows[0].payload["evidence"]),
        rows.line(observed_session("other schema"), ordinal=3, schema=2),
        rows.line(observed_session(""), ordinal=4),
    ]
    session = provider_session(rows)
    assert session is not None
    assert session.provider_session_id == "here"
    assert sorted(gap.seq or 0 for gap in session.gaps) == [row.seq for row in bad]
    assert {gap.kind for gap in session.gaps} == {"schema"}


def test_unknown_types_are_ignored() -> None:
    rows = Rows()
    rows.seen(observed_session("here"), {"type": "telepathy"})
    rows.observe("manifest.json", None)
    rows.add(EventKind.OBSERVED, "no source", None, None)
    assert found(rows) == ("here", None, "events")
