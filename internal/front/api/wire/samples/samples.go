// Package samples prints an example request of the API in several languages.
//
// # Shape
//
// A [Request] is data: a method, a path, a JSON body. Print returns it as code for each language. If the official
// client of a language has a method for the operation, [Request.Calls] has a template of the call. Otherwise, the code
// uses the HTTP library of the language, and in Go Postrider's package client.
//
// All examples read the address of the installation and the API key from the environment variables URL and KEY.
//
// # Templates
//
// A template of a call contains code and these placeholders:
//
//	$body          the JSON body as a literal of the language
//	$body(id=x)    the body with the further field id, whose value is the path parameter x
//	$object(id=x)  an object with the field id only
//	$query         the query parameters as an object
//	$.name         the field name of the body
//	$name          the path parameter name
//
// # Failures
//
// Print returns an error for a body that is not JSON, for an unknown placeholder, and for a method of the package client
// that does not exist or has no parameter for a value of the request. Values are never evaluated.
package samples

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Languages lists the languages in the order in which examples are shown.
var Languages = []string{"curl", "node", "go", "python", "ruby", "php", "cli"}

// Labels has the name of each language for readers.
var Labels = map[string]string{"curl": "curl", "node": "Node.js", "go": "Go", "python": "Python", "ruby": "Ruby",
	"php": "PHP", "cli": "CLI"}

// Request is an example request.
type Request struct {
	Method, Path string            // Path is the pattern, such as /emails/{email_id}
	Params       map[string]string // values of the path parameters
	Query        string            // query parameters as in a URL, without the question mark; may be empty
	Header       string            // a further header, such as "x-batch-validation: permissive"; may be empty
	Body         []byte            // JSON; nil if the request has no body
	Form         []Field           // fields of a form with a file, instead of a body
	Calls        map[string]string // templates of calls of the official clients, by language
	GoClient     string            // the method of package client if Calls has none for Go, such as "Approvals.Create"
	Whole        map[string]string // complete programs, by language, which replace the printed ones
}

// Field is a field of a form. If File is set, the field is a file with this content.
type Field struct{ Name, Value, File string }

// Sample is an example request in a language.
type Sample struct{ Language, Code string }

// Print returns the request in each language. The language cli is left out if the official CLI has no command for it,
// and Go if the request names no method of a client.
func Print(r Request) (all []Sample, err error) {
	p := printer{Request: r}
	if r.Body != nil {
		if p.body, err = parse(r.Body); err != nil {
			return nil, fmt.Errorf("read the example of %s %s: %w", r.Method, r.Path, err)
		}
	}
	if p.query, err = parseQuery(r.Query); err != nil {
		return nil, fmt.Errorf("read the query of %s %s: %w", r.Method, r.Path, err)
	}
	for _, language := range Languages {
		code, err := p.print(language)
		if err != nil {
			return nil, fmt.Errorf("print %s %s in %s: %w", r.Method, r.Path, language, err)
		}
		if code != "" {
			all = append(all, Sample{language, code})
		}
	}
	return all, nil
}

// Format returns JSON with short objects and lists on one line each.
func Format(text []byte) (string, error) {
	v, err := parse(text)
	if err != nil {
		return "", fmt.Errorf("read the JSON: %w", err)
	}
	return jsonSyntax.text(v, 0), nil
}

type printer struct {
	Request
	body  value
	query value
}

func (p *printer) print(language string) (string, error) {
	if whole := p.Whole[language]; whole != "" {
		return p.fill(whole), nil
	}
	call := p.Calls[language]
	switch {
	case language == "curl":
		return p.curl(), nil
	case call != "":
		return p.program(language, call)
	case language == "go" && p.GoClient != "":
		return p.goClient()
	case language == "cli", language == "go":
		return "", nil
	}
	return p.http(language), nil
}

// fill replaces the path parameters of a complete program, which are written as {name}.
func (p *printer) fill(text string) string {
	for _, name := range slices.Sorted(maps.Keys(p.Params)) {
		text = strings.ReplaceAll(text, "{"+name+"}", p.Params[name])
	}
	return text
}

// Target returns the request's path with the values of its parameters, and its query.
func (r *Request) Target() string {
	path := r.Path
	for name, v := range r.Params {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(v))
	}
	path = strings.ReplaceAll(path, "%40", "@") // an address needs no escaping
	if r.Query != "" {
		path += "?" + r.Query
	}
	return path
}

func parseQuery(query string) (value, error) {
	v := value{kind: '{'}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, text, _ := strings.Cut(pair, "=")
		text, err := url.QueryUnescape(text)
		if err != nil {
			return v, fmt.Errorf("unescape %s: %w", name, err)
		}
		kind := byte('"')
		if strings.Trim(text, "0123456789") == "" {
			kind = '0'
		}
		v.keys, v.items = append(v.keys, name), append(v.items, value{kind: kind, text: text})
	}
	return v, nil
}

// curl prints the request for a shell.
func (p *printer) curl() string {
	var b strings.Builder
	b.WriteString("curl ")
	if p.Method != "GET" && (p.Method != "POST" || p.Body == nil && p.Form == nil) {
		b.WriteString("-X " + p.Method + " ")
	}
	b.WriteString(`"$URL` + p.Target() + `" \` + "\n" + `  -H "Authorization: Bearer $KEY"`)
	if p.Header != "" {
		b.WriteString(" \\\n  -H " + shellQuote(p.Header))
	}
	for _, f := range p.Form {
		if f.File != "" {
			b.WriteString(" \\\n  -F " + f.Name + "=@" + f.File)
		} else {
			b.WriteString(" \\\n  -F " + shellQuote(f.Name+"="+f.Value))
		}
	}
	if p.Body != nil {
		text := strings.ReplaceAll(jsonSyntax.text(p.body, 1), "'", `'\''`)
		b.WriteString(" \\\n  -H \"Content-Type: application/json\" \\\n  -d '" + text + "'")
	}
	return b.String()
}

// shellQuote returns a word for a shell, in quotes if it needs them.
func shellQuote(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.ContainsRune("@._-:/+=", c))
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
