-- What lists read: turns, intents, captures and releases, kept by triggers. Triggers use only old built-in functions,
-- so any SQLite client from 3.37 may repair the facts and the lists follow.
-- Each table has a view <name>_fold that computes the same rows from the facts; triggers and `verify` share it.

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
  listed INTEGER GENERATED ALWAYS AS (manifest_at IS NOT NULL OR published_current = 1 OR turns > 0) VIRTUAL,
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
CREATE INDEX captures_by_session ON captures (session_id, seq);
CREATE INDEX captures_by_caller ON captures (caller_key) WHERE caller_key IS NOT NULL;
CREATE INDEX captures_held ON captures (started_at DESC, artifact_key DESC) WHERE listed = 1 AND held = 1;
CREATE INDEX captures_settled ON captures (started_at DESC, artifact_key DESC) WHERE listed = 1 AND held = 0;
CREATE INDEX captures_ended ON captures (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX captures_by_task ON captures (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX captures_by_wave ON captures (wave_id) WHERE wave_id IS NOT NULL;

-- What an observation key releases: an exit of its exec, a recorded death, a turn or request that will never
-- complete by itself (D13, D19), a refused request (D4). Keys are `<subject>` or `<artifact>:<subject>`.
CREATE VIEW releases_fold AS
SELECT
  CASE WHEN subject LIKE 'death:%' THEN '' ELSE session_id END AS session_id,
  CASE WHEN subject LIKE 'death:%' THEN subject
    WHEN subject LIKE 'driver:%' THEN 'exit:' || exec_id
    ELSE substr(subject, instr(subject, ':') + 1) END AS subject,
  seq
FROM (
  SELECT session_id, exec_id, seq,
    CASE WHEN captured_event IS NOT NULL AND receipt_key NOT LIKE 'driver:%' AND receipt_key NOT LIKE 'death:%'
      THEN substr(receipt_key, instr(receipt_key, ':') + 1) ELSE receipt_key END AS subject
  FROM session_events WHERE kind = 'observed'
)
WHERE (subject LIKE 'driver:%:exit' AND exec_id IS NOT NULL)
  OR subject LIKE 'death:%' OR subject LIKE 'superseded:%' OR subject LIKE 'absorbed:%' OR subject LIKE 'refused:%';

CREATE VIEW turns_fold AS
SELECT g.session_id, g.provider_thread, g.provider_turn, g.first_at, g.start_seq,
  o.captured_event AS capture, o.exec_id, o.task_id, o.wave_id, g.completion_seq, c.observed_at AS completed_at,
  CASE WHEN json_valid(c.payload) THEN
    CASE WHEN json_type(c.payload, '$.status') = 'text' THEN json_extract(c.payload, '$.status') END END AS status,
  CASE WHEN g.completion_seq IS NULL AND (
      EXISTS (SELECT 1 FROM agent_sessions s WHERE s.id = g.session_id AND s.completed_at IS NOT NULL)
      OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = g.session_id
        AND r.subject = g.provider_thread || ':' || g.provider_turn)
      OR (o.exec_id IS NOT NULL AND (
        EXISTS (SELECT 1 FROM execs x WHERE x.id = o.exec_id AND x.completed_at IS NOT NULL)
        OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = '' AND r.subject = 'death:' || o.exec_id)
        OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = g.session_id AND r.subject = 'exit:' || o.exec_id
          AND r.seq > coalesce((SELECT min(q.seq) FROM session_events q WHERE q.session_id = g.session_id
            AND q.kind = 'requested' AND q.provider_turn = g.provider_turn), g.start_seq)))))
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
    CASE WHEN EXISTS (SELECT 1 FROM turns t WHERE t.session_id = q.session_id AND q.provider_turn IS NOT NULL
        AND t.provider_thread = q.provider_thread AND t.provider_turn = q.provider_turn AND t.start_seq IS NOT NULL)
      OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = q.session_id
        AND r.subject IN (q.receipt_key, q.provider_thread || ':' || q.provider_turn))
      THEN 1 ELSE 0 END AS settled
  FROM session_events q WHERE q.kind = 'requested'
) i;

CREATE VIEW captures_fold AS
SELECT c.seq, c.session_id, c.receipt_key AS artifact_key,
  CASE WHEN json_valid(c.payload) THEN json_extract(c.payload, '$.caller_key') END AS caller_key,
  c.observed_at, c.task_id AS own_task_id, c.wave_id AS own_wave_id,
  m.observed_at AS manifest_at, m.task_id AS manifest_task_id, m.wave_id AS manifest_wave_id,
  CASE WHEN s.current_capture = c.seq AND s.input_published = 1 THEN 1 ELSE 0 END AS published_current,
  CASE WHEN s.completed_at IS NOT NULL OR EXISTS (SELECT 1 FROM session_events x WHERE x.captured_event = c.seq
    AND x.kind = 'observed' AND x.receipt_key LIKE 'driver:%:exit') THEN 1 ELSE 0 END AS released,
  CASE WHEN e.seq IS NULL THEN NULL WHEN e.ended IS NOT NULL THEN 'valid' ELSE 'invalid' END AS terminal,
  e.ended AS terminal_at
