package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
)

// endOfRows returns the id of the nth row in a list, counted from a page's cursor in the page's direction. If the list
// has fewer rows, endOfRows returns "". In a partitioned table, endOfRows looks for the row near the cursor first.
func endOfRows(ctx context.Context, r db.Reader, s Select, p Page, n int) (id string, err error) {
	p.until = ""
	for _, part := range s.parts(p) {
		p.until = part.until
		if id, err = nthRow(ctx, r, s, p, n); id != "" || err != nil {
			return id, err
		}
	}
	return "", nil
}

// nthRow returns the id of the nth row in a page, or "" if the page has fewer rows.
func nthRow(ctx context.Context, r db.Reader, s Select, p Page, n int) (id string, err error) {
	text, args := s.Text, slices.Clone(s.Args)
	order, beyond, within := s.direction(p)
	if cursor := cmp.Or(p.After, p.Before); cursor != "" {
		args = append(args, db.ID(cursor))
		text += fmt.Sprintf(" AND %s %s $%d", s.ID, beyond, len(args))
	}
	if p.until != "" {
		args = append(args, db.ID(p.until))
		text += fmt.Sprintf(" AND %s %s $%d", s.ID, within, len(args))
	}
	args = append(args, n-1)
	text += fmt.Sprintf(" ORDER BY %s %s LIMIT 1 OFFSET $%d", s.ID, order, len(args))
	err = r.QueryRow(ctx, `SELECT x.id FROM (`+text+`) x`, args...).Scan((*db.ID)(&id))
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the end of a part: %w", err)
	}
	return id, nil
}
