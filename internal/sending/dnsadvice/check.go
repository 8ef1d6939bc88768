package dnsadvice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/authority"
	"github.com/postrider/postrider/internal/mail/dnstext"
)

// Check returns the problems that the facts show, in the order of [Codes].
func Check(f *Facts) []Problem {
	c := &checker{Facts: f}
	if c.domainMissing() {
		return c.problems
	}
	c.servers()
	c.bogus()
	for i := range f.Wanted {
		c.record(&f.Wanted[i])
	}
	c.wildcard()
	c.spf()
	c.dmarc()
	order := func(p Problem) int {
		return slices.IndexFunc(Codes, func(code Code) bool { return code.Name == p.Code })
	}
	slices.SortStableFunc(c.problems, func(a, b Problem) int { return cmp.Compare(order(a), order(b)) })
	return c.problems
}

// checker collects problems.
type checker struct {
	*Facts
	problems []Problem
}

// add adds a problem of a name and a record type.
func (c *checker) add(code string, s Severity, key, name, typ, found, what, do string) {
	c.problems = append(c.problems, Problem{Code: code, Severity: s, Key: key, Name: name, Type: typ, Found: found, What: what,
		Do: do})
}

// about adds a problem of a wanted record.
func (c *checker) about(w *Wanted, code string, s Severity, found []string, what, do string) {
	c.add(code, s, w.Key, w.Name, w.Type, shorten(found...), what, do)
}

func (c *checker) mistake(w *Wanted, m mistake, found []string) {
	c.about(w, m.code, Error, found, m.what, m.do)
}

// domainMissing reports whether the registrable domain has no zone of its own, because it is not registered.
func (c *checker) domainMissing() bool {
	if c.Zone == "" || below(c.Zone, c.Organization) || !below(c.Organization, c.Zone) {
		return false
	}
	c.add("domain_missing", Error, "", c.Organization, "NS", "", "The domain "+c.Organization+" has no name servers.",
		"Register the domain, or correct its name; if you have just registered it, wait until its name servers are set up.")
	return true
}

// servers checks whether the zone's servers answer.
func (c *checker) servers() {
	good, bad := map[string]bool{}, map[string]string{}
	for _, found := range c.Answers {
		for _, a := range found.Servers {
			switch {
			case a.Definite() || a.Outcome == authority.Referred:
				good[a.Server] = true
			case a.Outcome != authority.Forbidden:
				bad[a.Server] = string(a.Outcome)
			}
		}
	}
	var broken []string
	for server, outcome := range bad {
		if !good[server] {
			broken = append(broken, server+": "+strings.ReplaceAll(outcome, "_", " "))
		}
	}
	slices.Sort(broken)
	switch {
	case len(broken) == 0:
	case len(good) == 0:
		c.add("zone_unreachable", Error, "", c.Zone, "NS", shorten(broken...), "None of the name servers of "+c.Zone+" answers.",
			"Check at your DNS provider that the zone exists, and at your registrar that the domain names the right servers.")
	default:
		c.add("server_broken", Warning, "", c.Zone, "NS", shorten(broken...),
			"Some name servers of "+c.Zone+" do not answer or do not have the zone, so that look-ups sometimes fail.",
			"Remove these servers at your registrar, or set up the zone on them.")
	}
}

// bogus checks whether validating servers refuse the zone.
func (c *checker) bogus() {
	if len(c.Bogus) > 0 {
		c.add("dnssec_bogus", Error, "", c.Bogus[0], "DS", "",
			"The DNSSEC signatures of "+cmp.Or(c.Zone, c.Domain)+" are wrong, so that many receivers find none of its records.",
			"Correct the DS record at your registrar, or remove it until the zone is signed again.")
	}
}

// record checks one wanted record.
func (c *checker) record(w *Wanted) {
	found := c.at(w.Name, w.Type)
	if w.Type == "NS" {
		c.delegation(w)
		return
	}
	values := c.values(w.Name, w.Type)
	if !w.present(values) {
		if c.unanswered(found) {
			return
		}
		c.wrong(w, values)
		return
	}
	c.spread(w, found)
	c.alias(w)
	switch {
	case w.isDKIM():
		c.severalKeys(w, values)
	case w.receives():
		c.otherHosts(w, values)
	}
}

// unanswered reports whether nothing is known about a question.
func (c *checker) unanswered(found Findings) bool {
	return found.State == Unknown && !slices.ContainsFunc(found.Servers, authority.Answer.Definite)
}

// wrong adds the reason why a record is not found.
func (c *checker) wrong(w *Wanted, values []string) {
	if w.Type != "CNAME" && c.aliasInstead(w) {
		return
	}
	if len(values) > 0 && c.value(w, values) {
		return
	}
	if c.elsewhere(w) || w.Type == "CNAME" && c.addresses(w) || w.Type != "TXT" && c.textInstead(w) {
		return
	}
	c.about(w, "missing", Error, nil, "The record is not at "+w.Name+".", "Add the record at your DNS provider.")
}

// value adds the problem of the values at the record's name. It returns false if none of them is an attempt at the
// record.
func (c *checker) value(w *Wanted, values []string) bool {
	switch {
	case w.isDKIM():
		c.wrongKey(w, values)
		return true
	case w.isSPF():
		return c.wrongSPF(w, values)
	case w.Type == "MX":
		c.wrongMX(w, values)
		return true
	case w.Type == "CNAME":
		if m, ok := hostMistake(values[0], w.Value, c.Zone); ok {
			c.mistake(w, m, values)
			return true
		}
		c.about(w, "target_differs", Error, values, "The name leads to another host.", "Replace the target with "+w.Value+".")
		return true
	}
	c.about(w, "differs", Error, values, "The record has another value.", "Replace the value with the one on this page.")
	return true
}

