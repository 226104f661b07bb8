-- name: insert_wave
-- A wave.
INSERT INTO waves (id, name, repo, created_at, parent_wave_id, home_id)
VALUES (:id, :name, :repo, :at, :parent, :home);

-- name: insert_project
-- A project under a wave.
INSERT INTO projects (id, wave_id, external_project_id, created_at, project_slug, project_name)
VALUES (:id, :wave, :external, :at, :slug, :name);

-- name: insert_task
-- A task under a project.
INSERT INTO tasks (id, project_id, external_issue_id, issue_identifier, created_at, issue_title, worktree,
  worktree_home_id)
VALUES (:id, :project, :external, :identifier, :at, :title, :worktree, :home);

-- name: insert_task_pr
-- A pull request of a task; naming it again changes nothing.
INSERT INTO task_prs (id, task_id, external_pr_id, pr_identifier, created_at, pr_title)
VALUES (:id, :task, :external, :identifier, :at, :title) ON CONFLICT DO NOTHING;

-- name: wave
-- A wave with its address; found by walking up.
SELECT w.id, w.name, w.repo, w.created_at, w.parent_wave_id, w.retired_at,
  (WITH RECURSIVE up (parent, slug, depth) AS (
    SELECT w.parent_wave_id, w.name, 0 UNION ALL
    SELECT p.parent_wave_id, p.name || '/' || up.slug, depth + 1 FROM up JOIN waves p ON p.id = up.parent
    WHERE depth < 1000
  ) SELECT slug FROM up WHERE parent IS NULL LIMIT 1)
FROM waves w WHERE w.id = :id;

-- name: wave_page
-- Waves, newest first.
SELECT w.id, w.name, w.repo, w.created_at, w.parent_wave_id, w.retired_at,
  (WITH RECURSIVE up (parent, slug, depth) AS (
    SELECT w.parent_wave_id, w.name, 0 UNION ALL
    SELECT p.parent_wave_id, p.name || '/' || up.slug, depth + 1 FROM up JOIN waves p ON p.id = up.parent
    WHERE depth < 1000
  ) SELECT slug FROM up WHERE parent IS NULL LIMIT 1)
FROM waves w WHERE w.created_at <= :at AND (w.created_at < :at OR w.id > :after)
  AND (:repo::text IS NULL OR w.repo = :repo::text) AND (:parent::text IS NULL OR w.parent_wave_id = :parent::text)
ORDER BY w.created_at DESC, w.id LIMIT nullif(:limit, -1);

-- name: active_wave_page
-- The same of those that are not retired.
SELECT w.id, w.name, w.repo, w.created_at, w.parent_wave_id, w.retired_at,
  (WITH RECURSIVE up (parent, slug, depth) AS (
    SELECT w.parent_wave_id, w.name, 0 UNION ALL
    SELECT p.parent_wave_id, p.name || '/' || up.slug, depth + 1 FROM up JOIN waves p ON p.id = up.parent
    WHERE depth < 1000
  ) SELECT slug FROM up WHERE parent IS NULL LIMIT 1)
FROM waves w WHERE w.retired_at IS NULL AND w.created_at <= :at AND (w.created_at < :at OR w.id > :after)
  AND (:repo::text IS NULL OR w.repo = :repo::text) AND (:parent::text IS NULL OR w.parent_wave_id = :parent::text)
ORDER BY w.created_at DESC, w.id LIMIT nullif(:limit, -1);

-- name: wave_lineage
-- A wave and those above it, from the bottom.
WITH RECURSIVE up (id, parent, name, retired_at, depth) AS (
  SELECT id, parent_wave_id, name, retired_at, 0 FROM waves WHERE id = :id UNION ALL
  SELECT w.id, w.parent_wave_id, w.name, w.retired_at, up.depth + 1 FROM up JOIN waves w ON w.id = up.parent
  WHERE up.depth < 1000
)
SELECT id, name, retired_at FROM up ORDER BY depth;

-- name: wave_taken
-- The active wave of a name in a place.
SELECT id FROM waves WHERE repo = :repo AND coalesce(parent_wave_id, '') = coalesce(:parent::text, '') AND name = :name
  AND retired_at IS NULL;

-- name: waves_named
-- Waves by id, address or the beginning of an id; the rank says how well the word fits.
SELECT id, slug, repo, retired_at, CASE WHEN id = :word THEN 0 WHEN slug = :word THEN 1 ELSE 3 END AS rank
FROM wave_addresses WHERE id = :word OR slug = :word OR (id >= :word AND id < :word || chr(1114111))
ORDER BY rank, retired_at IS NOT NULL, created_at DESC, id LIMIT 20;