FROM session_events c
JOIN agent_sessions s ON s.id = c.session_id
LEFT JOIN session_events m ON m.session_id = c.session_id AND coalesce(m.provider_thread, '') = ''
  AND coalesce(m.provider_turn, '') = '' AND m.kind = 'observed' AND m.receipt_key = c.receipt_key || ':manifest.json'
LEFT JOIN (
  SELECT seq, session_id, receipt_key,
    CASE WHEN json_valid(payload) THEN
      CASE WHEN json_extract(payload, '$.evidence.schema_version') = 1
        AND json_extract(payload, '$.evidence.outcome') IN ('completed', 'failed', 'interrupted')
        AND json_extract(payload, '$.evidence.ended_at') GLOB '????-??-??[Tt ]??:??:??*[Zz0-9]'
      THEN CAST(round((julianday(json_extract(payload, '$.evidence.ended_at')) - 2440587.5) * 86400000.0) AS INTEGER)
      END END AS ended
  FROM session_events
  WHERE kind = 'observed' AND coalesce(provider_thread, '') = '' AND coalesce(provider_turn, '') = ''
) e ON e.session_id = c.session_id AND e.receipt_key = c.receipt_key || ':terminal.json'
WHERE c.kind = 'captured';

-- Captures: the row follows the facts; the turn and intent counters are kept by the triggers on turns and intents.
CREATE TRIGGER captures_of_captured AFTER INSERT ON session_events WHEN NEW.kind = 'captured'
BEGIN
  INSERT INTO captures (seq, session_id, artifact_key, caller_key, observed_at, own_task_id, own_wave_id,
    manifest_at, manifest_task_id, manifest_wave_id, published_current, released, terminal, terminal_at)
  SELECT seq, session_id, artifact_key, caller_key, observed_at, own_task_id, own_wave_id,
    manifest_at, manifest_task_id, manifest_wave_id, published_current, released, terminal, terminal_at
  FROM captures_fold WHERE seq = NEW.seq;
END;

CREATE TRIGGER captures_of_session AFTER UPDATE OF current_capture, input_published, completed_at ON agent_sessions
WHEN NEW.current_capture IS NOT OLD.current_capture OR NEW.input_published <> OLD.input_published
  OR NEW.completed_at IS NOT OLD.completed_at
BEGIN
  UPDATE captures SET (published_current, released) =
    (SELECT f.published_current, f.released FROM captures_fold f WHERE f.seq = captures.seq)
  WHERE seq IN (OLD.current_capture, NEW.current_capture);
  UPDATE captures SET released = (SELECT f.released FROM captures_fold f WHERE f.seq = captures.seq)
  WHERE session_id = NEW.id AND NEW.completed_at IS NOT OLD.completed_at;
  UPDATE turns SET released = (SELECT f.released FROM turns_fold f WHERE f.session_id = turns.session_id
      AND f.provider_thread = turns.provider_thread AND f.provider_turn = turns.provider_turn)
  WHERE session_id = NEW.id AND NEW.completed_at IS NOT OLD.completed_at;
  UPDATE intents SET released = (SELECT f.released FROM intents_fold f WHERE f.seq = intents.seq)
  WHERE session_id = NEW.id AND NEW.completed_at IS NOT OLD.completed_at;
END;

CREATE TRIGGER captures_of_observed AFTER INSERT ON session_events
WHEN NEW.kind = 'observed' AND NEW.captured_event IS NOT NULL AND (NEW.receipt_key LIKE '%:manifest.json'
  OR NEW.receipt_key LIKE '%:terminal.json' OR NEW.receipt_key LIKE 'driver:%:exit')
BEGIN
  UPDATE captures SET (manifest_at, manifest_task_id, manifest_wave_id, released, terminal, terminal_at) =
    (SELECT manifest_at, manifest_task_id, manifest_wave_id, released, terminal, terminal_at
     FROM captures_fold f WHERE f.seq = captures.seq)
  WHERE seq = NEW.captured_event;
END;

CREATE TRIGGER captures_of_changed_observed AFTER UPDATE ON session_events WHEN NEW.kind = 'observed'
BEGIN
  UPDATE captures SET (manifest_at, manifest_task_id, manifest_wave_id, released, terminal, terminal_at) =
    (SELECT manifest_at, manifest_task_id, manifest_wave_id, released, terminal, terminal_at
     FROM captures_fold f WHERE f.seq = captures.seq)
  WHERE seq IN (NEW.captured_event, OLD.captured_event);
