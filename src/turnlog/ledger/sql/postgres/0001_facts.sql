-- The facts: execs, work, sessions, session_events, requests, with their guards. Instants are unix milliseconds.
-- Names and meanings are those of the SQLite ledger. Text is compared by bytes (COLLATE "C"), whatever the database's
-- locale: keys are searched by prefix, and order must be the same everywhere. Payloads are TEXT: jsonb refuses \u0000 and
-- rewrites numbers.

CREATE TABLE ledger_meta (
  key TEXT COLLATE "C" PRIMARY KEY,
  value TEXT COLLATE "C" NOT NULL
);

CREATE TABLE execs (
  id TEXT COLLATE "C" PRIMARY KEY,
  trace_id TEXT COLLATE "C" NOT NULL,
  parent_exec_id TEXT COLLATE "C",
  via_agent INTEGER CHECK (via_agent IN (0, 1)),
  caller_session_id TEXT COLLATE "C",
  caller_provider_generation BIGINT,
  command TEXT COLLATE "C",
  repo TEXT COLLATE "C",
  cwd TEXT COLLATE "C",
  started_at BIGINT NOT NULL,
  completed_at BIGINT,
  outcome TEXT COLLATE "C" CHECK (outcome IN ('succeeded', 'failed', 'interrupted')),
  exit_code BIGINT,
  signal TEXT COLLATE "C",
  error TEXT COLLATE "C",
  boot_id TEXT COLLATE "C",
  pid BIGINT,
  pid_started_at BIGINT
);
CREATE INDEX execs_by_parent ON execs (parent_exec_id) WHERE parent_exec_id IS NOT NULL;
CREATE INDEX execs_by_trace ON execs (trace_id);
CREATE INDEX execs_by_start ON execs (started_at DESC, id);

CREATE TABLE waves (
  id TEXT COLLATE "C" PRIMARY KEY,
  name TEXT COLLATE "C" NOT NULL CHECK (name <> '' AND strpos(name, '/') = 0),
  repo TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL,
  parent_wave_id TEXT COLLATE "C" REFERENCES waves (id),
  retired_at BIGINT
);
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
  id TEXT COLLATE "C" PRIMARY KEY,
  wave_id TEXT COLLATE "C" NOT NULL REFERENCES waves (id),
  external_project_id TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL,
  project_slug TEXT COLLATE "C",
  project_name TEXT COLLATE "C",
  status TEXT COLLATE "C",
  flow TEXT COLLATE "C"
);
CREATE INDEX projects_by_wave ON projects (wave_id);

CREATE TABLE tasks (
  id TEXT COLLATE "C" PRIMARY KEY,
  project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
  external_issue_id TEXT COLLATE "C" NOT NULL,
  issue_identifier TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL,
  issue_title TEXT COLLATE "C",
  worktree TEXT COLLATE "C",
  started_at BIGINT,
  state TEXT COLLATE "C"
);
CREATE INDEX tasks_by_project ON tasks (project_id);
CREATE INDEX tasks_by_identifier ON tasks (issue_identifier);
CREATE INDEX tasks_by_external ON tasks (external_issue_id);
CREATE INDEX tasks_by_worktree ON tasks (worktree) WHERE worktree IS NOT NULL;

