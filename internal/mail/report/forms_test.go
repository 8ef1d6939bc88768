package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Header fields show that a program wrote a message: the fields defined in RFC 3834 section 5, and fields that some
// programs write instead.
func TestMachineAuthors(t *testing.T) {
	const away = "Subject: Out of office\n"
	for header, want := range map[string]struct{ auto, away, daemon, machine bool }{
		"Auto-Submitted: auto-replied\n":        {auto: true, machine: true},
		"Auto-Submitted: Auto-Generated; x=y\n": {auto: true, machine: true},
		"Auto-Submitted: No\n":                  {},
		"Auto-Submitted: no; x\n":               {},
		"Content-Type: multipart/report; report-type=disposition-notification; boundary=b\n": {auto: true, daemon: true,
			machine: true},
		"Content-Type: multipart/report; report-type=delivery-status; boundary=b\n": {daemon: true, machine: true},
		"X-Failed-Recipients: ann@dest.example\n":                                   {daemon: true, machine: true},
		"X-Autoreply: yes\n":                  {auto: true, away: true},
		"X-Autoreply: No\n":                   {},
		"X-Vacation: None\n":                  {},
		"X-Vacation: 1\n":                     {auto: true, away: true},
		"X-Auto-Response-Suppress: All\n":     {auto: true},
		"X-Auto-Response-Suppress: None\n":    {},
		"Precedence: auto_reply\n":            {auto: true, away: true},
		"X-Precedence: AUTO_REPLY\n":          {auto: true, away: true},
		"X-Precedence: bulk\n":                {},
		"Precedence: bulk\n":                  {},
		"Precedence: bulk\n" + away:           {auto: true, away: true},
		"Precedence: junk\n" + away:           {auto: true, away: true},
		"Precedence: list\n" + away:           {auto: true, away: true},
		"In-Reply-To: <a@b.example>\n" + away: {auto: true, away: true},
		"References: <a@b.example>\n" + away:  {auto: true, away: true},
		away:                                  {},
		"From: MAILER-DAEMON@dest.example\n":  {daemon: true, machine: true},
		"From: Postmaster <postmaster@dest.example>\nSubject: Re: your question\n": {},
		"Subject: Undelivered mail\n": {},
	} {
		m := read([]byte(header + "\nx\n"))
		if m.auto() != want.auto || m.away() != want.away || m.byDaemon() != want.daemon || m.byMachine() != want.machine {
			t.Errorf("%q: auto %v, away %v, by a daemon %v, by a machine %v; want %+v", header, m.auto(), m.away(), m.byDaemon(),
				m.byMachine(), want)
		}
	}
	m := read([]byte("Subject: Undelivered mail\n\nx\n"))
	if m.null = true; !m.byDaemon() || !m.byMachine() {
		t.Error("a bounce by its subject, with the null path, is by nobody")
	}
	m = read([]byte("Subject: Hello\n\nx\n"))
	if m.null = true; m.byDaemon() || !m.byMachine() {
		t.Error("a greeting with the null path is by no machine, or by a daemon")
	}
}

