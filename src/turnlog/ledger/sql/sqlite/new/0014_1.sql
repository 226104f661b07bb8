-- A new ledger at once: what the migrations up to 0014 make of an empty file. Part 1.
-- Written by tools/make_new_ledger.py; do not edit it.

CREATE TABLE ledger_meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE execs (
  id TEXT PRIMARY KEY,
  trace_id TEXT NOT NULL,
  parent_exec_id TEXT,
  via_agent INTEGER CHECK (via_agent IN (0, 1)),
  caller_session_id TEXT,
  caller_provider_generation INTEGER,
  command TEXT,
  repo TEXT,
  cwd TEXT,
  started_at INTEGER NOT NULL,
  completed_at INTEGER,
  outcome TEXT CHECK (outcome IN ('succeeded', 'failed', 'interrupted')),
  exit_code INTEGER,
  signal TEXT,
  error TEXT,
  boot_id TEXT,
  pid INTEGER,
  pid_started_at INTEGER
, home_id TEXT) STRICT;

CREATE INDEX execs_by_parent ON execs (parent_exec_id) WHERE parent_exec_id IS NOT NULL;

CREATE INDEX execs_by_trace ON execs (trace_id);

CREATE INDEX execs_by_start ON execs (started_at DESC, id);

CREATE TABLE waves (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL CHECK (name <> '' AND instr(name, '/') = 0),
  repo TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  parent_wave_id TEXT REFERENCES waves (id),
  retired_at INTEGER
, home_id TEXT) STRICT;

CREATE UNIQUE INDEX waves_active_name ON waves (repo, coalesce(parent_wave_id, ''), name) WHERE retired_at IS NULL;

CREATE VIEW wave_addresses AS
WITH RECURSIVE address (id, name, repo, created_at, parent_wave_id, retired_at, slug) AS (
  SELECT id, name, repo, created_at, parent_wave_id, retired_at, name FROM waves WHERE parent_wave_id IS NULL
  UNION ALL
  SELECT w.id, w.name, w.repo, w.created_at, w.parent_wave_id, w.retired_at, a.slug || '/' || w.name
  FROM waves w JOIN address a ON a.id = w.parent_wave_id
)
SELECT id, name, repo, created_at, parent_wave_id, retired_at, slug FROM address;

CREATE TABLE projects (
  id TEXT PRIMARY KEY,
  wave_id TEXT NOT NULL REFERENCES waves (id),
  external_project_id TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  project_slug TEXT,
  project_name TEXT,
  status TEXT,
  flow TEXT
, retired_at INTEGER) STRICT;

CREATE INDEX projects_by_wave ON projects (wave_id);

CREATE TABLE tasks (
  id TEXT PRIMARY KEY,
  project_id TEXT NOT NULL REFERENCES projects (id),
  external_issue_id TEXT NOT NULL,
  issue_identifier TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  issue_title TEXT,
  worktree TEXT,
  started_at INTEGER,
  state TEXT
, retired_at INTEGER, worktree_home_id TEXT) STRICT;

CREATE INDEX tasks_by_project ON tasks (project_id);

CREATE INDEX tasks_by_identifier ON tasks (issue_identifier);

CREATE INDEX tasks_by_external ON tasks (external_issue_id);

CREATE INDEX tasks_by_worktree ON tasks (worktree) WHERE worktree IS NOT NULL;

