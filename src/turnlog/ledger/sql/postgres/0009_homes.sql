-- Homes, and moving between ledgers: which home made what, what stands for what, how far a push has come.

-- The data folders of turnlog, one on each machine, that write into this ledger. machine: a digest of the machine's id.
CREATE TABLE homes (
  id TEXT COLLATE "C" PRIMARY KEY,
  name TEXT COLLATE "C" NOT NULL,
  machine TEXT COLLATE "C",
  created_at BIGINT NOT NULL
);

-- Where a process ran and a conversation was begun; null = unknown.
ALTER TABLE execs ADD COLUMN home_id TEXT COLLATE "C";
ALTER TABLE agent_sessions ADD COLUMN home_id TEXT COLLATE "C";

-- A source that another ledger reads and has told of: `<ledger>:<its id there>`.
ALTER TABLE sources ADD COLUMN origin TEXT COLLATE "C";
-- In a ledger that several machines write into, a path is a file of one of them (home_id; null = the ledger's own machine).
ALTER TABLE sources ADD COLUMN home_id TEXT COLLATE "C";
DROP INDEX sources_by_path;
CREATE UNIQUE INDEX sources_by_path ON sources (path, coalesce(home_id, '')) WHERE replaced_at IS NULL;
CREATE UNIQUE INDEX sources_by_origin ON sources (origin) WHERE origin IS NOT NULL;

-- A wave, project or task that came from another ledger, where the same work stood here under another id.
CREATE TABLE work_aliases (
  id TEXT COLLATE "C" PRIMARY KEY,
  kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('wave', 'project', 'task')),
  stands_for TEXT COLLATE "C" NOT NULL
);

-- What of this ledger another one (target) has: the cursor, rows as they were told last, receipts that may still be filled.
CREATE TABLE pushed (
  target TEXT COLLATE "C" NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  id TEXT COLLATE "C" NOT NULL,
  state TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (target, kind, id)
);
