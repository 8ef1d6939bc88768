package receiving_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tokens"
)

func TestWhoIsTaken(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		emailID := f.send("ann@gone.example")
		path := tokens.ReturnPath(f.Keys, f.Ref(emailID), "gone.example")
		nobodys := tokens.ReturnPath(f.Keys, f.Ref("0198c1a0-0000-7000-8000-000000000000"), "gone.example")
		others := f.Ref(emailID)
		others.Team++
		otherTeams := tokens.ReturnPath(f.Keys, others, "gone.example")
		forged := path[:len(path)-2] + map[bool]string{true: "b", false: "a"}[path[len(path)-2] == 'a'] + path[len(path)-1:]
		managed := f.ManagedHost(f.Acme.TeamID)
		for to, want := range map[string]string{
			"any@in.acme.example":                                      "250",
			"Any+tag@IN.acme.example.":                                 "250",
			"any@other.example":                                        "250",
			"any@acme.example":                                         "550 5.7.1", // this domain only sends mail
			"any@below.in.acme.example":                                "550 5.7.1",
			"any@elsewhere.example":                                    "550 5.7.1",
			path + "@send.acme.example":                                "250",
			strings.ToUpper(path) + "@Send.acme.example":               "250",
			path + "@bounces.postrider.test":                           "250",
			forged + "@send.acme.example":                              "550 5.1.1",
			nobodys + "@send.acme.example":                             "550 5.1.1",
			otherTeams + "@send.acme.example":                          "550 5.1.1",
			"b-short@send.acme.example":                                "550 5.1.1",
			"any@" + managed:                                           "250",
			"any@" + strings.Repeat("a", 26) + ".inbox.postrider.test": "550 5.1.1",
			"any@nobody.inbox.postrider.test":                          "550 5.1.1",
			"postmaster":                                               "250",
			"PostMaster@mx.postrider.test":                             "250",
			"abuse@bounces.postrider.test":                             "250",
			"root@mx.postrider.test":                                   "550 5.1.1",
			"fbl@mx.postrider.test":                                    "250",
			"any%elsewhere.example@mx.postrider.test":                  "550 5.1.1",
			"any@[127.0.0.1]":                                          "550 5.7.1",
			"":                                                         "553 5.1.3",
			"@in.acme.example":                                         "553 5.1.3",
			"any@":                                                     "553 5.1.3",
			"a\x00b@in.acme.example":                                   "553 5.1.3",
			"a\r\nb@in.acme.example":                                   "553 5.1.3",
			"a\xff@in.acme.example":                                    "553 5.1.3",
		} {
			if got := f.offer(t, "jo@sender.example", to); got != want {
				t.Errorf("%q: %s, want %s", to, got, want)
			}
		}
		var all []string
		for range 101 {
			all = append(all, "any@in.acme.example")
		}
		if _, err := f.begin(t, f.Service, "", all...); answer(err) != "452 4.5.3" {
			t.Errorf("101 recipients: %v", err)
		}
	})
}

// Adding a domain, or disabling receiving for it, takes effect immediately.
func TestChangedDomain(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		if got := f.offer(t, "", "any@new.example"); got != "550 5.7.1" {
			t.Fatal(got)
		}
		on, off := true, false
		d, err := f.Domains.AddVerified(t.Context(), f.Other.TeamID, newDomain("new.example", nil, &on))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.offer(t, "", "any@new.example"); got != "250" {
			t.Error(got)
		}
		if err := f.Domains.Update(t.Context(), f.Other.TeamID, d.ID, change(&off)); err != nil {
			t.Fatal(err)
		}
		if got := f.offer(t, "", "any@new.example"); got != "550 5.7.1" {
			t.Error(got)
		}
	})
}

