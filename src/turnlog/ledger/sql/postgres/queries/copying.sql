-- Copying whole ledgers: pages of each table in the order of its key, rows put as they are.

-- name: copy_homes
-- A page: homes.
SELECT id, name, machine, created_at FROM homes
WHERE id > :id::text ORDER BY id LIMIT :limit::bigint;

-- name: put_homes
-- Put homes.
INSERT INTO homes (id, name, machine, created_at)
SELECT * FROM unnest(:id::text[], :name::text[], :machine::text[], :created_at::bigint[])
ON CONFLICT (id) DO UPDATE SET (name, machine, created_at) = (excluded.name, excluded.machine, excluded.created_at);

-- name: copy_execs
-- A page: processes.
SELECT id, trace_id, parent_exec_id, via_agent, caller_session_id, caller_provider_generation, command, repo, cwd,
  started_at, completed_at, outcome, exit_code, signal, error, boot_id, pid, pid_started_at, home_id FROM execs
WHERE id > :id::text ORDER BY id LIMIT :limit::bigint;

-- name: put_execs
-- Put processes.
INSERT INTO execs (id, trace_id, parent_exec_id, via_agent, caller_session_id, caller_provider_generation, command,
  repo, cwd, started_at, completed_at, outcome, exit_code, signal, error, boot_id, pid, pid_started_at, home_id)
SELECT * FROM unnest(:id::text[], :trace_id::text[], :parent_exec_id::text[], :via_agent::bigint[],
  :caller_session_id::text[], :caller_provider_generation::bigint[], :command::text[], :repo::text[], :cwd::text[],
  :started_at::bigint[], :completed_at::bigint[], :outcome::text[], :exit_code::bigint[], :signal::text[],
  :error::text[], :boot_id::text[], :pid::bigint[], :pid_started_at::bigint[], :home_id::text[])
ON CONFLICT (id) DO UPDATE SET (trace_id, parent_exec_id, via_agent, caller_session_id, caller_provider_generation,
  command, repo, cwd, started_at, completed_at, outcome, exit_code, signal, error, boot_id, pid, pid_started_at,
  home_id) = (excluded.trace_id, excluded.parent_exec_id, excluded.via_agent, excluded.caller_session_id,
  excluded.caller_provider_generation, excluded.command, excluded.repo, excluded.cwd, excluded.started_at,
  excluded.completed_at, excluded.outcome, excluded.exit_code, excluded.signal, excluded.error, excluded.boot_id,
  excluded.pid, excluded.pid_started_at, excluded.home_id);

-- name: copy_waves
-- A page: waves, those above first.
SELECT depth, id, name, repo, created_at, parent_wave_id, retired_at, home_id FROM (WITH RECURSIVE d (id, depth) AS (
  SELECT id, 0 FROM waves WHERE parent_wave_id IS NULL UNION ALL SELECT w.id, d.depth + 1 FROM waves w JOIN d ON d.id =
  w.parent_wave_id) SELECT d.depth, w.* FROM waves w JOIN d ON d.id = w.id) x
WHERE (depth, id) > (:depth::bigint, :id::text) ORDER BY depth, id LIMIT :limit::bigint;

-- name: put_waves
-- Put waves, those above first.
INSERT INTO waves (id, name, repo, created_at, parent_wave_id, retired_at, home_id)
SELECT * FROM unnest(:id::text[], :name::text[], :repo::text[], :created_at::bigint[], :parent_wave_id::text[],
  :retired_at::bigint[], :home_id::text[])
ON CONFLICT (id) DO UPDATE SET (name, repo, created_at, parent_wave_id, retired_at, home_id) = (excluded.name,
  excluded.repo, excluded.created_at, excluded.parent_wave_id, excluded.retired_at, excluded.home_id);

-- name: copy_projects
-- A page: projects.
SELECT id, wave_id, external_project_id, created_at, project_slug, project_name, status, flow, retired_at FROM
  projects
WHERE id > :id::text ORDER BY id LIMIT :limit::bigint;

-- name: put_projects
-- Put projects.
INSERT INTO projects (id, wave_id, external_project_id, created_at, project_slug, project_name, status, flow,
  retired_at)
SELECT * FROM unnest(:id::text[], :wave_id::text[], :external_project_id::text[], :created_at::bigint[],
  :project_slug::text[], :project_name::text[], :status::text[], :flow::text[], :retired_at::bigint[])