END;

CREATE TRIGGER captures_of_deleted_observed AFTER DELETE ON session_events WHEN OLD.kind = 'observed'
BEGIN
  UPDATE captures SET (manifest_at, manifest_task_id, manifest_wave_id, released, terminal, terminal_at) =
    (SELECT manifest_at, manifest_task_id, manifest_wave_id, released, terminal, terminal_at
     FROM captures_fold f WHERE f.seq = captures.seq)
  WHERE seq = OLD.captured_event;
  DELETE FROM releases WHERE seq = OLD.seq;
END;

-- Turns: a usage or output row only makes sure the group exists; starts and completions are folded again.
CREATE TRIGGER turns_of_content AFTER INSERT ON session_events WHEN NEW.kind IN ('usage', 'output')
BEGIN
  INSERT INTO turns (session_id, provider_thread, provider_turn, first_at, released)
  VALUES (NEW.session_id, coalesce(NEW.provider_thread, ''), coalesce(NEW.provider_turn, ''), NEW.observed_at,
    EXISTS (SELECT 1 FROM agent_sessions s WHERE s.id = NEW.session_id AND s.completed_at IS NOT NULL)
      OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = NEW.session_id
        AND r.subject = coalesce(NEW.provider_thread, '') || ':' || coalesce(NEW.provider_turn, '')))
  ON CONFLICT (session_id, provider_thread, provider_turn)
  DO UPDATE SET first_at = excluded.first_at WHERE excluded.first_at < turns.first_at;
END;

CREATE TRIGGER turns_of_boundary AFTER INSERT ON session_events WHEN NEW.kind IN ('started', 'completed')
BEGIN
  INSERT INTO turns (session_id, provider_thread, provider_turn, first_at, start_seq, capture, exec_id, task_id,
    wave_id, completion_seq, completed_at, status, released)
  SELECT * FROM turns_fold WHERE session_id = NEW.session_id
    AND provider_thread = coalesce(NEW.provider_thread, '') AND provider_turn = coalesce(NEW.provider_turn, '')
  ON CONFLICT (session_id, provider_thread, provider_turn) DO UPDATE SET
    (first_at, start_seq, capture, exec_id, task_id, wave_id, completion_seq, completed_at, status, released) =
    (excluded.first_at, excluded.start_seq, excluded.capture, excluded.exec_id, excluded.task_id, excluded.wave_id,
     excluded.completion_seq, excluded.completed_at, excluded.status, excluded.released);
END;

CREATE TRIGGER turns_of_changed AFTER UPDATE ON session_events
WHEN NEW.kind IN ('started', 'usage', 'completed', 'output') OR OLD.kind IN ('started', 'usage', 'completed', 'output')
BEGIN
  DELETE FROM turns WHERE session_id = OLD.session_id AND provider_thread = coalesce(OLD.provider_thread, '')
    AND provider_turn = coalesce(OLD.provider_turn, '');
  DELETE FROM turns WHERE session_id = NEW.session_id AND provider_thread = coalesce(NEW.provider_thread, '')
    AND provider_turn = coalesce(NEW.provider_turn, '');
  INSERT INTO turns SELECT * FROM turns_fold WHERE session_id = NEW.session_id
    AND provider_thread = coalesce(NEW.provider_thread, '') AND provider_turn = coalesce(NEW.provider_turn, '');
  INSERT OR IGNORE INTO turns SELECT * FROM turns_fold WHERE session_id = OLD.session_id
    AND provider_thread = coalesce(OLD.provider_thread, '') AND provider_turn = coalesce(OLD.provider_turn, '');
END;

CREATE TRIGGER turns_of_deleted AFTER DELETE ON session_events
WHEN OLD.kind IN ('started', 'usage', 'completed', 'output')
BEGIN
  DELETE FROM turns WHERE session_id = OLD.session_id AND provider_thread = coalesce(OLD.provider_thread, '')
    AND provider_turn = coalesce(OLD.provider_turn, '');
  INSERT INTO turns SELECT * FROM turns_fold WHERE session_id = OLD.session_id
    AND provider_thread = coalesce(OLD.provider_thread, '') AND provider_turn = coalesce(OLD.provider_turn, '');
END;

CREATE TRIGGER turn_counted AFTER INSERT ON turns
BEGIN
  UPDATE captures SET turns = turns + 1,
    open_turns = open_turns + (NEW.completion_seq IS NULL),
    held_turns = held_turns + (NEW.completion_seq IS NULL AND NEW.released = 0),
    last_completed_at = max(coalesce(last_completed_at, NEW.completed_at), coalesce(NEW.completed_at, last_completed_at))
  WHERE seq = NEW.capture;
  UPDATE intents SET settled = 1, released = 0 WHERE settled = 0 AND session_id = NEW.session_id AND NEW.start_seq IS NOT NULL
    AND provider_thread = NEW.provider_thread AND provider_turn = NEW.provider_turn;
