package emails

import (
	"context"
	"fmt"
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

// SweepContents deletes the contents that nobody keeps and no email refers to. It is run now and then.
func (s *Service) SweepContents(ctx context.Context) error {
	for after := ""; ; {
		teams, err := s.contents.TeamsWithUnused(ctx, after)
		if err != nil || len(teams) == 0 {
			return err
		}
		for _, teamID := range teams {
			if err := s.sweepContents(ctx, teamID); err != nil {
				return fmt.Errorf("delete contents of team %s that no email has: %w", teamID, err)
			}
			after = teamID
		}
	}
}

func (s *Service) sweepContents(ctx context.Context, teamID string) error {
	emailID, err := oldestWithContent(ctx, s.d.Reader, teamID)
	if err != nil {
		return err
	}
	var oldest time.Time
	if emailID != "" {
		var ok bool
		if oldest, ok = id.Time(emailID); !ok {
			return fmt.Errorf("the id %s does not say when the email was accepted", emailID)
		}
	}
	for {
		if n, err := s.contents.RemoveUnused(ctx, teamID, oldest); err != nil || n == 0 {
			return err
		}
	}
}
