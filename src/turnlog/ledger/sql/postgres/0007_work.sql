-- Work at scale: retired projects and tasks, the pull requests of a task, and the order that lists of work and of activity
-- are read in.

ALTER TABLE projects ADD COLUMN retired_at BIGINT;
ALTER TABLE tasks ADD COLUMN retired_at BIGINT;

-- A task's pull requests, in the order they were named.
CREATE TABLE task_prs (
  id TEXT COLLATE "C" PRIMARY KEY,
  task_id TEXT COLLATE "C" NOT NULL REFERENCES tasks (id),
  external_pr_id TEXT COLLATE "C" NOT NULL,
  pr_identifier TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL,
  pr_title TEXT COLLATE "C"
);
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

CREATE FUNCTION turnlog_check_root() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- One at a time: two that change at once could close a circle that neither of them sees.
  PERFORM pg_advisory_xact_lock(turnlog_lock_key('waves', ''));
  IF NEW.parent_wave_id = NEW.id
    OR EXISTS (SELECT 1 FROM wave_ancestors WHERE id = NEW.parent_wave_id AND ancestor_id = NEW.id) THEN
    RAISE EXCEPTION 'a wave cannot lie under itself' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER waves_have_a_root BEFORE INSERT OR UPDATE OF id, parent_wave_id ON waves FOR EACH ROW
WHEN (NEW.parent_wave_id IS NOT NULL) EXECUTE FUNCTION turnlog_check_root();
