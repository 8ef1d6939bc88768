package broadcasts

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

func notFound() error { return fault.NotFoundf("Broadcast not found") }

const columns = `id, team_id, name, segment_id, topic_id, preview_text, content_id, options, status, reason, guarded,
	actor_kind, actor_id, revision, created_at, scheduled_at, started_at, sent_at, position, phase, winner, next_at,
	entered, left_out, paused_at, significant`

func scan(r db.Row) (b Broadcast, err error) {
	var options string
	var created, scheduled, started, sent, next, paused int64
	err = r.Scan((*db.ID)(&b.ID), (*db.ID)(&b.TeamID), &b.Name, (*db.ID)(&b.SegmentID), (*db.ID)(&b.TopicID),
		&b.PreviewText, (*db.ID)(&b.contentID), &options, &b.Status, &b.Reason, &b.guarded, &b.by.Kind, (*db.ID)(&b.by.ID),
		&b.revision, &created, &scheduled, &started, &sent, (*db.ID)(&b.position), &b.phase, &b.Winner, &next,
		&b.Entered, &b.LeftOut, &paused, &b.significance)
	if err != nil {
		return b, err
	}
	b.CreatedAt, b.ScheduledAt, b.StartedAt = db.Time(created), db.Time(scheduled), db.Time(started)
	b.SentAt, b.nextAt, b.pausedAt = db.Time(sent), db.Time(next), db.Time(paused)
	if err := json.Unmarshal([]byte(options), &b.Options); err != nil {
		return b, fmt.Errorf("read the options of broadcast %s: %w", b.ID, err)
	}
	return b, nil
}

func oneBroadcast(r db.Row) (Broadcast, error) {
	b, err := scan(r)
	if errors.Is(err, db.ErrNoRows) {
		return b, notFound()
	}
	if err != nil {
		return b, fmt.Errorf("read broadcast: %w", err)
	}
	return b, nil
}

func encodeOptions(o *Options) (string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode the options of a broadcast: %w", err)
	}
	return string(text), nil
}

func insertBroadcast(ctx context.Context, tx *db.Tx, b *Broadcast) error {
	options, err := encodeOptions(&b.Options)
	if err != nil {
		return err
	}
	tx.Proof(`SELECT 1 FROM broadcasts WHERE id = $1`, db.ID(b.ID))
	tx.Queue(ctx, `INSERT INTO broadcasts (`+columns+`, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
		$12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $15)`, db.ID(b.ID), db.ID(b.TeamID),
		b.Name, db.ID(b.SegmentID), db.ID(b.TopicID), b.PreviewText, db.ID(b.contentID), options, string(b.Status),
		string(b.Reason), b.guarded, string(b.by.Kind),
		db.ID(b.by.ID), b.revision, b.CreatedAt.UnixMicro(), db.Micros(b.ScheduledAt), db.Micros(b.StartedAt),
		db.Micros(b.SentAt), db.ID(b.position), string(b.phase), b.Winner, db.Micros(b.nextAt), b.Entered, b.LeftOut,
		db.Micros(b.pausedAt), int(b.significance))
	return nil
}

// getRow returns a broadcast without its variants and, except for PreviewText, without its text.
func getRow(ctx context.Context, r db.Reader, teamID, broadcastID string) (Broadcast, error) {
	return oneBroadcast(r.QueryRow(ctx, `SELECT `+columns+` FROM broadcasts WHERE id = $1 AND team_id = $2`,
		db.ID(broadcastID), db.ID(teamID)))
}

// getBroadcast returns a broadcast with its variants but, except for PreviewText, without its text.
func getBroadcast(ctx context.Context, r db.Reader, teamID, broadcastID string) (Broadcast, error) {
	b, err := getRow(ctx, r, teamID, broadcastID)
	if err != nil {
		return b, err
	}
	all, err := getVariants(ctx, r, teamID, broadcastID)
	if len(all) > 1 {
		b.Variants = all
	}
	return b, err
}

