package emails

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// fillBatch returns a batch with no more rows than one transaction may delete. The batch ends before an email that
// would exceed the limit, but a single email may exceed the limit on its own. The rows of emails that are not settled
// do not count.
func TestFillBatch(t *testing.T) {
	e := func(settled bool, rows ...int) (all []removable) {
		for _, n := range rows {
			all = append(all, removable{settled: settled, rows: n})
		}
		return all
	}
	for _, c := range []struct {
		name      string
		some      []removable
		ids, left int
		last      string
		more      bool
	}{
		{"nothing", nil, 0, 0, "", false},
		{"few", e(true, 1, 2), 2, 0, "1", false},
		{"all that fits", e(true, 249, 249), 2, 0, "1", false},
		{"one row more", e(true, 249, 250), 1, 0, "0", true},
		{"one that is too large", e(true, 600), 1, 0, "0", false},
		{"one that is too large, behind another", e(true, 1, 600), 1, 0, "0", true},
		{"one that is too large, and another", e(true, 600, 1), 1, 0, "0", true},
		{"what waits takes no room", slices.Concat(e(false, 600, 600), e(true, 249, 247)), 2, 2, "3", false},
		{"but its own", slices.Concat(e(false, 600, 600), e(true, 249, 248)), 1, 2, "2", true},
		{"what waits ends no batch", slices.Concat(e(true, 400), e(false, 400), e(true, 90)), 2, 1, "2", false},
		{"as many emails as are asked for", e(true, make([]int, removeEmails)...), removeEmails, 0, "99", true},
		{"as many that wait", e(false, make([]int, removeEmails)...), 0, removeEmails, "99", true},
		{"one less", e(true, make([]int, removeEmails-1)...), removeEmails - 1, 0, "98", false},
	} {
		for i := range c.some {
			c.some[i].id = fmt.Sprint(i)
		}
		b := fillBatch(c.some)
		if len(b.ids) != c.ids || len(b.unsettled) != c.left || b.last != c.last || b.more != c.more {
			t.Errorf("%s: %d are deleted and %d left, up to %q, more %v", c.name, len(b.ids), len(b.unsettled), b.last, b.more)
		}
		if next := b.next(); c.more && next != c.last || !c.more && next != "" {
			t.Errorf("%s: it goes on behind %q", c.name, next)
		}
	}
}

// The memory needed to compose an email is estimated from the sizes of its text, HTML and attachments.
func TestMemory(t *testing.T) {
	html, text := strings.Repeat("h", 1000), strings.Repeat("t", 200)
	for _, c := range []struct {
		name       string
		html, text *string
		files      []int
		want       int64
	}{
		{"nothing", nil, nil, nil, 1024},
		{"a text", nil, &text, nil, 400 + 1024},
		{"both", &html, &text, nil, 2400 + 1024},
		{"files", &html, &text, []int{10_000, 3000}, 2400 + 25_000 + 7500 + 1024},
	} {
		d := &draft{Send: Send{HTML: c.html, Text: c.text}}
		for _, n := range c.files {
			d.Attachments = append(d.Attachments, Upload{Content: make([]byte, n)})
		}
		if got := d.memory(); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
		d.raw = &Raw{Header: make([]byte, 100), Body: make([]byte, 5000)}
		var shown int64
		for _, s := range []*string{c.html, c.text} {
			if s != nil {
				shown += int64(len(*s))
			}
		}
		if got, want := d.memory(), shown+2*5100+1024; got != want {
			t.Errorf("%s, composed: %d bytes, want %d", c.name, got, want)
		}
	}
}

// The waits between a job's tries increase, and the lease of a fetch job is longer than the time limit for a fetch.
func TestKinds(t *testing.T) {
	for _, k := range (&Service{}).Kinds() {
		if len(k.Schedule) != 5 || k.Schedule[0] != time.Second || k.Schedule[4] != 15*time.Minute || !k.Endless {
			t.Errorf("%s waits for %v, endless %v", k.Name, k.Schedule, k.Endless)
		}
		for i := 1; i < len(k.Schedule); i++ {
			if k.Schedule[i] <= k.Schedule[i-1] {
				t.Errorf("%s waits for %v", k.Name, k.Schedule)
			}
		}
		if k.Name == FetchKind && k.Lease <= fetchTime {
			t.Errorf("%s is leased for %v", k.Name, k.Lease)
		}
	}
}

// If content cannot currently be read, the error is a fault of kind Unavailable, so that the client will retry. Errors
// about lost content and invalid requests are returned unchanged.
func TestUnreadable(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	disk, mistake := errors.New("the disk is on fire"), fault.Invalidf("", "No.")
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want fault.Kind
	}{
		{"a disk", t.Context(), disk, fault.Unavailable},
		{"a disk, when nobody waits", gone, disk, fault.Internal},
		{"a file that is lost", t.Context(), fmt.Errorf("open: %w", blob.ErrNotFound), fault.Internal},
		{"a row that is lost", t.Context(), fmt.Errorf("read: %w", db.ErrNoRows), fault.Internal},
		{"a mistake", t.Context(), mistake, fault.Invalid},
	} {
		if err := unreadable(c.ctx, c.err); fault.KindOf(err) != c.want || c.want != fault.Unavailable && !errors.Is(err,
			c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := unreadable(t.Context(), nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
	if isLost(fs.ErrPermission) {
		t.Error("what may not be read is taken for lost")
	}
}

// If it is unknown whether emails were accepted, the error says what the client should do. The advice depends on
// whether the request has an idempotency key.
func TestUnknownError(t *testing.T) {
	for _, c := range []struct {
		ids  int
		key  string
		says []string
	}{
		{1, "", []string{"The email may", "Look at the list"}},
		{2, "", []string{"The emails may", "Look at the list"}},
		{1, "k", []string{"The email may", "same idempotency key"}},
	} {
		a := &answer{IDs: make([]string, c.ids), key: Idempotency{Key: c.key}}
		err := a.unknownError(fmt.Errorf("commit: %w", db.ErrUnknown))
		for _, text := range c.says {
			if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), text) {
				t.Errorf("%d emails, key %q: %v, want %q", c.ids, c.key, err, text)
			}
		}
	}
}

