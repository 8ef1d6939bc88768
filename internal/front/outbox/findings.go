package outbox

import (
	"context"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
)

const (
	checkTime = 3 * time.Second       // time limit for the checks of the email that is shown
	countTime = 40 * time.Millisecond // time limit for the checks of the emails in the list, all together
	retryTime = time.Minute           // when checks that did not end in time are tried again for the list
	openPass  = 4                     // passed checks that are shown at once
)

// checkView is the result of a check.
type checkView struct {
	Level   string // state: failed, warning, passed or hint
	Message string
	Details []string
}

// levels are the states of the levels of checks.
var levels = map[string]string{"problem": "failed", "warning": "warning", "info": "hint", "pass": "passed"}

// findings is the number of checks of an email that need a look.
type findings struct {
	level string // the worst state: failed or warning; "" if no check needs a look
	count int
	at    time.Time // when checks failed to end in time; zero if they ended
}

// runChecks runs the checks of an email and remembers the number of those that need a look.
func (s *server) runChecks(ctx context.Context, m *capture.Message) ([]checkView, error) {
	result, err := s.Check(ctx, m.TeamID, m.EmailID)
	if err == nil {
		err = ctx.Err() // checks that could not finish say nothing
	}
	var in struct {
		Data []struct {
			Level   string   `json:"level"`
			Message string   `json:"message"`
			Details []string `json:"details"`
		} `json:"data"`
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(result)
	}
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	var found findings
	if err != nil {
		found.at = time.Now()
	}
	var all []checkView
	for _, level := range []string{"problem", "warning", "info", "pass"} {
		n := 0
		for _, c := range in.Data {
			if c.Level == level {
				n++
				all = append(all, checkView{levels[level], strings.ReplaceAll(c.Message, "`", ""), c.Details})
			}
		}
		if n > 0 && found.level == "" && (level == "problem" || level == "warning") {
			found.level = levels[level]
		}
		if level == "problem" || level == "warning" {
			found.count += n
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.found) > 2*capture.Max { // most of them are of emails that were deleted
		clear(s.found)
	}
	s.found[m.ID] = found
	return all, err
}

// addChecks adds the checks to an email that is shown.
func (s *server) addChecks(ctx context.Context, v *mailView) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	all, err := s.runChecks(ctx, &v.Message)
	switch {
	case fault.KindOf(err) == fault.NotFound && err != nil:
		v.NoChecks = "This email has no checks, because the API does not know it any more."
	case err != nil:
		v.NoChecks = "The checks did not answer. Reload the page to try again."
		s.Log.Debug("the checks of a captured email failed", "id", v.ID, "error", err)
	}
	v.Checks = all
	for i := range all {
		if all[i].Level == "passed" {
			open := min(i+openPass, len(all))
			v.Checks, v.Passed = all[:open], all[open:]
			break
		}
	}
}

// countFindings adds to the list how many checks of each email need a look. The time is limited: emails whose checks
// have not run yet get their number when the list is shown again.
func (s *server) countFindings(ctx context.Context, rows []row) {
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	for i := range rows {
		s.mu.Lock()
		found, known := s.found[rows[i].ID]
		s.mu.Unlock()
		if (!known || !found.at.IsZero() && time.Since(found.at) > retryTime) && ctx.Err() == nil {
			s.runChecks(ctx, &rows[i].Message)
			s.mu.Lock()
			found = s.found[rows[i].ID]
			s.mu.Unlock()
		}
		rows[i].Level, rows[i].Findings = found.level, found.count
	}
}
