package tlsreports

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

const maxDetails = 1000 // failures of a report

// build returns a report, or nil if it counts no sessions. Failures beyond maxDetails are added up without host and
// address.
func (s *Service) build(ctx context.Context, x *dailyreports.Report) (*tlsrpt.Report, error) {
	policies, err := s.policies(ctx, x.DayDomain)
	if err != nil {
		return nil, err
	}
	totals, err := s.totals(ctx, x.DayDomain)
	if err != nil {
		return nil, err
	}
	failures, err := s.failures(ctx, x.DayDomain, max(maxDetails-len(totals), 0))
	if err != nil {
		return nil, err
	}
	begin := db.Time(x.Day)
	r := &tlsrpt.Report{Organization: s.c.From.Domain, Contact: s.c.From.Addr(), ID: x.ID + "@" + s.c.From.Domain,
		Begin: begin, End: begin.Add(dailyreports.Day - time.Second)}
	index := map[string]int{}
	for _, p := range policies {
		index[p.digest] = len(r.Policies)
		r.Policies = append(r.Policies, tlsrpt.PolicyReport{Policy: p.Policy})
	}
	listed := map[row]int64{}
	for _, f := range failures {
		if i, ok := index[f.digest]; ok {
			to := &r.Policies[i]
			to.Failures = append(to.Failures, tlsrpt.Failure{Result: tlsrpt.Result(f.result), SendingIP: f.address,
				Host: f.host, Sessions: f.sessions})
			listed[row{digest: f.digest, result: f.result}] += f.sessions
		}
	}
	left := maxDetails - len(failures)
	for _, t := range totals {
		i, ok := index[t.digest]
		if !ok {
			continue
		}
		to := &r.Policies[i]
		if t.result == "" {
			to.Successful += t.sessions
			continue
		}
		to.Failed += t.sessions
		if rest := t.sessions - listed[t.row]; rest > 0 && left > 0 {
			to.Failures = append(to.Failures, tlsrpt.Failure{Result: tlsrpt.Result(t.result), Sessions: rest})
			left--
		}
	}
	kept := r.Policies[:0]
	for _, p := range r.Policies {
		if p.Successful+p.Failed > 0 {
			kept = append(kept, p)
		}
	}
	if r.Policies = kept; len(kept) == 0 {
		return nil, nil
	}
	return r, nil
}