// When the payload of a delivery job is decoded, the result equals the encoded value, with the destination of the lane.
// An invalid payload causes an error.
func TestDeliveryPayload(t *testing.T) {
	in := Delivery{EmailID: "e", TeamID: "team", Domain: "one.example", Only: true, To: []string{"a@one.example"}, Size: 7,
		Bulk: true}
	out, err := DecodeDelivery(in.Encode(), Lane(in.Domain, "team", true))
	if err != nil || fmt.Sprint(out) != fmt.Sprint(in) {
		t.Errorf("%+v has become %+v, %v", in, out, err)
	}
	if out, err := DecodeDelivery("{", ""); err == nil {
		t.Errorf("half a payload is %+v", out)
	}
}

// A message requires SMTPUTF8 only if the message or one of its addresses contains non-ASCII characters.
func TestNeedsUTF8(t *testing.T) {
	for _, c := range []struct {
		flags int
		to    []string
		want  bool
	}{
		{0, []string{"~a@one.example", "b@one.example"}, false},
		{0, []string{"a@one.example", "ü@one.example"}, true},
		{needsUTF8 | isRaw, []string{"a@one.example"}, true},
		{isRaw | hasFiles, []string{"a@one.example"}, false},
		{0, nil, false},
	} {
		o := &Outgoing{To: c.to, body: bodies{flags: c.flags}}
		if got := o.needsUTF8(); got != c.want {
			t.Errorf("flags %b to %q: %v", c.flags, c.to, got)
		}
	}
}

// FromMessageID accepts only a Message-ID whose local part is a UUID, in uppercase or lowercase.
func TestFromMessageID(t *testing.T) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	for text, want := range map[string]string{"<" + id + "@acme.example>": id, " <" + strings.ToUpper(id) +
		"@acme.example> ": id,
		id + "@acme.example": id, id: "", "<" + id + ">": "", "<other@acme.example>": "", "": "", "<@acme.example>": ""} {
		if got, ok := FromMessageID(text); got != want || ok != (want != "") {
			t.Errorf("%q is of %q, %v", text, got, ok)
		}
	}
}

// stripNUL removes only NUL characters, which PostgreSQL does not accept, and leaves everything else unchanged.
func TestStripNUL(t *testing.T) {
	for in, want := range map[string]string{"": "", "a": "a", "\x00a": "a", "a\x00b\x00": "ab"} {
		if got := stripNUL(&in); got == nil || *got != want {
			t.Errorf("%q is shown as %v", in, got)
		}
	}
	if stripNUL(nil) != nil {
		t.Error("no text is shown as one")
	}
}

// A node executes only one request at a time per idempotency key. After the request has ended, the key can be used
// again.
func TestRunningKeys(t *testing.T) {
	r := running{m: map[string]bool{}}
	for i, enters := range []bool{true, false, false} {
		if r.acquire("a") != enters {
			t.Errorf("request %d is carried out: %v", i, !enters)
		}
	}
	if !r.acquire("b") {
		t.Error("another key waits")
	}
	if r.release("a"); !r.acquire("a") || r.acquire("b") {
		t.Error("not the key that was left is free")
	}
}

// The numbers of states in the database never change, because rows keep them.
func TestStateNumbers(t *testing.T) {
	want := map[State]int16{"scheduled": 1, "queued": 2, "sent": 3, "delivery_delayed": 4, "delivered": 5, "opened": 6,
		"clicked": 7, "bounced": 8, "failed": 9, "suppressed": 10, "canceled": 11, "complained": 12}
	for state := range rank {
		if number := states.Number(state); number != want[state] {
			t.Errorf("%s has the number %d, want %d", state, number, want[state])
		}
	}
	for typ, state := range stateOf {
		if number := events.Types.Number(typ); number != want[state] {
			t.Errorf("%s has the number %d, and its state %d", typ, number, want[state])
		}
	}
	for kind, number := range map[string]int16{"to": 1, "cc": 2, "bcc": 3} {
		if got := recipientKinds.Number(kind); got != number {
			t.Errorf("%s has the number %d, want %d", kind, got, number)
		}
	}
	if len(want) != len(rank) {
		t.Errorf("there are %d states", len(rank))
	}
	// Delivery does not send an email whose state it does not know; those who look at the email see the number.
	unknown := emailRow{last: 99, actor: 1}
	unknown.only = "a@example.org"
	if e, err := unknown.email(); err != nil || e.LastEvent != "unknown_state_99" {
		t.Errorf("an unknown state is read as %q, %v", e.LastEvent, err)
	}
	for i, r := range []emailRow{{last: 99, actor: 1}, {last: 2, actor: 99}} {
		if err := r.complete(); err == nil || !strings.Contains(err.Error(), "99") {
			t.Errorf("row %d: %v", i, err)
		}
	}
}
