package docsite

import (
	"html/template"
	"regexp"
	"strings"
)

// The settings of the variables of the examples, as the documents have them.
var (
	setsVariables = regexp.MustCompile(`^(export |URL=|KEY=)`)
	urlSetting    = regexp.MustCompile(`\bURL=http://localhost:3000(\s|$)`)
	keySetting    = regexp.MustCompile(`\bKEY=re_\.\.\.(\s|$)`)
)

// ownValues returns a block of code as HTML. If the block sets the variables of the examples, it gets the values of
// this installation, and a note says where a key comes from.
func (v *view) ownValues(code string) (shown, note template.HTML) {
	lines := strings.SplitAfter(code, "\n")
	setsKey := false
	for i, line := range lines {
		if !setsVariables.MatchString(line) {
			continue
		}
		setsKey = setsKey || keySetting.MatchString(line)
		if v.address != "" {
			line = urlSetting.ReplaceAllString(line, "URL="+v.address+"$1")
		}
		if v.signedIn && v.key != "" {
			line = keySetting.ReplaceAllString(line, "KEY="+v.key+"$1")
		}
		lines[i] = line
	}
	shown = template.HTML(template.HTMLEscapeString(strings.Join(lines, "")))
	if !setsKey || v.static {
		return shown, ""
	}
	switch {
	case v.signedIn && v.key != "":
		note = "This key works on this machine until you delete the data of <code>postrider dev</code>."
	case v.member:
		note = `Replace <code>re_...</code> by an API key of your team. <a href="/app/keys/new">Create an API key</a>`
	case !v.signedIn:
		note = `The address is that of this installation. <a href="/sign-in?next=` +
			template.HTML(template.URLQueryEscaper(v.href(v.page))) + `">Sign in</a> to create an API key.`
	}
	if note != "" {
		note = `<p class="hint">` + note + "</p>\n"
	}
	return shown, note
}
