package domains

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/dnstext"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// Limits of what is stored of the values that a look-up found, because name servers may return anything.
const (
	foundValues = 5
	foundMax    = 700 // bytes of all values together
)

// shorten returns values for storage, one per line: valid UTF-8 without control characters, and not too long.
func shorten(values ...string) string {
	values = slices.Clone(values[:min(len(values), foundValues)])
	for i, v := range values {
		values[i] = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, strings.ToValidUTF8(v, "?"))
	}
	all := strings.Join(values, "\n")
	if len(all) > foundMax {
		all = strings.ToValidUTF8(all[:foundMax], "") + "…"
	}
	return all
}

func shortenMX(all []resolve.MX) string {
	var values []string
	for _, m := range all {
		values = append(values, fmt.Sprintf("%d %s", m.Pref, m.Host))
	}
	return shorten(values...)
}

// noteLookUp stores what a look-up found, beside the states that [judge] has derived from it.
func (d *Domain) noteLookUp(before *Domain, found map[string]finding, values map[string]string, now time.Time) {
	for key, c := range d.checks {
		was := before.checks[key]
		if c.Changed = was.Changed; c.Status != was.Status {
			c.Changed = now.UnixMicro()
		}
		switch f, asked := found[key]; {
		case !asked:
			c.Found, c.Unanswered = was.Found, was.Unanswered
		case f == unknown:
			c.Found, c.Unanswered = was.Found, true
		case f == absent:
			c.Found, c.Unanswered = values[key], false
		default:
			c.Found, c.Unanswered = "", false
		}
		if key == delegationSeen && found[key] == present {
			c.Found = values[key]
		}
		d.checks[key] = c
	}
}

// visible returns the checks of records. Other checks are internal, so clients are not notified of their changes.
func visible(checks map[string]check) map[string]check {
	checks = maps.Clone(checks)
	delete(checks, delegationSeen)
	return checks
}

// sameStates reports whether two sets of checks have the same states. The values found instead of records may differ.
func sameStates(a, b map[string]check) bool {
	return maps.EqualFunc(a, b, func(a, b check) bool { return a.Status == b.Status && a.Since == b.Since })
}

// setLookUp sets the fields of a record that say what the last look-up found.
func (r *Record) setLookUp(c check) {
	r.Found, r.Unanswered = c.Found, c.Unanswered
	if at := cmp.Or(c.Changed, c.Since); at != 0 {
		r.ChangedAt = time.UnixMicro(at)
	}
	if c.Since != 0 && (c.Status == Pending || c.Status == TemporaryFailure) {
		r.Until = time.UnixMicro(c.Since).Add(patience)
	}
}

// Advice says what the domain's owner must do so that the record is verified, or "" if nothing is to be done.
func (r *Record) Advice() string {
	if r.Status == Verified {
		return ""
	}
	wanted := r.Value
	if r.Type == "MX" {
		wanted = fmt.Sprintf("%d %s", r.Priority, r.Value)
	}
	values := strings.Split(r.Found, "\n")
	switch {
	case r.Servers != "":
		return serversProblem(r.Servers)
	case r.Hidden:
		return "This record cannot be seen while the domain is delegated to this installation. Add it at your DNS " +
			"provider, and then remove the NS records of the domain."
	case r.Found == "" && r.Unanswered:
		return "The name servers of this domain do not answer. Check that they work."
	case r.Found == "" && r.Status == NotStarted:
		return "Add this record at your DNS provider."
	case r.Found == "":
		return "Add this record at your DNS provider. Its whole name is " + r.FQDN + ". Some providers add the domain to " +
			"the name by themselves, and then it stands there twice."
	case strings.EqualFold(r.Found, wanted):
		return "The record is right, but another team's domain uses the name " + r.FQDN + "."
	}
	switch {
	case r.Key == "caa":
		return "Add this record, so that a certificate can be issued for the links of this domain."
	case r.Type == "CNAME":
		return "Replace " + r.Found + " with " + r.Value + "."
	case r.Key == "receiving" && slices.ContainsFunc(values, func(v string) bool { return isHost(v, r.Value) }):
		return "Give this host a lower number than the other hosts, because mail goes to the lowest number first."
	case r.Key == "receiving":
		return "Delete the other MX records, or receive at a subdomain. Mail goes to the host with the lowest number."
	case r.Type == "MX":
		return "Add this MX record at the same name."
	case r.Kind == "SPF" && len(values) > 1:
		return "Keep a single record that begins with v=spf1, and add " + dnstext.Include(r.Value) + " to it."
	case r.Type == "TXT" && dnstext.HasBackslash(r.Found):
		return "The value contains backslashes, which are part of no such record. Enter it again without backslashes."
	case r.Kind == "SPF":
		return "Add " + dnstext.Include(r.Value) + " to the record, before its last term."
	case strings.HasPrefix(dnstext.Key(r.Value), dnstext.Key(r.Found)) && dnstext.Key(r.Found) != "":
		return "The value was cut off. Enter the whole value; some providers need it in two quoted parts."
	}
	return "Replace the value that was found with this one."
}

// serversProblem says why a delegated domain is not verified yet.
func serversProblem(servers string) string {
	return "The delegation was found, but this installation's name servers do not all answer for the domain yet (" +
		strings.ReplaceAll(servers, "\n", "; ") + "). The domain is verified when they do. If this lasts longer than " +
		"some minutes, the operator must look at the name servers."
}

func isHost(mx, host string) bool {
	_, found, _ := strings.Cut(mx, " ")
	return strings.EqualFold(found, host)
}
