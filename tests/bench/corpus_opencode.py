"""A made-up OpenCode database: projects, sessions, messages, parts, and forks that copy messages under new ids."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from tests.bench.corpus_text import Pool
from tests.bench.corpus_times import FIRST_DAY, day_of
from tests.bench.corpus_truth import Book

MODELS: Final = (("anthropic", "claude-sonnet-4-5"), ("openai", "gpt-5.2"), ("anthropic", "claude-opus-4-6"))
BYTES_PER_CALL: Final = 9_000
SCHEMA: Final = """
CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, vcs text, name text, time_created integer NOT NULL,
  time_updated integer NOT NULL, time_initialized integer, sandboxes text NOT NULL);
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, workspace_id text, parent_id text,
  slug text NOT NULL, directory text NOT NULL, path text, title text NOT NULL, version text NOT NULL, share_url text,
  summary_additions integer, summary_deletions integer, summary_files integer, summary_diffs text, metadata text,
  cost real DEFAULT 0 NOT NULL, tokens_input integer DEFAULT 0 NOT NULL, tokens_output integer DEFAULT 0 NOT NULL,
  tokens_reasoning integer DEFAULT 0 NOT NULL, tokens_cache_read integer DEFAULT 0 NOT NULL,
  tokens_cache_write integer DEFAULT 0 NOT NULL, revert text, permission text, agent text, model text,
  time_created integer NOT NULL, time_updated integer NOT NULL, time_compacting integer, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
CREATE INDEX session_project_idx ON session (project_id);
"""
Row = tuple[str, str, int, str]
"""message id, session id, created, data."""


class Database:
    """About ``size`` bytes of conversations in ``opencode.db``."""

    def __init__(self, folder: Path, pool: Pool, book: Book, seed: int, size: int) -> None:
        self.rng = random.Random(seed)
        self.pool, self.book, self.size = pool, book, size
        self.path = folder / "opencode" / "opencode.db"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.written = 0

    def write(self) -> int:
        """Write the database; returns its size."""
        connection = apsw.Connection(str(self.path))
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(SCHEMA)
            with connection:
                connection.execute("INSERT INTO project VALUES ('p1', '/home/dev/app', 'git', NULL, 1, 1, 1, '[]')")
                number = 0
                while self.written < self.size * 0.88:
                    self._session(connection, number)
                    number += 1
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()
        return self.path.stat().st_size

    def _session(self, connection: apsw.Connection, number: int) -> None:
        rng = self.rng
        start = FIRST_DAY + rng.randint(0, 120) * 86_400_000 + rng.randint(0, 80_000_000)
        messages, parts = self._messages(f"ses_{number:06d}{rng.getrandbits(60):015x}", start)
        self._insert(connection, messages, parts, f"Work on {self.pool.word(rng)}")
        if rng.random() < 0.12 and len(messages) > 4:
            cut = messages[: len(messages) * 2 // 3]
            fork = f"ses_{number:06d}f{rng.getrandbits(56):014x}"
            copies = [(f"msg_f{number:05d}{index:05d}", fork, row[2], row[3]) for index, row in enumerate(cut)]
            self._insert(connection, copies, [], f"Work on {self.pool.word(rng)} (fork #1)")

    def _insert(self, connection: apsw.Connection, messages: list[Row], parts: list[Row], title: str) -> None:
        session, at = messages[0][1], messages[0][2]
        connection.execute(
            "INSERT INTO session (id, project_id, slug, directory, path, title, version, agent, time_created,"
            " time_updated) VALUES (?, 'p1', 'brave-garden', '/home/dev/app', '', ?, '1.18.33', 'build', ?, ?)",
            (session, title, at, messages[-1][2]),
        )
        connection.executemany(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?)", ((i, s, at, at, data) for i, s, at, data in messages)
        )
        connection.executemany("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", self._parts(session, parts))

    def _parts(self, session: str, parts: list[Row]) -> Iterator[tuple[str, str, str, int, int, str]]:
        for index, (message, _, at, data) in enumerate(parts):
            self.written += len(data) + 300
            yield f"prt_{session[4:]}{index:06d}", message, session, at, at, data

    def _messages(self, session: str, start: int) -> tuple[list[Row], list[Row]]:
        rng, at = self.rng, start
        messages: list[Row] = []
        parts: list[Row] = []
        provider, model = rng.choice(MODELS)
        context = rng.randint(6_000, 20_000)
        for turn in range(rng.randint(1, 12)):
            at += rng.randint(20_000, 900_000)
            user = f"msg_{session[4:]}{turn:04d}u"
            data = f'{{"role":"user","time":{{"created":{at}}},"agent":"build","model":{{"providerID":"{provider}",'
            messages.append((user, session, at, f'{data}"modelID":"{model}"}},"summary":{{"diffs":[]}}}}'))
            prompt = self.pool.passage(rng, rng.randint(60, 900), "prose").decode()
            parts.append((user, session, at, f'{{"type":"text","text":"{prompt}"}}'))
            for step in range(rng.randint(1, 7)):
                at += rng.randint(900, 20_000)
                done = at + rng.randint(800, 9_000)
                read, fresh = context, rng.randint(20, 3_000)
                context += fresh
                output, reasoning = rng.randint(30, 1_500), rng.choice((0, 0, rng.randint(1, 400)))
                total = fresh + output + reasoning + read
                tokens = (
                    f'"tokens":{{"total":{total},"input":{fresh},"output":{output},"reasoning":{reasoning},'
                    f'"cache":{{"write":0,"read":{read}}}}}'
                )
                cost = f"{(fresh * 3 + read * 0.3 + (output + reasoning) * 15) / 1e6:.7f}"
                message = f"{user[:-1]}{step:03d}"
                info = (
                    f'{{"parentID":"{user}","role":"assistant","mode":"build","agent":"build","path":{{"cwd":'
                    f'"/home/dev/app","root":"/home/dev/app"}},"cost":{cost},{tokens},"modelID":"{model}",'
                    f'"providerID":"{provider}","time":{{"created":{at},"completed":{done}}},"finish":"stop"}}'
                )
                messages.append((message, session, at, info))
                self._answer(message, session, at, tokens, parts)
                self.book.call(
                    "opencode",
                    model,
                    day_of(at),
                    fresh=fresh,
                    output=output + reasoning,
                    read=read,
                    write=0,
                    hour=0,
                    reasoning=reasoning,
                )
                at = done
        return messages, parts

    def _answer(self, message: str, session: str, at: int, tokens: str, parts: list[Row]) -> None:
        rng = self.rng
        text = self.pool.passage(rng, rng.randint(60, 1_200), "prose").decode()
        output = self.pool.passage(rng, min(int(rng.lognormvariate(8.0, 1.0)), 40_000)).decode()
        call = f"call_{rng.getrandbits(64):016x}"
        tool = (
            f'{{"type":"tool","tool":"bash","callID":"{call}","state":{{"status":"completed","input":{{"command":'
            f'"rg -n {self.pool.word(rng)}"}},"output":"{output}","title":"rg","time":'
            f'{{"start":{at},"end":{at + 9}}}}}}}'
        )
        several = (
            '{"type":"step-start","snapshot":"4b825dc642cb6eb9a060e54bf8d69288fbee4904"}',
            f'{{"type":"text","text":"{text}","time":{{"start":{at},"end":{at + 4}}}}}',
            tool,
            f'{{"type":"step-finish","reason":"stop","cost":0,{tokens}}}',
        )
        parts += ((message, session, at, data) for data in several)
