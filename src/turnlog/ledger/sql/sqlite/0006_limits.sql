-- What programs were told of their rate limits, found by provider, newest last, without reading other observations.

CREATE INDEX events_limits ON session_events
  (CASE WHEN json_valid(payload) THEN json_extract(payload, '$.evidence.provider') END, observed_at)
  WHERE kind = 'observed' AND receipt_key GLOB '*:limits:*' AND instr(payload, '"used_percent"') > 0;

CREATE VIEW limits_told AS
SELECT CASE WHEN json_valid(payload) THEN json_extract(payload, '$.evidence.provider') END AS provider, seq, observed_at,
  payload
FROM session_events
WHERE kind = 'observed' AND receipt_key GLOB '*:limits:*' AND instr(payload, '"used_percent"') > 0;
