package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/explain"
)

var emailPage = pageOf("email.html", "fields.html", "beside.html")

// emailView is the content of the page of one email.
type emailView struct {
	base
	Email      emails.Email
	Recipients []recipientView
	Counts     []badgeView
	Chosen     explain.RecipientAnswer
	HasChosen  bool
	Rows       []intervalRow
	Sums       []sumView
	Total      time.Duration
	Attempts   []attemptView
	Last       *explain.AttemptAnswer // the newest attempt of the chosen recipient, or nil
	Later      []explain.LaterEvent
	Missing    []string // what was not recorded
	Act        string
	SentBy     string
	DomainName string
	Files      []emails.Attachment
	Content    contentView
	Checks     sentChecks
	Forwarded  bool // whether a forwarding rule sent the email
	listLinks
	MayStop bool
	Shared  string // a link that was just created
	Problem string
	Resume  string // a time that could not be read
	Outbox  string // address of the copy in the outbox, or ""
	Meaning string // what the reply means, unless the verdict says it; else ""
	Reply   string // what the host has answered to the last attempt, word for word; "" if there is none
}

// recipientView is a recipient with the steps of the delivery.
type recipientView struct {
	Address string
	State   string
	Href    string
	Chosen  bool
	Steps   []stepView
	More    int // how many later steps there are
}

// stepView is an event of a recipient's timeline, or several of one kind that follow each other.
type stepView struct {
	State, Label string
	At           time.Time // of the first one
	Times        int
	SameDay      bool // whether the step before was on the same day, so the time of day is enough
}

// badgeView is a badge with a number of recipients.
type badgeView struct {
	State, Label string
}

// intervalRow is a row of the waterfall: what happened and to whom the time belongs. Start and Width are percentages of
// the whole time.
type intervalRow struct {
	Says, Who, Class, Start, Width string
	Length                         time.Duration
}

// sumView is the length of all intervals with one cause.
type sumView struct {
	Label, Class string
	Length       time.Duration
}

// attemptView is an attempt with its transcript in lines.
type attemptView struct {
	explain.AttemptAnswer
	Length time.Duration
	Open   bool
	Lines  []line
}

// line is a line of a transcript. Class marks the reply that decided.
type line struct{ Class, Text string }

// stepsShown is the maximum number of steps that the page shows for a recipient. An email can have thousands of opens
// and clicks.
const stepsShown = 12

func (c *call) email() error { return c.emailPage(http.StatusOK, "", "") }

// emailPage shows an email. The problem and the time are those of a form that was refused. A link is one that was just
// made for sharing the email.
func (c *call) emailPage(status int, problem, typed string, shared ...string) error {
	e, size, err := c.Emails.GetWithin(c.ctx(), c.team.TeamID, c.id(), bodiesShown)
	if err != nil {
		return err
	}
	if c.r.Method == http.MethodPost {
		c.standAt(emailPath(e.ID), "")
	}
	data := emailView{base: c.base(), Email: e, Problem: problem, Resume: typed,
		Forwarded: e.IsForwarded(),
		MayStop:   e.LastEvent == emails.Scheduled && c.actor.Scopes.Has(teams.EmailsWrite)}
	data.listLinks = c.linksOf("/app/emails", emailPath(e.ID), emailFilters)
	if len(shared) > 0 {
		data.Shared = shared[0]
	}
	if data.Files, _, err = c.Emails.Attachments(c.ctx(), c.team.TeamID, e.ID, page.Page{Limit: 100}); err != nil {
		return err
	}
	answer, err := c.Explain(c.ctx(), c.actor, e.ID)
	if err != nil {
		return err
	}
	data.choose(c.r.URL, &answer)
	for i := range answer.Recipients {
		data.Recipients = append(data.Recipients, c.recipientView(&data, &answer, i))
	}
	data.Counts, data.Outbox = counts(answer.Recipients), c.outboxCopy(&answer)
	for _, add := range []func() error{func() error { return c.names(&data) },
		func() error { return c.content(&data, &e, size) }, func() error { return c.check(&data, &e, size) }} {
		if err := add(); err != nil {
			return err
		}
	}
	title := visible.Show(e.Subject)
	if title == "" {
		title = "No subject"
	}
	return c.show(status, emailPage, data, web.Crumbs("Emails", data.Back, title), web.Live("/app/live?email="+e.ID))
}

