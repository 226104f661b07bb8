-- name: tail_place
-- Which ledger this is, as stored and as found; up to which seq rows have no transaction here; the horizon; the last seq.
SELECT 'sqlite-' || value, 'sqlite-' || value, 0, 0, (SELECT coalesce(max(seq), 0) FROM session_events)
FROM ledger_meta WHERE key = 'ledger_id';

-- name: tail
-- Receipts of all sessions behind a cursor, with the attribution of their origin. seq is the order of commits.
SELECT 0, e.seq, e.session_id, e.provider_thread, e.provider_turn, e.kind,
  CASE WHEN e.kind = 'requested' THEN e.provider_generation ELSE o.provider_generation END,
  CASE WHEN e.kind IN ('captured', 'requested') THEN e.exec_id ELSE o.exec_id END,
  CASE WHEN e.kind IN ('observed', 'captured', 'requested') THEN e.task_id ELSE o.task_id END,
  CASE WHEN e.kind IN ('observed', 'captured', 'requested') THEN e.wave_id ELSE o.wave_id END,
  e.observed_at, CAST(e.payload AS BLOB)
FROM session_events e
LEFT JOIN turns t ON e.kind NOT IN ('observed', 'captured', 'requested') AND t.session_id = e.session_id
  AND t.provider_thread = coalesce(e.provider_thread, '') AND t.provider_turn = coalesce(e.provider_turn, '')
LEFT JOIN session_events o ON o.seq = t.start_seq
WHERE e.seq > :seq AND (:kind IS NULL OR e.kind = :kind) ORDER BY e.seq LIMIT :limit;

-- name: tail_of_session
-- The same of one session, found by its index.
SELECT 0, e.seq, e.session_id, e.provider_thread, e.provider_turn, e.kind,
  CASE WHEN e.kind = 'requested' THEN e.provider_generation ELSE o.provider_generation END,
  CASE WHEN e.kind IN ('captured', 'requested') THEN e.exec_id ELSE o.exec_id END,
  CASE WHEN e.kind IN ('observed', 'captured', 'requested') THEN e.task_id ELSE o.task_id END,
  CASE WHEN e.kind IN ('observed', 'captured', 'requested') THEN e.wave_id ELSE o.wave_id END,
  e.observed_at, CAST(e.payload AS BLOB)
FROM session_events e INDEXED BY events_by_session
LEFT JOIN turns t ON e.kind NOT IN ('observed', 'captured', 'requested') AND t.session_id = e.session_id
  AND t.provider_thread = coalesce(e.provider_thread, '') AND t.provider_turn = coalesce(e.provider_turn, '')
LEFT JOIN session_events o ON o.seq = t.start_seq
WHERE e.session_id = :session AND e.seq > :seq AND (:kind IS NULL OR e.kind = :kind) ORDER BY e.seq LIMIT :limit;
