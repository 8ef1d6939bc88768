package emails

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/mail/message"
)

// Brief returns an email without its bodies, and the headers that its caller gave it. It reads what the transaction of r
// has written itself, so event listeners may ask for an email that is being accepted.
func Brief(ctx context.Context, r db.Reader, teamID, emailID string) (Email, []message.Field, error) {
	var row emailRow
	var f fields
	err := r.QueryRow(ctx, `SELECT `+emailColumns+`, `+fieldColumns+` FROM emails e`+fieldTables+`
		WHERE e.id = $1 AND e.team_id = $2`, emailID, teamID).Scan(row.dest(f.dest()...)...)
	if errors.Is(err, db.ErrNoRows) {
		return Email{}, nil, fault.NotFoundf("Email not found")
	}
	if err != nil {
		return Email{}, nil, fmt.Errorf("read email %s: %w", emailID, err)
	}
	e, err := row.email()
	if err != nil {
		return e, nil, err
	}
	headers, err := f.decode()
	if err != nil {
		return e, nil, fmt.Errorf("read the headers of email %s: %w", emailID, err)
	}
	return e, headers, nil
}
