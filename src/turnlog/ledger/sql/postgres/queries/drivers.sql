-- name: driver
-- The stored driver tuple and the engine's records.
SELECT driver_exec_id, driver_generation, provider_generation, provider_exec_id, provider_endpoint, provider_thread,
  provider_pid, provider_started_at, driver_heartbeat_at FROM agent_sessions WHERE id = :id;

-- name: claim_driver
-- Conditional on the whole tuple, and on the age of the driver's last sign if a lease is given; replacement clears the
-- engine's records and keeps the thread (R9.1 to R9.4).
UPDATE agent_sessions SET driver_exec_id = :exec, driver_generation = driver_generation + 1,
  driver_heartbeat_at = coalesce(:at::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
  provider_generation = CASE WHEN driver_generation = 0 THEN 1 WHEN :replace = 1 THEN provider_generation + 1
    ELSE provider_generation END,
  provider_exec_id = CASE WHEN driver_generation = 0 OR :replace = 1 THEN :exec ELSE provider_exec_id END,
  provider_endpoint = CASE WHEN driver_generation > 0 AND :replace = 1 THEN NULL ELSE provider_endpoint END,
  provider_pid = CASE WHEN driver_generation > 0 AND :replace = 1 THEN NULL ELSE provider_pid END,
  provider_started_at = CASE WHEN driver_generation > 0 AND :replace = 1 THEN NULL ELSE provider_started_at END
WHERE id = :id AND driver_generation = :generation AND driver_exec_id IS NOT DISTINCT FROM :old_exec::text
  AND provider_generation = :provider_generation AND provider_exec_id IS NOT DISTINCT FROM :provider_exec::text
  AND NOT (kind = 'flow_review' AND completed_at IS NOT NULL)
  AND (:lease::bigint IS NULL
    OR coalesce(:at::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) - driver_heartbeat_at >= :lease::bigint);

-- name: driver_age
-- Milliseconds since the driver's last sign by the database's clock (`at` stands for it when given).
SELECT coalesce(:at::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) - driver_heartbeat_at
FROM agent_sessions WHERE id = :id AND driver_exec_id IS NOT NULL;

-- name: release_driver
-- The driver lets go; the tuple must match (R9.6).
UPDATE agent_sessions SET driver_exec_id = NULL, driver_generation = driver_generation + 1
WHERE id = :id AND driver_generation = :generation AND driver_exec_id IS NOT DISTINCT FROM :exec::text
  AND provider_generation = :provider_generation AND provider_exec_id IS NOT DISTINCT FROM :provider_exec::text;

-- name: finish_driver
-- Release with retirement and, when the engine was closed, without its endpoint (R9.7, 3.10).
UPDATE agent_sessions SET driver_exec_id = NULL, driver_generation = driver_generation + 1,
  completed_at = CASE WHEN :retire = 1 THEN coalesce(completed_at, :at) ELSE completed_at END,
  provider_endpoint = CASE WHEN :engine_closed = 1 THEN NULL ELSE provider_endpoint END
WHERE id = :id;

-- name: retires
-- Whether this exit retires the conversation (R10.1, R10.2).
SELECT s.completed_at IS NULL AND s.kind = 'conversation' AND s.primary_scope IS NULL AND s.wave_id IS NULL
  AND s.flow_session_id IS NULL AND s.driver_exec_id = s.provider_exec_id AND s.task_id IS NULL
  AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.worktree IS NOT NULL
    AND (s.cwd = t.worktree OR starts_with(s.cwd, t.worktree || '/')))
FROM agent_sessions s WHERE s.id = :id;

-- name: heartbeat
-- The fence: touches the row only while the tuple is current and has an exec (R9.10, R9.11).
UPDATE agent_sessions SET driver_heartbeat_at = coalesce(:at::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
WHERE id = :id AND driver_exec_id IS NOT NULL AND driver_generation = :generation
  AND driver_exec_id IS NOT DISTINCT FROM :exec::text
  AND provider_generation = :provider_generation AND provider_exec_id IS NOT DISTINCT FROM :provider_exec::text;

-- name: record_connection
-- The engine's endpoint and thread.
UPDATE agent_sessions SET provider_endpoint = :endpoint, provider_thread = :thread WHERE id = :id;

-- name: record_process
-- The engine's process.
UPDATE agent_sessions SET provider_pid = :pid, provider_started_at = :started_at WHERE id = :id;

-- name: driven_sessions
-- Sessions that an exec drives or whose engine it started.
SELECT id FROM agent_sessions WHERE driver_exec_id = :exec ORDER BY id;

-- name: keep_thread
-- Remember a provider's thread under which the conversation was known.
INSERT INTO session_aliases (provider, alias, session_id)
SELECT provider, provider_thread, id FROM agent_sessions
WHERE id = :id AND provider IS NOT NULL AND provider_thread IS NOT NULL
ON CONFLICT DO NOTHING;

-- name: hand_over
-- Another provider goes on with the same input: its thread and engine are not known yet (6.6).
UPDATE agent_sessions SET provider = :provider, model = NULL, provider_thread = NULL, provider_endpoint = NULL,
  provider_pid = NULL, provider_started_at = NULL WHERE id = :id;
