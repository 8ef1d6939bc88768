package dnsadvice

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/dnstext"
)

// Limits of RFC 7208 section 4.6.4 on the evaluation of an SPF record.
const (
	spfTerms = 10
	spfVoid  = 2
)

// spf checks the SPF record of the return path's host.
func (c *checker) spf() {
	i := slices.IndexFunc(c.Wanted, func(w Wanted) bool { return w.isSPF() })
	if i < 0 || c.SPF == nil {
		return
	}
	w, r := &c.Wanted[i], c.SPF
	if all := records(c.values(w.Name, "TXT"), "v=spf1"); len(all) > 1 {
		c.about(w, "spf_several", Error, all, "The name has several SPF records, and receivers then use none of them.",
			"Merge them into one record that contains "+dnstext.Include(w.Value)+".")
		return
	}
	if c.has("spf_include") || len(r.Records) != 1 {
		return
	}
	switch {
	case r.Broken != "":
		c.about(w, "spf_broken", Error, r.Records, "Receivers cannot evaluate the SPF record: "+r.Broken+".",
			"Correct the record, or replace it with the one on this page.")
	case r.Terms > spfTerms:
		c.about(w, "spf_lookups", Error, r.Records,
			fmt.Sprintf("The SPF record takes more than the %d look-ups that RFC 7208 allows.", spfTerms),
			"Remove includes that you do not need.")
	case r.Void > spfVoid:
		c.about(w, "spf_void", Error, r.Records,
			fmt.Sprintf("The SPF record makes %d look-ups without a result, and RFC 7208 allows %d.", r.Void, spfVoid),
			"Remove the terms whose hosts do not exist.")
	}
	if r.Anybody {
		c.about(w, "spf_anybody", Error, r.Records, "The SPF record allows everybody to send (+all).", "End it with ~all or -all.")
	}
}

// dmarcNames returns the wrong names at which DMARC records are found in practice.
func dmarcNames(domain, zone string) []string {
	return []string{domain, "dmarc." + domain, "_dmarc._dmarc." + domain, doubled("_dmarc."+domain, zone),
		"_domainkey." + domain, "_dmarc._domainkey." + domain}
}

// capital finds a tag name or a policy in upper case.
var capital = regexp.MustCompile(`(?:^|;)\s*(?:[a-z]*[A-Z][A-Za-z]*\s*=|(?:p|sp|np)\s*=\s*[a-z]*[A-Z])`)

// dmarc checks the DMARC records of the domain.
func (c *checker) dmarc() {
	name := "_dmarc." + c.Domain
	values := c.values(name, "TXT")
	all := records(values, "v=DMARC1")
	found := func(code string, s Severity, at string, values []string, what, do string) {
		c.add(code, s, "", at, "TXT", shorten(values...), what, do)
	}
	for _, v := range values {
		m, ok := mistakeIn(v, "v=DMARC1")
		if ok && strings.Contains(strings.ToUpper(v), "DMARC1") && m.code != "quotes" {
			found(m.code, Error, name, []string{v}, m.what, m.do)
			return
		}
	}
	if len(all) == 0 {
		if !c.dmarcElsewhere(name) {
			c.dmarcMissing()
		}
		return
	}
	if len(all) > 1 {
		found("dmarc_several", Error, name, all, "The name has several DMARC records, and receivers then use none of them.",
			"Keep one of them.")
		return
	}
	c.dmarcTags(name, all[0], found)
}

// dmarcTags checks the tags of the domain's DMARC record.
func (c *checker) dmarcTags(name, text string,
	found func(code string, s Severity, at string, values []string, what, do string)) {
	record, ok := dmarc.Parse(text)
	one := []string{text}
	// The version is exempt: its letters must be upper case.
	_, tags, _ := strings.Cut(text, ";")
	switch upper := !strings.HasPrefix(text, "v=DMARC1") || capital.MatchString(tags); {
	case upper && (!ok || record.Invalid):
		found("dmarc_case", Error, name, one, "The record has a tag in upper case, so that receivers do not find its policy.",
			"Write the tags and the policy in lower case, and the version as v=DMARC1.")
	case upper:
		found("dmarc_case", Warning, name, one, "The record has a tag or a policy in upper case, which some receivers ignore.",
			"Write the tags and the policy in lower case.")
	case record.Invalid:
		found("dmarc_invalid", Error, name, one, "The record has no valid policy, so that most receivers ignore it.",
			"Write p= and none, quarantine or reject after v=DMARC1;.")
	}
	if _, has := dnstext.Tag(text, "pct"); has {
		found("dmarc_pct", Warning, name, one, "The record has the tag pct, which RFC 9989 has removed and receivers ignore.",
			"Remove pct; to test a policy, add t=y, with which receivers apply it one step more mildly.")
	}
}

// dmarcElsewhere looks for a DMARC record at wrong names, and reports whether it found one.
func (c *checker) dmarcElsewhere(name string) bool {
	if c.Zone == "" {
		return false
	}
	for _, at := range dmarcNames(c.Domain, c.Zone) {
		if all := records(c.values(at, "TXT"), "v=DMARC1"); len(all) > 0 {
			c.add("dmarc_wrong_name", Error, "", at, "TXT", shorten(all...), "The DMARC record is at "+at+", where receivers do "+
				"not look for it.", fmt.Sprintf("Delete it there, and enter %s as the name.", c.Provider.EnterName(c.Zone, name)))
			return true
		}
	}
	return false
}

// dmarcMissing checks whether a domain that sends has a DMARC record, or its organizational domain. A delegation brings
// the record with it.
func (c *checker) dmarcMissing() {
	delegated := slices.ContainsFunc(c.Wanted, func(w Wanted) bool { return w.Type == "NS" })
	if d := c.DMARC; d == nil || d.At != "" || len(d.Discarded) > 0 || !c.Sends || delegated {
		return
	}
	name := "_dmarc." + c.Organization
	c.add("dmarc_missing", Warning, "", name, "TXT", "", "No DMARC record applies to "+c.Domain+", although large mailbox "+
		"providers demand one of senders.", "Publish a TXT record at "+name+", and begin with v=DMARC1; p=none.")
}
