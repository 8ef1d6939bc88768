package delivery

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// fieldsOf returns the values of the header fields of a message that have one of the names.
func fieldsOf(msg []byte, names ...string) map[string][]string {
	all := map[string][]string{}
	for _, f := range mailparse.Parse(msg).Header {
		if slices.Contains(names, f.Name) {
			all[f.Name] = append(all[f.Name], strings.TrimSpace(f.Value))
		}
	}
	return all
}

// checkSigned fails the test unless each of two valid signatures covers the fields.
func (f *fixture) checkSigned(msg []byte, names ...string) {
	f.T.Helper()
	records := map[string]string{}
	for _, r := range f.Domains.Records(&f.Sender) {
		records[r.FQDN] = r.Value
	}
	checks, err := dkim.VerifyWithOptions(bytes.NewReader(msg), &dkim.VerifyOptions{
		LookupTXT: func(name string) ([]string, error) { return []string{records[name]}, nil }})
	if err != nil || len(checks) != 2 {
		f.T.Fatalf("%d signatures, %v", len(checks), err)
	}
	for _, c := range checks {
		for _, name := range names {
			if c.Err != nil || c.Domain != from || !slices.Contains(c.HeaderKeys, name) {
				f.T.Errorf("the signature of %s covers %q, %v; want %s", c.Domain, c.HeaderKeys, c.Err, name)
			}
		}
	}
}

// Bulk mail names an address for complaints that is aligned with its signatures, and the token by which a complaint
// finds its email. The signatures cover both.
func TestComplaintLoop(t *testing.T) {
	t.Parallel()
	bulk := message.Field{Name: "Precedence", Value: "bulk"}
	for name, c := range map[string]struct {
		address string
		headers []message.Field
		want    []string // CFBL-Address
		foreign bool     // the sender specified the fields
	}{
		"of another domain":      {"fbl@mx.example", []message.Field{bulk}, []string{"fbl@send." + from + "; report=arf"}, false},
		"of the sender's domain": {"loop@" + from, []message.Field{bulk}, []string{"loop@" + from + "; report=arf"}, false},
		"below that domain":      {"loop@mx." + from, []message.Field{bulk}, []string{"loop@mx." + from + "; report=arf"}, false},
		"of a longer label":      {"loop@not" + from, []message.Field{bulk}, []string{"fbl@send." + from + "; report=arf"}, false},
		"transactional":          {"fbl@mx.example", nil, nil, false},
		"switched off":           {"", []message.Field{bulk}, nil, false},
		"the sender's own": {"fbl@mx.example", []message.Field{bulk, {Name: "CFBL-Address", Value: "x@acme.example"}},
			[]string{"x@acme.example"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := smtptest.NewServer(t, smtptest.Config{})
			n := one(server.Addr)
			cfg := n.config(1)
			cfg.ComplaintAddress = c.address
			f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).run()
			text := "News"
			x := f.Send(emails.Send{From: "news@" + from, To: []string{address(1)}, Subject: "News", Text: &text,
				Headers: c.headers})
			f.wait(x, events.EmailDelivered)
			msg := server.Wait(1)[0].Data
			got := fieldsOf(msg, "CFBL-Address", "CFBL-Feedback-ID", "Feedback-ID", tokens.FeedbackField)
			if diff := cmp.Diff(c.want, got["CFBL-Address"]); diff != "" {
				t.Errorf("CFBL-Address (-want +got):\n%s", diff)
			}
			f.checkSigned(msg, "Feedback-ID")
			if c.want == nil || c.foreign {
				if len(got["CFBL-Feedback-ID"]) > 0 {
					t.Errorf("CFBL-Feedback-ID: %q", got["CFBL-Feedback-ID"])
				}
				return
			}
			f.checkSigned(msg, "CFBL-Address", "CFBL-Feedback-ID")
			if diff := cmp.Diff(got[tokens.FeedbackField], got["CFBL-Feedback-ID"]); diff != "" {
				t.Errorf("CFBL-Feedback-ID is not the token:\n%s", diff)
			}
			if of, ok := tokens.ParseFeedback(f.Keys, got["CFBL-Feedback-ID"][0]); !ok || of.EmailID != x {
				t.Errorf("the token names %+v", of)
			}
		})
	}
}
