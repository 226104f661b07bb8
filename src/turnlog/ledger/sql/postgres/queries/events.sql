-- name: insert_native
-- One native receipt; nothing when its key is known already. Only that is no error (here and below): a sequence that a
-- restore left behind gives a seq which is taken, and the receipt would be lost without a word.
INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, observed_at, payload)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session_id, coalesce(provider_thread, ''), coalesce(provider_turn, ''), kind, receipt_key)
  DO NOTHING RETURNING seq;

-- name: insert_natives
-- Many native receipts in this order, as arrays of columns; those whose key is known are not returned.
INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, observed_at, payload)
SELECT session, thread, turn, kind, key, at, payload
FROM unnest(?::text[], ?::text[], ?::text[], ?::text[], ?::text[], ?::bigint[], ?::text[]) WITH ORDINALITY
  AS r (session, thread, turn, kind, key, at, payload, place)
ORDER BY place
ON CONFLICT (session_id, coalesce(provider_thread, ''), coalesce(provider_turn, ''), kind, receipt_key)
  DO NOTHING RETURNING session_id, provider_thread, provider_turn, kind, receipt_key, seq;

-- name: find_receipt
-- The receipt with this key, to compare its text.
SELECT seq, payload FROM session_events
WHERE session_id = :session AND coalesce(provider_thread, '') = coalesce(:thread::text, '')
  AND coalesce(provider_turn, '') = coalesce(:turn::text, '') AND kind = :kind AND receipt_key = :key;

-- name: start_attribution
-- What a start copies: its intent's attribution, else the session's current one (D3, R2.1).
SELECT s.id, q.seq,
  CASE WHEN q.seq IS NULL THEN s.task_id ELSE q.task_id END,
  CASE WHEN q.seq IS NULL THEN s.wave_id ELSE q.wave_id END,
  CASE WHEN q.seq IS NULL THEN s.current_capture ELSE q.captured_event END,
  q.exec_id, q.provider_generation
FROM agent_sessions s
LEFT JOIN session_events q ON q.session_id = s.id AND q.kind = 'requested' AND q.provider_turn = :turn
  AND (q.provider_thread IS NULL OR q.provider_thread = :thread)
WHERE s.id = :session ORDER BY q.seq LIMIT 1;

-- name: insert_started
-- The start of a turn with its frozen attribution.
INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, provider_generation, exec_id,
  task_id, wave_id, observed_at, payload, captured_event)
VALUES (:session, :thread, :turn, 'started', '', :generation, :exec, :task, :wave, :at, :payload, :capture)
ON CONFLICT (session_id, coalesce(provider_thread, ''), coalesce(provider_turn, ''), kind, receipt_key)
  DO NOTHING RETURNING seq;

-- name: start_of_turn
-- The start row of a turn, with who is recorded to have begun it.
SELECT seq, exec_id, provider_generation FROM session_events
WHERE session_id = :session AND coalesce(provider_thread, '') = :thread AND coalesce(provider_turn, '') = :turn
  AND kind = 'started' AND receipt_key = '';

-- name: starts_of_turn_id
-- Start rows with this turn id: on the intent's thread, or on any of the session when it does not know its thread.
SELECT e.seq, e.exec_id, e.provider_generation FROM turns t JOIN session_events e ON e.seq = t.start_seq
WHERE t.session_id = :session AND t.provider_turn = :turn AND (:thread::text IS NULL OR t.provider_thread = :thread::text);

-- name: fill_origin
-- Null to value only (R3.2).
UPDATE session_events SET exec_id = :exec, provider_generation = :generation
WHERE seq = :seq AND (exec_id IS NULL OR exec_id = :exec)
  AND (provider_generation IS NULL OR provider_generation = :generation);

-- name: insert_requested
-- The durable intent, before the request leaves (D3).
INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, provider_generation, exec_id,
  task_id, wave_id, observed_at, payload, captured_event, driver_generation)
SELECT id, :thread::text, :turn::text, 'requested', :request, :provider_generation::bigint, :exec::text, task_id, wave_id,
  :at::bigint, :payload, current_capture, :generation::bigint
FROM agent_sessions WHERE id = :session
ON CONFLICT (session_id, receipt_key) WHERE kind = 'requested' DO NOTHING RETURNING seq;

-- name: find_requested
-- An intent by its request id.
SELECT q.seq, q.provider_thread, q.provider_turn, q.exec_id, q.provider_generation, q.driver_generation, q.payload,
  c.receipt_key
