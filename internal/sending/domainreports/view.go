package domainreports

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Class says what is known about the source of messages.
type Class string

// These are the classes of sources. All but Unknown and Rest are known sources.
const (
	Ours     Class = "ours"     // an address of this installation
	Provider Class = "provider" // in an include of the domain's SPF record
	Listed   Class = "listed"   // in the domain's SPF record itself
	Unlisted Class = "unlisted" // signs with a key of the domain, but is not in its SPF record
	// Forwarded is mail with a valid signature of a known source, from an address that is not in the SPF record, or mail
	// with another return path from an address of this installation, which a rule forwarded.
	Forwarded Class = "forwarded"
	Unknown   Class = "unknown"
	Rest      Class = "rest" // details were not kept
)

// Classes returns all classes, in the order in which views show them.
func Classes() []Class { return []Class{Ours, Provider, Listed, Unlisted, Forwarded, Unknown, Rest} }

const (
	sourcesMax = 200 // of a view
	groupsMax  = 20_000
	// PeriodMax is the maximum number of days of a view.
	PeriodMax     = 31
	readinessDays = 14
)

// Period is a number of UTC days: from the first to before the last.
type Period struct{ From, To time.Time }

// LastDays returns the period of the last n days and today.
func (s *Service) LastDays(n int) Period {
	now := s.c.Now().UTC().Truncate(oneDay)
	return Period{now.AddDate(0, 0, -n), now.AddDate(0, 0, 1)}
}

func (p Period) check() error {
	if !p.From.Before(p.To) {
		return fault.Invalidf("end_date", "The `end_date` parameter must not be before `start_date`.")
	}
	if p.To.Sub(p.From) > PeriodMax*oneDay {
		return fault.Invalidf("start_date", "The period may have at most %d days.", PeriodMax)
	}
	return nil
}

// Day counts the messages of a day by class.
type Day struct {
	Day             time.Time
	Passed, Failed  int64           // Passed messages passed DKIM or SPF for an aligned domain
	Classes         map[Class]int64 // all messages
	FailedByClasses map[Class]int64
}

// Source counts the messages of a source.
type Source struct {
	Class     Class
	Name      string // an IP address, or the name of a provider
	Messages  int64
	Passed    int64 // of DMARC
	DKIM, SPF int64 // messages that passed the method for an aligned domain
	// Quarantined and Rejected messages were treated so by the receivers.
	Quarantined, Rejected int64
}

// Reporter counts what a reporter reported.
type Reporter struct {
	Domain           string // "" if details were not kept
	Messages, Passed int64
}

// DMARCView shows the DMARC reports about a domain.
type DMARCView struct {
	Period
	Messages, Passed int64
	Days             []Day // with reports, the oldest first
	Sources          []Source
	MoreSources      int // sources that are not in the list
	Reporters        []Reporter
	Others           []Source // unknown sources, which send as the domain
	Findings         []Finding
	Apart            Apart // what reports without proof say
	Incomplete       bool  // DNS did not answer, so that sources may be shown as unknown
	Readiness        Readiness
}

// DMARC returns the view of a domain's DMARC reports.
func (s *Service) DMARC(ctx context.Context, d *domains.Domain, p Period) (*DMARCView, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	c, err := s.classifier(ctx, d, p)
	if err != nil {
		return nil, err
	}
	a, err := s.analyze(ctx, d, p, c)
	if err != nil {
		return nil, err
	}
	ready, err := s.readiness(ctx, d, c)
	if err != nil {
		return nil, err
	}
	a.policy = ready.Policy
	v := a.view(p)
	v.Readiness, v.Incomplete = ready, !c.complete
	v.Apart, err = unprovenMessages(ctx, s.p.DB.Reader, d.TeamID, d.ID, today(p.From), today(p.To))
	return v, err
}

// classifier decides the classes of rows.
type classifier struct {
	own, listed networks
	complete    bool
	domain      string
	path        string          // the host of the return path of the domain's own mail
	selectors   map[string]bool // that known sources use
}

func (s *Service) classifier(ctx context.Context, d *domains.Domain, p Period) (*classifier, error) {
	c := &classifier{own: s.own(ctx), domain: d.Name, path: d.ReturnPath + "." + d.Name, selectors: map[string]bool{}}
	c.listed, c.complete = s.listed(ctx, d.Name, c.path)
	// A look-back that is longer than the period knows more selectors.
	from := min(today(p.From), today(s.c.Now().AddDate(0, 0, -readinessDays)))
	known, err := knownSelectors(ctx, s.p.DB.Reader, d.TeamID, d.ID, from)
	if err != nil {
		return nil, err
	}
	ours, err := s.p.Domains.Selectors(ctx, d)
	for _, name := range append(known, ours...) {
		c.selectors[name] = true
	}
	return c, err
}

