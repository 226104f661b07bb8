-- What was recorded lately, one query for each kind of fact, newest first, each by an index of its own. Their rows are
-- (at, key, session, turn, task, wave, title, outcome, detail, imported). A page begins behind (before, key).

-- name: activity_waves
-- Waves created.
SELECT created_at, id, NULL, NULL, NULL, id, name, NULL, repo, 0 FROM waves
WHERE created_at >= :since AND created_at <= :before AND (created_at < :before OR id > :key)
ORDER BY created_at DESC, id LIMIT nullif(:limit, -1);

-- name: activity_projects
-- Projects created.
SELECT created_at, id, NULL, NULL, NULL, wave_id, coalesce(project_name, project_slug, external_project_id), NULL,
  external_project_id, 0
FROM projects WHERE created_at >= :since AND created_at <= :before AND (created_at < :before OR id > :key)
ORDER BY created_at DESC, id LIMIT nullif(:limit, -1);

-- name: activity_tasks
-- Tasks created.
SELECT t.created_at, t.id, NULL, NULL, t.id, p.wave_id, t.issue_title, NULL, t.external_issue_id, 0
FROM tasks t JOIN projects p ON p.id = t.project_id
WHERE t.created_at >= :since AND t.created_at <= :before AND (t.created_at < :before OR t.id > :key)
ORDER BY t.created_at DESC, t.id LIMIT nullif(:limit, -1);

-- name: activity_prs
-- Pull requests named.
SELECT r.created_at, r.id, NULL, NULL, r.task_id, p.wave_id, r.pr_title, NULL, r.pr_identifier, 0
FROM task_prs r JOIN tasks t ON t.id = r.task_id JOIN projects p ON p.id = t.project_id
WHERE r.created_at >= :since AND r.created_at <= :before AND (r.created_at < :before OR r.id > :key)
ORDER BY r.created_at DESC, r.id LIMIT nullif(:limit, -1);

-- name: activity_inputs
-- Inputs captured, and conversations found in the files of a provider; not those of its subagents.
SELECT c.observed_at, c.artifact_key, c.session_id, NULL, c.task_id, c.wave_id, s.title, NULL, s.provider,
  coalesce(s.id = s.provider || ':' || s.provider_thread, false)
  AND (SELECT e.exec_id FROM session_events e WHERE e.seq = c.seq) IS NULL
FROM captures c JOIN agent_sessions s ON s.id = c.session_id
WHERE c.observed_at >= :since AND c.observed_at <= :before AND (c.observed_at < :before OR c.artifact_key > :key)
  AND NOT (s.interactive = 0 AND s.id = s.provider || ':' || s.provider_thread)
ORDER BY c.observed_at DESC, c.artifact_key LIMIT nullif(:limit, -1);

-- name: activity_completions
-- Inputs whose turns have all ended, with the newest of them.
SELECT c.ended_at, c.artifact_key, c.session_id,
  (SELECT t.provider_turn FROM turns t WHERE t.capture = c.seq ORDER BY t.start_seq DESC LIMIT 1), c.task_id, c.wave_id,
  s.title, (SELECT t.status FROM turns t WHERE t.capture = c.seq ORDER BY t.start_seq DESC LIMIT 1), s.provider,
  coalesce(s.id = s.provider || ':' || s.provider_thread, false)
  AND (SELECT e.exec_id FROM session_events e WHERE e.seq = c.seq) IS NULL
FROM captures c JOIN agent_sessions s ON s.id = c.session_id
WHERE c.ended_at IS NOT NULL AND c.ended_at >= :since AND c.ended_at <= :before
  AND (c.ended_at < :before OR c.artifact_key > :key)
  AND NOT (s.interactive = 0 AND s.id = s.provider || ':' || s.provider_thread)
ORDER BY c.ended_at DESC, c.artifact_key LIMIT nullif(:limit, -1);

-- name: activity_turns
-- Turns without an input that ended: the provider's own history of a conversation.
SELECT t.completed_at, t.session_id || ' ' || t.provider_thread || ' ' || t.provider_turn AS key, t.session_id,
  t.provider_turn, t.task_id, t.wave_id, s.title, t.status, s.provider, 0
FROM turns t JOIN agent_sessions s ON s.id = t.session_id
WHERE t.capture IS NULL AND t.completed_at IS NOT NULL AND t.completed_at >= :since AND t.completed_at <= :before
  AND (t.completed_at < :before OR t.session_id || ' ' || t.provider_thread || ' ' || t.provider_turn > :key)
