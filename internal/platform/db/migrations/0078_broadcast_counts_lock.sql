-- A transaction that counts takes the lock of its part first, the same one for all broadcasts and variants. It held a
-- row of one and waited for a row of another before, in the order in which things happened to the recipients, and two
-- transactions of different nodes that count in the same part could wait for each other.
-- only: postgres
CREATE OR REPLACE FUNCTION broadcast_recipients_count() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
	PERFORM pg_advisory_xact_lock(1886352997, pg_backend_pid() % 16); UPDATE broadcast_counts SET
		sent = sent + (NEW.state = 'sent')::INT - (OLD.state = 'sent')::INT,
		delivered = delivered + (NEW.state = 'delivered')::INT - (OLD.state = 'delivered')::INT,
		bounced = bounced + (NEW.state = 'bounced')::INT - (OLD.state = 'bounced')::INT,
		hard = hard + (NEW.state = 'bounced' AND NEW.bounce = 'permanent')::INT
			- (OLD.state = 'bounced' AND OLD.bounce = 'permanent')::INT,
		failed = failed + (NEW.state = 'failed')::INT - (OLD.state = 'failed')::INT,
		suppressed = suppressed + (NEW.state = 'suppressed')::INT - (OLD.state = 'suppressed')::INT,
		canceled = canceled + (NEW.state = 'canceled')::INT - (OLD.state = 'canceled')::INT,
		opened = opened + NEW.opened::INT - OLD.opened::INT, clicked = clicked + NEW.clicked::INT - OLD.clicked::INT,
		complained = complained + NEW.complained::INT - OLD.complained::INT,
		unsubscribed = unsubscribed + NEW.unsubscribed::INT - OLD.unsubscribed::INT
	WHERE broadcast_id = NEW.broadcast_id AND variant = NEW.variant AND part = pg_backend_pid() % 16; RETURN NULL; END $$;
