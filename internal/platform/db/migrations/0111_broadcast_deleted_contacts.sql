-- The number of contacts that were deleted before their email was sent. These contacts count as left out. The trigger
-- counts them when it moves a recipient to the state left_out; contacts without an email are counted in
-- broadcast_entered.
ALTER TABLE broadcast_counts ADD COLUMN left_out BIGINT NOT NULL DEFAULT 0;

-- only: sqlite
DROP TRIGGER broadcast_recipients_count;

-- only: sqlite
CREATE TRIGGER broadcast_recipients_count AFTER UPDATE OF state, opened, clicked, complained, unsubscribed
ON broadcast_recipients WHEN OLD.state <> NEW.state OR OLD.opened <> NEW.opened OR OLD.clicked <> NEW.clicked
	OR OLD.complained <> NEW.complained OR OLD.unsubscribed <> NEW.unsubscribed
BEGIN
	UPDATE broadcast_counts SET
		sent = sent + (NEW.state = 'sent') - (OLD.state = 'sent'),
		delivered = delivered + (NEW.state = 'delivered') - (OLD.state = 'delivered'),
		bounced = bounced + (NEW.state = 'bounced') - (OLD.state = 'bounced'),
		hard = hard + (NEW.state = 'bounced' AND NEW.bounce = 'permanent')
			- (OLD.state = 'bounced' AND OLD.bounce = 'permanent'),
		failed = failed + (NEW.state = 'failed') - (OLD.state = 'failed'),
		suppressed = suppressed + (NEW.state = 'suppressed') - (OLD.state = 'suppressed'),
		canceled = canceled + (NEW.state = 'canceled') - (OLD.state = 'canceled'),
		left_out = left_out + (NEW.state = 'left_out') - (OLD.state = 'left_out'),
		opened = opened + NEW.opened - OLD.opened, clicked = clicked + NEW.clicked - OLD.clicked,
		complained = complained + NEW.complained - OLD.complained,
		unsubscribed = unsubscribed + NEW.unsubscribed - OLD.unsubscribed
	WHERE broadcast_id = NEW.broadcast_id AND variant = NEW.variant AND part = 0; END;

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
		left_out = left_out + (NEW.state = 'left_out')::INT - (OLD.state = 'left_out')::INT,
		opened = opened + NEW.opened::INT - OLD.opened::INT, clicked = clicked + NEW.clicked::INT - OLD.clicked::INT,
		complained = complained + NEW.complained::INT - OLD.complained::INT,
		unsubscribed = unsubscribed + NEW.unsubscribed::INT - OLD.unsubscribed::INT
	WHERE broadcast_id = NEW.broadcast_id AND variant = NEW.variant AND part = pg_backend_pid() % 16; RETURN NULL; END $$;