// recipientView returns the recipient of an answer with its steps.
func (c *call) recipientView(data *emailView, a *explain.Answer, i int) recipientView {
	to := &a.Recipients[i]
	v := recipientView{Address: to.Address, State: shownState(to), Href: web.With(c.r.URL, "recipient", to.Address),
		Chosen: data.HasChosen && to.Address == data.Chosen.Address}
	for _, x := range a.Timeline {
		if x.Recipient != "" && !strings.EqualFold(x.Recipient, to.Address) {
			continue
		}
		if x.Type == "delivered" && wasCaptured(to) {
			x.Type = capturedState
		}
		if n := len(v.Steps); n > 0 && v.Steps[n-1].State == x.Type {
			v.Steps[n-1].Times++
		} else if n < stepsShown {
			same := n > 0 && v.Steps[n-1].At.UTC().Format(time.DateOnly) == x.At.UTC().Format(time.DateOnly)
			v.Steps = append(v.Steps, stepView{x.Type, stepLabel(x.Type), x.At, 1, same})
		} else {
			v.More++
		}
	}
	return v
}

// capturedState is shown in place of delivered for an email that the outbox has captured.
const capturedState = "captured"

// wasCaptured reports whether the outbox has captured the email for a recipient, so that no mail server has it.
func wasCaptured(r *explain.RecipientAnswer) bool {
	return r.Meaning != nil && r.Meaning.Class == explain.Captured
}

// shownState returns the state of a recipient as the pages show it.
func shownState(r *explain.RecipientAnswer) string {
	if r.State == string(emails.Delivered) && wasCaptured(r) {
		return capturedState
	}
	return r.State
}

// outboxCopy returns the address of the copy in the outbox of an email that was captured, or "". Only a node for
// development has the page.
func (c *call) outboxCopy(a *explain.Answer) string {
	if !c.Site.Development() {
		return ""
	}
	for i := range a.Attempts {
		if _, id, ok := strings.Cut(a.Attempts[i].Reply, " captured as "); ok && a.Attempts[i].Host == events.OutboxHost {
			return "/dev/outbox/" + url.PathEscape(strings.TrimSpace(id))
		}
	}
	return ""
}

// names adds the names of the domain and of the sender, if the visitor may see them.
func (c *call) names(data *emailView) (err error) {
	if data.Email.DomainID != "" && c.actor.Scopes.Has(teams.DomainsRead) {
		d, err := c.Domains.Get(c.ctx(), c.team.TeamID, data.Email.DomainID)
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
		data.DomainName = d.Name
	}
	if data.Forwarded {
		data.SentBy = "A forwarding rule"
		return nil
	}
	data.SentBy, err = c.sentBy(data.Email.Actor)
	return err
}

// sentBy says who sent an email.
func (c *call) sentBy(by teams.ActorRef) (string, error) {
	switch {
	case by.Kind == teams.KeyActor && c.actor.Scopes.Has(teams.KeysRead):
		k, err := c.Teams.GetKey(c.ctx(), c.team.TeamID, by.ID)
		if fault.KindOf(err) == fault.NotFound {
			return "a deleted API key", nil
		}
		return "API key " + k.Name, err
	case by.Kind == teams.UserActor && c.actor.Scopes.Has(teams.MembersRead):
		m, err := c.Members.Get(c.ctx(), c.team.TeamID, by.ID)
		if fault.KindOf(err) == fault.NotFound {
			return "a former member", nil
		}
		return m.Email, err
	case by.Kind == teams.KeyActor:
		return "an API key", nil
	case by.Kind == teams.UserActor:
		return "a member", nil
	case by.Kind == teams.GrantActor:
		return "a connected app", nil
	}
	return "Postrider", nil
}

