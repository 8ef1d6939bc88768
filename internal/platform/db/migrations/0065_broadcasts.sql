-- Emails to an audience. The columns from position on are what a run has done; each page of recipients writes them in
-- the transaction that enters its emails.
CREATE TABLE broadcasts (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	name TEXT NOT NULL,
	segment_id TEXT NOT NULL,
	topic_id TEXT NOT NULL,          -- '' when none
	preview_text TEXT NOT NULL,
	content_id TEXT NOT NULL,        -- as it was written
	options TEXT NOT NULL,           -- JSON: pace, A/B test, limits
	status TEXT NOT NULL,            -- draft, scheduled, queued, paused, canceled, sent or failed
	reason TEXT NOT NULL,            -- why it is paused or failed, '' otherwise
	guarded BOOLEAN NOT NULL,        -- it pauses when bounces or complaints pass a limit
	actor_kind TEXT NOT NULL,        -- who sent it, '' for nobody yet
	actor_id TEXT NOT NULL,
	revision BIGINT NOT NULL,        -- counts the changes of a draft
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	scheduled_at BIGINT NOT NULL,
	started_at BIGINT NOT NULL,      -- contacts that were added later are not mailed
	sent_at BIGINT NOT NULL,
	position TEXT NOT NULL,          -- the contact up to which the audience was walked
	phase TEXT NOT NULL,             -- all, test, wait, rest or settle; '' before it starts
	winner BIGINT NOT NULL,          -- the variant that won, -1 while none has
	next_at BIGINT NOT NULL,         -- when the next page is due by the pace, or the winner is chosen
	entered BIGINT NOT NULL,         -- contacts that got an email
	left_out BIGINT NOT NULL         -- contacts that got none
);

CREATE INDEX broadcasts_team ON broadcasts (team_id, id);

-- What the variants of a broadcast have in place of the broadcast's own. One without an A/B test has the variant 0 from
-- its start on.
CREATE TABLE broadcast_variants (
	broadcast_id TEXT NOT NULL,
	number BIGINT NOT NULL,
	team_id TEXT NOT NULL,
	content_id TEXT NOT NULL,        -- what is sent; '' before the start
	given BIGINT NOT NULL,           -- bits: 1 from, 2 subject, 4 preview text, 8 html, 16 text
	sender TEXT NOT NULL,
	subject TEXT NOT NULL,
	preview_text TEXT NOT NULL,
	html TEXT NOT NULL,
	body_text TEXT NOT NULL,
	PRIMARY KEY (broadcast_id, number)
);

-- What became of each contact. The key is what keeps a contact from being mailed twice. Most rows end as delivered,
-- which no index but the key has.
-- only: postgres
CREATE TABLE broadcast_recipients (
	broadcast_id TEXT NOT NULL,
	contact_id TEXT NOT NULL,
	team_id TEXT NOT NULL,
	email_id TEXT NOT NULL,          -- '' when left out
	address TEXT NOT NULL,
	state TEXT NOT NULL,             -- waiting, sent, delivered, bounced, failed, suppressed, canceled or left_out
	reason TEXT NOT NULL,            -- why it was left out, '' otherwise
	bounce TEXT NOT NULL,            -- permanent, transient or undetermined; '' when it did not bounce
	variant BIGINT NOT NULL,
	opens BIGINT NOT NULL,
	clicks BIGINT NOT NULL,
	opened BOOLEAN NOT NULL,         -- by a person
	clicked BOOLEAN NOT NULL,        -- by a person
	complained BOOLEAN NOT NULL,
	unsubscribed BOOLEAN NOT NULL,
	PRIMARY KEY (broadcast_id, contact_id)
);

-- The same, without a second tree for the key.
-- only: sqlite
CREATE TABLE broadcast_recipients (
	broadcast_id TEXT NOT NULL,
	contact_id TEXT NOT NULL,
	team_id TEXT NOT NULL,
	email_id TEXT NOT NULL,          -- '' when left out
	address TEXT NOT NULL,
	state TEXT NOT NULL,             -- waiting, sent, delivered, bounced, failed, suppressed, canceled or left_out
	reason TEXT NOT NULL,            -- why it was left out, '' otherwise
	bounce TEXT NOT NULL,            -- permanent, transient or undetermined; '' when it did not bounce
	variant BIGINT NOT NULL,
	opens BIGINT NOT NULL,
	clicks BIGINT NOT NULL,
	opened BOOLEAN NOT NULL,         -- by a person
	clicked BOOLEAN NOT NULL,        -- by a person
	complained BOOLEAN NOT NULL,
	unsubscribed BOOLEAN NOT NULL,
	PRIMARY KEY (broadcast_id, contact_id)
) WITHOUT ROWID;

CREATE INDEX broadcast_recipients_pending ON broadcast_recipients (broadcast_id, state, contact_id)
	WHERE state <> 'delivered' AND state <> 'left_out';

CREATE INDEX broadcast_recipients_left_out ON broadcast_recipients (broadcast_id, reason, contact_id)
	WHERE reason <> '';

CREATE INDEX broadcast_recipients_opens ON broadcast_recipients (broadcast_id, contact_id) WHERE opens > 0;

CREATE INDEX broadcast_recipients_clicks ON broadcast_recipients (broadcast_id, contact_id) WHERE clicks > 0;

CREATE INDEX broadcast_recipients_complained ON broadcast_recipients (broadcast_id, contact_id) WHERE complained;

CREATE INDEX broadcast_recipients_unsubscribed ON broadcast_recipients (broadcast_id, contact_id) WHERE unsubscribed;

-- The links of a broadcast that were followed, and by whom. A link is known by a hash, because a target may be longer
-- than an index takes.
CREATE TABLE broadcast_links (
	broadcast_id TEXT NOT NULL,
	link TEXT NOT NULL,
	team_id TEXT NOT NULL,
	url TEXT NOT NULL,
	clicks BIGINT NOT NULL,
	recipients BIGINT NOT NULL,      -- how many followed it
	PRIMARY KEY (broadcast_id, link)
);

CREATE INDEX broadcast_links_clicks ON broadcast_links (broadcast_id, clicks, link);

CREATE TABLE broadcast_clicks (
	broadcast_id TEXT NOT NULL,
	contact_id TEXT NOT NULL,
	link TEXT NOT NULL,
	team_id TEXT NOT NULL,
	clicks BIGINT NOT NULL,
	PRIMARY KEY (broadcast_id, contact_id, link)
);
