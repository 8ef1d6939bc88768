package receiving_test

import (
	"context"
	"io"
	"testing"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// passing is an authres.Checker that gives each message the same facts.
type passing struct{ facts *authres.Facts }

func (p passing) Check(context.Context, authres.Origin, io.ReaderAt, int64) authres.Results {
	return authres.Results{Facts: p.facts}
}

// Each stored message is counted once for DMARC reports, except for those that carry reports themselves.
func TestCountForDMARCReports(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	facts, p := &authres.Facts{From: "sender.example"}, f.deps
	p.Auth = passing{facts}
	var counted []*authres.Facts
	p.CountDMARC = func(x *authres.Facts) { counted = append(counted, x) }
	f.Service = testnode.Must(receiving.New(config(), p))
	file := func(name string) string {
		return "Subject: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n" +
			"Content-Type: application/gzip\nContent-Disposition: attachment; filename=\"" + name + "\"\n\nx\n--b--\n"
	}
	for name, c := range map[string]struct {
		raw   string
		count int
	}{
		"plain":            {"Subject: Hello\n\nHello", 1},
		"about reports":    {"Subject: Your Report Domain\n\nHello", 1},
		"DMARC report":     {"Subject: report domain: a.example Submitter: b.example Report-ID: <1>\n\nx", 0},
		"TLS report":       {"Subject: x\nTLS-Report-Domain: a.example\n\nx", 0},
		"report of bounce": {"Subject: x\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\n\n--b--\n", 0},
		"a file":           {file("photo!1.zip"), 1},
		"a report's file":  {file("b.example!a.example!1!2.xml.gz"), 0},
	} {
		counted = nil
		f.deliver(t, c.raw, "x@other.example")
		if len(counted) != c.count || c.count > 0 && counted[0] != facts {
			t.Errorf("%s: counted %v", name, counted)
		}
	}
}
