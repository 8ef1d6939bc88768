package domainreports_test

import "testing"

// The policy for names that do not exist is not advised for a domain whose records are still missing, because its name
// exists as soon as they are published.
func TestAdvisedBeforeTheNameExists(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("new.shop.example")
		delete(f.dns.TXTRecords, d.Name)
		f.dns.TXTRecords["_dmarc.shop.example"] = []string{"v=DMARC1; p=quarantine; sp=none; np=reject"}
		f.Must(f.Reports.LookUp(t.Context(), d, false))
		all, err := f.Reports.Advised(t.Context(), d)
		f.Must(err)
		if want := "v=DMARC1; p=none; np=reject; rua=mailto:" + to; all[0].Value != want {
			t.Errorf("%q instead of %q", all[0].Value, want)
		}
	})
}
