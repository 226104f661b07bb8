-- The triggers that make the list tables follow the facts, whoever writes those. They use only old built-in functions.

-- ---------------------------------------------------------------- procedures: make one row equal its fold
-- `INSERT INTO refold_x VALUES (…)` calls one. Their arguments are constants to the folds, which are then index
-- look-ups; a subquery that correlates with a fold would aggregate the whole ledger for each row.

CREATE VIEW refold_capture AS SELECT seq FROM captures;
CREATE TRIGGER refold_capture_call INSTEAD OF INSERT ON refold_capture
BEGIN
  UPDATE captures SET (manifest_at, manifest_task_id, manifest_wave_id, published_current, released, terminal,
      terminal_at) = (SELECT manifest_at, manifest_task_id, manifest_wave_id, published_current, released, terminal,
      terminal_at FROM captures_fold f WHERE f.seq = NEW.seq)
  WHERE seq = NEW.seq;
END;

CREATE VIEW refold_turn AS SELECT session_id, provider_thread, provider_turn FROM turns;
CREATE TRIGGER refold_turn_call INSTEAD OF INSERT ON refold_turn
BEGIN
  DELETE FROM turns WHERE session_id = NEW.session_id AND provider_thread = NEW.provider_thread
    AND provider_turn = NEW.provider_turn AND NOT EXISTS (SELECT 1 FROM session_events
      WHERE session_id = NEW.session_id AND coalesce(provider_thread, '') = NEW.provider_thread
      AND coalesce(provider_turn, '') = NEW.provider_turn AND kind IN ('started', 'usage', 'completed', 'output'));
  INSERT INTO turns SELECT * FROM turns_fold WHERE session_id = NEW.session_id
    AND provider_thread = NEW.provider_thread AND provider_turn = NEW.provider_turn
  ON CONFLICT (session_id, provider_thread, provider_turn) DO UPDATE SET
    (first_at, start_seq, capture, exec_id, task_id, wave_id, completion_seq, completed_at, status, released) =
    (excluded.first_at, excluded.start_seq, excluded.capture, excluded.exec_id, excluded.task_id, excluded.wave_id,
     excluded.completion_seq, excluded.completed_at, excluded.status, excluded.released);
END;

CREATE VIEW refold_intent AS SELECT seq FROM intents;
CREATE TRIGGER refold_intent_call INSTEAD OF INSERT ON refold_intent
BEGIN
  UPDATE intents SET (settled, released) = (SELECT f.settled, f.released FROM intents_fold f WHERE f.seq = NEW.seq)
  WHERE seq = NEW.seq;
END;

-- ---------------------------------------------------------------- what an insert does
-- Usage and output rows are most of a ledger, and every trigger on the table costs them a microsecond whether it fires
-- or not: so they have one of their own, and all other kinds go through one more to those of the view. A usage or
-- output row only makes sure that its turn's row exists; starts and completions fold it again.

CREATE TRIGGER turns_of_content AFTER INSERT ON session_events
WHEN NEW.kind IN ('usage', 'output') AND NOT EXISTS (SELECT 1 FROM turns WHERE session_id = NEW.session_id
  AND provider_thread = coalesce(NEW.provider_thread, '') AND provider_turn = coalesce(NEW.provider_turn, '')
  AND first_at <= NEW.observed_at)
BEGIN
  INSERT INTO turns (session_id, provider_thread, provider_turn, first_at, released)
  VALUES (NEW.session_id, coalesce(NEW.provider_thread, ''), coalesce(NEW.provider_turn, ''), NEW.observed_at,
    EXISTS (SELECT 1 FROM agent_sessions s WHERE s.id = NEW.session_id
        AND (s.completed_at IS NOT NULL OR s.id = s.provider || ':' || s.provider_thread))
      OR EXISTS (SELECT 1 FROM releases r WHERE r.session_id = NEW.session_id
        AND r.subject = 'turn:' || coalesce(NEW.provider_thread, '') || ':' || coalesce(NEW.provider_turn, '')))
  ON CONFLICT (session_id, provider_thread, provider_turn)
  DO UPDATE SET first_at = excluded.first_at WHERE excluded.first_at < turns.first_at;
END;