ON CONFLICT (id) DO UPDATE SET (wave_id, external_project_id, created_at, project_slug, project_name, status, flow,
  retired_at) = (excluded.wave_id, excluded.external_project_id, excluded.created_at, excluded.project_slug,
  excluded.project_name, excluded.status, excluded.flow, excluded.retired_at);

-- name: copy_tasks
-- A page: tasks.
SELECT id, project_id, external_issue_id, issue_identifier, created_at, issue_title, worktree, started_at, state,
  retired_at, worktree_home_id FROM tasks
WHERE id > :id::text ORDER BY id LIMIT :limit::bigint;

-- name: put_tasks
-- Put tasks.
INSERT INTO tasks (id, project_id, external_issue_id, issue_identifier, created_at, issue_title, worktree, started_at,
  state, retired_at, worktree_home_id)
SELECT * FROM unnest(:id::text[], :project_id::text[], :external_issue_id::text[], :issue_identifier::text[],
  :created_at::bigint[], :issue_title::text[], :worktree::text[], :started_at::bigint[], :state::text[],
  :retired_at::bigint[], :worktree_home_id::text[])
ON CONFLICT (id) DO UPDATE SET (project_id, external_issue_id, issue_identifier, created_at, issue_title, worktree,
  started_at, state, retired_at, worktree_home_id) = (excluded.project_id, excluded.external_issue_id,
  excluded.issue_identifier, excluded.created_at, excluded.issue_title, excluded.worktree, excluded.started_at,
  excluded.state, excluded.retired_at, excluded.worktree_home_id);

-- name: copy_task_prs
-- A page: pull requests.
SELECT id, task_id, external_pr_id, pr_identifier, created_at, pr_title FROM task_prs
WHERE id > :id::text ORDER BY id LIMIT :limit::bigint;

-- name: put_task_prs
-- Put pull requests.
INSERT INTO task_prs (id, task_id, external_pr_id, pr_identifier, created_at, pr_title)
SELECT * FROM unnest(:id::text[], :task_id::text[], :external_pr_id::text[], :pr_identifier::text[],
  :created_at::bigint[], :pr_title::text[])
ON CONFLICT (id) DO UPDATE SET (task_id, external_pr_id, pr_identifier, created_at, pr_title) = (excluded.task_id,
  excluded.external_pr_id, excluded.pr_identifier, excluded.created_at, excluded.pr_title);

-- name: copy_work_aliases
-- A page: what stands for work of other ledgers.
SELECT id, kind, stands_for FROM work_aliases
WHERE id > :id::text ORDER BY id LIMIT :limit::bigint;

-- name: put_work_aliases
-- Put what stands for work of other ledgers.
INSERT INTO work_aliases (id, kind, stands_for)
SELECT * FROM unnest(:id::text[], :kind::text[], :stands_for::text[])
ON CONFLICT (id) DO UPDATE SET (kind, stands_for) = (excluded.kind, excluded.stands_for);

-- name: copy_sessions
-- A page: conversations, without their current input.
SELECT id, title, title_source, kind, interactive, created_at, completed_at, ready_summary, request, input_published,
  cwd, repo, skill, provider, model, node, iterations, task_id, wave_id, flow_session_id, work_source, bound_at,
  primary_scope, driver_exec_id, driver_generation, driver_heartbeat_at, provider_generation, provider_exec_id,
  provider_endpoint, provider_thread, provider_pid, provider_started_at, pruned_to, home_id FROM agent_sessions
WHERE id > :id::text ORDER BY id LIMIT :limit::bigint;

-- name: put_sessions
-- Put conversations, without their current input.
INSERT INTO agent_sessions (id, title, title_source, kind, interactive, created_at, completed_at, ready_summary,
  request, input_published, cwd, repo, skill, provider, model, node, iterations, task_id, wave_id, flow_session_id,
  work_source, bound_at, primary_scope, driver_exec_id, driver_generation, driver_heartbeat_at, provider_generation,
  provider_exec_id, provider_endpoint, provider_thread, provider_pid, provider_started_at, pruned_to, home_id)
