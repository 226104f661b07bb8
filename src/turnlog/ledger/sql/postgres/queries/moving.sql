-- Pushing into the ledger of a team. The first part reads the ledger that is pushed; rows are JSON lists of objects.

-- name: insert_home
-- Make a home known.
INSERT INTO homes (id, name, machine, created_at) VALUES (:id, :name, :machine, :at) ON CONFLICT DO NOTHING;

-- name: server_time
-- The clock of a database server, in unix ms; null where there is none but the machine's own.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: push_rows
-- Receipts behind a cursor, in the order of the tail, with the artifact key of their input and where they were read.
SELECT CASE WHEN e.seq <= :moved::bigint THEN 0 ELSE e.txid::text::bigint END, e.seq, e.session_id, e.provider_thread,
  e.provider_turn, e.kind, e.receipt_key, e.provider_generation, e.exec_id, e.task_id, e.wave_id, e.observed_at,
  e.payload, e.driver_generation, CASE WHEN e.kind = 'captured' THEN e.receipt_key ELSE c.receipt_key END, p.source_id,
  p."offset", p.call, k.at, k.rivals, k.weight
FROM (
  (SELECT 0 AS tx, seq FROM session_events WHERE :tx::bigint = 0 AND seq > :seq::bigint AND seq <= :moved::bigint
    ORDER BY seq LIMIT :limit::bigint)
  UNION ALL
  (SELECT txid::text::bigint, seq FROM session_events
    WHERE (txid, seq) > (:tx::bigint::text::xid8, CASE WHEN :tx::bigint = 0 THEN 0 ELSE :seq::bigint END)
      AND txid < :horizon::bigint::text::xid8 AND seq > :moved::bigint
    ORDER BY txid, seq LIMIT :limit::bigint)
) r
JOIN session_events e ON e.seq = r.seq LEFT JOIN session_events c ON c.seq = e.captured_event
LEFT JOIN receipt_places p ON p.seq = e.seq LEFT JOIN calls k ON k.call = p.call AND k.session_id = e.session_id
ORDER BY r.tx, r.seq LIMIT :limit::bigint;

-- name: push_rows_again
-- The same of these receipts (a JSON list).
SELECT 0, e.seq, e.session_id, e.provider_thread, e.provider_turn, e.kind, e.receipt_key, e.provider_generation,
  e.exec_id, e.task_id, e.wave_id, e.observed_at, e.payload, e.driver_generation,
  CASE WHEN e.kind = 'captured' THEN e.receipt_key ELSE c.receipt_key END, NULL, NULL, NULL, NULL, NULL, NULL
FROM json_array_elements_text(:seqs::json) j (value) JOIN session_events e ON e.seq = j.value::bigint
LEFT JOIN session_events c ON c.seq = e.captured_event ORDER BY e.seq;

-- name: calls_of_sessions
-- Sightings of calls in conversations (a JSON list), whose receipts may be gone. O(calls).
SELECT call, session_id, at, rivals, weight FROM calls WHERE session_id IN (
  SELECT value FROM json_array_elements_text(:sessions::json));

-- name: push_left
-- How many receipts lie behind a cursor.
SELECT count(*) FROM session_events WHERE CASE WHEN seq <= :moved::bigint THEN :tx::bigint = 0 AND seq > :seq::bigint
  ELSE (txid, seq) > (:tx::bigint::text::xid8, CASE WHEN :tx::bigint = 0 THEN 0 ELSE :seq::bigint END)
    AND txid < :horizon::bigint::text::xid8 END;

-- name: pushed_states
-- What a target was told of these rows (a JSON list of ids).
SELECT p.id, p.state FROM json_array_elements_text(:ids::json) j (value)
JOIN pushed p ON p.target = :target AND p.kind = :kind AND p.id = j.value;

-- name: pushed_ids
-- Rows of a kind that a target was told of, behind one.
SELECT id FROM pushed WHERE target = :target AND kind = :kind AND id > :after ORDER BY id LIMIT :limit::bigint;

-- name: note_pushed
-- A target was told of rows.
INSERT INTO pushed (target, kind, id, state) VALUES (?, ?, ?, ?)
ON CONFLICT (target, kind, id) DO UPDATE SET state = excluded.state;

-- name: forget_pushed
-- There is nothing more to tell of rows.
DELETE FROM pushed WHERE target = ? AND kind = ? AND id = ?;

-- name: session_facts
-- What is told of these conversations (a JSON list of ids), and the artifact key of their current input.
SELECT s.id, s.title, s.title_source, s.kind, s.interactive, s.created_at, s.completed_at, s.ready_summary, s.request,
  s.input_published, s.cwd, s.repo, s.skill, s.provider, s.model, s.node, s.iterations, s.task_id, s.wave_id,
  s.flow_session_id, s.work_source, s.bound_at, s.driver_generation, s.provider_generation, s.provider_thread,
  s.home_id, s.pruned_to, c.receipt_key
