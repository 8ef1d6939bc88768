package emails

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/blob"
)

const (
	// filePrefix is where the content of attachments is kept: attachments/<email>/<attachment>.
	filePrefix = "attachments/"
	// Content is stored before the email that has it is accepted, so a crash between the two leaves content of no
	// email. It is looked for once it is older than any request, and for a month, so that the sweep need not ask
	// about everything for ever.
	strayAfter = time.Hour
	strayUntil = 31 * 24 * time.Hour
)

func fileKey(emailID, attachmentID string) string { return filePrefix + emailID + "/" + attachmentID }

// SweepFiles removes messages and the content of attachments whose email was not accepted after all, because the
// program was killed in between. It is run now and then.
func (s *Service) SweepFiles(ctx context.Context) error {
	err := s.sweep(ctx, filePrefix, func(name string) (bool, error) {
		emailID, attachmentID, ok := strings.Cut(name, "/")
		if !ok {
			return true, nil
		}
		return attachmentExists(ctx, s.d.Reader, emailID, attachmentID)
	})
	if err != nil {
		return err
	}
	return s.sweep(ctx, rawPrefix, func(emailID string) (bool, error) { return emailExists(ctx, s.d.Reader, emailID) })
}

// sweep removes what is not known below a prefix.
func (s *Service) sweep(ctx context.Context, prefix string, isKnown func(name string) (bool, error)) error {
	now := s.d.Now()
	return s.blobs.List(ctx, prefix, func(f blob.Info) error {
		if age := now.Sub(f.Modified); age < strayAfter || age > strayUntil {
			return nil
		}
		known, err := isKnown(strings.TrimPrefix(f.Key, prefix))
		if err != nil {
			return fmt.Errorf("look up the email of %s: %w", f.Key, err)
		}
		if known {
			return nil
		}
		return s.blobs.Delete(ctx, f.Key)
	})
}
