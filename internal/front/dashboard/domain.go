package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

var domainPage = pageOf("domain.html", "mta_sts.html", "domain_keys.html", "advised.html")

// domainView is the content of the page of one domain.
type domainView struct {
	base
	Domain   domains.Domain
	State    string
	Sentence string // what works
	Records  []recordView
	Good     int           // verified records that the domain needs
	Needed   int           // records that the domain needs
	Wrong    int           // records with another value than the wanted one
	Waiting  int           // records that the domain needs and that are not verified
	Looks    time.Duration // until the next look-up
	Hosted   bool          // whether this installation's name servers have the domain's DKIM records
	Checking bool          // whether records are looked up frequently
	Trusted  bool          // whether records count as found without a look-up, as in development
	Zone     string        // the records as lines of a zone file
	Claim    *claimView
	Setup    *setupView // nil for claims
	Chosen   *web.Form  // the form for chosen records, if it was refused

	Settings bool // whether the tab with the settings is shown
	Form     *web.Form
	Ticks    []tick
	Inactive string // why nothing is tracked although tracking is on

	MTASTS        *mtaSTSView // the domain's policy, in the tab with the settings; nil if it can have none
	PolicyRefused string      // why a change of the policy was refused

	Deleting bool // whether the form for deleting is shown in the page
	Keys     int  // how many keys may send only from this domain
	Confirm  string
	Refused  string // why it was not deleted
	UseError string // why the chosen uses were refused; else ""
}

// recordView is a DNS record with its state.
type recordView struct {
	Purpose, Type, FQDN, Value, Short string
	Optional                          bool
	State                             string
	Since                             time.Time // when the state began; zero if that is unknown
	Left                              string    // how long until the record fails
	Found                             []foundValue
	Advice                            string
}

// foundValue is a value that was found instead of the wanted one, in words. Wrong words are not part of the wanted one.
type foundValue []foundWord

type foundWord struct {
	Text  string
	Wrong bool
}

// claimView is a claim to another team's domain.
type claimView struct {
	domains.Claim
	Value    string
	Sentence string
	Open     bool
}

func (c *call) domain() error { return c.domainPage(http.StatusOK, domainView{}) }

func (c *call) domainSettings() error { return c.domainPage(http.StatusOK, domainView{Settings: true}) }

// domainPage shows a domain. The data may contain a form that was refused.
func (c *call) domainPage(status int, data domainView) error {
	d, err := c.Domains.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	data.base, data.Domain, data.State = c.base(), d, shownStatus(&d)
	data.Deleting = data.Deleting || c.r.URL.Query().Has("delete")
	now := c.Now()
	records := c.Domains.Records(&d)
	if !d.Placeholder && !data.Settings {
		if data.Setup, err = c.setupOf(d.ID); err != nil {
			return err
		}
		data.Setup.Chosen = cmp.Or(data.Chosen, data.Setup.Chosen)
	}
	for i := range records {
		r := &records[i]
		v := viewOf(r, &d, now)
		if v.State == "wrong_value" {
			data.Wrong++
		}
		if !v.Optional {
			data.Needed++
			if r.Status == domains.Verified {
				data.Good++
			} else {
				data.Waiting++
			}
		}
		if r.Found == "" && r.Status != domains.Verified && !r.Unanswered {
			v.Advice = "" // the page says once what to do about all records that are not found
		}
		data.Checking = data.Checking || r.Status == domains.Pending
		data.Records = append(data.Records, v)
	}
	data.Zone, data.Hosted = zoneFile(records), !d.PublishesKeys()
	data.Looks = d.LooksAgainAfter(now)
	data.Trusted = c.Domains.TrustsRecords()
	data.Sentence = sentence(&d, records, now)
	data.Inactive = inactive[c.Domains.TrackingInactive(&d)]
	if d.Placeholder {
		claim, err := c.Domains.GetClaim(c.ctx(), c.team.TeamID, d.ID)
		if err != nil {
			return err
		}
		data.Claim = claimOf(claim)
		data.Sentence, data.Checking = data.Claim.Sentence, data.Claim.Open
	}
	if data.Settings && data.Form == nil {
		data.Form, data.Ticks = settingsForm(&d)
	}
	if data.Settings {
		if data.MTASTS, err = c.mtaSTS(&d, data.PolicyRefused); err != nil {
			return err
		}
	}
	if c.actor.Scopes.Has(teams.KeysRead) {
		keys, _, err := c.Teams.ListKeys(c.ctx(), c.team.TeamID, page.Page{Limit: choicesShown})
		if err != nil {
			return err
		}
		for _, k := range keys {
			if k.DomainID == d.ID {
				data.Keys++
			}
		}
	}
	return c.show(status, domainPage, data, web.Crumbs("Domains", "/app/domains", d.Name),
		web.Live("/app/live?domain="+d.ID))
}