// choose selects the recipient whose delivery the page explains: the one in the address, or the one with the worst
// outcome.
func (v *emailView) choose(u *url.URL, a *explain.Answer) {
	v.Later, v.Missing = a.Afterwards, a.NotRecorded
	if len(a.Recipients) == 0 {
		return
	}
	v.Chosen, v.HasChosen = a.Recipients[0], true
	for _, r := range a.Recipients {
		if r.Address == u.Query().Get("recipient") {
			v.Chosen = r
		}
	}
	v.Chosen.Verdict = web.InWords("", v.Chosen.Verdict, nil)
	v.Chosen.Steps = slices.Clone(v.Chosen.Steps)
	for i, step := range v.Chosen.Steps {
		v.Chosen.Steps[i] = web.InWords("", step, nil)
	}
	v.Act = actors[v.Chosen.Act]
	if m := v.Chosen.Meaning; m != nil && !strings.Contains(v.Chosen.Verdict, m.Says) &&
		m.Class != explain.Captured && m.Class != explain.Simulated {
		v.Meaning = m.Says
	}
	v.waterfall()
	for i := range a.Attempts {
		t := &a.Attempts[i]
		if !slices.Contains(t.Recipients, v.Chosen.Address) && len(t.Recipients) > 0 {
			continue
		}
		v.Last, v.Reply = t, t.Reply
		for _, x := range t.NotRecorded {
			if !slices.Contains(v.Missing, x) {
				v.Missing = append(v.Missing, x)
			}
		}
		v.Attempts = append(v.Attempts, attemptView{AttemptAnswer: *t, Length: millis(t.Duration), Lines: linesOf(t),
			Open: t.Outcome != "delivered"})
	}
	if v.Last != nil && v.Last.Outcome == "delivered" && v.Chosen.State == string(emails.Bounced) {
		v.Reply = cmp.Or(v.Chosen.Reply, v.Reply) // a bounce that came later decides, not the attempt
	}
	if n := len(v.Attempts); n > 3 { // only the newest ones are open
		for i := range v.Attempts[:n-1] {
			v.Attempts[i].Open = false
		}
	}
}

// actors says who must act.
var actors = map[explain.Actor]string{explain.Nobody: "Nobody", "you": "You", "domain_owner": "The owner of the domain",
	"recipient": "The recipient", "operator": "The operator of this installation",
	"provider": "The recipient's mail provider"}

// waterfall makes rows of the intervals of the chosen recipient, on one linear axis.
func (v *emailView) waterfall() {
	total := v.Chosen.TotalMS
	v.Total = millis(total)
	begun := 0.0
	for _, x := range v.Chosen.Intervals {
		row := intervalRow{Says: x.Says, Who: causes[string(x.Cause)].who, Class: causes[string(x.Cause)].class,
			Start: web.Percent(begun, total, 0), Width: web.Percent(x.Duration, total, .9), Length: millis(x.Duration)}
		if begun > .99*total {
			row.Start = "99%"
		}
		begun += x.Duration
		v.Rows = append(v.Rows, row)
	}
	for _, s := range v.Chosen.Sums {
		v.Sums = append(v.Sums, sumView{causes[string(s.Cause)].who, causes[string(s.Cause)].class, millis(s.Duration)})
	}
}

// causes says to whom or what the time of an interval belongs, and names the class of its bar.
var causes = map[string]struct{ who, class string }{
	"postrider": {"Postrider", "work"}, "limit": {"Our limits", "a"}, "schedule": {"Schedule", "wait"},
	"sender": {"Sender", "wait"}, "dns": {"DNS", "warn"}, "host": {"Recipient’s server", "warn"},
	"handover": {"Handover to the recipient’s server", "ok"}, "unknown": {"Not recorded", ""}}

// linesOf returns the lines of an attempt's transcript, and marks the reply that decided.
func linesOf(t *explain.AttemptAnswer) []line {
	var all []line
	for text := range strings.Lines(t.Transcript) {
		l := line{Text: strings.TrimRight(text, "\r\n")}
		if t.Reply != "" && strings.Contains(l.Text, t.Reply) {
			switch t.Outcome {
			case "bounced":
				l.Class = "e"
			case "delayed", "mixed":
				l.Class = "w"
			}
		}
		all = append(all, l)
	}
	return all
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// stepLabel returns the word for an event of the timeline.
func stepLabel(kind string) string {
	switch kind {
	case "queued":
		return "Accepted"
	case "sent":
		return "Sending"
	case "delivery_delayed":
		return "Deferred"
	}
	return ""
}

// counts returns a badge for each outcome, with its number of recipients if there are several.
func counts(all []explain.RecipientAnswer) []badgeView {
	n := map[string]int{}
	var order []string
	for i := range all {
		state := shownState(&all[i])
		if n[state] == 0 {
			order = append(order, state)
		}
		n[state]++
	}
	var badges []badgeView
	for _, s := range order {
		b := badgeView{State: s}
		if len(all) > 1 {
			b.Label = web.Label(s) + " for " + web.Number(n[s])
		}
		badges = append(badges, b)
	}
	return badges
}