SELECT * FROM unnest(:id::text[], :title::text[], :title_source::text[], :kind::text[], :interactive::bigint[],
  :created_at::bigint[], :completed_at::bigint[], :ready_summary::text[], :request::text[],
  :input_published::bigint[], :cwd::text[], :repo::text[], :skill::text[], :provider::text[], :model::text[],
  :node::bigint[], :iterations::text[], :task_id::text[], :wave_id::text[], :flow_session_id::text[],
  :work_source::text[], :bound_at::bigint[], :primary_scope::text[], :driver_exec_id::text[],
  :driver_generation::bigint[], :driver_heartbeat_at::bigint[], :provider_generation::bigint[],
  :provider_exec_id::text[], :provider_endpoint::text[], :provider_thread::text[], :provider_pid::bigint[],
  :provider_started_at::bigint[], :pruned_to::bigint[], :home_id::text[])
ON CONFLICT (id) DO UPDATE SET (title, title_source, kind, interactive, created_at, completed_at, ready_summary,
  request, input_published, cwd, repo, skill, provider, model, node, iterations, task_id, wave_id, flow_session_id,
  work_source, bound_at, primary_scope, driver_exec_id, driver_generation, driver_heartbeat_at, provider_generation,
  provider_exec_id, provider_endpoint, provider_thread, provider_pid, provider_started_at, pruned_to, home_id) =
  (excluded.title, excluded.title_source, excluded.kind, excluded.interactive, excluded.created_at,
  excluded.completed_at, excluded.ready_summary, excluded.request, excluded.input_published, excluded.cwd,
  excluded.repo, excluded.skill, excluded.provider, excluded.model, excluded.node, excluded.iterations,
  excluded.task_id, excluded.wave_id, excluded.flow_session_id, excluded.work_source, excluded.bound_at,
  excluded.primary_scope, excluded.driver_exec_id, excluded.driver_generation, excluded.driver_heartbeat_at,
  excluded.provider_generation, excluded.provider_exec_id, excluded.provider_endpoint, excluded.provider_thread,
  excluded.provider_pid, excluded.provider_started_at, excluded.pruned_to, excluded.home_id);

-- name: copy_events
-- A page: receipts.
SELECT seq, session_id, provider_thread, provider_turn, kind, receipt_key, provider_generation, exec_id, task_id,
  wave_id, observed_at, payload, captured_event, driver_generation FROM session_events
WHERE seq > :seq::bigint ORDER BY seq LIMIT :limit::bigint;

-- name: put_events
-- Put receipts.
INSERT INTO session_events (seq, session_id, provider_thread, provider_turn, kind, receipt_key, provider_generation,
  exec_id, task_id, wave_id, observed_at, payload, captured_event, driver_generation)
SELECT * FROM unnest(:seq::bigint[], :session_id::text[], :provider_thread::text[], :provider_turn::text[],
  :kind::text[], :receipt_key::text[], :provider_generation::bigint[], :exec_id::text[], :task_id::text[],
  :wave_id::text[], :observed_at::bigint[], :payload::text[], :captured_event::bigint[], :driver_generation::bigint[])
  AS r (seq) ORDER BY seq;

-- name: change_event
-- Make a receipt equal to the one copied.
UPDATE session_events SET session_id = :session_id::text, provider_thread = :provider_thread::text, provider_turn =
  :provider_turn::text, kind = :kind::text, receipt_key = :receipt_key::text, provider_generation =
  :provider_generation::bigint, exec_id = :exec_id::text, task_id = :task_id::text, wave_id = :wave_id::text,
  observed_at = :observed_at::bigint, payload = :payload::text, captured_event = :captured_event::bigint,
  driver_generation = :driver_generation::bigint
WHERE seq = :seq::bigint;

-- name: copy_inputs
-- A page: the current inputs of conversations.
SELECT id, current_capture FROM agent_sessions
WHERE id > :id::text AND current_capture IS NOT NULL ORDER BY id LIMIT :limit::bigint;

-- name: put_inputs
-- Put the current inputs of conversations.
UPDATE agent_sessions s SET current_capture = r.capture
FROM unnest(:id::text[], :current_capture::bigint[]) AS r (id, capture) WHERE s.id = r.id;

-- name: copy_requests
-- A page: requests, in the order they were made.
SELECT number, id, session_id, kind, text, by_exec, state, created_at, settled_at, detail FROM requests
WHERE number > :number::bigint ORDER BY number LIMIT :limit::bigint;

