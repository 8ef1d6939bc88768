package dnsadvice

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/authority"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// askTimeout limits the time for one address of an authoritative server. It is short, because a person waits.
const askTimeout = time.Second

// Deps are the dependencies of a Service.
type Deps struct {
	DNS       resolve.Resolver // without a cache
	Authority *authority.Client
	// Count counts a team's emails, as metrics.Service.Count does.
	Count func(ctx context.Context, teamID string, q metrics.Query) ([]metrics.Count, error)
	// Suggest returns the name that one of the labels makes below a domain. It prefers earlier labels and leaves out names
	// that no team can add.
	Suggest func(domain string, labels ...string) string
	Log     *slog.Logger
	// Connect finds the page on which the provider installs the records itself (Domain Connect); nil if it is off.
	Connect Connector `deps:"optional"`
	BIMI    *BIMI     `deps:"optional"` // checks the domain's BIMI record; nil if it is not checked
}

// Connector finds the page on which a DNS provider installs records by itself.
type Connector interface {
	// ApplyURL returns the page on which the provider installs the records of a domain in a zone. It returns "" if the
	// provider does not have the template.
	ApplyURL(ctx context.Context, zone, domain string, wanted []domains.Record) (string, error)
}

// Service gives advice about the DNS of domains.
type Service struct {
	Deps
	collector Collector
}

// New returns a service that recognizes the given providers. New fails if a dependency is missing.
func New(providers []Provider, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	client := *d.Authority
	client.Timeout = askTimeout
	return &Service{Deps: d, collector: Collector{DNS: d.DNS, Authority: &client,
		Providers: func() []Provider { return providers }}}, nil
}

// Advice looks up the DNS of a domain. It returns how to enter the wanted records, and which mistakes it found. It
// leaves out what is unknown when ctx or a time limit of some seconds ends. Callers should cache the result, because
// Advice makes many look-ups.
func (s *Service) Advice(ctx context.Context, d *domains.Domain, wanted []domains.Record) domains.Advice {
	list := make([]Wanted, 0, len(wanted))
	for _, r := range wanted {
		if r.Type != "CAA" { // needed only where there is a CAA record already, which package domains looks up
			list = append(list, Wanted{Key: r.Key, Kind: r.Kind, Name: r.FQDN, Type: r.Type, Value: r.Value})
		}
	}
	var facts *Facts
	var sent Sent
	var bimi []Problem
	var apply string
	var all sync.WaitGroup
	all.Go(func() { facts = s.collector.Collect(ctx, d.Name, list) })
	all.Go(func() { sent = s.count(ctx, d) })
	if s.BIMI != nil {
		all.Go(func() { bimi = s.BIMI.Check(ctx, d.TeamID, d.Name) })
	}
	if s.Connect != nil {
		all.Go(func() { apply = s.connect(ctx, d, wanted) })
	}
	all.Wait()
	facts.Sends = d.Sending
	p := facts.Provider
	a := domains.Advice{Provider: p.Name, Link: p.LinkTo(facts.Zone), ApplyLink: apply,
		Notes: Guidance(facts, sent, s.Suggest)}
	if p.Note != "" {
		a.Notes = slices.Insert(a.Notes, 0, strings.ReplaceAll(p.Note, "`", ""))
	}
	if facts.Zone != "" {
		for _, r := range wanted {
			a.Forms = append(a.Forms, form(&p, facts.Zone, r))
		}
	}
	for _, problem := range append(Check(facts), bimi...) {
		hidden := func(r domains.Record) bool { return r.Hidden && r.Key == problem.Key }
		if slices.ContainsFunc(wanted, hidden) {
			continue // The answer comes from our name servers, and they do not have the owner's records.
		}
		a.Problems = append(a.Problems, domains.Problem{Code: problem.Code, Name: problem.Name,
			Type: problem.Type, Found: problem.Found, Text: problem.What + " " + problem.Do, Note: problem.Severity == Note})
	}
	return a
}

// form returns a record as the owner enters it at a provider.
func form(p *Provider, zone string, r domains.Record) domains.FieldForm {
	f := domains.FieldForm{Key: r.Key, Type: r.Type, NameLabel: "Name", Name: p.EnterName(zone, r.FQDN), ValueLabel: "Value",
		Value: p.EnterValue(r.Type, r.Value, r.Priority)}
	if p.NameField != "" {
		f.NameLabel, f.ValueLabel = strings.ReplaceAll(p.NameField, "`", ""), p.fieldOf(r.Type)
	}
	if r.Type == "MX" && p.Priority != priorityValue {
		f.Priority = strconv.Itoa(r.Priority)
	}
	return f
}

// connect returns the page on which the provider installs the records, or "".
func (s *Service) connect(ctx context.Context, d *domains.Domain, wanted []domains.Record) string {
	zone, _, err := s.collector.Authority.Zone(ctx, d.Name)
	if err != nil {
		return ""
	}
	link, err := s.Connect.ApplyURL(ctx, zone, d.Name, wanted)
	if err != nil {
		s.Log.Info("a DNS provider's offer to install records cannot be used", "domain", d.Name, "error", err)
	}
	return link
}

// sentWithin is the time for which a domain's emails are counted.
const sentWithin = 30 * 24 * time.Hour

// broadcastsMax limits the rows that count reads.
const broadcastsMax = 5000

// Sent are the numbers of emails from a domain in the last 30 days. They are 0 if they could not be counted.
type Sent struct {
	Broadcasts int // emails of broadcasts
	Others     int
}

// count counts the emails that the domain's team has sent from it.
func (s *Service) count(ctx context.Context, d *domains.Domain) (sent Sent) {
	now := time.Now()
	rows, err := s.Count(ctx, d.TeamID, metrics.Query{From: now.Add(-sentWithin), To: now, DomainIDs: []string{d.ID},
		ByBroadcast: true, MaxRows: broadcastsMax})
	if err != nil {
		return sent
	}
	for _, row := range rows {
		switch {
		case row.Type != "sent":
		case row.BroadcastID != "":
			sent.Broadcasts += row.Events
		default:
			sent.Others += row.Events
		}
	}
	return sent
}
