package receiving

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/milter"
	"github.com/postrider/postrider/internal/mail/report"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// headerSafe makes untrusted strings safe to use in header fields.
func TestTextsOfStrangers(t *testing.T) {
	for in, want := range map[string]string{"a!b": "a!b", "a b": "a?b", "a\r\nb": "a??b", "a\x7fb": "a?b", "(a)": "?a?",
		"<a>": "?a?", "~": "~", "é": "é"} {
		if got := headerSafe(in); got != want {
			t.Errorf("%q has become %q", in, got)
		}
	}
}

// split splits an address at its last @ and converts its host to lower-case ASCII.
func TestSplitAddresses(t *testing.T) {
	long := strings.Repeat("x", 320-len("@one.example")) + "@one.example"
	for in, want := range map[string][2]string{"a@One.Example.": {"a", "one.example"},
		"A@one.example": {"A", "one.example"}, "a@b@one.example": {"a@b", "one.example"},
		"a@bücher.example": {"a", "xn--bcher-kva.example"}, "Postmaster": {"postmaster", ""},
		"a@not_a_name": {"a", "not_a_name"},
		long:           {strings.TrimSuffix(long, "@one.example"), "one.example"}} {
		if local, host, err := split(in); err != nil || local != want[0] || host != want[1] {
			t.Errorf("%.40q: %.40q, %q, %v", in, local, host, err)
		}
	}
	for _, in := range []string{"", "a", "@one.example", "a@", "a@.", "a\x00@one.example", "a\n@one.example",
		"\xff@one.example", "x" + long} {
		if _, _, err := split(in); !errors.Is(err, badRecipient) {
			t.Errorf("%.40q: %v", in, err)
		}
	}
}

// A team's label below the managed domain encodes its id, and only one spelling of the label is valid.
func TestLabelsOfTeams(t *testing.T) {
	s := &Service{c: Config{ManagedDomain: "managed.example"}}
	teamID := uuid.NewString()
	label, below, _ := strings.Cut(s.ManagedHost(teamID), ".")
	if got, ok := teamOfLabel(label); !ok || got != teamID || below != "managed.example" {
		t.Errorf("%s is %s, %v, below %s", label, got, ok, below)
	}
	for _, other := range []string{"", label[1:], label + "a", strings.ToUpper(label), label[:len(label)-1] + "1",
		label[:len(label)-1] + "7"} {
		if got, ok := teamOfLabel(other); ok || got != "" {
			t.Errorf("%s is %s", other, got)
		}
	}
	if got := s.ManagedHost("no id"); got != "" {
		t.Error(got)
	}
	s.c.ManagedDomain = ""
	if got := s.ManagedHost(teamID); got != "" {
		t.Error(got)
	}
}

// distinctTargets removes duplicate recipients. A return path counts once, however its host is spelled.
func TestDistinct(t *testing.T) {
	r := &emails.BounceTarget{}
	all := []target{{address: "a"}, {address: "b"}, {address: "a"}, {address: "r@one", report: r, local: "r"},
		{address: "r@two", report: r, local: "r"},
		{address: "s@one", report: r, local: "s"}, {address: "c", local: "r"}}
	got := ""
	for _, p := range distinctTargets(all) {
		got += p.address + " "
	}
	if got != "a b r@one s@one c " {
		t.Error(got)
	}
}