CREATE VIEW added_event AS
SELECT seq, session_id, provider_thread, provider_turn, kind, receipt_key, task_id, observed_at, captured_event
FROM session_events;

CREATE TRIGGER event_added AFTER INSERT ON session_events WHEN NEW.kind NOT IN ('usage', 'output')
BEGIN
  INSERT INTO added_event VALUES (NEW.seq, NEW.session_id, NEW.provider_thread, NEW.provider_turn, NEW.kind,
    NEW.receipt_key, NEW.task_id, NEW.observed_at, NEW.captured_event);
END;

CREATE TRIGGER boundary_added INSTEAD OF INSERT ON added_event WHEN NEW.kind IN ('started', 'completed')
BEGIN
  INSERT INTO refold_turn VALUES (NEW.session_id, coalesce(NEW.provider_thread, ''), coalesce(NEW.provider_turn, ''));
  UPDATE tasks SET started_at = NEW.observed_at WHERE NEW.kind = 'started' AND id = NEW.task_id AND started_at IS NULL;
END;

CREATE TRIGGER requested_added INSTEAD OF INSERT ON added_event WHEN NEW.kind = 'requested'
BEGIN INSERT INTO intents SELECT * FROM intents_fold WHERE seq = NEW.seq; END;

CREATE TRIGGER captured_added INSTEAD OF INSERT ON added_event WHEN NEW.kind = 'captured'
BEGIN
  INSERT INTO captures (seq, session_id, artifact_key, caller_key, observed_at, own_task_id, own_wave_id,
    manifest_at, manifest_task_id, manifest_wave_id, published_current, released, terminal, terminal_at)
  SELECT * FROM captures_fold WHERE seq = NEW.seq;
END;

CREATE TRIGGER observed_added INSTEAD OF INSERT ON added_event
WHEN NEW.kind = 'observed' AND (NEW.receipt_key GLOB '*:manifest.json' OR NEW.receipt_key GLOB '*:terminal.json'
  OR NEW.receipt_key GLOB 'driver:*:exit' OR NEW.receipt_key GLOB '*death:*' OR NEW.receipt_key GLOB '*:superseded:*'
  OR NEW.receipt_key GLOB '*:absorbed:*' OR NEW.receipt_key GLOB '*:refused:*')
BEGIN
  -- An exit names its capture; manifest and terminal are found by key, whatever their captured_event says.
  INSERT INTO refold_capture SELECT seq FROM captures WHERE seq = NEW.captured_event
    OR artifact_key = substr(NEW.receipt_key, 1, length(NEW.receipt_key) - 14);
  INSERT INTO releases SELECT * FROM releases_fold WHERE seq = NEW.seq;
END;

-- ---------------------------------------------------------------- captures and releases follow their facts

CREATE TRIGGER lists_of_input AFTER UPDATE OF current_capture, input_published ON agent_sessions
WHEN NEW.current_capture IS NOT OLD.current_capture OR NEW.input_published <> OLD.input_published
BEGIN
  INSERT INTO refold_capture SELECT seq FROM captures WHERE seq IN (OLD.current_capture, NEW.current_capture);
END;

-- What may end the hold of everything in a session: its end, or that it is the provider's own (D13).
CREATE TRIGGER lists_of_session AFTER UPDATE OF completed_at, provider, provider_thread ON agent_sessions
WHEN NEW.completed_at IS NOT OLD.completed_at
  OR (NEW.id = NEW.provider || ':' || NEW.provider_thread) IS NOT (OLD.id = OLD.provider || ':' || OLD.provider_thread)
BEGIN
  INSERT INTO refold_capture SELECT seq FROM captures WHERE session_id = NEW.id;
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE session_id = NEW.id AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE session_id = NEW.id AND settled = 0;
END;

CREATE TRIGGER lists_of_changed_observed AFTER UPDATE ON session_events
WHEN OLD.kind = 'observed' OR NEW.kind = 'observed'
BEGIN
  INSERT INTO refold_capture SELECT seq FROM captures WHERE seq IN (OLD.captured_event, NEW.captured_event)
    OR artifact_key IN (substr(OLD.receipt_key, 1, length(OLD.receipt_key) - 14),
      substr(NEW.receipt_key, 1, length(NEW.receipt_key) - 14));
  DELETE FROM releases WHERE seq IN (OLD.seq, NEW.seq);
  INSERT INTO releases SELECT * FROM releases_fold WHERE seq = NEW.seq;
