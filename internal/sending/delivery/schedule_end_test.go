package delivery

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// A schedule is exhausted after its last try, but not before three quarters of its total time have passed. Even with
// fewer tries, a schedule is exhausted after 1.5 times its total time plus an hour. After the last wait in the
// schedule, later tries repeat that wait.
func TestNextTry(t *testing.T) {
	schedule := []time.Duration{time.Minute, 19 * time.Minute, time.Hour} // 80 minutes in total
	now := time.Now()
	for _, c := range []struct {
		tries     int
		age, wait time.Duration
		over      bool
	}{
		{0, 0, time.Minute, false},
		{2, 60 * time.Minute, time.Hour, false},
		{3, 60*time.Minute - 1, time.Hour, false},
		{3, 60 * time.Minute, time.Hour, true},
		{4, 60 * time.Minute, time.Hour, true},
		{1, 180 * time.Minute, 19 * time.Minute, false},
		{1, 180*time.Minute + 1, 19 * time.Minute, true},
	} {
		wait, over := nextWait(schedule, jobs.Job{Tries: c.tries, CreatedAt: now.Add(-c.age)}, now)
		if wait != c.wait || over != c.over {
			t.Errorf("after %d tries in %v: again in %v, over %v", c.tries, c.age, wait, over)
		}
	}
}

// The next attempt starts when every delayed recipient may be retried, regardless of the order of the recipients.
func TestNextAttemptWaitsForTheLast(t *testing.T) {
	now := time.Now()
	for _, waits := range [][]time.Duration{{time.Hour, time.Minute}, {time.Minute, time.Hour},
		{time.Minute, time.Hour, time.Minute}} {
		var verdicts []verdict
		for _, w := range waits {
			verdicts = append(verdicts, verdict{state: delayed, until: now.Add(w)})
		}
		verdicts = append(verdicts, verdict{state: bounced, until: now.Add(2 * time.Hour)}) // which says nothing
		out := outcome{answers: make([]answer, len(verdicts))}
		for i := range out.answers {
			out.answers[i].reply = smtpclient.Reply{Code: 450}
		}
		tr := &try{o: &emails.Outgoing{}, started: now}
		if a, _ := tr.attempt(out, verdicts, now); a.NextAt.Sub(now) != time.Hour {
			t.Errorf("with waits of %v it comes again in %v", waits, a.NextAt.Sub(now))
		}
	}
}

// If deliveries contact no host, a team's number of jobs in progress is limited only by the allowed number of
// connections.
func TestShareWithoutHosts(t *testing.T) {
	s := &Service{c: Config{Transport: Capture, LaneConnections: 7}}
	if share := s.share("one.example", "team"); share.Most != 7*prefetch || share.Doubt != jobs.Sure {
		t.Errorf("it may have %+v", share)
	}
}
