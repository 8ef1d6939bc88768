package delivery

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/evidence"
)

func (f *fixture) evidence(emailID string) (all []*evidence.Evidence) {
	f.T.Helper()
	for _, a := range f.attempts(emailID) {
		e := testnode.Must(evidence.Unpack(a.Evidence))
		if e == nil {
			f.T.Fatalf("an attempt has no evidence: %+v", a)
		}
		if a.Outcome == "delivered" && len(a.Evidence) > 300 {
			f.T.Errorf("an attempt that went well has %d bytes of evidence", len(a.Evidence))
		}
		all = append(all, e)
	}
	return all
}

// An attempt records its route, its encryption, its signatures and the times of its stages.
func TestEvidence(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tries := 0
		mx := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, to string) string {
			if tries++; tries == 1 {
				return "450 4.2.0 not now"
			}
			return ""
		}})
		n := one(mx.Addr)
		n.host("far.example", "mx.far.example", 10, "")
		f := newFixture(t, d, n.config(2), n.dns)
		f.run()
		first := f.send(address(1))
		f.wait(first, events.EmailDelivered)
		second := f.send(address(2))
		f.wait(second, events.EmailDelivered)
		got := append(f.evidence(first), f.evidence(second)...)
		if len(got) != 3 {
			t.Fatalf("%d attempts", len(got))
		}
		for i, e := range got {
			if e.Provider != evidence.Other || e.Hello != "out.postrider.test" || !e.Source.IsLoopback() || e.Hosts != 1 ||
				e.Clear != evidence.NotOffered || e.Cert != 0 || e.SigningDomain != from || len(e.Selectors) != 2 || e.Local ||
				e.Reused != (i > 0) || e.Enqueued != 0 {
				t.Errorf("attempt %d: %+v", i+1, e)
			}
			stage, last := "rcpt", evidence.Envelope
			if i > 0 {
				stage, last = "final", evidence.Final
			}
			for x := evidence.Connect; x <= evidence.Final; x++ {
				if want := x <= last && (i == 0 || x >= evidence.Envelope); e.Has.Contains(x) != want {
					t.Errorf("attempt %d: the time of the stage %d is recorded: %v", i+1, x, !want)
				}
			}
			if e.Stage.String() != stage {
				t.Errorf("attempt %d: the stage %s decided, not %s", i+1, e.Stage, stage)
			}
		}
		lost := f.send("ann@far.example", "bob@far.example")
		f.wait(lost, events.EmailDelayed)
		if e := f.evidence(lost)[0]; e.Stage.String() != "connect" || !e.Local || e.Source.IsValid() ||
			!e.Has.Contains(evidence.Connect) || e.Has.Contains(evidence.Greeting) {
			t.Errorf("of a host that cannot be reached: %+v", e)
		}
	})
}

// A captured email and one to a test address record no connection.
func TestEvidenceWithoutHosts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Config{Transport: Capture, SandboxDomains: []string{"resend.dev"}}, newNetwork().dns)
	f.run()
	for _, to := range []string{address(1), "delivered@resend.dev"} {
		x := f.send(to)
		f.wait(x, events.EmailDelivered)
		if e := f.evidence(x)[0]; e.Source.IsValid() || e.Hello != "" || e.Provider != evidence.NotRecorded || !e.Local ||
			e.Talked() {
			t.Errorf("%s: %+v", to, e)
		}
	}
}

