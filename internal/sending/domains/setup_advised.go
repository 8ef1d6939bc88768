package domains

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/postrider/postrider/internal/mail/dnstext"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// These are the values of AdvisedRecord.Purpose.
const (
	PurposeDMARC      = "dmarc"
	PurposeTLSReports = "tls_reports"
	PurposeMTASTS     = "mta_sts"
	PurposeBIMI       = "bimi"
)

// advisedMax is the maximum number of advised records of a domain.
const advisedMax = 32

// AdvisedRecord is a DNS record that a domain can do without, but that its owner should install.
//
// A function in Deps.Advised returns the same records before and after they were installed. The zone of a delegated
// domain consists of what these functions return, so a record that was left out would disappear from the DNS.
type AdvisedRecord struct {
	Purpose string
	Name    string // absolute, lower case, no final dot
	Type    string // TXT, CNAME, TLSA, A or AAAA
	Value   string // as in nameserver.Record
	Why     string // one or two sentences for the domain's owner
}

// AdvisedSource returns the advised records of domains of any teams, by the id of the domain. It runs the same number
// of statements for any number of domains. It makes no look-ups in the DNS, because zones are built from its results.
type AdvisedSource func(ctx context.Context, all []*Domain) (map[string][]AdvisedRecord, error)

// AdvisedState says what the last look-up of an advised record found.
type AdvisedState string

const (
	AdvisedUnknown   AdvisedState = "not_started" // not looked up yet, or no name server answered
	AdvisedFound     AdvisedState = "verified"
	AdvisedMissing   AdvisedState = "missing"
	AdvisedDifferent AdvisedState = "different" // the name has another record of this kind
)

// Advised is an advised record with its state.
type Advised struct {
	AdvisedRecord
	State AdvisedState
	Found string // the values that were found instead, one per line
}

// advisedRecords asks all sources for the domain's advised records. If a source fails, the records of the others are
// returned with its error.
func (s *Service) advisedRecords(ctx context.Context, d *Domain) ([]AdvisedRecord, error) {
	all, err := s.advisedOfAll(ctx, []*Domain{d})
	if err != nil {
		err = fmt.Errorf("find the advised records of %s: %w", d.Name, err)
	}
	return all[d.ID], err
}

// advisedOfAll is like advisedRecords for several domains.
func (s *Service) advisedOfAll(ctx context.Context, of []*Domain) (map[string][]AdvisedRecord, error) {
	of = slices.DeleteFunc(slices.Clone(of), func(d *Domain) bool { return d.Placeholder || d.TeamID == system })
	all := make(map[string][]AdvisedRecord, len(of))
	if len(of) == 0 {
		return all, nil
	}
	var errs []error
	for _, source := range s.Deps.Advised {
		found, err := source(ctx, of)
		if err != nil {
			errs = append(errs, err)
		}
		for id, records := range found {
			all[id] = append(all[id], records...)
		}
	}
	for _, d := range of {
		if d.BIMIRecord != "" {
			all[d.ID] = append(all[d.ID], d.chosenBIMI())
		}
	}
	for id, records := range all {
		all[id] = records[:min(len(records), advisedMax)]
	}
	return all, errors.Join(errs...)
}

// lookUpAdvised looks up the advised records of a domain. A source that fails is logged, because the records that the
// domain needs matter more. The parameter delegation says whether the domain is delegated to this installation.
func (s *Service) lookUpAdvised(ctx context.Context, d *Domain, delegation finding) []storedAdvised {
	ctx, cancel := context.WithTimeout(ctx, lookUpMax)
	defer cancel()
	ours := d.uses(SetupDelegation)
	// If it is unknown who answers for the domain, answers about it say nothing about the owner's records.
	if s.LookUpAdvised != nil && !d.Placeholder && !(ours && delegation == unknown) {
		if err := s.LookUpAdvised(ctx, d, ours && delegation == present); err != nil {
			s.Log.Warn("some advised records could not be looked up; the stored ones stay", "domain", d.Name, "error", err)
		}
	}
	records, err := s.advisedRecords(ctx, d)
	if err != nil {
		s.Log.Error("some advised records are not looked up", "domain", d.Name, "error", err)
	}
	all := make([]storedAdvised, len(records))
	var wait sync.WaitGroup
	for i, rec := range records {
		wait.Go(func() {
			state, found := lookUpAdvisedOne(ctx, s.DNS, rec)
			all[i] = storedAdvised{Purpose: rec.Purpose, Name: rec.Name, Type: rec.Type, Value: rec.Value, Why: rec.Why,
				Status: state, Found: found}
		})
	}
	wait.Wait()
	return all
}

