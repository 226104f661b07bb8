-- What programs were told of their rate limits, found by provider, newest last, without reading other observations.

CREATE INDEX events_limits ON session_events (turnlog_text(payload, 'evidence', 'provider'), observed_at)
  WHERE kind = 'observed' AND receipt_key LIKE '%:limits:%' AND strpos(payload, '"used_percent"') > 0;

CREATE VIEW limits_told AS
SELECT turnlog_text(payload, 'evidence', 'provider') AS provider, seq, observed_at, payload
FROM session_events
WHERE kind = 'observed' AND receipt_key LIKE '%:limits:%' AND strpos(payload, '"used_percent"') > 0;
