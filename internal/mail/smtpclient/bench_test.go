package smtpclient_test

import (
	"bytes"
	"testing"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtpsink"
)

// BenchmarkSend10KB sends one message over a reused connection. The measured time includes the smtpsink server, which
// runs in the same process.
func BenchmarkSend10KB(b *testing.B) {
	sink, err := smtpsink.Start("127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer sink.Close()
	c, err := smtpclient.Dial(b.Context(), sink.Addr(), smtpclient.Options{TLS: smtpclient.TLSNone})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	header := []byte("DKIM-Signature: v=1\r\n")
	body := bytes.Repeat([]byte("0123456789012345678901234567890123456789012345678901234567890123456789123456\r\n"), 131)
	env := smtpclient.Envelope{From: "a@example.com", To: []string{"b@example.org"}}
	b.SetBytes(int64(len(header) + len(body)))
	b.ReportAllocs()
	for b.Loop() {
		res, err := c.Send(b.Context(), env, header, body)
		if err != nil || !res.Final.Positive() {
			b.Fatalf("%+v %v", res, err)
		}
	}
	if got := sink.Count(); got < int64(b.N) {
		b.Fatalf("the sink counted %d of %d", got, b.N)
	}
}