FROM session_events q LEFT JOIN session_events c ON c.seq = q.captured_event
WHERE q.session_id = :session AND q.kind = 'requested' AND q.receipt_key = :request;

-- name: link_requested
-- The turn of an intent goes from null to a value once; so does its thread.
UPDATE session_events SET provider_turn = :turn, provider_thread = coalesce(provider_thread, :thread)
WHERE seq = :seq AND provider_turn IS NULL;

-- name: outstanding_intents
-- Intents without start, refusal or absorption (D4).
SELECT q.receipt_key, q.provider_thread, q.provider_turn, q.seq, q.exec_id, q.provider_generation, q.driver_generation
FROM intents i JOIN session_events q ON q.seq = i.seq WHERE i.session_id = :session AND i.settled = 0 ORDER BY i.seq;

-- name: own_request_ids
-- Every request id of ours in a session on a thread, or on one that was not known yet.
SELECT receipt_key, provider_turn FROM session_events WHERE session_id = :session AND kind = 'requested'
  AND (provider_thread IS NULL OR provider_thread = :thread) ORDER BY seq;

-- name: capture_by_key
-- The capture row with this artifact key.
SELECT seq, session_id, artifact_key FROM captures WHERE artifact_key = :key;

-- name: capture_of_turn
-- The artifact key of the capture a turn belongs to, else of the session's current capture.
SELECT coalesce(c.receipt_key, k.receipt_key) FROM agent_sessions s
LEFT JOIN turns t ON t.session_id = s.id AND t.provider_thread = :thread AND t.provider_turn = :turn
LEFT JOIN session_events c ON c.seq = t.capture
LEFT JOIN session_events k ON k.seq = s.current_capture
WHERE s.id = :session;

-- name: insert_observed
-- An observation on a capture.
INSERT INTO session_events (session_id, kind, receipt_key, exec_id, task_id, wave_id, observed_at, payload, captured_event)
VALUES (:session, 'observed', :key, :exec, :task, :wave, :at, :payload, :capture)
ON CONFLICT (session_id, coalesce(provider_thread, ''), coalesce(provider_turn, ''), kind, receipt_key)
  DO NOTHING RETURNING seq;

-- name: history
-- All rows of a session in order, with the attribution of their origin (3.5).
SELECT e.seq, e.session_id, e.provider_thread, e.provider_turn, e.kind,
  CASE WHEN e.kind = 'requested' THEN e.provider_generation ELSE o.provider_generation END,
  CASE WHEN e.kind IN ('captured', 'requested') THEN e.exec_id ELSE o.exec_id END,
  CASE WHEN e.kind IN ('observed', 'captured', 'requested') THEN e.task_id ELSE o.task_id END,
  CASE WHEN e.kind IN ('observed', 'captured', 'requested') THEN e.wave_id ELSE o.wave_id END,
  e.observed_at, convert_to(e.payload, 'UTF8')
FROM session_events e
LEFT JOIN turns t ON e.kind NOT IN ('observed', 'captured', 'requested') AND t.session_id = e.session_id
  AND t.provider_thread = coalesce(e.provider_thread, '') AND t.provider_turn = coalesce(e.provider_turn, '')
LEFT JOIN session_events o ON o.seq = t.start_seq
WHERE e.session_id = :session AND e.seq > :after ORDER BY e.seq LIMIT nullif(:limit, -1);

-- name: input_summary
-- Rows of one capture without conversation text (R5.4 to R5.9); the text filter runs before a payload is read. Most are
-- usage: where the last column names the start of their turn, they do not repeat what that row says.
SELECT e.seq, CASE WHEN e.start IS NULL THEN e.session_id END, CASE WHEN e.start IS NULL THEN e.provider_thread END,
  CASE WHEN e.start IS NULL THEN e.provider_turn END, CASE WHEN e.start IS NULL THEN e.kind END,
  CASE WHEN e.start IS NULL THEN e.provider_generation END, CASE WHEN e.start IS NULL THEN e.exec_id END,
  CASE WHEN e.start IS NULL THEN e.task_id END, CASE WHEN e.start IS NULL THEN e.wave_id END, e.observed_at,
  convert_to(e.payload, 'UTF8'), e.start
