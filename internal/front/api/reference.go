package api

import (
	"embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/front/api/wire/samples"
)

// The folder reference has the words of the API reference. Each file NAME.txt describes a group of operations:
//
//	= Emails
//	The group's description.
//
//	== POST /emails
//	What the operation does.
//	again: What a second, equal request does.
//	error: 403 validation_error The cause.
//	path: contact=ada@example.net
//	query: limit=2
//	header: x-batch-validation: permissive
//	body: {"from":"..."}
//	form: file=@contacts.csv
//	node: resend.emails.send($body)
//	client: Emails.Send
//
// A line that begins with a space continues the line before it. The operations of a file are in an order in which their
// examples work one after another. The lines node, go, python, ruby, php and cli are templates of package samples. The
// line client names the method of Postrider's Go client, if there is no line go. The line cli! and the like hold a
// complete program. The file fields.txt describes fields that many types share. The files
// responses/NAME.json hold the recorded responses, which a test writes.
//
//go:embed reference/*.txt reference/responses/*.json
var referenceFiles embed.FS

// reference holds the parsed files of the folder reference.
type reference struct {
	groups     map[string]string     // descriptions by tag
	operations map[string]*wire.Text // by method and path
	order      []string              // the keys of operations, in the order of the files
	fields     map[string]string     // descriptions by field, or by schema and field
}

var loadReference = sync.OnceValues(func() (*reference, error) {
	r := &reference{groups: map[string]string{}, operations: map[string]*wire.Text{}, fields: map[string]string{}}
	files, err := referenceFiles.ReadDir("reference")
	if err != nil {
		return nil, fmt.Errorf("read the folder of the API reference: %w", err)
	}
	for _, file := range files {
		if file.IsDir() {
			continue
		}
		text, err := referenceFiles.ReadFile("reference/" + file.Name())
		if err != nil {
			return nil, fmt.Errorf("read a file of the API reference: %w", err)
		}
		if err := r.add(file.Name(), joinLines(string(text))); err != nil {
			return nil, fmt.Errorf("reference/%s: %w", file.Name(), err)
		}
	}
	return r, r.addResponses()
})

// joinLines returns the lines of a file without empty lines. Lines that begin with a space are added to the line before
// them. In a complete program, they stay lines.
func joinLines(text string) (lines []string) {
	empty := 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "":
			empty++
			continue
		case line[0] != ' ' || len(lines) == 0:
			lines = append(lines, line)
		case wholeProgram.MatchString(lines[len(lines)-1]):
			lines[len(lines)-1] += strings.Repeat("\n", empty+1) + strings.TrimPrefix(line, "  ")
		default:
			lines[len(lines)-1] += " " + strings.TrimSpace(line)
		}
		empty = 0
	}
	return lines
}

var wholeProgram = regexp.MustCompile(`^[a-z]+!:`)

func (r *reference) add(file string, lines []string) error {
	var tag string
	var of *wire.Text
	for _, line := range lines {
		switch {
		case file == "fields.txt":
			name, text, ok := strings.Cut(line, ": ")
			if !ok || r.fields[name] != "" {
				return fmt.Errorf("the line %q needs a name that no other line has, and a description", line)
			}
			r.fields[name] = text
		case strings.HasPrefix(line, "== "):
			key := line[3:]
			if r.operations[key] != nil {
				return fmt.Errorf("%s is described twice", key)
			}
			of = &wire.Text{Example: samples.Request{Params: map[string]string{}, Calls: map[string]string{},
				Whole: map[string]string{}}}
			for _, m := range pathParam.FindAllStringSubmatch(key, -1) {
				of.Example.Params[m[1]] = exampleParam(m[1])
			}
			r.operations[key] = of
			r.order = append(r.order, key)
		case strings.HasPrefix(line, "= "):
			tag = line[2:]
		case of == nil:
			r.groups[tag] = strings.TrimSpace(r.groups[tag] + " " + line)
		default:
			if err := addLine(of, line); err != nil {
				return fmt.Errorf("%s: %w", r.order[len(r.order)-1], err)
			}
		}
	}
	return nil
}

