package emails

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/id"
)

const (
	// filePrefix is where the content of attachments is kept: attachments/<an id of its own>, and before version 21 of
	// the schema attachments/<email>/<attachment>. Whose it is stands in the rows alone.
	filePrefix = "attachments/"
	// Content is stored before the email that has it is accepted, so a crash between the two leaves content of no
	// email. It is looked for once it is older than any request, and for a month, so that the sweep need not ask
	// about everything for ever.
	strayAfter = time.Hour
	strayUntil = 31 * 24 * time.Hour
)

// newFileKey is a key that was never used: what is written under it can be swept away without harm to what is written
// later.
func newFileKey() string { return filePrefix + id.New() }

// SweepFiles removes messages and the content of attachments whose email was not accepted after all, because the
// program was killed in between. It is run now and then.
func (s *Service) SweepFiles(ctx context.Context) error {
	for _, prefix := range []string{filePrefix, rawPrefix} {
		if err := s.sweep(ctx, prefix); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what no email needs below a prefix.
func (s *Service) sweep(ctx context.Context, prefix string) error {
	now := s.d.Now()
	return s.blobs.List(ctx, prefix, func(f blob.Info) error {
		if age := now.Sub(f.Modified); age < strayAfter || age > strayUntil {
			return nil
		}
		used, err := usesBlob(ctx, s.d.Reader, f.Key)
		if err != nil {
			return fmt.Errorf("look up the email of %s: %w", f.Key, err)
		}
		if used {
			return nil
		}
		return s.blobs.Delete(ctx, f.Key)
	})
}
