-- A server has room for some thousand locks, of all its transactions together. So a transaction holds those of 500
-- conversations and execs at most; one that touches more locks the tables instead, and is alone with them.

-- Keep everybody else from writing into conversations and from ending execs until the transaction ends.
CREATE FUNCTION turnlog_lock_all() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM set_config('turnlog.locks', 'all', true);
  LOCK TABLE agent_sessions, execs, session_events IN SHARE ROW EXCLUSIVE MODE;
END $$;

-- Whether some more locks may be taken; when not, everything is locked. What is locked twice is one lock, so the locks
-- are counted now and then.
CREATE FUNCTION turnlog_may_lock(more BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
  held TEXT := coalesce(nullif(current_setting('turnlog.locks', true), ''), '0');
  asked BIGINT := more;
BEGIN
  IF held = 'all' THEN
    RETURN false;
  END IF;
  asked := asked + held::bigint;
  IF asked > 500 THEN
    SELECT count(*) + more INTO asked FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
  END IF;
  IF asked > 500 THEN
    PERFORM turnlog_lock_all();
    RETURN false;
  END IF;
  PERFORM set_config('turnlog.locks', asked::text, true);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION turnlog_lock_sessions(VARIADIC sessions TEXT[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  one TEXT;
BEGIN
  IF NOT turnlog_may_lock(cardinality(sessions)) THEN
    RETURN;
  END IF;
  FOR one IN SELECT DISTINCT s COLLATE "C" AS s FROM unnest(sessions) s WHERE s IS NOT NULL ORDER BY s LOOP
    PERFORM pg_advisory_xact_lock(turnlog_lock_key('session', one));
  END LOOP;
END $$;

-- Keep an exec from ending while what its end decides is folded.
CREATE FUNCTION turnlog_hold_exec(exec TEXT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF turnlog_may_lock(1) THEN
    PERFORM pg_advisory_xact_lock_shared(turnlog_lock_key('exec', exec));
  END IF;
END $$;

CREATE OR REPLACE FUNCTION turnlog_refold_turn(session TEXT, thread TEXT, turn TEXT) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  f turns_fold%ROWTYPE;
BEGIN
  PERFORM turnlog_hold_exec(exec_id) FROM session_events
    WHERE session_id = session AND coalesce(provider_thread, '') = thread AND coalesce(provider_turn, '') = turn
    AND kind = 'started' AND exec_id IS NOT NULL;
  SELECT * INTO f FROM turns_fold
    WHERE session_id = session AND provider_thread = thread AND provider_turn = turn;
  IF NOT FOUND THEN
    DELETE FROM turns WHERE session_id = session AND provider_thread = thread AND provider_turn = turn;
    RETURN;
  END IF;
  INSERT INTO turns VALUES (f.*)
  ON CONFLICT (session_id, provider_thread, provider_turn) DO UPDATE SET
    (first_at, start_seq, capture, exec_id, task_id, wave_id, completion_seq, completed_at, status, released) =
    (excluded.first_at, excluded.start_seq, excluded.capture, excluded.exec_id, excluded.task_id, excluded.wave_id,
     excluded.completion_seq, excluded.completed_at, excluded.status, excluded.released)
  WHERE turns.* IS DISTINCT FROM excluded.*;
END $$;

CREATE OR REPLACE FUNCTION turnlog_refold_intent(intent BIGINT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM turnlog_hold_exec(exec_id) FROM session_events WHERE seq = intent AND exec_id IS NOT NULL;
  UPDATE intents i SET settled = f.settled, released = f.released
  FROM (SELECT * FROM intents_fold WHERE seq = intent) f
  WHERE i.seq = intent AND (i.settled, i.released) IS DISTINCT FROM (f.settled, f.released);
END $$;

CREATE OR REPLACE FUNCTION turnlog_fold_intent(intent BIGINT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM turnlog_hold_exec(exec_id) FROM session_events WHERE seq = intent AND exec_id IS NOT NULL;
  INSERT INTO intents SELECT * FROM intents_fold WHERE seq = intent;
END $$;

-- As before (0003), with few locks: an exec that leaves more conversations unfinished is alone with all of them.
CREATE OR REPLACE FUNCTION turnlog_refold_exec(exec TEXT, own TEXT DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  one TEXT;
  several TEXT[] := ARRAY(SELECT session_id FROM turns WHERE exec_id = exec AND completion_seq IS NULL
    UNION SELECT session_id FROM intents WHERE exec_id = exec AND settled = 0 ORDER BY 1);
BEGIN
  IF turnlog_may_lock(cardinality(several) + 1) THEN
    FOREACH one IN ARRAY several LOOP
      IF one <= own THEN
        PERFORM pg_try_advisory_xact_lock(turnlog_lock_key('session', one));
      ELSE
        PERFORM pg_advisory_xact_lock(turnlog_lock_key('session', one));
      END IF;
    END LOOP;
    PERFORM pg_advisory_xact_lock(turnlog_lock_key('exec', exec));
  END IF;
  PERFORM turnlog_refold_turn(session_id, provider_thread, provider_turn) FROM turns
    WHERE exec_id = exec AND completion_seq IS NULL;
  PERFORM turnlog_refold_intent(seq) FROM intents WHERE exec_id = exec AND settled = 0;
END $$;
