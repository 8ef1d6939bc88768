package content

import (
	"context"

	"github.com/postrider/postrider/internal/db"
)

// Read returns a team's content as it was added. Nothing is compiled or cached. The error is a NotFound fault when
// there is none.
func Read(ctx context.Context, r db.Reader, teamID, contentID string) (Content, error) {
	c, _, err := get(ctx, r, teamID, contentID)
	return c, err
}
