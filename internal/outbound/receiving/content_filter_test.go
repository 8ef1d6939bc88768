package receiving_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"slices"
	"strings"
	"testing"

	library "github.com/emersion/go-milter"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/milter"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// verdicts reports a valid DKIM signature and a failed SPF check for each message.
type verdicts struct{ asked *[]authres.Origin }

func (v verdicts) Check(_ context.Context, o authres.Origin, raw io.ReaderAt, size int64) authres.Results {
	first := make([]byte, 5)
	if n, _ := raw.ReadAt(first, 0); int64(n) <= size && strings.HasPrefix(string(first), "Subj") {
		*v.asked = append(*v.asked, o) // the checked part of the message excludes the trace fields
	}
	return authres.Results{SPF: authres.Verdict{Result: "fail", Domain: "sender.example"},
		DKIM: []authres.Verdict{{Result: "pass"}}, Policy: "none"}
}

func TestAuthenticationIsKept(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	asked := verdicts{new([]authres.Origin)}
	p := f.deps
	p.Auth = asked
	f.Service = testnode.Must(receiving.New(config(), p))
	f.deliver(t, "Subject: x\n\nx\n", "a@in.acme.example")
	e := f.list(t, f.Acme.TeamID)[0]
	if e.Authentication == nil || e.Authentication.SPF.Result != "fail" || e.Authentication.DKIM[0].Result != "pass" ||
		e.Authentication.Policy != "none" {
		t.Errorf("%+v", e.Authentication)
	}
	if len(*asked.asked) != 1 || (*asked.asked)[0].Addr.String() != "192.0.2.9" ||
		(*asked.asked)[0].MailFrom != "jo@sender.example" {
		t.Errorf("asked about %+v", *asked.asked)
	}
	f.deliver(t, "Subject: x\n\nx\n", f.returnTo(f.send("ann@gone.example"), "gone.example"))
	if len(*asked.asked) != 1 {
		t.Error("a report is judged by where it comes from")
	}
}

// filter is a milter whose verdict depends on the message's subject.
type filter struct {
	library.NoOpMilter
	subject string
}

func (f *filter) Header(name, value string, _ *library.Modifier) (library.Response, error) {
	if name == "Subject" {
		f.subject = value
	}
	return library.RespContinue, nil
}

func (f *filter) Body(m *library.Modifier) (library.Response, error) {
	switch f.subject {
	case "reject":
		return library.RespReject, nil
	case "later":
		return library.RespTempFail, nil
	case "discard":
		return library.RespDiscard, nil
	case "spam":
		if err := m.Quarantine("looks like spam"); err != nil {
			return nil, err
		}
	}
	return library.RespAccept, m.AddHeader("X-Spam-Status", "of "+f.subject)
}

func TestContentFilter(t *testing.T) {
	log.SetOutput(io.Discard) // the milter library's server logs closed connections
	f := newFixture(t, dbtest.SQLite(t))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := library.Server{NewMilter: func() library.Milter { return &filter{} }}
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	p := f.deps
	if p.Milter, err = milter.New(milter.Config{Address: "inet:" + l.Addr().String(), Hostname: "mx.postrider.test",
		FailClosed: true}); err != nil {
		t.Fatal(err)
	}
	f.Service = testnode.Must(receiving.New(config(), p))
	try := func(subject string, size int) string {
		c, err := f.begin(t, f.Service, "jo@sender.example", "a@in.acme.example")
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Data(t.Context(), strings.NewReader("Subject: "+subject+"\r\n\r\n"+strings.Repeat("x\r\n", size)))
		return answer(err)
	}
	for _, size := range []int{1, 50_000} {
		for subject, want := range map[string]string{"fine": "250", "spam": "250", "discard": "250", "reject": "550 5.7.1",
			"later": "451 4.7.1"} {
			if got := try(subject, size); got != want {
				t.Errorf("%s: %s, want %s", subject, got, want)
			}
		}
	}
	all := f.list(t, f.Acme.TeamID)
	for _, e := range all {
		if e.Spam == nil || !slices.Equal(e.Spam.Fields["x-spam-status"], []string{"of " + e.Subject}) ||
			(e.Spam.Action == "quarantine") != (e.Subject == "spam") {
			t.Errorf("%s: %+v", e.Subject, e.Spam)
		}
	}
	if n := f.blobCount(t); len(all) != 4 || n != 2 {
		t.Errorf("%d emails and %d blobs are kept", len(all), n)
	}
	server.Close()
	if err := <-done; err != nil && !errors.Is(err, library.ErrServerClosed) {
		t.Error(err)
	}
	if got := try("fine", 1); got != "451 4.7.1" {
		t.Errorf("without the filter that is required: %s", got)
	}
}