// purposes names records by their internal names.
var purposes = map[string]string{"mx": "Return path", "spf": "SPF", "dkim": "DKIM", "dkim-ed25519": "DKIM, Ed25519",
	"receiving": "Receiving", "tracking": "Tracking", "caa": "Certificates", "cname-rp": "Return path",
	"cname-s1": "DKIM, first name", "cname-s2": "DKIM, second name", "ns": "Delegation"}

// optional are the records without which the domain works.
var optional = map[string]bool{"dkim-ed25519": true, "tracking": true, "caa": true}

// shortValue is the number of characters from which a value is cut in the middle.
const shortValue = 120

// shorten cuts a long value in the middle.
func shorten(value string) string {
	if len(value) <= shortValue {
		return value
	}
	return value[:shortValue-32] + "…" + value[len(value)-16:]
}

func viewOf(r *domains.Record, d *domains.Domain, now time.Time) recordView {
	v := recordView{Purpose: purposes[r.Key], Type: r.Type, FQDN: r.FQDN, Value: r.Value, Short: shorten(r.Value),
		Optional: optional[r.Key], State: recordState(r, d), Since: r.ChangedAt, Advice: r.Advice()}
	if r.Priority != 0 {
		v.Type = fmt.Sprintf("%s, priority %d", r.Type, r.Priority)
	}
	if !r.Until.IsZero() {
		v.Left = left(r.Until.Sub(now))
	}
	if r.Found == "" || r.Status == domains.Verified {
		return v
	}
	wanted := map[string]bool{}
	for _, word := range strings.Fields(r.Value) {
		wanted[strings.ToLower(word)] = true
	}
	if r.Type == "MX" {
		wanted[fmt.Sprint(r.Priority)] = true
	}
	for value := range strings.SplitSeq(r.Found, "\n") {
		var words foundValue
		for _, word := range strings.Fields(value) {
			words = append(words, foundWord{word, !wanted[strings.ToLower(word)]})
		}
		v.Found = append(v.Found, words)
	}
	return v
}

// recordState returns how the state of a record is shown. It is more precise than the state in the API.
func recordState(r *domains.Record, d *domains.Domain) string {
	looked := !d.CheckedAt.IsZero() && !d.CheckedAt.Before(d.VerifySince)
	switch {
	case r.Status == domains.Verified, r.Status == domains.NotStarted:
		return string(r.Status)
	case r.Status == domains.Pending && !looked:
		return "looking"
	case r.Hidden:
		return "hidden"
	case r.Unanswered:
		return "no_answer"
	case r.Found != "":
		return "wrong_value"
	case r.Status == domains.Failed:
		return "record_failed"
	case r.Status == domains.TemporaryFailure:
		return "missing"
	}
	return "not_found"
}

// left says how much of a period remains.
func left(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < time.Hour:
		return fmt.Sprintf("%d min left", int(d.Minutes())+1)
	}
	return fmt.Sprintf("%d h left", int(d.Hours()))
}

// sentence says what works, and until when.
func sentence(d *domains.Domain, records []domains.Record, now time.Time) string {
	if d.UsesFormerSetup() {
		return "Mail goes on with the former set-up until the records below are found."
	}
	if d.Sending && d.Receiving && d.MaySend() && d.MayReceive() {
		s, r := missing(records, now, d.SendingKeys()...), missing(records, now, d.ReceivingKeys()...)
		if s == "" && r == "" {
			return "Sending and receiving work."
		}
	}
	var all []string
	if d.Sending {
		all = append(all, capability("Sending", d.MaySend(), records, now, d.SendingKeys()...))
	}
	if d.Receiving {
		all = append(all, capability("Receiving", d.MayReceive(), records, now, d.ReceivingKeys()...))
	}
	return strings.Join(all, " ")
}

