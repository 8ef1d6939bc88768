package servedpolicies

import (
	"slices"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
)

// Problem is a reason why senders cannot obey the policy of a domain.
type Problem struct {
	Type    string `json:"type"`
	Message string `json:"message"` // what is wrong and what to do
}

// These are the types of problems.
const (
	HostProblem        = "host"        // mta-sts.DOMAIN does not lead to this installation
	PolicyProblem      = "policy"      // the policy cannot be fetched, or another one is served
	RecordProblem      = "record"      // the record at _mta-sts.DOMAIN is missing or wrong
	MXProblem          = "mx"          // the policy does not list a host of the MX records
	CertificateProblem = "certificate" // senders do not accept the certificate of the inbound host
)

const (
	failAfter    = 15 * time.Minute // a problem is a breakage if it is found again after this time
	recoverAfter = time.Hour        // a breakage ends if no check has found a problem for this time
)

// watch is what the checks of a domain have found.
type watch struct {
	Problems  []Problem `json:"problems,omitempty"` // of the last check
	Worked    bool      `json:"worked,omitzero"`    // a check since the policy was switched on has found no problem
	BadSince  int64     `json:"bad_since,omitzero"` // in Unix microseconds; 0 if the last check found no problem
	GoodSince int64     `json:"good_since,omitzero"`
	// SeenID is the id that a look-up last found in the domain's record; "" if none was ever found.
	SeenID string `json:"seen_id,omitzero"`
	// PublishBy is until when a former id in the record is no problem, in Unix microseconds.
	PublishBy int64 `json:"publish_by,omitzero"`
	Broken    bool  `json:"broken,omitzero"` // the team got a notice of a breakage that is not over
	BrokenAt  int64 `json:"broken_at,omitzero"`
}

// change says whether a breakage begins or ends with a check.
type change string

const (
	unchanged change = ""
	failed    change = "failed"
	recovered change = "recovered"
)

// next returns the state after a check that found the given problems.
func (w watch) next(problems []Problem, now time.Time) (watch, change) {
	w.Problems = slices.Clip(problems)
	at := now.UnixMicro()
	if len(problems) == 0 {
		if w.GoodSince == 0 {
			w.GoodSince = at
		}
		w.Worked, w.BadSince = true, 0
		if w.Broken && at-w.GoodSince >= recoverAfter.Microseconds() {
			w.Broken, w.BrokenAt = false, 0
			return w, recovered
		}
		return w, unchanged
	}
	if w.BadSince == 0 {
		w.BadSince = at
	}
	w.GoodSince = 0
	if w.Worked && !w.Broken && at-w.BadSince >= failAfter.Microseconds() {
		w.Broken, w.BrokenAt = true, w.BadSince
		return w, failed
	}
	return w, unchanged
}

const (
	pendingEvery = 2 * time.Minute  // between checks in the hour after a change
	brokenEvery  = 15 * time.Minute // while there is a problem or a former id, or a breakage is not over
	enforceEvery = time.Hour
	testingEvery = 24 * time.Hour
	// patience is the time for which a policy that never worked is checked often.
	patience = 72 * time.Hour
)

// nextCheck returns when a policy is checked again.
func (r *row) nextCheck(now time.Time) time.Time {
	wait := testingEvery
	stale := r.isStale(now) && (r.Watch.Worked || r.mode() == Off)
	unsettled := len(r.Watch.Problems) > 0 || r.Watch.Broken
	switch age := now.Sub(r.ChangedAt); {
	case unsettled && !r.Watch.Worked && r.mode() != Off && age < time.Hour:
		wait = pendingEvery
	case stale && now.Sub(r.AnnounceAt) < time.Hour:
		wait = pendingEvery
	case (unsettled || stale) && (r.Watch.Worked || age < patience):
		wait = brokenEvery
	case r.mode() == Off:
	case r.Mode == mtasts.Enforce:
		wait = enforceEvery
	}
	next := now.Add(wait)
	if r.AnnounceAt.After(now) {
		next = minTime(next, r.AnnounceAt)
	}
	if r.mode() == Off && r.ObsoleteAt.After(now) {
		next = minTime(next, r.ObsoleteAt)
	}
	return next
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
