package web

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/users"
)

// The typed texts are set in the fields of the form, except for secrets and hidden fields. Other forms stay as they
// are.
func TestRefill(t *testing.T) {
	t.Parallel()
	const page = `<form method="post" action="/other"><input name="name" value="a"></form>
<details><summary>More</summary><form method="post" action="/form?x=1&amp;y=2"><input type="hidden" name="team" value="t">
<input name="name" value="a"><input name="untouched" value="stays"><input type="password" name="password">
<textarea name="text">old</textarea><select name="role"><option value="x" selected>X</option><option value="y">Y</option></select>
<input type="checkbox" name="on" checked><input type="checkbox" name="many" value="1"><input type="checkbox" name="many" value="2">
</form></details>`
	got, err := refill([]byte(page), &users.KeptForm{Action: "/form?x=1&y=2", Form: "name=%22%3E%3Cscript%3E&password=secret" +
		"&team=other&text=%0Aline%3C%2Ftextarea%3E&role=y&many=2"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`action="/other"><input name="name" value="a"/>`, `<details open="">`, `data-kept=""`,
		`value="t"`, `name="name" value="&#34;&gt;&lt;script&gt;"`, `name="untouched" value="stays"`,
		`<input type="password" name="password"/>`, "<textarea name=\"text\">\n\nline&lt;/textarea&gt;</textarea>",
		`<option value="x">`, `<option value="y" selected="">`, `<input type="checkbox" name="on"/>`,
		`name="many" value="1"/>`, `name="many" value="2" checked=""/>`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the page lacks %s\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "secret") {
		t.Errorf("the page has the password\n%s", got)
	}
	// A button of the form may lead elsewhere.
	got, err = refill([]byte(`<form method="post" action="/a"><input name="n"><button formaction="/b">B</button></form>`),
		&users.KeptForm{Action: "/b", Form: "n=1"})
	if err != nil || !strings.Contains(string(got), `name="n" value="1"`) {
		t.Errorf("%v\n%s", err, got)
	}
}