CREATE TABLE agent_sessions (
  id TEXT PRIMARY KEY,
  title TEXT NOT NULL,
  title_source TEXT NOT NULL CHECK (title_source IN ('generated', 'human')),
  kind TEXT NOT NULL DEFAULT 'conversation',
  interactive INTEGER NOT NULL DEFAULT 1 CHECK (interactive IN (0, 1)),
  created_at INTEGER NOT NULL,
  completed_at INTEGER,
  ready_summary TEXT,
  request TEXT,
  current_capture INTEGER UNIQUE REFERENCES session_events (seq) DEFERRABLE INITIALLY DEFERRED,
  input_published INTEGER NOT NULL CHECK (input_published IN (0, 1)),
  cwd TEXT NOT NULL,
  repo TEXT,
  skill TEXT,
  provider TEXT,
  model TEXT,
  node INTEGER,
  iterations TEXT,
  task_id TEXT REFERENCES tasks (id),
  wave_id TEXT REFERENCES waves (id),
  flow_session_id TEXT,
  work_source TEXT CHECK (work_source IN ('declared', 'checkout', 'inherited', 'bound')),
  bound_at INTEGER,
  primary_scope TEXT CHECK (primary_scope IN ('repository', 'wave')),
  driver_exec_id TEXT REFERENCES execs (id),
  driver_generation INTEGER NOT NULL DEFAULT 0,
  driver_heartbeat_at INTEGER,
  provider_generation INTEGER NOT NULL DEFAULT 0,
  provider_exec_id TEXT REFERENCES execs (id),
  provider_endpoint TEXT,
  provider_thread TEXT,
  provider_pid INTEGER,
  provider_started_at INTEGER
, pruned_to INTEGER, home_id TEXT) STRICT;

CREATE UNIQUE INDEX sessions_primary_repository ON agent_sessions (repo)
  WHERE primary_scope = 'repository' AND completed_at IS NULL;

CREATE UNIQUE INDEX sessions_primary_wave ON agent_sessions (wave_id)
  WHERE primary_scope = 'wave' AND completed_at IS NULL;

CREATE INDEX sessions_by_driver ON agent_sessions (driver_exec_id) WHERE driver_exec_id IS NOT NULL;

CREATE INDEX sessions_by_provider_exec ON agent_sessions (provider_exec_id) WHERE provider_exec_id IS NOT NULL;

CREATE INDEX sessions_by_pid ON agent_sessions (provider_pid) WHERE provider_pid IS NOT NULL;

CREATE INDEX sessions_by_task ON agent_sessions (task_id) WHERE task_id IS NOT NULL;

CREATE INDEX sessions_by_wave ON agent_sessions (wave_id) WHERE wave_id IS NOT NULL;

CREATE INDEX sessions_by_thread ON agent_sessions (provider, provider_thread) WHERE provider_thread IS NOT NULL;

CREATE INDEX sessions_by_title ON agent_sessions (title, id);

CREATE INDEX sessions_open ON agent_sessions (interactive, title, id) WHERE completed_at IS NULL;

CREATE TABLE session_events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL REFERENCES agent_sessions (id),
  provider_thread TEXT,
  provider_turn TEXT,
  kind TEXT NOT NULL,
  receipt_key TEXT NOT NULL,
  provider_generation INTEGER,
  exec_id TEXT,
  task_id TEXT,
  wave_id TEXT,
  observed_at INTEGER NOT NULL,
  payload TEXT NOT NULL,
  captured_event INTEGER,
  driver_generation INTEGER
) STRICT;

CREATE UNIQUE INDEX events_receipt ON session_events
  (session_id, coalesce(provider_thread, ''), coalesce(provider_turn, ''), kind, receipt_key);

CREATE INDEX events_by_session ON session_events (session_id);

CREATE UNIQUE INDEX events_captured_key ON session_events (receipt_key) WHERE kind = 'captured';

CREATE UNIQUE INDEX events_request_id ON session_events (session_id, receipt_key) WHERE kind = 'requested';

CREATE INDEX events_requested_turn ON session_events (session_id, provider_turn) WHERE kind = 'requested';

CREATE INDEX events_by_capture ON session_events (captured_event, kind) WHERE captured_event IS NOT NULL;

CREATE TABLE requests (
  id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES agent_sessions (id),
  kind TEXT NOT NULL CHECK (kind IN ('steer', 'interrupt', 'permission')),
  text TEXT,
  by_exec TEXT,
  state TEXT NOT NULL DEFAULT 'queued'
    CHECK (state IN ('queued', 'sent', 'accepted', 'not_steerable', 'uncertain', 'refused')),
  created_at INTEGER NOT NULL,
  settled_at INTEGER,
  detail TEXT
) STRICT;

CREATE INDEX requests_open ON requests (session_id, created_at) WHERE state IN ('queued', 'sent');

CREATE INDEX requests_by_session ON requests (session_id, created_at);

