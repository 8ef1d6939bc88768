package domains

import (
	"cmp"
	"context"
)

// Setup describes how a domain's owner puts its records into the DNS.
type Setup struct {
	Domain  Domain
	Choices []SetupChoice
	Records []Record  // of the chosen set-up
	Former  []Record  // of the former set-up, if it is in use; without those that the chosen one has too
	Advised []Advised // records that the domain can do without
	Keys    []Key     // DKIM keys: those that sign, and those of rotations
	Advice  *Advice   // nil if there is none
	Pending bool      // look-ups in the background make the advice, or renew it

	// Problems has the mistakes that Advice names, and the records that this installation's name servers leave out.
	Problems []Problem
}

// Advice says how to enter records at the domain's DNS provider, and what is wrong with those that were found.
type Advice struct {
	Provider  string // name of the DNS provider, such as "Cloudflare"; "" if it is unknown
	Link      string // URL of the provider's page with the domain's records; "" if it is unknown
	ApplyLink string // URL at which the provider installs the records by itself (Domain Connect); "" if it cannot
	Notes     []string
	Forms     []FieldForm
	Problems  []Problem
}

// FieldForm is a record as the owner enters it in the provider's form.
type FieldForm struct {
	Key, Type         string // of the record; see Record.Key
	NameLabel, Name   string // the provider's word for the field, and its content
	ValueLabel, Value string
	Priority          string // content of the field for the priority; "" if there is no such field
}

// Problem is a mistake in the DNS of a domain.
type Problem struct {
	Code  string // such as name_doubled or spf_several
	Name  string // the DNS name at which the mistake is
	Type  string // type of the record
	Found string // the value there; "" for none
	Text  string // what is wrong, and what to do
	Note  bool   // nothing is wrong, but the owner should know
}

// GetSetup returns the set-up of the team's domain. It does not wait for the DNS: the advice is that of earlier
// look-ups.
func (s *Service) GetSetup(ctx context.Context, teamID, domainID string) (Setup, error) {
	d, err := getDomain(ctx, s.DB.Reader, teamID, domainID)
	if err != nil {
		return Setup{}, err
	}
	view := Setup{Domain: d, Records: s.c.Records(&d)}
	if view.Choices, err = s.choices(ctx, &d); err != nil {
		return view, err
	}
	for _, r := range s.c.recordsInUse(&d)[len(view.Records):] {
		if d.FormerSetup != "" {
			view.Former = append(view.Former, r)
		}
	}
	if view.Advised, err = s.advised(ctx, &d); err != nil {
		return view, err
	}
	view.Advised = withoutOwnZone(&d, view.Advised)
	if view.Keys, err = s.DKIMKeys(ctx, &d); err != nil {
		return view, err
	}
	if view.Problems, err = s.zoneProblems(ctx, &d); err != nil {
		return view, err
	}
	view.Advice, view.Pending = s.advice(ctx, &d, view.Records)
	if view.Advice != nil {
		view.Problems = append(view.Problems, view.Advice.Problems...)
	}
	return view, nil
}

// SendingRecords returns the records that verifiers of the domain's emails look up: the SPF record of its return path,
// and the DKIM records of its keys. Their states are those of the records that the owner installs for them. The keys
// are spf, dkim and dkim-ed25519.
func (s *Service) SendingRecords(d *Domain) (all []Record) {
	setup := cmp.Or(d.sendingSetup(), d.setup())
	rsa, ed25519 := s.c.selectorsIn(setup, d)
	add := func(key, of, name string) {
		r := Record{Key: key, FQDN: name, Type: "TXT", Status: cmp.Or(d.checks[of].Status, NotStarted)}
		r.setLookUp(d.checks[of])
		all = append(all, r)
	}
	by := map[string]string{"spf": "spf", "dkim": proof, "dkim-ed25519": "dkim-ed25519"}
	switch setup {
	case SetupCNAME:
		by = map[string]string{"spf": cnameReturnPath, "dkim": cnameFirst}
		if rsa == selectorSecond {
			by["dkim"] = cnameSecond
		}
	case SetupDelegation:
		by = map[string]string{"spf": delegated, "dkim": delegated, "dkim-ed25519": delegated}
	}
	add("spf", by["spf"], d.returnPathHost())
	add("dkim", by["dkim"], rsa+"._domainkey."+d.Name)
	if of := by["dkim-ed25519"]; of != "" {
		add("dkim-ed25519", of, ed25519+"._domainkey."+d.Name)
	}
	return all
}

// SendingKeys returns the keys of the records that sending requires with the chosen set-up.
func (d *Domain) SendingKeys() []string { return sendingKeys(d.setup()) }

// ReceivingKeys returns the keys of the records that receiving requires with the chosen set-up.
func (d *Domain) ReceivingKeys() []string { return receivingKeys(d.setup()) }

// UsesFormerSetup reports whether the domain sends or receives only with its former set-up.
func (d *Domain) UsesFormerSetup() bool {
	return d.FormerSetup != "" && (d.sendingSetup() == d.FormerSetup || d.receivingSetup() == d.FormerSetup)
}
