-- A new ledger at once: what the migrations up to 0014 make of an empty file. Part 2.
-- Written by tools/make_new_ledger.py; do not edit it.

CREATE VIEW intents_fold AS
SELECT seq, session_id, provider_thread, provider_turn, capture, exec_id, settled,
  CASE WHEN settled = 0 AND (
      EXISTS (SELECT 1 FROM agent_sessions s WHERE s.id = i.session_id AND s.completed_at IS NOT NULL)
      OR EXISTS (SELECT 1 FROM execs x WHERE x.id = i.exec_id AND x.completed_at IS NOT NULL)
      OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = '' AND r.subject = 'death:' || i.exec_id)
      OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = i.session_id
        AND r.subject = 'exit:' || i.exec_id AND r.seq > i.seq))
    THEN 1 ELSE 0 END AS released
FROM (
  SELECT q.seq, q.session_id, q.provider_thread, q.provider_turn, q.captured_event AS capture, q.exec_id,
    CASE WHEN EXISTS (SELECT 1 FROM turns t WHERE t.session_id = q.session_id AND t.start_seq IS NOT NULL
        AND t.provider_thread = q.provider_thread AND t.provider_turn = q.provider_turn)
      OR (q.provider_thread IS NULL AND q.provider_turn IS NOT NULL AND EXISTS (SELECT 1 FROM turns t
        WHERE t.session_id = q.session_id AND t.provider_turn = q.provider_turn AND t.start_seq IS NOT NULL))
      OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = q.session_id
        AND r.subject IN ('request:' || q.receipt_key, 'turn:' || q.receipt_key,
          'turn:' || q.provider_thread || ':' || q.provider_turn))
      THEN 1 ELSE 0 END AS settled
  FROM session_events q WHERE q.kind = 'requested'
) i;

CREATE VIEW terminals AS
SELECT seq, session_id, receipt_key,
  CASE WHEN NOT (at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][Tt ][0-9][0-9]:[0-9][0-9]:[0-9][0-9]*'
      AND at NOT GLOB '0000*' AND (offset = 'Z' OR offset GLOB '[+-][01][0-9]:[0-5][0-9]'
        OR offset GLOB '[+-]2[0-3]:[0-5][0-9]')
      AND (fraction = '' OR (fraction GLOB '.[0-9]*' AND substr(fraction, 2) NOT GLOB '*[^0-9]*'))
      AND strftime('%Y-%m-%d %H:%M:%S', plain) = plain) THEN NULL  -- 30 February, second 60
    ELSE (CAST(strftime('%s', plain) AS INTEGER) - CASE WHEN offset = 'Z' THEN 0 ELSE
        CASE substr(offset, 1, 1) WHEN '-' THEN -1 ELSE 1 END
        * (CAST(substr(offset, 2, 2) AS INTEGER) * 3600 + CAST(substr(offset, 5, 2) AS INTEGER) * 60) END) * 1000
      + CAST(substr(substr(fraction, 2) || '000', 1, 3) AS INTEGER) END AS ended_at
FROM (
  SELECT seq, session_id, receipt_key, at, offset, substr(at, 1, 10) || ' ' || substr(at, 12, 8) AS plain,
    substr(at, 20, length(at) - 19 - length(offset)) AS fraction
  FROM (
    SELECT seq, session_id, receipt_key, at,
      CASE WHEN at GLOB '*[Zz]' THEN 'Z' ELSE substr(at, -6) END AS offset
    FROM (
      SELECT seq, session_id, receipt_key, CASE WHEN json_valid(payload) THEN
          CASE WHEN json_type(payload, '$.evidence.schema_version') = 'integer'
            AND json_extract(payload, '$.evidence.schema_version') = 1
            AND json_extract(payload, '$.evidence.outcome') IN ('completed', 'failed', 'interrupted')
            AND json_type(payload, '$.evidence.ended_at') = 'text'
          THEN json_extract(payload, '$.evidence.ended_at') END END AS at
      FROM session_events
      WHERE kind = 'observed' AND coalesce(provider_thread, '') = '' AND coalesce(provider_turn, '') = ''
    )
  )
);

