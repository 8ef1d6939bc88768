package emails

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
)

const rulesSize = 1 << 20

var rulesNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// breaks checks that an email is refused by the expected rule. If says is empty, the email must be accepted.
func breaks(t *testing.T, name string, in Send, batch bool, kind fault.Kind, says string) {
	t.Helper()
	s := &Service{c: Config{TestDomainsRefused: []string{"example.com"}, MaxSize: rulesSize}}
	_, err := s.check(in, rulesNow, batch)
	switch {
	case says == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case says != "" && (err == nil || fault.KindOf(err) != kind || !strings.Contains(err.Error(), says)):
		t.Errorf("%s: %v, want %q", name, err, says)
	}
}

// Each rule for emails accepts values up to its exact limit, and the error for larger values names the invalid field.
func TestRules(t *testing.T) {
	text := func(s string) *string { return &s }
	many := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("to%d@one.example", i))
		}
		return all
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	headers := func(n, size int) (all []message.Field) {
		for i := range n {
			all = append(all, message.Field{Name: fmt.Sprintf("X-%04d", i), Value: x(size)})
		}
		return all
	}
	tags := func(n int) (all []Tag) {
		for i := range n {
			all = append(all, Tag{fmt.Sprint("n", i), "v"})
		}
		return all
	}
	file := func(a Upload) func(*Send) { return func(s *Send) { s.Attachments = []Upload{a} } }
	for _, c := range []struct {
		name string
		set  func(*Send)
		kind fault.Kind
		says string
	}{
		{"as it is", func(*Send) {}, 0, ""},
		{"no from", func(s *Send) { s.From = "" }, fault.Missing, "`from`"},
		{"no to", func(s *Send) { s.To = nil }, fault.Missing, "`to`"},
		{"no subject", func(s *Send) { s.Subject = "" }, fault.Missing, "`subject`"},
		{"no body", func(s *Send) { s.Text = nil }, fault.Missing, "`html` or `text`"},
		{"empty bodies", func(s *Send) { s.Text, s.HTML = text(""), text("") }, fault.Missing, "`html` or `text`"},
		{"HTML alone", func(s *Send) { s.Text, s.HTML = nil, text("<p>") }, 0, ""},
		{"HTML beside an empty text", func(s *Send) { s.Text, s.HTML = text(""), text("<p>") }, 0, ""},
		{"a template", func(s *Send) { s.Text, s.HasTemplate, s.TemplateID = nil, true, "t" }, fault.NotFound,
			"Template not found"},
		{"a template without id", func(s *Send) { s.Text, s.HasTemplate = nil, true }, fault.Missing, "`template.id`"},
		{"a template and text", func(s *Send) { s.HasTemplate, s.TemplateID = true, "t" }, fault.Invalid, "`template`"},
		{"a template and HTML", func(s *Send) { s.Text, s.HTML, s.HasTemplate = nil, text("<p>"), true }, fault.Invalid,
			"`template`"},
		{"broken", func(s *Send) { s.Broken = fault.MissingField("other") }, fault.Missing, "`other`"},
		{"50 in each field", func(s *Send) { s.To, s.Cc, s.Bcc, s.ReplyTo = many(50), many(50), many(50), many(50) }, 0, ""},
		{"51 to", func(s *Send) { s.To = many(51) }, fault.Invalid, "`to`"},
		{"a second reply_to that is none", func(s *Send) { s.ReplyTo = []string{"a@one.example", "nobody"} }, fault.Invalid,
			"`reply_to`"},
		{"a reply_to at a test domain", func(s *Send) { s.ReplyTo = []string{"a@example.com"} }, 0, ""},
		{"51 cc", func(s *Send) { s.Cc = many(51) }, fault.Invalid, "`cc`"},
		{"51 bcc", func(s *Send) { s.Bcc = many(51) }, fault.Invalid, "`bcc`"},
		{"51 reply_to", func(s *Send) { s.ReplyTo = many(51) }, fault.Invalid, "`reply_to`"},
		{"no address from", func(s *Send) { s.From = "nobody" }, fault.Invalid, "`from`"},
		{"no address cc", func(s *Send) { s.Cc = []string{"a@one.example", "nobody"} }, fault.Invalid, "`cc`"},
		{"no address reply_to", func(s *Send) { s.ReplyTo = []string{"nobody"} }, fault.Invalid, "`reply_to`"},
		{"a long address", func(s *Send) { s.To = []string{x(2400) + " <a@one.example>"} }, fault.Invalid,
			"`to` field. The address is too long"},
		{"a mistake", func(s *Send) { s.Bcc = []string{"a@Example.com"} }, fault.Invalid,
			"`bcc` field has an address at example.com"},
		{"a mistake to reply to", func(s *Send) { s.ReplyTo = []string{"a@example.com"} }, 0, ""},
		{"the longest subject", func(s *Send) { s.Subject = x(MaxSubject) }, 0, ""},
		{"a longer subject", func(s *Send) { s.Subject = x(MaxSubject + 1) }, fault.Invalid, "`subject`"},
		{"a subject of two lines", func(s *Send) { s.Subject = "a\nb" }, fault.Invalid, "`subject`"},
		{"a subject that is no UTF-8", func(s *Send) { s.Subject = "\xff" }, fault.Invalid, "`subject`"},
		{"NUL in text", func(s *Send) { s.Text = text("a\x00") }, fault.Invalid, "`text`"},
		{"NUL in HTML", func(s *Send) { s.HTML = text("a\x00") }, fault.Invalid, "`html`"},
		{"100 headers", func(s *Send) { s.Headers = headers(MaxHeaders, 1) }, 0, ""},
		{"101 headers", func(s *Send) { s.Headers = headers(MaxHeaders+1, 1) }, fault.Invalid, "`headers`"},
		{"headers of 64 KB", func(s *Send) { s.Headers = headers(64, 1024-len("X-0000")-4) }, fault.Invalid,
			"longer than 998"},
		{"headers of nearly 64 KB", func(s *Send) { s.Headers = headers(66, 980) }, 0, ""},
		{"headers of 64 KB in all", func(s *Send) {
			s.Headers = append(headers(66, 980), message.Field{Name: "X", Value: x(maxHeaderSize - 66*990 - 5)})
		}, 0, ""},
		{"headers of an octet more", func(s *Send) {
			s.Headers = append(headers(66, 980), message.Field{Name: "X", Value: x(maxHeaderSize - 66*990 - 4)})
		}, fault.Invalid, "larger than"},
		{"headers of more", func(s *Send) { s.Headers = headers(67, 980) }, fault.Invalid, "larger than"},
		{"a header that is ours", func(s *Send) { s.Headers = []message.Field{{Name: "From", Value: "a@one.example"}} },
			fault.Invalid, "`headers`"},
		{"75 tags", func(s *Send) { s.Tags = tags(MaxTags) }, 0, ""},
		{"76 tags", func(s *Send) { s.Tags = tags(MaxTags + 1) }, fault.Invalid, "`tags`"},
		{"all characters of tags", func(s *Send) { s.Tags = []Tag{{"azAZ09_-", x(MaxTagLength)}} }, 0, ""},
		{"a tag without name", func(s *Send) { s.Tags = []Tag{{"a", "b"}, {"", "v"}} }, fault.Invalid, "`tags[1].name`"},
		{"a tag without value", func(s *Send) { s.Tags = []Tag{{"n", ""}} }, fault.Invalid, "`tags[0].value`"},
		{"a long tag", func(s *Send) { s.Tags = []Tag{{x(MaxTagLength + 1), "v"}} }, fault.Invalid, "`tags[0].name`"},
		{"100 attachments", func(s *Send) { s.Attachments = slices.Repeat([]Upload{{HasContent: true}}, MaxAttachments) }, 0,
			""},
		{"101 attachments", func(s *Send) { s.Attachments = slices.Repeat([]Upload{{HasContent: true}}, MaxAttachments+1) },
			fault.Invalid, "`attachments`"},
		{"neither content nor path", file(Upload{Filename: "a"}), fault.BadAttachment, "either `content` or `path`"},
		{"content and path", file(Upload{HasContent: true, Path: "https://one.example"}), fault.BadAttachment,
			"either `content` or `path`"},
		{"the longest file name", file(Upload{HasContent: true, Filename: x(maxFilename)}), 0, ""},
		{"a longer file name", file(Upload{HasContent: true, Filename: x(maxFilename + 1)}), fault.BadAttachment,
			"`filename`"},
		{"a file name of two lines", file(Upload{HasContent: true, Filename: "a\nb"}), fault.BadAttachment, "`filename`"},
		{"a program", file(Upload{HasContent: true, Filename: "a.exe"}), fault.BadAttachment, "`a.exe`"},
		{"the longest content id", file(Upload{HasContent: true, ContentID: x(maxContentID)}), 0, ""},
		{"a longer content id", file(Upload{HasContent: true, ContentID: x(maxContentID + 1)}), fault.BadAttachment,
			"`content_id`"},
		{"a content id in brackets", file(Upload{HasContent: true, ContentID: "<a>"}), fault.BadAttachment, "`content_id`"},
		{"a content id that is not ASCII", file(Upload{HasContent: true, ContentID: "\x7f"}), fault.BadAttachment,
			"`content_id`"},
		{"the last that is", file(Upload{HasContent: true, ContentID: "!~"}), 0, ""},
		{"the longest path", file(Upload{Path: "https://one.example/" + x(maxPath-20)}), 0, ""},
		{"a longer path", file(Upload{Path: "https://one.example/" + x(maxPath-19)}), fault.BadAttachment, "`path`"},
		{"a content type with a parameter", file(Upload{HasContent: true, ContentType: "text/plain; name=~"}), 0, ""},
		{"no content type", file(Upload{HasContent: true, ContentType: "pdf"}), fault.BadAttachment, "`content_type`"},
		{"a content type that is not ASCII", file(Upload{HasContent: true, ContentType: "text/plain; name=é"}),
			fault.BadAttachment, "`content_type`"},
		{"the largest text", func(s *Send) { s.Text = text(x(rulesSize - 2048)) }, 0, ""},
		{"a larger text", func(s *Send) { s.Text = text(x(rulesSize - 2047)) }, fault.Invalid, "the limit is 1048576 bytes"},
		{"HTML and a text", func(s *Send) { s.Text, s.HTML = text(x(rulesSize/2)), text(x(rulesSize/2)) }, fault.Invalid,
			"the limit"},
		{"the largest file", file(Upload{HasContent: true, Content: make([]byte, 57*13400)}), 0, ""},
		{"a larger file", file(Upload{HasContent: true, Content: make([]byte, 57*13420)}), fault.Invalid, "the limit"},
		{"30 days ahead", func(s *Send) { s.ScheduledAt = rulesNow.Add(MaxAhead).Format(time.RFC3339) }, 0, ""},
		{"more", func(s *Send) { s.ScheduledAt = rulesNow.Add(MaxAhead + time.Second).Format(time.RFC3339) }, fault.Invalid,
			"more than 30 days"},
		{"a minute ago", func(s *Send) { s.ScheduledAt = rulesNow.Add(-maxPast).Format(time.RFC3339) }, 0, ""},
		{"longer ago", func(s *Send) { s.ScheduledAt = rulesNow.Add(-maxPast - time.Second).Format(time.RFC3339) },
			fault.Invalid, "in the past"},
		{"some time", func(s *Send) { s.ScheduledAt = "some time" }, fault.Invalid, "`scheduled_at`"},
	} {
		in := Send{From: "a@acme.example", To: []string{"b@one.example"}, Subject: "Hi", Text: text("Hello")}
		c.set(&in)
		breaks(t, c.name, in, false, c.kind, c.says)
	}
	in := Send{From: "a@acme.example", To: []string{"b@one.example"}, Subject: "Hi", Text: text("Hello")}
	breaks(t, "in a batch", in, true, 0, "")
	in.Attachments = []Upload{{HasContent: true}}
	breaks(t, "an attachment in a batch", in, true, fault.Invalid, "`attachments`")
}

