package domains

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/bimi"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// These are the maximum lengths of chosen records, in bytes. The name servers add an address for reports to the DMARC
// record.
const (
	dmarcRecordMax = 450
	bimiRecordMax  = 1000
)

// SetupChange changes a domain's set-up. Fields that are nil stay.
type SetupChange struct {
	Setup *string
	DMARC *string // text of the DMARC record; "" for the default
	BIMI  *string // text of the BIMI record; "" for none
}

// Check checks the change by itself, and replaces the texts by the forms in which they are stored. A correct change
// may still be refused for a domain.
func (c *SetupChange) Check() error {
	if c.Setup != nil && !slices.Contains(setups, *c.Setup) {
		return unknownSetup()
	}
	for _, r := range []struct {
		field string
		text  *string
		most  int
		check func(string) string
	}{{"dmarc", c.DMARC, dmarcRecordMax, checkDMARC}, {"bimi", c.BIMI, bimiRecordMax, checkBIMI}} {
		if r.text == nil {
			continue
		}
		text, err := checkRecord(r.field, *r.text, r.most, r.check)
		if err != nil {
			return err
		}
		*r.text = text
	}
	return nil
}

// ChangeSetup changes the set-up of the team's domain, and schedules a look-up of its records. The domain sends and
// receives with its former set-up as long as the records of that one are found.
func (s *Service) ChangeSetup(ctx context.Context, teamID, domainID string, c SetupChange) error {
	if c == (SetupChange{}) {
		return fault.New(fault.Missing, "setup", "The request must have at least one of the fields `setup`, `dmarc` and `bimi`.")
	}
	if err := c.Check(); err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		d, err := domainToChange(ctx, tx, teamID, domainID)
		if err != nil {
			return err
		}
		was := d
		if err := s.applySetup(ctx, tx, &d, c); err != nil {
			return err
		}
		if d.setup() == was.setup() && d.DMARCRecord == was.DMARCRecord && d.BIMIRecord == was.BIMIRecord {
			return nil
		}
		audit.Detail(ctx, setupDifferences(&was, &d))
		saveDomain(ctx, tx, &d)
		if _, err := s.registerNames(ctx, tx, &d); err != nil {
			return fmt.Errorf("register the names of %s: %w", d.Name, err)
		}
		s.invalidate(tx, d.ID)
		if err := s.checkNow(ctx, tx, &d); err != nil {
			return err
		}
		if err := s.sendingChanged(ctx, tx, &was, &d); err != nil {
			return err
		}
		return s.Recorder.Record(ctx, tx, events.Event{TeamID: teamID, Type: events.DomainUpdated, DomainID: d.ID, Data: d})
	})
}

// setupDifferences describes a change for the audit log. The longest field is the last one, because long details are
// truncated.
func setupDifferences(was, d *Domain) string {
	text := func(record, without string) string {
		if record == "" {
			return without
		}
		return `"` + record + `"` // which contains no quotation marks
	}
	var all audit.Differences
	all.Add("setup", was.setup(), d.setup())
	all.Add("dmarc", text(was.DMARCRecord, "default"), text(d.DMARCRecord, "default"))
	all.Add("bimi", text(was.BIMIRecord, "none"), text(d.BIMIRecord, "none"))
	return all.String()
}

// applySetup applies a change to d, which [SetupChange.Check] has checked.
func (s *Service) applySetup(ctx context.Context, tx *db.Tx, d *Domain, c SetupChange) error {
	if c.DMARC != nil {
		if err := mayChoose(d, "dmarc"); err != nil {
			return err
		}
		d.DMARCRecord = *c.DMARC
	}
	if c.BIMI != nil {
		if err := mayChoose(d, "bimi"); err != nil {
			return err
		}
		d.BIMIRecord = *c.BIMI
	}
	if c.Setup == nil {
		return nil
	}
	if err := s.checkSetup(d, *c.Setup); err != nil || *c.Setup == d.setup() {
		return err
	}
	if *c.Setup == SetupDelegation {
		reason, err := s.reasonBelow(ctx, tx.Reader, d)
		if err != nil {
			return err
		}
		if reason != "" {
			return cannotBe(SetupDelegation, reason)
		}
	}
	d.choose(&s.c, *c.Setup, tx.Now())
	return nil
}