CREATE TRIGGER captured_is_frozen BEFORE UPDATE ON session_events WHEN OLD.kind = 'captured'
BEGIN SELECT raise(ABORT, 'a captured row cannot be changed'); END;

CREATE TRIGGER captured_is_kept BEFORE DELETE ON session_events WHEN OLD.kind = 'captured'
BEGIN SELECT raise(ABORT, 'a captured row cannot be deleted'); END;

CREATE TRIGGER current_capture_on_insert BEFORE INSERT ON agent_sessions
WHEN NEW.current_capture IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM session_events WHERE seq = NEW.current_capture AND kind = 'captured' AND session_id = NEW.id)
BEGIN SELECT raise(ABORT, 'current_capture must be a captured row of the same session'); END;

CREATE TRIGGER current_capture_on_update BEFORE UPDATE OF current_capture, id ON agent_sessions
WHEN NEW.current_capture IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM session_events WHERE seq = NEW.current_capture AND kind = 'captured' AND session_id = NEW.id)
BEGIN SELECT raise(ABORT, 'current_capture must be a captured row of the same session'); END;

CREATE TRIGGER bindings_are_permanent BEFORE UPDATE OF task_id, wave_id, flow_session_id ON agent_sessions
WHEN (OLD.task_id IS NOT NULL AND NEW.task_id IS NOT OLD.task_id)
  OR (OLD.wave_id IS NOT NULL AND NEW.wave_id IS NOT OLD.wave_id)
  OR (OLD.flow_session_id IS NOT NULL AND NEW.flow_session_id IS NOT OLD.flow_session_id)
BEGIN SELECT raise(ABORT, 'a binding to task, wave or flow cannot be changed'); END;

CREATE TRIGGER session_ancestry_on_insert BEFORE INSERT ON agent_sessions
WHEN NEW.task_id IS NOT NULL AND NEW.wave_id IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM tasks t JOIN projects p ON p.id = t.project_id WHERE t.id = NEW.task_id AND p.wave_id = NEW.wave_id)
BEGIN SELECT raise(ABORT, 'task and wave do not belong together'); END;

CREATE TRIGGER session_ancestry_on_update BEFORE UPDATE OF task_id, wave_id ON agent_sessions
WHEN NEW.task_id IS NOT NULL AND NEW.wave_id IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM tasks t JOIN projects p ON p.id = t.project_id WHERE t.id = NEW.task_id AND p.wave_id = NEW.wave_id)
BEGIN SELECT raise(ABORT, 'task and wave do not belong together'); END;

CREATE TRIGGER captured_on_insert BEFORE INSERT ON session_events WHEN NEW.kind = 'captured'
BEGIN
  SELECT raise(ABORT, 'a captured row cannot be replaced')
  WHERE EXISTS (SELECT 1 FROM session_events WHERE kind = 'captured' AND receipt_key = NEW.receipt_key);
  SELECT raise(ABORT, 'task and wave do not belong together')
  WHERE NEW.task_id IS NOT NULL AND NEW.wave_id IS NOT NULL AND NOT EXISTS (SELECT 1
    FROM tasks t JOIN projects p ON p.id = t.project_id WHERE t.id = NEW.task_id AND p.wave_id = NEW.wave_id);
END;

CREATE TRIGGER task_starts_with_session AFTER INSERT ON agent_sessions WHEN NEW.task_id IS NOT NULL
BEGIN UPDATE tasks SET started_at = NEW.created_at WHERE id = NEW.task_id AND started_at IS NULL; END;

CREATE TRIGGER task_starts_with_binding AFTER UPDATE OF task_id ON agent_sessions
WHEN OLD.task_id IS NULL AND NEW.task_id IS NOT NULL
BEGIN
  UPDATE tasks SET started_at = coalesce(NEW.bound_at, NEW.created_at) WHERE id = NEW.task_id AND started_at IS NULL;
END;

