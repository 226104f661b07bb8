-- What was pruned: sources of which bytes were dropped, conversations whose text was, and up to when receipts were.

ALTER TABLE sources ADD COLUMN pruned_at INTEGER;
ALTER TABLE native_sessions ADD COLUMN pruned_at INTEGER;
ALTER TABLE agent_sessions ADD COLUMN pruned_to INTEGER;

-- Most of a turn are usage and output rows: one that is deleted changes the turn's row only if the turn began with it.
DROP TRIGGER turns_of_deleted;
CREATE TRIGGER turns_of_deleted AFTER DELETE ON session_events
WHEN OLD.kind NOT IN ('observed', 'captured') AND (OLD.kind NOT IN ('usage', 'output') OR NOT EXISTS (
  SELECT 1 FROM turns WHERE session_id = OLD.session_id AND provider_thread = coalesce(OLD.provider_thread, '')
    AND provider_turn = coalesce(OLD.provider_turn, '') AND first_at < OLD.observed_at))
BEGIN
  INSERT INTO refold_turn VALUES (OLD.session_id, coalesce(OLD.provider_thread, ''), coalesce(OLD.provider_turn, ''));
END;