CREATE TABLE agent_sessions (
  id TEXT COLLATE "C" PRIMARY KEY,
  title TEXT COLLATE "C" NOT NULL,
  title_source TEXT COLLATE "C" NOT NULL CHECK (title_source IN ('generated', 'human')),
  kind TEXT COLLATE "C" NOT NULL DEFAULT 'conversation',
  interactive INTEGER NOT NULL DEFAULT 1 CHECK (interactive IN (0, 1)),
  created_at BIGINT NOT NULL,
  completed_at BIGINT,
  ready_summary TEXT COLLATE "C",
  request TEXT COLLATE "C",
  current_capture BIGINT UNIQUE,
  input_published INTEGER NOT NULL CHECK (input_published IN (0, 1)),
  cwd TEXT COLLATE "C" NOT NULL,
  repo TEXT COLLATE "C",
  skill TEXT COLLATE "C",
  provider TEXT COLLATE "C",
  model TEXT COLLATE "C",
  node BIGINT,
  iterations TEXT COLLATE "C",
  task_id TEXT COLLATE "C" REFERENCES tasks (id),
  wave_id TEXT COLLATE "C" REFERENCES waves (id),
  flow_session_id TEXT COLLATE "C",
  work_source TEXT COLLATE "C" CHECK (work_source IN ('declared', 'checkout', 'inherited', 'bound')),
  bound_at BIGINT,
  primary_scope TEXT COLLATE "C" CHECK (primary_scope IN ('repository', 'wave')),
  driver_exec_id TEXT COLLATE "C" REFERENCES execs (id),
  driver_generation BIGINT NOT NULL DEFAULT 0,
  driver_heartbeat_at BIGINT,
  provider_generation BIGINT NOT NULL DEFAULT 0,
  provider_exec_id TEXT COLLATE "C" REFERENCES execs (id),
  provider_endpoint TEXT COLLATE "C",
  provider_thread TEXT COLLATE "C",
  provider_pid BIGINT,
  provider_started_at BIGINT
);
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

-- seq is the order of commits within a session, because writers lock the session first, and not across sessions. txid
-- is the transaction that wrote the row: with it a reader that tails all sessions knows how far it has seen everything.
CREATE TABLE session_events (
  seq BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  session_id TEXT COLLATE "C" NOT NULL REFERENCES agent_sessions (id),
  provider_thread TEXT COLLATE "C",
  provider_turn TEXT COLLATE "C",
  kind TEXT COLLATE "C" NOT NULL,
  receipt_key TEXT COLLATE "C" NOT NULL,
  provider_generation BIGINT,
  exec_id TEXT COLLATE "C",
  task_id TEXT COLLATE "C",
  wave_id TEXT COLLATE "C",
  observed_at BIGINT NOT NULL,
  payload TEXT COLLATE "C" NOT NULL,
  captured_event BIGINT,
  driver_generation BIGINT,
  txid XID8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE UNIQUE INDEX events_receipt ON session_events
  (session_id, coalesce(provider_thread, ''), coalesce(provider_turn, ''), kind, receipt_key);
CREATE INDEX events_by_session ON session_events (session_id, seq);
CREATE UNIQUE INDEX events_captured_key ON session_events (receipt_key) WHERE kind = 'captured';
CREATE UNIQUE INDEX events_request_id ON session_events (session_id, receipt_key) WHERE kind = 'requested';
CREATE INDEX events_requested_turn ON session_events (session_id, provider_turn) WHERE kind = 'requested';
CREATE INDEX events_by_capture ON session_events (captured_event, kind) WHERE captured_event IS NOT NULL;
CREATE INDEX events_by_transaction ON session_events (txid, seq);

ALTER TABLE agent_sessions ADD CONSTRAINT agent_sessions_current_capture_fkey
  FOREIGN KEY (current_capture) REFERENCES session_events (seq) DEFERRABLE INITIALLY DEFERRED;

CREATE TABLE requests (
  number BIGINT GENERATED BY DEFAULT AS IDENTITY,
  id TEXT COLLATE "C" PRIMARY KEY,
  session_id TEXT COLLATE "C" NOT NULL REFERENCES agent_sessions (id),
  kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('steer', 'interrupt', 'permission')),
  text TEXT COLLATE "C",
  by_exec TEXT COLLATE "C",
  state TEXT COLLATE "C" NOT NULL DEFAULT 'queued'
    CHECK (state IN ('queued', 'sent', 'accepted', 'not_steerable', 'uncertain', 'refused')),
  created_at BIGINT NOT NULL,
  settled_at BIGINT,
  detail TEXT COLLATE "C"
);
CREATE INDEX requests_open ON requests (session_id, created_at) WHERE state IN ('queued', 'sent');
CREATE INDEX requests_by_session ON requests (session_id, created_at);

-- ---------------------------------------------------------------- words that queries, folds and triggers share

