package emails

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/content"
)

const (
	// filePrefix is the prefix of the blob keys for attachments. A key has the form attachments/<blob id>. Before schema
	// version 21, the form was attachments/<email id>/<attachment id>. The key does not contain the email's id, so only
	// the database rows show to which email a key belongs.
	filePrefix = "attachments/"
	// Content is stored before its email is accepted and deleted after its email is deleted. A crash in between leaves
	// content that belongs to no email. SweepFiles deletes content that belongs to no email when it is older than the
	// longest possible request.
	strayAfter = time.Hour
)

// These constants limit one sweep of shared content. The next sweep continues where the previous one stopped.
const (
	seekRows    = 1000 // maximum number of emails that one step reads
	seekSteps   = 100  // maximum number of steps per content
	seekPerTeam = 1000 // maximum number of steps per team
)

// newFileKey returns a new blob key for an attachment. Keys are never reused, so a sweep can delete an old key without
// affecting a file stored later.
func newFileKey() string { return filePrefix + id.New() }

// SweepFiles deletes messages and attachments that belong to no email. Files without an email remain if the program was
// killed before it accepted an email or after it deleted one. The scheduler calls SweepFiles periodically.
func (s *Service) SweepFiles(ctx context.Context) error {
	before := s.DB.Now().Add(-strayAfter)
	for _, prefix := range []string{filePrefix, rawPrefix} {
		err := s.Blobs.Sweep(ctx, prefix, before, func(ctx context.Context, keys []string) ([]string, error) {
			return usedBlobs(ctx, s.DB.Reader, keys)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// SweepContents deletes shared content that no email uses and that is not marked as kept. The scheduler calls
// SweepContents periodically.
func (s *Service) SweepContents(ctx context.Context) error {
	return s.SweepContentsPart(ctx, jobs.Whole)
}

// SweepContentsPart does the work of SweepContents for the teams whose short ids are in the range of the part.
func (s *Service) SweepContentsPart(ctx context.Context, p jobs.Part) error {
	var failed error
	for after, last := p.Range(); ; {
		teamIDs, upTo, err := s.Contents.TeamsWithUnused(ctx, after, last)
		if err != nil || upTo == 0 {
			return errors.Join(failed, err)
		}
		after = upTo
		for _, teamID := range teamIDs {
			if err := s.sweepContents(ctx, teamID); err != nil {
				failed = errors.Join(failed, fmt.Errorf("delete contents of team %s that no email has: %w", teamID, err))
			}
			if ctx.Err() != nil {
				return failed
			}
		}
	}
}

func (s *Service) sweepContents(ctx context.Context, teamID string) error {
	steps := seekPerTeam
	for after := (content.Unused{}); ; {
		some, err := s.Contents.Unused(ctx, teamID, after)
		if err != nil || len(some) == 0 {
			return err
		}
		after = some[len(some)-1]
		had, err := contentsOf(ctx, s.DB.Reader, teamID, some)
		if err != nil {
			return err
		}
		var free []content.Unused
		for _, u := range some {
			if had[u.From] == u.ID || steps == 0 {
				continue
			}
			at, end, err := s.seek(ctx, u, &steps)
			switch {
			case err != nil:
				return err
			case end:
				free = append(free, u)
			default:
				if err := s.Contents.AdvanceFrom(ctx, u, at); err != nil {
					return err
				}
			}
		}
		if err := s.Contents.RemoveUnused(ctx, free); err != nil {
			return err
		}
	}
}

// seek searches for the first email that uses the given content. The first result is the id of the email found, or of
// the email at which the search stopped after its maximum number of steps. If no email uses the content, seek returns
// end == true.
func (s *Service) seek(ctx context.Context, u content.Unused, steps *int) (at string, end bool, err error) {
	at = u.From
	for range min(seekSteps, *steps) {
		*steps--
		found, last, n, err := seekContent(ctx, s.DB.Reader, u, at, seekRows)
		switch {
		case err != nil:
			return "", false, err
		case found != "":
			return found, false, nil
		case n < seekRows:
			return "", true, nil
		}
		at = last
	}
	return at, false, nil
}