END;

CREATE TRIGGER lists_of_deleted_observed AFTER DELETE ON session_events WHEN OLD.kind = 'observed'
BEGIN
  INSERT INTO refold_capture SELECT seq FROM captures WHERE seq = OLD.captured_event
    OR artifact_key = substr(OLD.receipt_key, 1, length(OLD.receipt_key) - 14);
  DELETE FROM releases WHERE seq = OLD.seq;
END;

-- ---------------------------------------------------------------- turns follow their receipts

CREATE TRIGGER turns_of_changed AFTER UPDATE ON session_events
WHEN OLD.kind NOT IN ('observed', 'captured') OR NEW.kind NOT IN ('observed', 'captured')
BEGIN
  INSERT INTO refold_turn VALUES (OLD.session_id, coalesce(OLD.provider_thread, ''), coalesce(OLD.provider_turn, '')),
    (NEW.session_id, coalesce(NEW.provider_thread, ''), coalesce(NEW.provider_turn, ''));
END;

CREATE TRIGGER turns_of_deleted AFTER DELETE ON session_events WHEN OLD.kind NOT IN ('observed', 'captured')
BEGIN
  INSERT INTO refold_turn VALUES (OLD.session_id, coalesce(OLD.provider_thread, ''), coalesce(OLD.provider_turn, ''));
END;

CREATE TRIGGER turn_counted AFTER INSERT ON turns
BEGIN
  UPDATE captures SET turns = turns + 1,
    open_turns = open_turns + (NEW.completion_seq IS NULL),
    held_turns = held_turns + (NEW.completion_seq IS NULL AND NEW.released = 0),
    last_completed_at = max(coalesce(last_completed_at, NEW.completed_at),
      coalesce(NEW.completed_at, last_completed_at))
  WHERE seq = NEW.capture;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE settled = 0 AND session_id = NEW.session_id
    AND NEW.start_seq IS NOT NULL AND provider_turn = NEW.provider_turn;
END;

CREATE TRIGGER turn_uncounted AFTER DELETE ON turns
BEGIN
  UPDATE captures SET turns = turns - 1,
    open_turns = open_turns - (OLD.completion_seq IS NULL),
    held_turns = held_turns - (OLD.completion_seq IS NULL AND OLD.released = 0),
    last_completed_at = (SELECT max(completed_at) FROM turns WHERE capture = OLD.capture)
  WHERE seq = OLD.capture;
  INSERT INTO refold_intent SELECT seq FROM session_events WHERE session_id = OLD.session_id AND kind = 'requested'
    AND provider_turn = OLD.provider_turn;
END;

CREATE TRIGGER turn_recounted AFTER UPDATE ON turns
WHEN NEW.capture IS NOT OLD.capture OR NEW.completion_seq IS NOT OLD.completion_seq OR NEW.released <> OLD.released
  OR NEW.start_seq IS NOT OLD.start_seq OR NEW.completed_at IS NOT OLD.completed_at
BEGIN
  UPDATE captures SET turns = turns - 1,
    open_turns = open_turns - (OLD.completion_seq IS NULL),
    held_turns = held_turns - (OLD.completion_seq IS NULL AND OLD.released = 0),
    last_completed_at = CASE WHEN OLD.completed_at IS NULL THEN last_completed_at
      ELSE (SELECT max(completed_at) FROM turns WHERE capture = OLD.capture) END
  WHERE seq = OLD.capture;
  UPDATE captures SET turns = turns + 1,
    open_turns = open_turns + (NEW.completion_seq IS NULL),
    held_turns = held_turns + (NEW.completion_seq IS NULL AND NEW.released = 0),
    last_completed_at = max(coalesce(last_completed_at, NEW.completed_at),
      coalesce(NEW.completed_at, last_completed_at))
  WHERE seq = NEW.capture;
  INSERT INTO refold_intent SELECT seq FROM session_events WHERE session_id = NEW.session_id AND kind = 'requested'
    AND provider_turn = NEW.provider_turn AND NEW.start_seq IS NOT OLD.start_seq;
END;

-- ---------------------------------------------------------------- intents follow their requests (D4)

