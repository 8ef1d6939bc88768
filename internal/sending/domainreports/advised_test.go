package domainreports_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
)

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

// mustWaitAfterStep checks that a new policy waits for two weeks of reports, whether the owner publishes it or this
// installation does.
func (f *fixture) mustWaitAfterStep(c *smtp.Client) {
	f.T.Helper()
	d, to := f.domain("steps.example")
	f.dns.TXTRecords["_dmarc.steps.example"] = []string{"v=DMARC1; p=none"}
	f.Must(f.Reports.LookUp(f.T.Context(), d, false))
	for back := 1; back <= 14; back++ {
		f.send(c, to, "google.com", f.day(d.Name, fmt.Sprint(back), back,
			row(d.Name, ownSource, 1000, "postrider", true, true)))
	}
	ready := func(when string, want bool) {
		f.T.Helper()
		if r := f.dmarc(d, 2).Readiness; r.Ready != want || !want && (len(r.Reasons) != 1 ||
			!strings.HasPrefix(r.Reasons[0], "The present policy has applied for 0 days.")) {
			f.T.Errorf("%s: %+v", when, r)
		}
	}
	pass := func() {
		f.T.Helper()
		f.Exec(fmt.Sprintf(`UPDATE report_addresses SET asks_since = asks_since - %d WHERE asks_since > 0`,
			(14 * 24 * time.Hour).Microseconds()))
	}
	ready("with the first policy", true)
	for i, text := range []string{"v=DMARC1; p=quarantine; t=y", "v=DMARC1; p=quarantine", "v=DMARC1; p=reject; t=y"} {
		f.dns.TXTRecords["_dmarc.steps.example"] = []string{text}
		ready("before a look-up finds "+text, false)
		ours := i == 1
		if d.DMARCRecord = ""; ours {
			d.DMARCRecord = text
		}
		f.Must(f.Reports.LookUp(f.T.Context(), d, ours))
		ready("after a look-up found "+text, false)
		f.dns.TXTRecords["_dmarc.steps.example"] = []string{text + "; rua=mailto:x@example.com"}
		f.Must(f.Reports.LookUp(f.T.Context(), d, ours))
		pass()
		ready("two weeks after "+text, true)
	}
}

// A report that is still being received while its domain is erased leaves nothing behind.
func TestErasureWhileReceiving(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("gone.example")
		c := dial(t, f.listen(t))
		f.reporter("mail.example")
		r := f.day(d.Name, "a", 1, row(d.Name, ownSource, 1, "s", true, true))
		f.Must(c.Mail("reports@mail.example", nil))
		f.Must(c.Rcpt(to, nil))
		f.Must(f.Domains.Delete(t.Context(), d.TeamID, d.ID))
		f.Must(f.Reports.Sweep(t.Context()))
		w, err := c.Data()
		f.Must(err)
		_, err = w.Write(f.compose(&mail{from: "mail.example", file: r.xml(), signed: true}))
		f.Must(err)
		f.Must(w.Close())
		if n := f.Count(`SELECT (SELECT COUNT(*) FROM received_reports) + (SELECT COUNT(*) FROM received_dmarc_rows)
			+ (SELECT COUNT(*) FROM report_days) + (SELECT COUNT(*) FROM report_reporters)`); n != 0 {
			t.Errorf("%d rows of a deleted domain", n)
		}
	})
}

// mustEndAtReject checks that nothing about a next step is said when there is none, and that nobody is told to take it.
func (f *fixture) mustEndAtReject(c *smtp.Client) {
	f.T.Helper()
	d, to := f.domain("last.example")
	f.send(c, to, "post.example", f.day(d.Name, "1", 1, row(d.Name, foreignSource, 30, "", false, false)))
	for text, want := range map[string]struct {
		strictest    bool
		reason, todo string
	}{
		"v=DMARC1; p=quarantine":  {false, "The first proven report is 1 day old. The", "A stricter policy makes receivers refuse"},
		"v=DMARC1; p=reject; t=y": {false, "The first proven report is 1 day old. The", "A stricter policy makes receivers refuse"},
		"v=DMARC1; p=reject":      {true, "", "You need to do nothing: receivers that apply the present policy refuse"},
	} {
		f.dns.TXTRecords["_dmarc.last.example"] = []string{text}
		v := f.dmarc(d, 2)
		r := v.Readiness
		if r.Ready || r.Strictest != want.strictest || (r.Next == "") != want.strictest ||
			!strings.HasPrefix(strings.Join(r.Reasons, " "), want.reason) || want.reason == "" && len(r.Reasons) > 0 {
			f.T.Errorf("%s: %+v", text, r)
		}
		if len(v.Findings) != 1 || !strings.Contains(v.Findings[0].Advice, want.todo) {
			f.T.Errorf("%s: %+v, want the advice %q", text, v.Findings, want.todo)
		}
	}
}
