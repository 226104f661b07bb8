-- A new ledger at once: what the migrations up to 0014 make of an empty file. Part 3.
-- Written by tools/make_new_ledger.py; do not edit it.

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

INSERT INTO passage_words (passage_words, rank) VALUES ('automerge', 0);

INSERT INTO passage_words (passage_words, rank) VALUES ('crisismerge', 64);

INSERT INTO passage_words (passage_words, rank) VALUES ('hashsize', 33554432);

CREATE TABLE rollup_state (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE rollup_dirty (
  session_id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE rollup_sessions (
  id INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL UNIQUE,
  wire TEXT,
  covered INTEGER NOT NULL DEFAULT 0 CHECK (covered IN (0, 1))
) STRICT;

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

CREATE TABLE loose_gaps (
  session INTEGER NOT NULL,
  number INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  at INTEGER NOT NULL,
  gaps TEXT NOT NULL,
  PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;

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

CREATE INDEX events_limits ON session_events
  (CASE WHEN json_valid(payload) THEN json_extract(payload, '$.evidence.provider') END, observed_at)
  WHERE kind = 'observed' AND receipt_key GLOB '*:limits:*' AND instr(payload, '"used_percent"') > 0;

CREATE VIEW limits_told AS
SELECT CASE WHEN json_valid(payload) THEN json_extract(payload, '$.evidence.provider') END AS provider, seq, observed_at,
  payload
FROM session_events
WHERE kind = 'observed' AND receipt_key GLOB '*:limits:*' AND instr(payload, '"used_percent"') > 0;

CREATE TABLE task_prs (
  id TEXT PRIMARY KEY,
  task_id TEXT NOT NULL REFERENCES tasks (id),
  external_pr_id TEXT NOT NULL,
  pr_identifier TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  pr_title TEXT
) STRICT;

CREATE UNIQUE INDEX task_prs_once ON task_prs (task_id, external_pr_id);

CREATE INDEX task_prs_by_external ON task_prs (external_pr_id);

CREATE INDEX task_prs_by_creation ON task_prs (created_at DESC, id);

CREATE INDEX waves_by_creation ON waves (created_at DESC, id);

CREATE INDEX waves_active ON waves (created_at DESC, id) WHERE retired_at IS NULL;

CREATE INDEX waves_retired ON waves (retired_at DESC, id) WHERE retired_at IS NOT NULL;

CREATE INDEX projects_by_creation ON projects (created_at DESC, id);

CREATE INDEX projects_active ON projects (created_at DESC, id) WHERE retired_at IS NULL;

CREATE INDEX projects_retired ON projects (retired_at DESC, id) WHERE retired_at IS NOT NULL;

CREATE INDEX projects_by_slug ON projects (project_slug) WHERE project_slug IS NOT NULL;

CREATE INDEX projects_by_name ON projects (project_name) WHERE project_name IS NOT NULL;

CREATE INDEX projects_by_external ON projects (external_project_id);

CREATE INDEX tasks_by_creation ON tasks (created_at DESC, id);

CREATE INDEX tasks_active ON tasks (created_at DESC, id) WHERE retired_at IS NULL;

CREATE INDEX tasks_retired ON tasks (retired_at DESC, id) WHERE retired_at IS NOT NULL;

CREATE INDEX captures_by_time ON captures (observed_at DESC, artifact_key);

CREATE INDEX sessions_bound ON agent_sessions (bound_at DESC, id) WHERE bound_at IS NOT NULL;

CREATE INDEX sessions_closed ON agent_sessions (completed_at DESC, id) WHERE completed_at IS NOT NULL;

CREATE INDEX requests_by_time ON requests (created_at DESC, id);

CREATE VIEW wave_ancestors AS
WITH RECURSIVE above (id, ancestor_id) AS (
  SELECT id, parent_wave_id FROM waves WHERE parent_wave_id IS NOT NULL
  UNION
  SELECT a.id, w.parent_wave_id FROM above a JOIN waves w ON w.id = a.ancestor_id WHERE w.parent_wave_id IS NOT NULL
)
SELECT id, ancestor_id FROM above;

CREATE TRIGGER waves_have_a_root_on_insert BEFORE INSERT ON waves
WHEN NEW.parent_wave_id = NEW.id
  OR EXISTS (SELECT 1 FROM wave_ancestors WHERE id = NEW.parent_wave_id AND ancestor_id = NEW.id)
BEGIN SELECT raise(ABORT, 'a wave cannot lie under itself'); END;

CREATE TRIGGER waves_have_a_root_on_update BEFORE UPDATE OF id, parent_wave_id ON waves
WHEN NEW.parent_wave_id = NEW.id
  OR EXISTS (SELECT 1 FROM wave_ancestors WHERE id = NEW.parent_wave_id AND ancestor_id = NEW.id)
BEGIN SELECT raise(ABORT, 'a wave cannot lie under itself'); END;

CREATE TRIGGER turns_of_deleted AFTER DELETE ON session_events
WHEN OLD.kind NOT IN ('observed', 'captured') AND (OLD.kind NOT IN ('usage', 'output') OR NOT EXISTS (
  SELECT 1 FROM turns WHERE session_id = OLD.session_id AND provider_thread = coalesce(OLD.provider_thread, '')
    AND provider_turn = coalesce(OLD.provider_turn, '') AND first_at < OLD.observed_at))
BEGIN
  INSERT INTO refold_turn VALUES (OLD.session_id, coalesce(OLD.provider_thread, ''), coalesce(OLD.provider_turn, ''));
END;

CREATE TABLE homes (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  machine TEXT,
  created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX sources_by_path ON sources (path, coalesce(home_id, '')) WHERE replaced_at IS NULL;

CREATE UNIQUE INDEX sources_by_origin ON sources (origin) WHERE origin IS NOT NULL;

CREATE TABLE work_aliases (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('wave', 'project', 'task')),
  stands_for TEXT NOT NULL
) STRICT;

CREATE TABLE pushed (
  target TEXT NOT NULL,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  state TEXT NOT NULL,
  PRIMARY KEY (target, kind, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX sources_wanting ON sources (id) WHERE wants IS NOT NULL;

CREATE VIEW captures_fold AS
SELECT c.seq, c.session_id, c.receipt_key AS artifact_key,
  CASE WHEN json_valid(c.payload) THEN json_extract(c.payload, '$.caller_key') END AS caller_key,
  CASE WHEN c.exec_id IS NULL AND json_valid(c.payload)
    AND instr(c.session_id, json_extract(c.payload, '$.provider') || ':') = 1
    THEN s.created_at ELSE c.observed_at END AS observed_at,
  c.task_id AS own_task_id, c.wave_id AS own_wave_id,
  m.observed_at AS manifest_at, m.task_id AS manifest_task_id, m.wave_id AS manifest_wave_id,
  CASE WHEN s.current_capture = c.seq AND s.input_published = 1 THEN 1 ELSE 0 END AS published_current,
  CASE WHEN s.completed_at IS NOT NULL OR s.id = s.provider || ':' || s.provider_thread
    OR EXISTS (SELECT 1 FROM session_events x WHERE x.captured_event = c.seq
    AND x.kind = 'observed' AND x.receipt_key GLOB 'driver:*:exit') THEN 1 ELSE 0 END AS released,
  CASE WHEN e.seq IS NULL THEN NULL WHEN e.ended_at IS NOT NULL THEN 'valid' ELSE 'invalid' END AS terminal,
  e.ended_at AS terminal_at
FROM session_events c
JOIN agent_sessions s ON s.id = c.session_id
LEFT JOIN session_events m ON m.session_id = c.session_id AND coalesce(m.provider_thread, '') = ''
  AND coalesce(m.provider_turn, '') = '' AND m.kind = 'observed' AND m.receipt_key = c.receipt_key || ':manifest.json'
LEFT JOIN terminals e ON e.session_id = c.session_id AND e.receipt_key = c.receipt_key || ':terminal.json'
WHERE c.kind = 'captured';

CREATE TRIGGER refold_capture_call INSTEAD OF INSERT ON refold_capture
BEGIN
  UPDATE captures SET (observed_at, manifest_at, manifest_task_id, manifest_wave_id, published_current, released,
      terminal, terminal_at) = (SELECT observed_at, manifest_at, manifest_task_id, manifest_wave_id, published_current,
      released, terminal, terminal_at FROM captures_fold f WHERE f.seq = NEW.seq)
  WHERE seq = NEW.seq;
END;

CREATE TRIGGER lists_of_beginning AFTER UPDATE OF created_at ON agent_sessions WHEN NEW.created_at <> OLD.created_at
BEGIN
  INSERT INTO refold_capture SELECT seq FROM captures WHERE session_id = NEW.id;
END;