func listBroadcasts(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Broadcast, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + columns + ` FROM broadcasts WHERE team_id = $1`, ID: "id",
		Args: []any{db.ID(teamID)}}, p, scan)
}

// listNames returns the names and statuses of a team's newest broadcasts.
func listNames(ctx context.Context, r db.Reader, teamID string, limit int) ([]Broadcast, error) {
	rows, err := r.Query(ctx, `SELECT id, team_id, name, status FROM broadcasts WHERE team_id = $1
		ORDER BY id DESC LIMIT $2`, db.ID(teamID), limit)
	all, err := db.Collect(rows, err, func(r db.Row) (b Broadcast, err error) {
		err = r.Scan((*db.ID)(&b.ID), (*db.ID)(&b.TeamID), &b.Name, &b.Status)
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("list the names of broadcasts: %w", err)
	}
	return all, nil
}

// countStarted counts a team's broadcasts that have started. The count stops at the given maximum.
func countStarted(ctx context.Context, r db.Reader, teamID string, most int) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM broadcasts WHERE team_id = $1 AND started_at > 0
		LIMIT $2) x`, db.ID(teamID), most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count broadcasts: %w", err)
	}
	return n, nil
}

// sendingBroadcasts returns the ids of up to limit broadcasts of a team that are being sent, in order, beginning after
// the given id. Unless by is the zero value, only the broadcasts that this actor sent are returned. The query repeats
// the condition of its index, because SQLite does not derive it from the other condition.
func sendingBroadcasts(ctx context.Context, r db.Reader, teamID string, by teams.ActorRef, after string,
	limit int) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM broadcasts WHERE team_id = $1 AND status IN ('queued', 'paused')
		AND status = 'queued' AND ($2 = '' OR actor_kind = $2 AND actor_id = $3) AND id > $4 ORDER BY id LIMIT $5`,
		db.ID(teamID), string(by.Kind), db.ID(by.ID), db.OrNoID(after), limit)
	return db.Collect(rows, err, func(r db.Row) (broadcastID string, err error) {
		err = r.Scan((*db.ID)(&broadcastID))
		return broadcastID, err
	})
}

