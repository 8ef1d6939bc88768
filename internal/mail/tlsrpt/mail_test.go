package tlsrpt_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	gomessage "github.com/emersion/go-message"
	verifier "github.com/emersion/go-msgauth/dkim"
	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/dkim/opendkimtest"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
)

func newMail(t *testing.T) tlsrpt.Mail {
	m := tlsrpt.Mail{Domain: "example.com", ID: "<1@acme.example>", Date: time.Now()}
	var err error
	if m.From, err = message.ParseAddress("Postrider <notices@acme.example>"); err != nil {
		t.Fatal(err)
	}
	if m.To, err = message.ParseAddress("tls+reports@example.com"); err != nil {
		t.Fatal(err)
	}
	return m
}

// The email has the form of RFC 8460 section 5.3, and the reader reads the report from its second part.
func TestMail(t *testing.T) {
	t.Parallel()
	m := newMail(t)
	raw, err := m.Compose(sample())
	if err != nil {
		t.Fatal(err)
	}
	e, err := gomessage.Read(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"TLS-Report-Domain": "example.com", "TLS-Report-Submitter": "acme.example",
		"Subject": "Report Domain: example.com Submitter: acme.example Report-ID: <1@acme.example>",
		"To":      "tls+reports@example.com", "Auto-Submitted": "auto-generated"} {
		if got := e.Header.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	parts := e.MultipartReader()
	if _, err := parts.NextPart(); err != nil {
		t.Fatal(err)
	}
	part, err := parts.NextPart()
	if err != nil {
		t.Fatal(err)
	}
	if kind, params, err := part.Header.ContentDisposition(); err != nil || kind != "attachment" ||
		params["filename"] != "acme.example!example.com!1796083200!1796169599.json.gz" {
		t.Errorf("%s, %v, %v", kind, params, err)
	}
	file, err := io.ReadAll(part.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tlsrpt.Read(file); err != nil || cmp.Diff(sample(), got) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(sample(), got))
	}
}

// The signature is valid and covers the fields of the report. OpenDKIM verifies it, too.
func TestMailIsSigned(t *testing.T) {
	t.Parallel()
	m := newMail(t)
	raw, err := m.Compose(sample())
	if err != nil {
		t.Fatal(err)
	}
	key, err := dkim.GenerateRSA()
	if err != nil {
		t.Fatal(err)
	}
	header, err := dkim.Sign(raw, time.Now(), dkim.Signer{Domain: "acme.example", Selector: "s1", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	signed := append(header, raw...)
	valid := func(raw []byte) bool {
		all, err := verifier.VerifyWithOptions(bytes.NewReader(raw), &verifier.VerifyOptions{
			LookupTXT: func(string) ([]string, error) { return []string{key.Record()}, nil }})
		return err == nil && len(all) == 1 && all[0].Err == nil && all[0].Domain == "acme.example"
	}
	if !valid(signed) {
		t.Error("the signature is invalid")
	}
	for _, field := range []string{"TLS-Report-Domain: example.com", "TLS-Report-Submitter: acme.example"} {
		changed := bytes.Replace(signed, []byte(field), []byte(field+".invalid"), 1)
		if valid(changed) || valid(append([]byte(field+"\r\n"), signed...)) {
			t.Errorf("the signature does not cover %s", field)
		}
	}
	opendkimtest.Verify(t, "acme.example", map[string]string{"s1._domainkey.acme.example": key.Record()}, signed)
}