-- name: put_requests
-- Put requests, in the order they were made.
INSERT INTO requests (number, id, session_id, kind, text, by_exec, state, created_at, settled_at, detail)
SELECT * FROM unnest(:number::bigint[], :id::text[], :session_id::text[], :kind::text[], :text::text[],
  :by_exec::text[], :state::text[], :created_at::bigint[], :settled_at::bigint[], :detail::text[])
ON CONFLICT (id) DO UPDATE SET (session_id, kind, text, by_exec, state, created_at, settled_at, detail) =
  (excluded.session_id, excluded.kind, excluded.text, excluded.by_exec, excluded.state, excluded.created_at,
  excluded.settled_at, excluded.detail);

-- name: copy_sources
-- A page: sources.
SELECT id, provider, path, kind, thread, device, inode, size, modified_at, head, head_size, read_to, tail, lines,
  state, cursor, decoder, archived, first_read_at, read_at, missing_at, replaced_at, pruned_at, origin, home_id, wants
FROM sources
WHERE id > :id::bigint ORDER BY id LIMIT :limit::bigint;

-- name: put_sources
-- Put sources.
INSERT INTO sources (id, provider, path, kind, thread, device, inode, size, modified_at, head, head_size, read_to,
  tail, lines, state, cursor, decoder, archived, first_read_at, read_at, missing_at, replaced_at, pruned_at, origin,
  home_id, wants)
SELECT * FROM unnest(:id::bigint[], :provider::text[], :path::text[], :kind::text[], :thread::text[],
  :device::bigint[], :inode::bigint[], :size::bigint[], :modified_at::bigint[], :head::text[], :head_size::bigint[],
  :read_to::bigint[], :tail::text[], :lines::bigint[], :state::bytea[], :cursor::bytea[], :decoder::bigint[],
  :archived::bigint[], :first_read_at::bigint[], :read_at::bigint[], :missing_at::bigint[], :replaced_at::bigint[],
  :pruned_at::bigint[], :origin::text[], :home_id::text[], :wants::text[])
ON CONFLICT (id) DO UPDATE SET (provider, path, kind, thread, device, inode, size, modified_at, head, head_size,
  read_to, tail, lines, state, cursor, decoder, archived, first_read_at, read_at, missing_at, replaced_at, pruned_at,
  origin, home_id, wants) = (excluded.provider, excluded.path, excluded.kind, excluded.thread, excluded.device, excluded.inode,
  excluded.size, excluded.modified_at, excluded.head, excluded.head_size, excluded.read_to, excluded.tail,
  excluded.lines, excluded.state, excluded.cursor, excluded.decoder, excluded.archived, excluded.first_read_at,
  excluded.read_at, excluded.missing_at, excluded.replaced_at, excluded.pruned_at, excluded.origin,
  excluded.home_id, excluded.wants);

-- name: copy_problems
-- A page: problems of sources.
SELECT source_id, "offset", kind, length, detail, session_id, usage, seen_at FROM source_problems
WHERE (source_id, "offset", kind) > (:source_id::bigint, :offset::bigint, :kind::text) ORDER BY source_id, "offset",
  kind LIMIT :limit::bigint;

-- name: put_problems
-- Put problems of sources.
INSERT INTO source_problems (source_id, "offset", kind, length, detail, session_id, usage, seen_at)
SELECT * FROM unnest(:source_id::bigint[], :offset::bigint[], :kind::text[], :length::bigint[], :detail::text[],
  :session_id::text[], :usage::bigint[], :seen_at::bigint[])
ON CONFLICT (source_id, "offset", kind) DO UPDATE SET (length, detail, session_id, usage, seen_at) = (excluded.length,
  excluded.detail, excluded.session_id, excluded.usage, excluded.seen_at);

-- name: copy_natives
-- A page: what sources tell of conversations.
SELECT id, session_id, provider, native_id, began_at, cwd, root, remote, model, version, title, title_rank, parent_id,
  parent_turn, relation, pruned_at, title_at FROM native_sessions
WHERE id > :id::bigint ORDER BY id LIMIT :limit::bigint;

-- name: put_natives
-- Put what sources tell of conversations.
INSERT INTO native_sessions (id, session_id, provider, native_id, began_at, cwd, root, remote, model, version, title,
  title_rank, parent_id, parent_turn, relation, pruned_at, title_at)
