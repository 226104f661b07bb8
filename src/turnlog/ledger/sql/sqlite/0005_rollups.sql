-- Roll-ups of usage: what the reducer made of the receipts, so that reports read no payload. All of it is a cache:
-- forget the row `cursor` of rollup_state, and everything here is made again.

-- `cursor`: receipts up to here were looked at.
CREATE TABLE rollup_state (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Sessions whose roll-ups are out of date, beside those with receipts behind the cursor.
CREATE TABLE rollup_dirty (
  session_id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Sessions by a short number. wire: a JSON list of (turn, began, ended) for which a program told the usage of a turn
-- with that of its subagents; covered: this session is such a subagent, so its streams do not count.
CREATE TABLE rollup_sessions (
  id INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL UNIQUE,
  wire TEXT,
  covered INTEGER NOT NULL DEFAULT 0 CHECK (covered IN (0, 1))
) STRICT;

-- What streams are grouped by, beside time and session, by a short number. service: whose model it was, where told.
CREATE TABLE rollup_kinds (
  id INTEGER PRIMARY KEY,
  provider TEXT NOT NULL,
  service TEXT,
  model TEXT,
  task_id TEXT,
  wave_id TEXT
) STRICT;
CREATE UNIQUE INDEX rollup_kinds_once ON rollup_kinds
  (provider, coalesce(service, ''), coalesce(model, ''), coalesce(task_id, ''), coalesce(wave_id, ''));

CREATE TABLE rollup_prices (
  id INTEGER PRIMARY KEY,
  source TEXT NOT NULL,
  version TEXT NOT NULL,
  UNIQUE (source, version)
) STRICT;

-- One row for each stream: an input's, or a turn's without input. seq is its first receipt, which names the turn.
-- counted = 0: another stream tells of the same work. prices: by which prices an estimate was tried; no estimate then
-- means that they do not know the model. low_estimate: something that would have cost more is unknown.
CREATE TABLE streams (
  session INTEGER NOT NULL,
  number INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  capture INTEGER,
  seq INTEGER,
  at INTEGER NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('native', 'recorder', 'merged')),
  final INTEGER NOT NULL CHECK (final IN (0, 1)),
  counted INTEGER NOT NULL CHECK (counted IN (0, 1)),
  calls INTEGER,
  input INTEGER,
  output INTEGER,
  total_input INTEGER,
  cache_read INTEGER,
  cache_write INTEGER,
  cache_write_1h INTEGER,
  reasoning INTEGER,
  peak INTEGER,
  context_window INTEGER,
  tier TEXT,
  reported_usd REAL,
  estimated_usd REAL,
  prices INTEGER,
  low_estimate INTEGER NOT NULL CHECK (low_estimate IN (0, 1)),
  gaps TEXT,
  PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX streams_unpriced ON streams (prices) WHERE estimated_usd IS NULL;

-- Gaps that belong to no stream, as a JSON object of counts by kind of gap.
CREATE TABLE loose_gaps (
  session INTEGER NOT NULL,
  number INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  at INTEGER NOT NULL,
  gaps TEXT NOT NULL,
  PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;

-- Sums of what counts, by quarter of an hour: start = unix ms / 900000. Every zone's days begin with a quarter.
CREATE TABLE usage_buckets (
  start INTEGER NOT NULL,
  session INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  first_at INTEGER NOT NULL,
  last_at INTEGER NOT NULL,
  streams INTEGER NOT NULL,
  final_streams INTEGER NOT NULL,
  unpriced INTEGER NOT NULL,
  low_estimates INTEGER NOT NULL,
  calls INTEGER,
  input INTEGER,
  output INTEGER,
  total_input INTEGER,
  cache_read INTEGER,
  cache_write INTEGER,
  cache_write_1h INTEGER,
  reasoning INTEGER,
  reported_usd REAL,
  estimated_usd REAL,
  gaps TEXT,
  PRIMARY KEY (start, session, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_buckets_by_session ON usage_buckets (session);
CREATE INDEX usage_buckets_gaps ON usage_buckets (start) WHERE gaps IS NOT NULL;

-- ---------------------------------------------------------------- what makes a session's roll-ups out of date
-- New receipts are found behind the cursor, which costs an insert nothing.

CREATE TRIGGER rollup_of_changed_event AFTER UPDATE ON session_events
WHEN OLD.kind NOT IN ('output', 'requested') OR NEW.kind NOT IN ('output', 'requested')
BEGIN INSERT OR IGNORE INTO rollup_dirty VALUES (OLD.session_id), (NEW.session_id); END;

CREATE TRIGGER rollup_of_deleted_event AFTER DELETE ON session_events WHEN OLD.kind NOT IN ('output', 'requested')
BEGIN INSERT OR IGNORE INTO rollup_dirty VALUES (OLD.session_id); END;

CREATE TRIGGER rollup_of_changed_session AFTER UPDATE OF id, provider, provider_thread ON agent_sessions
WHEN NEW.id <> OLD.id OR NEW.provider IS NOT OLD.provider OR NEW.provider_thread IS NOT OLD.provider_thread
BEGIN
  INSERT OR IGNORE INTO rollup_dirty VALUES (OLD.id), (NEW.id);
  INSERT OR IGNORE INTO rollup_dirty SELECT session_id FROM native_sessions
    WHERE parent_id IN (OLD.provider_thread, NEW.provider_thread) AND relation = 'subagent';
END;

CREATE TRIGGER rollup_of_deleted_session AFTER DELETE ON agent_sessions
BEGIN INSERT OR IGNORE INTO rollup_dirty VALUES (OLD.id); END;

CREATE TRIGGER rollup_of_call AFTER INSERT ON calls WHEN NEW.owned = 0
BEGIN INSERT OR IGNORE INTO rollup_dirty VALUES (NEW.session_id); END;

CREATE TRIGGER rollup_of_changed_call AFTER UPDATE OF call, session_id, owned ON calls
WHEN NEW.owned <> OLD.owned OR NEW.call <> OLD.call OR NEW.session_id <> OLD.session_id
BEGIN INSERT OR IGNORE INTO rollup_dirty VALUES (OLD.session_id), (NEW.session_id); END;

CREATE TRIGGER rollup_of_deleted_call AFTER DELETE ON calls WHEN OLD.owned = 0
BEGIN INSERT OR IGNORE INTO rollup_dirty VALUES (OLD.session_id); END;

CREATE TRIGGER rollup_of_native AFTER INSERT ON native_sessions WHEN NEW.relation = 'subagent'
BEGIN INSERT OR IGNORE INTO rollup_dirty VALUES (NEW.session_id); END;

CREATE TRIGGER rollup_of_changed_native AFTER UPDATE OF parent_id, parent_turn, relation, began_at ON native_sessions
WHEN (NEW.relation = 'subagent' OR OLD.relation = 'subagent') AND (NEW.relation IS NOT OLD.relation
  OR NEW.parent_id IS NOT OLD.parent_id OR NEW.parent_turn IS NOT OLD.parent_turn OR NEW.began_at IS NOT OLD.began_at)
BEGIN INSERT OR IGNORE INTO rollup_dirty VALUES (NEW.session_id); END;
