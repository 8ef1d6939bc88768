package domains

import (
	"context"
	"strings"

	"github.com/postrider/postrider/internal/mail/nameserver"
)

// zoneProblems returns the records of a domain that this installation's name servers leave out because they are
// invalid. Most domains have none, because records are checked before they are stored. A record of an earlier version,
// or a changed setting, may be the cause.
func (s *Service) zoneProblems(ctx context.Context, d *Domain) (all []Problem, err error) {
	if s.c.DNSZone == "" || d.Placeholder || !d.Served() && !d.uses(SetupCNAME) {
		return nil, nil
	}
	keys, err := s.keysInZones(ctx, []string{d.ID})
	if err != nil {
		return nil, err
	}
	if d.uses(SetupCNAME) {
		operator := zoneBuilder{name: s.c.DNSZone}
		s.addTargets(&operator, d, keys[d.ID])
		// Other fields of this zone are the operator's. The check dns_zones reports them.
		_, dropped, _ := nameserver.CompileShared(operator.zone(s.nameServerZone()))
		all = append(all, recordsLeftOut(dropped)...)
	}
	if !d.Served() {
		return all, nil
	}
	if strings.HasSuffix(d.Name, "."+s.c.DNSZone) {
		return append(all, Problem{Code: "zone_left_out", Name: d.Name, Type: "NS", Text: "The name servers of this " +
			"installation do not answer for this domain, because it lies in the operator's zone. Use another domain."}), nil
	}
	advised, err := s.knownAdvised(ctx, d)
	if err != nil {
		return nil, err
	}
	_, dropped, err := nameserver.CompileShared(s.zoneOf(d, keys[d.ID], advised))
	if err != nil {
		return append(all, Problem{Code: "zone_left_out", Name: d.Name, Type: "NS", Text: "The name servers of this " +
			"installation do not answer for this domain, because its zone is invalid. Ask the operator for help: " +
			err.Error() + "."}), nil
	}
	return append(all, recordsLeftOut(dropped)...), nil
}

func recordsLeftOut(dropped []*nameserver.RecordError) (all []Problem) {
	for _, r := range dropped {
		all = append(all, Problem{Code: "record_left_out", Name: r.Name, Type: r.Type, Text: "The name servers of this " +
			"installation leave out this record, because it is invalid: " + r.Cause.Error() + ". If you have chosen its text, " +
			"change it. Otherwise ask the operator for help."})
	}
	return all
}
