-- name: sources
-- Every source that is still read, of a home where the ledger tells them apart.
SELECT id, provider, path, kind, thread, device, inode, size, modified_at, head, head_size, read_to, tail, lines, state,
  cursor, decoder, archived, missing_at
FROM sources WHERE replaced_at IS NULL AND (:path IS NULL OR path = :path)
  AND (:home IS NULL OR home_id IS NULL OR home_id = :home) ORDER BY path;

-- name: source_marks
-- What the file system said of each source that is there: (path, device, inode, size, modified at). By the table: the
-- index would go through it in another order.
SELECT path, device, inode, size, modified_at FROM sources NOT INDEXED
WHERE replaced_at IS NULL AND missing_at IS NULL AND (:home IS NULL OR home_id IS NULL OR home_id = :home);

-- name: insert_source
-- A source that is read for the first time; nothing when another process was faster.
INSERT INTO sources (provider, path, kind, thread, archived, first_read_at, read_at, home_id)
VALUES (:provider, :path, :kind, :thread, :archived, :now, :now, :home) ON CONFLICT DO NOTHING RETURNING id;

-- name: advance_source
-- How far a source was read; only if it still stands where this reading began.
UPDATE sources SET read_to = :end, path = :path, kind = :kind, thread = coalesce(:thread, thread), device = :device,
  inode = :inode, size = :size, modified_at = :modified, head = coalesce(:head, head),
  head_size = CASE WHEN :head IS NULL THEN head_size ELSE :head_size END, tail = coalesce(:tail, tail),
  lines = lines + :lines, state = :state, cursor = :cursor, decoder = :decoder, read_at = :now, missing_at = NULL
WHERE id = :id AND read_to = :start AND replaced_at IS NULL RETURNING id;

-- name: touch_source
-- What the file system says of a source in which there is nothing new.
UPDATE sources SET device = :device, inode = :inode, size = :size, modified_at = :modified, missing_at = NULL
WHERE id = :id AND replaced_at IS NULL;

-- name: source_missing
-- The file is gone; what it told stays.
UPDATE sources SET missing_at = :now WHERE id = :id AND missing_at IS NULL;

-- name: unreadable_sources
-- Sources that could not be opened or listed.
SELECT DISTINCT source_id FROM source_problems WHERE kind IN ('unreadable_source', 'unreadable_folder');

-- name: source_readable
-- A source can be opened, or listed, again.
DELETE FROM source_problems WHERE source_id = :id AND kind IN ('unreadable_source', 'unreadable_folder');

-- name: replace_source
-- Another file has the path now: this one is read no more.
UPDATE sources SET replaced_at = :now WHERE id = :id AND replaced_at IS NULL;

-- name: rewind_source
-- Begin a source anew with a better decoder: what it told stays, its text and problems are made again.
UPDATE sources SET read_to = 0, state = NULL, lines = 0, decoder = 0, wants = NULL WHERE id = :id AND read_to = :end;

-- name: want
-- A source would tell more if a conversation's own one were there.
UPDATE sources SET wants = :thread WHERE id = :id AND wants IS NULL;

-- name: wanting
-- Sources that are to be read again when a conversation's own one is there.
SELECT id, wants FROM sources WHERE wants IS NOT NULL AND replaced_at IS NULL ORDER BY id;

-- name: delete_problems
-- Forget the problems of a source from a byte on: it is read again from there.
DELETE FROM source_problems WHERE source_id = :id AND "offset" >= :start;