// Optional fields of an email get default values, and duplicate recipients are removed.
func TestRulesFillIn(t *testing.T) {
	hello := "Hello"
	d, err := (&Service{c: Config{MaxSize: rulesSize}}).check(Send{From: "a@acme.example", To: []string{"b@one.example",
		"B@one.example", "c@one.example"},
		Cc: []string{"C@ONE.example", "d@one.example"}, ReplyTo: []string{"e@one.example"}, Subject: "Hi", Text: &hello,
		Headers: []message.Field{{Name: "message-ID", Value: "<a@b.example>"}, {Name: "X-A", Value: "b"}},
		Attachments: []Upload{{HasContent: true}, {Path: "https://one.example/a.pdf"}, {HasContent: true, Filename: "a.pdf"},
			{Path: "https://one.example/b", Filename: "b.png", ContentType: "text/csv"}},
		ScheduledAt: rulesNow.Format(time.RFC3339)}, rulesNow, false)
	if err != nil {
		t.Fatal(err)
	}
	var to, files []string
	for _, r := range d.recipients {
		to = append(to, r.kind+" "+r.Addr())
	}
	for _, a := range d.Attachments {
		files = append(files, a.Filename+" "+a.ContentType)
	}
	if want := []string{"to b@one.example", "to c@one.example", "cc d@one.example"}; !slices.EqualFunc(to, want,
		strings.EqualFold) {
		t.Errorf("recipients %q", to)
	}
	if want := []string{" " + message.TypeByFilename(""), "attachment-1 " + message.TypeByFilename("attachment-1"),
		"a.pdf application/pdf", "b.png text/csv"}; !slices.Equal(files, want) {
		t.Errorf("files %q", files)
	}
	if len(d.Headers) != 1 || d.Headers[0].Name != "X-A" || !d.at.IsZero() {
		t.Errorf("headers %v, at %v", d.Headers, d.at)
	}
}
