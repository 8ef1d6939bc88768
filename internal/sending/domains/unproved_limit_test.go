package domains_test

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// oneKey makes all domains share one RSA key, because these tests do not need different keys.
func oneKey(t *testing.T, s *domains.Service) {
	t.Helper()
	k, err := dkim.GenerateRSA()
	if err != nil {
		t.Fatal(err)
	}
	s.GenerateRSA = func() (*dkim.Key, error) { return k, nil }
}

// A team may have only a limited number of unverified domains. Each team has a separate limit.
func TestUnprovedDomainsAreBounded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := newServiceWith(t, d, resolve.Fake{}, domains.Config{UnprovedMax: 2})
		oneKey(t, s)
		var last domains.Domain
		for i := range 3 {
			dom, err := s.Create(t.Context(), dbtest.ID("team"), domains.NewDomain{Name: fmt.Sprintf("d%d.example", i)})
			if i < 2 && err != nil || i == 2 && fault.KindOf(err) != fault.Forbidden {
				t.Fatalf("domain %d: %v", i, err)
			}
			if i < 2 {
				last = dom
			}
		}
		if _, err := s.Create(t.Context(), dbtest.ID("other"), domains.NewDomain{Name: "other.example"}); err != nil {
			t.Error(err)
		}
		if _, _, err := s.Claim(t.Context(), dbtest.ID("team"), domains.NewDomain{Name: "other.example"}); fault.KindOf(
			err) != fault.Forbidden {
			t.Errorf("a claim beyond the bound: %v", err)
		}
		if err := s.Delete(t.Context(), dbtest.ID("team"), last.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), dbtest.ID("team"), domains.NewDomain{Name: "d3.example"}); err != nil {
			t.Errorf("after one was deleted: %v", err)
		}
	})
}