// capability says whether a capability works. The keys name the records that it needs.
func capability(name string, works bool, records []domains.Record, now time.Time, keys ...string) string {
	if works {
		if text := missing(records, now, keys...); text != "" {
			return name + " works, but stops " + text + "."
		}
		return name + " works."
	}
	var failed []string
	waiting := 0
	for _, r := range records {
		for _, k := range keys {
			if r.Key == k && r.Status == domains.Failed {
				failed = append(failed, purposes[k])
			}
			if r.Key == k && r.Status != domains.Verified {
				waiting++
			}
		}
	}
	if len(failed) > 0 {
		return fmt.Sprintf("%s does not work: the record for %s was not found within 72 hours.", name, and(failed))
	}
	if waiting == 1 {
		return name + " waits for one record."
	}
	return fmt.Sprintf("%s waits for %d records.", name, waiting)
}

// missing says which records must come back, and in what time, or returns "" if all are there.
func missing(records []domains.Record, now time.Time, keys ...string) string {
	var names []string
	var until time.Time
	for _, r := range records {
		for _, k := range keys {
			if r.Key == k && r.Status == domains.TemporaryFailure {
				names = append(names, purposes[k])
				if until.IsZero() || !r.Until.IsZero() && r.Until.Before(until) {
					until = r.Until
				}
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	when := "soon"
	if l, ok := strings.CutSuffix(left(until.Sub(now)), " left"); ok {
		when = "in " + l
	}
	return when + " unless " + and(names) + " is correct again"
}

// and joins words as a sentence does.
func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// zoneFile returns records as lines of a zone file (RFC 1035 section 5.1). Strings have at most 255 bytes.
func zoneFile(records []domains.Record) string {
	var b strings.Builder
	for _, r := range records {
		value := r.Value
		switch r.Type {
		case "MX":
			value = fmt.Sprintf("%d %s.", r.Priority, value)
		case "CNAME", "NS":
			value += "."
		case "TXT":
			parts := ""
			for ; len(value) > 255; value = value[255:] {
				parts += `"` + value[:255] + `" `
			}
			value = parts + `"` + value + `"`
		}
		fmt.Fprintf(&b, "%s. IN %s %s\n", r.FQDN, r.Type, value)
	}
	return b.String()
}

// inactive says why nothing is tracked although tracking is on.
var inactive = map[string]string{
	domains.NoTrackingSubdomain:       "Nothing is tracked, because the domain has no tracking subdomain. Set one below.",
	domains.TrackingRecordNotVerified: "Nothing is tracked until the record of the tracking subdomain is verified.",
	domains.TrackingDomainNotVerified: "Nothing is tracked until the domain is verified.",
}

// claimOf returns how a claim is shown.
func claimOf(c domains.Claim) *claimView {
	v := &claimView{Claim: c, Value: c.RecordValue()}
	switch c.Status {
	case domains.ClaimPending:
		v.Open = true
		v.Sentence = "Another team has this domain. It becomes yours after the record below is found."
	case domains.ClaimVerified:
		v.Open = true
		v.Sentence = "The record was found. The domain is being transferred."
	case domains.ClaimBlocked:
		v.Open = true
		v.Sentence = "The record was found, but the transfer waits: " + blocked[c.BlockedReason] +
			". Leave the record in place."
	case domains.ClaimExpired:
		v.Sentence = "The record was not found in time. Delete this claim and add the domain again."
	case domains.ClaimFailed:
		v.Sentence = "The claim failed. " + c.FailureReason
	default:
		v.Sentence = "This claim has ended."
	}
	return v
}

// blocked says why the transfer of a claimed domain waits.
var blocked = map[string]string{
	"grace_period":             "the other team still uses the domain and has three days to object",
	"recent_owner_activity":    "the other team has sent from the domain in the last 24 hours",
	"pending_scheduled_emails": "the other team has scheduled emails from the domain",
}
