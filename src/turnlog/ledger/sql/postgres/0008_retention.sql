-- What was pruned: sources of which bytes were dropped, conversations whose text was, and up to when receipts were.

ALTER TABLE sources ADD COLUMN pruned_at BIGINT;
ALTER TABLE native_sessions ADD COLUMN pruned_at BIGINT;
ALTER TABLE agent_sessions ADD COLUMN pruned_to BIGINT;

-- Most of a turn are usage and output rows: one that is deleted changes the turn's row only if the turn began with it.
CREATE OR REPLACE FUNCTION turnlog_deleted() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM turnlog_lock_sessions(OLD.session_id);
  IF OLD.kind = 'observed' THEN
    PERFORM turnlog_refold_observed(OLD.receipt_key, OLD.captured_event);
    DELETE FROM releases WHERE seq = OLD.seq;
  ELSIF OLD.kind <> 'captured' AND (OLD.kind NOT IN ('usage', 'output') OR NOT EXISTS (
      SELECT 1 FROM turns WHERE session_id = OLD.session_id AND provider_thread = coalesce(OLD.provider_thread, '')
        AND provider_turn = coalesce(OLD.provider_turn, '') AND first_at < OLD.observed_at)) THEN
    PERFORM turnlog_refold_turn(OLD.session_id, coalesce(OLD.provider_thread, ''), coalesce(OLD.provider_turn, ''));
  END IF;
  IF OLD.kind = 'requested' THEN
    DELETE FROM intents WHERE seq = OLD.seq;
  END IF;
  RETURN NULL;
END $$;