FROM (
  SELECT x.seq, x.session_id, x.provider_thread, x.provider_turn, x.kind, NULL::bigint AS provider_generation,
    NULL::text AS exec_id, x.task_id, x.wave_id, x.observed_at, x.payload, NULL::bigint AS start
  FROM captures c JOIN session_events x ON x.session_id = c.session_id
    AND coalesce(x.provider_thread, '') = '' AND coalesce(x.provider_turn, '') = '' AND x.kind = 'observed'
    AND x.receipt_key >= c.artifact_key || ':' AND x.receipt_key < c.artifact_key || ';'
  WHERE c.artifact_key = :key AND NOT turnlog_is_conversation(x.payload)
  UNION ALL
  SELECT x.seq, x.session_id, x.provider_thread, x.provider_turn, x.kind, o.provider_generation, o.exec_id,
    o.task_id, o.wave_id, x.observed_at, x.payload, CASE WHEN x.kind = 'usage' AND o.kind = 'started'
      AND o.session_id = x.session_id AND o.provider_thread = x.provider_thread AND o.provider_turn = x.provider_turn
      THEN o.seq END
  FROM captures c JOIN turns t ON t.capture = c.seq LEFT JOIN session_events o ON o.seq = t.start_seq
    JOIN session_events x ON x.session_id = t.session_id AND coalesce(x.provider_thread, '') = t.provider_thread
    AND coalesce(x.provider_turn, '') = t.provider_turn AND x.kind IN ('started', 'usage', 'completed', 'output')
  WHERE c.artifact_key = :key
) e
WHERE ((:wave::text IS NULL OR e.wave_id IN (SELECT id FROM wave_addresses WHERE id = :wave::text OR slug = :wave::text))
  AND (:project::text IS NULL OR e.task_id IN (SELECT k.id FROM tasks k JOIN projects p ON p.id = k.project_id
        WHERE p.id = :project::text OR p.project_slug = :project::text OR p.external_project_id = :project::text))
  AND (:task::text IS NULL OR e.task_id IN (SELECT id FROM tasks WHERE id = :task::text
        OR issue_identifier = :task::text OR external_issue_id = :task::text)))
OR (e.kind = 'observed' AND coalesce(turnlog_text(e.payload, 'source'), '')
  IN ('manifest.json', 'runs', 'terminal.json'))
ORDER BY e.seq;

-- name: orphaned_history
-- Native rows of exactly one (thread, turn) whose origin has no capture (R5.10).
SELECT e.seq, e.session_id, e.provider_thread, e.provider_turn, e.kind, o.provider_generation, o.exec_id, o.task_id,
  o.wave_id, e.observed_at, convert_to(e.payload, 'UTF8')
FROM session_events e
LEFT JOIN turns t ON t.session_id = e.session_id AND t.provider_thread = coalesce(e.provider_thread, '')
  AND t.provider_turn = coalesce(e.provider_turn, '')
LEFT JOIN session_events o ON o.seq = t.start_seq
WHERE e.session_id = :session AND coalesce(e.provider_thread, '') = coalesce(:thread::text, '')
  AND coalesce(e.provider_turn, '') = coalesce(:turn::text, '')
  AND e.kind IN ('started', 'usage', 'completed', 'output') AND o.captured_event IS NULL
  AND (:wave::text IS NULL OR o.wave_id IN (SELECT id FROM wave_addresses WHERE id = :wave::text OR slug = :wave::text))
  AND (:project::text IS NULL OR o.task_id IN (SELECT k.id FROM tasks k JOIN projects p ON p.id = k.project_id
        WHERE p.id = :project::text OR p.project_slug = :project::text OR p.external_project_id = :project::text))
  AND (:task::text IS NULL OR o.task_id IN (SELECT id FROM tasks WHERE id = :task::text
        OR issue_identifier = :task::text OR external_issue_id = :task::text))
ORDER BY e.seq;

-- name: input_evidence
-- Payloads of the recorder's events, text included, in ordinal order (R5.7). A key without a number sorts as zero.
SELECT e.seq, convert_to(e.payload, 'UTF8') FROM captures c
JOIN session_events e ON e.session_id = c.session_id AND coalesce(e.provider_thread, '') = ''
  AND coalesce(e.provider_turn, '') = '' AND e.kind = 'observed'
  AND e.receipt_key >= c.artifact_key || ':events.jsonl:' AND e.receipt_key < c.artifact_key || ':events.jsonl;'
WHERE c.artifact_key = :key
ORDER BY coalesce(substring(substr(e.receipt_key, length(c.artifact_key) + 15) FROM '^[0-9]{1,30}'), '0')::numeric, e.seq;