// addLine adds a line to the description of an operation.
func addLine(to *wire.Text, line string) error {
	name, rest, ok := strings.Cut(line, ": ")
	if first, code, found := strings.Cut(line, "!:"); found && slices.Contains(samples.Languages, first) {
		to.Example.Whole[first] = strings.TrimPrefix(code, "\n")
		return nil
	}
	switch {
	case ok && slices.Contains(samples.Languages, name):
		to.Example.Calls[name] = rest
	case ok && name == "client":
		to.Example.GoClient = rest
	case ok && name == "again":
		to.Repeat = rest
	case ok && name == "error":
		words := strings.SplitN(rest, " ", 3)
		status, err := strconv.Atoi(words[0])
		if err != nil || len(words) < 3 {
			return fmt.Errorf("the line %q needs a status, a name and a cause", line)
		}
		to.Errors = append(to.Errors, wire.ReferenceError{Status: status, Name: words[1], Cause: words[2]})
	case ok && name == "path":
		param, v, _ := strings.Cut(rest, "=")
		to.Example.Params[param] = fillIDs(v)
	case ok && name == "query":
		to.Example.Query = fillIDs(rest)
	case ok && name == "header":
		to.Example.Header = rest
	case ok && name == "form":
		field, v, _ := strings.Cut(rest, "=")
		f := samples.Field{Name: field, Value: fillIDs(v)}
		if file, isFile := strings.CutPrefix(v, "@"); isFile {
			f = samples.Field{Name: field, File: file}
		}
		to.Example.Form = append(to.Example.Form, f)
	case ok && name == "body":
		body := jsontext.Value(fillIDs(rest))
		if !body.IsValid() {
			return fmt.Errorf("the body is not JSON: %s", rest)
		}
		to.Example.Body = body
	case line == "stream":
		to.Event = true
	default:
		to.Description = strings.TrimSpace(to.Description + " " + line)
	}
	return nil
}

// addResponses reads the recorded responses.
func (r *reference) addResponses() error {
	files, err := referenceFiles.ReadDir("reference/responses")
	if err != nil {
		return fmt.Errorf("read the folder of recorded responses: %w", err)
	}
	for _, file := range files {
		text, err := referenceFiles.ReadFile("reference/responses/" + file.Name())
		if err != nil {
			return fmt.Errorf("read a file of recorded responses: %w", err)
		}
		var all map[string]jsontext.Value
		if err := json.Unmarshal(text, &all); err != nil {
			return fmt.Errorf("read %s: %w", file.Name(), err)
		}
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if r.operations[key] == nil {
				return fmt.Errorf("%s has a response of %s, which is not described", file.Name(), key)
			}
			if r.operations[key].Response, err = shownResponse(all[key]); err != nil {
				return fmt.Errorf("read the response of %s: %w", key, err)
			}
		}
	}
	return nil
}

// shownResponse returns a recorded response as readers see it. Responses that are not JSON are recorded as strings.
func shownResponse(recorded jsontext.Value) (string, error) {
	if recorded.Kind() == '"' {
		var text string
		err := json.Unmarshal(recorded, &text)
		return text, err
	}
	return samples.Format(recorded)
}

// operationText returns the description of an operation.
func operationText(o *wire.Operation) *wire.Text {
	r, err := loadReference()
	if err != nil {
		return nil
	}
	return r.operations[o.Method+" "+o.Path]
}

func groupText(tag string) string {
	r, err := loadReference()
	if err != nil {
		return ""
	}
	return r.groups[tag]
}

// fieldText returns the description of a field: the one for the schema and the field, or else the one for the field.
func fieldText(schema, field string) string {
	r, err := loadReference()
	if err != nil {
		return ""
	}
	if text := r.fields[schema+"."+field]; text != "" {
		return text
	}
	return r.fields[field]
}