END;

CREATE TRIGGER turn_uncounted AFTER DELETE ON turns WHEN OLD.capture IS NOT NULL
BEGIN
  UPDATE captures SET turns = turns - 1,
    open_turns = open_turns - (OLD.completion_seq IS NULL),
    held_turns = held_turns - (OLD.completion_seq IS NULL AND OLD.released = 0),
    last_completed_at = (SELECT max(completed_at) FROM turns WHERE capture = OLD.capture)
  WHERE seq = OLD.capture;
END;

CREATE TRIGGER turn_recounted AFTER UPDATE OF start_seq, capture, completion_seq, completed_at, released ON turns
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
    last_completed_at = max(coalesce(last_completed_at, NEW.completed_at), coalesce(NEW.completed_at, last_completed_at))
  WHERE seq = NEW.capture;
  UPDATE intents SET settled = 1, released = 0 WHERE settled = 0 AND session_id = NEW.session_id AND NEW.start_seq IS NOT NULL
    AND provider_thread = NEW.provider_thread AND provider_turn = NEW.provider_turn;
END;

-- Intents (D4)
CREATE TRIGGER intents_of_requested AFTER INSERT ON session_events WHEN NEW.kind = 'requested'
BEGIN INSERT INTO intents SELECT * FROM intents_fold WHERE seq = NEW.seq; END;

CREATE TRIGGER intents_of_accepted AFTER UPDATE ON session_events WHEN NEW.kind = 'requested'
BEGIN
  DELETE FROM intents WHERE seq = OLD.seq;
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

-- Releases (D13): they come and go with their observation.
CREATE TRIGGER releases_of_observed AFTER INSERT ON session_events
WHEN NEW.kind = 'observed' AND (NEW.receipt_key LIKE 'driver:%:exit' OR NEW.receipt_key LIKE '%death:%'
  OR NEW.receipt_key LIKE '%superseded:%' OR NEW.receipt_key LIKE '%absorbed:%' OR NEW.receipt_key LIKE '%refused:%')
BEGIN INSERT INTO releases SELECT * FROM releases_fold WHERE seq = NEW.seq; END;

CREATE TRIGGER released AFTER INSERT ON releases
BEGIN
  UPDATE turns SET released = 1 WHERE completion_seq IS NULL AND released = 0 AND (
    (NEW.session_id = '' AND exec_id = substr(NEW.subject, 7))
    OR (session_id = NEW.session_id AND (provider_thread || ':' || provider_turn = NEW.subject
      OR ('exit:' || exec_id = NEW.subject))))
    AND (SELECT f.released FROM turns_fold f WHERE f.session_id = turns.session_id
      AND f.provider_thread = turns.provider_thread AND f.provider_turn = turns.provider_turn) = 1;
  UPDATE intents SET (settled, released) = (SELECT f.settled, f.released FROM intents_fold f WHERE f.seq = intents.seq)
  WHERE settled = 0 AND (session_id = NEW.session_id OR (NEW.session_id = '' AND exec_id = substr(NEW.subject, 7)));
END;

CREATE TRIGGER unreleased AFTER DELETE ON releases
BEGIN
  UPDATE turns SET released = (SELECT f.released FROM turns_fold f WHERE f.session_id = turns.session_id
      AND f.provider_thread = turns.provider_thread AND f.provider_turn = turns.provider_turn)
  WHERE completion_seq IS NULL AND (session_id = OLD.session_id OR (OLD.session_id = '' AND exec_id = substr(OLD.subject, 7)));
  UPDATE intents SET (settled, released) = (SELECT f.settled, f.released FROM intents_fold f WHERE f.seq = intents.seq)
  WHERE session_id = OLD.session_id OR (OLD.session_id = '' AND exec_id = substr(OLD.subject, 7));
END;

CREATE TRIGGER released_by_exec_end AFTER UPDATE OF completed_at ON execs WHEN NEW.completed_at IS NOT OLD.completed_at
BEGIN
  UPDATE turns SET released = (SELECT f.released FROM turns_fold f WHERE f.session_id = turns.session_id
      AND f.provider_thread = turns.provider_thread AND f.provider_turn = turns.provider_turn)
  WHERE completion_seq IS NULL AND exec_id = NEW.id;
  UPDATE intents SET released = (SELECT f.released FROM intents_fold f WHERE f.seq = intents.seq)
  WHERE settled = 0 AND exec_id = NEW.id;
END;
