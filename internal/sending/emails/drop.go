package emails

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	surveyStep = 15 * time.Minute // time span of the emails that one statement of Survey reads
	surveyMost = 10_000           // maximum number of unsettled emails in a partition that is dropped
	surveyKeys = 100_000          // maximum number of files that Removed deletes; SweepFiles deletes the others
)

// Survey is what must be known of the emails of a time span before their partition is dropped.
type Survey struct {
	From, To  time.Time
	Unsettled []string // emails that delivery still needs

	teams map[string]string   // the teams of unsettled emails
	files map[string][]string // keys of the files of settled emails, by email
	n     int                 // number of these keys
}

// Survey finds the unsettled emails of a time span and the files of all others. It reads all emails of the span, a
// quarter of an hour at a time. Emails that are settled stay settled.
func (s *Service) Survey(ctx context.Context, from, to time.Time) (*Survey, error) {
	v := &Survey{From: from, To: to, teams: map[string]string{}, files: map[string][]string{}}
	for at := from; at.Before(to); at = at.Add(surveyStep) {
		end := at.Add(surveyStep)
		if end.After(to) {
			end = to
		}
		more, err := unsettledBetween(ctx, s.DB.Reader, id.First(at), id.First(end))
		if err != nil {
			return nil, fmt.Errorf("find unsettled emails: %w", err)
		}
		for _, e := range more {
			v.Unsettled, v.teams[e.id] = append(v.Unsettled, e.id), e.teamID
		}
		if len(v.Unsettled) > surveyMost {
			return nil, fmt.Errorf("more than %d emails from %s to %s are not settled", surveyMost, from, to)
		}
		if v.n >= surveyKeys {
			continue
		}
		files, err := filesBetween(ctx, s.DB.Reader, id.First(at), id.First(end), surveyKeys-v.n)
		if err != nil {
			return nil, fmt.Errorf("list the files of emails: %w", err)
		}
		for _, f := range files {
			v.files[f.emailID] = append(v.files[f.emailID], f.key)
		}
		v.n += len(files)
	}
	for _, emailID := range v.Unsettled {
		delete(v.files, emailID)
	}
	return v, nil
}

// ForgetSkipped deletes the records about skipped bodies of all emails of a span except the kept ones, which the
// transaction drops.
func (s *Service) ForgetSkipped(ctx context.Context, tx *db.Tx, v *Survey, kept []string) {
	for _, emailID := range kept {
		delete(v.files, emailID)
	}
	deleteSkippedBetween(ctx, tx, id.First(v.From), id.First(v.To), kept)
}

// KeptTeams returns the teams of the given emails that are not settled or have events, by the emails' ids.
func (s *Service) KeptTeams(ctx context.Context, r db.Reader, v *Survey, kept []string) (map[string]string, error) {
	teams := maps.Clone(v.teams)
	var others []string
	for _, emailID := range kept {
		if teams[emailID] == "" {
			others = append(others, emailID)
		}
	}
	if len(others) == 0 {
		return teams, nil
	}
	found, err := withEvents(ctx, r, others)
	if err != nil {
		return nil, fmt.Errorf("find the teams of kept emails: %w", err)
	}
	for _, e := range found {
		teams[e.id] = e.teamID
	}
	return teams, nil
}

// Removed deletes the files of the emails that were dropped after the survey.
func (s *Service) Removed(ctx context.Context, v *Survey) error {
	for _, keys := range v.files {
		if err := s.deleteFiles(ctx, keys); err != nil {
			return err
		}
	}
	return nil
}
