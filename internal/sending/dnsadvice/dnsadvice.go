// Package dnsadvice finds mistakes in the DNS records of a domain, and says how to enter the records at its DNS
// provider.
//
// A [Collector] gathers facts: what the authoritative servers of the zone answer, what the recursive servers answer,
// and where else the records might be. [Check] turns facts into problems, without look-ups. Each problem names the
// record, the value that was found, what is wrong, and what to do. The providers are data, which an operator can
// replace.
//
// # Invariants
//
//   - The look-ups are about names at, above and below the domain, names in its records, and name servers. At most 8
//     servers of a zone are asked, and only at public addresses.
//   - The look-ups of a [Collector] end after [collectTime]. Facts that are unknown by then lead to no problem.
//   - [Codes] lists every code of a problem, and docs/domains.md has the same list.
//
// # Failures
//
// A look-up that fails makes a fact unknown. The advice then has fewer problems, but no wrong ones.
//
// # Out of scope
//
// The advice has no effect: package domains verifies the records, and a domain with problems may send.
package dnsadvice

import (
	"strings"

	"github.com/postrider/postrider/internal/mail/authority"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/sending/preflight"
)

// Wanted is a record that the domain should have.
type Wanted struct {
	Key   string // the key of the record in package domains, such as spf
	Kind  string // such as SPF, DKIM or Receiving
	Name  string // absolute, without the final dot
	Type  string // MX, TXT, CNAME or NS
	Value string // without priority
}

// Question is a name and a record type about which servers were asked.
type Question struct{ Name, Type string }

// Findings are the answers to a question.
type Findings struct {
	Servers []authority.Answer // of the authoritative servers; empty if they were not asked or cannot be found
	// Visible are the values that the recursive servers return. MX records have their priority before the host.
	Visible []string
	// State says what the recursive servers answer.
	State Visibility
}

// Visibility says what the recursive servers answer.
type Visibility int

// These are the answers of recursive servers.
const (
	Unknown Visibility = iota // they were not asked, or do not answer
	Present
	Absent
	NoName // the name does not exist
)

// Facts are what the look-ups for a domain have found.
type Facts struct {
	Domain       string
	Organization string   // the registrable domain
	Sends        bool     // whether the domain may send
	Zone         string   // the zone in which the owner enters the records; "" if it is not known
	Servers      []string // the names of the zone's servers
	Provider     Provider // has no name if the provider is unknown
	Wanted       []Wanted
	Answers      map[Question]Findings
	SPF          *preflight.SPFReport // of the return path's host; nil if it was not evaluated
	DMARC        *dmarc.Discovery     // nil if it is not known
	// Above is the policy of the organization, if Domain is below it and has a record of its own; nil if it is not known.
	Above   *dmarc.Discovery
	Bogus   []string            // names for which the recursive servers find wrong DNSSEC signatures
	Random  string              // a random name below _domainkey, at which nobody has a record
	Targets map[string][]string // addresses of the hosts that CNAME records should lead to
}

// Severity says how much a problem matters.
type Severity string

// These are the severities.
const (
	Error   Severity = "error"   // a record does not work
	Warning Severity = "warning" // some receivers do not accept the record, or will not soon
	Note    Severity = "note"    // nothing is wrong, but the owner should know
)

// Problem is something wrong with a record.
type Problem struct {
	Code     string
	Severity Severity
	Key      string // of the wanted record, such as spf; "" if the problem concerns none of them
	Name     string // of the record
	Type     string
	Found    string // the value that was found, shortened; "" if there was none
	What     string // one sentence: what is wrong
	Do       string // one sentence: what to do
}

// at returns the findings of a question.
func (f *Facts) at(name, typ string) Findings { return f.Answers[Question{name, typ}] }

// values returns the values that the authoritative servers have for a name. If none of them answered, it returns those
// of the recursive servers. The result has no duplicates.
func (f *Facts) values(name, typ string) (all []string) {
	found := f.at(name, typ)
	seen, answered := map[string]bool{}, false
	add := func(v string) {
		if !seen[v] {
			seen[v] = true
			all = append(all, v)
		}
	}
	for _, a := range found.Servers {
		if a.Definite() || a.Outcome == authority.Referred && typ == "NS" {
			answered = true
			for _, r := range a.Records {
				add(r.Value)
			}
		}
	}
	if !answered {
		for _, v := range found.Visible {
			add(v)
		}
	}
	return all
}

// below reports whether name is zone or below it.
func below(name, zone string) bool {
	return zone != "" && (name == zone || strings.HasSuffix(name, "."+zone))
}