// The kind of a message without report fields is determined by its text.
func TestOutcomes(t *testing.T) {
	const carol, daemon, nobody = "carol@x.example", "MAILER-DAEMON@dest.example", "no-reply@dest.example"
	const thanks = "Thank you for your message.\n"
	for _, c := range []struct {
		from, sender, subject, text string
		kind                        Kind
		action                      string
	}{
		{carol, carol, "Hello", "How are you?\n", None, ""},
		{carol, carol, "Re: Hello", "It could not be delivered.\n", None, ""},
		{carol, carol, "Hello", "It could not be delivered.\n", Delivery, Failed},
		{carol, "", "Hello", thanks, AutoReply, ""},
		{carol, "", "Received your message", "We will answer.\n", AutoReply, ""},
		{carol, "", "Delivery failed", thanks, Delivery, Failed},
		{carol, "", "Undeliverable", thanks, Delivery, Failed},
		{carol, "", "Mailbox is full", thanks, Delivery, Failed},
		{carol, "", "Hello", thanks + "The mailbox is full.\n", Delivery, Failed},
		{carol, "", "Hello", thanks + "550 5.7.1 go away\n", Delivery, Failed},
		{carol, "", "Hello", thanks + "Call us at 550 1234.\n", AutoReply, ""},
		{carol, "", "Delivery delayed", "Please wait.\n", Delivery, Delayed},
		{carol, "", "Verzögert sich", "", Delivery, Delayed},
		{carol, "", "Zustellung verzögert", "", Delivery, Delayed},
		{carol, "", "Permanent error", "It will be retried.\n", Delivery, Failed},
		{carol, "", "Hello", "It will be retried.\nWe have given up.\n", Delivery, Failed},
		{carol, carol, "Hello", "Delivery delayed\n", None, ""},
		{nobody, nobody, "Hello", "Delivery delayed\n", Delivery, Delayed},
		{"noreply@dest.example", "noreply@dest.example", "Hello", "Delivery delayed\n", Delivery, Delayed},
		{daemon, daemon, "Hello", "Delivery delayed\n", Delivery, Delayed},
		{daemon, "", "Hello", "", Delivery, Failed},
		{carol, "", "", "", Delivery, Failed},
		{carol, "", "Hello", "It was successfully delivered to ann@dest.example.\n", Delivery, ""},
		{carol, "", "Hello", "It was successfully delivered to bob, but ann@dest.example was rejected.\n", Delivery, Failed},
		{carol, "", "Hello", "Please confirm your message.\n", AutoReply, ""},
		{carol, "", "Hello", "Please confirm your message, which was rejected.\n", Delivery, Failed},
		{carol, "", "Read: Hello", "x\n", AutoReply, ""},
		{"ann@dest.example", "ann@dest.example", "Hello", "It could not be delivered.\n", None, ""},
		{"ann@dest.example", "", "Hello", "See you.\n", AutoReply, ""},
	} {
		r := returned([]byte("From: "+c.from+"\nSubject: "+c.subject+"\n\n"+c.text), c.sender, []string{"ann@dest.example"})
		action := ""
		if len(r.Recipients) > 0 {
			action = r.Recipients[0].Action
		}
		if r.Kind != c.kind || action != c.action {
			t.Errorf("from %s <%s>, %q, %q: %q %q, want %q %q", c.from, c.sender, c.subject, c.text, r.Kind, action, c.kind,
				c.action)
		}
	}
	if r := returned(nil, "", []string{"ann@dest.example"}); r.Kind != None {
		t.Errorf("nothing: %+v", r)
	}
	if r := returned([]byte("550 5.1.1 no such user\n"), "", []string{"ann@dest.example"}); r.Kind != Delivery {
		t.Errorf("without a header: %+v", r)
	}
}

// multi returns a multipart message with the given parts, each with its own header.
func multi(header string, parts ...string) []byte {
	raw := header + "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n"
	for _, p := range parts {
		raw += "--b\n" + p + "\n"
	}
	return []byte(raw + "--b--\n")
}