func TestOneMessageToManyTeams(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, size := range []int{100, 200_000} {
			raw := "From: Jo <jo@sender.example>\nTo: list@elsewhere.example\nSubject: All\nMessage-ID: <" +
				strings.Repeat("x", size%7+1) +
				"@sender.example>\n\n" + strings.Repeat("Hello.\n", size/7)
			f.deliver(t, raw, "a@in.acme.example", "b@other.example", "c@in.acme.example", "a@in.acme.example",
				"postmaster@mx.postrider.test")
			acme, other := f.list(t, f.Acme.TeamID)[0], f.list(t, f.Other.TeamID)[0]
			if !slices.Equal(acme.ReceivedFor, []string{"a@in.acme.example", "c@in.acme.example",
				"postmaster@mx.postrider.test"}) ||
				!slices.Equal(other.ReceivedFor, []string{"b@other.example"}) || acme.ID == other.ID {
				t.Errorf("%v and %v", acme.ReceivedFor, other.ReceivedFor)
			}
			if got := f.types(); !slices.Equal(got, []events.Type{events.EmailReceived, events.EmailReceived}) {
				t.Errorf("events %v", got)
			}
			for _, e := range []receiving.Email{acme, other} {
				if got := f.rawOf(t, e); !strings.HasSuffix(got, crlf(raw)) ||
					!strings.HasPrefix(got, "Return-Path: <jo@sender.example>\r\n") {
					t.Errorf("%d bytes came out of %d", len(got), len(raw))
				}
			}
		}
	})
}

func (f *fixture) rawOf(t testing.TB, e receiving.Email) string {
	t.Helper()
	link, _ := f.RawURL(e.TeamID, e.ID, time.Now())
	d, err := f.OpenRaw(t.Context(), token(link))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, d)
}

func token(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

func read(t testing.TB, d receiving.Download) string {
	t.Helper()
	defer d.Body.Close()
	content, err := io.ReadAll(d.Body)
	if err != nil || int64(len(content)) != d.Size {
		t.Fatalf("%d bytes of %d, %v", len(content), d.Size, err)
	}
	return string(content)
}

// Small and large attachments are returned byte for byte. Links expire.
func TestAttachments(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, size := range []int{1000, 3 << 20} {
			files := map[string][]byte{}
			var b strings.Builder
			b.WriteString("Subject: Files\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nSee below.\n")
			for _, name := range []string{"one.bin", "two.bin"} {
				content := make([]byte, size)
				r := rand.NewChaCha8([32]byte{byte(size)})
				r.Read(content)
				files[name] = content
				b.WriteString("--b\nContent-Type: application/octet-stream\nContent-Disposition: attachment; filename=" + name +
					"\nContent-Transfer-Encoding: base64\n\n")
				text := base64.StdEncoding.EncodeToString(content)
				for len(text) > 76 {
					b.WriteString(text[:76] + "\n")
					text = text[76:]
				}
				b.WriteString(text + "\n")
			}
			b.WriteString("--b--\n")
			f.deliver(t, b.String(), "a@in.acme.example")
			e := f.list(t, f.Acme.TeamID)[0]
			if len(e.Files) != 2 {
				t.Fatalf("%d files", len(e.Files))
			}
			for _, file := range e.Files {
				link, expires := f.FileURL(e.TeamID, e.ID, file.ID, time.Now())
				d, err := f.OpenFile(t.Context(), token(link))
				if err != nil {
					t.Fatal(err)
				}
				if got := []byte(read(t, d)); sha256.Sum256(got) != sha256.Sum256(files[file.Filename]) ||
					!bytes.Equal(got, files[file.Filename]) {
					t.Errorf("%s differs", file.Filename)
				}
				if left := time.Until(expires); left < 59*time.Minute || left > time.Hour {
					t.Errorf("the link works for %v", left)
				}
				old, _ := f.FileURL(e.TeamID, e.ID, file.ID, time.Now().Add(-61*time.Minute))
				if _, err := f.OpenFile(t.Context(), token(old)); err == nil || !strings.Contains(err.Error(), "expired") {
					t.Errorf("an old link: %v", err)
				}
				if _, err := f.OpenRaw(t.Context(), token(link)); err == nil {
					t.Error("the link of a file opens the message")
				}
			}
		}
	})
}

