-- Where imported receipts come from: files read, what could not be read, the archive of their bytes, text to search.

-- One row for each file ever read. read_to is behind the last whole line taken; state and cursor let reading go on
-- there. missing_at says that the file was gone: what it told stays.
CREATE TABLE sources (
  id INTEGER PRIMARY KEY,
  provider TEXT NOT NULL,
  path TEXT NOT NULL,
  kind TEXT NOT NULL,
  thread TEXT,
  device INTEGER,
  inode INTEGER,
  size INTEGER NOT NULL DEFAULT 0,
  modified_at INTEGER,
  head TEXT,
  head_size INTEGER NOT NULL DEFAULT 0,
  read_to INTEGER NOT NULL DEFAULT 0,
  tail TEXT,
  lines INTEGER NOT NULL DEFAULT 0,
  state BLOB,
  cursor BLOB,
  decoder INTEGER NOT NULL DEFAULT 0,
  archived INTEGER NOT NULL DEFAULT 1 CHECK (archived IN (0, 1)),
  first_read_at INTEGER NOT NULL,
  read_at INTEGER NOT NULL,
  missing_at INTEGER,
  replaced_at INTEGER
) STRICT;
CREATE UNIQUE INDEX sources_by_path ON sources (path) WHERE replaced_at IS NULL;

CREATE TABLE source_problems (
  source_id INTEGER NOT NULL REFERENCES sources (id),
  "offset" INTEGER NOT NULL,
  kind TEXT NOT NULL,
  length INTEGER NOT NULL,
  detail TEXT NOT NULL,
  session_id TEXT,
  usage INTEGER NOT NULL CHECK (usage IN (0, 1)),
  seen_at INTEGER NOT NULL,
  PRIMARY KEY (source_id, "offset", kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX source_problems_by_session ON source_problems (session_id) WHERE session_id IS NOT NULL;

-- Conversations as sources tell of them, one row each. relation: subagent, fork or continuation of parent_id.
CREATE TABLE native_sessions (
  id INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL UNIQUE REFERENCES agent_sessions (id),
  provider TEXT NOT NULL,
  native_id TEXT NOT NULL,
  began_at INTEGER,
  cwd TEXT,
  root TEXT,
  remote TEXT,
  model TEXT,
  version TEXT,
  title TEXT,
  title_rank INTEGER NOT NULL DEFAULT 0,
  parent_id TEXT,
  parent_turn TEXT,
  relation TEXT
) STRICT;
CREATE UNIQUE INDEX native_sessions_by_id ON native_sessions (provider, native_id);
CREATE INDEX native_sessions_by_parent ON native_sessions (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE session_aliases (
  provider TEXT NOT NULL,
  alias TEXT NOT NULL,
  session_id TEXT NOT NULL,
  PRIMARY KEY (provider, alias, session_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE session_sources (
  session_id TEXT NOT NULL,
  source_id INTEGER NOT NULL REFERENCES sources (id),
  PRIMARY KEY (session_id, source_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_sources_by_source ON session_sources (source_id);

-- Which byte of which source a receipt was read from, and the call that a usage receipt tells of.
CREATE TABLE receipt_places (
  seq INTEGER PRIMARY KEY,
  source_id INTEGER NOT NULL,
  "offset" INTEGER NOT NULL,
  call TEXT
) STRICT;

-- Sightings of a call: one row for each conversation whose sources tell of it. owned = 0 for a copy, which counts
-- nowhere. A sighting with rivals (a JSON list of session ids, its ancestors) is a copy if one of them has the call too;
-- of those without, the earliest is no copy, then the one of most weight (output tokens: a copy may have been cut short),
-- then the smallest session id.
CREATE TABLE calls (
  call TEXT NOT NULL,
  session_id TEXT NOT NULL,
  at INTEGER NOT NULL,
  rivals TEXT,
  weight INTEGER NOT NULL,
  owned INTEGER NOT NULL CHECK (owned IN (0, 1)),
  PRIMARY KEY (call, session_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX calls_copied ON calls (session_id, call) WHERE owned = 0;

-- Native bytes, zstd-compressed, in pieces of at most 1 MiB that begin at a line where there is one.
CREATE TABLE archive (
  source_id INTEGER NOT NULL REFERENCES sources (id),
  start INTEGER NOT NULL,
  size INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (source_id, start)
) STRICT;

-- One row for each passage of text; its words are in the full-text table under the same rowid, its bytes in the archive.
-- key names what a passage is about in a source whose objects come again: the newer text replaces the older.
CREATE TABLE passages (
  id INTEGER PRIMARY KEY,
  native INTEGER NOT NULL,
  turn TEXT,
  role INTEGER NOT NULL,
  at INTEGER,
  source_id INTEGER NOT NULL,
  "offset" INTEGER NOT NULL,
  part INTEGER NOT NULL,
  key TEXT
) STRICT;
CREATE INDEX passages_by_native ON passages (native);
CREATE INDEX passages_by_source ON passages (source_id);
CREATE INDEX passages_by_key ON passages (key) WHERE key IS NOT NULL;

CREATE VIRTUAL TABLE passage_words USING fts5 (text, content='', contentless_delete=1, tokenize="unicode61");
-- Much is written at once: words are gathered in 32 MB of memory before they go to disk, and parts of the index are
-- merged when there are sixteen of a size, not beside every write.
INSERT INTO passage_words (passage_words, rank) VALUES ('hashsize', 33554432), ('automerge', 0);