CREATE TABLE releases (
  session_id TEXT NOT NULL,
  subject TEXT NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (session_id, subject, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX releases_by_seq ON releases (seq);

CREATE INDEX releases_by_subject ON releases (subject);

CREATE TABLE turns (
  session_id TEXT NOT NULL,
  provider_thread TEXT NOT NULL,
  provider_turn TEXT NOT NULL,
  first_at INTEGER NOT NULL,
  start_seq INTEGER,
  capture INTEGER,
  exec_id TEXT,
  task_id TEXT,
  wave_id TEXT,
  completion_seq INTEGER,
  completed_at INTEGER,
  status TEXT,
  released INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (session_id, provider_thread, provider_turn)
) STRICT, WITHOUT ROWID;

CREATE INDEX turns_by_capture ON turns (capture, start_seq) WHERE capture IS NOT NULL;

CREATE INDEX turns_orphan_held ON turns (first_at DESC, session_id, provider_thread, provider_turn)
  WHERE capture IS NULL AND completion_seq IS NULL AND released = 0;

CREATE INDEX turns_orphan_settled ON turns (first_at DESC, session_id, provider_thread, provider_turn)
  WHERE capture IS NULL AND NOT (completion_seq IS NULL AND released = 0);

CREATE INDEX turns_orphan_ended ON turns (completed_at) WHERE capture IS NULL AND completed_at IS NOT NULL;

CREATE INDEX turns_open_exec ON turns (exec_id) WHERE completion_seq IS NULL AND exec_id IS NOT NULL;

CREATE INDEX turns_by_task ON turns (task_id) WHERE task_id IS NOT NULL;

CREATE INDEX turns_by_wave ON turns (wave_id) WHERE wave_id IS NOT NULL;

CREATE TABLE intents (
  seq INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL,
  provider_thread TEXT,
  provider_turn TEXT,
  capture INTEGER,
  exec_id TEXT,
  settled INTEGER NOT NULL DEFAULT 0,
  released INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX intents_open ON intents (session_id) WHERE settled = 0;

CREATE INDEX intents_open_exec ON intents (exec_id) WHERE settled = 0 AND exec_id IS NOT NULL;

CREATE INDEX intents_by_capture ON intents (capture) WHERE capture IS NOT NULL;

CREATE TABLE captures (
  seq INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL,
  artifact_key TEXT NOT NULL,
  caller_key TEXT,
  observed_at INTEGER NOT NULL,
  own_task_id TEXT,
  own_wave_id TEXT,
  manifest_at INTEGER,
  manifest_task_id TEXT,
  manifest_wave_id TEXT,
  published_current INTEGER NOT NULL DEFAULT 0,
  released INTEGER NOT NULL DEFAULT 0,
  terminal TEXT CHECK (terminal IN ('valid', 'invalid')),
  terminal_at INTEGER,
  turns INTEGER NOT NULL DEFAULT 0,
  open_turns INTEGER NOT NULL DEFAULT 0,
  held_turns INTEGER NOT NULL DEFAULT 0,
  open_intents INTEGER NOT NULL DEFAULT 0,
  held_intents INTEGER NOT NULL DEFAULT 0,
  last_completed_at INTEGER,
  started_at INTEGER GENERATED ALWAYS AS (coalesce(manifest_at, observed_at)) VIRTUAL,
  task_id TEXT GENERATED ALWAYS AS (coalesce(manifest_task_id, own_task_id)) VIRTUAL,
  wave_id TEXT GENERATED ALWAYS AS (coalesce(manifest_wave_id, own_wave_id)) VIRTUAL,
  listed INTEGER GENERATED ALWAYS AS (
    manifest_at IS NOT NULL OR published_current = 1 OR turns > 0 OR open_intents > 0) VIRTUAL,
  ended_at INTEGER GENERATED ALWAYS AS (
    CASE WHEN terminal = 'invalid' OR open_turns > 0 OR open_intents > 0 THEN NULL
      WHEN terminal = 'valid' THEN terminal_at ELSE last_completed_at END) VIRTUAL,
  held INTEGER GENERATED ALWAYS AS (
    CASE WHEN open_turns > 0 OR open_intents > 0 THEN held_turns > 0 OR held_intents > 0
      WHEN terminal = 'valid' THEN 0
      WHEN terminal = 'invalid' OR last_completed_at IS NULL THEN released = 0
      ELSE 0 END) VIRTUAL
) STRICT;

CREATE UNIQUE INDEX captures_by_key ON captures (artifact_key);

CREATE INDEX captures_by_session ON captures (session_id);

CREATE INDEX captures_by_caller ON captures (caller_key) WHERE caller_key IS NOT NULL;

CREATE INDEX captures_held ON captures (started_at DESC, artifact_key DESC) WHERE listed = 1 AND held = 1;

CREATE INDEX captures_settled ON captures (started_at DESC, artifact_key DESC) WHERE listed = 1 AND held = 0;

CREATE INDEX captures_ended ON captures (ended_at) WHERE ended_at IS NOT NULL;

CREATE INDEX captures_by_task ON captures (task_id) WHERE task_id IS NOT NULL;

CREATE INDEX captures_by_wave ON captures (wave_id) WHERE wave_id IS NOT NULL;

CREATE VIEW releases_fold AS
SELECT
  CASE WHEN source GLOB 'death:*' THEN '' ELSE session_id END AS session_id,
  CASE WHEN source GLOB 'death:*' THEN source
    WHEN source GLOB 'driver:*' THEN 'exit:' || exec_id
    WHEN source GLOB 'refused:*' THEN 'request:' || substr(source, 9)
    ELSE 'turn:' || substr(source, instr(source, ':') + 1) END AS subject,
  seq
FROM (
  SELECT session_id, exec_id, seq,
    CASE WHEN receipt_key GLOB 'driver:*' OR receipt_key GLOB 'death:*' THEN receipt_key
      ELSE substr(receipt_key, instr(receipt_key, ':') + 1) END AS source
  FROM session_events WHERE kind = 'observed'
)
WHERE (source GLOB 'driver:*:exit' AND exec_id IS NOT NULL)
  OR source GLOB 'death:*' OR source GLOB 'superseded:*' OR source GLOB 'absorbed:*' OR source GLOB 'refused:*';

CREATE VIEW turns_fold AS
SELECT g.session_id, g.provider_thread, g.provider_turn, g.first_at, g.start_seq,
  o.captured_event AS capture, o.exec_id, o.task_id, o.wave_id, g.completion_seq, c.observed_at AS completed_at,
  CASE WHEN json_valid(c.payload) THEN
    CASE WHEN json_type(c.payload, '$.status') = 'text' THEN json_extract(c.payload, '$.status') END END AS status,
  CASE WHEN g.completion_seq IS NULL AND (
      EXISTS (SELECT 1 FROM agent_sessions s WHERE s.id = g.session_id AND (s.completed_at IS NOT NULL
        -- A provider's own conversation, imported or opened as a subagent: nobody here drives its turns (D13).
        OR (o.exec_id IS NULL AND s.id = s.provider || ':' || s.provider_thread)))
      OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = g.session_id
        AND r.subject = 'turn:' || g.provider_thread || ':' || g.provider_turn)
      OR (o.exec_id IS NOT NULL AND (
        EXISTS (SELECT 1 FROM execs x WHERE x.id = o.exec_id AND x.completed_at IS NOT NULL)
        OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = '' AND r.subject = 'death:' || o.exec_id)
        -- An exit counts from when the turn was asked for, which may be before its start was seen.
        OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = g.session_id AND r.subject = 'exit:' || o.exec_id
          AND r.seq > coalesce((SELECT min(q.seq) FROM session_events q WHERE q.session_id = g.session_id
            AND q.kind = 'requested' AND q.provider_turn = g.provider_turn AND q.seq < g.start_seq
            AND coalesce(q.provider_thread, g.provider_thread) = g.provider_thread), g.start_seq)))))
    THEN 1 ELSE 0 END AS released
FROM (
  SELECT session_id, coalesce(provider_thread, '') AS provider_thread, coalesce(provider_turn, '') AS provider_turn,
    min(observed_at) AS first_at,
    max(CASE WHEN kind = 'started' THEN seq END) AS start_seq,
    max(CASE WHEN kind = 'completed' THEN seq END) AS completion_seq
  FROM session_events WHERE kind IN ('started', 'usage', 'completed', 'output')
  GROUP BY session_id, coalesce(provider_thread, ''), coalesce(provider_turn, '')
) g
LEFT JOIN session_events o ON o.seq = g.start_seq
LEFT JOIN session_events c ON c.seq = g.completion_seq;