CREATE VIEW waiting_sessions AS
SELECT s.id FROM agent_sessions s
WHERE s.completed_at IS NULL AND (trim(coalesce(s.ready_summary, '')) <> ''
  OR EXISTS (SELECT 1 FROM turns t WHERE t.capture = s.current_capture AND t.completion_seq IS NULL AND t.released = 1)
  OR EXISTS (SELECT 1 FROM intents i WHERE i.session_id = s.id AND i.settled = 0 AND i.released = 1)
  OR (s.driver_exec_id IS NOT NULL AND EXISTS (
    SELECT 1 FROM session_events q WHERE q.captured_event = s.current_capture AND q.kind = 'observed'
    AND q.receipt_key GLOB '*:permission:*:asked' AND NOT EXISTS (
      SELECT 1 FROM session_events a WHERE a.captured_event = q.captured_event AND a.kind = 'observed'
      AND a.receipt_key = substr(q.receipt_key, 1, length(q.receipt_key) - 5) || 'answered'))));

CREATE VIEW refold_capture AS SELECT seq FROM captures;

CREATE VIEW refold_turn AS SELECT session_id, provider_thread, provider_turn FROM turns;

CREATE TRIGGER refold_turn_call INSTEAD OF INSERT ON refold_turn
BEGIN
  DELETE FROM turns WHERE session_id = NEW.session_id AND provider_thread = NEW.provider_thread
    AND provider_turn = NEW.provider_turn AND NOT EXISTS (SELECT 1 FROM session_events
      WHERE session_id = NEW.session_id AND coalesce(provider_thread, '') = NEW.provider_thread
      AND coalesce(provider_turn, '') = NEW.provider_turn AND kind IN ('started', 'usage', 'completed', 'output'));
  INSERT INTO turns SELECT * FROM turns_fold WHERE session_id = NEW.session_id
    AND provider_thread = NEW.provider_thread AND provider_turn = NEW.provider_turn
  ON CONFLICT (session_id, provider_thread, provider_turn) DO UPDATE SET
    (first_at, start_seq, capture, exec_id, task_id, wave_id, completion_seq, completed_at, status, released) =
    (excluded.first_at, excluded.start_seq, excluded.capture, excluded.exec_id, excluded.task_id, excluded.wave_id,
     excluded.completion_seq, excluded.completed_at, excluded.status, excluded.released);
END;

CREATE VIEW refold_intent AS SELECT seq FROM intents;

CREATE TRIGGER refold_intent_call INSTEAD OF INSERT ON refold_intent
BEGIN
  UPDATE intents SET (settled, released) = (SELECT f.settled, f.released FROM intents_fold f WHERE f.seq = NEW.seq)
  WHERE seq = NEW.seq;
END;

CREATE TRIGGER turns_of_content AFTER INSERT ON session_events
WHEN NEW.kind IN ('usage', 'output') AND NOT EXISTS (SELECT 1 FROM turns WHERE session_id = NEW.session_id
  AND provider_thread = coalesce(NEW.provider_thread, '') AND provider_turn = coalesce(NEW.provider_turn, '')
  AND first_at <= NEW.observed_at)
BEGIN
  INSERT INTO turns (session_id, provider_thread, provider_turn, first_at, released)
  VALUES (NEW.session_id, coalesce(NEW.provider_thread, ''), coalesce(NEW.provider_turn, ''), NEW.observed_at,
    EXISTS (SELECT 1 FROM agent_sessions s WHERE s.id = NEW.session_id
        AND (s.completed_at IS NOT NULL OR s.id = s.provider || ':' || s.provider_thread))
      OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = NEW.session_id
        AND r.subject = 'turn:' || coalesce(NEW.provider_thread, '') || ':' || coalesce(NEW.provider_turn, '')))
  ON CONFLICT (session_id, provider_thread, provider_turn)
  DO UPDATE SET first_at = excluded.first_at WHERE excluded.first_at < turns.first_at;
END;

CREATE VIEW added_event AS
SELECT seq, session_id, provider_thread, provider_turn, kind, receipt_key, task_id, observed_at, captured_event
FROM session_events;