// waitingForDomain returns the ids of up to limit broadcasts of a team that are paused because of a sender's domain, in
// order, beginning after the given id. The query repeats the condition of its index; see sendingBroadcasts.
func waitingForDomain(ctx context.Context, r db.Reader, teamID, after string, limit int) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM broadcasts WHERE team_id = $1 AND status IN ('queued', 'paused')
		AND status = 'paused' AND reason = $2 AND id > $3 ORDER BY id LIMIT $4`, db.ID(teamID), string(DomainNotVerified),
		db.OrNoID(after), limit)
	all, err := db.Collect(rows, err, func(r db.Row) (broadcastID string, err error) {
		err = r.Scan((*db.ID)(&broadcastID))
		return broadcastID, err
	})
	if err != nil {
		return nil, fmt.Errorf("find the broadcasts that wait for a domain: %w", err)
	}
	return all, nil
}

// lock locks a broadcast until the transaction ends, and returns it without its text and variants.
func lock(ctx context.Context, tx *db.Tx, teamID, broadcastID string) (Broadcast, error) {
	return oneBroadcast(tx.QueryRow(ctx, `UPDATE broadcasts SET updated_at = updated_at WHERE id = $1 AND team_id = $2
		RETURNING `+columns, db.ID(broadcastID), db.ID(teamID)))
}

// lockStatus returns the status of a broadcast and locks it until the transaction ends.
func lockStatus(ctx context.Context, tx *db.Tx, teamID, broadcastID string) (status Status, err error) {
	text := `SELECT status FROM broadcasts WHERE id = $1 AND team_id = $2`
	if !tx.OneWriter() {
		text += ` FOR SHARE`
	}
	err = tx.Reader.QueryRow(ctx, text, db.ID(broadcastID), db.ID(teamID)).Scan(&status)
	return status, err
}

// senderOf returns a broadcast with only its team, its status, the actor that sent it, and its variants. Only the
// content id of a variant is set.
func senderOf(ctx context.Context, r db.Reader, teamID, broadcastID string) (b Broadcast, err error) {
	rows, err := r.Query(ctx, `SELECT b.id, b.team_id, b.status, b.actor_kind, b.actor_id, v.content_id
		FROM broadcasts b LEFT JOIN broadcast_variants v ON v.broadcast_id = b.id WHERE b.id = $1
		AND b.team_id = $2 LIMIT $3`, db.ID(broadcastID), db.ID(teamID), MaxVariants)
	b.Variants, err = db.Collect(rows, err, func(r db.Row) (v Variant, err error) {
		err = r.Scan((*db.ID)(&b.ID), (*db.ID)(&b.TeamID), &b.Status, &b.by.Kind, (*db.ID)(&b.by.ID),
			(*db.ID)(&v.contentID))
		return v, err
	})
	if err == nil && len(b.Variants) == 0 {
		err = db.ErrNoRows
	}
	return b, err
}

// updateDraft saves a locked draft.
func updateDraft(ctx context.Context, tx *db.Tx, b *Broadcast) error {
	options, err := encodeOptions(&b.Options)
	if err != nil {
		return err
	}
	tx.Queue(ctx, `UPDATE broadcasts SET name = $3, segment_id = $4, topic_id = $5, preview_text = $6, content_id = $7,
		options = $8, revision = $9, updated_at = $10 WHERE id = $1 AND team_id = $2`, db.ID(b.ID), db.ID(b.TeamID), b.Name,
		db.ID(b.SegmentID), db.ID(b.TopicID), b.PreviewText, db.ID(b.contentID), options, b.revision, tx.Now().UnixMicro())
	return nil
}

// setContent saves the id of the content that holds a broadcast's own text.
func setContent(ctx context.Context, tx *db.Tx, b *Broadcast) {
	tx.Queue(ctx, `UPDATE broadcasts SET content_id = $3 WHERE id = $1 AND team_id = $2`, db.ID(b.ID), db.ID(b.TeamID),
		db.ID(b.contentID))
}

// save saves the fields of a locked broadcast that change after it is sent.
func save(ctx context.Context, tx *db.Tx, b *Broadcast) {
	b.keepClock(tx.Now())
	tx.Queue(ctx, `UPDATE broadcasts SET status = $3, reason = $4, guarded = $5, actor_kind = $6, actor_id = $7,
		revision = $8, updated_at = $9, scheduled_at = $10, started_at = $11, sent_at = $12, position = $13, phase = $14,
		winner = $15, next_at = $16, entered = $17, left_out = $18, paused_at = $19,
		significant = $20 WHERE id = $1 AND team_id = $2`, db.ID(b.ID), db.ID(b.TeamID),
		string(b.Status), string(b.Reason), b.guarded, string(b.by.Kind), db.ID(b.by.ID), b.revision,
		tx.Now().UnixMicro(), db.Micros(b.ScheduledAt), db.Micros(b.StartedAt), db.Micros(b.SentAt), db.ID(b.position),
		string(b.phase), b.Winner,
		db.Micros(b.nextAt), b.Entered, b.LeftOut, db.Micros(b.pausedAt), int(b.significance))
}

func deleteBroadcast(ctx context.Context, tx *db.Tx, teamID, broadcastID string) {
	tx.Queue(ctx, `DELETE FROM broadcasts WHERE id = $1 AND team_id = $2`, db.ID(broadcastID), db.ID(teamID))
}

func insertVariants(ctx context.Context, tx *db.Tx, b *Broadcast) {
	for i := range b.Variants {
		v := &b.Variants[i]
		text := func(t *string) string {
			if t == nil {
				return ""
			}
			return *t
		}
		tx.Queue(ctx, `INSERT INTO broadcast_variants (broadcast_id, number, team_id, content_id, given, sender, subject,
			preview_text, html, body_text) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, db.ID(b.ID), i, db.ID(b.TeamID),
			db.ID(v.contentID), v.givenBits(), text(v.From), text(v.Subject), text(v.PreviewText), text(v.HTML),
			text(v.Plain))
	}
}