SELECT * FROM unnest(:id::bigint[], :session_id::text[], :provider::text[], :native_id::text[], :began_at::bigint[],
  :cwd::text[], :root::text[], :remote::text[], :model::text[], :version::text[], :title::text[],
  :title_rank::bigint[], :parent_id::text[], :parent_turn::text[], :relation::text[], :pruned_at::bigint[],
  :title_at::bigint[])
ON CONFLICT (id) DO UPDATE SET (session_id, provider, native_id, began_at, cwd, root, remote, model, version, title,
  title_rank, parent_id, parent_turn, relation, pruned_at, title_at) = (excluded.session_id, excluded.provider,
  excluded.native_id, excluded.began_at, excluded.cwd, excluded.root, excluded.remote, excluded.model,
  excluded.version, excluded.title, excluded.title_rank, excluded.parent_id, excluded.parent_turn, excluded.relation,
  excluded.pruned_at, excluded.title_at);

-- name: copy_aliases
-- A page: other names of conversations.
SELECT provider, alias, session_id FROM session_aliases
WHERE (provider, alias, session_id) > (:provider::text, :alias::text, :session_id::text) ORDER BY provider, alias,
  session_id LIMIT :limit::bigint;

-- name: put_aliases
-- Put other names of conversations.
INSERT INTO session_aliases (provider, alias, session_id)
SELECT * FROM unnest(:provider::text[], :alias::text[], :session_id::text[])
ON CONFLICT (provider, alias, session_id) DO NOTHING;

-- name: copy_session_sources
-- A page: which sources tell of conversations.
SELECT session_id, source_id FROM session_sources
WHERE (session_id, source_id) > (:session_id::text, :source_id::bigint) ORDER BY session_id, source_id LIMIT
  :limit::bigint;

-- name: put_session_sources
-- Put which sources tell of conversations.
INSERT INTO session_sources (session_id, source_id)
SELECT * FROM unnest(:session_id::text[], :source_id::bigint[])
ON CONFLICT (session_id, source_id) DO NOTHING;

-- name: copy_places
-- A page: where receipts were read.
SELECT seq, source_id, "offset", call FROM receipt_places
WHERE seq > :seq::bigint ORDER BY seq LIMIT :limit::bigint;

-- name: put_places
-- Put where receipts were read.
INSERT INTO receipt_places (seq, source_id, "offset", call)
SELECT * FROM unnest(:seq::bigint[], :source_id::bigint[], :offset::bigint[], :call::text[])
ON CONFLICT (seq) DO UPDATE SET (source_id, "offset", call) = (excluded.source_id, excluded."offset", excluded.call);

-- name: copy_calls
-- A page: sightings of calls.
SELECT call, session_id, at, rivals, weight, owned FROM calls
WHERE (call, session_id) > (:call::text, :session_id::text) ORDER BY call, session_id LIMIT :limit::bigint;

-- name: put_calls
-- Put sightings of calls.
INSERT INTO calls (call, session_id, at, rivals, weight, owned)
SELECT * FROM unnest(:call::text[], :session_id::text[], :at::bigint[], :rivals::text[], :weight::bigint[],
  :owned::bigint[])
ON CONFLICT (call, session_id) DO UPDATE SET (at, rivals, weight, owned) = (excluded.at, excluded.rivals,
  excluded.weight, excluded.owned);

-- name: copy_archive
-- A page: archived bytes.
SELECT source_id, start, size, data FROM archive
WHERE (source_id, start) > (:source_id::bigint, :start::bigint) ORDER BY source_id, start LIMIT :limit::bigint;

-- name: put_archive
-- Put archived bytes.
INSERT INTO archive (source_id, start, size, data)
SELECT * FROM unnest(:source_id::bigint[], :start::bigint[], :size::bigint[], :data::bytea[])
ON CONFLICT (source_id, start) DO UPDATE SET (size, data) = (excluded.size, excluded.data);

-- name: copy_passages
-- A page: where pieces of text are.
SELECT id, native, turn, role, at, source_id, "offset", part, key FROM passages
WHERE id > :id::bigint ORDER BY id LIMIT :limit::bigint;