// A report's text may be in different parts of the message, and may name recipients of other emails.
func TestPositionsOfText(t *testing.T) {
	const head = "From: MAILER-DAEMON@dest.example\nSubject: failure notice\n"
	const plainText, file, original = "Content-Type: text/plain\n\n", "Content-Type: application/octet-stream\n\n",
		"Content-Type: message/rfc822\n\n"
	const ann, bob = "ann@dest.example", "bob@dest.example"
	for name, c := range map[string]struct {
		raw    []byte
		to     []string // recipients of the email
		status string
	}{
		"behind a quotation": {[]byte(head + "\n> a quotation\n<ann@dest.example>: 550 5.1.1 no such user\n"), []string{ann},
			"5.1.1"},
		"in a second text": {multi(head, plainText+"Sorry.", plainText+"<ann@dest.example>: 550 5.1.1 no such user"),
			[]string{ann}, "5.1.1"},
		"in a text with a name": {multi(head, plainText+"Sorry.",
			"Content-Type: text/plain\nContent-Disposition: attachment; filename=a.txt\n\n"+
				"<ann@dest.example>: 550 5.1.1 no such user"), []string{ann}, "5.1.1"},
		"in a file": {multi(head, plainText+"550 5.1.1 no such user", file+"<ann@dest.example>"),
			[]string{ann, bob}, "5.1.1"},
		"in a field of the header": {[]byte(head + "X-Failed-Recipients: bob@dest.example\n\n550 5.1.1 no such user\n"),
			[]string{bob}, "5.1.1"},
		"in Received": {multi(head, plainText+"550 5.1.1 no such user", original+
			"Subject: x\nReceived: from a by b for <ann@dest.example>; today\n\nx"),
			[]string{ann}, "5.1.1"},
		"in Delivered-To": {multi(head, plainText+"550 5.1.1 no such user", original+"Delivered-To: bob@dest.example\n\nx"),
			[]string{bob}, "5.1.1"},
		"in To": {multi(head, plainText+"550 5.1.1 no such user", original+"To: ann@dest.example\n\nx"),
			[]string{ann}, "5.1.1"},
		"in To, both": {multi(head, plainText+"550 5.1.1 no such user", original+
			"To: ann@dest.example, bob@dest.example\n\nx"), []string{ann, bob}, "5.1.1"},
		"somebody else":  {[]byte(head + "\n<carol@x.example>: 550 5.1.1 no such user\n"), []string{"carol@x.example"}, ""},
		"by local parts": {[]byte(head + "\nuser ann: 550 5.1.1 no such user\n"), []string{ann}, "5.1.1"},
	} {
		r := returned(c.raw, "", []string{ann, bob})
		var to []string
		for _, one := range r.Recipients {
			to = append(to, one.Final)
			if one.Status != c.status {
				t.Errorf("%s: %+v, want status %s", name, one, c.status)
			}
		}
		if !slices.Equal(to, c.to) {
			t.Errorf("%s: %q, want %q", name, to, c.to)
		}
	}
}

