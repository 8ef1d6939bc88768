package domains_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A return-path label must start with a letter and must not exceed 63 characters.
func TestReturnPathLabels(t *testing.T) {
	s, _ := newService(t, dbtest.SQLite(t), resolve.Fake{})
	oneKey(t, s)
	for i, c := range []struct {
		label   string
		allowed bool
	}{
		{"a", true}, {"z9", true}, {"Out-1", true}, {strings.Repeat("l", 63), true},
		{"0a", false}, {"9a", false}, {"-a", false}, {"a-", false}, {"a.b", false}, {"a_b", false},
		{strings.Repeat("l", 64), false},
	} {
		_, err := s.Create(t.Context(), dbtest.ID("team"), domains.NewDomain{Name: fmt.Sprintf("d%d.example", i),
			ReturnPath: c.label})
		if c.allowed && err != nil || !c.allowed && fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", c.label, err)
		}
	}
}
