package dashboard

import (
	"slices"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/preflight"
)

// checkedMost is the largest size of the bodies, in bytes, of an email that is checked each time its page is opened.
const checkedMost = 256 << 10

// checkCost is the memory that checks take for each byte of the bodies.
const checkCost = 3

// sentChecks is what the page shows of the checks of an email. Their results are not stored, so the page runs them as
// of now. Opening the page sends no DNS queries; a link asks for them.
type sentChecks struct {
	Passed   int
	Findings []sentCheck // problems, warnings and hints, the most serious one first
	Run      string      // the address of the page with all checks, or "" if all have run
	Says     string      // what Run adds
	Missing  string      // says why nothing was checked; else ""
}

// sentCheck is a check that did not pass.
type sentCheck struct {
	State, Message string
	Details        []string
}

// sentCheckStates are the states that the page shows for the levels of results, the most serious one first.
var sentCheckStates = []struct {
	level preflight.Level
	state string
}{{preflight.Problem, "failed"}, {preflight.Warning, "warning"}, {preflight.Info, "hint"}}

// lookedUp are the checks whose results need the DNS.
var lookedUp = map[string]bool{"spf": true, "dmarc": true, "alignment": true}

// check runs the checks of an email whose bodies have the given size.
func (c *call) check(data *emailView, e *emails.Email, size int64) error {
	v := &data.Checks
	all := c.r.URL.Query().Get("checks") == "all"
	large := size > checkedMost
	if !all && (large || c.Checker.DNS != nil) {
		v.Run, v.Says = web.With(c.r.URL, "checks", "all")+"#checks", "Look up SPF and DMARC too"
	}
	switch {
	case data.Forwarded:
		v.Run, v.Missing = "", "Another author wrote this email, so the checks of your own emails do not apply to it."
		return nil
	case e.HTML == nil && e.Text == nil && !e.Submitted():
		v.Run, v.Missing = "", "The content is not kept any more, so it cannot be checked."
		return nil
	case large && !all:
		v.Says = "Run the checks"
		return nil
	}
	if large {
		release, err := c.ReserveMemory(c.ctx(), c.team.TeamID, checkCost*size)
		if err != nil {
			return err
		}
		defer release()
	}
	p, err := c.Emails.PreviewSent(c.ctx(), c.team.TeamID, e.ID)
	if err != nil {
		return err
	}
	checker := c.Checker
	if !all {
		checker.DNS = nil
	}
	results, err := checker.Check(c.ctx(), c.actor, p)
	if err != nil {
		return err
	}
	results = slices.DeleteFunc(results, func(r preflight.Result) bool { return lookedUp[r.ID] && !all })
	for _, r := range results {
		if r.Level == preflight.Pass {
			v.Passed++
		}
	}
	for _, s := range sentCheckStates {
		for _, r := range results {
			if r.Level == s.level {
				v.Findings = append(v.Findings, sentCheck{s.state, web.InWords("", r.Message, nil), r.Details})
			}
		}
	}
	return nil
}