CREATE TRIGGER event_added AFTER INSERT ON session_events WHEN NEW.kind NOT IN ('usage', 'output')
BEGIN
  INSERT INTO added_event VALUES (NEW.seq, NEW.session_id, NEW.provider_thread, NEW.provider_turn, NEW.kind,
    NEW.receipt_key, NEW.task_id, NEW.observed_at, NEW.captured_event);
END;

CREATE TRIGGER boundary_added INSTEAD OF INSERT ON added_event WHEN NEW.kind IN ('started', 'completed')
BEGIN
  INSERT INTO refold_turn VALUES (NEW.session_id, coalesce(NEW.provider_thread, ''), coalesce(NEW.provider_turn, ''));
  UPDATE tasks SET started_at = NEW.observed_at WHERE NEW.kind = 'started' AND id = NEW.task_id AND started_at IS NULL;
END;

CREATE TRIGGER requested_added INSTEAD OF INSERT ON added_event WHEN NEW.kind = 'requested'
BEGIN INSERT INTO intents SELECT * FROM intents_fold WHERE seq = NEW.seq; END;

CREATE TRIGGER captured_added INSTEAD OF INSERT ON added_event WHEN NEW.kind = 'captured'
BEGIN
  INSERT INTO captures (seq, session_id, artifact_key, caller_key, observed_at, own_task_id, own_wave_id,
    manifest_at, manifest_task_id, manifest_wave_id, published_current, released, terminal, terminal_at)
  SELECT * FROM captures_fold WHERE seq = NEW.seq;
END;

CREATE TRIGGER observed_added INSTEAD OF INSERT ON added_event
WHEN NEW.kind = 'observed' AND (NEW.receipt_key GLOB '*:manifest.json' OR NEW.receipt_key GLOB '*:terminal.json'
  OR NEW.receipt_key GLOB 'driver:*:exit' OR NEW.receipt_key GLOB '*death:*' OR NEW.receipt_key GLOB '*:superseded:*'
  OR NEW.receipt_key GLOB '*:absorbed:*' OR NEW.receipt_key GLOB '*:refused:*')
BEGIN
  -- An exit names its capture; manifest and terminal are found by key, whatever their captured_event says.
  INSERT INTO refold_capture SELECT seq FROM captures WHERE seq = NEW.captured_event
    OR artifact_key = substr(NEW.receipt_key, 1, length(NEW.receipt_key) - 14);
  INSERT INTO releases SELECT * FROM releases_fold WHERE seq = NEW.seq;
END;

CREATE TRIGGER lists_of_input AFTER UPDATE OF current_capture, input_published ON agent_sessions
WHEN NEW.current_capture IS NOT OLD.current_capture OR NEW.input_published <> OLD.input_published
BEGIN
  INSERT INTO refold_capture SELECT seq FROM captures WHERE seq IN (OLD.current_capture, NEW.current_capture);
END;

CREATE TRIGGER lists_of_session AFTER UPDATE OF completed_at, provider, provider_thread ON agent_sessions
WHEN NEW.completed_at IS NOT OLD.completed_at
  OR (NEW.id = NEW.provider || ':' || NEW.provider_thread) IS NOT (OLD.id = OLD.provider || ':' || OLD.provider_thread)
BEGIN
  INSERT INTO refold_capture SELECT seq FROM captures WHERE session_id = NEW.id;
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE session_id = NEW.id AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE session_id = NEW.id AND settled = 0;
END;

CREATE TRIGGER lists_of_changed_observed AFTER UPDATE ON session_events
WHEN OLD.kind = 'observed' OR NEW.kind = 'observed'
BEGIN
  INSERT INTO refold_capture SELECT seq FROM captures WHERE seq IN (OLD.captured_event, NEW.captured_event)
    OR artifact_key IN (substr(OLD.receipt_key, 1, length(OLD.receipt_key) - 14),
      substr(NEW.receipt_key, 1, length(NEW.receipt_key) - 14));
  DELETE FROM releases WHERE seq IN (OLD.seq, NEW.seq);
  INSERT INTO releases SELECT * FROM releases_fold WHERE seq = NEW.seq;
