package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/doctor"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

func TestServedPolicies(t *testing.T) {
	t.Parallel()
	broken := []servedpolicies.Problem{{Type: servedpolicies.HostProblem, Message: "mta-sts.acme.example does not lead here."}}
	for _, c := range []struct {
		name   string
		policy servedpolicies.Examined
		status doctor.Status
		says   string
	}{
		{"works", servedpolicies.Examined{Mode: servedpolicies.Enforce, Worked: true}, doctor.OK, "1 MTA-STS policies"},
		{"broken", servedpolicies.Examined{Mode: servedpolicies.Enforce, Worked: true, Problems: broken}, doctor.Failure,
			"does not lead here"},
		{"tested", servedpolicies.Examined{Mode: servedpolicies.Testing, Worked: true, Problems: broken}, doctor.Warning,
			"does not lead here"},
		{"never worked", servedpolicies.Examined{Mode: servedpolicies.Enforce, Problems: broken}, doctor.Warning,
			"does not lead here"},
		{"new", servedpolicies.Examined{Mode: servedpolicies.Testing}, doctor.NotChecked,
			"not checked yet"},
		{"no node checks", servedpolicies.Examined{Mode: servedpolicies.Testing, CheckAt: time.Unix(1, 0)}, doctor.Warning,
			"No node checks"},
	} {
		f := healthy()
		p := c.policy
		if p.CheckAt.IsZero() {
			p.CheckAt = f.Now.Add(time.Hour)
		}
		if c.name != "new" {
			p.CheckedAt = f.Now.Add(-time.Minute)
		}
		f.Domains = &doctor.Domains{All: []doctor.Domain{{Name: "acme.example", Team: "Acme", Policy: &p},
			{Name: "plain.example", Team: "Acme"}}}
		var found []doctor.Finding
		for _, x := range doctor.Check(f) {
			if x.ID == "mta_sts" {
				found = append(found, x)
			}
		}
		if len(found) != 1 || found[0].Status != c.status || !strings.Contains(found[0].Meaning, c.says) {
			t.Errorf("%s: %+v", c.name, found)
		}
	}
}