FROM json_array_elements_text(:ids::json) j (value) JOIN agent_sessions s ON s.id = j.value
LEFT JOIN session_events c ON c.seq = s.current_capture;

-- name: session_ids
-- Conversations in the order of their ids.
SELECT id FROM agent_sessions WHERE id > :after ORDER BY id LIMIT :limit::bigint;

-- name: text_state
-- What says whether the text of a source is another now: its last passage and how many there are.
SELECT coalesce(max(id), 0), count(*) FROM passages WHERE source_id = :source;

-- name: passages_of_source
-- Text of a source, with the conversation it belongs to.
SELECT p.id, n.session_id, s.provider, p.turn, p.role, p.at, p.source_id, p."offset", p.part, p.key, n.native_id
FROM passages p JOIN sources s ON s.id = p.source_id JOIN native_sessions n ON n.id = p.native
WHERE p.source_id = :source AND p.id > :after ORDER BY p.id LIMIT :limit::bigint;

-- name: forget_told
-- A target may know nothing of all this any more.
DELETE FROM pushed WHERE target = :target;

-- name: lock_sessions
-- Begin to write into these conversations (a JSON list). Here there is one writer at a time anyway.
SELECT turnlog_lock_sessions(VARIADIC ARRAY(SELECT json_array_elements_text(:sessions::json)));

-- name: push_execs
-- Processes that are not there yet.
INSERT INTO execs (id, trace_id, parent_exec_id, via_agent, caller_session_id, caller_provider_generation, command,
  repo, cwd, started_at, completed_at, outcome, exit_code, signal, error, boot_id, pid, pid_started_at, home_id)
SELECT r.id, r.trace_id, r.parent_exec_id, r.via_agent, r.caller_session_id, r.caller_provider_generation, r.command,
  r.repo, r.cwd, r.started_at, r.completed_at, r.outcome, r.exit_code, r.signal, r.error, r.boot_id, r.pid,
  r.pid_started_at, r.home_id FROM json_to_recordset(:rows::json) AS r (id text, trace_id text, parent_exec_id text,
  via_agent bigint, caller_session_id text, caller_provider_generation bigint, command text, repo text, cwd text,
  started_at bigint, completed_at bigint, outcome text, exit_code bigint, signal text, error text, boot_id text, pid
  bigint, pid_started_at bigint, home_id text) ON CONFLICT DO NOTHING
RETURNING id;

-- name: push_exec_end
-- The end of a process, once.
UPDATE execs SET completed_at = :completed_at, outcome = :outcome, exit_code = :exit_code, signal = :signal,
  error = :error
WHERE id = :id AND completed_at IS NULL;

-- name: work_alias
-- What stands for work of another ledger.
SELECT stands_for FROM work_aliases WHERE id = :id;

-- name: insert_work_alias
-- Let something stand for it.
INSERT INTO work_aliases (id, kind, stands_for) VALUES (:id, :kind, :stands_for) ON CONFLICT DO NOTHING;

-- name: push_wave
-- A wave, or that it is retired.
INSERT INTO waves (id, name, repo, created_at, parent_wave_id, retired_at, home_id)
VALUES (:id, :name, :repo, :created_at, :parent_wave_id, :retired_at, :home_id)
ON CONFLICT (id) DO UPDATE SET retired_at = least(waves.retired_at, excluded.retired_at);

-- name: push_project
-- A project, or that it is retired.
INSERT INTO projects (id, wave_id, external_project_id, created_at, project_slug, project_name, status, flow,
  retired_at)
VALUES (:id, :wave_id, :external_project_id, :created_at, :project_slug, :project_name, :status, :flow, :retired_at)
ON CONFLICT (id) DO UPDATE SET retired_at = least(projects.retired_at, excluded.retired_at);

-- name: push_task
-- A task, or when it was begun and retired. (Where it is worked on is a folder of one home, and stays there.)
INSERT INTO tasks (id, project_id, external_issue_id, issue_identifier, created_at, issue_title, started_at, state,
  retired_at)
VALUES (:id, :project_id, :external_issue_id, :issue_identifier, :created_at, :issue_title, :started_at, :state,
  :retired_at)
ON CONFLICT (id) DO UPDATE SET retired_at = least(tasks.retired_at, excluded.retired_at),
  started_at = least(tasks.started_at, excluded.started_at);

