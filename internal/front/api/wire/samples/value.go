package samples

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// value is a JSON value whose fields keep their order.
type value struct {
	kind  byte   // as in jsontext.Kind: { [ " 0 t f n
	text  string // a string without quotes, or a number
	keys  []string
	items []value // values of an object's fields, or elements of an array
}

// parse reads a JSON value.
func parse(text []byte) (value, error) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	v, err := read(d)
	if err != nil {
		return value{}, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return value{}, fmt.Errorf("text after the JSON value: %v", err)
	}
	return v, nil
}

func read(d *jsontext.Decoder) (value, error) {
	t, err := d.ReadToken()
	if err != nil {
		return value{}, err
	}
	v := value{kind: byte(t.Kind())}
	switch v.kind {
	case '"', '0':
		v.text = t.String()
	case '{', '[':
		end := jsontext.Kind('}')
		if v.kind == '[' {
			end = ']'
		}
		for d.PeekKind() != end {
			if v.kind == '{' {
				name, err := d.ReadToken()
				if err != nil {
					return value{}, err
				}
				v.keys = append(v.keys, name.String())
			}
			item, err := read(d)
			if err != nil {
				return value{}, err
			}
			v.items = append(v.items, item)
		}
		_, err = d.ReadToken()
	}
	return v, err
}

// field returns a field of an object.
func (v *value) field(name string) (value, bool) {
	for i, key := range v.keys {
		if key == name {
			return v.items[i], true
		}
	}
	return value{}, false
}

// syntax describes how a language writes values.
type syntax struct {
	indent          string
	open, close     string // of an object
	begin, end      string // of a list
	null, yes, no   string
	quote           func(string) string
	key             func(string) string // a field's name with the sign between name and value
	rename          bool                // names are written in camel case, except those that the client chose
	trailing, space bool                // a comma after the last item; spaces inside the braces of a short object
}

func doubleQuote(text string) string { return strconv.Quote(text) }

func singleQuote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`).Replace(text) + "'"
}

// rubyQuote also escapes the sign that begins an interpolation in Ruby.
func rubyQuote(text string) string { return strings.ReplaceAll(strconv.Quote(text), "#{", `\#{`) }

// isName reports whether a text is a name in all languages.
func isName(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9')
	})
}

var (
	jsonSyntax = syntax{indent: "  ", open: "{", close: "}", begin: "[", end: "]", null: "null", yes: "true", no: "false",
		quote: doubleQuote, key: func(k string) string { return strconv.Quote(k) + ": " }}
	nodeSyntax = syntax{indent: "  ", open: "{", close: "}", begin: "[", end: "]", null: "null", yes: "true", no: "false",
		quote: singleQuote, rename: true, trailing: true, space: true, key: func(k string) string {
			if !isName(k) {
				k = singleQuote(k)
			}
			return k + ": "
		}}
	pythonSyntax = syntax{indent: "    ", open: "{", close: "}", begin: "[", end: "]", null: "None", yes: "True",
		no: "False", quote: doubleQuote, trailing: true, key: func(k string) string { return strconv.Quote(k) + ": " }}
	rubySyntax = syntax{indent: "  ", open: "{", close: "}", begin: "[", end: "]", null: "nil", yes: "true", no: "false",
		quote: rubyQuote, trailing: true, space: true, key: func(k string) string {
			if !isName(k) {
				k = strconv.Quote(k)
			}
			return k + ": "
		}}
	phpSyntax = syntax{indent: "    ", open: "[", close: "]", begin: "[", end: "]", null: "null", yes: "true", no: "false",
		quote: phpQuote, trailing: true, key: func(k string) string { return singleQuote(k) + " => " }}
)

// phpQuote uses double quotes for a text with a line feed, because single quotes do not know escapes in PHP.
func phpQuote(text string) string {
	if strings.Contains(text, "\n") {
		return strings.ReplaceAll(strconv.Quote(text), "$", `\$`)
	}
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

// chosen lists fields of the API whose own fields have names that the client chooses.
var chosen = map[string]bool{"variables": true, "properties": true, "headers": true, "payload": true, "schema": true,
	"filter": true, "scenario": true}

// lineMax is the length up to which an inner list or object stays on one line.
const lineMax = 60

// text prints a value at a depth of indentation. The first line is not indented.
func (s *syntax) text(v value, depth int) string { return s.write(v, depth, s.rename, true) }

func (s *syntax) write(v value, depth int, rename, top bool) string {
	switch v.kind {
	case '"':
		return s.quote(v.text)
	case '0':
		return v.text
	case 't':
		return s.yes
	case 'f':
		return s.no
	case 'n':
		return s.null
	}
	open, end := s.open, s.close
	if v.kind == '[' {
		open, end = s.begin, s.end
	}
	if len(v.items) == 0 {
		return open + end
	}
	parts := make([]string, len(v.items))
	for i, item := range v.items {
		inner := rename
		if v.kind == '{' {
			key := v.keys[i]
			inner = inner && !(chosen[key] && item.kind == '{')
			if rename {
				key = camel(key)
			}
			parts[i] = s.key(key)
		}
		parts[i] += s.write(item, depth+1, inner, false)
	}
	line := strings.Join(parts, ", ")
	if (!top || v.kind == '[' && v.items[0].kind != '{') && len(line) <= lineMax && !strings.Contains(line, "\n") {
		if s.space && v.kind == '{' {
			line = " " + line + " "
		}
		return open + line + end
	}
	inner := strings.Repeat(s.indent, depth+1)
	text := open + "\n" + inner + strings.Join(parts, ",\n"+inner)
	if s.trailing {
		text += ","
	}
	return text + "\n" + strings.Repeat(s.indent, depth) + end
}

// camel returns a name in camel case: reply_to becomes replyTo.
func camel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}
