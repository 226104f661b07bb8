-- What lists read: turns, intents, captures and releases, kept by triggers (next file). Each table has a view <name>_fold
-- that computes the same rows from the facts; triggers and `verify` share it.

CREATE TABLE releases (
  session_id TEXT COLLATE "C" NOT NULL,
  subject TEXT COLLATE "C" NOT NULL,
  seq BIGINT NOT NULL,
  PRIMARY KEY (session_id, subject, seq)
);
CREATE INDEX releases_by_seq ON releases (seq);
CREATE INDEX releases_by_subject ON releases (subject);

CREATE TABLE turns (
  session_id TEXT COLLATE "C" NOT NULL,
  provider_thread TEXT COLLATE "C" NOT NULL,
  provider_turn TEXT COLLATE "C" NOT NULL,
  first_at BIGINT NOT NULL,
  start_seq BIGINT,
  capture BIGINT,
  exec_id TEXT COLLATE "C",
  task_id TEXT COLLATE "C",
  wave_id TEXT COLLATE "C",
  completion_seq BIGINT,
  completed_at BIGINT,
  status TEXT COLLATE "C",
  released INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (session_id, provider_thread, provider_turn)
);
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
  seq BIGINT PRIMARY KEY,
  session_id TEXT COLLATE "C" NOT NULL,
  provider_thread TEXT COLLATE "C",
  provider_turn TEXT COLLATE "C",
  capture BIGINT,
  exec_id TEXT COLLATE "C",
  settled INTEGER NOT NULL DEFAULT 0,
  released INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX intents_open ON intents (session_id) WHERE settled = 0;
CREATE INDEX intents_open_exec ON intents (exec_id) WHERE settled = 0 AND exec_id IS NOT NULL;
CREATE INDEX intents_by_capture ON intents (capture) WHERE capture IS NOT NULL;