// The connection's certificate is named by what is wrong with it, and a connection without encryption by the cause.
func TestEvidenceOfEncryption(t *testing.T) {
	for problem, want := range map[string]evidence.Cert{
		"x509: certificate has expired or is not yet valid: current time ...":              evidence.Expired,
		"x509: certificate is valid for mx.example.net, not mx.example.org":                evidence.OtherName,
		"x509: certificate is not valid for any names, but wanted to match mx.example.org": evidence.OtherName,
		"x509: certificate signed by unknown authority":                                    evidence.UnknownIssuer,
		"x509: certificate specifies an incompatible key usage":                            evidence.Invalid,
	} {
		if got := certOf(smtpclient.TLSState{Version: "TLS 1.3", Problem: problem}); got != want {
			t.Errorf("%s: %d, want %d", problem, got, want)
		}
	}
	if got := certOf(smtpclient.TLSState{Version: "TLS 1.3", Verified: true}); got != evidence.Valid {
		t.Errorf("a verified certificate: %d", got)
	}
	for text, want := range map[string]evidence.Outage{
		noHostError + "example.net: no name server answered": evidence.NameServers,
		"commit: " + db.ErrUnavailable.Error():               evidence.Database,
		"read a blob: connection refused":                    evidence.BlobStore,
		"something else":                                     evidence.SomePart,
	} {
		if got := outageOf(text); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// The evidence says which pause and which limits a job may have waited for, unless they ended before the job began.
func TestEvidenceOfWaits(t *testing.T) {
	s := newShaper(2, 0)
	now := time.Now()
	s.now = func() time.Time { return now }
	s.useShares(nil, func(string) {})
	a := answer{stage: smtpclient.StageMail, reply: smtpclient.Reply{Code: 421, Enhanced: "4.7.28", Text: "too much"}}
	v := judge(a, time.Minute, false, now)
	for range 2 {
		s.recordVerdicts("d", []verdict{v}, time.Second, now)
	}
	paused := now
	if n, until := s.limit("d", now); n != 0 || !until.Equal(paused.Add(pauseMin)) {
		t.Fatalf("%d jobs until %v", n, until)
	}
	now = now.Add(pauseMin + 10*time.Second)
	waited := func(before time.Duration) (e evidence.Evidence) {
		s.waited("d", "acme", before, &e)
		return e
	}
	want := evidence.Evidence{PauseEnd: 10 * time.Second, PauseLength: pauseMin, PauseReply: "421 4.7.28"}
	if diff := cmp.Diff(want, waited(time.Minute), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("after a pause: %s", diff)
	}
	if e := waited(5 * time.Second); e.PauseLength != 0 {
		t.Errorf("a job that began after the pause: %+v", e)
	}
	slot, err := s.acquire(t.Context(), "d", "acme", "acme")
	if err != nil {
		t.Fatal(err)
	}
	s.limit("d", now)
	s.share("d", "acme", now)
	now = now.Add(time.Second)
	slot.release(true, replied)
	if e := waited(5 * time.Second); e.Limits != evidence.TeamShare|evidence.DestinationLimit {
		t.Errorf("the limits are %d", e.Limits)
	}
	if e := waited(time.Millisecond); e.Limits != 0 {
		t.Errorf("a job that did not wait: %+v", e)
	}
}

// The evidence says how often a job began without an attempt, that its email was enqueued later, and which outage ended
// the run before.
func TestEvidenceOfEarlierRuns(t *testing.T) {
	s := &Service{c: Config{Transport: Capture}}
	began := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	tr := &try{o: &emails.Outgoing{CreatedAt: began.Add(-time.Minute)}, job: jobs.Job{Attempt: 4,
		CreatedAt: began.Add(-50 * time.Second), LastError: "outage since 2026-11-29T08:59:30Z: " +
			db.ErrUnavailable.Error()}}
	if _, ok := tr.job.OutageSince(); !ok {
		mark, _, _ := strings.Cut(tr.job.LastError, "2026")
		t.Fatalf("%q is no mark of an outage", mark)
	}
	s.observe(tr, began)
	e := tr.seen.Evidence
	if e.Runs != 3 || e.Enqueued != 50*time.Second || e.Outage != evidence.Database || e.OutageOf != 30*time.Second {
		t.Errorf("%+v", e)
	}
	tr.job.Tries, tr.job.Failures, tr.job.LastError, tr.seen = 2, 1, "", observed{}
	s.observe(tr, began)
	if e := tr.seen.Evidence; e.Runs != 1 || e.Enqueued != 0 || e.Outage != 0 {
		t.Errorf("of a retry: %+v", e)
	}
}