// class returns the class of a row and the name of its source.
func (c *classifier) class(k *key) (Class, string) {
	if k.source == "" {
		if k.own {
			return Ours, ""
		}
		return Rest, ""
	}
	a := addressOf(k.source)
	if _, ok := c.own.find(a); k.own || ok && strings.EqualFold(k.spfDomain, c.path) {
		return Ours, k.source
	} else if ok {
		return Forwarded, k.source
	}
	n, ok := c.listed.find(a)
	switch {
	case ok && n.include != "":
		return Provider, providerOf(n.include)
	case ok, k.spf:
		return Listed, k.source
	case k.dkim && (k.selector == "" || c.selectors[k.selector]):
		return Forwarded, k.source
	case k.dkim:
		return Unlisted, k.source
	}
	return Unknown, k.source
}

// analysis adds the rows of a period up.
type analysis struct {
	days      map[int64]*Day
	sources   map[sourceKey]*Source
	reporters map[string]*Reporter
	problems  map[problem]int64
	messages  int64
	policy    string // that receivers apply now, for the advice of findings
}

type sourceKey struct {
	class Class
	name  string
}

func newAnalysis() *analysis {
	return &analysis{map[int64]*Day{}, map[sourceKey]*Source{}, map[string]*Reporter{}, map[problem]int64{}, 0, ""}
}

func (s *Service) analyze(ctx context.Context, d *domains.Domain, p Period, c *classifier) (*analysis, error) {
	a := newAnalysis()
	err := dmarcTotals(ctx, s.p.DB.Reader, d.TeamID, d.ID, today(p.From), today(p.To), func(x total) {
		class, name := c.class(&x.key)
		a.add(&x, class, name)
		if pr, ok := c.problem(&x.key, class, name); ok {
			a.count(pr, x.messages)
		}
	})
	return a, err
}

// count adds messages to a problem. Beyond the limit, the problems of each kind are added up without their sources.
func (a *analysis) count(p problem, messages int64) {
	if _, found := a.problems[p]; !found && len(a.problems) >= groupsMax {
		p = problem{kind: p.kind, source: manySources}
	}
	a.problems[p] += messages
}

func (a *analysis) add(x *total, class Class, name string) {
	n, passed := x.messages, x.dkim || x.spf
	a.messages += n
	day := a.days[x.day]
	if day == nil {
		day = &Day{Day: time.UnixMicro(x.day).UTC(), Classes: map[Class]int64{}, FailedByClasses: map[Class]int64{}}
		a.days[x.day] = day
	}
	day.Classes[class] += n
	k := sourceKey{class, name}
	if a.sources[k] == nil && len(a.sources) >= groupsMax {
		k.name = ""
	}
	if a.sources[k] == nil {
		a.sources[k] = &Source{Class: class, Name: k.name}
	}
	from := a.sources[k]
	who := x.reporter
	if a.reporters[who] == nil && len(a.reporters) >= groupsMax {
		who = ""
	}
	if a.reporters[who] == nil {
		a.reporters[who] = &Reporter{Domain: who}
	}
	from.Messages += n
	a.reporters[who].Messages += n
	if passed {
		day.Passed += n
		from.Passed += n
		a.reporters[who].Passed += n
	} else {
		day.Failed += n
		day.FailedByClasses[class] += n
	}
	if x.dkim {
		from.DKIM += n
	}
	if x.spf {
		from.SPF += n
	}
	switch x.disposition {
	case "quarantine":
		from.Quarantined += n
	case "reject":
		from.Rejected += n
	}
}

func (a *analysis) view(p Period) *DMARCView {
	v := &DMARCView{Period: p, Messages: a.messages}
	for _, at := range slices.Sorted(maps.Keys(a.days)) {
		v.Days = append(v.Days, *a.days[at])
		v.Passed += a.days[at].Passed
	}
	for _, x := range a.sources {
		v.Sources = append(v.Sources, *x)
	}
	slices.SortFunc(v.Sources, func(x, y Source) int {
		return cmp.Or(cmp.Compare(y.Messages, x.Messages), cmp.Compare(x.Class, y.Class), cmp.Compare(x.Name, y.Name))
	})
	for _, x := range v.Sources {
		if x.Class == Unknown && len(v.Others) < sourcesMax {
			v.Others = append(v.Others, x)
		}
	}
	if len(v.Sources) > sourcesMax {
		v.MoreSources, v.Sources = len(v.Sources)-sourcesMax, v.Sources[:sourcesMax]
	}
	for _, x := range a.reporters {
		v.Reporters = append(v.Reporters, *x)
	}
	slices.SortFunc(v.Reporters, func(x, y Reporter) int {
		return cmp.Or(cmp.Compare(y.Messages, x.Messages), cmp.Compare(x.Domain, y.Domain))
	})
	v.Reporters = v.Reporters[:min(len(v.Reporters), sourcesMax)]
	v.Findings = a.findings()
	return v
}

// Reports returns a page of the reports about a domain, newest first.
func (s *Service) Reports(ctx context.Context, d *domains.Domain, p page.Page) ([]Report, bool, error) {
	return listReports(ctx, s.p.DB.Reader, d.TeamID, d.ID, p)
}