-- name: push_sessions
-- Conversations that are not there yet; their inputs follow in the same transaction.
INSERT INTO agent_sessions (id, title, title_source, kind, interactive, created_at, completed_at, ready_summary,
  request, input_published, cwd, repo, skill, provider, model, node, iterations, task_id, wave_id, flow_session_id,
  work_source, bound_at, driver_generation, provider_generation, provider_thread, home_id, pruned_to)
SELECT r.id, r.title, r.title_source, r.kind, r.interactive, r.created_at, r.completed_at, r.ready_summary, r.request,
  r.input_published, r.cwd, r.repo, r.skill, r.provider, r.model, r.node, r.iterations, r.task_id, r.wave_id,
  r.flow_session_id, r.work_source, r.bound_at, r.driver_generation, r.provider_generation, r.provider_thread,
  r.home_id, r.pruned_to FROM json_to_recordset(:rows::json) AS r (id text, title text, title_source text, kind text,
  interactive bigint, created_at bigint, completed_at bigint, ready_summary text, request text, input_published
  bigint, cwd text, repo text, skill text, provider text, model text, node bigint, iterations text, task_id text,
  wave_id text, flow_session_id text, work_source text, bound_at bigint, driver_generation bigint, provider_generation
  bigint, provider_thread text, home_id text, pruned_to bigint) ON CONFLICT DO NOTHING
RETURNING id;

-- name: push_session
-- What became known of a conversation; generations only while nobody drives it here.
UPDATE agent_sessions SET title = :title, title_source = :title_source, interactive = :interactive,
  created_at = :created_at, completed_at = :completed_at, ready_summary = :ready_summary,
  input_published = :input_published, cwd = :cwd, repo = :repo, skill = :skill, provider = :provider, model = :model,
  task_id = :task_id, wave_id = :wave_id, work_source = :work_source, bound_at = :bound_at,
  driver_generation = CASE WHEN driver_exec_id IS NULL THEN greatest(driver_generation, :driver_generation)
    ELSE driver_generation END,
  provider_generation = CASE WHEN driver_exec_id IS NULL THEN greatest(provider_generation, :provider_generation)
    ELSE provider_generation END,
  provider_thread = :provider_thread, home_id = :home_id,
  current_capture = coalesce((SELECT seq FROM captures WHERE artifact_key = :current AND session_id = :id),
    current_capture)
WHERE id = :id;

-- name: pruned_sessions
-- Conversations (a JSON list) of which receipts were removed, and up to when.
SELECT s.id, s.pruned_to FROM json_array_elements_text(:sessions::json) j (value)
JOIN agent_sessions s ON s.id = j.value WHERE s.pruned_to IS NOT NULL;

-- name: push_current
-- The newest input of conversations (a JSON list) that have none yet.
UPDATE agent_sessions SET current_capture = (SELECT max(seq) FROM captures WHERE session_id = agent_sessions.id)
WHERE id IN (SELECT value FROM json_array_elements_text(:sessions::json)) AND current_capture IS NULL;

-- name: driven_there
-- Of imported conversations (a JSON list) that are not here: the one that was driven here instead, and whether it was
-- handed over to another provider since.
SELECT r.id, coalesce(t.id, a.session_id), (t.id IS NULL)::int
FROM json_to_recordset(:rows::json) AS r (id text, provider text, thread text)
LEFT JOIN LATERAL (SELECT s.id FROM agent_sessions s WHERE s.provider = r.provider AND s.provider_thread = r.thread
  ORDER BY s.created_at, s.id LIMIT 1) t ON true
LEFT JOIN LATERAL (SELECT x.session_id FROM session_aliases x WHERE x.provider = r.provider AND x.alias = r.thread
  AND left(x.session_id, length(r.provider) + 1) <> r.provider || ':' ORDER BY x.session_id LIMIT 1) a ON true
WHERE coalesce(t.id, a.session_id) IS NOT NULL AND NOT EXISTS (SELECT 1 FROM agent_sessions s WHERE s.id = r.id);

-- name: push_captures
-- The inputs of these artifact keys (a JSON list).
SELECT c.artifact_key, c.seq, c.session_id FROM json_array_elements_text(:keys::json) j (value)
JOIN captures c ON c.artifact_key = j.value;

-- name: push_known
-- Which of these receipts are there, with what is theirs. place: whether one was read from a file.
SELECT r.n, e.seq, e.payload, e.exec_id, e.provider_generation, e.provider_turn,
  EXISTS (SELECT 1 FROM receipt_places p WHERE p.seq = e.seq)::int
FROM json_to_recordset(:rows::json) AS r (n bigint, session text, thread text, turn text, kind text, key text)
JOIN session_events e ON e.session_id = r.session AND coalesce(e.provider_thread, '') = coalesce(r.thread, '')
  AND coalesce(e.provider_turn, '') = coalesce(r.turn, '') AND e.kind = r.kind AND e.receipt_key = r.key