CREATE TABLE captures (
  seq BIGINT PRIMARY KEY,
  session_id TEXT COLLATE "C" NOT NULL,
  artifact_key TEXT COLLATE "C" NOT NULL,
  caller_key TEXT COLLATE "C",
  observed_at BIGINT NOT NULL,
  own_task_id TEXT COLLATE "C",
  own_wave_id TEXT COLLATE "C",
  manifest_at BIGINT,
  manifest_task_id TEXT COLLATE "C",
  manifest_wave_id TEXT COLLATE "C",
  published_current INTEGER NOT NULL DEFAULT 0,
  released INTEGER NOT NULL DEFAULT 0,
  terminal TEXT COLLATE "C" CHECK (terminal IN ('valid', 'invalid')),
  terminal_at BIGINT,
  turns INTEGER NOT NULL DEFAULT 0,
  open_turns INTEGER NOT NULL DEFAULT 0,
  held_turns INTEGER NOT NULL DEFAULT 0,
  open_intents INTEGER NOT NULL DEFAULT 0,
  held_intents INTEGER NOT NULL DEFAULT 0,
  last_completed_at BIGINT,
  started_at BIGINT GENERATED ALWAYS AS (coalesce(manifest_at, observed_at)) STORED,
  task_id TEXT COLLATE "C" GENERATED ALWAYS AS (coalesce(manifest_task_id, own_task_id)) STORED,
  wave_id TEXT COLLATE "C" GENERATED ALWAYS AS (coalesce(manifest_wave_id, own_wave_id)) STORED,
  listed INTEGER GENERATED ALWAYS AS (
    CASE WHEN manifest_at IS NOT NULL OR published_current = 1 OR turns > 0 OR open_intents > 0 THEN 1 ELSE 0 END) STORED,
  ended_at BIGINT GENERATED ALWAYS AS (
    CASE WHEN terminal = 'invalid' OR open_turns > 0 OR open_intents > 0 THEN NULL
      WHEN terminal = 'valid' THEN terminal_at ELSE last_completed_at END) STORED,
  held INTEGER GENERATED ALWAYS AS (
    CASE WHEN open_turns > 0 OR open_intents > 0 THEN CASE WHEN held_turns > 0 OR held_intents > 0 THEN 1 ELSE 0 END
      WHEN terminal = 'valid' THEN 0
      WHEN terminal = 'invalid' OR last_completed_at IS NULL THEN CASE WHEN released = 0 THEN 1 ELSE 0 END
      ELSE 0 END) STORED
);
CREATE UNIQUE INDEX captures_by_key ON captures (artifact_key);
CREATE INDEX captures_by_session ON captures (session_id);
CREATE INDEX captures_by_caller ON captures (caller_key) WHERE caller_key IS NOT NULL;
CREATE INDEX captures_held ON captures (started_at DESC, artifact_key DESC) WHERE listed = 1 AND held = 1;
CREATE INDEX captures_settled ON captures (started_at DESC, artifact_key DESC) WHERE listed = 1 AND held = 0;
CREATE INDEX captures_ended ON captures (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX captures_by_task ON captures (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX captures_by_wave ON captures (wave_id) WHERE wave_id IS NOT NULL;

-- ---------------------------------------------------------------- folds: the same rows, computed from the facts

-- What an observation releases: `exit:<exec>` in its session, `death:<exec>` everywhere (D13), `turn:<thread>:<turn>`
-- that will never complete by itself (D19), `request:<id>` that was refused (D4). Its key is `driver:<n>:exit`, or
-- `<artifact>:<source>`.
CREATE VIEW releases_fold AS
SELECT
  CASE WHEN source LIKE 'death:%' THEN '' ELSE session_id END AS session_id,
  CASE WHEN source LIKE 'death:%' THEN source
    WHEN source LIKE 'driver:%' THEN 'exit:' || exec_id
    WHEN source LIKE 'refused:%' THEN 'request:' || substr(source, 9)
    ELSE 'turn:' || substr(source, strpos(source, ':') + 1) END AS subject,
  seq
FROM (
  SELECT session_id, exec_id, seq,
    CASE WHEN receipt_key LIKE 'driver:%' OR receipt_key LIKE 'death:%' THEN receipt_key
      ELSE substr(receipt_key, strpos(receipt_key, ':') + 1) END AS source
  FROM session_events WHERE kind = 'observed'
) o
WHERE (source LIKE 'driver:%:exit' AND exec_id IS NOT NULL)
  OR source LIKE 'death:%' OR source LIKE 'superseded:%' OR source LIKE 'absorbed:%' OR source LIKE 'refused:%';

CREATE VIEW turns_fold AS
SELECT g.session_id, g.provider_thread, g.provider_turn, g.first_at, g.start_seq,
  o.captured_event AS capture, o.exec_id, o.task_id, o.wave_id, g.completion_seq, c.observed_at AS completed_at,
  turnlog_text(c.payload, 'status') AS status,
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

-- An intent that does not know its thread is settled by its turn on any thread (D3).
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

CREATE VIEW captures_fold AS
SELECT c.seq, c.session_id, c.receipt_key AS artifact_key, turnlog_text(c.payload, 'caller_key') AS caller_key,
  c.observed_at, c.task_id AS own_task_id, c.wave_id AS own_wave_id,
  m.observed_at AS manifest_at, m.task_id AS manifest_task_id, m.wave_id AS manifest_wave_id,
  CASE WHEN s.current_capture = c.seq AND s.input_published = 1 THEN 1 ELSE 0 END AS published_current,
  CASE WHEN s.completed_at IS NOT NULL OR s.id = s.provider || ':' || s.provider_thread
    OR EXISTS (SELECT 1 FROM session_events x WHERE x.captured_event = c.seq
    AND x.kind = 'observed' AND x.receipt_key LIKE 'driver:%:exit') THEN 1 ELSE 0 END AS released,
  CASE WHEN e.seq IS NULL THEN NULL WHEN turnlog_ended_at(e.payload) IS NOT NULL THEN 'valid' ELSE 'invalid' END
    AS terminal,
  turnlog_ended_at(e.payload) AS terminal_at
FROM session_events c
JOIN agent_sessions s ON s.id = c.session_id
LEFT JOIN session_events m ON m.session_id = c.session_id AND coalesce(m.provider_thread, '') = ''
  AND coalesce(m.provider_turn, '') = '' AND m.kind = 'observed' AND m.receipt_key = c.receipt_key || ':manifest.json'
LEFT JOIN session_events e ON e.session_id = c.session_id AND coalesce(e.provider_thread, '') = ''
  AND coalesce(e.provider_turn, '') = '' AND e.kind = 'observed' AND e.receipt_key = c.receipt_key || ':terminal.json'
WHERE c.kind = 'captured';

-- Open conversations that wait for a person (R17.3): feedback to read, work whose driver is gone, a question to answer.
CREATE VIEW waiting_sessions AS
SELECT s.id FROM agent_sessions s
WHERE s.completed_at IS NULL AND (trim(coalesce(s.ready_summary, '')) <> ''
  OR EXISTS (SELECT 1 FROM turns t WHERE t.capture = s.current_capture AND t.completion_seq IS NULL AND t.released = 1)
  OR EXISTS (SELECT 1 FROM intents i WHERE i.session_id = s.id AND i.settled = 0 AND i.released = 1)
  OR (s.driver_exec_id IS NOT NULL AND EXISTS (
    SELECT 1 FROM session_events q WHERE q.captured_event = s.current_capture AND q.kind = 'observed'
    AND q.receipt_key LIKE '%:permission:%:asked' AND NOT EXISTS (
      SELECT 1 FROM session_events a WHERE a.captured_event = q.captured_event AND a.kind = 'observed'
      AND a.receipt_key = left(q.receipt_key, -5) || 'answered'))));
