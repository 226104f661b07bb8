-- What lists read: turns, intents, captures and releases, kept by triggers (next file). Only old built-in functions are
-- used, so any SQLite client from 3.37 may repair the facts and the lists follow.
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

-- ---------------------------------------------------------------- folds: the same rows, computed from the facts
-- GLOB, not LIKE: LIKE ignores case, and a client may switch that.

-- What an observation releases: `exit:<exec>` in its session, `death:<exec>` everywhere (D13), `turn:<thread>:<turn>`
-- that will never complete by itself (D19), `request:<id>` that was refused (D4). Its key is `driver:<n>:exit`, or
-- `<artifact>:<source>`.
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

-- When the launched command ended, in unix ms; null when the evidence does not say so by the rules that
-- usage/evidence.py has for the record of one input: a list and a record must agree.
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

CREATE VIEW captures_fold AS
SELECT c.seq, c.session_id, c.receipt_key AS artifact_key,
  CASE WHEN json_valid(c.payload) THEN json_extract(c.payload, '$.caller_key') END AS caller_key,
  c.observed_at, c.task_id AS own_task_id, c.wave_id AS own_wave_id,
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

-- Open conversations that wait for a person (R17.3): feedback to read, work whose driver is gone, a question to answer.
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
