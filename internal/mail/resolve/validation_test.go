package resolve_test

import (
	"testing"

	"github.com/miekg/dns"
)

// signer answers as a server that validates signatures does, or as one that does not.
func signer(validates bool) func(*nameserver, dns.ResponseWriter, *dns.Msg) {
	return func(_ *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		rr, err := dns.NewRR(q.Question[0].Name + " 60 IN A 192.0.2.1")
		if err != nil {
			panic(err)
		}
		m.Answer = []dns.RR{rr}
		switch q.Question[0].Name {
		case "signed.example.":
			m.AuthenticatedData = validates && q.AuthenticatedData
		case "bogus.example.":
			if validates && !q.CheckingDisabled {
				m.Answer, m.Rcode = nil, dns.RcodeServerFailure
			}
		case "gone.example.":
			m.Answer, m.Rcode = nil, dns.RcodeServerFailure
		}
		w.WriteMsg(m)
	}
}

func TestValidates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, bogus                 string
		validates                   bool
		authentic, refuses, unknown bool
	}{
		{"validating", "bogus.example", true, true, true, false},
		{"not validating", "bogus.example", false, false, false, false},
		{"the bogus name has no servers", "gone.example", true, true, false, true},
		{"no bogus name", "", true, true, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := resolver(t, serve(t, signer(c.validates)))
			all := r.Validates(t.Context(), "signed.example", c.bogus)
			if len(all) != 1 || all[0].Err != nil || !all[0].Known || all[0].Server != r.Servers()[0] {
				t.Fatalf("%+v", all)
			}
			v := all[0]
			if v.Authentic != c.authentic || v.RefusesBogus != c.refuses || v.BogusUnknown != c.unknown {
				t.Errorf("%+v", v)
			}
		})
	}
	r := resolver(t, serve(t, rcode(dns.RcodeNameError)))
	if all := r.Validates(t.Context(), "signed.example", ""); all[0].Err != nil || all[0].Known {
		t.Errorf("a name that does not exist: %+v", all)
	}
}
