package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/blob"
)

func store(t *testing.T) *blob.Store {
	t.Helper()
	s, err := blob.Open(t.Context(), "mem://")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// add stores a small message and returns it.
func add(t *testing.T, b *Outbox, to, subject string) Message {
	t.Helper()
	m, err := b.Add(t.Context(), Message{EmailID: "email", TeamID: "team", ReturnPath: "r@acme.example",
		Recipients: []string{to}},
		[]byte("From: Acme <hello@acme.example>\r\nTo: "+to+"\r\nSubject: "+subject+"\r\n\r\nHi\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ids(all []Message) (ids []string) {
	for _, m := range all {
		ids = append(ids, m.ID)
	}
	return ids
}

func all(t *testing.T, b *Outbox) []Message {
	t.Helper()
	all, err := b.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func filter(t *testing.T, to, from, subject, since string) Filter {
	t.Helper()
	f, err := ParseFilter(to, from, subject, since)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestDescription(t *testing.T) {
	t.Parallel()
	blobs := store(t)
	b := New(blobs, nil)
	var to []string
	for i := range maxAddresses + 20 {
		to = append(to, fmt.Sprintf("a%d@one.example", i))
	}
	raw := "From: =?utf-8?q?Acm=C3=A9?= <hello@acme.example>\r\nTo: Ann <a0@one.example>,\r\n " +
		strings.Join(to[1:], ",\r\n ") + "\r\nCc: c@two.example\r\nSubject: " +
		"=?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" +
		"--b\r\n\r\ntext\r\n--b\r\nContent-Type: application/pdf\r\n" +
		"Content-Disposition: attachment; filename=a.pdf\r\n\r\nx\r\n--b--\r\n"
	m, err := b.Add(t.Context(), Message{EmailID: "email", TeamID: "team", ReturnPath: "r@acme.example",
		Recipients: to, UTF8: true}, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	want := Message{ID: m.ID, EmailID: "email", TeamID: "team", ReturnPath: "r@acme.example", Recipients: to, UTF8: true,
		Size: len(raw), At: m.At, From: []Address{{"hello@acme.example", "Acmé <hello@acme.example>"}},
		To: []Address{{"a0@one.example", "Ann <a0@one.example>"}}, Cc: []Address{{"c@two.example", "c@two.example"}},
		Subject: "Grüße", Attachments: 1}
	for _, a := range to[1:maxAddresses] {
		want.To = append(want.To, Address{a, a})
	}
	again := New(blobs, nil) // after a restart
	for _, b := range []*Outbox{b, again} {
		got, err := b.Get(t.Context(), m.ID)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(err, diff)
		}
		r, err := b.Open(t.Context(), m.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); string(got) != raw || err != nil {
			t.Errorf("%v: %q", err, got)
		}
		r.Close()
	}
}

func TestLongSubject(t *testing.T) {
	t.Parallel()
	m := Message{}
	m.describe([]byte("Subject: x" + strings.Repeat("ü", maxSubject) + "\r\n\r\n"))
	if want := "x" + strings.Repeat("ü", maxSubject/2-1); m.Subject != want {
		t.Errorf("%d bytes: %q", len(m.Subject), m.Subject)
	}
}

// At most Max messages are stored, also if several messages are stored at the same time, and if other nodes stored
// more.
func TestOutboxIsBounded(t *testing.T) {
	t.Parallel()
	blobs := store(t)
	for range Max + 3 {
		x := id.New()
		for suffix, text := range map[string]string{content: "raw", description: `{"id":"` + x + `","email_id":"earlier"}`} {
			if _, err := blobs.Put(t.Context(), prefix+x+suffix, strings.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := New(blobs, nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if _, err := b.Add(t.Context(), Message{EmailID: "new"}, []byte("Subject: x\r\n\r\n")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, b := range []*Outbox{b, New(blobs, nil)} {
		all := all(t, b)
		if len(all) != Max || all[39].EmailID != "new" || all[40].EmailID != "earlier" {
			t.Errorf("%d messages", len(all))
		}
	}
	stored := 0
	err := blobs.List(t.Context(), prefix, func(blob.Info) error {
		stored++
		return nil
	})
	if stored != 2*Max || err != nil {
		t.Errorf("%d blobs, %v", stored, err)
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	b := New(store(t), nil)
	raw := "From: Acme Shop <shop@acme.example>\r\nTo: Ann Lee <ann@one.example>\r\nCc: bob@müller.example\r\n" +
		"Subject: Your ORDER is on its way\r\n\r\n"
	m, err := b.Add(t.Context(), Message{Recipients: []string{"ann@one.example", "Hidden+1@xn--mller-kva.example"}},
		[]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	other := add(t, b, "zoe@zoe.example", "Welcome")
	for _, c := range []struct {
		to, from, subject, since string
		want                     bool
	}{
		{"", "", "", "", true},
		{"ann@one.example", "", "", "", true},
		{"ANN@One.Example", "", "", "", true},
		{"nn@one.example", "", "", "", false},
		{"ann@one.exampl", "", "", "", false},
		{"@one.example", "", "", "", true},
		{"@one", "", "", "", false},
		{"@example", "", "", "", false},
		{"ann", "", "", "", true},
		{"Lee", "", "", "", true},
		{"ann lee", "", "", "", true},
		{"shop", "", "", "", false},
		{"hidden+1@müller.example", "", "", "", true},
		{"bob@MÜLLER.example", "", "", "", true},
		{"@xn--mller-kva.example", "", "", "", true},
		{"", "shop@acme.example", "", "", true},
		{"", "Acme shop", "", "", true},
		{"", "ann", "", "", false},
		{"", "", "order is", "", true},
		{"", "", "orders", "", false},
		{"ann", "shop", "way", "2020-01-01T00:00:00Z", true},
		{"ann", "shop", "no", "2020-01-01T00:00:00Z", false},
		{"", "", "", m.At.Format(time.RFC3339Nano), true},
		{"", "", "", m.At.In(time.FixedZone("", 3600)).Format(time.RFC3339Nano), true},
		{"", "", "", m.At.Add(1).Format(time.RFC3339Nano), false},
		{"", "", "", m.ID, false},
		{"", "", "", "01890000-0000-7000-8000-000000000000", true}, // a deleted message
		{"", "", "", id.New(), false},
	} {
		f, err := ParseFilter(c.to, c.from, c.subject, c.since)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		found, _, err := b.List(t.Context(), f, other.ID, 10)
		if err != nil || (len(found) == 1 && found[0].ID == m.ID) != c.want || len(found) > 1 {
			t.Errorf("%+v: %v, %v", c, ids(found), err)
		}
		if f.HasSince() != (c.since != "") {
			t.Errorf("%+v", c)
		}
	}
	for _, c := range []struct{ to, from, subject, since, field string }{
		{"ann@", "", "", "", "to"},
		{"Ann <ann@one.example>", "", "", "", "to"},
		{"ann 1@one.example", "", "", "", "to"}, // + in a query
		{"a@one.example,b@one.example", "", "", "", "to"},
		{strings.Repeat("x", maxPattern+1), "", "", "", "to"},
		{"", "x@", "", "", "from"},
		{"", "", strings.Repeat("x", maxPattern+1), "", "subject"},
		{"", "", "", "yesterday", "since"},
		{"", "", "", "2026-01-02T15:04:05 02:00", "since"},
		{"", "", "", "2026-01-02", "since"},
		{"", "", "", "x1890000-0000-7000-8000-000000000000", "since"},
	} {
		_, err := ParseFilter(c.to, c.from, c.subject, c.since)
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Kind != fault.Invalid || e.Field != c.field ||
			!strings.Contains(e.Message, "`"+c.field+"`") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	b := New(store(t), nil)
	var want []string
	for i := range 7 {
		want = append(want, add(t, b, "a@one.example", fmt.Sprint(i)).ID)
	}
	slices.Reverse(want)
	var got []string
	for after, more := "", true; more; after = got[len(got)-1] {
		var page []Message
		var err error
		if page, more, err = b.List(t.Context(), Filter{}, after, 3); err != nil {
			t.Fatal(err)
		}
		got = append(got, ids(page)...)
		// The cursor stays valid after its message was deleted, and new messages do not move the pages.
		if err := b.Delete(t.Context(), page[len(page)-1].ID); err != nil {
			t.Fatal(err)
		}
		add(t, b, "a@one.example", "later")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, wrong := range []string{"x", "../secret", want[0] + "0"} {
		if _, _, err := b.List(t.Context(), Filter{}, wrong, 3); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	b := New(store(t), nil)
	first := add(t, b, "a@one.example", "1")
	at, err := b.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, next, err := b.Next(t.Context(), Filter{}, 0); err != nil || next != at || len(got) != 1 ||
		got[0].ID != first.ID {
		t.Fatalf("%v to %d, %v", ids(got), next, err)
	}
	type result struct {
		got []Message
		err error
	}
	results := make(chan result)
	for i := range 50 {
		go func() {
			got, _, err := b.Next(t.Context(), filter(t, fmt.Sprintf("a%d@one.example", i), "", "", ""), at)
			results <- result{got, err}
		}()
	}
	var sent []string
	for i := range 50 {
		sent = append(sent, add(t, b, fmt.Sprintf("a%d@one.example", i), "2").ID)
	}
	var got []string
	for range 50 {
		r := <-results
		if len(r.got) != 1 || r.err != nil {
			t.Fatal(r)
		}
		got = append(got, r.got[0].ID)
	}
	slices.Sort(got)
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Error(diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		got, _, err := b.Next(ctx, filter(t, "", "", "", first.ID), 51)
		results <- result{got, err}
	}()
	cancel()
	if r := <-results; !errors.Is(r.err, context.Canceled) || r.got != nil {
		t.Error(r)
	}
	if got, _, err := b.Next(ctx, filter(t, "", "", "", first.ID), 0); len(got) != 50 || err != nil {
		t.Errorf("%d messages after the first, %v", len(got), err)
	}
	go func() {
		got, _, err := b.Next(t.Context(), Filter{}, 51)
		results <- result{got, err}
	}()
	b.Close()
	if r := <-results; !errors.Is(r.err, ErrClosed) {
		t.Error(r)
	}
	if _, _, err := b.Next(t.Context(), Filter{}, 0); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// A node sees the messages of another node that uses the same blobs.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	blobs := store(t)
	b := New(blobs, nil)
	first := add(t, b, "a@one.example", "0")
	a := New(blobs, func(captureID string) { b.Hear(captureID) })
	if got := all(t, b); len(got) != 1 {
		t.Fatal(got)
	}
	at, err := b.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := make(chan []Message)
	go func() {
		got, _, err := b.Next(t.Context(), filter(t, "", "", "wanted", ""), at)
		if err != nil {
			t.Error(err)
		}
		found <- got
	}()
	other, wanted := add(t, a, "a@one.example", "other"), add(t, a, "a@one.example", "wanted")
	if got := <-found; len(got) != 1 || got[0].ID != wanted.ID {
		t.Errorf("found %v", ids(got))
	}
	b.Hear("../secret")
	b.Hear(id.New()) // deleted before b reads it
	if diff := cmp.Diff([]string{wanted.ID, other.ID, first.ID}, ids(all(t, b))); diff != "" {
		t.Error(diff)
	}
	a.announce = nil
	lost := add(t, a, "a@one.example", "lost")
	if err := a.Delete(t.Context(), other.ID); err != nil {
		t.Fatal(err)
	}
	b.Resync()
	if diff := cmp.Diff([]string{lost.ID, wanted.ID, first.ID}, ids(all(t, b))); diff != "" {
		t.Error(diff)
	}
	for range Max + 1 {
		b.Hear(id.New())
	}
	if got := all(t, b); len(got) != 3 || b.unread != nil {
		t.Errorf("%d messages", len(got))
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	blobs := store(t)
	b := New(blobs, nil)
	m, other := add(t, b, "a@one.example", "1"), add(t, b, "b@one.example", "2")
	before := time.Now()
	if got, err := b.SetRead(t.Context(), m.ID, true); err != nil || !got.Read {
		t.Error(got, err)
	}
	if got, err := b.SetReleased(t.Context(), m.ID); err != nil || !got.Read || got.ReleasedAt.Before(before) {
		t.Error(got, err)
	}
	for _, b := range []*Outbox{b, New(blobs, nil)} {
		got, err := b.Get(t.Context(), m.ID)
		if err != nil || !got.Read || got.ReleasedAt.Before(before) || got.Subject != "1" {
			t.Error(got, err)
		}
	}
	if err := b.Delete(t.Context(), m.ID); err != nil {
		t.Error(err)
	}
	for _, x := range []string{m.ID, "", "../secret", id.New()} {
		_, err := b.Get(t.Context(), x)
		_, err2 := b.Open(t.Context(), x)
		_, err3 := b.SetRead(t.Context(), x, true)
		for _, err := range []error{err, err2, err3, b.Delete(t.Context(), x)} {
			if fault.KindOf(err) != fault.NotFound {
				t.Errorf("%q: %v", x, err)
			}
		}
	}
	if n, err := b.DeleteAll(t.Context(), filter(t, "nobody", "", "", "")); n != 0 || err != nil {
		t.Error(n, err)
	}
	if n, err := b.DeleteAll(t.Context(), filter(t, other.Recipients[0], "", "", "")); n != 1 || err != nil {
		t.Error(n, err)
	}
	if got := all(t, New(blobs, nil)); len(got) != 0 {
		t.Error(got)
	}
}

// A message whose description cannot be read can still be read and deleted.
func TestDamagedDescription(t *testing.T) {
	t.Parallel()
	blobs := store(t)
	m := add(t, New(blobs, nil), "a@one.example", "1")
	for _, text := range []string{"junk", "{}", `{"id":"` + id.New() + `"}`} {
		if _, err := blobs.Put(t.Context(), prefix+m.ID+description, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		got := all(t, New(blobs, nil))
		if len(got) != 1 || got[0].ID != m.ID || got[0].At.Sub(m.At).Abs() > time.Second {
			t.Errorf("%q: %+v", text, got)
		}
	}
	b := New(blobs, nil)
	if r, err := b.Open(t.Context(), m.ID); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
	if err := b.Delete(t.Context(), m.ID); err != nil {
		t.Error(err)
	}
}

// If the blobs are away, all methods fail, and the outbox works again afterwards.
func TestBlobsAway(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "blobs")
	blobs, err := blob.Open(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	b := New(blobs, nil)
	m := add(t, b, "a@one.example", "1")
	if err := os.Rename(folder, folder+"-away"); err != nil {
		t.Fatal(err)
	}
	_, err = b.Add(t.Context(), Message{}, []byte("x"))
	_, err2 := b.SetRead(t.Context(), m.ID, true)
	_, err3 := b.All(t.Context())
	if err3 != nil {
		t.Errorf("a list reads the blobs: %v", err3)
	}
	b.Resync()
	_, err3 = b.All(t.Context())
	_, err4 := New(blobs, nil).Position(t.Context())
	_, _, err5 := b.Next(t.Context(), Filter{}, 0)
	for i, err := range []error{err, err2, err3, err4, err5} {
		if !fault.IsOutage(err) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if err := os.Rename(folder+"-away", folder); err != nil {
		t.Fatal(err)
	}
	if got := all(t, b); len(got) != 1 || got[0].Read {
		t.Error(got)
	}
	if b.adding != 0 {
		t.Errorf("%d are being stored", b.adding)
	}
}

// TestSearch checks that one text is searched in the subject and in all addresses.
func TestSearch(t *testing.T) {
	b := New(store(t), nil)
	ann := add(t, b, "ann@one.example", "Größe")
	zoe := add(t, b, "zoe@two.example", "Second")
	for text, want := range map[string][]string{"": {zoe.ID, ann.ID}, " GRÖSS ": nil, "GRÖ": {ann.ID},
		"one.ex": {ann.ID}, "zoe@": {zoe.ID}, "nothing": nil} {
		f, err := Filter{}.Search(text)
		if err != nil {
			t.Fatal(err)
		}
		found, _, err := b.List(t.Context(), f, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		if got := ids(found); !slices.Equal(got, want) {
			t.Errorf("%q: %v", text, got)
		}
	}
	if _, err := (Filter{}).Search(strings.Repeat("x", maxPattern+1)); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
}

// TestRestore checks that a deleted message returns to its place, and is not a new message.
func TestRestore(t *testing.T) {
	blobs := store(t)
	b := New(blobs, nil)
	first, second, third := add(t, b, "a@one.example", "1"), add(t, b, "b@one.example", "2"),
		add(t, b, "c@one.example", "3")
	if _, err := b.SetRead(t.Context(), second.ID, true); err != nil {
		t.Fatal(err)
	}
	content := func() string {
		r, err := b.Open(t.Context(), second.ID)
		if err != nil {
			return err.Error()
		}
		defer r.Close()
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := content()
	d, err := b.Take(t.Context(), second.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := ids(all(t, b)); !slices.Equal(got, []string{third.ID, first.ID}) || content() == before {
		t.Error(got)
	}
	if _, err := b.Take(t.Context(), second.ID); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
	at, err := b.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time changes nothing
		if err := b.Restore(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{third.ID, second.ID, first.ID}
	found := all(t, b)
	if got := ids(found); !slices.Equal(got, want) || !found[1].Read || content() != before {
		t.Errorf("%v, %+v", got, found[1])
	}
	if now, err := b.Position(t.Context()); err != nil || now != at {
		t.Error(now, err)
	}
	if got := ids(all(t, New(blobs, nil))); !slices.Equal(got, want) {
		t.Error(got)
	}
}
