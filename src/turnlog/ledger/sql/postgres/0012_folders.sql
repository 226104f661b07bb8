-- A folder is one machine's: of which home the repository's path of a wave and the worktree of a task are; null = unknown.

ALTER TABLE waves ADD COLUMN home_id TEXT COLLATE "C";
ALTER TABLE tasks ADD COLUMN worktree_home_id TEXT COLLATE "C";
