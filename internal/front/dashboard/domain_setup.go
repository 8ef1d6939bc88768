package dashboard

import (
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/sending/domains"
)

// setupView is how the owner of a domain puts its records into the DNS.
type setupView struct {
	Choices  []setupChoice
	Former   string // label of the former set-up, while it is in use
	Advised  []advisedView
	Advice   *domains.Advice
	Problems []problemView
	Keys     []dkimKeyView // DKIM keys; empty if nothing was signed with them
	KeysText string        // what a rotation means for the owner of the domain
}

type setupChoice struct {
	domains.SetupChoice
	Label, Text string
}

// advisedView is a record that the domain can do without.
type advisedView struct {
	domains.Advised
	Purpose, Shown string
	Found          []string
}

// problemView is a mistake in the DNS.
type problemView struct {
	domains.Problem
	Values []string
}

// setupLabels and setupTexts say what the set-ups are.
var (
	setupLabels = map[string]string{domains.SetupRecords: "Single records", domains.SetupCNAME: "Three CNAME records",
		domains.SetupDelegation: "Delegation"}
	setupTexts = map[string]string{
		domains.SetupRecords: "You add each record. New DKIM keys need new records.",
		domains.SetupCNAME: "Your names lead to names of this installation. DKIM keys change without you. Receiving and " +
			"tracking need records of their own.",
		domains.SetupDelegation: "One set of NS records. This installation then has all records of the domain, and DKIM " +
			"keys change without you.",
	}
	advisedPurposes = map[string]string{domains.PurposeDMARC: "DMARC", domains.PurposeTLSReports: "TLS reports",
		domains.PurposeMTASTS: "MTA-STS", domains.PurposeBIMI: "BIMI"}
)

// advisedStates are the states of advised records as they are shown.
var advisedStates = map[domains.AdvisedState]string{domains.AdvisedUnknown: "not_started",
	domains.AdvisedFound: "verified", domains.AdvisedMissing: "not_found", domains.AdvisedDifferent: "wrong_value"}

// setupOf returns how the records of the team's domain are put into the DNS.
func (c *call) setupOf(domainID string) (*setupView, error) {
	s, err := c.Domains.GetSetup(c.ctx(), c.team.TeamID, domainID)
	if err != nil {
		return nil, err
	}
	v := &setupView{Former: setupLabels[s.Domain.FormerSetup], Advice: s.Advice}
	for _, choice := range s.Choices {
		v.Choices = append(v.Choices, setupChoice{choice, setupLabels[choice.Setup], setupTexts[choice.Setup]})
	}
	for _, a := range s.Advised {
		v.Advised = append(v.Advised, advisedView{a, advisedPurposes[a.AdvisedRecord.Purpose], advisedStates[a.State],
			foundLines(a.Found)})
	}
	if s.Advice != nil {
		for _, p := range s.Advice.Problems {
			v.Problems = append(v.Problems, problemView{p, foundLines(p.Found)})
		}
	}
	v.Keys, v.KeysText = dkimKeysOf(&s)
	return v, nil
}

func foundLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (c *call) changeSetup() error {
	err := c.Domains.ChangeSetup(c.ctx(), c.team.TeamID, c.id(), c.form.Get("setup"))
	if text, ok := refused(err); ok {
		return c.domainPage(http.StatusUnprocessableEntity, domainView{Refused: text})
	}
	if err != nil {
		return err
	}
	return c.redirect(domainPath(c.id()), "Set-up changed. The records are looked up now.")
}