END;

CREATE TRIGGER lists_of_deleted_observed AFTER DELETE ON session_events WHEN OLD.kind = 'observed'
BEGIN
  INSERT INTO refold_capture SELECT seq FROM captures WHERE seq = OLD.captured_event
    OR artifact_key = substr(OLD.receipt_key, 1, length(OLD.receipt_key) - 14);
  DELETE FROM releases WHERE seq = OLD.seq;
END;

CREATE TRIGGER turns_of_changed AFTER UPDATE ON session_events
WHEN OLD.kind NOT IN ('observed', 'captured') OR NEW.kind NOT IN ('observed', 'captured')
BEGIN
  INSERT INTO refold_turn VALUES (OLD.session_id, coalesce(OLD.provider_thread, ''), coalesce(OLD.provider_turn, '')),
    (NEW.session_id, coalesce(NEW.provider_thread, ''), coalesce(NEW.provider_turn, ''));
END;

CREATE TRIGGER turn_counted AFTER INSERT ON turns
BEGIN
  UPDATE captures SET turns = turns + 1,
    open_turns = open_turns + (NEW.completion_seq IS NULL),
    held_turns = held_turns + (NEW.completion_seq IS NULL AND NEW.released = 0),
    last_completed_at = max(coalesce(last_completed_at, NEW.completed_at),
      coalesce(NEW.completed_at, last_completed_at))
  WHERE seq = NEW.capture;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE settled = 0 AND session_id = NEW.session_id
    AND NEW.start_seq IS NOT NULL AND provider_turn = NEW.provider_turn;
END;

CREATE TRIGGER turn_uncounted AFTER DELETE ON turns
BEGIN
  UPDATE captures SET turns = turns - 1,
    open_turns = open_turns - (OLD.completion_seq IS NULL),
    held_turns = held_turns - (OLD.completion_seq IS NULL AND OLD.released = 0),
    last_completed_at = (SELECT max(completed_at) FROM turns WHERE capture = OLD.capture)
  WHERE seq = OLD.capture;
  INSERT INTO refold_intent SELECT seq FROM session_events WHERE session_id = OLD.session_id AND kind = 'requested'
    AND provider_turn = OLD.provider_turn;
END;

CREATE TRIGGER turn_recounted AFTER UPDATE ON turns
WHEN NEW.capture IS NOT OLD.capture OR NEW.completion_seq IS NOT OLD.completion_seq OR NEW.released <> OLD.released
  OR NEW.start_seq IS NOT OLD.start_seq OR NEW.completed_at IS NOT OLD.completed_at
BEGIN
  UPDATE captures SET turns = turns - 1,
    open_turns = open_turns - (OLD.completion_seq IS NULL),
    held_turns = held_turns - (OLD.completion_seq IS NULL AND OLD.released = 0),
    last_completed_at = CASE WHEN OLD.completed_at IS NULL THEN last_completed_at
      ELSE (SELECT max(completed_at) FROM turns WHERE capture = OLD.capture) END
  WHERE seq = OLD.capture;
  UPDATE captures SET turns = turns + 1,
    open_turns = open_turns + (NEW.completion_seq IS NULL),
    held_turns = held_turns + (NEW.completion_seq IS NULL AND NEW.released = 0),
    last_completed_at = max(coalesce(last_completed_at, NEW.completed_at),
      coalesce(NEW.completed_at, last_completed_at))
  WHERE seq = NEW.capture;
  INSERT INTO refold_intent SELECT seq FROM session_events WHERE session_id = NEW.session_id AND kind = 'requested'
    AND provider_turn = NEW.provider_turn AND NEW.start_seq IS NOT OLD.start_seq;
END;

CREATE TRIGGER intents_of_changed AFTER UPDATE ON session_events WHEN OLD.kind = 'requested' OR NEW.kind = 'requested'
BEGIN
  DELETE FROM intents WHERE seq IN (OLD.seq, NEW.seq);
  INSERT INTO intents SELECT * FROM intents_fold WHERE seq = NEW.seq;
END;

