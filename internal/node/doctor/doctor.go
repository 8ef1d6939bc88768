// Package doctor judges whether an installation is set up correctly. Its checks are pure functions over given facts,
// such as DNS answers, conversations with servers, and the state of the machine. Package gather collects the facts.
//
// # Invariants
//
// A check passes only if the facts prove it. A question that the facts do not answer is "not checked", such as whether
// others can reach port 25. A finding that is a warning or a failure says what it means and what to do. The ids of
// findings are stable, because programs read them.
//
// # Out of scope
//
// The package uses no network, no database and no clock.
package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
)

// Status is the result of a check.
type Status string

// Results of checks, from the best to the worst. NotChecked is as good as OK, because nothing is known to be wrong.
const (
	OK         Status = "ok"
	NotChecked Status = "not_checked"
	Warning    Status = "warning" // something works less well than it should
	Failure    Status = "failure" // email is lost or refused, or will be soon
)

// Finding is the result of a check.
type Finding struct {
	ID      string `json:"id"`      // names the check, such as host.ptr
	Subject string `json:"subject"` // what was checked, such as an address or a domain
	Status  Status `json:"status"`
	Meaning string `json:"meaning"`          // what was found, and what follows from it
	Advice  string `json:"advice,omitempty"` // what to do; "" if nothing is to be done
}

// Report contains the findings about an installation.
type Report struct {
	Format    int            `json:"format"` // version of this structure
	Version   string         `json:"version"`
	Hostname  string         `json:"hostname"`
	CheckedAt time.Time      `json:"checked_at"`
	From      string         `json:"from,omitempty"` // the installation that looked from outside
	Status    Status         `json:"status"`         // the worst status of all findings, where not_checked counts as ok
	Counts    map[Status]int `json:"counts"`
	Findings  []Finding      `json:"findings"`
}

// Format is the version of the structure of reports. New members do not change it.
const Format = 1

// Facts are what the checks judge. A part that is nil was not collected.
type Facts struct {
	Now      time.Time
	Config   config.Config
	Local    []netip.Addr // addresses of this machine
	Host     Host
	Source   *Source // nil if no email leaves this machine directly
	Inbound  *Listener
	Submits  []Listener
	Mail     []MailHost // hosts that receive mail
	TLSA     []TLSA     // of hosts that receive mail
	Outgoing []Outgoing
	Relays   []Relay
	Resolver *Resolver
	SPF      []SPF
	DMARC    []DMARC
	Reports  []ReportHost
	// DMARCSending is nil if the installation sends no DMARC reports.
	DMARCSending *DMARCSending
	Notices      *Notices
	Domains      *Domains
	Web          *Web
	Requests     []CertificateRequest
	Clock        Clock
	Disks        []Disk
	Database     Database
	Key          Key
	Secrets      []SecretFile
	Backup       *Backup
	Blobs        *Blobs // nil if blobs are only in memory
	// Destinations is the file of destinations; nil if the settings name none.
	Destinations *Destinations
	Lists        []List
	// NameServers describes the servers of dns_names; nil without dns_zone.
	NameServers *NameServers
	Outside     *Outside // what another installation sees; nil if none was asked
}

// Check judges the facts. The findings are in a fixed order: by topic, and then as the facts are.
func Check(f Facts) []Finding {
	var all []Finding
	for _, check := range []func(*Facts) []Finding{checkHost, checkSource, checkOutside, checkInbound, checkPort25In,
		checkSubmission, checkMailHosts, checkTLSA, checkOutgoing, checkResolver, checkSPF, checkDMARC, checkReports,
		checkDMARCSending, checkNameServers, checkNotices, checkDomains, checkPolicies,
		checkWeb, checkRequests, checkDestinations, checkClock, checkDisks, checkBlobs, checkDatabase, checkKey,
		checkSecretFiles, checkBackup, checkLists} {
		all = append(all, check(&f)...)
	}
	return all
}

// NewReport judges the facts and counts the results.
func NewReport(f Facts, version string) Report {
	r := Report{Format: Format, Version: version, Hostname: f.Config.Hostname, CheckedAt: f.Now.UTC(), Findings: Check(f)}
	if f.Outside != nil {
		r.From = f.Outside.From
	}
	r.count()
	return r
}

// dataChecks begin the ids of checks of what a node stores. The others are about how it is reached and reaches others.
var dataChecks = []string{"blobs", "clock.database", "database.", "disk.", "secret_"}

// KeepData removes all findings that are not about what the installation stores.
func (r *Report) KeepData() {
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool {
		return !slices.ContainsFunc(dataChecks, func(check string) bool { return strings.HasPrefix(f.ID, check) })
	})
	r.count()
}

// count sets the status and the counts from the findings.
func (r *Report) count() {
	r.Status, r.Counts = OK, map[Status]int{OK: 0, NotChecked: 0, Warning: 0, Failure: 0}
	for _, x := range r.Findings {
		r.Counts[x.Status]++
	}
	switch {
	case r.Counts[Failure] > 0:
		r.Status = Failure
	case r.Counts[Warning] > 0:
		r.Status = Warning
	}
}

// Worst returns the findings with the given statuses, in the order of the statuses.
func (r *Report) Worst(statuses ...Status) (all []Finding) {
	for _, s := range statuses {
		for _, f := range r.Findings {
			if f.Status == s {
				all = append(all, f)
			}
		}
	}
	return all
}

// one builds the findings of a check. All findings of a check have the same id.
type one struct {
	id  string
	all []Finding
}

func (o *one) add(s Status, subject, meaning, advice string) {
	o.all = append(o.all, Finding{ID: o.id, Subject: subject, Status: s, Meaning: meaning, Advice: advice})
}

func (o *one) ok(subject, format string, args ...any) {
	o.add(OK, subject, fmt.Sprintf(format, args...), "")
}

// askOutside is the advice for checks that need a look from outside.
const askOutside = "Run `postrider doctor --from URL` with the address of another installation of Postrider, or try " +
	"it from another machine."

func has(f *Facts, role string) bool { return slices.Contains(f.Config.Roles, role) }

// joined lists values in a sentence.
func joined[T any](all []T) string {
	var texts []string
	for _, x := range all {
		texts = append(texts, fmt.Sprint(x))
	}
	return strings.Join(texts, ", ")
}

// sentence returns the text of an error with one full stop at its end.
func sentence(err error) string {
	return strings.TrimRight(strings.ReplaceAll(err.Error(), "\n", "; "), ".") + "."
}

// days formats the time until a date in days.
func days(d time.Duration) string {
	n := int(d / (24 * time.Hour))
	if n == 1 {
		return "1 day"
	}
	return fmt.Sprintf("%d days", n)
}

// ago formats an age.
func ago(d time.Duration) string {
	if d < 48*time.Hour {
		return cmp.Or(strings.TrimSuffix(d.Round(time.Minute).String(), "0s"), "0m")
	}
	return days(d)
}
