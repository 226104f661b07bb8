-- name: rollup_cursor
-- Up to where receipts were looked at; nothing when there are no roll-ups yet.
SELECT value::bigint FROM rollup_state WHERE key = 'cursor';

-- name: rollup_end
-- The oldest transaction that was under way before the roll-ups looked: all before it were seen.
SELECT coalesce(nullif(current_setting('turnlog.horizon', true), ''),
  pg_snapshot_xmin(pg_current_snapshot())::text)::bigint;

-- name: rollup_move
-- Move the cursor on.
INSERT INTO rollup_state (key, value) VALUES ('cursor', :cursor::text)
ON CONFLICT (key) DO UPDATE SET value = greatest(rollup_state.value::bigint, excluded.value::bigint)::text;

-- name: rollup_forget
-- Let every roll-up be made again.
DELETE FROM rollup_state WHERE key = 'cursor';

-- name: rollup_changed
-- Sessions with receipts of transactions from the cursor on that a total may depend on; all of them without a cursor.
-- The transactions of restored rows were another server's.
SELECT DISTINCT session_id FROM session_events
WHERE txid >= :cursor::bigint::text::xid8 AND kind NOT IN ('output', 'requested')
  AND (:cursor::bigint = 0 OR seq > (SELECT value::bigint FROM ledger_meta WHERE key = 'tail_moved'));

-- name: rollup_known
-- Sessions that have roll-ups.
SELECT session_id FROM rollup_sessions;

-- name: rollup_mark
-- A session whose roll-ups are out of date.
INSERT INTO rollup_dirty (session_id) VALUES (?) ON CONFLICT DO NOTHING;

-- name: rollup_dirty
-- Sessions whose roll-ups are out of date.
SELECT session_id FROM rollup_dirty ORDER BY session_id LIMIT nullif(:limit, -1);

-- name: rollup_settle
-- A session's roll-ups are up to date.
DELETE FROM rollup_dirty WHERE session_id = :session;

-- name: rollup_provider
-- The provider of a session.
SELECT provider FROM agent_sessions WHERE id = :session;

-- name: rollup_captures
-- The inputs of a session with their attribution.
SELECT seq, artifact_key, task_id, wave_id FROM captures WHERE session_id = :session ORDER BY seq;

-- name: rollup_receipts
-- What the totals of a session are made of, in order; conversation text stays out, as in the summary of an input.
SELECT e.seq, e.provider_thread, e.provider_turn, e.kind, e.observed_at, e.receipt_key, e.captured_event, e.task_id,
  e.wave_id, convert_to(e.payload, 'UTF8')
FROM session_events e
WHERE e.session_id = :session AND (e.kind IN ('started', 'usage', 'completed')
  OR (e.kind = 'observed' AND coalesce(e.provider_thread, '') = '' AND coalesce(e.provider_turn, '') = ''
    AND NOT turnlog_is_conversation(e.payload)))
ORDER BY e.seq;