func TestThreads(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		sent := f.send("jo@sender.example")
		head := func(id, refs string) string {
			return "Message-ID: <" + id + "@x.example>\n" + refs + "Subject: x\n\nx\n"
		}
		f.deliver(t, head("1", "In-Reply-To: <"+sent+"@acme.example>\nReferences: <"+sent+"@acme.example>\n"),
			"a@in.acme.example")
		f.deliver(t, head("2", "References: <"+sent+"@acme.example> <1@x.example>\n"), "a@in.acme.example")
		f.deliver(t, head("3", ""), "a@in.acme.example")
		f.deliver(t, head("4", "In-Reply-To: <3@x.example>\n"), "a@in.acme.example", "a@other.example")
		f.deliver(t, head("5", "In-Reply-To: <unknown@x.example>\n"), "a@in.acme.example")
		all := f.list(t, f.Acme.TeamID)
		want := []string{all[0].ID, all[2].ID, all[2].ID, sent, sent}
		for i, e := range all {
			if e.ThreadID != want[i] {
				t.Errorf("message %d is of thread %s, want %s", 5-i, e.ThreadID, want[i])
			}
		}
		text := "An answer."
		answer, err := f.Emails.Send(t.Context(), f.Acme, emails.Send{From: "hello@acme.example",
			To: []string{"jo@sender.example"}, Subject: "Re: x",
			Text: &text, Headers: []message.Field{{Name: "In-Reply-To", Value: "<3@x.example>"},
				{Name: "References", Value: "<3@x.example>"}}},
			emails.Idempotency{})
		if err != nil {
			t.Fatal(err)
		}
		for emailID, want := range map[string]string{sent: sent, answer: all[2].ID} {
			if got, err := f.SentThread(t.Context(), f.Acme.TeamID, emailID); err != nil || got != want {
				t.Errorf("a sent email is of thread %s, want %s, %v", got, want, err)
			}
		}
		if e := f.list(t, f.Other.TeamID)[0]; e.ThreadID != e.ID {
			t.Error("another team's message is of a thread of ours")
		}
	})
}

// Every hostile message is accepted, listed and shown.
func TestHostileMessages(t *testing.T) {
	files, err := filepath.Glob("../../mail/mailparse/testdata/hostile/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	each(t, func(t *testing.T, f *fixture) {
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			f.deliver(t, string(raw), "a@in.acme.example")
		}
		many := "To: " + strings.Repeat("a@example.org, ", 20_000) + "b@example.org\nSubject: " +
			strings.Repeat("x", 200_000) + "\x00\xff\n\n"
		f.deliver(t, many, "a@in.acme.example")
		all := f.list(t, f.Acme.TeamID)
		if len(all) != len(files)+1 {
			t.Errorf("%d of %d are listed", len(all), len(files)+1)
		}
		for _, e := range all {
			if _, _, err := f.Get(t.Context(), e.TeamID, e.ID, receiving.DataURI); err != nil {
				t.Errorf("%s: %v", e.ID, err)
			}
		}
	})
}

func TestLoops(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	c, err := f.begin(t, f.Service, "", "a@in.acme.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Data(t.Context(), strings.NewReader(strings.Repeat("Received: by x\r\n", 101)+"\r\n")); answer(
		err) != "554 5.4.6" {
		t.Errorf("%v", err)
	}
}

// TestFullDisk: if the disk is full, the SMTP reply asks the client to retry later. Stored messages remain, and a
// message that the client sends again later is stored.
func TestFullDisk(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	ctx := t.Context()
	limit := func(pages int) {
		t.Helper()
		if err := f.DB.Update(ctx, func(tx *db.Tx) error {
			var now int
			return tx.QueryRow(ctx, `PRAGMA max_page_count = `+[]string{"1", "1000000"}[pages]).Scan(&now)
		}); err != nil {
			t.Fatal(err)
		}
	}
	f.deliver(t, "Subject: before\n\n", "a@in.acme.example")
	limit(0) // SQLite treats 0 as the current number of pages
	for range 20 {
		c, err := f.begin(t, f.Service, "", "a@in.acme.example")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Data(ctx, strings.NewReader("Subject: during\r\n\r\n"+strings.Repeat("x", 60_000))); err == nil {
			t.Fatal("taken without space")
		} else if got := answer(err); got[0] != '4' {
			t.Errorf("without space: %s", got)
		}
	}
	limit(1)
	f.deliver(t, "Subject: after\n\n", "a@in.acme.example")
	if all := f.list(t, f.Acme.TeamID); len(all) != 2 || all[0].Subject != "after" || all[1].Subject != "before" {
		t.Errorf("%d emails", len(all))
	}
}

// If the disk is full, a refused large message leaves no data behind.
func TestNoRoomForBlobs(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	c, err := f.begin(t, f.Service, "", "a@in.acme.example")
	if err != nil {
		t.Fatal(err)
	}
	broken := io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), failing{})
	if _, err := c.Data(t.Context(), broken); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
	if n := f.blobCount(t); n != 0 || len(f.list(t, f.Acme.TeamID)) != 0 {
		t.Errorf("%d blobs stay of a message that broke off", n)
	}
}

