package dmarcreports

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

const (
	maxPending = 50_000 // rows in memory that are not stored yet
	maxTargets = 10     // of a record
	maxTarget  = 320    // bytes of a target
	maxText    = 255    // bytes of a selector
)

// published is what the domain's record says. The record is stored with the counts, because it may change later.
type published struct {
	Policy  dmarcrpt.Policy `json:"policy"`
	Targets []string        `json:"targets"`
}

// identity is a row of a report without its number of messages, in the form that is stored.
type identity struct {
	Source     netip.Addr        `json:"source"`
	DKIM       bool              `json:"dkim,omitempty"`
	SPF        bool              `json:"spf,omitempty"`
	Requested  string            `json:"requested"` // policy for messages that fail
	Testing    bool              `json:"testing,omitempty"`
	From       string            `json:"from"`
	MailFrom   string            `json:"mail_from,omitempty"`
	Signatures []dmarcrpt.Result `json:"signatures,omitempty"`
	Paths      []dmarcrpt.Result `json:"paths,omitempty"`
}

// counts collects messages in memory: the rows of reports by their JSON, with what the domain's record says as JSON.
type counts struct {
	*dailyreports.Counts[string, string]

	mu   sync.Mutex
	days map[int64]int64 // all messages by day
}

func newCounts() *counts {
	return &counts{Counts: dailyreports.NewCounts[string](maxPending, func(newer, _ string) string { return newer }),
		days: map[int64]int64{}}
}

// add counts a message of a day.
func (c *counts) add(day int64, f *authres.Facts) {
	c.addTotals(map[int64]int64{day: 1})
	if f == nil {
		return
	}
	if p := publishedBy(f); len(p.Targets) > 0 {
		about := encode(p)
		c.Add(dailyreports.DayDomain{Day: day, Domain: f.Found.At}, encode(identityOf(f)), func(a *string) { *a = about })
	}
}

func (c *counts) addTotals(days map[int64]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for day, n := range days {
		c.days[day] += n
	}
}

// takeTotals removes and returns the numbers of all messages by day.
func (c *counts) takeTotals() map[int64]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	days := c.days
	c.days = map[int64]int64{}
	return days
}

// encode returns v as JSON. Its callers pass only types that can always be encoded.
func encode(v any) string {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return ""
	}
	return string(text)
}

// publishedIn returns what the record of a report's domain said when it was last counted.
func publishedIn(x *dailyreports.Report) (p published, err error) {
	if err = json.Unmarshal([]byte(x.About), &p); err != nil {
		return p, fmt.Errorf("%w: read the stored DMARC record: %w", dailyreports.ErrUnwritable, err)
	}
	return p, nil
}

// publishedBy returns the policy and the targets in the record that applies to a message.
func publishedBy(f *authres.Facts) published {
	r := &f.Found.Record
	p := published{Policy: dmarcrpt.Policy{Domain: f.Found.At, Discovery: "treewalk", P: string(r.P), SP: string(r.SP),
		NP: string(r.NP), StrictDKIM: r.StrictDKIM, StrictSPF: r.StrictSPF, Testing: r.Testing}}
	if p.Policy.P == "" {
		p.Policy.P = string(dmarc.None) // such a record acts like p=none (RFC 9989 section 4.10.1)
	}
	for _, uri := range r.RUA[:min(len(r.RUA), maxTargets)] {
		if address, ok := mailTarget(uri); ok && len(address) <= maxTarget && !slices.Contains(p.Targets, address) {
			p.Targets = append(p.Targets, address)
		}
	}
	return p
}

// mailTarget returns the address in a mailto URI, without its fields.
func mailTarget(uri string) (address string, ok bool) {
	scheme, address, _ := strings.Cut(uri, ":")
	address, _, _ = strings.Cut(address, "?")
	return address, strings.EqualFold(scheme, "mailto")
}

// identityOf returns the row in which a message is counted.
func identityOf(f *authres.Facts) identity {
	id := identity{Source: f.Source, DKIM: f.DKIM, SPF: f.SPF, Requested: string(f.Found.Requested),
		Testing: f.Found.Record.Testing, From: f.From, MailFrom: f.MailFrom}
	for _, s := range f.Signatures {
		if s.Domain != "" && isSelector(s.Selector) {
			id.Signatures = append(id.Signatures, dmarcrpt.Result{Domain: s.Domain, Selector: s.Selector, Result: s.Result})
		}
	}
	// RFC 9990 has no result for the EHLO name, which SPF checks if the return path is null.
	if f.Path.Domain != "" && f.Path.Domain == f.MailFrom {
		id.Paths = []dmarcrpt.Result{{Domain: f.Path.Domain, Scope: "mfrom", Result: f.Path.Result}}
	}
	return id
}

// isSelector reports whether a text can be a selector. Signatures with others are left out.
func isSelector(text string) bool {
	return text != "" && len(text) <= maxText && strings.Trim(text,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == ""
}

// row returns the row of a report.
func (id *identity) row(messages int64, p *dmarcrpt.Policy) dmarcrpt.Row {
	r := dmarcrpt.Row{Source: id.Source, Count: messages, Disposition: "none", DKIM: id.DKIM, SPF: id.SPF,
		HeaderFrom: id.From, EnvelopeFrom: id.MailFrom, Signatures: id.Signatures, Paths: id.Paths}
	switch {
	case id.DKIM || id.SPF:
		r.Disposition = "pass"
	case id.Testing && id.Requested != string(dmarc.None):
		r.Reasons = []dmarcrpt.Reason{{Type: "policy_test_mode"}}
	case id.Requested != string(dmarc.None) || p.P != string(dmarc.None):
		r.Reasons = []dmarcrpt.Reason{{Type: "local_policy", Comment: "messages are marked, and the reader decides"}}
	}
	return r
}

// digest returns a short name for the JSON of a row.
func digest(row string) string {
	sum := sha256.Sum256([]byte(row))
	return hex.EncodeToString(sum[:12])
}