-- name: copied_receipts
-- Usage receipts of a session that repeat a call: of another session, or of another turn of the same one (a subagent's
-- file and its parent's notes may tell of one call under two turns, whatever each knew of it). (seq, call, owner).
SELECT p.seq, p.call, (SELECT o.session_id FROM calls o WHERE o.call = p.call AND o.owned = 1 LIMIT 1)
FROM session_events e JOIN receipt_places p ON p.seq = e.seq
JOIN calls c ON c.call = p.call AND c.session_id = e.session_id AND c.owned = 0
WHERE e.session_id = :session AND e.kind = 'usage'
  AND EXISTS (SELECT 1 FROM calls WHERE session_id = :session AND owned = 0)
UNION
SELECT seq, call, :session::text FROM (
  SELECT p.seq, p.call, e.provider_turn AS turn,
    first_value(e.provider_turn) OVER (
      PARTITION BY CASE WHEN left(right(p.call, 18), 1) = '~' AND left(right(p.call, 9), 1) = '.'
        THEN left(p.call, -9) ELSE p.call END
      ORDER BY e.provider_turn LIKE 'agent:%', e.provider_turn) AS owner
  FROM session_events e JOIN receipt_places p ON p.seq = e.seq
  WHERE e.session_id = :session AND e.kind = 'usage' AND p.call IS NOT NULL
    AND EXISTS (SELECT 1 FROM native_sessions WHERE session_id = :session) -- else no file tells of it
) r WHERE turn <> owner;

-- name: copied_calls
-- Calls that a session tells of and another one owns.
SELECT call FROM calls WHERE session_id = :session AND owned = 0;

-- name: receipt_places
-- Where receipts of a session were read: (seq, path, offset).
SELECT p.seq, s.path, p."offset" FROM session_events e JOIN receipt_places p ON p.seq = e.seq
JOIN sources s ON s.id = p.source_id WHERE e.session_id = :session AND e.kind = 'usage';

-- name: rollup_parents
-- The conversations that a subagent belongs to: (turn that spawned it, its begin, session, wire, covered).
SELECT n.parent_turn, n.began_at, s.id, r.wire, r.covered
FROM native_sessions n JOIN agent_sessions s ON s.provider = n.provider AND s.provider_thread = n.parent_id
LEFT JOIN rollup_sessions r ON r.session_id = s.id
WHERE n.session_id = :session AND n.relation = 'subagent' AND s.id <> n.session_id;

-- name: rollup_children
-- The subagents of a conversation.
SELECT n.session_id FROM agent_sessions s JOIN native_sessions n
  ON n.parent_id = s.provider_thread AND n.provider = s.provider
WHERE s.id = :session AND n.relation = 'subagent' AND n.session_id <> s.id;

-- name: rollup_session
-- A session's number, wire turns and whether it is covered.
SELECT id, wire, covered FROM rollup_sessions WHERE session_id = :session;

-- name: rollup_add_session
-- Give a session a number, or keep what is known of it up to date.
INSERT INTO rollup_sessions (session_id, wire, covered) VALUES (:session, :wire, :covered)
ON CONFLICT (session_id) DO UPDATE SET wire = excluded.wire, covered = excluded.covered RETURNING id;

-- name: rollup_drop_session
-- Forget a session that is gone.
DELETE FROM rollup_sessions WHERE session_id = :session;

-- name: rollup_kinds
-- Every kind of streams.
SELECT id, provider, service, model, task_id, wave_id FROM rollup_kinds;

-- name: rollup_add_kind
-- A kind that was not there yet.
INSERT INTO rollup_kinds (provider, service, model, task_id, wave_id)
VALUES (:provider, :service, :model, :task, :wave) RETURNING id;

-- name: rollup_prices
-- Prices that were used, oldest first.
SELECT id, source, version FROM rollup_prices ORDER BY id;

-- name: rollup_add_prices
-- Prices that are used now.
INSERT INTO rollup_prices (source, version) VALUES (:source, :version)
ON CONFLICT (source, version) DO UPDATE SET source = excluded.source RETURNING id;

-- name: streams_of_session
-- The streams of a session.
SELECT kind, capture, seq, at, source, final, counted, calls, input, output, total_input, cache_read, cache_write,
  cache_write_1h, reasoning, peak, context_window, tier, reported_usd, estimated_usd, prices, low_estimate, gaps
FROM streams WHERE session = :number ORDER BY number;

-- name: loose_of_session
-- Gaps of a session that belong to no stream.
SELECT kind, at, gaps FROM loose_gaps WHERE session = :number ORDER BY number;

-- name: buckets_of_session
-- The sums of a session.
SELECT start, kind, first_at, last_at, streams, final_streams, unpriced, low_estimates, calls, input, output,
  total_input, cache_read, cache_write, cache_write_1h, reasoning, reported_usd, estimated_usd, gaps
FROM usage_buckets WHERE session = :number ORDER BY start, kind;

-- name: delete_streams
-- Forget the streams of a session.
DELETE FROM streams WHERE session = :number;

-- name: delete_loose
-- Forget the gaps of a session.
DELETE FROM loose_gaps WHERE session = :number;

-- name: delete_buckets
-- Forget the sums of a session.
DELETE FROM usage_buckets WHERE session = :number;

-- name: insert_streams
-- Streams of a session.
INSERT INTO streams (session, number, kind, capture, seq, at, source, final, counted, calls, input, output, total_input,
  cache_read, cache_write, cache_write_1h, reasoning, peak, context_window, tier, reported_usd, estimated_usd, prices,
  low_estimate, gaps)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_loose
-- Gaps of a session.
INSERT INTO loose_gaps (session, number, kind, at, gaps) VALUES (?, ?, ?, ?, ?);

-- name: insert_buckets
-- Sums of a session.
INSERT INTO usage_buckets (session, start, kind, first_at, last_at, streams, final_streams, unpriced, low_estimates,
  calls, input, output, total_input, cache_read, cache_write, cache_write_1h, reasoning, reported_usd, estimated_usd,
  gaps)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: unpriced_sessions
-- Sessions with streams for which these prices were not tried (none of them: null).
SELECT DISTINCT r.session_id FROM streams s JOIN rollup_sessions r ON r.id = s.session
WHERE s.estimated_usd IS NULL AND s.prices IS DISTINCT FROM :prices::bigint;

-- name: any_unpriced
-- Whether any stream has no estimate.
SELECT 1 FROM streams WHERE estimated_usd IS NULL LIMIT 1;

-- name: usage_sums
-- Sums of a stretch of time, and how many rows there are. Filters are JSON lists of numbers; null admits all.
SELECT coalesce(sum(streams), 0)::bigint, coalesce(sum(final_streams), 0)::bigint, coalesce(sum(unpriced), 0)::bigint,
  coalesce(sum(low_estimates), 0)::bigint, sum(calls)::bigint, sum(input)::bigint, sum(output)::bigint,
  sum(total_input)::bigint, sum(cache_read)::bigint, sum(cache_write)::bigint, sum(cache_write_1h)::bigint,
  sum(reasoning)::bigint,
  sum(reported_usd::numeric)::float8, sum(estimated_usd::numeric)::float8, count(*)
FROM usage_buckets WHERE start >= :since AND start < :until
  AND (:kinds::text IS NULL OR kind IN (SELECT value::bigint FROM json_array_elements_text(:kinds::json)))
  AND (:sessions::text IS NULL OR session IN (SELECT value::bigint FROM json_array_elements_text(:sessions::json))
    OR kind IN (SELECT value::bigint FROM json_array_elements_text(:instead::json)))
  AND (:without::text IS NULL OR session NOT IN (SELECT value::bigint FROM json_array_elements_text(:without::json)));

-- name: usage_by_kind
-- As usage_sums, for each kind of streams: (kind, sums …).
SELECT kind, coalesce(sum(streams), 0)::bigint, coalesce(sum(final_streams), 0)::bigint,
  coalesce(sum(unpriced), 0)::bigint, coalesce(sum(low_estimates), 0)::bigint, sum(calls)::bigint, sum(input)::bigint,
  sum(output)::bigint, sum(total_input)::bigint, sum(cache_read)::bigint, sum(cache_write)::bigint,
  sum(cache_write_1h)::bigint, sum(reasoning)::bigint,
  sum(reported_usd::numeric)::float8, sum(estimated_usd::numeric)::float8
FROM usage_buckets WHERE start >= :since AND start < :until
  AND (:kinds::text IS NULL OR kind IN (SELECT value::bigint FROM json_array_elements_text(:kinds::json)))
  AND (:sessions::text IS NULL OR session IN (SELECT value::bigint FROM json_array_elements_text(:sessions::json))
    OR kind IN (SELECT value::bigint FROM json_array_elements_text(:instead::json)))
  AND (:without::text IS NULL OR session NOT IN (SELECT value::bigint FROM json_array_elements_text(:without::json)))
GROUP BY kind;

-- name: usage_by_session
-- As usage_sums, for each session: (session, the kind of streams where :apart = 1, last instant, sums …).
SELECT session, CASE WHEN :apart = 1 THEN kind END AS kind_apart, max(last_at), coalesce(sum(streams), 0)::bigint,
  coalesce(sum(final_streams), 0)::bigint, coalesce(sum(unpriced), 0)::bigint,
  coalesce(sum(low_estimates), 0)::bigint, sum(calls)::bigint, sum(input)::bigint, sum(output)::bigint,
  sum(total_input)::bigint, sum(cache_read)::bigint, sum(cache_write)::bigint, sum(cache_write_1h)::bigint,
  sum(reasoning)::bigint, sum(reported_usd::numeric)::float8, sum(estimated_usd::numeric)::float8
FROM usage_buckets WHERE start >= :since AND start < :until
  AND (:kinds::text IS NULL OR kind IN (SELECT value::bigint FROM json_array_elements_text(:kinds::json)))
  AND (:sessions::text IS NULL OR session IN (SELECT value::bigint FROM json_array_elements_text(:sessions::json))
    OR kind IN (SELECT value::bigint FROM json_array_elements_text(:instead::json)))
  AND (:without::text IS NULL OR session NOT IN (SELECT value::bigint FROM json_array_elements_text(:without::json)))
GROUP BY session, kind_apart;

-- name: usage_gaps
-- Where sums of a stretch of time have gaps: (start, session, kind, gaps).
SELECT start, session, kind, gaps FROM usage_buckets WHERE gaps IS NOT NULL AND start >= :since AND start < :until
  AND (:kinds::text IS NULL OR kind IN (SELECT value::bigint FROM json_array_elements_text(:kinds::json)))
  AND (:sessions::text IS NULL OR session IN (SELECT value::bigint FROM json_array_elements_text(:sessions::json))
    OR kind IN (SELECT value::bigint FROM json_array_elements_text(:instead::json)))
  AND (:without::text IS NULL OR session NOT IN (SELECT value::bigint FROM json_array_elements_text(:without::json)));

-- name: usage_spans
-- When streams of a stretch of time began, by quarter of an hour: (first, last), oldest first.
SELECT min(first_at), max(last_at) FROM usage_buckets WHERE streams > 0 AND start >= :since AND start < :until
  AND (:kinds::text IS NULL OR kind IN (SELECT value::bigint FROM json_array_elements_text(:kinds::json)))
  AND (:sessions::text IS NULL OR session IN (SELECT value::bigint FROM json_array_elements_text(:sessions::json))
    OR kind IN (SELECT value::bigint FROM json_array_elements_text(:instead::json)))
  AND (:without::text IS NULL OR session NOT IN (SELECT value::bigint FROM json_array_elements_text(:without::json)))
GROUP BY start ORDER BY start;

-- name: usage_days
-- Days of UTC with usage, by their number (quarters of an hour / 96): from one to the next by the index.
WITH RECURSIVE found (day) AS (
  (SELECT start / 96 FROM usage_buckets WHERE start >= :since AND start < :until ORDER BY start LIMIT 1)
  UNION ALL
  SELECT (SELECT b.start / 96 FROM usage_buckets b WHERE b.start >= (found.day + 1) * 96 AND b.start < :until
    ORDER BY b.start LIMIT 1) FROM found WHERE found.day IS NOT NULL
)
SELECT day FROM found WHERE day IS NOT NULL;

-- name: sessions_in_quarter
-- Sessions with usage in a quarter of an hour: (number, session).
SELECT DISTINCT b.session, r.session_id FROM usage_buckets b JOIN rollup_sessions r ON r.id = b.session
WHERE b.start = :start;

-- name: rollup_numbers
-- Every session that has roll-ups: (number, session).
SELECT id, session_id FROM rollup_sessions;

-- name: usage_sessions
-- What reports say of a session: (session, number, provider, native id, repository or folder).
SELECT s.id, r.id, s.provider, coalesce(s.provider_thread, n.native_id), coalesce(nullif(s.repo, ''), nullif(s.cwd, ''))
FROM agent_sessions s LEFT JOIN rollup_sessions r ON r.session_id = s.id
LEFT JOIN native_sessions n ON n.session_id = s.id
WHERE :session::text IS NULL OR s.id = :session::text;

-- name: usage_problems
-- Bytes that could not be read and may have held usage: (session, provider, how many).
SELECT p.session_id, s.provider, count(*) FROM source_problems p JOIN sources s ON s.id = p.source_id
WHERE p.usage = 1 GROUP BY p.session_id, s.provider;

-- name: usage_tasks
-- The names people use for tasks.
SELECT id, issue_identifier FROM tasks;
