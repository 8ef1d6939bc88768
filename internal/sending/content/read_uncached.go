package content

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
)

// Read returns a team's content as it was added, without compiling or caching it. The error is a NotFound fault if
// there is none.
func Read(ctx context.Context, r db.Reader, teamID, contentID string) (Content, error) {
	return get(ctx, r, teamID, contentID)
}

// Size returns the total bytes of the HTML and the texts of the given contents of a team. It does not read them.
// Missing contents count as 0.
func Size(ctx context.Context, r db.Reader, teamID string, contentIDs ...string) (int64, error) {
	return sizeOf(ctx, r, teamID, contentIDs)
}
