"""Verbs of importing that find, make and describe conversations, all those of a batch at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import orjson

from turnlog.ledger.backend import Row as Answer
from turnlog.ledger.backend import Tx
from turnlog.ledger.import_facts import Known, Told
from turnlog.ledger.sessions import NewSession, Sessions
from turnlog.receipts import decode

_KEYS: Final = uuid.UUID("8d0c6d0e-6f0e-5c58-9a38-0d9b6b1c3f5a")
"""Namespace of the artifact keys of imported conversations."""

Name = tuple[str, str]
"""A provider, and its id of a conversation."""


def import_key(session_id: str) -> str:
    """Return the artifact key of the capture that an import makes: the same on every machine."""
    return uuid.uuid5(_KEYS, session_id).hex


class Conversation(msgspec.Struct):
    """Where receipts of a provider's conversation go. ``own`` = imported; else turnlog drove it.

    ``pruned_to``: its receipts up to this instant (unix ms) were removed, and are not taken again; at
    ``text_pruned_at`` its text was.
    """

    session_id: str
    native: int
    capture: int
    own: bool
    pruned_to: int | None = None
    text_pruned_at: int | None = None

    def holds(self, at: int | None) -> bool:
        """Tell whether what happened at an instant was removed from here."""
        return self.pruned_to is not None and at is not None and at <= self.pruned_to


class NewConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that nobody has told of yet, and what is known of it so far."""

    provider: str
    native: str
    at: int
    cwd: str
    model: str | None
    interactive: bool


class ConversationsTx:
    """The verbs inside a batch."""

    _tx: Tx
    _now: int
    _sessions: Sessions

    def conversations(self, names: Sequence[Name]) -> dict[Name, Conversation]:
        """Return where receipts of providers' conversations go: O(names), in a fixed number of questions.

        Of each the session that drove it, else the imported one; nothing of those that are not there.
        """
        found: dict[Name, Answer] = {}
        for query in ("conversation", "conversation_by_alias"):
            asked = [name for name in dict.fromkeys(names) if name not in found]
            told = self._tx.each(query, [{"provider": provider, "native": native} for provider, native in asked])
            found.update((name, rows[0]) for name, rows in zip(asked, told, strict=True) if rows)
        asked = [name for name in dict.fromkeys(names) if name not in found]
        told = self._tx.each("conversation_by_id", [{"id": f"{provider}:{native}"} for provider, native in asked])
        found.update((name, rows[0]) for name, rows in zip(asked, told, strict=True) if rows)
        natives = {row[0]: row[1] for row in found.values() if row[1] is not None}
        fresh = {row[0]: name for name, row in reversed(found.items()) if row[1] is None}  # one row for each session
        natives.update(zip(fresh, self._natives([(session, *name) for session, name in fresh.items()]), strict=True))
        there = list(dict.fromkeys(row[0] for row in found.values()))
        pruned = dict(zip(there, self._tx.each("pruned_to", [{"session": each} for each in there]), strict=True))
        return {
            name: Conversation(row[0], natives[row[0]], row[2], bool(row[4]), *next(iter(pruned[row[0]]), (None, None)))
            for name, row in found.items()
        }

    def create(self, news: Sequence[NewConversation]) -> list[Conversation]:
        """Create the sessions of imported conversations: one capture, no exec, no task. O(news).

        The captures say nothing of what is known so far, so that they do not depend on which source was read first.
        """
        ids = [f"{new.provider}:{new.native}" for new in news]
        captures = self._sessions.create_all_in(
            self._tx,
            [
                NewSession(
                    id=session_id,
                    artifact_key=import_key(session_id),
                    title="Untitled",
                    title_source="generated",
                    kind="conversation",
                    interactive=new.interactive,
                    created_at=new.at,
                    cwd=new.cwd,
                    repo=None,
                    provider=new.provider,
                    model=new.model,
                    skill=None,
                    task_id=None,
                    wave_id=None,
                    work_source=None,
                    primary_scope=None,
                    caller=None,
                    published=False,
                    exec_id=None,
                    thread=new.native,
                    imported_at=self._now,
                )
                for session_id, new in zip(ids, news, strict=True)
            ],
        )
        natives = self._natives([(each, new.provider, new.native) for each, new in zip(ids, news, strict=True)])
        return [Conversation(*each, own=True) for each in zip(ids, natives, captures, strict=True)]

    def _natives(self, rows: Sequence[tuple[str, str, str]]) -> list[int]:
        asked = [{"session": session, "provider": provider, "native": native} for session, provider, native in rows]
        return [int(told[0][0]) for told in self._tx.each("insert_native_session", asked)]

    def learn(
        self,
        told: Sequence[tuple[Conversation, Told]],
        project: Callable[[str | None, str | None], str | None],
    ) -> None:
        """Add facts to conversations: O(told). Imported ones show them, driven ones keep what turnlog knows.

        ``project`` tells the repository of a folder and a recorded root. What several sources tell comes to the same in
        any order.
        """
        if not told:
            return
        ids = orjson.dumps(sorted({conversation.native for conversation, _ in told})).decode()
        rows = {row[0]: row[1:] for row in self._tx.all("native_facts", ids=ids)}
        known = {number: Known(*row) for number, row in rows.items()}
        shown: dict[str, tuple[Known, str | None]] = {}
        for conversation, each in told:
            facts = known.get(conversation.native)
            if facts is None:
                continue
            facts.learn(each)
            if conversation.own:
                repo = shown.get(conversation.session_id, (facts, None))[1]
                if each.cwd is not None or each.root is not None:
                    repo = project(facts.cwd, facts.root) or repo
                shown[conversation.session_id] = facts, repo
        changed = [
            (*values, number)
            for number, facts in known.items()
            if (values := msgspec.structs.astuple(facts)) != tuple(rows[number])
        ]
        self._tx.many("set_native_facts", changed)
        self._tx.each("learn_session", [_shown(session, *facts) for session, facts in shown.items()])

    def newest_models(self, conversations: Sequence[Conversation]) -> None:
        """Let the newest call tell the model of conversations of several sources: they may be read in any order."""
        told = self._tx.each("latest_usage", [{"session": each.session_id} for each in conversations])
        models = [(each, _model(rows[0][0])) for each, rows in zip(conversations, told, strict=True) if rows]
        named = [(each, model) for each, model in models if model is not None]
        self._tx.each("set_native_model", [{"id": each.native, "model": model} for each, model in named])
        own = [{"session": each.session_id, "model": model} for each, model in named if each.own]
        self._tx.each("set_session_model", own)

    def aliases(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Store (provider, alias, session)."""
        self._tx.many("insert_aliases", rows)

    def sources_of(self, rows: Iterable[tuple[str, int]]) -> None:
        """Store which sources tell of a session."""
        self._tx.many("insert_session_sources", rows)


def _shown(session: str, facts: Known, repo: str | None) -> dict[str, Any]:
    return {
        "session": session,
        "title": facts.title,
        "at": facts.began_at,
        "cwd": facts.cwd,
        "model": facts.model,
        "repo": repo,
        "relation": facts.relation,
    }


def _model(payload: str) -> str | None:
    told = decode(payload)
    model = told.get("model") if isinstance(told, dict) else None
    return model if isinstance(model, str) else None