ORDER BY t.completed_at DESC, key LIMIT nullif(:limit, -1);

-- name: activity_requests
-- What was said to running drivers.
SELECT r.created_at, r.id, r.session_id, NULL, s.task_id, s.wave_id, s.title, r.state, r.text, r.kind
FROM requests r JOIN agent_sessions s ON s.id = r.session_id
WHERE r.created_at >= :since AND r.created_at <= :before AND (r.created_at < :before OR r.id > :key)
ORDER BY r.created_at DESC, r.id LIMIT nullif(:limit, -1);

-- name: activity_bound
-- Conversations bound to a task.
SELECT bound_at, id, id, NULL, task_id, wave_id, title, NULL, provider, 0 FROM agent_sessions
WHERE bound_at IS NOT NULL AND bound_at >= :since AND bound_at <= :before AND (bound_at < :before OR id > :key)
ORDER BY bound_at DESC, id LIMIT nullif(:limit, -1);

-- name: activity_closed
-- Conversations closed.
SELECT completed_at, id, id, NULL, task_id, wave_id, title, NULL, provider, 0 FROM agent_sessions
WHERE completed_at IS NOT NULL AND completed_at >= :since AND completed_at <= :before
  AND (completed_at < :before OR id > :key)
ORDER BY completed_at DESC, id LIMIT nullif(:limit, -1);

-- name: activity_retired_waves
-- Waves retired.
SELECT retired_at, id, NULL, NULL, NULL, id, name, NULL, repo, 0 FROM waves
WHERE retired_at IS NOT NULL AND retired_at >= :since AND retired_at <= :before AND (retired_at < :before OR id > :key)
ORDER BY retired_at DESC, id LIMIT nullif(:limit, -1);

-- name: activity_retired_projects
-- Projects retired.
SELECT retired_at, id, NULL, NULL, NULL, wave_id, coalesce(project_name, project_slug, external_project_id), NULL,
  external_project_id, 0
FROM projects
WHERE retired_at IS NOT NULL AND retired_at >= :since AND retired_at <= :before AND (retired_at < :before OR id > :key)
ORDER BY retired_at DESC, id LIMIT nullif(:limit, -1);

-- name: activity_retired_tasks
-- Tasks retired.
SELECT t.retired_at, t.id, NULL, NULL, t.id, p.wave_id, t.issue_title, NULL, t.external_issue_id, 0
FROM tasks t JOIN projects p ON p.id = t.project_id
WHERE t.retired_at IS NOT NULL AND t.retired_at >= :since AND t.retired_at <= :before
  AND (t.retired_at < :before OR t.id > :key)
ORDER BY t.retired_at DESC, t.id LIMIT nullif(:limit, -1);

-- name: bound_sessions
-- Conversations bound to a task, newest first; within scope (JSON lists of ids; null = any).
SELECT id, task_id, wave_id, title, bound_at FROM agent_sessions
WHERE bound_at IS NOT NULL AND task_id IS NOT NULL AND bound_at >= :since AND bound_at <= :before
  AND (bound_at < :before OR id > :key)
  AND (:tasks::text IS NULL OR task_id IN (SELECT value FROM json_array_elements_text(:tasks::json)))
  AND (:waves::text IS NULL OR wave_id IN (SELECT value FROM json_array_elements_text(:waves::json)))
ORDER BY bound_at DESC, id LIMIT nullif(:limit, -1);

-- name: bound_to_task
-- Every conversation bound to a task.
SELECT id, task_id, wave_id, title, bound_at FROM agent_sessions WHERE task_id = :task AND bound_at IS NOT NULL
ORDER BY bound_at DESC, id;

-- name: turn_spans
-- When the turns of a conversation were asked for, began and ended, and what they are attributed to.
SELECT t.provider_thread, t.provider_turn,
  (SELECT min(q.observed_at) FROM session_events q WHERE q.session_id = t.session_id AND q.kind = 'requested'
    AND q.provider_turn = t.provider_turn AND coalesce(q.provider_thread, t.provider_thread) = t.provider_thread),
  (SELECT e.observed_at FROM session_events e WHERE e.seq = t.start_seq),
  t.first_at, t.completed_at, t.task_id
FROM turns t WHERE t.session_id = :session;
