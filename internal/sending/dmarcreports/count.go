package dmarcreports

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/dmarcrpt"
)

const (
	maxPending = 50_000 // rows in memory that are not stored yet
	maxTargets = 10     // of a record
	maxTarget  = 320    // bytes of a target
	maxText    = 255    // bytes of a selector
)

// dayDomain identifies a report: its UTC day and its policy domain.
type dayDomain struct {
	day    int64 // when it begins, in Unix microseconds
	domain string
}

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

// entry has the counts for a report that are not stored yet.
type entry struct {
	published string
	messages  map[string]int64 // by the row's JSON
}

// counts collects messages in memory.
type counts struct {
	full chan struct{} // has an element if the counts should be stored soon

	mu      sync.Mutex
	pending map[dayDomain]*entry
	days    map[int64]int64 // all messages by day
	size    int             // number of rows in pending
	lost    int             // messages that are missing in reports
}

func newCounts() *counts {
	return &counts{full: make(chan struct{}, 1), pending: map[dayDomain]*entry{}, days: map[int64]int64{}}
}

// add counts a message of a day.
func (c *counts) add(day int64, f *authres.Facts) {
	at, about, row := dayDomain{day: day}, "", ""
	if f != nil {
		if p := publishedBy(f); len(p.Targets) > 0 {
			at.domain, about, row = f.Found.At, encode(p), encode(identityOf(f))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.days[day]++
	if row == "" {
		return
	}
	e := c.pending[at]
	if e == nil {
		e = &entry{messages: map[string]int64{}}
		c.pending[at] = e
	}
	if e.messages[row] == 0 {
		if c.size >= maxPending {
			c.lost++
			return
		}
		if c.size++; c.size == maxPending/2 {
			select {
			case c.full <- struct{}{}:
			default:
			}
		}
	}
	e.published = about
	e.messages[row]++
}

// encode returns v as JSON. Its callers pass only types that can always be encoded.
func encode(v any) string {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return ""
	}
	return string(text)
}

// take removes and returns the counts, and the number of messages that are missing in them.
func (c *counts) take() (pending map[dayDomain]*entry, days map[int64]int64, lost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending, days, lost = c.pending, c.days, c.lost
	c.pending, c.days, c.size, c.lost = map[dayDomain]*entry{}, map[int64]int64{}, 0, 0
	return pending, days, lost
}

// giveBack returns counts that were not stored, for the next call of take.
func (c *counts) giveBack(pending map[dayDomain]*entry, days map[int64]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for d, n := range days {
		c.days[d] += n
	}
	for at, old := range pending {
		if len(old.messages) == 0 {
			continue
		}
		e := c.pending[at]
		if e == nil {
			c.pending[at], c.size = old, c.size+len(old.messages)
			continue
		}
		for row, n := range old.messages {
			if e.messages[row] == 0 {
				c.size++
			}
			e.messages[row] += n
		}
	}
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
