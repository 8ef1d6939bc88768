package emails_test

import (
	"testing"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/emails"
)

// The same emails have the same digest, regardless of the order of their headers. Different emails have different
// digests.
func TestDigest(t *testing.T) {
	t.Parallel()
	fields := func(names ...string) (all []message.Field) {
		for _, n := range names {
			all = append(all, message.Field{Name: n, Value: "v"})
		}
		return all
	}
	empty, x := "", "x"
	seen := map[string]int{}
	different := [][]emails.Send{nil, {{}}, {{}, {}}, {{From: "x"}}, {{Subject: "x"}}, {{To: []string{"x"}}},
		{{Cc: []string{"x"}}}, {{To: []string{"x", ""}}},
		{{To: []string{"", "x"}}}, {{To: []string{"x"}}, {}}, {{}, {To: []string{"x"}}}, {{HTML: &empty}}, {{Text: &empty}},
		{{HTML: &x}}, {{HasTemplate: true}},
		{{Headers: fields("A")}}, {{Headers: fields("A", "B")}}, {{Tags: []emails.Tag{{Name: "A", Value: "v"}}}},
		{{Tags: []emails.Tag{{Name: "Av"}}}}, {{Attachments: []emails.Upload{{Content: []byte("x")}}}},
		{{Attachments: []emails.Upload{{Filename: "x"}}}},
		{{Attachments: []emails.Upload{{HasContent: true}}}}, {{TopicID: "x"}}, {{ScheduledAt: "x"}}, {{TemplateID: "x"}}}
	for i, all := range different {
		for _, mode := range []string{"", "strict"} {
			digest := emails.Digest(mode, all...)
			if other, ok := seen[digest]; ok {
				t.Errorf("%d has the digest of %d", i, other)
			}
			seen[digest] = i
		}
	}
	if emails.Digest("", emails.Send{Headers: fields("A", "B")}) != emails.Digest("",
		emails.Send{Headers: fields("B", "A")}) {
		t.Error("the order of headers counts")
	}
}