-- name: put_passages
-- Put where pieces of text are.
INSERT INTO passages (id, native, turn, role, at, source_id, "offset", part, key)
SELECT * FROM unnest(:id::bigint[], :native::bigint[], :turn::text[], :role::bigint[], :at::bigint[],
  :source_id::bigint[], :offset::bigint[], :part::bigint[], :key::text[])
ON CONFLICT (id) DO UPDATE SET (native, turn, role, at, source_id, "offset", part, key) = (excluded.native,
  excluded.turn, excluded.role, excluded.at, excluded.source_id, excluded."offset", excluded.part, excluded.key);

-- name: uncopy_events
-- Forget receipts that were removed.
DELETE FROM session_events WHERE seq = ?;

-- name: uncopy_requests
-- Forget requests that were removed.
DELETE FROM requests WHERE number = ?;

-- name: uncopy_problems
-- Forget what is no longer there: problems of sources.
DELETE FROM source_problems WHERE source_id = ? AND "offset" = ? AND kind = ?;

-- name: uncopy_places
-- Forget what is no longer there: where receipts were read.
DELETE FROM receipt_places WHERE seq = ?;

-- name: uncopy_archive
-- Forget what is no longer there: archived bytes.
DELETE FROM archive WHERE source_id = ? AND start = ?;

-- name: ledger_names
-- Which ledger this is: its id, the id with its place, of which ledger it is a copy, and up to which numbers.
SELECT (SELECT value FROM ledger_meta WHERE key = 'ledger_id'),
  (SELECT value FROM ledger_meta WHERE key = 'ledger_id') || '@' || turnlog_home(),
  (SELECT value FROM ledger_meta WHERE key = 'copied_from'), (SELECT value FROM ledger_meta WHERE key = 'copied_to');

-- name: ledger_is_empty
-- Whether nothing was ever recorded here.
SELECT NOT EXISTS (SELECT 1 FROM execs) AND NOT EXISTS (SELECT 1 FROM agent_sessions)
  AND NOT EXISTS (SELECT 1 FROM waves) AND NOT EXISTS (SELECT 1 FROM sources);

-- name: note_ledger
-- A word about the ledger itself.
INSERT INTO ledger_meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: copy_count
-- How many rows there are to copy.
SELECT (SELECT count(*) FROM homes) + (SELECT count(*) FROM execs) + (SELECT count(*) FROM waves) + (SELECT count(*)
  FROM projects) + (SELECT count(*) FROM tasks) + (SELECT count(*) FROM task_prs) + (SELECT count(*) FROM
  work_aliases) + (SELECT count(*) FROM agent_sessions) + (SELECT count(*) FROM session_events) + (SELECT count(*)
  FROM requests) + (SELECT count(*) FROM sources) + (SELECT count(*) FROM source_problems) + (SELECT count(*) FROM
  native_sessions) + (SELECT count(*) FROM session_aliases) + (SELECT count(*) FROM session_sources) + (SELECT
  count(*) FROM receipt_places) + (SELECT count(*) FROM calls) + (SELECT count(*) FROM archive) + (SELECT count(*)
  FROM passages);

-- name: last_seqs
-- The numbers given last: of receipts, requests, sources and imported conversations.
SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM session_events_seq_seq),
  coalesce((SELECT max(number) FROM requests), 0), coalesce((SELECT max(id) FROM sources), 0),
  coalesce((SELECT max(id) FROM native_sessions), 0);

-- name: move_seqs
-- Let numbers go on behind those copied.
SELECT setval(s.name::regclass, greatest(s.value, 1), s.value > 0) FROM (VALUES
  ('session_events_seq_seq', greatest(:events::bigint, (SELECT max(seq) FROM session_events))),
  ('requests_number_seq', :requests::bigint), ('sources_id_seq', :sources::bigint),
  ('native_sessions_id_seq', :natives::bigint)) AS s (name, value);

-- name: wordless
-- Passages that are not in the full-text table, behind one.
SELECT p.id, n.session_id, s.provider, p.turn, p.role, p.at, p.source_id, p."offset", p.part FROM passages p
JOIN sources s ON s.id = p.source_id LEFT JOIN native_sessions n ON n.id = p.native
WHERE p.id > :after::bigint AND NOT EXISTS (SELECT 1 FROM passage_words d WHERE d.id = p.id)
ORDER BY p.id LIMIT :limit::bigint;
