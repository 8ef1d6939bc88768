package content

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
)

// Read returns a team's content as it was added. Nothing is compiled or cached. The error is a NotFound fault when
// there is none.
func Read(ctx context.Context, r db.Reader, teamID, contentID string) (Content, error) {
	return get(ctx, r, teamID, contentID)
}

// Size returns how many octets the HTML and the texts of some of a team's contents have in all, without reading them.
// Contents that do not exist have none.
func Size(ctx context.Context, r db.Reader, teamID string, contentIDs ...string) (int64, error) {
	return sizeOf(ctx, r, teamID, contentIDs)
}
