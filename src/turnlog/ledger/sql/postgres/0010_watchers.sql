-- Whoever waits for receipts is told of them, while there is somebody: a commit that tells others waits for every other
-- one that does, so that nothing is told where nobody listens.

-- until: unix ms; a watcher that is gone is forgotten then.
CREATE TABLE watchers (
  id TEXT COLLATE "C" PRIMARY KEY,
  until BIGINT NOT NULL
);

CREATE FUNCTION turnlog_tell() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM watchers WHERE until > extract(epoch FROM clock_timestamp()) * 1000) THEN
    PERFORM pg_notify('turnlog', '');
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER watchers_are_told AFTER INSERT ON session_events FOR EACH STATEMENT EXECUTE FUNCTION turnlog_tell();
