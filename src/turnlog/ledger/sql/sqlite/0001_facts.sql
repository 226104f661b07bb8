-- The facts: execs, work, sessions, session_events, requests, with their guards. Instants are unix milliseconds.

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
) STRICT;
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
) STRICT;
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
) STRICT;
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
) STRICT;
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
) STRICT;
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
CREATE INDEX events_by_session ON session_events (session_id); -- seq, the row id, is in every index
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

-- ---------------------------------------------------------------- guards

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

-- INSERT OR REPLACE deletes without firing captured_is_kept.
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
