package domainreports_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/dmarcrpt/dmarcrpttest"
	"github.com/postrider/postrider/internal/sending/domainreports"
)

// composeAll returns a message of a reporter with several files.
func (f *fixture) composeAll(from string, signed bool, files ...[]byte) []byte {
	f.T.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "From: reports@%s\r\nTo: you@example.com\r\nSubject: Report\r\nDate: %s\r\nMIME-Version: 1.0\r\n"+
		"Content-Type: multipart/mixed; boundary=xx\r\n\r\n", from, f.now.Format(time.RFC1123Z))
	for _, file := range files {
		b.WriteString("--xx\r\nContent-Type: application/gzip\r\nContent-Transfer-Encoding: base64\r\n\r\n")
		text := base64.StdEncoding.EncodeToString(dmarcrpttest.Gzip(file))
		for ; len(text) > 76; text = text[76:] {
			b.WriteString(text[:76] + "\r\n")
		}
		b.WriteString(text + "\r\n")
	}
	b.WriteString("--xx--\r\n")
	if !signed {
		return b.Bytes()
	}
	signature, err := dkim.Sign(b.Bytes(), f.now, dkim.Signer{Domain: from, Selector: "s1", Key: f.key})
	f.Must(err)
	return append(signature, b.Bytes()...)
}

// The files of a message share a budget, which is smaller without authentication.
func TestBudgetOfMessage(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		f.reporter("mail.example")
		var files [][]byte
		for i := range 3 {
			r := f.day(d.Name, fmt.Sprint(i), 1+i)
			for k := range 9000 {
				r.rows = append(r.rows, row(d.Name, fmt.Sprintf("10.%d.%d.%d", i, k>>8, k&255), int64(1+k*k%9973), "", false, false))
			}
			files = append(files, r.xml())
		}
		states := func() (all []domainreports.State) {
			for _, r := range f.list(d) {
				all = append(all, r.State)
			}
			return all
		}
		accept(t, c, to, f.composeAll("mail.example", false, files...))
		if got := states(); fmt.Sprint(got) != "[counted counted unreadable]" {
			t.Error(got)
		}
		// The third file is read again, because alone it is within the budget.
		accept(t, c, to, f.composeAll("mail.example", false, files[2]))
		accept(t, c, to, f.composeAll("mail.example", true, files...))
		if got := states(); fmt.Sprint(got) != "[counted counted unreadable counted counted counted counted]" {
			t.Error(got)
		}
	})
}

// Repetitions of a file without proof count against the limit of the day, whether or not the file can be read.
func TestRepeatedFiles(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		good := f.day(d.Name, "1", 1, row(d.Name, foreignSource, 1, "", false, false)).xml()
		for range 3 {
			accept(t, c, to, f.composeAll("mail.example", false, good, []byte("<feedback>")))
		}
		all := f.list(d)
		if len(all) != 2 || all[0].Repeats != 2 || all[1].Repeats != 2 || all[1].State != domainreports.Unreadable {
			t.Errorf("%+v", all)
		}
		if n := f.Count(`SELECT others FROM report_days`); n != 6 {
			t.Errorf("%d reports are counted", n)
		}
		f.Exec(`UPDATE report_days SET others = 200`)
		accept(t, c, to, f.composeAll("mail.example", false, good))
		if n := f.Count(`SELECT dropped FROM report_days`); n != 1 || f.list(d)[0].Repeats != 2 {
			t.Errorf("%d reports are dropped", n)
		}
		// The same file of an authenticated sender is another one.
		f.reporter("mail.example")
		for range 2 {
			accept(t, c, to, f.composeAll("mail.example", true, good))
		}
		if all = f.list(d); len(all) != 3 || !all[2].Proven || all[2].Repeats != 1 {
			t.Errorf("%+v", all)
		}
	})
}