// wrongKey adds the problem of DKIM records, none of which has the wanted key.
func (c *checker) wrongKey(w *Wanted, values []string) {
	for _, v := range values {
		if m, ok := mistakeIn(v, "v=DKIM1"); ok && m.code != "quotes" {
			c.mistake(w, m, values)
			return
		}
	}
	key := dnstext.Key(w.Value)
	raw := func(v string) string { return strings.Join(strings.Fields(dnstext.Unquote(v)), "") }
	dkim := records(values, "v=DKIM1")
	whole := strings.Join(strings.Fields(w.Value), "")
	first := slices.IndexFunc(values, func(v string) bool { return v != "" && strings.HasPrefix(whole, raw(v)) })
	switch got, has := dnstext.Tag(dnstext.Unquote(slices.Concat(dkim, values)[0]), "p"); {
	case first >= 0 && slices.ContainsFunc(values, func(v string) bool { return raw(values[first])+raw(v) == whole }):
		c.about(w, "key_split", Error, values, "The key is in two TXT records, but must be in one.",
			"Delete both records and add one with the whole value; if your provider limits a value to 255 characters, "+
				"enter two quoted strings in one record.")
	case has && got == "":
		c.about(w, "key_revoked", Error, values, "The record has no key, which says that the key was revoked.",
			"Enter the whole value again.")
	case got != "" && strings.HasPrefix(key, got) || !has && first >= 0:
		c.about(w, "key_cut", Error, values,
			fmt.Sprintf("The key ends after %d of %d characters, so that no signature can be verified.", len(got), len(key)),
			"Enter the whole value; if your provider limits a value to 255 characters, enter it as two quoted strings in "+
				"one record.")
	case notBase64.MatchString(got):
		c.about(w, "key_garbled", Error, values, "The key contains characters that no key has.", "Enter the whole value again.")
	default:
		c.about(w, "key_differs", Error, values, "The record has another key than the one with which mail is signed.",
			"Replace the value with the one on this page; records of a deleted domain do not count any more.")
	}
}

// severalKeys reports DKIM records beside the right one, because receivers may use either.
func (c *checker) severalKeys(w *Wanted, values []string) {
	var others []string
	for _, v := range records(values, "v=DKIM1") {
		if dnstext.Key(v) != dnstext.Key(w.Value) {
			others = append(others, v)
		}
	}
	if len(others) > 0 {
		c.about(w, "key_several", Error, others, "The name has another DKIM record too, and receivers use either of them.",
			"Delete the other record.")
	}
	for _, v := range values {
		if m, ok := mistakeIn(v, "v=DKIM1"); ok && dnstext.Key(v) == dnstext.Key(w.Value) {
			c.about(w, m.code, Warning, []string{v}, m.what, m.do)
			return
		}
	}
}

// wrongSPF adds the problem of an SPF record. It returns false if there is no SPF record.
func (c *checker) wrongSPF(w *Wanted, values []string) bool {
	spf := records(values, "v=spf1")
	for _, v := range values {
		m, ok := mistakeIn(v, "v=spf1")
		if ok && strings.Contains(strings.ToLower(v), "spf1") {
			c.mistake(w, m, []string{v})
			return true
		}
	}
	if len(spf) == 1 {
		c.about(w, "spf_include", Error, spf, "The SPF record at "+w.Name+" does not name this installation's senders.",
			"Add "+dnstext.Include(w.Value)+" to the record, before its last term.")
	}
	return len(spf) > 0
}

// wrongMX adds the problem of MX records, none of which has the wanted host.
func (c *checker) wrongMX(w *Wanted, values []string) {
	for _, v := range values {
		if m, ok := hostMistake(hostOf(v), w.Value, c.Zone); ok {
			c.mistake(w, m, values)
			return
		}
	}
	if slices.ContainsFunc(values, func(v string) bool { return hostOf(v) == "." }) {
		c.about(w, "null_mx", Error, values, "The name has a null MX record, which says that it accepts no mail (RFC 7505).",
			"Delete the record whose host is a single dot, and add the one on this page.")
		return
	}
	do := "Add the record on this page."
	if w.receives() {
		do = "Replace these records with the one on this page, or receive mail at a subdomain."
	}
	c.about(w, "target_differs", Error, values, "The mail hosts at "+w.Name+" are others.", do)
}

// otherHosts reports mail hosts that get mail before this installation's host.
func (c *checker) otherHosts(w *Wanted, values []string) {
	preference := func(v string) (n int) {
		fmt.Sscanf(v, "%d", &n)
		return n
	}
	own := 1 << 16
	for _, v := range values {
		if strings.EqualFold(hostOf(v), w.Value) {
			own = min(own, preference(v))
		}
	}
	var first []string
	for _, v := range values {
		if preference(v) < own {
			first = append(first, v)
		}
	}
	if len(first) > 0 {
		c.about(w, "mx_other_first", Error, first, "Mail goes to another host first, because it has a lower number.",
			"Give this installation's host the lowest number, or delete the other records.")
	}
}
