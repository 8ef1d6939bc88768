package requestlog

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/sending/emails"
)

// firstCharacters returns a body as the database returns it to Get.
func firstCharacters(body *string) *string {
	if body == nil {
		return nil
	}
	all := []rune(*body)
	return new(string(all[:min(len(all), successMax)]))
}

// A request that refers to stored bodies is shown with the same strings as one that contains them. No part of a body
// that the request gives is stored.
func FuzzReferences(f *testing.F) {
	for _, seed := range []string{`{"html":"<p>a</p>","text":"b"}`, `{"html":"\u003cp\u003e\/ \ud83d\ude00","text":""}`,
		`{"html":"https://a.example/?token=\u0026b=1 re_12345678_s3cr3t","html":"x"}`, `{"html":null,"html":5}`,
		`{"html":"` + strings.Repeat(`ä\"\u00e4`, 500) + `"}`, `{"html":"` + strings.Repeat(`\ud83d\ude00`, 200) + `"}`,
		`{"html":"… [5 more bytes]","text":"[1,2]","x":{"html":[1,2]}}`, "{\"html\":\"\xff\",\"text\":\"\\ud83d\"}"} {
		f.Add(seed)
	}
	lenient := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	f.Fuzz(func(t *testing.T, body string) {
		var in struct {
			HTML *string `json:"html"`
			Text *string `json:"text"`
		}
		if json.Unmarshal([]byte(body), &in, lenient) != nil || !strings.HasPrefix(body, "{") {
			return
		}
		stored := StoredEmail{"id", in.HTML, in.Text}
		start := emails.BodyStart{HTML: firstCharacters(in.HTML), Text: firstCharacters(in.Text)}
		for _, body := range []string{body, "[" + body + ",{}," + body + "]"} {
			text, ids := redactEmails([]byte(body), []StoredEmail{stored, {}, stored})
			if ids != "" {
				text = fill(text, strings.Split(ids, ","), map[string]emails.BodyStart{"id": start}, nil)
			}
			got, want := jsontext.Value(text), jsontext.Value(Redact([]byte(body), successMax))
			if (len(got) > 0 || len(want) > 0) && (got.Format(lenient) != nil || want.Format(lenient) != nil) {
				t.Fatalf("it is not JSON: %s, want %s", got, want)
			}
			if string(got) != string(want) {
				t.Errorf("%q is shown as\n%q\nwant\n%q", body, got, want)
			}
		}
	})
}

// TestReferencesAreShort: a referred body takes a few bytes of the log, and is neither in its JSON nor in the ids.
func TestReferencesAreShort(t *testing.T) {
	t.Parallel()
	html := strings.Repeat("<p>secret</p>\n", 700)
	source, _ := jsontext.AppendQuote(nil, html)
	text, ids := redactEmails([]byte(`{"to":"a","html":`+string(source)+`}`), []StoredEmail{{"id", &html, nil}})
	if want := `{"to":"a","html":[956,9476]}`; text != want || ids != "id" {
		t.Errorf("%q with ids %q, want %q", text, ids, want)
	}
	if text, ids := redactEmails([]byte(`{"html":"other"}`), []StoredEmail{{"id", &html, nil}}); text != `{"html":"other"}` ||
		ids != "" {
		t.Errorf("of another body: %q with ids %q", text, ids)
	}
	shown := fill(text, []string{"id"}, map[string]emails.BodyStart{}, nil)
	if want := `{"to":"a","html":null}`; shown != want {
		t.Errorf("of a deleted body: %q, want %q", shown, want)
	}
}

// BenchmarkRedactEmails redacts a request of Go's encoding/json, which escapes < and >.
func BenchmarkRedactEmails(b *testing.B) {
	html := strings.Repeat("<p class=\"x\">Some text of an email, with its tags.</p>\n", 10_000/58)
	source, _ := json.Marshal(html, jsontext.EscapeForHTML(true))
	body := []byte(`{"from":"Acme <hello@example.org>","to":["you@example.net"],"subject":"Hello","html":` + string(source) +
		`,"tags":[{"name":"kind","value":"bench"}]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, ids := redactEmails(body, []StoredEmail{{"id", &html, nil}}); ids == "" {
			b.Fatal("it has no reference")
		}
	}
}
