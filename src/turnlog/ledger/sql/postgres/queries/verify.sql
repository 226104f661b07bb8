-- name: drift_turns
-- Turn rows that differ from a fresh fold.
SELECT session_id, provider_thread, provider_turn FROM (
  (SELECT * FROM turns EXCEPT SELECT * FROM turns_fold)
  UNION (SELECT * FROM turns_fold EXCEPT SELECT * FROM turns)
) d GROUP BY 1, 2, 3;

-- name: drift_intents
-- Intent rows that differ from a fresh fold.
SELECT seq, session_id FROM (
  (SELECT * FROM intents EXCEPT SELECT * FROM intents_fold)
  UNION (SELECT * FROM intents_fold EXCEPT SELECT * FROM intents)
) d GROUP BY 1, 2;

-- name: drift_releases
-- Release rows that differ from a fresh fold.
SELECT session_id, subject, seq FROM (
  (SELECT * FROM releases EXCEPT SELECT * FROM releases_fold)
  UNION (SELECT * FROM releases_fold EXCEPT SELECT * FROM releases)
) d;

-- name: drift_captures
-- Capture rows whose facts differ from a fresh fold.
SELECT seq, session_id FROM (
  (SELECT seq, session_id, artifact_key, caller_key, observed_at, own_task_id, own_wave_id, manifest_at,
      manifest_task_id, manifest_wave_id, published_current, released, terminal, terminal_at FROM captures
    EXCEPT SELECT * FROM captures_fold)
  UNION (SELECT * FROM captures_fold EXCEPT
    SELECT seq, session_id, artifact_key, caller_key, observed_at, own_task_id, own_wave_id, manifest_at,
      manifest_task_id, manifest_wave_id, published_current, released, terminal, terminal_at FROM captures)
) d GROUP BY 1, 2;

-- name: drift_counts
-- Captures whose counters differ from a fresh count.
SELECT c.seq, c.session_id FROM captures c
LEFT JOIN (SELECT capture, count(*) AS n, count(*) FILTER (WHERE completion_seq IS NULL) AS open,
    count(*) FILTER (WHERE completion_seq IS NULL AND released = 0) AS held, max(completed_at) AS last
  FROM turns_fold WHERE capture IS NOT NULL GROUP BY capture) t ON t.capture = c.seq
LEFT JOIN (SELECT capture, count(*) FILTER (WHERE settled = 0) AS open,
    count(*) FILTER (WHERE settled = 0 AND released = 0) AS held
  FROM intents_fold GROUP BY capture) i ON i.capture = c.seq
WHERE c.turns <> coalesce(t.n, 0) OR c.open_turns <> coalesce(t.open, 0) OR c.held_turns <> coalesce(t.held, 0)
  OR c.last_completed_at IS DISTINCT FROM t.last OR c.open_intents <> coalesce(i.open, 0)
  OR c.held_intents <> coalesce(i.held, 0);

-- name: ungrounded_rows
-- Rows that point at nothing, or at the wrong thing.
SELECT e.seq, e.session_id, CASE WHEN s.id IS NULL THEN 'no such session'
  ELSE 'captured_event is not an input of this session' END
FROM session_events e LEFT JOIN agent_sessions s ON s.id = e.session_id
LEFT JOIN session_events c ON c.seq = e.captured_event
WHERE s.id IS NULL OR (e.captured_event IS NOT NULL
  AND (c.seq IS NULL OR c.kind <> 'captured' OR c.session_id <> e.session_id));

-- name: sessions_without_input
-- Sessions whose current capture is missing.
SELECT s.id FROM agent_sessions s LEFT JOIN session_events c ON c.seq = s.current_capture AND c.kind = 'captured'
WHERE c.seq IS NULL;

-- name: recorded_conflicts
-- Snapshots that contradicted a first receipt (D9).
SELECT seq, session_id, substr(receipt_key, strpos(receipt_key, ':conflict:') + 10) FROM session_events
WHERE kind = 'observed' AND substr(receipt_key, strpos(receipt_key, ':'), 10) = ':conflict:';

-- name: rows_to_check
-- Every row after a cursor, to check payload and key.
SELECT seq, session_id, kind, receipt_key, convert_to(payload, 'UTF8') FROM session_events
WHERE seq > :after ORDER BY seq LIMIT nullif(:limit, -1);