// references selects a message's nearest references, and always the first message of the conversation.
func TestReferences(t *testing.T) {
	many := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("<r", i, ">"))
		}
		return all
	}
	for _, c := range []struct {
		name        string
		reply, refs []string
		n           int
		first, last string
	}{
		{"none", nil, nil, 0, "", ""},
		{"an answer", []string{" <a> "}, nil, 1, "<a>", "<a>"},
		{"the same", []string{"<a>", "<a>", ""}, []string{"<b>", "<a>"}, 2, "<a>", "<b>"},
		{"the closest first", []string{"<a>"}, many(3), 4, "<a>", "<r0>"},
		{"as many as are looked for", nil, many(referencesMax), referencesMax, "<r19>", "<r0>"},
		{"more", nil, many(100), referencesMax, "<r99>", "<r0>"},
		{"many answers", many(100), []string{"<b>"}, referencesMax, "<r0>", "<b>"},
	} {
		got := references(c.reply, c.refs)
		if len(got) != c.n || c.n > 0 && (got[0] != c.first || got[len(got)-1] != c.last) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// Values that are stored in a row are limited in size. For each limit of a stored value, the test stores a value at the
// limit and a value beyond it.
func TestBoundsOfRows(t *testing.T) {
	list := make([]message.Address, addressesMax+1)
	for n, want := range map[int]int{0: 0, addressesMax: addressesMax, addressesMax + 1: addressesMax} {
		if got := addressesOf(list[:n]); len(got) != want || got == nil {
			t.Errorf("of %d addresses %d are shown", n, len(got))
		}
	}
	for n, want := range map[int]int{0: 0, filesMax: filesMax, filesMax + 1: filesMax} {
		m := &incoming{parsed: &mailparse.Parsed{Files: make([]mailparse.File, n)}, origin: Origin{MailFrom: "f@one.example"},
			raw: []byte("raw")}
		e := m.draft()
		if len(e.Files) != want || e.From != "f@one.example" || e.Size != 3 {
			t.Errorf("of %d files %d are shown: from %s, %d bytes", n, len(e.Files), e.From, e.Size)
		}
		if n > 0 && e.Files[0].ContentType != "application/octet-stream" {
			t.Errorf("a file of no type is %s", e.Files[0].ContentType)
		}
	}
	m := &incoming{parsed: &mailparse.Parsed{From: []message.Address{{Local: "a", Domain: "one.example"},
		{Local: "b", Domain: "one.example"}}}}
	if e := m.draft(); e.From != "a@one.example" {
		t.Errorf("from %s", e.From)
	}
}

// A session accepts a limited number of recipients per message, and accepts new recipients after a reset.
func TestRecipientsOfAMessage(t *testing.T) {
	c := &session{s: &Service{}, to: make([]target, recipientsMax)}
	if r, ok := c.Rcpt(t.Context(), "a@one.example").(*smtpserver.Refusal); !ok || r.Code != 452 {
		t.Errorf("one too many: %v", r)
	}
	c.to = c.to[:recipientsMax-1]
	if err := c.Rcpt(t.Context(), "no address"); !errors.Is(err, badRecipient) {
		t.Errorf("the last: %v", err)
	}
	c.origin.MailFrom, c.size = "f@one.example", 7
	if c.Reset(); c.to != nil || c.size != 0 || c.origin.MailFrom != "" {
		t.Errorf("after a reset: %+v", c)
	}
	if r, ok := c.Auth(t.Context(), "user", "password").(*smtpserver.Refusal); !ok || r.Code != 503 {
		t.Errorf("a password: %v", r)
	}
}

// A message with 100 Received fields is accepted; a message with 101 counts as a mail loop.
func TestHopsAtTheirEdge(t *testing.T) {
	s := &Service{}
	for n, circle := range map[int]bool{0: false, hopsMax: false, hopsMax + 1: true} {
		p := &mailparse.Parsed{Header: append(slices.Repeat([]message.Field{{Name: "RECEIVED"}}, n),
			message.Field{Name: "Subject"})}
		err := s.judge(t.Context(), &incoming{parsed: p, to: []target{{report: &emails.BounceTarget{}}}})
		if r, ok := err.(*smtpserver.Refusal); ok != circle || ok && r.Code != 554 {
			t.Errorf("%d hosts: %v", n, err)
		}
	}
}

// The SMTP reply from a content filter is used if its code matches the filter's verdict.
func TestRefusalsOfAFilter(t *testing.T) {
	for _, c := range []struct {
		v        milter.Verdict
		code     int
		enhanced string
		text     string
	}{
		{milter.Verdict{}, 550, "5.7.1", "ours"},
		{milter.Verdict{Code: 554, Text: "No."}, 554, "5.7.1", "No."},
		{milter.Verdict{Code: 451, Text: "No."}, 550, "5.7.1", "No."},
		{milter.Verdict{Code: 554, Text: "5.6.2 No."}, 554, "5.6.2", "No."},
		{milter.Verdict{Text: "4.6.2 No."}, 550, "5.7.1", "4.6.2 No."},
		{milter.Verdict{Text: "5.6 No."}, 550, "5.7.1", "5.6 No."},
		{milter.Verdict{Text: "5.6.2.1 No."}, 550, "5.7.1", "5.6.2.1 No."},
	} {
		r, ok := refusal(c.v, 550, "5.7.1", "ours").(*smtpserver.Refusal)
		if !ok || r.Code != c.code || r.Enhanced != c.enhanced || !strings.Contains(r.Error(), c.text) {
			t.Errorf("%+v: %v", c.v, r)
		}
	}
}

// The recipient named in a report is matched case-insensitively. If an email has only one recipient, a report about the
// email concerns that recipient.
func TestWhomAReportNames(t *testing.T) {
	one, two := []string{"a@one.example"}, []string{"a@one.example", "b@one.example"}
	for _, c := range []struct {
		near, names  []string
		named, match string
	}{
		{one, []string{"A@ONE.example"}, "a@one.example", "a@one.example"},
		{one, []string{"x@one.example"}, "", "a@one.example"},
		{one, nil, "", "a@one.example"},
		{two, []string{"x@one.example"}, "", ""},
		{two, []string{"x@one.example", "b@one.example"}, "b@one.example", "b@one.example"},
		{nil, []string{"a@one.example"}, "", ""},
	} {
		if got := named(c.near, c.names...); got != c.named {
			t.Errorf("%q of %q is %q", c.names, c.near, got)
		}
		if got := match(c.near, c.names...); got != c.match {
			t.Errorf("%q of %q can be %q", c.names, c.near, got)
		}
	}
}

// Possible proofs in a report are collected without duplicates, up to a limit, starting with the reported message. A
// message identifies a provider if it has a single author and a signature by the author's domain.
func TestProofsOfReports(t *testing.T) {
	proof := func(i int) string { return fmt.Sprintf("b-%s%c%c", strings.Repeat("a", 46), 'a'+i/26, 'a'+i%26) }
	var many strings.Builder
	for i := range 30 {
		many.WriteString(strings.ToUpper(proof(i)) + "\n" + proof(i) + "\n")
	}
	field := message.Field{Name: "RETURN-path", Value: "<" + proof(29) + "@one.example>"}
	other := message.Field{Name: "X-Other", Value: proof(28)}
	got := quotedProofs([]byte(many.String()), &report.Report{Original: []message.Field{other, field, field},
		MailFrom: proof(27)})
	if len(got) != 7 || got[0] != proof(29) || got[1] != proof(27) || got[2] != proof(0) || got[6] != proof(4) {
		// expect ten distinct proofs, although each occurs twice
		t.Errorf("%d: %q", len(got), got)
	}
	fields := make([]message.Field, 30)
	for i := range fields {
		fields[i] = message.Field{Name: tokens.FeedbackField, Value: proof(i)}
	}
	if got := quotedProofs(nil, &report.Report{Original: fields}); len(got) != 20 {
		t.Errorf("of 30 fields %d are looked at", len(got))
	}

	s := &Service{c: Config{Providers: []string{"Provider.example", "abuse@other.example"}}}
	at := func(local, domain string) message.Address { return message.Address{Local: local, Domain: domain} }
	pass := func(domain string) *authres.Results {
		return &authres.Results{DKIM: []authres.Verdict{{Result: "fail", Domain: "provider.example"},
			{Result: "pass", Domain: domain}}}
	}
	for i, c := range []struct {
		auth *authres.Results
		from []message.Address
		want bool
	}{
		{pass("PROVIDER.example"), []message.Address{at("fbl", "provider.example")}, true},
		{pass("other.example"), []message.Address{at("abuse", "other.example")}, true},
		{pass("other.example"), []message.Address{at("jo", "other.example")}, false},
		{pass("another.example"), []message.Address{at("fbl", "provider.example")}, false},
		{&authres.Results{}, []message.Address{at("fbl", "provider.example")}, false},
		{nil, []message.Address{at("fbl", "provider.example")}, false},
		{pass("provider.example"), nil, false},
		{pass("provider.example"), []message.Address{at("fbl", "provider.example"), at("jo", "one.example")}, false},
	} {
		if got := s.fromProvider(&incoming{auth: c.auth, parsed: &mailparse.Parsed{From: c.from}}); got != c.want {
			t.Errorf("case %d: from a provider: %v", i, got)
		}
	}
}