// getVariants returns the variants of a broadcast, sorted by number. A started broadcast has at least one variant.
func getVariants(ctx context.Context, r db.Reader, teamID, broadcastID string) ([]Variant, error) {
	rows, err := r.Query(ctx, `SELECT content_id, given, sender, subject, preview_text, html, body_text
		FROM broadcast_variants WHERE broadcast_id = $1 AND team_id = $2 ORDER BY number`, db.ID(broadcastID),
		db.ID(teamID))
	all, err := db.Collect(rows, err, func(r db.Row) (v Variant, err error) {
		var given int
		var sender, subject, preview, html, text string
		err = r.Scan((*db.ID)(&v.contentID), &given, &sender, &subject, &preview, &html, &text)
		for bit, f := range []struct {
			dst  **string
			text *string
		}{{&v.From, &sender}, {&v.Subject, &subject}, {&v.PreviewText, &preview}, {&v.HTML, &html}, {&v.Plain, &text}} {
			if given&(1<<bit) != 0 {
				*f.dst = f.text
			}
		}
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the variants of broadcast %s: %w", broadcastID, err)
	}
	return all, nil
}

// variantSenders returns the variants of a broadcast, sorted by number, with only their content ids and their own From
// fields set.
func variantSenders(ctx context.Context, r db.Reader, teamID, broadcastID string) ([]Variant, error) {
	rows, err := r.Query(ctx, `SELECT content_id, given, sender FROM broadcast_variants WHERE broadcast_id = $1
		AND team_id = $2 ORDER BY number`, db.ID(broadcastID), db.ID(teamID))
	all, err := db.Collect(rows, err, func(r db.Row) (v Variant, err error) {
		var given int
		var sender string
		if err = r.Scan((*db.ID)(&v.contentID), &given, &sender); given&1 != 0 {
			v.From = &sender
		}
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the senders of broadcast %s: %w", broadcastID, err)
	}
	return all, nil
}

// variantContents returns the variants of a broadcast, sorted by number, with only their content ids set.
func variantContents(ctx context.Context, r db.Reader, teamID, broadcastID string) ([]Variant, error) {
	rows, err := r.Query(ctx, `SELECT content_id FROM broadcast_variants WHERE broadcast_id = $1 AND team_id = $2
		ORDER BY number`, db.ID(broadcastID), db.ID(teamID))
	all, err := db.Collect(rows, err, func(r db.Row) (v Variant, err error) {
		err = r.Scan((*db.ID)(&v.contentID))
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the contents of broadcast %s: %w", broadcastID, err)
	}
	return all, nil
}

func setVariantContent(ctx context.Context, tx *db.Tx, b *Broadcast, number int, contentID string) {
	tx.Queue(ctx, `UPDATE broadcast_variants SET content_id = $4 WHERE broadcast_id = $1 AND team_id = $2
		AND number = $3`, db.ID(b.ID), db.ID(b.TeamID), number, db.ID(contentID))
}

// setVariantSender saves the sender and the content id of one of a broadcast's variants.
func setVariantSender(ctx context.Context, tx *db.Tx, b *Broadcast, number int, v *Variant) {
	from := ""
	if v.From != nil {
		from = *v.From
	}
	tx.Queue(ctx, `UPDATE broadcast_variants SET sender = $4, content_id = $5 WHERE broadcast_id = $1 AND team_id = $2
		AND number = $3`, db.ID(b.ID), db.ID(b.TeamID), number, from, db.ID(v.contentID))
}

func deleteVariants(ctx context.Context, tx *db.Tx, teamID, broadcastID string) {
	tx.Queue(ctx, `DELETE FROM broadcast_variants WHERE broadcast_id = $1 AND team_id = $2`, db.ID(broadcastID),
		db.ID(teamID))
}

// actorOf returns the actor that sent a broadcast. The broadcast's emails are enqueued on behalf of this actor.
func actorOf(b *Broadcast) teams.Actor {
	by := teams.System(b.TeamID)
	by.Kind, by.ID = b.by.Kind, b.by.ID
	return by
}