func TestNamesAlone(t *testing.T) {
	n := newNames([]string{"ann@d.example", "bo@d.example", "bob@d.example", "@d.example"})
	for line, want := range map[string][]string{
		"User ann unknown": {"ann@d.example"}, "<ANN>, bob": {"ann@d.example", "bob@d.example"}, "ann@x.example": nil,
		"annä": nil, "äann": nil, "joann": nil,
		"ann.lee": nil, "bo is unknown": nil, "(bob)": {"bob@d.example"}, "": nil,
	} {
		if got := n.alone(line); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	for text, want := range map[string][]string{
		"aann@d.example": nil, "zann@d.example": nil, ".ann@d.example": nil, "!ann@d.example": nil, "~ann@d.example": nil,
		"0ann@d.example": nil, "9ann@d.example": nil,
		"'ann@d.example": {"ann@d.example"}, "ann@d.examplez": nil, "ann@d.examplea": nil, "ann@d.example0": nil,
		"x @d.example": nil,
		strings.Repeat("x ", 500) + "ann@d.example": {"ann@d.example"}, "ann@" + strings.Repeat("d", 300): nil,
	} {
		if got := n.in(text); !slices.Equal(got, want) {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

func TestWordsAndLines(t *testing.T) {
	if got := lowerASCII("AZ@[`az{Ä"); got != "az@[`az{Ä" {
		t.Errorf("%q", got)
	}
	for _, c := range []struct {
		s     string
		words []string
		want  int
	}{{"ab", []string{"a", "b"}, 0}, {"ab", []string{"b", "a"}, 0}, {"xab", []string{"b", "a"}, 1},
		{"x", []string{"a"}, -1}, {"", nil, -1}} {
		if got := first(c.s, c.words); got != c.want {
			t.Errorf("first of %q in %q is at %d, want %d", c.words, c.s, got, c.want)
		}
	}
	for words, want := range map[string]string{
		"550 no": "550 no", "550-no": "550-no", "550:no": "550:no", " <'550 no\nx": "<'550 no", "x\n450 no": "450 no",
		"I have 550 5.1.1 no": "I have 550 5.1.1 no",
		"the street 550 is":   "", "550. no": "", "123 550 no": "", "5.1.1 no": "", "550": "", "": "", "550 " +
			strings.Repeat("x", 1000): "550 " + strings.Repeat("x", 996),
	} {
		if got := replyIn(words); got != want {
			t.Errorf("%.40q: %.40q, want %.40q", words, got, want)
		}
	}
	for words, want := range map[string]string{
		"postmaster@d.example\n<ann@one.example>: no\n":                         "ann@one.example",
		"Mailer-Daemon@d.example says\nann@one.example no\n":                    "ann@one.example",
		"unable to deliver to ann@one.example\n":                                "ann@one.example",
		"It could not be delivered to bob@one.example or ann@one.example\n":     "ann@one.example",
		"<ann@one.example>: no\nIt could not be delivered to bob@one.example\n": "ann@one.example",
		"a line with bob@one.example\n":                                         "",
		"ann@one.example<mailto:ann@one.example> no such user\n":                "ann@one.example",
		"https://x@one.example is down\n":                                       "",
		"mailto:ann@one.example\n":                                              "",
		"* ann@one.example: no\n":                                               "ann@one.example", "<ann@one.example\n": "",
		"bob@one.example failed permanently\n": "bob@one.example",
		"> ann@one.example: no\n":              "", "ann@one.example: no\nann@one.example: no\n": "ann@one.example",
	} {
		var r Report
		r.readLines(words, Failed)
		var to []string
		for _, one := range r.Recipients {
			to = append(to, one.Final)
		}
		if got := strings.Join(to, " "); got != want {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
	var r Report
	r.readLines("<ann@one.example>: refused\n> a quotation\nby the host\n", Failed)
	if r.Recipients[0].Diagnostic != "refused by the host" {
		t.Errorf("%+v", r.Recipients)
	}
	for s, want := range map[string]bool{"5.1.1": true, "2.0.0": true, "5.123.456": true, "5.1": false, "5": false,
		"5.1234.1": false, "5.1.1234": false, "3.1.1": false,
		"5..1": false, "5.1.": false, "5.x.1": false, "": false} {
		if isStatus(s) != want {
			t.Errorf("%q is not %v", s, want)
		}
	}
	for _, s := range []string{"a550 x", "z550 x", "A550 x", "Z550 x", "é550 x", "_550 x", "550a", "550z", "550A", "550Z",
		"550é"} {
		if code, _, _ := splitReply(s); code != 0 {
			t.Errorf("%q: %d", s, code)
		}
	}
	for in, want := range map[string]string{`\x{20}`: " ", `\x{1F}`: `\x{1F}`, `\x{10FFFF}`: "\U0010ffff",
		`\x{110000}`: `\x{110000}`, `\x{41`: `\x{41`, `\x{}`: `\x{}`,
		`\x{41}\x{42}c`: "ABc", `\x{zz}`: `\x{zz}`} {
		if got := unescapeUTF8(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	long := strings.Repeat("a", 320-len("@b.c")) + "@b.c"
	if bareAddress(long) != long || bareAddress("a"+long) != "" {
		t.Error("addresses of more than 320 bytes, or not those of 320")
	}
}

// The delivery status fields that describe the message may be in different parts of the report.
func TestStatusFields(t *testing.T) {
	for s, want := range map[string]bool{
		"Original-Recipient: rfc822;a@b.c\nAction: failed\n": true, "Final-Recipient: rfc822;a@b.c\nStatus: 5.1.1\n": true,
		"Action: failed\nFinal-Recipient: a@b.c\n": true,
		"final-recipient\naction\n":                false, "Final-Recipient: a@b.c\n": false, "Action: failed\n": false,
		"X-Original-Recipients: a@b.c\nAction: failed\n": false, "": false,
		"Final-Recipient: a@b.c\nReporting-MTA: dns; x\n": true, "Final-Recipient: a@b.c\nDiagnostic-Code: smtp; x\n": true,
	} {
		if hasStatusFields(s) != want {
			t.Errorf("%q is not %v", s, want)
		}
	}
	var r Report
	r.readStatus("X-Original-Message-ID: <1@acme.example>\nX-Postfix-Sender: rfc822; " +
		"b@acme.example\nX-Original-Message-ID: <2@acme.example>\nX-Sender: c@acme.example\n" +
		"Y-Sender: d@acme.example\n\nFinal-Recipient: rfc822; ann@d.example\nAction: failed\nFinal-Recipient: rfc822; " +
		"bob@d.example\nAction: delayed\n")
	if r.MessageID != "<1@acme.example>" || r.MailFrom != "b@acme.example" || len(r.Recipients) != 2 ||
		r.Recipients[1].Action != Delayed {
		t.Errorf("%+v", r)
	}
	r = Report{}
	r.readStatus("X-Original-Message-ID: none\nX-Queue-ID: x@y.z\nY-Sender: d@acme.example\n")
	if r.MessageID != "" || r.MailFrom != "" || len(r.Recipients) != 0 {
		t.Errorf("%+v", r)
	}
	r = Report{}
	for _, one := range []Recipient{{Final: "ann@d.example", Action: Failed}, {Final: "ANN@d.example", Action: Failed,
		Diagnostic: "no"},
		{Final: "ann@d.example", Action: Failed, Diagnostic: "other"}, {Final: "ann@d.example", Action: Delayed},
		{Action: Failed}, {Action: Failed}} {
		r.add(one)
	}
	if len(r.Recipients) != 4 || r.Recipients[0].Diagnostic != "no" {
		t.Errorf("%+v", r.Recipients)
	}
	r = Report{}
	for i := range maxRecipients {
		if at := r.add(Recipient{Final: fmt.Sprint("a", i, "@d.example")}); at != i {
			t.Fatalf("recipient %d is at %d", i, at)
		}
	}
	if at := r.add(Recipient{Final: "one@d.example"}); at != -1 || len(r.Recipients) != maxRecipients {
		t.Errorf("one more is at %d of %d", at, len(r.Recipients))
	}
	const head = "From: MAILER-DAEMON@d.example\n"
	const status = "Content-Type: message/delivery-status\n\nFinal-Recipient: rfc822; ann@d.example\nAction: " +
		"failed\nStatus: 5.1.1\n"
	got := ReadReturned(multi(head, "Content-Type: text/plain\n\nFinal-Recipient: rfc822; bob@d.example\nAction: failed\n",
		"Content-Type: image/png\n\nx", status), "").About(nil)
	if len(got.Recipients) != 1 || got.Recipients[0].Final != "ann@d.example" {
		t.Errorf("%+v", got)
	}
}

// The reported message is the first message in the report; any fields that it lacks come from the report's header.
func TestOriginals(t *testing.T) {
	const head = "From: MAILER-DAEMON@d.example\nReferences: <r1@acme.example> <r2@acme.example>\n"
	const status = "Content-Type: message/delivery-status\n\nFinal-Recipient: rfc822; ann@d.example\nAction: failed\n"
	const reply = "In-Reply-To: <i@acme.example>\n"
	part := func(s string) string { return "Content-Type: message/rfc822\n\n" + s + "\n\nx" }
	text := func(s string) string { return "Content-Type: text/plain\n\n" + s }
	for name, c := range map[string]struct {
		raw          []byte
		id, from, to string
	}{
		"nothing": {multi(head, status), "<r2@acme.example>", "", ""},
		"a reply": {multi(head+reply, status), "<i@acme.example>", "", ""},
		"a part": {multi(head+reply, status,
			part("Message-ID: <1@acme.example>\nReturn-Path: <b@acme.example>\nTo: , ann@d.example, Bob <bob@d.example>")),
			"<1@acme.example>", "b@acme.example", "ann@d.example bob@d.example"},
		"two parts": {multi(head, status, part("Message-ID: <1@acme.example>"), part("Message-ID: <2@acme.example>")),
			"<1@acme.example>", "", ""},
		"sender in fields": {multi(head, strings.Replace(status, "Final", "X-Postfix-Sender: rfc822; p@acme.example\n\nFinal",
			1), part("Return-Path: <b@acme.example>")),
			"<r2@acme.example>", "p@acme.example", ""},
		"copied": {multi(head, text("Sorry.\n\nMessage-ID: <1@acme.example>\nFrom: a@acme.example\n\nMessage-ID: "+
			"<2@acme.example>\nFrom: a@acme.example\n"), status),
			"<1@acme.example>", "", ""},
		"copied by subject": {multi(head, text("Sorry.\n\nMessage-ID: <1@acme.example>\nSubject: x\n"), status),
			"<1@acme.example>", "", ""},
		"copied without an id": {multi(head, text("Sorry.\n\nSubject: x\nFrom: a@acme.example\nTo: ann@d.example\n"), status),
			"<r2@acme.example>", "", ""},
		"copied with id alone": {multi(head, text("Sorry.\n\nMessage-ID: <1@acme.example>\nTo: ann@d.example\n"), status),
			"<r2@acme.example>", "", ""},
	} {
		r := ReadReturned(c.raw, "").About(nil)
		if to := strings.Join(r.To, " "); r.MessageID != c.id || r.MailFrom != c.from || to != c.to ||
			len(r.Recipients) != 1 {
			t.Errorf("%s: %s of %q to %q, %d recipients; want %s of %q to %q", name, r.MessageID, r.MailFrom, to,
				len(r.Recipients), c.id, c.from, c.to)
		}
	}
	for s, want := range map[string]string{"<a@b> <c@d>": "<a@b>", "x <a@b>": "<a@b>", "a> <b@c>": "<b@c>", "<>": "",
		"": "", "<a@b": "", "a@b": ""} {
		if got := identifier(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	for s, want := range map[string][]string{"a\nb\n\n\n\nc\n\n": {"a\nb\n", "c\n"}, "\n\na": {"a"}, "": nil, "\n": nil,
		"a \n \t\nb": {"a \n", "b"}} {
		if got := slices.Collect(blocks(s)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

// A complaint is recognized even if it deviates from RFC 5965.
func TestComplaintForms(t *testing.T) {
	const feedback = "From: fbl@x.example\nContent-Type: multipart/report; report-type=feedback-report; " +
		"boundary=b\n\n--b\n"
	long := strings.Repeat("l", 100)
	for name, c := range map[string]struct {
		raw            string
		feedback, from string
	}{
		"fields in the text": {feedback +
			"\nSorry.\n\nFeedback-Type: fraud\nOriginal-Mail-From: <a@acme.example>\n\nBye.\n--b--\n", "fraud",
			"a@acme.example"},
		"no fields": {feedback + "\nSorry.\n--b--\n", "abuse", ""},
		"sender of the original": {feedback +
			"Content-Type: message/feedback-report\n\nFeedback-Type: abuse\n--b\nContent-Type: " +
			"message/rfc822\n\nReturn-Path: <a@acme.example>\n\nx\n--b--\n",
			"abuse", "a@acme.example"},
		"both senders": {feedback + "Content-Type: message/feedback-report\n\nFeedback-Type: " + long +
			"\nOriginal-Mail-From: <b@acme.example>\n" +
			"--b\nContent-Type: message/rfc822\n\nReturn-Path: <a@acme.example>\n\nx\n--b--\n", long, "b@acme.example"},
		"a long type": {feedback + "Content-Type: message/feedback-report\n\nFeedback-Type: l" + long + "\n--b--\n", "abuse",
			""},
	} {
		if r := ReadComplaint([]byte(c.raw)); r.Kind != Complaint || r.Feedback != c.feedback || r.MailFrom != c.from {
			t.Errorf("%s: %+v", name, r)
		}
	}
	var r Report
	var fields strings.Builder
	for i := range maxRecipients + 1 {
		fmt.Fprintf(&fields, "Original-Rcpt-To: a%d@d.example\n", i)
	}
	if r.readFeedback(fields.String()); len(r.Recipients) != maxRecipients {
		t.Errorf("%d recipients", len(r.Recipients))
	}
	const original = "Content-Type: message/rfc822\n\n"
	const hm = original + "X-HmXmrOriginalRecipient: ann@hotmail.com\nSubject: x\n\nx"
	for name, c := range map[string]struct {
		raw  []byte
		kind Kind
	}{
		"junk": {multi("From: staff@hotmail.com\n", hm), Complaint},
		"junk behind others": {multi("From: staff@hotmail.com\n", "Content-Type: text/plain\n\nx",
			"Content-Type: image/png\n\nx", original+"Subject: y\n\nx", hm), Complaint},
		"junk of somebody": {multi("From: staff@x.example\n", hm), None},
		"junk of two":      {multi("From: staff@hotmail.com, b@hotmail.com\n", hm), None},
		"of nobody":        {multi("From: staff@hotmail.com\n", original+"Subject: y\n\nx"), None},
	} {
		if r := ReadComplaint(c.raw); r.Kind != c.kind {
			t.Errorf("%s: %+v", name, r)
		}
	}
	// A message that is not a complaint may be a bounce, regardless of its sender.
	for _, from := range []string{"staff@hotmail.com", "staff@x.example", "staff@hotmail.com, b@hotmail.com"} {
		r := returned(multi("From: "+from+"\n", "Content-Type: text/plain\n\n550 5.1.1 no such user", original+
			"Subject: y\n\nx"), "", []string{"ann@d.example"})
		if r.Kind != Delivery || len(r.Recipients) != 1 {
			t.Errorf("from %s: %+v", from, r)
		}
	}
}

func TestRefusalsThatSuppressNobody(t *testing.T) {
	for _, c := range []struct {
		r        Refusal
		suppress bool
	}{
		{Refusal{Code: 550, Enhanced: "5.1.1", Text: "no such user"}, true},
		{Refusal{Code: 550, Enhanced: "5.1.1", Text: "no such user; try again later"}, false},
		{Refusal{Code: 550, Enhanced: "5.1.1", Text: "no such user, temporarily"}, false},
		{Refusal{Code: 550, Enhanced: "5.1.1", Text: "no such user", Scope: ScopeSender}, false},
		{Refusal{Code: 550, Enhanced: "5.1.1", Text: "rejected as spam"}, false},
		{Refusal{Code: 550, Enhanced: "5.1.1", Text: "virus found"}, false},
		{Refusal{Code: 550, Enhanced: "5.7.1", Text: "access denied"}, false},
		{Refusal{Code: 550, Enhanced: "5.4.1", Text: "access denied"}, true},
	} {
		if got := c.r.Class(); got.Suppress != c.suppress {
			t.Errorf("%+v: %+v", c.r, got)
		}
	}
	if !Classify(450, "4.2.0", "Greylisted, come back").Greylisted() || Classify(450, "4.2.0", "no").Greylisted() {
		t.Error("greylisting is not what is greylisted")
	}
}
