package emails

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/id"
)

const (
	// filePrefix is the prefix of the keys of attachments: attachments/<an id of its own>, and before version 21 of the
	// schema attachments/<email>/<attachment>. Only the rows say which email a key belongs to.
	filePrefix = "attachments/"
	// Content is stored before its email is accepted, and deleted after its email, so a crash in between leaves content
	// without an email. The sweep looks for it once it is older than any request can be.
	strayAfter = time.Hour
)

// newFileKey returns a key that was never used. The sweep may delete what is stored under an old key without touching
// what is stored later.
func newFileKey() string { return filePrefix + id.New() }

// SweepFiles deletes messages and the content of attachments that no email has, because the program was killed before
// the email was accepted or after it was deleted. It is called periodically.
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

// SweepContents deletes the contents that are not kept and that no email refers to. It is called periodically.
func (s *Service) SweepContents(ctx context.Context) error {
	var failed error
	for after := ""; ; {
		teams, err := s.contents.TeamsWithUnused(ctx, after)
		if err != nil || len(teams) == 0 {
			return errors.Join(failed, err)
		}
		for _, teamID := range teams {
			if err := s.sweepContents(ctx, teamID); err != nil {
				failed = errors.Join(failed, fmt.Errorf("delete contents of team %s that no email has: %w", teamID, err))
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
