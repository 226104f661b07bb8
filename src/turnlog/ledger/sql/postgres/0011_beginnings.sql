-- An imported conversation is captured when it is imported, but listed by when it began. What several files tell of it
-- does not depend on which was read first.

-- When the title was given; of a first prompt (rank 0): when the source that tells it began. Unix ms, null = unknown.
ALTER TABLE native_sessions ADD COLUMN title_at BIGINT;
UPDATE native_sessions SET title_at = began_at WHERE title IS NOT NULL AND title_rank = 0;

-- A conversation whose own source would tell more about this one, and was not there: when it comes, this is read again.
ALTER TABLE sources ADD COLUMN wants TEXT COLLATE "C";
CREATE INDEX sources_wanting ON sources (id) WHERE wants IS NOT NULL;

-- A capture without exec in a session that is named after its provider was made by an import (or is of a subagent that a
-- provider opened). What that says is of the captured row alone: it stays true when the conversation is adopted, or
-- handed over to another provider.
CREATE OR REPLACE VIEW captures_fold AS
SELECT c.seq, c.session_id, c.receipt_key AS artifact_key, turnlog_text(c.payload, 'caller_key') AS caller_key,
  CASE WHEN c.exec_id IS NULL AND strpos(c.session_id, turnlog_text(c.payload, 'provider') || ':') = 1
    THEN s.created_at ELSE c.observed_at END AS observed_at,
  c.task_id AS own_task_id, c.wave_id AS own_wave_id,
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

CREATE OR REPLACE FUNCTION turnlog_refold_capture(capture BIGINT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE captures c SET (observed_at, manifest_at, manifest_task_id, manifest_wave_id, published_current, released,
      terminal, terminal_at) = (f.observed_at, f.manifest_at, f.manifest_task_id, f.manifest_wave_id,
      f.published_current, f.released, f.terminal, f.terminal_at)
  FROM (SELECT * FROM captures_fold WHERE seq = capture) f
  WHERE c.seq = capture AND (c.observed_at, c.manifest_at, c.manifest_task_id, c.manifest_wave_id,
      c.published_current, c.released, c.terminal, c.terminal_at)
    IS DISTINCT FROM (f.observed_at, f.manifest_at, f.manifest_task_id, f.manifest_wave_id, f.published_current,
      f.released, f.terminal, f.terminal_at);
END $$;

-- A file that is read later may tell of an earlier beginning.
CREATE FUNCTION turnlog_beginning_changed() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM turnlog_lock_sessions(NEW.id);
  PERFORM turnlog_refold_capture(seq) FROM captures WHERE session_id = NEW.id;
  RETURN NULL;
END $$;

CREATE TRIGGER lists_of_beginning AFTER UPDATE OF created_at ON agent_sessions FOR EACH ROW
WHEN (NEW.created_at <> OLD.created_at) EXECUTE FUNCTION turnlog_beginning_changed();

SELECT turnlog_refold_capture(k.seq) FROM captures k JOIN session_events c ON c.seq = k.seq
  JOIN agent_sessions s ON s.id = c.session_id
WHERE c.exec_id IS NULL AND strpos(c.session_id, turnlog_text(c.payload, 'provider') || ':') = 1
  AND k.observed_at <> s.created_at;
