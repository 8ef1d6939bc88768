package domains

import (
	"context"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/mail/nameserver"
)

// WithdrawnRecords are the records of a deleted domain that senders still need. A domain whose delegation is still in
// place needs them from this installation's name servers.
type WithdrawnRecords struct {
	Domain  string
	Serial  uint32 // grows when the records change
	Records []AdvisedRecord
}

// withdrawnRecords returns the records of deleted domains, by name.
func (s *Service) withdrawnRecords(ctx context.Context) (map[string]WithdrawnRecords, error) {
	all := map[string]WithdrawnRecords{}
	if s.Withdrawn == nil {
		return all, nil
	}
	list, err := s.Withdrawn(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the records that outlive deleted domains: %w", err)
	}
	for _, w := range list {
		all[w.Domain] = w
	}
	return all, nil
}

// withoutDomains returns the zones of deleted domains. They have no other records than those in withdrawn. A name that
// lies in one of the given zones, or in the operator's zone, gets no zone of its own, because such a zone would hide
// records of the zone above.
//
// Whether a deleted domain was delegated is not known. The zone of another domain does no harm, because resolvers do
// not ask this installation about it.
func (s *Service) withoutDomains(withdrawn map[string]WithdrawnRecords, zones []nameserver.Zone) (all []nameserver.Zone) {
	taken := map[string]bool{s.c.DNSZone: true}
	for i := range zones {
		taken[zones[i].Name] = true
	}
	for _, w := range withdrawn {
		if inZone(taken, w.Domain) {
			continue
		}
		b := zoneBuilder{name: w.Domain}
		for _, r := range w.Records {
			b.add(r.Name, r.Type, r.Value)
		}
		z := s.nameServerZone()
		z.Name, z.Serial = w.Domain, w.Serial
		all = append(all, b.zone(z))
	}
	return all
}

// inZone reports whether a name is that of a zone, or lies below one.
func inZone(zones map[string]bool, name string) bool {
	for ok := true; ok; _, name, ok = strings.Cut(name, ".") {
		if zones[name] {
			return true
		}
	}
	return false
}
