package dnsadvice_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/sending/dnsadvice"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// newService returns a service whose domain has sent the given emails.
func newService(t *testing.T, l *lab, counts []metrics.Count, fail error) *dnsadvice.Service {
	t.Helper()
	s, err := dnsadvice.New(dnsadvice.EmbeddedProviders(), dnsadvice.Deps{DNS: l.DNS, Authority: l.Authority,
		Log: slog.New(slog.DiscardHandler), Suggest: suggest,
		Count: func(_ context.Context, teamID string, q metrics.Query) ([]metrics.Count, error) {
			if teamID != "team" || !slices.Equal(q.DomainIDs, []string{"domain"}) || q.To.Sub(q.From) != 30*24*time.Hour {
				t.Errorf("counts %+v of %s", q, teamID)
			}
			return counts, fail
		}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAdvice(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	z := &labZone{names: []string{"ns1.lab.test.", "ns2.lab.test.", "a.ns.cloudflare.com.", "b.ns.cloudflare.com."}}
	z.servers[0] = parse(t, "acme.test.", changed("- send MX\nsend.acme.test MX 10 bounce.example.net."))
	z.servers[1], z.visible = z.servers[0], z.servers[0]
	l.add("acme.test", z)
	var records []domains.Record
	for _, w := range wantedOf("acme.test") {
		records = append(records, domains.Record{Key: w.Key, Kind: w.Kind, FQDN: w.Name, Type: w.Type, Value: w.Value, Priority: 10})
	}
	d := &domains.Domain{ID: "domain", TeamID: "team", Name: "acme.test"}
	s := newService(t, l, []metrics.Count{{Type: "sent", Events: 700}, {Type: "sent", BroadcastID: "b", Events: 9000},
		{Type: "delivered", Events: 5}}, nil)
	a := s.Advice(t.Context(), d, records)
	if a.Provider != "Cloudflare" || !strings.HasPrefix(a.Link, "https://dash.cloudflare.com/") || a.ApplyLink != "" {
		t.Errorf("provider %q, link %q, %q", a.Provider, a.Link, a.ApplyLink)
	}
	if len(a.Forms) != len(records) || a.Forms[0] != (domains.FieldForm{Key: "mx", Type: "MX", NameLabel: "Name", Name: "send",
		ValueLabel: "Content", Value: "bounce.example.net", Priority: "10"}) || a.Forms[3].ValueLabel != "Target" {
		t.Errorf("forms %+v", a.Forms)
	}
	doubled := slices.IndexFunc(a.Problems, func(p domains.Problem) bool { return p.Code == "name_doubled" })
	if doubled < 0 || a.Problems[doubled].Type != "MX" ||
		!strings.Contains(a.Problems[doubled].Text, "Enter send as the name") {
		t.Errorf("problems %+v", a.Problems)
	}
	if notes := strings.Join(a.Notes, " "); !strings.Contains(notes, "9000 emails of broadcasts and 700 other") ||
		!strings.Contains(notes, "DNS only") {
		t.Errorf("notes %q", a.Notes)
	}

	// Nothing is said about a record that our own name servers hide.
	hidden := slices.Clone(records)
	for i := range hidden {
		hidden[i].Hidden = true
	}
	if b := s.Advice(t.Context(), d, hidden); len(b.Problems) >= len(a.Problems) ||
		slices.ContainsFunc(b.Problems, func(p domains.Problem) bool { return p.Code == "name_doubled" }) {
		t.Errorf("problems of hidden records: %+v", b.Problems)
	}

	// Without counts, and after the time limit, the rest is there.
	s = newService(t, l, nil, errors.New("no database"))
	if a = s.Advice(t.Context(), d, records); a.Provider != "Cloudflare" || len(a.Problems) == 0 {
		t.Errorf("without counts: %+v", a)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if a = s.Advice(ended, d, records); len(a.Problems) > 0 {
		t.Errorf("after the time limit: %+v", a)
	}
}
