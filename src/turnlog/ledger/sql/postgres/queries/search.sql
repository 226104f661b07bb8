-- name: word_range
-- The first and the last passage of these conversations (a JSON list), or of all.
SELECT coalesce(min(first), 0), coalesce(max(last), 0) FROM (
  SELECT 0 AS first, (SELECT max(id) FROM passages) AS last WHERE :natives::text IS NULL
  UNION ALL
  SELECT (SELECT min(id) FROM passages WHERE native = j.value::bigint),
    (SELECT max(id) FROM passages WHERE native = j.value::bigint)
  FROM json_array_elements_text(coalesce(:natives::text, '[]')::json) j (value)) r;

-- name: search_newest
-- The newest passages that match and are let through, with their rank (the best is the smallest).
SELECT w.id, -ts_rank_cd(w.words, :match::tsquery)::float8 FROM passage_words w JOIN passages p ON p.id = w.id
WHERE w.words @@ :match::tsquery AND w.id BETWEEN :floor AND :ceiling
  AND (:roles::text IS NULL OR p.role IN (SELECT value::bigint FROM json_array_elements_text(:roles::json)))
  AND (:since::bigint IS NULL OR p.at >= :since::bigint)
  AND (:natives::text IS NULL OR p.native IN (SELECT value::bigint FROM json_array_elements_text(:natives::json)))
ORDER BY w.id DESC LIMIT nullif(:limit, -1);

-- name: search_newest_plain
-- The same where everything is let through: the words alone answer.
SELECT id, -ts_rank_cd(words, :match::tsquery)::float8 FROM passage_words
WHERE words @@ :match::tsquery AND id BETWEEN :floor AND :ceiling ORDER BY id DESC LIMIT nullif(:limit, -1);

-- name: passages_by_id
-- Where these passages (a JSON list) are, and whose.
SELECT p.id, n.session_id, s.provider, p.turn, p.role, p.at, p.source_id, p."offset", p.part
FROM json_array_elements_text(:ids::json) j (value) JOIN passages p ON p.id = j.value::bigint
JOIN native_sessions n ON n.id = p.native JOIN sources s ON s.id = p.source_id;

-- name: natives_where
-- Conversations that a filter of search may let through, with what is asked of their folder or repository.
SELECT n.id, coalesce(s.repo, s.cwd) FROM native_sessions n JOIN agent_sessions s ON s.id = n.session_id
WHERE (:provider::text IS NULL OR n.provider = :provider::text) AND (:session::text IS NULL OR n.session_id = :session::text);

-- name: kept_text
-- Whether there is text, whether anything was imported, and whether any source is kept without its text.
SELECT EXISTS (SELECT 1 FROM passages), EXISTS (SELECT 1 FROM sources),
  EXISTS (SELECT 1 FROM sources WHERE archived = 0);

-- name: kept_text_of
-- The same of one conversation.
SELECT EXISTS (SELECT 1 FROM native_sessions n JOIN passages p ON p.native = n.id WHERE n.session_id = :session),
  EXISTS (SELECT 1 FROM native_sessions WHERE session_id = :session),
  EXISTS (SELECT 1 FROM session_sources x JOIN sources s ON s.id = x.source_id
    WHERE x.session_id = :session AND s.archived = 0);

-- name: text_sources
-- The sources in which a conversation has text, and how they are read.
SELECT n.id, s.id, s.provider, s.path FROM native_sessions n
JOIN sources s ON s.id IN (SELECT DISTINCT source_id FROM passages WHERE native = n.id)
WHERE n.session_id = :session ORDER BY s.id;

-- name: passages_of
-- Text of a conversation in one of its sources, in order, after a passage. By conversation: an import reads one source
-- after the other, so that few of its other rows stand between.
SELECT id, turn, role, at, "offset", part FROM passages
WHERE native = :native AND source_id = :source AND id > :after ORDER BY id LIMIT nullif(:limit, -1);

-- name: piece_at
-- The archived piece that holds a byte of a source.
SELECT start, size, data FROM archive WHERE source_id = :source AND start <= :at ORDER BY start DESC LIMIT 1;

-- name: children_of
-- Conversations that came from this one, oldest first.
SELECT c.session_id, c.relation, c.parent_turn, c.title, c.began_at
FROM native_sessions n JOIN native_sessions c ON c.parent_id = n.native_id AND c.provider = n.provider
WHERE n.session_id = :session AND c.id <> n.id ORDER BY c.began_at, c.session_id;

-- name: origin_of
-- The conversation that this one came from, and how; its session where it is known.
SELECT coalesce(p.session_id, n.provider || ':' || n.parent_id), n.relation, n.parent_turn FROM native_sessions n
LEFT JOIN native_sessions p ON p.provider = n.provider AND p.native_id = n.parent_id
WHERE n.session_id = :session AND n.parent_id IS NOT NULL;

-- name: words_spoken
-- What was asked and answered in a conversation that turnlog drove, in order.
SELECT seq, provider_turn, kind, observed_at, payload FROM session_events
WHERE session_id = :session AND kind IN ('requested', 'output') AND seq > :after ORDER BY seq LIMIT nullif(:limit, -1);
