package content

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
)

// Read returns a team's Content as it was added, without compiling or caching it. If the Content does not exist, Read
// returns a NotFound fault.
func Read(ctx context.Context, r db.Reader, teamID, contentID string) (Content, error) {
	return get(ctx, r, teamID, contentID)
}

// Size returns the total size, in bytes, of the HTML and text in the given Contents of a team. Size does not load the
// texts. A missing Content counts as 0 bytes.
func Size(ctx context.Context, r db.Reader, teamID string, contentIDs ...string) (int64, error) {
	return sizeOf(ctx, r, teamID, contentIDs)
}
