-- An imported conversation is captured when it is imported, but listed by when it began. What several files tell of it
-- does not depend on which was read first.

-- When the title was given; of a first prompt (rank 0): when the source that tells it began. Unix ms, null = unknown.
ALTER TABLE native_sessions ADD COLUMN title_at INTEGER;
UPDATE native_sessions SET title_at = began_at WHERE title IS NOT NULL AND title_rank = 0;

-- A conversation whose own source would tell more about this one, and was not there: when it comes, this is read again.
ALTER TABLE sources ADD COLUMN wants TEXT;
CREATE INDEX sources_wanting ON sources (id) WHERE wants IS NOT NULL;

-- A capture without exec in a session that is named after its provider was made by an import (or is of a subagent that a
-- provider opened). What that says is of the captured row alone: it stays true when the conversation is adopted, or
-- handed over to another provider.
DROP VIEW captures_fold;
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

DROP TRIGGER refold_capture_call;
CREATE TRIGGER refold_capture_call INSTEAD OF INSERT ON refold_capture
BEGIN
  UPDATE captures SET (observed_at, manifest_at, manifest_task_id, manifest_wave_id, published_current, released,
      terminal, terminal_at) = (SELECT observed_at, manifest_at, manifest_task_id, manifest_wave_id, published_current,
      released, terminal, terminal_at FROM captures_fold f WHERE f.seq = NEW.seq)
  WHERE seq = NEW.seq;
END;

-- A file that is read later may tell of an earlier beginning.
CREATE TRIGGER lists_of_beginning AFTER UPDATE OF created_at ON agent_sessions WHEN NEW.created_at <> OLD.created_at
BEGIN
  INSERT INTO refold_capture SELECT seq FROM captures WHERE session_id = NEW.id;
END;

INSERT INTO refold_capture SELECT k.seq FROM captures k JOIN session_events c ON c.seq = k.seq
  JOIN agent_sessions s ON s.id = c.session_id
WHERE c.exec_id IS NULL AND json_valid(c.payload)
  AND instr(c.session_id, json_extract(c.payload, '$.provider') || ':') = 1 AND k.observed_at <> s.created_at;
