// Package mailtest provides sample mail for the tests of several packages, and compares parser results with files. The
// functions in this package report failures to the test.
package mailtest

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//go:embed from.txt
var from string

// FromForm is one line in from.txt. The comment at the top of that file explains the format of its lines.
type FromForm struct {
	Takers string // who accepts the value: none, both, smtp or api
	Value  string // the value of a From field
	Addr   string // the address in the field, if the API or SMTP accepts it
}

// FromForms returns the lines of from.txt.
func FromForms(t testing.TB) (all []FromForm) {
	t.Helper()
	for line := range strings.Lines(from) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		takers, rest, _ := strings.Cut(line, " ")
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, FromForm{takers, value, strings.TrimSpace(rest[len(quoted):])})
	}
	return all
}

// Newsletter returns about n bytes of HTML like that in newsletter templates, with nested tables, inline styles and
// links.
func Newsletter(n int) string {
	var b strings.Builder
	b.WriteString(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>News</title>` +
		`<style>td{padding:0}</style></head><body style="margin:0"><table role="presentation" width="100%"><tbody>`)
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `
    <tr><td style="padding:12px 16px;font-family:Helvetica,Arial,sans-serif;font-size:14px;color:#%06x">
      <h2 style="margin:0">Item %d of your order</h2>
      <p>It left our house today &amp; will be with you soon.
      <a href="https://example.com/track/%d?ref=mail" style="color:#06c;text-decoration:none">Follow it on its way</a>,
      or write to us.</p>
    </td></tr>`, i*4099, i, i)
	}
	b.WriteString("\n</tbody></table></body></html>\n")
	return b.String()
}

// Template returns 60 KB of HTML with 50 placeholders, and the values of the placeholders. Every second link has a
// placeholder in its href attribute.
func Template(links int) (html string, values map[string]string) {
	var b strings.Builder
	b.WriteString("<!DOCTYPE html><html><head><title>News</title></head><body><table>")
	const placeholders = 50
	values = map[string]string{}
	for i := range placeholders {
		name := fmt.Sprintf("VARIABLE_%d", i)
		values[name] = fmt.Sprintf("the value of number %d", i)
		fmt.Fprintf(&b, "<tr><td style=\"padding:4px\">Dear {{{%s|customer}}}, thank you.</td></tr>\n", name)
	}
	for i := range links {
		query := fmt.Sprintf("utm_source=mail&amp;utm_id=%d", i)
		if i%2 == 0 {
			query = fmt.Sprintf("for={{{VARIABLE_%d}}}&amp;b=2", i%placeholders)
		}
		fmt.Fprintf(&b, `<tr><td><a href="https://shop.example/articles/%d?%s">%d</a></td></tr>`, i, query, i)
	}
	for b.Len() < 60_000 {
		b.WriteString(`<tr><td style="padding:4px;font-family:sans-serif">More of what there is to say.</td></tr>` + "\n")
	}
	b.WriteString("</table></body></html>")
	return b.String(), values
}

// Golden calls read for each message file that matches pattern, and compares the result with the .want file for that
// message. Golden fails the test if the number of matching files is less than least. With POSTRIDER_UPDATE=1 in the
// environment, Golden writes the .want files instead of comparing the results with them.
func Golden(t *testing.T, pattern string, least int, read func(t *testing.T, raw []byte) string) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) < least {
		t.Fatalf("%d messages, error %v", len(names), err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got, file := read(t, raw), strings.TrimSuffix(name, ".eml")+".want"
			if os.Getenv("POSTRIDER_UPDATE") != "" {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