-- name: predecessor_turn
-- The turn of the last native row before a start on the same thread (D5; intents do not count, D4): a walk back by seq
-- that ends at the first.
SELECT e.provider_turn, t.completion_seq FROM (
  SELECT session_id, provider_thread, provider_turn FROM session_events
  WHERE session_id = :session AND seq < :start AND provider_thread = :thread AND provider_turn <> :turn
    AND kind IN ('started', 'usage', 'completed', 'output')
  ORDER BY seq DESC LIMIT 1
) e
JOIN turns t ON t.session_id = e.session_id AND t.provider_thread = e.provider_thread
  AND t.provider_turn = e.provider_turn;

-- name: turn_rows_before
-- The native rows of one turn before a seq.
SELECT e.seq, e.session_id, e.provider_thread, e.provider_turn, e.kind, o.provider_generation, o.exec_id, o.task_id,
  o.wave_id, e.observed_at, convert_to(e.payload, 'UTF8')
FROM session_events e
LEFT JOIN turns t ON t.session_id = e.session_id AND t.provider_thread = :thread AND t.provider_turn = :turn
LEFT JOIN session_events o ON o.seq = t.start_seq
WHERE e.session_id = :session AND coalesce(e.provider_thread, '') = :thread AND coalesce(e.provider_turn, '') = :turn
  AND e.kind IN ('started', 'usage', 'completed', 'output') AND e.seq < :before
ORDER BY e.seq;

-- name: answer_turns
-- Turns begun under a capture with their completion and output, newest completion first (3.13).
SELECT t.provider_thread, t.provider_turn, t.start_seq, t.completion_seq, t.status, out.seq,
  convert_to(out.payload, 'UTF8')
FROM captures c JOIN turns t ON t.capture = c.seq
LEFT JOIN session_events out ON out.session_id = t.session_id AND coalesce(out.provider_thread, '') = t.provider_thread
  AND coalesce(out.provider_turn, '') = t.provider_turn AND out.kind = 'output' AND out.receipt_key = ''
WHERE c.artifact_key = :key ORDER BY t.completion_seq DESC NULLS LAST;

-- name: open_turns
-- Turns of ours that began and have no completion; superseded ones are settled (D19).
SELECT t.provider_thread, t.provider_turn FROM turns t
WHERE t.session_id = :session AND t.exec_id IS NOT NULL AND t.completion_seq IS NULL AND NOT EXISTS (
  SELECT 1 FROM releases r WHERE r.session_id = t.session_id
  AND r.subject = 'turn:' || t.provider_thread || ':' || t.provider_turn)
ORDER BY t.start_seq;

-- name: unfinished_sessions
-- Sessions with turns or requests of ours without an end, except turns already found lost.
SELECT DISTINCT session_id FROM (
  SELECT t.session_id FROM turns t WHERE t.exec_id IS NOT NULL AND t.completion_seq IS NULL
    AND NOT EXISTS (SELECT 1 FROM releases r WHERE r.session_id = t.session_id
      AND r.subject = 'turn:' || t.provider_thread || ':' || t.provider_turn)
    AND NOT EXISTS (SELECT 1 FROM session_events e WHERE e.captured_event = t.capture AND e.kind = 'observed'
      AND substr(e.receipt_key, strpos(e.receipt_key, ':') + 1) = 'lost:' || t.provider_thread || ':' || t.provider_turn)
  UNION
  SELECT i.session_id FROM intents i JOIN session_events q ON q.seq = i.seq WHERE i.settled = 0
    AND NOT EXISTS (SELECT 1 FROM session_events e WHERE e.session_id = i.session_id
      AND coalesce(e.provider_thread, '') = '' AND coalesce(e.provider_turn, '') = '' AND e.kind = 'observed'
      AND substr(e.receipt_key, strpos(e.receipt_key, ':') + 1)
        = 'lost:' || q.provider_thread || ':' || coalesce(q.provider_turn, q.receipt_key))
) u ORDER BY session_id;

-- name: open_questions
-- Permission questions of the current input without an answer: (key after the artifact key, payload of the asking).
SELECT substr(q.receipt_key, strpos(q.receipt_key, ':') + 1), q.payload
FROM agent_sessions s JOIN session_events q ON q.captured_event = s.current_capture AND q.kind = 'observed'
WHERE s.id = :session AND q.receipt_key LIKE '%:permission:%:asked' AND NOT EXISTS (
  SELECT 1 FROM session_events a WHERE a.captured_event = q.captured_event AND a.kind = 'observed'
  AND a.receipt_key = left(q.receipt_key, -5) || 'answered')
ORDER BY q.seq;