-- The number of an advisory lock. turnlog computes the same (postgres_locks.py).
CREATE FUNCTION turnlog_lock_key(space TEXT, name TEXT) RETURNS BIGINT LANGUAGE sql STABLE STRICT PARALLEL SAFE
AS $$ SELECT ('x' || left(encode(sha256(convert_to(space || ':' || name, 'UTF8')), 'hex'), 16))::bit(64)::bigint $$;

-- Which database this is: transaction ids mean something in one database of one server only.
CREATE FUNCTION turnlog_home() RETURNS TEXT LANGUAGE plpgsql STABLE AS $$
DECLARE
  place TEXT := (SELECT oid FROM pg_database WHERE datname = current_database());
BEGIN
  RETURN 'pg-' || (SELECT system_identifier FROM pg_control_system()) || '-' || place;
EXCEPTION WHEN insufficient_privilege OR undefined_function THEN
  RETURN 'pg-unknown-' || place;
END $$;

-- The text at a path of a JSON payload; null when the payload is no JSON or no text is there.
CREATE FUNCTION turnlog_text(payload TEXT, VARIADIC path TEXT[]) RETURNS TEXT LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN CASE WHEN json_typeof(payload::json #> path) = 'string' THEN payload::json #>> path END;
EXCEPTION WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
  RETURN NULL;
END $$;

-- Whether an observation is text of the conversation, which summaries leave out (R5.5).
CREATE FUNCTION turnlog_is_conversation(payload TEXT) RETURNS BOOLEAN LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  version JSON;
BEGIN
  version := payload::json #> '{evidence,schema_version}';
  RETURN CASE WHEN json_typeof(version) = 'number' THEN version::text::numeric = 1 ELSE false END
    AND coalesce(payload::json #>> '{evidence,type}', '') IN
      ('activity', 'handoff', 'user_input', 'conversation', 'text', 'tool_use', 'result', 'provider_output');
EXCEPTION WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
  RETURN false;
END $$;

-- When the launched command ended, in unix ms; null when the evidence does not say so by the rules that
-- usage/evidence.py has for the record of one input: a list and a record must agree.
CREATE FUNCTION turnlog_ended_at(payload TEXT) RETURNS BIGINT LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  version JSON := NULL;
  p TEXT[];
BEGIN
  version := payload::json #> '{evidence,schema_version}';
  IF json_typeof(version) IS DISTINCT FROM 'number' OR version::text <> '1'
    OR coalesce(turnlog_text(payload, 'evidence', 'outcome'), '') NOT IN ('completed', 'failed', 'interrupted') THEN
    RETURN NULL;
  END IF;
  p := regexp_match(turnlog_text(payload, 'evidence', 'ended_at'), '^([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]'
    '([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:[.]([0-9]+))?(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))$');
  IF p IS NULL OR p[1] = '0000' THEN
    RETURN NULL;
  END IF;
  RETURN ((make_date(p[1]::int, p[2]::int, p[3]::int) - DATE '1970-01-01')::bigint * 86400
      + p[4]::int * 3600 + p[5]::int * 60 + p[6]::int
      - CASE p[8] WHEN '-' THEN -1 WHEN '+' THEN 1 ELSE 0 END
        * coalesce(p[9]::int * 3600 + p[10]::int * 60, 0)) * 1000
    + left(coalesce(p[7], '') || '000', 3)::int;
EXCEPTION WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
  RETURN NULL;
END $$;

-- The arguments of a command as one text (2.1): its JSON array joined by blanks, else the text itself.
CREATE FUNCTION turnlog_command(command TEXT) RETURNS TEXT LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  IF json_typeof(command::json) = 'array' THEN
    RETURN (SELECT coalesce(string_agg(value, ' ' ORDER BY place), '')
      FROM json_array_elements_text(command::json) WITH ORDINALITY AS element (value, place));
  END IF;
  RETURN command;
EXCEPTION WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
  RETURN command;
END $$;

-- Text for searches that ignore case, in every script: lower() knows ASCII only in the C locale, so another collation is
-- taken where the server has one.
DO $$
DECLARE
  taken TEXT;
BEGIN
  SELECT quote_ident(collname) INTO taken FROM pg_collation WHERE collname IN ('und-x-icu', 'pg_c_utf8', 'C.utf8')
    AND collnamespace = 'pg_catalog'::regnamespace ORDER BY array_position('{und-x-icu,pg_c_utf8,C.utf8}', collname::text)
    LIMIT 1;
  EXECUTE format('CREATE FUNCTION turnlog_folded(word TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE '
    'AS %L', format('SELECT lower(word COLLATE pg_catalog.%s) COLLATE "C"', coalesce(taken, '"default"')));
END $$;

-- ---------------------------------------------------------------- guards

CREATE FUNCTION turnlog_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER captured_is_frozen BEFORE UPDATE ON session_events FOR EACH ROW WHEN (OLD.kind = 'captured')
EXECUTE FUNCTION turnlog_refuse('a captured row cannot be changed');

CREATE TRIGGER captured_is_kept BEFORE DELETE ON session_events FOR EACH ROW WHEN (OLD.kind = 'captured')
EXECUTE FUNCTION turnlog_refuse('a captured row cannot be deleted');

CREATE TRIGGER bindings_are_permanent BEFORE UPDATE OF task_id, wave_id, flow_session_id ON agent_sessions FOR EACH ROW
WHEN ((OLD.task_id IS NOT NULL AND NEW.task_id IS DISTINCT FROM OLD.task_id)
  OR (OLD.wave_id IS NOT NULL AND NEW.wave_id IS DISTINCT FROM OLD.wave_id)
  OR (OLD.flow_session_id IS NOT NULL AND NEW.flow_session_id IS DISTINCT FROM OLD.flow_session_id))
EXECUTE FUNCTION turnlog_refuse('a binding to task, wave or flow cannot be changed');

-- What a role that only appends may change in a receipt: who began a turn and which turn a request began, each once.
-- Others than the owner and its members are held to that.
CREATE FUNCTION turnlog_fill_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER') THEN
    RAISE EXCEPTION 'a receipt cannot be changed' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER receipts_are_filled_once BEFORE UPDATE ON session_events FOR EACH ROW
WHEN ((OLD.exec_id IS NOT NULL AND NEW.exec_id IS DISTINCT FROM OLD.exec_id)
  OR (OLD.provider_generation IS NOT NULL AND NEW.provider_generation IS DISTINCT FROM OLD.provider_generation)
  OR (OLD.provider_turn IS NOT NULL AND NEW.provider_turn IS DISTINCT FROM OLD.provider_turn)
  OR (OLD.provider_thread IS NOT NULL AND NEW.provider_thread IS DISTINCT FROM OLD.provider_thread))
EXECUTE FUNCTION turnlog_fill_once();

CREATE FUNCTION turnlog_check_capture() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM session_events WHERE seq = NEW.current_capture AND kind = 'captured'
    AND session_id = NEW.id) THEN
    RAISE EXCEPTION 'current_capture must be a captured row of the same session'
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER current_capture_is_own BEFORE INSERT OR UPDATE OF current_capture, id ON agent_sessions FOR EACH ROW
WHEN (NEW.current_capture IS NOT NULL) EXECUTE FUNCTION turnlog_check_capture();

CREATE FUNCTION turnlog_check_ancestry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM tasks t JOIN projects p ON p.id = t.project_id
    WHERE t.id = NEW.task_id AND p.wave_id = NEW.wave_id) THEN
    RAISE EXCEPTION 'task and wave do not belong together' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER session_ancestry BEFORE INSERT OR UPDATE OF task_id, wave_id ON agent_sessions FOR EACH ROW
WHEN (NEW.task_id IS NOT NULL AND NEW.wave_id IS NOT NULL) EXECUTE FUNCTION turnlog_check_ancestry();

CREATE TRIGGER captured_ancestry BEFORE INSERT ON session_events FOR EACH ROW
WHEN (NEW.kind = 'captured' AND NEW.task_id IS NOT NULL AND NEW.wave_id IS NOT NULL)
EXECUTE FUNCTION turnlog_check_ancestry();
