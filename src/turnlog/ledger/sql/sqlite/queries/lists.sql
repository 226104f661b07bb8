-- name: held_captures
-- Unfinished inputs that nobody released, in the window; all of them (R15.6).
SELECT seq, session_id, artifact_key, started_at, ended_at, 1 FROM captures
WHERE listed = 1 AND held = 1 AND started_at >= :since AND (:scoped = 0 OR seq IN (SELECT value FROM json_each(:scope)))
ORDER BY started_at DESC, artifact_key DESC;

-- name: settled_captures
-- Other inputs that started in the window, newest first.
SELECT seq, session_id, artifact_key, started_at, ended_at, 0 FROM captures
WHERE listed = 1 AND held = 0 AND started_at >= :since AND (:scoped = 0 OR seq IN (SELECT value FROM json_each(:scope)))
ORDER BY started_at DESC, artifact_key DESC LIMIT :limit;

-- name: ended_captures
-- Inputs that started before the window and ended in it. By end, or every input before the window would be read.
SELECT seq, session_id, artifact_key, started_at, ended_at, 0 FROM captures INDEXED BY captures_ended
WHERE listed = 1 AND held = 0 AND ended_at >= :since AND started_at < :since
  AND (:scoped = 0 OR seq IN (SELECT value FROM json_each(:scope)))
ORDER BY started_at DESC, artifact_key DESC LIMIT :limit;

-- name: held_orphans
-- Open turn groups without a capture.
SELECT session_id, provider_thread, provider_turn, first_at, completed_at, 1 FROM turns
WHERE capture IS NULL AND completion_seq IS NULL AND released = 0 AND first_at >= :since
  AND (:scoped = 0 OR (wave_id IN (SELECT value FROM json_each(:waves)) OR :waves IS NULL)
    AND (task_id IN (SELECT value FROM json_each(:tasks)) OR :tasks IS NULL))
ORDER BY first_at DESC, session_id, provider_thread, provider_turn;

-- name: settled_orphans
-- Other turn groups without a capture that began in the window.
SELECT session_id, provider_thread, provider_turn, first_at, completed_at, 0 FROM turns
WHERE capture IS NULL AND NOT (completion_seq IS NULL AND released = 0) AND first_at >= :since
  AND (:scoped = 0 OR (wave_id IN (SELECT value FROM json_each(:waves)) OR :waves IS NULL)
    AND (task_id IN (SELECT value FROM json_each(:tasks)) OR :tasks IS NULL))
ORDER BY first_at DESC, session_id, provider_thread, provider_turn LIMIT :limit;

-- name: ended_orphans
-- Turn groups without a capture that began before the window and ended in it.
SELECT session_id, provider_thread, provider_turn, first_at, completed_at, 0 FROM turns INDEXED BY turns_orphan_ended
WHERE capture IS NULL AND completed_at >= :since AND first_at < :since
  AND (:scoped = 0 OR (wave_id IN (SELECT value FROM json_each(:waves)) OR :waves IS NULL)
    AND (task_id IN (SELECT value FROM json_each(:tasks)) OR :tasks IS NULL))
ORDER BY first_at DESC, session_id, provider_thread, provider_turn LIMIT :limit;

-- name: scope_waves
-- Wave ids that a word names.
SELECT id FROM wave_addresses WHERE id = :word OR slug = :word;

-- name: scope_project_tasks
-- Task ids of the projects that a word names.
SELECT t.id FROM tasks t JOIN projects p ON p.id = t.project_id
WHERE p.id = :word OR p.project_slug = :word OR p.external_project_id = :word;

-- name: scope_tasks
-- Task ids that a word names.
SELECT id FROM tasks WHERE id = :word OR issue_identifier = :word OR external_issue_id = :word;

-- name: scope_captures
-- Captures whose own attribution, or that of a turn they began, is in scope (R15.9).
SELECT seq FROM captures WHERE (:waves IS NULL OR wave_id IN (SELECT value FROM json_each(:waves)))
  AND (:tasks IS NULL OR task_id IN (SELECT value FROM json_each(:tasks)))
UNION
SELECT capture FROM turns WHERE capture IS NOT NULL AND (:waves IS NULL OR wave_id IN (SELECT value FROM json_each(:waves)))
  AND (:tasks IS NULL OR task_id IN (SELECT value FROM json_each(:tasks)));

-- name: captures_of_caller
-- Every listed input of the window whose capture names this caller (R15.8, R15.4).
SELECT seq, session_id, artifact_key, started_at, ended_at, held FROM captures
WHERE caller_key = :key AND listed = 1 AND (started_at >= :since OR (:finished AND ended_at >= :since))
  AND (:scoped = 0 OR seq IN (SELECT value FROM json_each(:scope)));

-- name: capture_keys_of_session
-- The artifact keys of a session, oldest first.
SELECT artifact_key FROM captures WHERE session_id = :session ORDER BY seq;

-- name: capture_facts
-- What the history record of an input takes from its capture and session (3.16).
SELECT c.seq, c.session_id, c.artifact_key, c.caller_key, c.observed_at, c.own_task_id, c.own_wave_id,
  s.current_capture = c.seq, t.issue_identifier,
  CASE WHEN c.wave_id IS NOT NULL THEN (SELECT slug FROM wave_addresses WHERE id = c.wave_id) END, s.work_source, e.payload,
  n.cwd
FROM captures c JOIN agent_sessions s ON s.id = c.session_id
JOIN session_events e ON e.seq = c.seq
LEFT JOIN tasks t ON t.id = c.task_id
LEFT JOIN native_sessions n ON n.session_id = s.id
WHERE c.artifact_key = :key;

-- name: artifact_keys_by_prefix
-- Up to two artifact keys that begin with these characters, `run_` optional (char(1114111) is the last character).
SELECT artifact_key FROM captures WHERE (artifact_key >= :prefix AND artifact_key < :prefix || char(1114111))
  OR (artifact_key >= 'run_' || :prefix AND artifact_key < 'run_' || :prefix || char(1114111))
ORDER BY artifact_key LIMIT 2;

-- name: work_names
-- The names shown for an attribution.
SELECT (SELECT issue_identifier FROM tasks WHERE id = :task),
  CASE WHEN :wave IS NOT NULL THEN (SELECT slug FROM wave_addresses WHERE id = :wave) END;
