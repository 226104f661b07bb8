-- Work at scale: retired projects and tasks, the pull requests of a task, and the order that lists of work and of activity
-- are read in.

ALTER TABLE projects ADD COLUMN retired_at INTEGER;
ALTER TABLE tasks ADD COLUMN retired_at INTEGER;

-- A task's pull requests, in the order they were named.
CREATE TABLE task_prs (
  id TEXT PRIMARY KEY,
  task_id TEXT NOT NULL REFERENCES tasks (id),
  external_pr_id TEXT NOT NULL,
  pr_identifier TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  pr_title TEXT
) STRICT;
CREATE UNIQUE INDEX task_prs_once ON task_prs (task_id, external_pr_id);
CREATE INDEX task_prs_by_external ON task_prs (external_pr_id);
CREATE INDEX task_prs_by_creation ON task_prs (created_at DESC, id);

CREATE INDEX waves_by_creation ON waves (created_at DESC, id);
CREATE INDEX waves_active ON waves (created_at DESC, id) WHERE retired_at IS NULL;
CREATE INDEX waves_retired ON waves (retired_at DESC, id) WHERE retired_at IS NOT NULL;
CREATE INDEX projects_by_creation ON projects (created_at DESC, id);
CREATE INDEX projects_active ON projects (created_at DESC, id) WHERE retired_at IS NULL;
CREATE INDEX projects_retired ON projects (retired_at DESC, id) WHERE retired_at IS NOT NULL;
CREATE INDEX projects_by_slug ON projects (project_slug) WHERE project_slug IS NOT NULL;
CREATE INDEX projects_by_name ON projects (project_name) WHERE project_name IS NOT NULL;
CREATE INDEX projects_by_external ON projects (external_project_id);
CREATE INDEX tasks_by_creation ON tasks (created_at DESC, id);
CREATE INDEX tasks_active ON tasks (created_at DESC, id) WHERE retired_at IS NULL;
CREATE INDEX tasks_retired ON tasks (retired_at DESC, id) WHERE retired_at IS NOT NULL;

CREATE INDEX captures_by_time ON captures (observed_at DESC, artifact_key);
CREATE INDEX sessions_bound ON agent_sessions (bound_at DESC, id) WHERE bound_at IS NOT NULL;
CREATE INDEX sessions_closed ON agent_sessions (completed_at DESC, id) WHERE completed_at IS NOT NULL;
CREATE INDEX requests_by_time ON requests (created_at DESC, id);

-- Every wave with the waves above it. UNION, not UNION ALL: it would end on a circle too.
CREATE VIEW wave_ancestors AS
WITH RECURSIVE above (id, ancestor_id) AS (
  SELECT id, parent_wave_id FROM waves WHERE parent_wave_id IS NOT NULL
  UNION
  SELECT a.id, w.parent_wave_id FROM above a JOIN waves w ON w.id = a.ancestor_id WHERE w.parent_wave_id IS NOT NULL
)
SELECT id, ancestor_id FROM above;

CREATE TRIGGER waves_have_a_root_on_insert BEFORE INSERT ON waves
WHEN NEW.parent_wave_id = NEW.id
  OR EXISTS (SELECT 1 FROM wave_ancestors WHERE id = NEW.parent_wave_id AND ancestor_id = NEW.id)
BEGIN SELECT raise(ABORT, 'a wave cannot lie under itself'); END;

CREATE TRIGGER waves_have_a_root_on_update BEFORE UPDATE OF id, parent_wave_id ON waves
WHEN NEW.parent_wave_id = NEW.id
  OR EXISTS (SELECT 1 FROM wave_ancestors WHERE id = NEW.parent_wave_id AND ancestor_id = NEW.id)
BEGIN SELECT raise(ABORT, 'a wave cannot lie under itself'); END;
