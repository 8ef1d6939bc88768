package domainreports

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Readiness says whether a domain may take the next step of its DMARC policy. It is about the last 14 full days. If
// well-known reporters sent reports, only theirs count. Otherwise there must be two independent reporters.
type Readiness struct {
	Record       string // the DMARC record that applies; "" if there is none or DNS did not answer
	Policy       string // what receivers do by it: none, quarantine or reject; "" if there is no record
	Days         int    // since the first report, at most 14
	Known        int64  // messages of known sources
	KnownPassed  int64
	Unknown      string // the largest unknown source
	UnknownCount int64
	Messages     int64
	Ready        bool
	Reasons      []string // why not
	Name         string   // of the next record
	Next         string   // the next record; "" if the policy is the strictest one or unknown
	Strictest    bool     // there is no next step, so there are no Reasons

	unconfirmed bool // there is neither a well-known reporter nor a second one
}

func (s *Service) readiness(ctx context.Context, d *domains.Domain, c *classifier) (r Readiness, err error) {
	end := s.c.Now().UTC().Truncate(oneDay)
	known, others := newAnalysis(), newAnalysis()
	err = dmarcTotals(ctx, s.p.DB.Reader, d.TeamID, d.ID, today(end.AddDate(0, 0, -readinessDays)), today(end),
		func(x total) {
			class, name := c.class(&x.key)
			if isWellKnown(x.reporter) {
				known.add(&x, class, name)
			} else {
				others.add(&x, class, name)
			}
		})
	if err != nil {
		return r, err
	}
	a := known
	if known.messages == 0 {
		a = others
		r.unconfirmed = !independent(slices.Collect(maps.Keys(a.reporters)))
	}
	first, err := s.firstConfirmed(ctx, d, a)
	if err != nil {
		return r, err
	}
	if first > 0 {
		r.Days = int(max(0, min(end.Sub(time.UnixMicro(first))/oneDay, readinessDays)))
	}
	r.Messages = a.messages
	for _, x := range a.sources {
		switch {
		case x.Class == Unknown:
			if x.Messages > r.UnknownCount || x.Messages == r.UnknownCount && x.Name < r.Unknown {
				r.Unknown, r.UnknownCount = x.Name, x.Messages
			}
		case x.Class != Rest:
			r.Known += x.Messages
			r.KnownPassed += x.Passed
		}
	}
	r.judge(c.complete)
	return r, s.policyStep(ctx, d, &r)
}

// firstsMax is the maximum number of reporters whose first report is looked up.
const firstsMax = 50

// firstConfirmed returns the day since which reports prove something together. If they do not, it returns the day of
// the first report, or 0 if none came.
func (s *Service) firstConfirmed(ctx context.Context, d *domains.Domain, a *analysis) (int64, error) {
	names := slices.SortedFunc(maps.Keys(a.reporters), func(x, y string) int {
		return cmp.Or(cmp.Compare(a.reporters[y].Messages, a.reporters[x].Messages), cmp.Compare(x, y))
	})
	days := map[string]int64{}
	for _, name := range names[:min(len(names), firstsMax)] {
		day, err := firstDay(ctx, s.p.DB.Reader, d.TeamID, d.ID, name)
		if err != nil {
			return 0, err
		}
		if day > 0 {
			days[name] = day
		}
	}
	var earliest []string
	first := int64(0)
	for _, name := range slices.SortedFunc(maps.Keys(days), func(x, y string) int { return cmp.Compare(days[x], days[y]) }) {
		if first == 0 {
			first = days[name]
		}
		if earliest = append(earliest, name); independent(earliest) {
			return days[name], nil
		}
	}
	return first, nil
}

// judge says what is missing.
func (r *Readiness) judge(complete bool) {
	say := func(format string, args ...any) { r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...)) }
	if r.Days < readinessDays && (r.Days > 0 || r.Messages > 0) {
		say("The first proven report is %s old. The next step needs reports of 14 days.", dayCount(r.Days))
	}
	if r.Messages == 0 {
		say("No proven report came in the last 14 days.")
	} else if r.unconfirmed {
		say("All reports come from one reporter that is not well-known. A second reporter must confirm them.")
	}
	if r.Known > 0 && r.KnownPassed*100 < r.Known*99 {
		say("%.1f %% of the messages from known sources pass. At least 99 %% must pass.",
			100*float64(r.KnownPassed)/float64(r.Known))
	}
	if r.UnknownCount*100 > r.Messages {
		say("The unknown source %s has %.1f %% of all messages. Find out whether it may send as this domain.", r.Unknown,
			100*float64(r.UnknownCount)/float64(r.Messages))
	}
	if !complete {
		say("DNS did not answer, so that known sources may count as unknown.")
	}
}

// dayCount returns a number of days in words.
func dayCount(n int) string {
	if n == 1 {
		return "1 day"
	}
	return fmt.Sprintf("%d days", n)
}

// policyStep adds the present record and the next one.
func (s *Service) policyStep(ctx context.Context, d *domains.Domain, r *Readiness) error {
	ctx, cancel := context.WithTimeout(ctx, spfTime)
	defer cancel()
	r.Name = "_dmarc." + d.Name
	look := s.p.DNS.TXT
	if s.c.TrustRecords {
		look = s.lookUpTrusted(d)
	}
	found, err := dmarc.NewWalker(look).Discover(ctx, d.Name)
	switch {
	case err != nil:
		r.Reasons = append(r.Reasons, "The DMARC record of the domain could not be looked up. Try again later.")
	case found.Requested == "":
		r.Reasons = append(r.Reasons, "The domain has no DMARC record. Publish the advised one first.")
	default:
		ctx = context.WithoutCancel(ctx) // the time limit is about the DNS
		stored, err := recordsOf(ctx, s.p.DB.Reader, d.TeamID, d.ID)
		if err != nil {
			return err
		}
		now := s.c.Now()
		since := stored.since(asksOf(&found), now)
		if days := int(now.Sub(since) / oneDay); !since.IsZero() && days < readinessDays {
			r.Reasons = append(r.Reasons, fmt.Sprintf("The present policy has applied for %s. It must have applied for "+
				"14 days before the next step.", dayCount(max(days, 0))))
		}
		address, err := s.Address(ctx, d)
		if err != nil {
			return err
		}
		r.Record, r.Policy = found.Text, string(found.Policy)
		next := nextStep(adviseRecord(&found, d.Name, "mailto:"+address))
		if address != "" {
			r.Next = next
		}
		if r.Strictest = found.Policy == dmarc.Reject && next == ""; r.Strictest {
			r.Reasons = nil
		}
	}
	r.Ready = len(r.Reasons) == 0 && r.Next != ""
	return nil
}

// lookUpTrusted returns a function that answers as if the advised records of a domain were published, and no others.
func (s *Service) lookUpTrusted(d *domains.Domain) dmarc.Lookup {
	return func(ctx context.Context, name string) ([]string, error) {
		advised, err := s.Advised(ctx, d)
		if err != nil {
			return nil, err
		}
		for _, r := range advised {
			if r.Name == name && r.Type == "TXT" {
				return []string{r.Value}, nil
			}
		}
		return nil, fmt.Errorf("%w: %s", resolve.ErrNotFound, name)
	}
}
