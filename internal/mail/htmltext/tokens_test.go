package htmltext

import (
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
)

// testToken is a token in a form that tests can compare.
type testToken struct {
	Kind       html.TokenType
	Name, Text string
	Attributes map[string]string
}

// set stores an attribute, unless an attribute with the same name is already stored.
func (s *testToken) set(name, value string) {
	if s.Attributes == nil {
		s.Attributes = map[string]string{}
	}
	if _, twice := s.Attributes[name]; !twice {
		s.Attributes[name] = value
	}
}

// begin returns the first five bytes of a name, with NUL and U+FFFD replaced. Names are normalized for the comparison,
// because Tokens keeps NUL and truncates long names.
func begin(name string) string {
	name = strings.NewReplacer("\x00", "?", "\uFFFD", "?").Replace(name)
	return name[:min(len(name), 5)]
}

func tokens(source string) (all []testToken) {
	for t := range Tokens(source) {
		s := testToken{Kind: t.Kind, Name: begin(t.Name)}
		if t.Kind == html.TextToken {
			s.Text = t.Text()
		}
		for name, value := range t.Attributes() {
			s.set(name, value)
		}
		all = add(all, s)
	}
	return all
}

// add appends a token, but joins it to the previous one if both are text, because tokenizers may split text in
// different places.
func add(all []testToken, s testToken) []testToken {
	if n := len(all); s.Kind == html.TextToken && n > 0 && all[n-1].Kind == html.TextToken {
		all[n-1].Text += s.Text
		return all
	}
	return append(all, s)
}

// wanted returns the tokens that html.Tokenizer finds, except those that Tokens omits.
func wanted(source string) (all []testToken) {
	unseen := false
	for z := html.NewTokenizer(strings.NewReader(strings.ToValidUTF8(source, "\uFFFD"))); ; {
		s := testToken{Kind: z.Next()}
		switch s.Kind {
		case html.ErrorToken:
			return all
		case html.TextToken:
			if !unseen {
				all = add(all, testToken{Kind: s.Kind, Text: string(z.Text())})
			}
			continue
		case html.StartTagToken, html.SelfClosingTagToken, html.EndTagToken:
			name, more := z.TagName()
			s.Name = string(name)
			for more && s.Kind != html.EndTagToken {
				var key, value []byte
				key, value, more = z.TagAttr()
				s.set(string(key), string(value))
			}
			if s.Kind == html.SelfClosingTagToken {
				s.Kind = html.StartTagToken
			}
			unseen = s.Kind == html.StartTagToken && isSource(s.Name)
			s.Name = begin(s.Name)
			all = append(all, s)
		}
	}
}

var scanned = []string{"", "a &amp; b<p CLASS=\"x&lt;\" class=y>c</P>", "<script>x<p></script>y<!-- <b> --><br/>z",
	"<title>t</title><textarea><p></textarea>u", "<a href=/x>", "<style><p>", "a < b <c", "<img src='a' alt>",
	"<plaintext><p>", "<!doctype html><?x>1", "<abcdefghijklmnopqrstu>", "\xff<p \xfe=1>"}

// Tokens yields the same tags and text as html.Tokenizer.
func TestTokens(t *testing.T) {
	t.Parallel()
	for _, source := range scanned {
		if diff := gocmp.Diff(wanted(source), tokens(source)); diff != "" {
			t.Errorf("%q: %s", source, diff)
		}
	}
	for tok := range Tokens("<p>a<b>") {
		if tok.Name != "p" {
			t.Errorf("a loop that has ended goes on with %+v", tok)
		}
		break
	}
}

func FuzzTokens(f *testing.F) {
	for _, source := range scanned {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if diff := gocmp.Diff(wanted(source), tokens(source)); diff != "" {
			t.Errorf("%q: %s", source, diff)
		}
	})
}
