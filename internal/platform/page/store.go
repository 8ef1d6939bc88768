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
// has fewer rows, endOfRows returns "".
func endOfRows(ctx context.Context, r db.Reader, s Select, p Page, n int) (id string, err error) {
	text, args := s.Text, slices.Clone(s.Args)
	order, beyond, _ := s.direction(p)
	if cursor := cmp.Or(p.After, p.Before); cursor != "" {
		args = append(args, db.ID(cursor))
		text += fmt.Sprintf(" AND %s %s $%d", s.ID, beyond, len(args))
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