CREATE TRIGGER intents_of_changed AFTER UPDATE ON session_events WHEN OLD.kind = 'requested' OR NEW.kind = 'requested'
BEGIN
  DELETE FROM intents WHERE seq IN (OLD.seq, NEW.seq);
  INSERT INTO intents SELECT * FROM intents_fold WHERE seq = NEW.seq;
END;

CREATE TRIGGER intents_of_deleted AFTER DELETE ON session_events WHEN OLD.kind = 'requested'
BEGIN DELETE FROM intents WHERE seq = OLD.seq; END;

CREATE TRIGGER intent_counted AFTER INSERT ON intents
BEGIN
  UPDATE captures SET open_intents = open_intents + (NEW.settled = 0),
    held_intents = held_intents + (NEW.settled = 0 AND NEW.released = 0)
  WHERE seq = NEW.capture;
END;

CREATE TRIGGER intent_uncounted AFTER DELETE ON intents
BEGIN
  UPDATE captures SET open_intents = open_intents - (OLD.settled = 0),
    held_intents = held_intents - (OLD.settled = 0 AND OLD.released = 0)
  WHERE seq = OLD.capture;
END;

CREATE TRIGGER intent_recounted AFTER UPDATE OF settled, released ON intents
BEGIN
  UPDATE captures SET open_intents = open_intents - (OLD.settled = 0) + (NEW.settled = 0),
    held_intents = held_intents - (OLD.settled = 0 AND OLD.released = 0) + (NEW.settled = 0 AND NEW.released = 0)
  WHERE seq = NEW.capture;
END;

-- ---------------------------------------------------------------- what lets go, lets go of turns and intents (D13)
-- One trigger for each kind of subject and direction: together they would scan the turns.

CREATE TRIGGER exec_released AFTER INSERT ON releases WHEN NEW.subject GLOB 'death:*' OR NEW.subject GLOB 'exit:*'
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE exec_id = substr(NEW.subject, instr(NEW.subject, ':') + 1) AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents
    WHERE exec_id = substr(NEW.subject, instr(NEW.subject, ':') + 1) AND settled = 0;
END;

CREATE TRIGGER exec_unreleased AFTER DELETE ON releases WHEN OLD.subject GLOB 'death:*' OR OLD.subject GLOB 'exit:*'
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE exec_id = substr(OLD.subject, instr(OLD.subject, ':') + 1) AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents
    WHERE exec_id = substr(OLD.subject, instr(OLD.subject, ':') + 1) AND settled = 0;
END;

CREATE TRIGGER turn_released AFTER INSERT ON releases WHEN NEW.subject GLOB 'turn:*' OR NEW.subject GLOB 'request:*'
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns WHERE session_id = NEW.session_id
    AND 'turn:' || provider_thread || ':' || provider_turn = NEW.subject;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE session_id = NEW.session_id AND settled = 0;
END;

CREATE TRIGGER turn_unreleased AFTER DELETE ON releases WHEN OLD.subject GLOB 'turn:*' OR OLD.subject GLOB 'request:*'
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns WHERE session_id = OLD.session_id
    AND 'turn:' || provider_thread || ':' || provider_turn = OLD.subject;
  INSERT INTO refold_intent SELECT seq FROM session_events WHERE session_id = OLD.session_id AND kind = 'requested';
END;

CREATE TRIGGER released_by_exec_end AFTER UPDATE OF completed_at ON execs WHEN NEW.completed_at IS NOT OLD.completed_at
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE exec_id = NEW.id AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE exec_id = NEW.id AND settled = 0;
END;

CREATE TRIGGER released_by_known_exec AFTER INSERT ON execs WHEN NEW.completed_at IS NOT NULL
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE exec_id = NEW.id AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE exec_id = NEW.id AND settled = 0;
END;

CREATE TRIGGER unreleased_by_forgotten_exec AFTER DELETE ON execs WHEN OLD.completed_at IS NOT NULL
BEGIN
  INSERT INTO refold_turn SELECT session_id, provider_thread, provider_turn FROM turns
    WHERE exec_id = OLD.id AND completion_seq IS NULL;
  INSERT INTO refold_intent SELECT seq FROM intents WHERE exec_id = OLD.id AND settled = 0;
END;
