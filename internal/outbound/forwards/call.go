package forwards

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// callKind is the kind of the jobs that post a message to a URL. Each host of a team has a lane, so that a slow host
// delays no other.
const callKind = "forwards.call"

// callLease is the maximum duration of one call, including its database writes.
const callLease = 2 * time.Minute

// callWaits are the delays before successive retries: those of webhook steps, and two more at the end.
var callWaits = []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 3 * time.Hour,
	8 * time.Hour, 12 * time.Hour}

func callLane(teamID, address string) string {
	host := ""
	if u, err := url.Parse(address); err == nil {
		host = strings.ToLower(u.Host)
	}
	return teamID + "|" + host
}

func callTeam(lane string) string {
	teamID, _, _ := strings.Cut(lane, "|")
	return teamID
}

// call handles jobs of the kind callKind.
func (s *Service) call(ctx context.Context, j jobs.Job) error {
	w, ok, err := s.open(ctx, j)
	if err != nil || !ok {
		return err
	}
	w.close()
	body, err := s.p.Payload(ctx, j.TeamID, w.payload.EmailID)
	if fault.KindOf(err) == fault.NotFound {
		return s.p.Queue.End(ctx, j)
	}
	if err != nil {
		return err
	}
	keys, err := s.signingKeys(&w.rule)
	if err != nil {
		return err
	}
	if err := j.Sure(ctx); err != nil {
		return err
	}
	status, err := s.p.Call(ctx, j.TeamID, "fwd_"+j.ID, w.rule.URL, []byte(body), keys)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if fault.KindOf(err) == fault.Unavailable {
		return s.wait(ctx, &w, callWaits[0], stopped("the URL could not be called for a day: "+err.Error()))
	}
	why, again := judge(status, err)
	return s.p.Queue.Record(ctx, func(tx *db.Tx) error {
		switch {
		case why == "":
			s.p.Queue.Finish(ctx, tx, j)
			countForwarded(ctx, tx, j.TeamID, w.rule.ID, tx.Now().Truncate(time.Hour).UnixMicro())
			countSuccess(ctx, tx, j.TeamID, w.rule.ID)
		case again && j.Tries < len(callWaits):
			s.p.Queue.Retry(ctx, tx, j, tx.Now().Add(jobs.Jitter(callWaits[j.Tries])), why)
		default:
			s.p.Queue.Finish(ctx, tx, j)
			return s.failed(ctx, tx, &w.rule, why, true)
		}
		return nil
	})
}

// judge returns why a call failed, or "" if it succeeded, and whether a retry may succeed.
func judge(status int, err error) (why string, again bool) {
	switch {
	case err != nil && !fault.Ours(err):
		return err.Error(), false
	case err != nil:
		return "there was no answer: " + db.Text(err.Error(), 300), true
	case status/100 == 2:
		return "", false
	}
	return fmt.Sprintf("the URL responded with the status %d", status),
		status/100 == 5 || status == 408 || status == 425 || status == 429
}
