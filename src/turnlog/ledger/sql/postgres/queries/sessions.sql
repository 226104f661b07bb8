-- name: session
-- One session with its current capture.
SELECT s.id, s.title, s.title_source, s.kind, s.interactive, s.created_at, s.completed_at, s.ready_summary, s.cwd, s.repo,
  s.skill, s.provider, s.model, s.task_id, s.wave_id, s.flow_session_id, s.work_source, s.bound_at, s.primary_scope,
  c.receipt_key, s.current_capture, s.home_id
FROM agent_sessions s LEFT JOIN session_events c ON c.seq = s.current_capture WHERE s.id = :id;

-- name: session_ids_by_prefix
-- Up to two session ids that begin with these characters (compared literally), to tell unique from ambiguous. A
-- subagent, which has its parent's id before its own, is one of them only if the characters reach behind that.
SELECT id FROM agent_sessions WHERE id >= :prefix AND id < :prefix || chr(1114111) AND strpos(substr(id, length(:prefix) + 1), '/') = 0
ORDER BY id LIMIT 2;

-- name: session_of_thread
-- The session that holds a provider's conversation.
SELECT id FROM agent_sessions WHERE provider = :provider AND provider_thread = :thread ORDER BY created_at, id LIMIT 1;

-- name: latest_session
-- The interactive session with the newest receipt (a subagent's is never meant); a walk by seq that ends at once.
SELECT e.session_id FROM session_events e
WHERE (SELECT s.interactive FROM agent_sessions s WHERE s.id = e.session_id) = 1 ORDER BY e.seq DESC LIMIT 1;

-- name: insert_session
-- A conversation; its capture follows in the same transaction.
INSERT INTO agent_sessions (id, title, title_source, kind, interactive, created_at, input_published, cwd, repo, skill,
  provider, model, task_id, wave_id, work_source, primary_scope, provider_thread, home_id)
VALUES (:id, :title, :title_source, :kind, :interactive, :created_at, :published, :cwd, :repo, :skill, :provider,
  :model, :task, :wave, :work_source, :primary_scope, :thread, :home);

-- name: insert_captured
-- An immutable input.
INSERT INTO session_events (session_id, kind, receipt_key, exec_id, task_id, wave_id, observed_at, payload)
VALUES (:session, 'captured', :key, :exec, :task, :wave, :at, :payload) RETURNING seq;

-- name: find_captured
-- The captured row of an artifact key.
SELECT seq, session_id, payload FROM session_events WHERE kind = 'captured' AND receipt_key = :key;

-- name: set_current_capture
-- The session's current input.
UPDATE agent_sessions SET current_capture = :capture WHERE id = :id;

-- name: replace_input
-- A new input for an open conversation whose current capture is still the expected one (R12.3).
UPDATE agent_sessions SET current_capture = :capture, input_published = 0, cwd = :cwd, skill = :skill,
  provider = :provider, model = :model
WHERE id = :id AND current_capture = :expected AND completed_at IS NULL;

-- name: publish_input
-- Once per capture, only the current one of an open conversation (R12.5).
UPDATE agent_sessions SET input_published = 1
WHERE id = :id AND current_capture = :capture AND input_published = 0 AND completed_at IS NULL;

-- name: bind_session
-- Once, permanent (R12.6).
UPDATE agent_sessions SET task_id = :task, wave_id = coalesce(wave_id, :wave), work_source = 'bound', bound_at = :at
WHERE id = :id AND current_capture = :capture AND task_id IS NULL;

-- name: rename_session
-- A generated title never replaces a human one (2.2).
UPDATE agent_sessions SET title = :title, title_source = :source
WHERE id = :id AND NOT (:source = 'generated' AND title_source = 'human');

-- name: complete_session
-- Close the conversation with the expected capture (R12.7).
UPDATE agent_sessions SET completed_at = :at WHERE id = :id AND current_capture = :capture AND completed_at IS NULL
  AND (kind = 'conversation' OR trim(coalesce(ready_summary, '')) <> '');

-- name: reopen_session
-- A retired conversation goes on when somebody resumes it; a review never does.
UPDATE agent_sessions SET completed_at = NULL WHERE id = :id AND completed_at IS NOT NULL AND kind = 'conversation';

-- name: ready_session
-- Store the feedback of an open conversation.
UPDATE agent_sessions SET ready_summary = :summary WHERE id = :id AND current_capture = :capture AND completed_at IS NULL;

-- name: session_page
-- Sessions by title, then id (R17.3, R17.4): open and closed ones.
SELECT s.id, s.title, s.title_source, s.kind, s.interactive, s.created_at, s.completed_at, s.ready_summary, s.cwd, s.repo,
  s.skill, s.provider, s.model, s.task_id, s.wave_id, s.flow_session_id, s.work_source, s.bound_at, s.primary_scope,
  c.receipt_key, s.current_capture, s.home_id
FROM agent_sessions s LEFT JOIN session_events c ON c.seq = s.current_capture
WHERE (:interactive::bigint IS NULL OR s.interactive = :interactive::bigint)
  AND (:provider::text IS NULL OR s.provider = :provider::text)
  AND (:task::text IS NULL OR s.task_id IN (SELECT id FROM tasks WHERE id = :task::text
       OR issue_identifier = :task::text OR external_issue_id = :task::text))
  AND (:search::text IS NULL OR strpos(turnlog_folded(s.title), turnlog_folded(:search::text)) > 0
       OR strpos(s.id, :search::text) > 0)
  AND (:needs_me = 0 OR EXISTS (SELECT 1 FROM waiting_sessions w WHERE w.id = s.id))
  AND (s.title, s.id) > (:after_title, :after_id)
ORDER BY s.title, s.id LIMIT nullif(:limit, -1);

-- name: open_session_page
-- The same of the open ones only, which may be few among very many.
SELECT s.id, s.title, s.title_source, s.kind, s.interactive, s.created_at, s.completed_at, s.ready_summary, s.cwd, s.repo,
  s.skill, s.provider, s.model, s.task_id, s.wave_id, s.flow_session_id, s.work_source, s.bound_at, s.primary_scope,
  c.receipt_key, s.current_capture, s.home_id
FROM agent_sessions s LEFT JOIN session_events c ON c.seq = s.current_capture
WHERE s.completed_at IS NULL AND s.interactive = :interactive
  AND (:provider::text IS NULL OR s.provider = :provider::text)
  AND (:task::text IS NULL OR s.task_id IN (SELECT id FROM tasks WHERE id = :task::text
       OR issue_identifier = :task::text OR external_issue_id = :task::text))
  AND (:search::text IS NULL OR strpos(turnlog_folded(s.title), turnlog_folded(:search::text)) > 0
       OR strpos(s.id, :search::text) > 0)
  AND (:needs_me = 0 OR EXISTS (SELECT 1 FROM waiting_sessions w WHERE w.id = s.id))
  AND (s.title, s.id) > (:after_title, :after_id)
ORDER BY s.title, s.id LIMIT nullif(:limit, -1);

-- name: latest_turn
-- The newest started turn of a capture: its status, or null while it has no completion (R17.1).
SELECT t.completion_seq, t.status FROM turns t WHERE t.capture = :capture ORDER BY t.start_seq DESC LIMIT 1;

-- name: observed_payload
-- One observation of a session by its key.
SELECT payload FROM session_events WHERE session_id = :session AND coalesce(provider_thread, '') = ''
  AND coalesce(provider_turn, '') = '' AND kind = 'observed' AND receipt_key = :key;