// mayChoose returns the fault for a chosen record of a domain that cannot have one.
func mayChoose(d *Domain, field string) error {
	if d.Placeholder {
		return fault.Invalidf(field, "This domain is claimed from another team. The `%s` field can be set after the "+
			"transfer.", field)
	}
	return nil
}

// checkRecord returns the form in which a chosen record is stored. The function check returns why the text is no such
// record, or "".
func checkRecord(field, text string, most int, check func(string) string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return "", nil
	}
	if len(text) > most {
		return "", fault.Invalidf(field, "The `%s` field must have at most %d characters.", field, most)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		return "", fault.Invalidf(field, "The `%s` field must consist of printable ASCII characters without quotation marks "+
			"and backslashes.", field)
	}
	if problem := check(text); problem != "" {
		return "", fault.Invalidf(field, "Invalid `%s` field. %s", field, problem)
	}
	return text, nil
}

// dmarcValues are the values of tags of a DMARC record. Receivers ignore such a tag with another value.
var dmarcValues = map[string][]string{"adkim": {"r", "s"}, "aspf": {"r", "s"}, "t": {"y", "n"}, "psd": {"y", "n", "u"}}

// checkDMARC returns why a text is no DMARC record, or "".
func checkDMARC(text string) string {
	r, ok := dmarc.Parse(text)
	if !ok {
		return "A DMARC record begins with v=DMARC1; and the policy, such as p=none."
	}
	var names []string
	for part := range strings.SplitSeq(text, ";") {
		name, value, found := strings.Cut(part, "=")
		// Some receivers take P for p.
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		switch {
		case name == "" && !found:
			continue // the text ends with a semicolon
		case name == "" || value == "":
			return "Each tag has a name, an equals sign and a value."
		case slices.Contains(names, name):
			return "The tag " + name + " occurs twice."
		case name == "rua" && len(r.RUA) < strings.Count(value, ",")+1:
			return "The tag rua has an address that is no valid URI, such as mailto:dmarc@example.com."
		case dmarcValues[name] != nil && !slices.Contains(dmarcValues[name], strings.ToLower(value)):
			return "The tag " + name + " has one of the values " + strings.Join(dmarcValues[name], ", ") + "."
		}
		names = append(names, name)
	}
	if r.Invalid {
		return "The tags p, sp and np have the value none, quarantine or reject, and p is needed."
	}
	return ""
}

// checkBIMI returns why a text is no BIMI record, or "".
func checkBIMI(text string) string {
	_, problems, ok := bimi.ParseRecord(text)
	if !ok {
		return "A BIMI record begins with v=BIMI1; and the URL of the image, such as l=https://example.com/logo.svg."
	}
	return strings.Join(problems, " ")
}

// chosenBIMI returns the BIMI record that a domain's owner has chosen, as an advised record.
func (d *Domain) chosenBIMI() AdvisedRecord {
	return AdvisedRecord{Purpose: PurposeBIMI, Name: "default._bimi." + d.Name, Type: "TXT", Value: d.BIMIRecord,
		Why: "Mailbox providers that support BIMI then show your image beside your emails."}
}

// withoutOwnZone returns advised records without those that a delegation publishes, as long as the chosen delegation is
// not found. Its owner must not add them, because only the zone of this installation counts afterwards.
func withoutOwnZone(d *Domain, all []Advised) []Advised {
	if d.setup() != SetupDelegation || d.Served() {
		return all
	}
	return slices.DeleteFunc(all, func(a Advised) bool { return a.Name == d.Name || strings.HasSuffix(a.Name, "."+d.Name) })
}
