-- name: tail_place
-- Which ledger this is, as stored and as found; up to which seq rows have no transaction here; the horizon; the last seq.
SELECT (SELECT value FROM ledger_meta WHERE key = 'tail_home'), turnlog_home(),
  (SELECT value::bigint FROM ledger_meta WHERE key = 'tail_moved'), pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
  (SELECT coalesce(max(seq), 0) FROM session_events);

-- name: tail
-- Receipts of all sessions behind a cursor, with the attribution of their origin: first those that were restored, by seq,
-- then by transaction, up to the oldest that is under way.
SELECT r.tx, e.seq, e.session_id, e.provider_thread, e.provider_turn, e.kind,
  CASE WHEN e.kind = 'requested' THEN e.provider_generation ELSE o.provider_generation END,
  CASE WHEN e.kind IN ('captured', 'requested') THEN e.exec_id ELSE o.exec_id END,
  CASE WHEN e.kind IN ('observed', 'captured', 'requested') THEN e.task_id ELSE o.task_id END,
  CASE WHEN e.kind IN ('observed', 'captured', 'requested') THEN e.wave_id ELSE o.wave_id END,
  e.observed_at, convert_to(e.payload, 'UTF8')
FROM (
  (SELECT 0 AS tx, seq FROM session_events WHERE :tx::bigint = 0 AND seq > :seq::bigint AND seq <= :moved::bigint
      AND (:kind::text IS NULL OR kind = :kind::text)
    ORDER BY seq LIMIT :limit::bigint)
  UNION ALL
  (SELECT txid::text::bigint, seq FROM session_events
    WHERE (txid, seq) > (:tx::bigint::text::xid8, CASE WHEN :tx::bigint = 0 THEN 0 ELSE :seq::bigint END)
      AND txid < :horizon::bigint::text::xid8 AND seq > :moved::bigint
      AND (:kind::text IS NULL OR kind = :kind::text)
    ORDER BY txid, seq LIMIT :limit::bigint)
) r
JOIN session_events e ON e.seq = r.seq
LEFT JOIN turns t ON e.kind NOT IN ('observed', 'captured', 'requested') AND t.session_id = e.session_id
  AND t.provider_thread = coalesce(e.provider_thread, '') AND t.provider_turn = coalesce(e.provider_turn, '')
LEFT JOIN session_events o ON o.seq = t.start_seq
ORDER BY r.tx, e.seq LIMIT :limit::bigint;

-- name: tail_of_session
-- The same of one session.
SELECT r.tx, e.seq, e.session_id, e.provider_thread, e.provider_turn, e.kind,
  CASE WHEN e.kind = 'requested' THEN e.provider_generation ELSE o.provider_generation END,
  CASE WHEN e.kind IN ('captured', 'requested') THEN e.exec_id ELSE o.exec_id END,
  CASE WHEN e.kind IN ('observed', 'captured', 'requested') THEN e.task_id ELSE o.task_id END,
  CASE WHEN e.kind IN ('observed', 'captured', 'requested') THEN e.wave_id ELSE o.wave_id END,
  e.observed_at, convert_to(e.payload, 'UTF8')
FROM (
  SELECT CASE WHEN seq <= :moved::bigint THEN 0 ELSE txid::text::bigint END AS tx, seq FROM session_events
  WHERE session_id = :session AND (:kind::text IS NULL OR kind = :kind::text)
    AND CASE WHEN seq <= :moved::bigint THEN :tx::bigint = 0 AND seq > :seq::bigint
      ELSE (txid, seq) > (:tx::bigint::text::xid8, CASE WHEN :tx::bigint = 0 THEN 0 ELSE :seq::bigint END)
        AND txid < :horizon::bigint::text::xid8 END
  ORDER BY 1, 2 LIMIT :limit::bigint
) r
JOIN session_events e ON e.seq = r.seq
LEFT JOIN turns t ON e.kind NOT IN ('observed', 'captured', 'requested') AND t.session_id = e.session_id
  AND t.provider_thread = coalesce(e.provider_thread, '') AND t.provider_turn = coalesce(e.provider_turn, '')
LEFT JOIN session_events o ON o.seq = t.start_seq
ORDER BY r.tx, e.seq;