-- name: insert_problems
-- Bytes that could not be used.
INSERT INTO source_problems (source_id, "offset", kind, length, detail, session_id, usage, seen_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (source_id, "offset", kind) DO UPDATE SET length = excluded.length, detail = excluded.detail;

-- name: source_problems
-- Problems, newest source first; of one session or of all.
SELECT s.path, p."offset", p.kind, p.length, p.detail, p.session_id, p.usage
FROM source_problems p JOIN sources s ON s.id = p.source_id
WHERE :session IS NULL OR p.session_id = :session ORDER BY s.id DESC, p."offset" LIMIT :limit;

-- name: conversation
-- The session of a provider's conversation: the one that drove it first, else the imported one.
SELECT s.id, n.id, s.current_capture, s.title_source, s.id = :provider || ':' || :native
FROM agent_sessions s LEFT JOIN native_sessions n ON n.session_id = s.id
WHERE s.provider = :provider AND s.provider_thread = :native
ORDER BY s.id = :provider || ':' || :native, s.created_at, s.id LIMIT 1;

-- name: conversation_by_id
-- A session of this id, whatever its thread.
SELECT s.id, n.id, s.current_capture, s.title_source, 1
FROM agent_sessions s LEFT JOIN native_sessions n ON n.session_id = s.id WHERE s.id = :id;

-- name: conversation_by_alias
-- The session that drove a provider's conversation before it was handed over to another provider.
SELECT s.id, n.id, s.current_capture, s.title_source, 0
FROM session_aliases a JOIN agent_sessions s ON s.id = a.session_id
  LEFT JOIN native_sessions n ON n.session_id = s.id
WHERE a.provider = :provider AND a.alias = :native AND substr(s.id, 1, length(:provider) + 1) <> :provider || ':'
ORDER BY s.created_at, s.id LIMIT 1;

-- name: insert_native_session
-- What sources tell of a conversation; facts follow. One that was found before its driver named it is the driver's.
INSERT INTO native_sessions (session_id, provider, native_id) VALUES (:session, :provider, :native)
ON CONFLICT (provider, native_id) DO UPDATE SET session_id = excluded.session_id RETURNING id;

-- name: native_facts
-- What sources have told of conversations (a JSON list); nobody else writes meanwhile.
SELECT id, began_at, cwd, root, remote, version, model, title, title_rank, title_at, parent_id, relation, parent_turn
FROM native_sessions WHERE id IN (SELECT value FROM json_each(:ids));

-- name: set_native_facts
-- What they have told by now.
UPDATE native_sessions SET began_at = ?, cwd = ?, root = ?, remote = ?, version = ?, model = ?, title = ?, title_rank = ?,
  title_at = ?, parent_id = ?, relation = ?, parent_turn = ? WHERE id = ?;

-- name: learn_session
-- An imported conversation shows what its sources tell; a title that a person gave here stays.
UPDATE agent_sessions SET
  title = CASE WHEN title_source = 'human' THEN title ELSE coalesce(:title, title) END,
  cwd = coalesce(:cwd, cwd), repo = coalesce(:repo, repo),
  model = coalesce(:model, model), created_at = min(created_at, coalesce(:at, created_at)),
  interactive = CASE WHEN :relation = 'subagent' THEN 0 ELSE interactive END
WHERE id = :session;

-- name: latest_usage
-- The newest call of a conversation that several sources tell of; nothing where one does.
SELECT payload FROM session_events WHERE session_id = :session AND kind = 'usage'
  AND (SELECT count(*) FROM session_sources WHERE session_id = :session) > 1
ORDER BY observed_at DESC, receipt_key DESC LIMIT 1;

-- name: set_native_model
-- What a conversation goes on with, of several that its sources tell.
UPDATE native_sessions SET model = :model WHERE id = :id AND model IS NOT NULL AND model <> :model;

-- name: set_session_model
-- The same where the conversation is shown.
UPDATE agent_sessions SET model = :model WHERE id = :session AND model IS NOT NULL AND model <> :model;

-- name: insert_aliases
-- Other names of a conversation, like that of its file.
INSERT INTO session_aliases (provider, alias, session_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: sessions_of_alias
-- The conversations that have another name, of one program or of all.
SELECT DISTINCT session_id FROM session_aliases WHERE provider || ':' || alias = :word OR alias = :word
ORDER BY session_id;

-- name: insert_session_sources
-- Which sources tell of a conversation.
INSERT INTO session_sources (session_id, source_id) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: insert_receipts
-- Receipts of an import, starts among them, in this order, as many rows as are told; those whose key is known are not
-- returned.
INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, observed_at, payload,
  provider_generation, exec_id, task_id, wave_id, captured_event)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING RETURNING session_id, provider_thread, provider_turn, kind, receipt_key, seq;

-- name: insert_places
-- Where receipts were read.
INSERT INTO receipt_places (seq, source_id, "offset", call) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: insert_known_places
-- That a receipt was read in another source too: its place is in the source of its own conversation, else in the first
-- by path, whatever came first.
UPDATE receipt_places SET source_id = n.id, "offset" = w.at
FROM (SELECT :source AS source, :offset AS at) w
  JOIN sources n ON n.id = w.source, session_events e, sources o
WHERE receipt_places.seq = e.seq AND o.id = receipt_places.source_id
  AND e.session_id = :session AND coalesce(e.provider_thread, '') = :thread AND coalesce(e.provider_turn, '') = :turn
  AND e.kind = :kind AND e.receipt_key = :key
  AND (n.thread IS NOT e.provider_thread, n.path, w.at)
    < (o.thread IS NOT e.provider_thread, o.path, receipt_places."offset");

-- name: receipt_of_file
-- The payload of a receipt with this key, if it was read from a file.
SELECT e.payload FROM session_events e JOIN receipt_places p ON p.seq = e.seq
WHERE e.session_id = :session AND coalesce(e.provider_thread, '') = coalesce(:thread, '')
  AND coalesce(e.provider_turn, '') = coalesce(:turn, '') AND e.kind = :kind AND e.receipt_key = :key;

-- name: insert_sightings
-- A call seen in a conversation; who owns it is settled next.
INSERT INTO calls (call, session_id, at, rivals, weight, owned) VALUES (?, ?, ?, ?, ?, 1)
ON CONFLICT (call, session_id) DO UPDATE SET at = min(excluded.at, calls.at), weight = max(excluded.weight, calls.weight)
WHERE excluded.at < calls.at OR excluded.weight > calls.weight;

-- name: sightings
-- Every sighting of these ids (a JSON list), marked or not, that have more than one.
SELECT c.call, c.session_id, c.at, c.rivals, c.weight, c.owned FROM json_each(:calls) j
JOIN calls c ON c.call > j.value || '~' AND c.call < j.value || char(127)
WHERE EXISTS (SELECT 1 FROM calls o WHERE o.call = j.value)
  OR EXISTS (SELECT 1 FROM calls o WHERE o.call > j.value || '~' AND o.call < j.value || char(127)
    AND (o.call <> c.call OR o.session_id <> c.session_id))
UNION ALL
SELECT c.call, c.session_id, c.at, c.rivals, c.weight, c.owned FROM json_each(:calls) j
JOIN calls c ON c.call = j.value
WHERE EXISTS (SELECT 1 FROM calls o WHERE o.call = c.call AND o.session_id <> c.session_id)
  OR EXISTS (SELECT 1 FROM calls o WHERE o.call > j.value || '~' AND o.call < j.value || char(127));

-- name: own_call
-- Settle whether a sighting counts.
UPDATE calls SET owned = :owned WHERE call = :call AND session_id = :session;

-- name: last_piece
-- The last archived piece of a source.
SELECT start, size, data FROM archive WHERE source_id = :id ORDER BY start DESC LIMIT 1;

-- name: insert_pieces
-- Archived bytes; a short last piece is written again with what came behind it.
INSERT INTO archive (source_id, start, size, data) VALUES (?, ?, ?, ?)
ON CONFLICT (source_id, start) DO UPDATE SET size = excluded.size, data = excluded.data;

-- name: pieces
-- Archived bytes of a source that end behind a byte, in order.
SELECT start, size, data FROM archive WHERE source_id = :id
  AND start >= coalesce((SELECT max(start) FROM archive WHERE source_id = :id AND start <= :start), 0) ORDER BY start;

-- name: last_passage
-- The highest passage id.
SELECT coalesce(max(id), 0) FROM passages;

-- name: insert_passages
-- Where pieces of text are.
INSERT INTO passages (id, native, turn, role, at, source_id, "offset", part, key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_words
-- Their words.
INSERT INTO passage_words (rowid, text) VALUES (?, ?);

-- name: delete_words
-- Forget the words of a source that is read again.
DELETE FROM passage_words WHERE rowid IN (SELECT id FROM passages WHERE source_id = :id);

-- name: delete_passages
-- Forget the text of a source that is read again.
DELETE FROM passages WHERE source_id = :id;

-- name: passages_of_keys
-- Passages about these objects (a JSON list), and the paths of their sources.
SELECT p.id, p.key, s.path FROM json_each(:keys) j JOIN passages p ON p.key = j.value
JOIN sources s ON s.id = p.source_id;

-- name: source_paths
-- The paths of these sources (a JSON list).
SELECT s.id, s.path FROM json_each(:ids) j JOIN sources s ON s.id = j.value;

-- name: drop_passages
-- Forget single passages.
DELETE FROM passages WHERE id = ?;

-- name: drop_words
-- Forget their words.
DELETE FROM passage_words WHERE rowid = ?;
