package explain

import (
	"fmt"

	"github.com/postrider/postrider/internal/sending/evidence"
)

// AttemptDNS describes the mail hosts of an attempt's destination.
type AttemptDNS struct {
	Says     string        `json:"says"`
	Implicit bool          `json:"implicit_mx" doc:"Whether the domain has no MX records, so that its own addresses were used."`
	Kept     float64       `json:"valid_for_ms" doc:"How much longer the MX records were valid in the cache of this installation; 0 if not recorded."`
	Hosts    []AttemptHost `json:"hosts" doc:"The hosts in order of preference, at most 8."`
}

// AttemptHost is a mail host of an attempt's destination.
type AttemptHost struct {
	Name      string          `json:"name"`
	Pref      int             `json:"preference"`
	Addresses []AttemptTarget `json:"addresses" doc:"The addresses that were candidates for this attempt."`
	LeftOut   string          `json:"left_out" enum:",this_server,after_this_server,no_address,look_up_failed,not_public,tlsa_unknown,not_in_policy" doc:"Why the host was left out; empty if it was not."`
	Says      string          `json:"says" doc:"Why the host was left out, in one sentence; empty if it was not."`
}

// AttemptTarget is an address of a mail host.
type AttemptTarget struct {
	IP    string `json:"ip"`
	Tried bool   `json:"tried" doc:"Whether this attempt tried the address. An address that had failed a short time before counts as tried."`
}

// AttemptPTR describes the reverse DNS of an attempt's source address.
type AttemptPTR struct {
	State string `json:"state" enum:"confirmed,elsewhere,missing,not_recorded"`
	Name  string `json:"name" doc:"The name in the PTR record; empty if there is none, or if it was not recorded."`
	Says  string `json:"says"`
}

// skips explains why a host was left out.
var skips = map[evidence.Skip]struct{ key, says string }{
	evidence.IsOurs:       {"this_server", "The host is this installation, which does not take mail for the domain."},
	evidence.AfterOurs:    {"after_this_server", "The host would pass the email back to this installation."},
	evidence.NoAddress:    {"no_address", "The host has no address records."},
	evidence.LookUpFailed: {"look_up_failed", "The addresses of the host could not be looked up."},
	evidence.NotPublic:    {"not_public", "The host has no public address."},
	evidence.TLSAUnknown: {"tlsa_unknown", "The TLSA records of the host (DANE) could not be looked up. Without them, " +
		"no mail may be sent to the host."},
	evidence.NotInPolicy: {"not_in_policy", "The MTA-STS policy of the domain does not name the host."},
}

// dns returns the mail hosts of the attempt, or nil if they were not recorded.
func (t *Try) dns() *AttemptDNS {
	e := t.Evidence
	if e == nil || e.Trouble == nil || len(e.Trouble.Route.Hosts) == 0 {
		return nil
	}
	r := e.Trouble.Route
	d := &AttemptDNS{Implicit: r.Implicit, Kept: inMS(r.Kept), Hosts: []AttemptHost{}}
	for _, h := range r.Hosts {
		x := AttemptHost{Name: h.Name, Pref: int(h.Pref), Addresses: []AttemptTarget{}, LeftOut: skips[h.Skipped].key,
			Says: skips[h.Skipped].says}
		for _, a := range h.Addrs {
			x.Addresses = append(x.Addresses, AttemptTarget{a.IP.String(), a.Tried})
		}
		d.Hosts = append(d.Hosts, x)
	}
	if d.Says = "The domain has " + counted(len(d.Hosts), "MX host") + "."; r.Implicit {
		d.Says = "The domain has no MX records, so its own addresses were used."
	}
	return d
}

// ptr describes the reverse DNS of the attempt's source address.
func (t *Try) ptr() AttemptPTR {
	var p evidence.PTR
	if e := t.Evidence; e != nil && e.Trouble != nil {
		p = e.Trouble.PTR
	}
	switch p.State {
	case evidence.PTRMissing:
		return AttemptPTR{"missing", "", "The source address has no PTR record."}
	case evidence.PTRConfirmed:
		return AttemptPTR{"confirmed", p.Name, fmt.Sprintf("The PTR record of the source address names %s, which has "+
			"this address.", p.Name)}
	case evidence.PTRElsewhere:
		return AttemptPTR{"elsewhere", p.Name, fmt.Sprintf("The PTR record of the source address names %s, which does "+
			"not have this address.", p.Name)}
	}
	return AttemptPTR{"not_recorded", "", "The reverse DNS of the source address is not recorded."}
}
