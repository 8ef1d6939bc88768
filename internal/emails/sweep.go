package emails

import (
	"context"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/id"
)

const (
	// filePrefix is where the content of attachments is kept: attachments/<an id of its own>, and before version 21 of
	// the schema attachments/<email>/<attachment>. Whose it is stands in the rows alone.
	filePrefix = "attachments/"
	// Content is stored before the email that has it is accepted, and deleted after the email, so a crash in between
	// leaves content of no email. It is looked for once it is older than any request.
	strayAfter = time.Hour
)

// newFileKey is a key that was never used: what is written under it can be swept away without harm to what is written
// later.
func newFileKey() string { return filePrefix + id.New() }

// SweepFiles removes messages and the content of attachments that no email has, because the program was killed before
// the email was accepted, or after it was deleted. It is run now and then.
func (s *Service) SweepFiles(ctx context.Context) error {
	before := s.d.Now().Add(-strayAfter)
	for _, prefix := range []string{filePrefix, rawPrefix} {
		err := s.blobs.Sweep(ctx, prefix, before, func(ctx context.Context, keys []string) ([]string, error) {
			names := make([]string, len(keys))
			for i, key := range keys {
				names[i] = strings.TrimPrefix(key, prefix)
			}
			return usedBlobs(ctx, s.d.Reader, keys, names)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
