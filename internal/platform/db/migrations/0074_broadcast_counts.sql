-- What became of the recipients of a broadcast, counted by variant. A trigger counts each change of a recipient in the
-- transaction that makes it, so that results and limits need not read the recipients. On PostgreSQL many transactions
-- change recipients of one broadcast at once; so that they seldom wait for each other, each counts in one of 16 parts.
-- SQLite has one writer, and one part.
CREATE TABLE broadcast_counts (
	broadcast_id TEXT NOT NULL,
	variant BIGINT NOT NULL,
	part BIGINT NOT NULL,
	team_id TEXT NOT NULL,
	sent BIGINT NOT NULL,            -- emails in the state; those that are in none of these wait
	delivered BIGINT NOT NULL,
	bounced BIGINT NOT NULL,
	hard BIGINT NOT NULL,            -- of those that bounced, for good
	failed BIGINT NOT NULL,
	suppressed BIGINT NOT NULL,
	canceled BIGINT NOT NULL,
	opened BIGINT NOT NULL,          -- by a person
	clicked BIGINT NOT NULL,         -- by a person
	complained BIGINT NOT NULL,
	unsubscribed BIGINT NOT NULL,
	PRIMARY KEY (broadcast_id, variant, part)
);

-- How many contacts got an email, and how many were left out for what reason, as the transactions of pages add them.
CREATE TABLE broadcast_entered (
	broadcast_id TEXT NOT NULL,
	variant BIGINT NOT NULL,
	reason TEXT NOT NULL,            -- '' for those that got an email
	team_id TEXT NOT NULL,
	contacts BIGINT NOT NULL,
	PRIMARY KEY (broadcast_id, variant, reason)
);

-- Nodes of the release before may be running: what they change while this counts would be missed.
-- only: postgres
LOCK TABLE broadcast_recipients IN ACCESS EXCLUSIVE MODE;

INSERT INTO broadcast_counts (broadcast_id, variant, part, team_id, sent, delivered, bounced, hard, failed, suppressed,
	canceled, opened, clicked, complained, unsubscribed)
	SELECT v.broadcast_id, v.number, 0, v.team_id, COUNT(*) FILTER (WHERE r.state = 'sent'),
		COUNT(*) FILTER (WHERE r.state = 'delivered'), COUNT(*) FILTER (WHERE r.state = 'bounced'),
		COUNT(*) FILTER (WHERE r.state = 'bounced' AND r.bounce = 'permanent'), COUNT(*) FILTER (WHERE r.state = 'failed'),
		COUNT(*) FILTER (WHERE r.state = 'suppressed'), COUNT(*) FILTER (WHERE r.state = 'canceled'),
		COUNT(*) FILTER (WHERE r.opened), COUNT(*) FILTER (WHERE r.clicked), COUNT(*) FILTER (WHERE r.complained),
		COUNT(*) FILTER (WHERE r.unsubscribed)
	FROM broadcasts b JOIN broadcast_variants v ON v.broadcast_id = b.id
	LEFT JOIN broadcast_recipients r ON r.broadcast_id = v.broadcast_id AND r.variant = v.number AND r.state <> 'left_out'
	WHERE b.started_at > 0 GROUP BY v.broadcast_id, v.number, v.team_id;

-- only: postgres
INSERT INTO broadcast_counts (broadcast_id, variant, part, team_id, sent, delivered, bounced, hard, failed, suppressed,
	canceled, opened, clicked, complained, unsubscribed)
	SELECT broadcast_id, variant, g, team_id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	FROM broadcast_counts, GENERATE_SERIES(1, 15) g;

INSERT INTO broadcast_entered (broadcast_id, variant, reason, team_id, contacts)
	SELECT r.broadcast_id, r.variant, CASE WHEN r.state = 'left_out' THEN r.reason ELSE '' END, b.team_id, COUNT(*)
	FROM broadcasts b JOIN broadcast_recipients r ON r.broadcast_id = b.id
	GROUP BY r.broadcast_id, r.variant, CASE WHEN r.state = 'left_out' THEN r.reason ELSE '' END, b.team_id;

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
		opened = opened + NEW.opened - OLD.opened, clicked = clicked + NEW.clicked - OLD.clicked,
		complained = complained + NEW.complained - OLD.complained,
		unsubscribed = unsubscribed + NEW.unsubscribed - OLD.unsubscribed
	WHERE broadcast_id = NEW.broadcast_id AND variant = NEW.variant AND part = 0; END;

-- only: postgres
CREATE FUNCTION broadcast_recipients_count() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
	UPDATE broadcast_counts SET
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

-- only: postgres
CREATE TRIGGER broadcast_recipients_count AFTER UPDATE OF state, opened, clicked, complained, unsubscribed
ON broadcast_recipients FOR EACH ROW WHEN (OLD.state <> NEW.state OR OLD.opened <> NEW.opened
	OR OLD.clicked <> NEW.clicked OR OLD.complained <> NEW.complained OR OLD.unsubscribed <> NEW.unsubscribed)
EXECUTE FUNCTION broadcast_recipients_count();

-- Each list of recipients of a state that few have has an index in its order: SQLite keeps no statistics by which it would
-- find out that they are few. All wait when they are entered, and most are delivered in the end: lists of these go by the
-- key, and neither is written to an index.
DROP INDEX broadcast_recipients_pending;

CREATE INDEX broadcast_recipients_state ON broadcast_recipients (broadcast_id, state, contact_id)
	WHERE state <> 'waiting' AND state <> 'delivered';

DROP INDEX broadcast_recipients_left_out;

CREATE INDEX broadcast_recipients_reason ON broadcast_recipients (broadcast_id, reason, contact_id) WHERE reason <> '';

CREATE INDEX broadcast_recipients_bounce ON broadcast_recipients (broadcast_id, bounce, contact_id) WHERE bounce <> '';

-- The broadcast says whose recipients they are.
ALTER TABLE broadcast_recipients DROP COLUMN team_id;
