package servedpolicies

import (
	"context"

	"github.com/postrider/postrider/internal/sending/domains"
)

// withdrawnPage is the number of withdrawn policies that are read at a time.
const withdrawnPage = 500

// Withdrawn returns the records of the policies of deleted domains. Their policies have the mode none, which senders
// find only by these records. If there were several domains with a name, the records are those of the policy whose
// copies expire last.
func (s *Service) Withdrawn(ctx context.Context) (all []domains.WithdrawnRecords, err error) {
	latest, now, after := map[string]*row{}, s.c.Now(), ""
	for {
		list, err := withdrawnAfter(ctx, s.p.DB.Reader, after, withdrawnPage)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			if was := latest[p.Name]; was == nil || was.ObsoleteAt.Before(p.ObsoleteAt) {
				latest[p.Name] = p
			}
		}
		if len(list) < withdrawnPage {
			break
		}
		after = list[len(list)-1].DomainID
	}
	for _, p := range latest {
		w := domains.WithdrawnRecords{Domain: p.Name, Serial: p.serial(now)}
		for _, r := range s.records(p.Name, p, now) {
			w.Records = append(w.Records, domains.AdvisedRecord{Purpose: domains.PurposeMTASTS, Name: r.Name, Type: r.Type,
				Value: r.Value})
		}
		all = append(all, w)
	}
	return all, nil
}