-- name: wave_words
-- Names of active waves, to find one that was meant.
SELECT slug FROM wave_addresses WHERE retired_at IS NULL ORDER BY created_at DESC LIMIT 500;

-- name: retire_wave
-- A wave retires with all that lies under it; those that are retired stay as they are.
UPDATE waves SET retired_at = :at WHERE retired_at IS NULL
  AND (id = :id OR id IN (SELECT a.id FROM wave_ancestors a WHERE a.ancestor_id = :id));

-- name: project
-- A project.
SELECT id, wave_id, external_project_id, created_at, project_slug, project_name, retired_at FROM projects WHERE id = :id;

-- name: project_page
-- Projects, newest first.
SELECT p.id, p.wave_id, p.external_project_id, p.created_at, p.project_slug, p.project_name, p.retired_at
FROM projects p WHERE p.created_at <= :at AND (p.created_at < :at OR p.id > :after)
  AND (:wave::text IS NULL OR p.wave_id = :wave::text)
ORDER BY p.created_at DESC, p.id LIMIT nullif(:limit, -1);

-- name: active_project_page
-- The same of those that are not retired, and whose wave is not.
SELECT p.id, p.wave_id, p.external_project_id, p.created_at, p.project_slug, p.project_name, p.retired_at
FROM projects p JOIN waves w ON w.id = p.wave_id
WHERE p.retired_at IS NULL AND w.retired_at IS NULL AND p.created_at <= :at AND (p.created_at < :at OR p.id > :after)
  AND (:wave::text IS NULL OR p.wave_id = :wave::text)
ORDER BY p.created_at DESC, p.id LIMIT nullif(:limit, -1);

-- name: project_taken
-- The active project of a wave that has this external id or slug.
SELECT id FROM projects WHERE wave_id = :wave AND retired_at IS NULL
  AND (external_project_id = :external OR project_slug = :slug::text) LIMIT 1;

-- name: projects_named
-- Projects by id, slug, external id, name or the beginning of an id.
SELECT p.id, coalesce(p.project_slug, p.project_name, p.external_project_id), w.repo,
  coalesce(p.retired_at, w.retired_at) AS closed_at,
  CASE WHEN p.id = :word THEN 0 WHEN p.project_slug = :word OR p.external_project_id = :word THEN 1
    WHEN p.project_name = :word THEN 2 ELSE 3 END AS rank
FROM projects p JOIN waves w ON w.id = p.wave_id
WHERE p.id = :word OR p.project_slug = :word OR p.external_project_id = :word OR p.project_name = :word
  OR (p.id >= :word AND p.id < :word || chr(1114111))
  OR (p.id >= 'proj_' || :word AND p.id < 'proj_' || :word || chr(1114111))
ORDER BY rank, coalesce(p.retired_at, w.retired_at) IS NOT NULL, p.created_at DESC, p.id LIMIT 20;

-- name: project_words
-- Names of active projects.
SELECT coalesce(project_slug, project_name, external_project_id) FROM projects WHERE retired_at IS NULL
ORDER BY created_at DESC LIMIT 500;

-- name: retire_project
-- Once.
UPDATE projects SET retired_at = :at WHERE id = :id AND retired_at IS NULL;

-- name: task
-- A task with its wave.
SELECT t.id, t.project_id, t.external_issue_id, t.issue_identifier, t.issue_title, t.created_at, t.started_at, p.wave_id,
  t.worktree, t.retired_at
FROM tasks t JOIN projects p ON p.id = t.project_id WHERE t.id = :id;

-- name: task_page
-- Tasks, newest first.
SELECT t.id, t.project_id, t.external_issue_id, t.issue_identifier, t.issue_title, t.created_at, t.started_at, p.wave_id,
  t.worktree, t.retired_at
FROM tasks t JOIN projects p ON p.id = t.project_id
WHERE t.created_at <= :at AND (t.created_at < :at OR t.id > :after)
  AND (:project::text IS NULL OR t.project_id = :project::text) AND (:wave::text IS NULL OR p.wave_id = :wave::text)
ORDER BY t.created_at DESC, t.id LIMIT nullif(:limit, -1);