CREATE TRIGGER intents_of_deleted AFTER DELETE ON session_events WHEN OLD.kind = 'requested'
BEGIN DELETE FROM intents WHERE seq = OLD.seq; END;

CREATE TRIGGER intent_counted AFTER INSERT ON intents
BEGIN
  UPDATE captures SET open_intents = open_intents + (NEW.settled = 0),
    held_intents = held_intents + (NEW.settled = 0 AND NEW.released = 0)
  WHERE seq = NEW.capture;
END;

CREATE TRIGGER intent_uncounted AFTER DELETE ON intents
BEGIN
  UPDATE captures SET open_intents = open_intents - (OLD.settled = 0),
    held_intents = held_intents - (OLD.settled = 0 AND OLD.released = 0)
  WHERE seq = OLD.capture;
END;

CREATE TRIGGER intent_recounted AFTER UPDATE OF settled, released ON intents
BEGIN
  UPDATE captures SET open_intents = open_intents - (OLD.settled = 0) + (NEW.settled = 0),
    held_intents = held_intents - (OLD.settled = 0 AND OLD.released = 0) + (NEW.settled = 0 AND NEW.released = 0)
  WHERE seq = NEW.capture;
END;

CREATE TRIGGER exec_released AFTER INSERT ON releases WHEN NEW.subject GLOB 'death:*' OR NEW.subject GLOB 'exit:*'
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE exec_id = substr(NEW.subject, instr(NEW.subject, ':') + 1) AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents
    WHERE exec_id = substr(NEW.subject, instr(NEW.subject, ':') + 1) AND settled = 0;
END;

CREATE TRIGGER exec_unreleased AFTER DELETE ON releases WHEN OLD.subject GLOB 'death:*' OR OLD.subject GLOB 'exit:*'
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE exec_id = substr(OLD.subject, instr(OLD.subject, ':') + 1) AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents
    WHERE exec_id = substr(OLD.subject, instr(OLD.subject, ':') + 1) AND settled = 0;
END;

CREATE TRIGGER turn_released AFTER INSERT ON releases WHEN NEW.subject GLOB 'turn:*' OR NEW.subject GLOB 'request:*'
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns WHERE session_id = NEW.session_id
    AND 'turn:' || provider_thread || ':' || provider_turn = NEW.subject;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE session_id = NEW.session_id AND settled = 0;
END;

CREATE TRIGGER turn_unreleased AFTER DELETE ON releases WHEN OLD.subject GLOB 'turn:*' OR OLD.subject GLOB 'request:*'
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns WHERE session_id = OLD.session_id
    AND 'turn:' || provider_thread || ':' || provider_turn = OLD.subject;
  INSERT INTO refold_intent SELECT seq FROM session_events WHERE session_id = OLD.session_id AND kind = 'requested';
END;

CREATE TRIGGER released_by_exec_end AFTER UPDATE OF completed_at ON execs WHEN NEW.completed_at IS NOT OLD.completed_at
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE exec_id = NEW.id AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE exec_id = NEW.id AND settled = 0;
END;

CREATE TRIGGER released_by_known_exec AFTER INSERT ON execs WHEN NEW.completed_at IS NOT NULL
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE exec_id = NEW.id AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE exec_id = NEW.id AND settled = 0;
END;

CREATE TRIGGER unreleased_by_forgotten_exec AFTER DELETE ON execs WHEN OLD.completed_at IS NOT NULL
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE exec_id = OLD.id AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE exec_id = OLD.id AND settled = 0;
END;

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
, pruned_at INTEGER, origin TEXT, home_id TEXT, wants TEXT) STRICT;

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
, pruned_at INTEGER, title_at INTEGER) STRICT;

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

CREATE TABLE receipt_places (
  seq INTEGER PRIMARY KEY,
  source_id INTEGER NOT NULL,
  "offset" INTEGER NOT NULL,
  call TEXT
) STRICT;

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

CREATE TABLE archive (
  source_id INTEGER NOT NULL REFERENCES sources (id),
  start INTEGER NOT NULL,
  size INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (source_id, start)
) STRICT;
