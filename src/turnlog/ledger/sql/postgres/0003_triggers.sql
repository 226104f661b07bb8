-- The triggers that make the list tables follow the facts, whoever writes those.
--
-- Two transactions must not fold one row from two states, each without what the other writes. So a fold comes after an
-- advisory lock: of the session, exclusively, and of the execs whose end it reads, shared; what changes an exec's end
-- takes that of the exec exclusively. Everybody takes sessions before execs, each kind in order, so nobody waits in a
-- circle. Each statement of a function has a snapshot of its own (READ COMMITTED), taken after the lock.
--
-- The functions that triggers of the fact tables call run as the owner of the ledger: who may append to the facts need
-- not be able to write into the lists.

CREATE FUNCTION turnlog_lock_sessions(VARIADIC sessions TEXT[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  one TEXT;
BEGIN
  FOR one IN SELECT DISTINCT s COLLATE "C" AS s FROM unnest(sessions) s WHERE s IS NOT NULL ORDER BY s LOOP
    PERFORM pg_advisory_xact_lock(turnlog_lock_key('session', one));
  END LOOP;
END $$;

-- ---------------------------------------------------------------- make one row equal its fold

CREATE FUNCTION turnlog_refold_capture(capture BIGINT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE captures c SET (manifest_at, manifest_task_id, manifest_wave_id, published_current, released, terminal,
      terminal_at) = (f.manifest_at, f.manifest_task_id, f.manifest_wave_id, f.published_current, f.released, f.terminal,
      f.terminal_at)
  FROM (SELECT * FROM captures_fold WHERE seq = capture) f
  WHERE c.seq = capture AND (c.manifest_at, c.manifest_task_id, c.manifest_wave_id, c.published_current, c.released,
      c.terminal, c.terminal_at)
    IS DISTINCT FROM (f.manifest_at, f.manifest_task_id, f.manifest_wave_id, f.published_current, f.released, f.terminal,
      f.terminal_at);
END $$;

CREATE FUNCTION turnlog_refold_turn(session TEXT, thread TEXT, turn TEXT) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  f turns_fold%ROWTYPE;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(turnlog_lock_key('exec', exec_id)) FROM session_events
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

CREATE FUNCTION turnlog_refold_intent(intent BIGINT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(turnlog_lock_key('exec', exec_id)) FROM session_events
    WHERE seq = intent AND exec_id IS NOT NULL;
  UPDATE intents i SET settled = f.settled, released = f.released
  FROM (SELECT * FROM intents_fold WHERE seq = intent) f
  WHERE i.seq = intent AND (i.settled, i.released) IS DISTINCT FROM (f.settled, f.released);
END $$;

CREATE FUNCTION turnlog_fold_intent(intent BIGINT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(turnlog_lock_key('exec', exec_id)) FROM session_events
    WHERE seq = intent AND exec_id IS NOT NULL;
  INSERT INTO intents SELECT * FROM intents_fold WHERE seq = intent;
END $$;

-- What an observation with this key and capture may change of captures. An exit names its capture; manifest and terminal
-- are found by key, whatever their captured_event says.
CREATE FUNCTION turnlog_refold_observed(key TEXT, capture BIGINT) RETURNS void LANGUAGE sql AS $$
  SELECT turnlog_refold_capture(seq) FROM captures WHERE seq = capture OR artifact_key = left(key, -14);
$$;

-- What the end or the death of an exec lets go, or holds again (D13). The lock of the exec alone makes it right; those of
-- the sessions keep their writers from waiting for it while it waits for them. Who holds one already (own) must not wait
-- for one that comes before it, and goes on without.
CREATE FUNCTION turnlog_refold_exec(exec TEXT, own TEXT DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  one TEXT;
BEGIN
  FOR one IN SELECT session_id FROM turns WHERE exec_id = exec AND completion_seq IS NULL
    UNION SELECT session_id FROM intents WHERE exec_id = exec AND settled = 0 ORDER BY 1 LOOP
    IF one <= own THEN
      PERFORM pg_try_advisory_xact_lock(turnlog_lock_key('session', one));
    ELSE
      PERFORM pg_advisory_xact_lock(turnlog_lock_key('session', one));
    END IF;
  END LOOP;
  PERFORM pg_advisory_xact_lock(turnlog_lock_key('exec', exec));
  PERFORM turnlog_refold_turn(session_id, provider_thread, provider_turn) FROM turns
    WHERE exec_id = exec AND completion_seq IS NULL;
  PERFORM turnlog_refold_intent(seq) FROM intents WHERE exec_id = exec AND settled = 0;
END $$;

-- ---------------------------------------------------------------- what an insert does
-- Once for each statement: a bulk append folds each turn once. Usage and output rows are most of a ledger; they only make
-- sure that their turn's row exists; starts and completions fold it.

CREATE FUNCTION turnlog_added() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  e RECORD;
  sessions TEXT[];
  inputs BOOLEAN;
  contents BOOLEAN;
  others BOOLEAN;
BEGIN
  -- What is there decides which statements run at all: beginning one costs more than looking.
  SELECT array_agg(DISTINCT session_id), bool_or(kind = 'captured'), bool_or(kind IN ('usage', 'output')),
      bool_or(kind NOT IN ('usage', 'output', 'captured'))
    INTO sessions, inputs, contents, others FROM added;
  IF sessions IS NULL THEN
    RETURN NULL;
  END IF;
  PERFORM turnlog_lock_sessions(VARIADIC sessions);

  IF inputs THEN
    INSERT INTO captures (seq, session_id, artifact_key, caller_key, observed_at, own_task_id, own_wave_id,
      manifest_at, manifest_task_id, manifest_wave_id, published_current, released, terminal, terminal_at)
    SELECT f.* FROM added a CROSS JOIN LATERAL (SELECT * FROM captures_fold WHERE seq = a.seq) f WHERE a.kind = 'captured';
  END IF;

  IF contents AND EXISTS (SELECT 1 FROM added a WHERE a.kind IN ('usage', 'output') AND NOT EXISTS (
    SELECT 1 FROM turns t WHERE t.session_id = a.session_id AND t.provider_thread = coalesce(a.provider_thread, '')
    AND t.provider_turn = coalesce(a.provider_turn, '') AND t.first_at <= a.observed_at)) THEN
    INSERT INTO turns (session_id, provider_thread, provider_turn, first_at, released)
    SELECT n.session_id, n.thread, n.turn, n.first_at,
      CASE WHEN EXISTS (SELECT 1 FROM agent_sessions s WHERE s.id = n.session_id
          AND (s.completed_at IS NOT NULL OR s.id = s.provider || ':' || s.provider_thread))
        OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = n.session_id
          AND r.subject = 'turn:' || n.thread || ':' || n.turn) THEN 1 ELSE 0 END
    FROM (SELECT session_id, coalesce(provider_thread, '') AS thread, coalesce(provider_turn, '') AS turn,
        min(observed_at) AS first_at
      FROM added WHERE kind IN ('started', 'usage', 'completed', 'output') GROUP BY 1, 2, 3
      HAVING NOT bool_or(kind IN ('started', 'completed'))) n
    WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = n.session_id AND t.provider_thread = n.thread
      AND t.provider_turn = n.turn AND t.first_at <= n.first_at)
    ON CONFLICT (session_id, provider_thread, provider_turn)
    DO UPDATE SET first_at = excluded.first_at WHERE excluded.first_at < turns.first_at;
  END IF;

  IF others THEN
    FOR e IN SELECT session_id, coalesce(provider_thread, '') AS thread, coalesce(provider_turn, '') AS turn
      FROM added WHERE kind IN ('started', 'completed') GROUP BY 1, 2, 3 ORDER BY min(seq) LOOP
      PERFORM turnlog_refold_turn(e.session_id, e.thread, e.turn);
    END LOOP;
    FOR e IN SELECT task_id, min(observed_at) AS at FROM added WHERE kind = 'started' AND task_id IS NOT NULL
      GROUP BY 1 LOOP
      UPDATE tasks SET started_at = e.at WHERE id = e.task_id AND started_at IS NULL;
    END LOOP;
    FOR e IN SELECT seq FROM added WHERE kind = 'requested' ORDER BY seq LOOP
      PERFORM turnlog_fold_intent(e.seq);
    END LOOP;
    FOR e IN SELECT seq, receipt_key, captured_event FROM added WHERE kind = 'observed' AND (
        receipt_key LIKE '%:manifest.json' OR receipt_key LIKE '%:terminal.json' OR receipt_key LIKE 'driver:%:exit'
        OR receipt_key LIKE '%death:%' OR receipt_key LIKE '%:superseded:%' OR receipt_key LIKE '%:absorbed:%'
        OR receipt_key LIKE '%:refused:%') ORDER BY seq LOOP
      PERFORM turnlog_refold_observed(e.receipt_key, e.captured_event);
      INSERT INTO releases SELECT * FROM releases_fold WHERE seq = e.seq;
    END LOOP;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER lists_of_added AFTER INSERT ON session_events REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION turnlog_added();

-- ---------------------------------------------------------------- what a repair does

CREATE FUNCTION turnlog_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM turnlog_lock_sessions(OLD.session_id, NEW.session_id);
  IF OLD.kind = 'observed' OR NEW.kind = 'observed' THEN
    PERFORM turnlog_refold_observed(OLD.receipt_key, OLD.captured_event);
    PERFORM turnlog_refold_observed(NEW.receipt_key, NEW.captured_event);
    DELETE FROM releases WHERE seq IN (OLD.seq, NEW.seq);
    INSERT INTO releases SELECT * FROM releases_fold WHERE seq = NEW.seq;
  END IF;
  IF OLD.kind NOT IN ('observed', 'captured') OR NEW.kind NOT IN ('observed', 'captured') THEN
    PERFORM turnlog_refold_turn(OLD.session_id, coalesce(OLD.provider_thread, ''), coalesce(OLD.provider_turn, ''));
    PERFORM turnlog_refold_turn(NEW.session_id, coalesce(NEW.provider_thread, ''), coalesce(NEW.provider_turn, ''));
  END IF;
  IF OLD.kind = 'requested' OR NEW.kind = 'requested' THEN
    DELETE FROM intents WHERE seq IN (OLD.seq, NEW.seq);
    PERFORM turnlog_fold_intent(NEW.seq);
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER lists_of_changed AFTER UPDATE ON session_events
FOR EACH ROW EXECUTE FUNCTION turnlog_changed();

CREATE FUNCTION turnlog_deleted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM turnlog_lock_sessions(OLD.session_id);
  IF OLD.kind = 'observed' THEN
    PERFORM turnlog_refold_observed(OLD.receipt_key, OLD.captured_event);
    DELETE FROM releases WHERE seq = OLD.seq;
  ELSIF OLD.kind <> 'captured' THEN
    PERFORM turnlog_refold_turn(OLD.session_id, coalesce(OLD.provider_thread, ''), coalesce(OLD.provider_turn, ''));
  END IF;
  IF OLD.kind = 'requested' THEN
    DELETE FROM intents WHERE seq = OLD.seq;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER lists_of_deleted AFTER DELETE ON session_events
FOR EACH ROW EXECUTE FUNCTION turnlog_deleted();

-- ---------------------------------------------------------------- lists follow their sessions

CREATE FUNCTION turnlog_input_changed() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM turnlog_lock_sessions(NEW.id);
  PERFORM turnlog_refold_capture(seq) FROM captures WHERE seq IN (OLD.current_capture, NEW.current_capture);
  RETURN NULL;
END $$;

CREATE TRIGGER lists_of_input AFTER UPDATE OF current_capture, input_published ON agent_sessions FOR EACH ROW
WHEN (NEW.current_capture IS DISTINCT FROM OLD.current_capture OR NEW.input_published <> OLD.input_published)
EXECUTE FUNCTION turnlog_input_changed();

-- What may end the hold of everything in a session: its end, or that it is the provider's own (D13).
CREATE FUNCTION turnlog_session_changed() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM turnlog_lock_sessions(NEW.id);
  PERFORM turnlog_refold_capture(seq) FROM captures WHERE session_id = NEW.id;
  PERFORM turnlog_refold_turn(session_id, provider_thread, provider_turn) FROM turns
    WHERE session_id = NEW.id AND completion_seq IS NULL;
  PERFORM turnlog_refold_intent(seq) FROM intents WHERE session_id = NEW.id AND settled = 0;
  RETURN NULL;
END $$;

CREATE TRIGGER lists_of_session AFTER UPDATE OF completed_at, provider, provider_thread ON agent_sessions FOR EACH ROW
WHEN (NEW.completed_at IS DISTINCT FROM OLD.completed_at
  OR (NEW.id = NEW.provider || ':' || NEW.provider_thread)
    IS DISTINCT FROM (OLD.id = OLD.provider || ':' || OLD.provider_thread))
EXECUTE FUNCTION turnlog_session_changed();

CREATE FUNCTION turnlog_task_started() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  UPDATE tasks SET started_at = CASE TG_OP WHEN 'INSERT' THEN NEW.created_at ELSE coalesce(NEW.bound_at, NEW.created_at) END
    WHERE id = NEW.task_id AND started_at IS NULL;
  RETURN NULL;
END $$;

CREATE TRIGGER task_starts_with_session AFTER INSERT ON agent_sessions FOR EACH ROW
WHEN (NEW.task_id IS NOT NULL) EXECUTE FUNCTION turnlog_task_started();

CREATE TRIGGER task_starts_with_binding AFTER UPDATE OF task_id ON agent_sessions FOR EACH ROW
WHEN (OLD.task_id IS NULL AND NEW.task_id IS NOT NULL) EXECUTE FUNCTION turnlog_task_started();

-- ---------------------------------------------------------------- captures count their turns and intents

CREATE FUNCTION turnlog_turn_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE captures SET turns = turns + 1,
    open_turns = open_turns + (NEW.completion_seq IS NULL)::int,
    held_turns = held_turns + (NEW.completion_seq IS NULL AND NEW.released = 0)::int,
    last_completed_at = greatest(last_completed_at, NEW.completed_at)
  WHERE seq = NEW.capture;
  IF NEW.start_seq IS NOT NULL THEN
    PERFORM turnlog_refold_intent(seq) FROM intents WHERE settled = 0 AND session_id = NEW.session_id
      AND provider_turn = NEW.provider_turn;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER turn_counted AFTER INSERT ON turns FOR EACH ROW EXECUTE FUNCTION turnlog_turn_counted();

CREATE FUNCTION turnlog_turn_uncounted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE captures SET turns = turns - 1,
    open_turns = open_turns - (OLD.completion_seq IS NULL)::int,
    held_turns = held_turns - (OLD.completion_seq IS NULL AND OLD.released = 0)::int,
    last_completed_at = (SELECT max(completed_at) FROM turns WHERE capture = OLD.capture)
  WHERE seq = OLD.capture;
  PERFORM turnlog_refold_intent(seq) FROM session_events WHERE session_id = OLD.session_id AND kind = 'requested'
    AND provider_turn = OLD.provider_turn;
  RETURN NULL;
END $$;

CREATE TRIGGER turn_uncounted AFTER DELETE ON turns FOR EACH ROW EXECUTE FUNCTION turnlog_turn_uncounted();

CREATE FUNCTION turnlog_turn_recounted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.capture IS NOT DISTINCT FROM OLD.capture THEN
    UPDATE captures SET
      open_turns = open_turns - (OLD.completion_seq IS NULL)::int + (NEW.completion_seq IS NULL)::int,
      held_turns = held_turns - (OLD.completion_seq IS NULL AND OLD.released = 0)::int
        + (NEW.completion_seq IS NULL AND NEW.released = 0)::int,
      last_completed_at = CASE WHEN OLD.completed_at IS NULL THEN greatest(last_completed_at, NEW.completed_at)
        ELSE (SELECT max(completed_at) FROM turns WHERE capture = OLD.capture) END
    WHERE seq = NEW.capture;
  ELSE
    UPDATE captures SET turns = turns - 1,
      open_turns = open_turns - (OLD.completion_seq IS NULL)::int,
      held_turns = held_turns - (OLD.completion_seq IS NULL AND OLD.released = 0)::int,
      last_completed_at = CASE WHEN OLD.completed_at IS NULL THEN last_completed_at
        ELSE (SELECT max(completed_at) FROM turns WHERE capture = OLD.capture) END
    WHERE seq = OLD.capture;
    UPDATE captures SET turns = turns + 1,
      open_turns = open_turns + (NEW.completion_seq IS NULL)::int,
      held_turns = held_turns + (NEW.completion_seq IS NULL AND NEW.released = 0)::int,
      last_completed_at = greatest(last_completed_at, NEW.completed_at)
    WHERE seq = NEW.capture;
  END IF;
  IF NEW.start_seq IS DISTINCT FROM OLD.start_seq THEN
    PERFORM turnlog_refold_intent(seq) FROM session_events WHERE session_id = NEW.session_id AND kind = 'requested'
      AND provider_turn = NEW.provider_turn;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER turn_recounted AFTER UPDATE ON turns FOR EACH ROW
WHEN (NEW.capture IS DISTINCT FROM OLD.capture OR NEW.completion_seq IS DISTINCT FROM OLD.completion_seq
  OR NEW.released <> OLD.released OR NEW.start_seq IS DISTINCT FROM OLD.start_seq
  OR NEW.completed_at IS DISTINCT FROM OLD.completed_at)
EXECUTE FUNCTION turnlog_turn_recounted();

CREATE FUNCTION turnlog_intent_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE captures SET open_intents = open_intents - (OLD.settled = 0)::int,
      held_intents = held_intents - (OLD.settled = 0 AND OLD.released = 0)::int
    WHERE seq = OLD.capture;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    UPDATE captures SET open_intents = open_intents + (NEW.settled = 0)::int,
      held_intents = held_intents + (NEW.settled = 0 AND NEW.released = 0)::int
    WHERE seq = NEW.capture;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER intent_counted AFTER INSERT OR DELETE OR UPDATE OF settled, released ON intents
FOR EACH ROW EXECUTE FUNCTION turnlog_intent_counted();

-- ---------------------------------------------------------------- what lets go, lets go of turns and intents (D13)

CREATE FUNCTION turnlog_released() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  r releases%ROWTYPE;
BEGIN
  IF TG_OP = 'DELETE' THEN
    r := OLD;
  ELSE
    r := NEW;
  END IF;
  IF r.subject LIKE 'death:%' THEN
    PERFORM turnlog_refold_exec(substr(r.subject, 7), (SELECT session_id FROM session_events WHERE seq = r.seq));
  ELSIF r.subject LIKE 'exit:%' THEN
    PERFORM turnlog_refold_turn(session_id, provider_thread, provider_turn) FROM turns
      WHERE exec_id = substr(r.subject, 6) AND completion_seq IS NULL AND session_id = r.session_id;
    PERFORM turnlog_refold_intent(seq) FROM intents
      WHERE exec_id = substr(r.subject, 6) AND settled = 0 AND session_id = r.session_id;
  ELSE
    PERFORM turnlog_refold_turn(session_id, provider_thread, provider_turn) FROM turns
      WHERE session_id = r.session_id AND 'turn:' || provider_thread || ':' || provider_turn = r.subject;
    -- One taken back may open again what it had settled.
    PERFORM turnlog_refold_intent(seq) FROM intents
      WHERE session_id = r.session_id AND (settled = 0 OR TG_OP = 'DELETE');
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER released AFTER INSERT OR DELETE ON releases FOR EACH ROW EXECUTE FUNCTION turnlog_released();

CREATE FUNCTION turnlog_exec_changed() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    PERFORM turnlog_refold_exec(OLD.id);
  ELSE
    PERFORM turnlog_refold_exec(NEW.id);
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER released_by_exec_end AFTER UPDATE OF completed_at ON execs FOR EACH ROW
WHEN (NEW.completed_at IS DISTINCT FROM OLD.completed_at) EXECUTE FUNCTION turnlog_exec_changed();

CREATE TRIGGER released_by_known_exec AFTER INSERT ON execs FOR EACH ROW
WHEN (NEW.completed_at IS NOT NULL) EXECUTE FUNCTION turnlog_exec_changed();

CREATE TRIGGER unreleased_by_forgotten_exec AFTER DELETE ON execs FOR EACH ROW
WHEN (OLD.completed_at IS NOT NULL) EXECUTE FUNCTION turnlog_exec_changed();
