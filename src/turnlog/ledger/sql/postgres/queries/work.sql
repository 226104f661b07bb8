-- name: insert_exec
-- One process of turnlog.
INSERT INTO execs (id, trace_id, parent_exec_id, via_agent, caller_session_id, caller_provider_generation, command, repo,
  cwd, started_at, boot_id, pid, pid_started_at, home_id)
VALUES (:id, :trace, :parent, :via_agent, :caller_session, :caller_generation, :command, :repo, :cwd, :at, :boot, :pid,
  :pid_started_at, :home);

-- name: end_exec
-- An end is recorded once.
UPDATE execs SET completed_at = :at, outcome = :outcome, exit_code = :exit_code, signal = :signal, error = :error
WHERE id = :id AND completed_at IS NULL;

-- name: exec
-- One exec.
SELECT id, trace_id, parent_exec_id, via_agent, command, repo, cwd, started_at, completed_at, outcome, exit_code, signal,
  error, boot_id, pid, pid_started_at, caller_session_id, caller_provider_generation, home_id FROM execs WHERE id = :id;

-- name: exec_ids_by_prefix
-- Up to two exec ids that begin with these characters.
SELECT id FROM execs WHERE id >= :prefix AND id < :prefix || chr(1114111) ORDER BY id LIMIT 2;

-- name: exec_page
-- Execs newest first.
SELECT id, trace_id, parent_exec_id, via_agent, command, repo, cwd, started_at, completed_at, outcome, exit_code, signal,
  error, boot_id, pid, pid_started_at, caller_session_id, caller_provider_generation, home_id FROM execs
WHERE (:repo::text IS NULL OR repo = :repo::text)
  AND (:search::text IS NULL OR strpos(turnlog_folded(turnlog_command(command)), turnlog_folded(:search::text)) > 0)
  AND (:after_id::text IS NULL OR started_at < :after_at::bigint
    OR (started_at = :after_at::bigint AND id > :after_id::text))
ORDER BY started_at DESC, id LIMIT nullif(:limit, -1);

-- name: agent_parent
-- The exec that drives the calling session now, if the caller is its current engine (1.4).
SELECT s.driver_exec_id FROM agent_sessions s WHERE s.id = :session AND s.provider_generation = :generation
  AND s.provider_exec_id = :origin AND s.driver_exec_id IS NOT NULL;

-- name: insert_request
-- A request to a running driver (D20).
INSERT INTO requests (id, session_id, kind, text, by_exec, state, created_at)
VALUES (:id, :session, :kind, :text, :exec, 'queued', :at);

-- name: requests
-- Requests of a session, oldest first.
SELECT id, session_id, kind, text, by_exec, state, created_at, settled_at, detail FROM requests
WHERE session_id = :session AND (:open = 0 OR state IN ('queued', 'sent')) ORDER BY number;

-- name: request
-- One request.
SELECT id, session_id, kind, text, by_exec, state, created_at, settled_at, detail FROM requests WHERE id = :id;

-- name: move_request
-- A request moves forward only.
UPDATE requests SET state = :state, settled_at = :at, detail = :detail WHERE id = :id AND state = :from_state;
