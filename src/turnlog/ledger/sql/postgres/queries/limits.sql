-- name: next_limits_provider
-- The first provider behind one, of those whose rate limits are known.
SELECT provider FROM limits_told WHERE provider > :after ORDER BY provider LIMIT 1;

-- name: last_limits
-- What a provider's program was last told of its rate limits.
SELECT observed_at, payload FROM limits_told WHERE provider = :provider ORDER BY observed_at DESC, seq DESC LIMIT 1;
