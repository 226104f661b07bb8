-- name: prunable_conversations
-- Conversations that sources tell of, without a sign of life from an instant on (null: any), and who drives them:
-- (number, session, driver, heartbeat, its end, boot, pid, start).
SELECT n.id, n.session_id, s.driver_exec_id, s.driver_heartbeat_at, x.completed_at, x.boot_id, x.pid, x.pid_started_at
FROM native_sessions n JOIN agent_sessions s ON s.id = n.session_id LEFT JOIN execs x ON x.id = s.driver_exec_id
WHERE (:provider IS NULL OR n.provider = :provider) AND (:session IS NULL OR n.session_id = :session)
  AND (:before IS NULL OR (s.created_at < :before
    AND NOT EXISTS (SELECT 1 FROM captures c WHERE c.session_id = s.id
      AND (c.observed_at >= :before OR c.last_completed_at >= :before))
    AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id AND (t.first_at >= :before
      OR (t.completion_seq IS NULL AND EXISTS (SELECT 1 FROM session_events e WHERE e.session_id = t.session_id
        AND coalesce(e.provider_thread, '') = +t.provider_thread AND coalesce(e.provider_turn, '') = +t.provider_turn
        AND e.observed_at >= :before))))
    AND NOT EXISTS (SELECT 1 FROM passages p WHERE p.native = n.id AND p.at >= :before)))
ORDER BY n.id;

-- name: prunable_sources
-- Sources with archived bytes or text of these conversations (a JSON list), and those of no conversation that were not
-- touched from an instant on (null: none of those).
SELECT id FROM sources s WHERE (EXISTS (SELECT 1 FROM archive a WHERE a.source_id = s.id)
    OR EXISTS (SELECT 1 FROM passages p WHERE p.source_id = s.id))
  AND (EXISTS (SELECT 1 FROM session_sources x JOIN native_sessions n ON n.session_id = x.session_id
      WHERE x.source_id = s.id AND n.id IN (SELECT value FROM json_each(:natives)))
    OR (s.modified_at / 1000000 < :before AND (:provider IS NULL OR s.provider = :provider)
      AND NOT EXISTS (SELECT 1 FROM session_sources x WHERE x.source_id = s.id)
      AND NOT EXISTS (SELECT 1 FROM passages p WHERE p.source_id = s.id)))
ORDER BY id;

-- name: conversations_of_source
-- Conversations that a source tells of.
SELECT n.id FROM session_sources x JOIN native_sessions n ON n.session_id = x.session_id WHERE x.source_id = :id
UNION SELECT native FROM passages WHERE source_id = :id;

-- name: lines_of_others
-- Where lines begin whose text belongs to none of these conversations (a JSON list).
SELECT DISTINCT "offset" FROM passages WHERE source_id = :id
  AND native NOT IN (SELECT value FROM json_each(:natives)) ORDER BY 1;

-- name: pieces_of_source
-- The archived pieces of a source without their bytes: (start, size, compressed size).
SELECT start, size, length(data) FROM archive WHERE source_id = :id ORDER BY start;

-- name: count_passages
-- How many passages these conversations (a JSON list) have in a source.
SELECT count(*) FROM passages WHERE source_id = :id AND native IN (SELECT value FROM json_each(:natives));

-- name: prune_pieces
-- Drop one archived piece: (source, start).
DELETE FROM archive WHERE source_id = ? AND start = ?;

-- name: prune_words
-- Drop the words of these conversations (a JSON list) in a source.
DELETE FROM passage_words WHERE rowid IN (SELECT id FROM passages WHERE source_id = :id
  AND native IN (SELECT value FROM json_each(:natives)));

-- name: prune_passages
-- Drop their passages.
DELETE FROM passages WHERE source_id = :id AND native IN (SELECT value FROM json_each(:natives));

-- name: prune_source
-- Remember that a source is not kept whole any more: it is not read again from its first byte.
UPDATE sources SET pruned_at = :now WHERE id = :id;

-- name: prune_conversations
-- Remember whose text was dropped (a JSON list).
UPDATE native_sessions SET pruned_at = :now WHERE id IN (SELECT value FROM json_each(:natives));