-- name: active_task_page
-- The same of those that are not retired, and whose project and wave are not.
SELECT t.id, t.project_id, t.external_issue_id, t.issue_identifier, t.issue_title, t.created_at, t.started_at, p.wave_id,
  t.worktree, t.retired_at
FROM tasks t JOIN projects p ON p.id = t.project_id JOIN waves w ON w.id = p.wave_id
WHERE t.retired_at IS NULL AND p.retired_at IS NULL AND w.retired_at IS NULL
  AND t.created_at <= :at AND (t.created_at < :at OR t.id > :after)
  AND (:project::text IS NULL OR t.project_id = :project::text) AND (:wave::text IS NULL OR p.wave_id = :wave::text)
ORDER BY t.created_at DESC, t.id LIMIT nullif(:limit, -1);

-- name: task_taken
-- The active task of a project that has this external id.
SELECT id FROM tasks WHERE project_id = :project AND external_issue_id = :external AND retired_at IS NULL;

-- name: tasks_named
-- Tasks by id, external id, identifier, pull request or the beginning of an id. key: the word as an identifier is spelled;
-- identifier: what a link calls its issue; others: a JSON list of external ids that may mean the same.
SELECT t.id, t.issue_identifier, w.repo, coalesce(t.retired_at, p.retired_at, w.retired_at) AS closed_at,
  CASE WHEN t.id = :word THEN 0
    WHEN t.external_issue_id IN (:word, :external::text) OR t.issue_identifier IN (:word, :key::text) THEN 1
    WHEN t.issue_identifier = :identifier::text
      OR t.external_issue_id IN (SELECT value FROM json_array_elements_text(:others::json))
      OR t.id IN (SELECT task_id FROM task_prs WHERE external_pr_id = :external::text) THEN 2
    ELSE 3 END AS rank
FROM tasks t JOIN projects p ON p.id = t.project_id JOIN waves w ON w.id = p.wave_id
WHERE t.id = :word OR t.external_issue_id IN (:word, :external::text)
  OR t.issue_identifier IN (:word, :key::text, :identifier::text)
  OR t.external_issue_id IN (SELECT value FROM json_array_elements_text(:others::json))
  OR t.id IN (SELECT task_id FROM task_prs WHERE external_pr_id = :external::text)
  OR (t.id >= :word AND t.id < :word || chr(1114111))
  OR (t.id >= 'task_' || :word AND t.id < 'task_' || :word || chr(1114111))
ORDER BY rank, coalesce(t.retired_at, p.retired_at, w.retired_at) IS NOT NULL, t.created_at DESC, t.id LIMIT 20;

-- name: task_words
-- Identifiers of active tasks.
SELECT issue_identifier FROM tasks WHERE retired_at IS NULL ORDER BY created_at DESC LIMIT 500;

-- name: retire_task
-- Once.
UPDATE tasks SET retired_at = :at WHERE id = :id AND retired_at IS NULL;

-- name: task_prs
-- The pull requests of a task, in the order they were named.
SELECT id, task_id, external_pr_id, pr_identifier, created_at, pr_title FROM task_prs
WHERE task_id = :task ORDER BY created_at, id;

-- name: set_worktree
-- Where a task is worked on.
UPDATE tasks SET worktree = :worktree, worktree_home_id = :home WHERE id = :id;

-- name: tasks_in_folders
-- Active tasks whose worktree is one of these folders (a JSON list), of one home where it is named.
SELECT t.id, p.wave_id, t.worktree, t.issue_identifier FROM tasks t JOIN projects p ON p.id = t.project_id
JOIN waves w ON w.id = p.wave_id
WHERE t.worktree IN (SELECT value FROM json_array_elements_text(:folders::json))
  AND (:home::text IS NULL OR t.worktree_home_id = :home::text)
  AND t.retired_at IS NULL AND p.retired_at IS NULL AND w.retired_at IS NULL;

-- name: waves_of_repo
-- Active waves of a repository, of one home where it is named: two are enough to know that there is more than one.
SELECT id, name FROM waves WHERE repo = :repo AND (:home::text IS NULL OR home_id = :home::text)
  AND retired_at IS NULL ORDER BY id LIMIT 2;

-- name: session_work
-- The attribution of a conversation, and whether a turn of it has another.
SELECT s.task_id, s.wave_id, s.work_source, EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id
  AND (coalesce(t.task_id, '') <> coalesce(s.task_id, '') OR coalesce(t.wave_id, '') <> coalesce(s.wave_id, '')))
FROM agent_sessions s WHERE s.id = :session;