var errBroken = errors.New("the client is gone")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

func (f *fixture) blobCount(t testing.TB) (n int) {
	t.Helper()
	if err := f.Blobs.List(t.Context(), "received/", func(blob.Info) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// Large messages wait for memory, and are refused temporarily if no memory becomes available in time.
func TestMemory(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	c := config()
	c.Memory = 1 << 20
	s := testnode.Must(receiving.New(c, f.deps))
	for range 5 { // each message needs all the memory
		session, err := f.begin(t, s, "", "a@in.acme.example")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := session.Data(t.Context(), strings.NewReader(strings.Repeat("x\r\n", 1<<20))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.list(t, f.Acme.TeamID)); n != 5 {
		t.Errorf("%d emails", n)
	}
}

// If a network's large messages use up its share of memory, other networks and teams that read mail still get memory.
func TestNetworksShareMemory(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	c, p := config(), f.deps
	c.Memory = 8 << 20
	judging := slow{make(chan string, 10), make(chan struct{})}
	p.Auth = judging
	addr := serveFor(t, smtpserver.Config{}, testnode.Must(receiving.New(c, p)))
	large := "Subject: x\r\n\r\n" + strings.Repeat("x\r\n", 1<<19/3) // needs 1.5 MB of memory during processing
	var all sync.WaitGroup
	transmit := func(from string) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		nc, err := d.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		client := smtp.NewClient(nc)
		defer client.Close()
		if err := client.SendMail("jo@sender.example", []string{"a@in.acme.example"}, strings.NewReader(large)); err != nil {
			t.Errorf("from %s: %v", from, err)
		}
	}
	for i := range 6 {
		all.Go(func() { transmit(fmt.Sprintf("127.0.1.%d", i+1)) })
	}
	for range 4 { // At most this many messages are processed at the same time.
		<-judging.begun
	}
	all.Go(func() { transmit("127.0.2.1") })
	if from := <-judging.begun; from != "127.0.2.1" {
		t.Errorf("a message from %s goes first", from)
	}
	close(judging.end)
	all.Wait()
	if n := len(f.list(t, f.Acme.TeamID)); n != 7 {
		t.Errorf("%d emails", n)
	}
}

// slow is a checker that blocks until the test closes the channel end.
type slow struct {
	begun chan string // receives each client address
	end   chan struct{}
}

func (s slow) Check(ctx context.Context, o authres.Origin, _ io.ReaderAt, _ int64) authres.Results {
	s.begun <- o.Addr.String()
	select {
	case <-s.end:
	case <-ctx.Done():
	}
	return authres.Results{DKIM: []authres.Verdict{{Result: "none"}}}
}

// A client that downloads an attachment slowly occupies only its team's share of memory.
func TestSlowDownloadsShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.SQLite(t))
		c := config()
		c.Memory = 8 << 20
		s := testnode.Must(receiving.New(c, f.deps))
		file := "MIME-Version: 1.0\nContent-Type: application/octet-stream\nContent-Disposition: attachment; filename=a\n\n" +
			strings.Repeat("x\n", 1<<20/3)
		f.deliver(t, file, "a@in.acme.example", "b@other.example")
		open := func(teamID string) (receiving.Download, error) {
			e := f.list(t, teamID)[0]
			link, _ := s.FileURL(teamID, e.ID, e.Files[0].ID, time.Now())
			return s.OpenFile(t.Context(), token(link))
		}
		var all []receiving.Download
		for {
			d, err := open(f.Acme.TeamID)
			if err != nil {
				if fault.KindOf(err) != fault.Unavailable {
					t.Error(err)
				}
				break
			}
			all = append(all, d)
		}
		if n := len(all); n < 2 || n > 7 {
			t.Errorf("%d downloads of a megabyte at a time out of 8 MB", n)
		}
		start := time.Now()
		d, err := open(f.Other.TeamID)
		if err != nil || time.Since(start) != 0 {
			t.Fatalf("another team waits %v, %v", time.Since(start), err)
		}
		all = append(all, d)
		for _, d := range all {
			read(t, d)
		}
		for range 20 {
			if d, err = open(f.Acme.TeamID); err != nil {
				t.Fatal(err)
			}
			read(t, d)
		}
	})
}