func lookUpAdvisedOne(ctx context.Context, r resolve.Resolver, rec AdvisedRecord) (AdvisedState, string) {
	var values []string
	var err error
	switch rec.Type {
	case "TXT":
		values, err = r.TXT(ctx, rec.Name)
		kind := textKind(rec.Value)
		values = slices.DeleteFunc(slices.Clone(values), func(text string) bool { return textKind(text) != kind })
	case "CNAME":
		var host string
		if host, err = r.CNAME(ctx, rec.Name); err == nil {
			values = []string{strings.ToLower(strings.TrimSuffix(host, "."))}
		}
	case "A", "AAAA":
		addrs, lookUpErr := r.Addrs(ctx, rec.Name)
		for _, a := range addrs {
			if a.Is4() == (rec.Type == "A") {
				values = append(values, a.String())
			}
		}
		err = lookUpErr
	default:
		return AdvisedUnknown, ""
	}
	switch {
	case err != nil && !errors.Is(err, resolve.ErrNotFound):
		return AdvisedUnknown, ""
	case len(values) == 0:
		return AdvisedMissing, ""
	case slices.ContainsFunc(values, func(v string) bool { return normalText(v) == normalText(rec.Value) }):
		return AdvisedFound, ""
	}
	return AdvisedDifferent, shorten(values...)
}

// textKind returns the first part of a TXT record, which says what the record is for, such as v=DMARC1.
func textKind(text string) string {
	first, _, _ := strings.Cut(dnstext.Unquote(text), ";")
	return strings.ToLower(strings.ReplaceAll(first, " ", ""))
}

// normalText returns a value without quotes, spaces and a final semicolon, so that equal records compare equal.
func normalText(text string) string {
	return strings.TrimSuffix(strings.ReplaceAll(dnstext.Unquote(text), " ", ""), ";")
}

// advised returns the advised records of a domain with the results of the last look-up. A record that has changed since
// then counts as not looked up. With TrustDomains, every record counts as found.
func (s *Service) advised(ctx context.Context, d *Domain) (all []Advised, err error) {
	records, err := s.knownAdvised(ctx, d)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	stored, err := advisedOf(ctx, s.DB.Reader, d.TeamID, d.ID)
	if err != nil {
		return nil, err
	}
	for _, rec := range records {
		a := Advised{AdvisedRecord: rec, State: AdvisedUnknown}
		for _, was := range stored {
			if was.Name == rec.Name && was.Type == rec.Type && was.Value == rec.Value {
				a.State, a.Found = was.Status, was.Found
			}
		}
		if s.c.TrustDomains {
			a.State, a.Found = AdvisedFound, ""
		}
		all = append(all, a)
	}
	return all, nil
}

// knownAdvisedOfAll is knownAdvised for several domains, by their ids. If a source fails, the domains are read one by
// one, so that the failure concerns as few of them as possible.
func (s *Service) knownAdvisedOfAll(ctx context.Context, of []*Domain) (map[string][]AdvisedRecord, error) {
	all, err := s.advisedOfAll(ctx, of)
	if err == nil {
		return all, nil
	}
	for _, d := range of {
		if all[d.ID], err = s.knownAdvised(ctx, d); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// knownAdvised returns the advised records of a domain without look-ups in the DNS. If a source fails, knownAdvised
// logs the failure and replaces the missing records by those of the last look-up. A failure for one domain must not
// stop the zones of others.
func (s *Service) knownAdvised(ctx context.Context, d *Domain) ([]AdvisedRecord, error) {
	all, err := s.advisedRecords(ctx, d)
	if err == nil {
		return all, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.Log.Error("some advised records are those of the last look-up, because their source failed", "domain", d.Name,
		"error", err)
	stored, err := advisedOf(ctx, s.DB.Reader, d.TeamID, d.ID)
	if err != nil {
		return nil, err
	}
	current := slices.Clone(all)
	for _, was := range stored {
		same := func(r AdvisedRecord) bool { return r.Name == was.Name && r.Type == was.Type }
		if was.Purpose != PurposeBIMI && !slices.ContainsFunc(current, same) {
			all = append(all, AdvisedRecord{Purpose: was.Purpose, Name: was.Name, Type: was.Type, Value: was.Value,
				Why: was.Why})
		}
	}
	return all[:min(len(all), advisedMax)], nil
}