WHERE r.kind <> 'requested'
UNION ALL
SELECT r.n, e.seq, e.payload, e.exec_id, e.provider_generation, e.provider_turn, 0
FROM json_to_recordset(:rows::json) AS r (n bigint, session text, kind text, key text)
JOIN session_events e ON e.session_id = r.session AND e.kind = 'requested' AND e.receipt_key = r.key
WHERE r.kind = 'requested';

-- name: push_events
-- Receipts that are not there yet, in this order.
INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, provider_generation, exec_id,
  task_id, wave_id, observed_at, payload, captured_event, driver_generation)
SELECT session, thread, turn, kind, key, generation, exec, task, wave, at, payload, capture, driver
FROM json_to_recordset(:rows::json) AS r (place bigint, session text, thread text, turn text, kind text, key text,
  generation bigint, exec text, task text, wave text, at bigint, payload text, capture bigint, driver bigint)
ORDER BY place
RETURNING session_id, provider_thread, provider_turn, kind, receipt_key, seq;

-- name: push_source
-- A source that another ledger reads: it is never read here. No row: a copy of that ledger, as on a cloned machine, has
-- another source under the same number.
INSERT INTO sources (provider, path, kind, thread, size, modified_at, read_to, lines, decoder, archived, first_read_at,
  read_at, missing_at, replaced_at, pruned_at, origin)
VALUES (:provider, :path, :kind, :thread, :size, :modified_at, :read_to, :lines, :decoder, :archived, :first_read_at,
  :read_at, :missing_at, :replaced_at, :pruned_at, :origin)
ON CONFLICT (origin) WHERE origin IS NOT NULL DO UPDATE SET path = excluded.path, size = excluded.size,
  modified_at = excluded.modified_at, read_to = excluded.read_to, lines = excluded.lines, decoder = excluded.decoder,
  archived = greatest(sources.archived, excluded.archived), read_at = excluded.read_at,
  missing_at = excluded.missing_at, replaced_at = excluded.replaced_at, pruned_at = excluded.pruned_at
WHERE sources.provider = excluded.provider AND sources.kind = excluded.kind
  AND sources.first_read_at = excluded.first_read_at
RETURNING id;

-- name: native_of
-- The row of an imported conversation.
SELECT id, session_id FROM native_sessions WHERE provider = :provider AND native_id = :native;

-- name: push_requests
-- Settled requests that are not there yet.
INSERT INTO requests (id, session_id, kind, text, by_exec, state, created_at, settled_at, detail)
SELECT r.id, r.session_id, r.kind, r.text, r.by_exec, r.state, r.created_at, r.settled_at, r.detail FROM
  json_to_recordset(:rows::json) AS r (id text, session_id text, kind text, text text, by_exec text, state text,
  created_at bigint, settled_at bigint, detail text)
ON CONFLICT DO NOTHING RETURNING id;

-- name: mark_archived
-- The bytes of a source are here too now.
UPDATE sources SET archived = 1 WHERE id = :id;

-- name: push_native
-- What sources told of a conversation: facts that were not known, the earliest beginning, the better title.
INSERT INTO native_sessions (session_id, provider, native_id, began_at, cwd, root, remote, model, version, title,
  title_rank, title_at, parent_id, parent_turn, relation)
VALUES (:session_id, :provider, :native_id, :began_at, :cwd, :root, :remote, :model, :version, :title, :title_rank,
  :title_at, :parent_id, :parent_turn, :relation)
ON CONFLICT (provider, native_id) DO UPDATE SET
  began_at = least(native_sessions.began_at, excluded.began_at),
  cwd = coalesce(native_sessions.cwd, excluded.cwd), root = coalesce(native_sessions.root, excluded.root),
  remote = coalesce(native_sessions.remote, excluded.remote),
  model = coalesce(excluded.model, native_sessions.model),
  version = coalesce(excluded.version, native_sessions.version),
  title = CASE WHEN native_sessions.title IS NULL OR excluded.title_rank > native_sessions.title_rank
    THEN coalesce(excluded.title, native_sessions.title) ELSE native_sessions.title END,
  title_at = CASE WHEN native_sessions.title IS NULL OR excluded.title_rank > native_sessions.title_rank
    THEN excluded.title_at ELSE native_sessions.title_at END,
  title_rank = greatest(native_sessions.title_rank, excluded.title_rank),
  parent_id = coalesce(native_sessions.parent_id, excluded.parent_id),
  parent_turn = coalesce(native_sessions.parent_turn, excluded.parent_turn),
  relation = coalesce(native_sessions.relation, excluded.relation);