-- name: kept_sources
-- Sources to leave alone when archives are read again: what was pruned, and what came from a conversation that was.
WITH RECURSIVE gone (provider, native_id, session_id) AS (
  SELECT n.provider, n.native_id, n.session_id FROM native_sessions n JOIN agent_sessions s ON s.id = n.session_id
  WHERE n.pruned_at IS NOT NULL OR s.pruned_to IS NOT NULL
  UNION
  SELECT n.provider, n.native_id, n.session_id FROM gone g
  JOIN native_sessions n ON n.parent_id = g.native_id AND n.provider = g.provider
)
SELECT id FROM sources WHERE pruned_at IS NOT NULL
UNION SELECT x.source_id FROM gone g JOIN session_sources x ON x.session_id = g.session_id;

-- name: text_pruned
-- When text of a conversation was pruned last, or of any (null).
SELECT max(pruned_at) FROM native_sessions WHERE pruned_at IS NOT NULL AND (:session IS NULL OR session_id = :session);

-- name: tombstones_of_session
-- What stands for the removed receipts of a session: (seq, key, when).
SELECT seq, receipt_key, observed_at FROM session_events WHERE session_id = :session
  AND coalesce(provider_thread, '') = '' AND coalesce(provider_turn, '') = '' AND kind = 'observed'
  AND (receipt_key GLOB '*:prune' OR receipt_key GLOB '*:prune:*') ORDER BY seq;

-- name: removable_receipts
-- Receipts of a session, newest first: all but its inputs, how they were launched and ended, who drove, and what stands
-- for removed ones. (seq, kind, when).
SELECT seq, kind, observed_at FROM session_events WHERE session_id = :session AND kind <> 'captured'
  AND NOT (kind = 'observed' AND (receipt_key GLOB 'driver:*' OR receipt_key GLOB 'provider:*'
    OR receipt_key GLOB '*:manifest.json' OR receipt_key GLOB '*:terminal.json'
    OR receipt_key GLOB 'death:*' OR receipt_key GLOB '*:death:*'
    OR receipt_key GLOB '*:prune' OR receipt_key GLOB '*:prune:*'))
ORDER BY seq DESC;

-- name: remove_receipts
-- Remove a receipt.
DELETE FROM session_events WHERE seq = ?;

-- name: remove_places
-- Forget where it was read.
DELETE FROM receipt_places WHERE seq = ?;

-- name: remove_requests
-- Remove what was asked of a session's driver.
DELETE FROM requests WHERE session_id = :session;

-- name: calls_of_receipts
-- The calls that receipts of a session tell of: (seq, call).
SELECT p.seq, p.call FROM session_events e JOIN receipt_places p ON p.seq = e.seq
WHERE e.session_id = :session AND e.kind = 'usage' AND p.call IS NOT NULL;

-- name: driver_process
-- Who drives a session: (exec, heartbeat, its end, boot, pid, start); nothing when there is no such session.
SELECT s.driver_exec_id, s.driver_heartbeat_at, x.completed_at, x.boot_id, x.pid, x.pid_started_at
FROM agent_sessions s LEFT JOIN execs x ON x.id = s.driver_exec_id WHERE s.id = :session;

-- name: driving_now
-- Everybody who drives a session and has not ended.
SELECT s.driver_exec_id, s.driver_heartbeat_at, x.completed_at, x.boot_id, x.pid, x.pid_started_at
FROM agent_sessions s JOIN execs x ON x.id = s.driver_exec_id
WHERE s.driver_exec_id IS NOT NULL AND x.completed_at IS NULL;

-- name: note_removed
-- Up to when the receipts of a session were removed: what tells of that time is not taken again. One that nobody else
-- would end is closed.
UPDATE agent_sessions SET pruned_to = max(coalesce(pruned_to, :until), :until),
  completed_at = CASE WHEN id = coalesce(provider || ':' || provider_thread, '') THEN completed_at
    ELSE coalesce(completed_at, :now) END
WHERE id = :session;

-- name: pruned_to
-- Up to when the receipts of a session were removed, and when its text was dropped.
SELECT s.pruned_to, n.pruned_at FROM agent_sessions s LEFT JOIN native_sessions n ON n.session_id = s.id
WHERE s.id = :session;

-- name: unpruned_since
-- When a source was read first, if nothing of it was ever dropped.
SELECT first_read_at FROM sources WHERE id = :id AND pruned_at IS NULL;
