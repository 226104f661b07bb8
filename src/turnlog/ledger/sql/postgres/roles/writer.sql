-- A role that records and reads, but can neither change nor delete a receipt, nor forge the order of receipts. Run it as
-- the ledger's owner, in the ledger's schema, after turnlog has made or upgraded the ledger there:
--
--   CREATE ROLE turnlog_writer LOGIN PASSWORD '…';
--   \i writer.sql
--
-- The lists (turns, intents, captures, releases) follow the facts by triggers that run as the owner. A receipt's exec,
-- generation, turn and thread may be filled once, from null to a value; a trigger holds everybody but the owner to that.
-- Only the owner upgrades the ledger.

GRANT SELECT ON ALL TABLES IN SCHEMA public TO turnlog_writer;

-- Facts.
GRANT INSERT ON homes, execs, waves, projects, tasks, task_prs, work_aliases, agent_sessions, requests TO turnlog_writer;
GRANT INSERT (session_id, provider_thread, provider_turn, kind, receipt_key, provider_generation, exec_id, task_id,
  wave_id, observed_at, payload, captured_event, driver_generation) ON session_events TO turnlog_writer;
GRANT UPDATE (exec_id, provider_generation, provider_thread, provider_turn) ON session_events TO turnlog_writer;
GRANT UPDATE (completed_at, outcome, exit_code, signal, error) ON execs TO turnlog_writer;
GRANT UPDATE (retired_at) ON waves, projects TO turnlog_writer;
GRANT UPDATE (retired_at, worktree, worktree_home_id, started_at) ON tasks TO turnlog_writer;
GRANT UPDATE (state, settled_at, detail) ON requests TO turnlog_writer;
GRANT UPDATE (title, title_source, kind, interactive, created_at, completed_at, ready_summary, current_capture,
  input_published, cwd, repo, skill, provider, model, task_id, wave_id, work_source, bound_at, driver_exec_id,
  driver_generation, driver_heartbeat_at, provider_generation, provider_exec_id, provider_endpoint, provider_thread,
  provider_pid, provider_started_at, home_id) ON agent_sessions TO turnlog_writer;

-- Where imports stand, and the archive.
GRANT INSERT, UPDATE ON sources, source_problems, native_sessions, calls, archive, pushed TO turnlog_writer;
GRANT INSERT ON session_aliases, session_sources, receipt_places, passages, passage_words TO turnlog_writer;
GRANT UPDATE (source_id, "offset") ON receipt_places TO turnlog_writer;
GRANT DELETE ON source_problems, passages, passage_words TO turnlog_writer;

-- Caches, which anybody may make again.
GRANT INSERT, UPDATE, DELETE ON rollup_state, rollup_dirty, rollup_sessions, rollup_kinds, rollup_prices, streams,
  loose_gaps, usage_buckets TO turnlog_writer;

-- Who waits for receipts.
GRANT INSERT, UPDATE, DELETE ON watchers TO turnlog_writer;
