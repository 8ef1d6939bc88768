package broadcasts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
)

// addressPageRows is the number of recipients that one call to RecipientsWithAddress examines.
const addressPageRows = 5000

// BroadcastRecipient is a recipient of one of a team's broadcasts.
type BroadcastRecipient struct {
	BroadcastID string
	Recipient
}

// RecipientsWithAddress returns the recipients in a team's broadcasts that have the given address, newest broadcast
// first. Each call examines the next 5,000 recipients after a cursor, so a call may return no recipients even though
// more follow. The result next is the cursor for the next call, or "" at the end.
func (s *Service) RecipientsWithAddress(ctx context.Context, teamID string, a erasure.Address,
	after string) (some []BroadcastRecipient,
	next string, err error) {
	return recipientsWithAddress(ctx, s.p.DB.Reader, teamID, a, after)
}

func recipientsWithAddress(ctx context.Context, r db.Reader, teamID string, a erasure.Address,
	after string) (some []BroadcastRecipient,
	next string, err error) {
	broadcastID, contactID, within := strings.Cut(after, " ")
	if !within {
		if broadcastID, err = startedBefore(ctx, r, teamID, after); err != nil || broadcastID == "" {
			return nil, "", err
		}
	}
	some, contactID, err = addressPage(ctx, r, teamID, broadcastID, a.Key(), contactID)
	if err != nil {
		return nil, "", fmt.Errorf("look for an address in broadcast %s: %w", broadcastID, err)
	}
	if next = broadcastID; contactID != "" {
		next += " " + contactID
	}
	return some, next, nil
}

// lastID sorts after the ids of all broadcasts.
const lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

// startedBefore returns the id of a team's newest started broadcast that has an id below broadcastID, or "" if there is
// none. If broadcastID is "", startedBefore considers all started broadcasts.
func startedBefore(ctx context.Context, r db.Reader, teamID, broadcastID string) (id string, err error) {
	err = r.QueryRow(ctx, `SELECT id FROM broadcasts WHERE team_id = $1 AND id < $2 AND started_at > 0
		ORDER BY id DESC LIMIT 1`, db.ID(teamID), db.ID(cmp.Or(broadcastID, lastID))).Scan((*db.ID)(&id))
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for the broadcast before %s: %w", broadcastID, err)
	}
	return id, nil
}

// addressPage reads a range of a broadcast's recipients and returns those that have the given address; see [page.Part].
func addressPage(ctx context.Context, r db.Reader, teamID, broadcastID, address, after string) ([]BroadcastRecipient,
	string,
	error) {
	all := page.Select{Text: `SELECT r.contact_id AS id FROM broadcast_recipients r WHERE ` + ofTeam, ID: "r.contact_id",
		Args: []any{db.ID(broadcastID), db.ID(teamID)}}
	some := page.Select{Text: `SELECT ` + recipientColumns + ` FROM broadcast_recipients r WHERE ` + ofTeam +
		` AND r.address = $3`, ID: "r.contact_id", Args: []any{db.ID(broadcastID), db.ID(teamID), address}}
	return page.Part(ctx, r, all, some, after, addressPageRows, func(r db.Row) (BroadcastRecipient, error) {
		one, err := scanRecipient(r)
		return BroadcastRecipient{broadcastID, one}, err
	}, func(one BroadcastRecipient) string { return one.ContactID })
}
