package dashboard

import (
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/sending/domains"
)

// setupView is the content of the part about the set-up of a domain.
type setupView struct {
	Choices []setupChoice
	Former  string // label of the former set-up, while it is in use

	Delegated bool // whether the former set-up is the delegation, which hides the records of the others
	Advised   []advisedView
	Chosen    *web.Form // the DMARC and BIMI records that the owner chooses
	Advice    *domains.Advice
	Problems  []problemView
	Pending   bool          // whether the advice is being made or renewed
	Keys      []dkimKeyView // DKIM keys; empty if nothing was signed with them
	KeysText  string        // what a rotation means for the owner of the domain
}

type setupChoice struct {
	domains.SetupChoice
	Label, Text string
}

// advisedView is an optional record of a domain.
type advisedView struct {
	domains.Advised
	Purpose, Shown string
	Found          []string
}

// problemView is a problem with the DNS records.
type problemView struct {
	domains.Problem
	Values []string
}

// setupLabels and setupTexts are the labels and descriptions of the set-ups.
var (
	setupLabels = map[string]string{domains.SetupRecords: "Single records", domains.SetupCNAME: "Three CNAME records",
		domains.SetupDelegation: "Delegation"}
	setupTexts = map[string]string{
		domains.SetupRecords: "You add each record. Each new DKIM key needs a new record.",
		domains.SetupCNAME: "Three of your names point to names of this installation. DKIM keys are replaced " +
			"automatically. Receiving and tracking need further records.",
		domains.SetupDelegation: "You add one set of NS records. This installation then publishes all records of the " +
			"domain, and replaces its DKIM keys automatically.",
	}
	advisedPurposes = map[string]string{domains.PurposeDMARC: "DMARC", domains.PurposeTLSReports: "TLS reports",
		domains.PurposeMTASTS: "MTA-STS", domains.PurposeBIMI: "BIMI"}
)

// advisedStates maps the states of advised records to states of package web.
var advisedStates = map[domains.AdvisedState]string{domains.AdvisedUnknown: "not_started",
	domains.AdvisedFound: "verified", domains.AdvisedMissing: "not_found", domains.AdvisedDifferent: "wrong_value"}

// setupOf returns the set-up of a domain of the team.
func (c *call) setupOf(domainID string) (*setupView, error) {
	s, err := c.Domains.GetSetup(c.ctx(), c.team.TeamID, domainID)
	if err != nil {
		return nil, err
	}
	v := &setupView{Former: setupLabels[s.Domain.FormerSetup], Advice: s.Advice, Pending: s.Pending,
		Delegated: s.Domain.FormerSetup == domains.SetupDelegation, Chosen: chosenForm(&s.Domain)}
	for _, choice := range s.Choices {
		choice.Reason = web.InWords("", choice.Reason, nil)
		v.Choices = append(v.Choices, setupChoice{choice, setupLabels[choice.Setup], setupTexts[choice.Setup]})
	}
	v.Advised = advisedViews(s.Advised)
	for _, p := range s.Problems {
		v.Problems = append(v.Problems, problemView{p, foundLines(p.Found)})
	}
	v.Keys, v.KeysText = dkimKeysOf(&s)
	return v, nil
}

func advisedViews(records []domains.Advised) (all []advisedView) {
	for _, a := range records {
		all = append(all, advisedView{a, advisedPurposes[a.AdvisedRecord.Purpose], advisedStates[a.State],
			foundLines(a.Found)})
	}
	return all
}

func foundLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// chosenForm returns the form with the DMARC and BIMI records that the owner of a domain has chosen.
func chosenForm(d *domains.Domain) *web.Form {
	return &web.Form{Fields: []*web.Field{
		{Name: "dmarc", Label: "DMARC record", Value: d.DMARCRecord, Optional: true, Max: 450, Autocomplete: "off",
			Hint: "For example v=DMARC1; p=quarantine. The address for reports is added. Leave it empty for the default."},
		{Name: "bimi", Label: "BIMI record", Value: d.BIMIRecord, Optional: true, Max: 1000, Autocomplete: "off",
			Hint: "For example v=BIMI1; l=https://example.com/logo.svg. Leave it empty for no record."}}}
}

// changeSetup changes the fields of the set-up that the form contains.
func (c *call) changeSetup() error {
	var change domains.SetupChange
	for name, field := range map[string]**string{"setup": &change.Setup, "dmarc": &change.DMARC, "bimi": &change.BIMI} {
		if c.form.Has(name) {
			*field = new(c.form.Get(name))
		}
	}
	err := c.Domains.ChangeSetup(c.ctx(), c.team.TeamID, c.id(), change)
	if field := fieldOf(err); field == "dmarc" || field == "bimi" {
		d, notFound := c.Domains.Get(c.ctx(), c.team.TeamID, c.id())
		if notFound != nil {
			return notFound
		}
		form := chosenForm(&d).Fill(c.form)
		status, ours := c.refuse(form, err, "The records were not saved.")
		if ours != nil {
			return ours
		}
		return c.domainPage(status, domainView{Chosen: form})
	}
	if text, ok := refused(err); ok {
		return c.domainPage(http.StatusUnprocessableEntity, domainView{Refused: text})
	}
	if err != nil {
		return err
	}
	done := "Records saved. They are looked up now."
	if change.Setup != nil {
		done = "Set-up changed. The records are looked up now."
	}
	return c.redirect(domainPath(c.id()), done)
}
