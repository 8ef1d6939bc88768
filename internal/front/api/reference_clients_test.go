package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/front/api/wire/wiretest"
	"github.com/postrider/postrider/internal/node/testnode"
)

// madeRequest is a request that an example made.
type madeRequest struct {
	Method, Path string
	Query        url.Values
	Body         any // the decoded JSON; nil if the request has no JSON
}

var (
	curlTarget = regexp.MustCompile(`"\$URL(/[^"]*)"`)
	curlBody   = regexp.MustCompile(`(?s) -d '(.*)'$`)
)

// requestOf returns the request that an operation's example for curl makes.
func requestOf(t *testing.T, o *wire.ReferenceOperation) madeRequest {
	t.Helper()
	target, err := url.Parse(curlTarget.FindStringSubmatch(o.Examples[0].Code)[1])
	if err != nil {
		t.Fatal(err)
	}
	m := madeRequest{Method: o.Method, Path: target.Path, Query: target.Query()}
	if body := curlBody.FindStringSubmatch(o.Examples[0].Code); body != nil {
		text := strings.ReplaceAll(body[1], `'\''`, "'")
		if err := json.Unmarshal([]byte(text), &m.Body); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// alsoSent lists fields that clients send in bodies in addition to those of the caller: what the path has too, and
// empty fields.
var alsoSent = []string{"id", "contact_id", "broadcast_id", "webhook_id", "automation_id", "segment_id", "scheduled_at",
	"reply_to", "audience_id", "topic_id", "email_id", "email", "identifier"}

// shorter has the examples whose client cannot send all fields of the body.
var shorter = map[string]bool{"cli PATCH /contacts/{contact}": true}

// sameRequest reports whether a client made the request that the reference shows. A client may send an ID, an empty
// field or a limit in addition, and a list of topics instead of an object with the list. If some is true, fields of the
// body may be missing.
func sameRequest(made, want madeRequest, some bool) bool {
	if !want.Query.Has("limit") {
		made.Query.Del("limit")
	}
	if made.Method != want.Method || made.Path != want.Path || made.Query.Encode() != want.Query.Encode() {
		return false
	}
	of, ok := want.Body.(map[string]any)
	if !ok {
		return want.Body == nil || reflect.DeepEqual(made.Body, want.Body) // a client may send an empty object
	}
	if list, isList := made.Body.([]any); isList {
		return reflect.DeepEqual(of["topics"], any(list))
	}
	body, ok := made.Body.(map[string]any)
	if !ok {
		return false
	}
	for _, name := range alsoSent {
		if _, wanted := of[name]; !wanted {
			delete(body, name)
		}
	}
	for name := range of {
		if _, sent := body[name]; !sent && some {
			delete(of, name)
		}
	}
	return (len(of) > 0 || !some) && reflect.DeepEqual(body, of)
}

// exampleServer passes the requests of examples to a node. It replaces the IDs of the reference by those of the node,
// and makes the node's response the one that the reference shows.
type exampleServer struct {
	*exampleRun
	language string
	address  string
	mu       sync.Mutex
	key      string                     // the operation whose example runs
	want     madeRequest                // the request of the example
	answer   *httptest.ResponseRecorder // the node's response to that request; nil before it
	other    []madeRequest              // other requests of the example
}

func newExampleServer(t *testing.T, language string) *exampleServer {
	t.Helper()
	s := &exampleServer{exampleRun: newExampleRun(t), language: language}
	s.address = wiretest.Serve(t, http.HandlerFunc(s.serve)).URL
	return s
}

func (s *exampleServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	made := madeRequest{Method: r.Method, Path: r.URL.Path, Query: r.URL.Query()}
	if strings.HasPrefix(r.Header.Get("Content-Type"), wire.MediaJSON) && len(body) > 0 {
		if err := json.Unmarshal(body, &made.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	in := httptest.NewRequest(r.Method, s.real(r.URL.RequestURI()), strings.NewReader(s.real(string(body))))
	in.Host, in.Header = "api.postrider.test", r.Header.Clone()
	in.Header.Set("User-Agent", "curl/8.5.0") // the reference shows responses that have it
	in.Header.Del("Content-Length")           // another ID may have another length
	in.Header.Del("Accept-Encoding")
	answer := httptest.NewRecorder()
	s.API.ServeHTTP(answer, in.WithContext(r.Context()))

	var text string
	if s.answer == nil && sameRequest(made, s.want, shorter[s.language+" "+s.key]) {
		s.answer = answer
		s.learn(s.key, answer)
		text, _ = s.response(s.key, answer)
	} else {
		s.other = append(s.other, made)
		text = strings.NewReplacer(s.shown...).Replace(answer.Body.String())
	}
	for name, values := range answer.Header() {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(answer.Code)
	io.WriteString(w, text)
}

// begin expects the request of an operation's example.
func (s *exampleServer) begin(key string, o *wire.ReferenceOperation) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key, s.want, s.answer, s.other = key, requestOf(s.t, o), nil, nil
}

// end returns the node's response to the example's request, or nil if the example has not made it. The CLI may look an
// object up before it changes it; other requests are errors.
func (s *exampleServer) end(code string) *httptest.ResponseRecorder {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer == nil {
		s.t.Errorf("%s in %s made the requests %+v, want %+v:\n%s", s.key, s.language, s.other, s.want, code)
	} else if slices.ContainsFunc(s.other, func(m madeRequest) bool { return s.language != "cli" || m.Method != "GET" }) {
		s.t.Errorf("%s in %s also made the requests %+v:\n%s", s.key, s.language, s.other, code)
	}
	return s.answer
}

// exampleProgram runs the examples of a language one after another, in one process.
type exampleProgram struct {
	t    *testing.T
	in   io.WriteCloser
	out  *bufio.Reader
	errs testnode.Logged
}

// startExamples starts a program of testdata/examples, or another that answers in the same way. If in is nil, the
// program reads its standard input.
func startExamples(t *testing.T, cmd *exec.Cmd, in io.WriteCloser) *exampleProgram {
	t.Helper()
	p := &exampleProgram{t: t, in: in}
	cmd.Stderr = &p.errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if in == nil {
		if p.in, err = cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	p.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s (make deps installs what is missing): %v", cmd.Path, err)
	}
	t.Cleanup(func() {
		p.in.Close()
		cmd.Wait()
	})
	return p
}

// run runs an example and returns what it printed and its result, which is "ok" or "0" if the example succeeded.
func (p *exampleProgram) run(line string) (printed, result string) {
	p.t.Helper()
	p.errs.Take()
	_, err := io.WriteString(p.in, line+"\n")
	if err == nil {
		printed, err = p.out.ReadString('\x1e')
	}
	if err == nil {
		result, err = p.out.ReadString('\n')
	}
	if err != nil {
		p.t.Fatalf("the program that runs the examples ended at %s: %v\n%s", line, err, &p.errs)
	}
	return strings.TrimSuffix(printed, "\x1e"), strings.TrimSuffix(result, "\n")
}

// example returns an operation's example in a language, or "" if it has none.
func example(o *wire.ReferenceOperation, language string) string {
	i := slices.IndexFunc(o.Examples, func(e wire.ReferenceExample) bool { return e.Language == language })
	if i < 0 {
		return ""
	}
	return o.Examples[i].Code
}

// examplesFolder returns a new folder with an example of each operation and the file that some of them upload. The
// paths of the examples are returned by operation.
func (s *exampleServer) examplesFolder(extension string) (folder string, files map[string]string) {
	s.t.Helper()
	folder, files = s.t.TempDir(), map[string]string{}
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
		return path
	}
	write("contacts.csv", exampleFile)
	for i, key := range s.order {
		if code := example(s.operations[key], s.language); code != "" {
			files[key] = write("example"+strconv.Itoa(i)+extension, code)
		}
	}
	return folder, files
}

// environment returns the variables of an example. Some libraries would send requests for this machine to a proxy.
func (s *exampleServer) environment(more ...string) []string {
	return append(os.Environ(), append(more, "URL="+s.address, "KEY="+s.keys["full"], "NO_PROXY=*", "no_proxy=*")...)
}

// compareAll runs the example of each operation with run, which returns what the example printed and its problem, if it
// has one. The node must give the response that the reference shows, and printed must find it in what was printed. run
// may leave an example out by the problem notRun.
func (s *exampleServer) compareAll(run func(key string) (printed, problem string),
	printed func(o *wire.ReferenceOperation, code, text string, response any) bool) {
	s.t.Helper()
	all := responsesShown(s.t)
	ran := 0
	s.each(func(key string, o *wire.ReferenceOperation) *httptest.ResponseRecorder {
		code := example(o, s.language)
		if code == "" {
			return s.curl(key, o)
		}
		s.begin(key, o)
		text, problem := run(key)
		if problem == notRun {
			return s.curl(key, o)
		}
		ran++
		if problem != "" {
			s.t.Errorf("%s in %s: %s\n%s", key, s.language, problem, code)
		}
		answer := s.end(code)
		if answer == nil {
			return s.curl(key, o) // the next examples need its effect
		}
		got, isJSON := s.response(key, answer)
		if want := all[key]; answer.Code == o.Status && !sameText(got, isJSON, want) {
			s.t.Errorf("%s in %s: the node answers\n%s\nthe reference shows\n%v", key, s.language, got, want)
		}
		if !printed(o, code, text, all[key]) {
			s.t.Errorf("%s in %s printed\n%s\nthe reference shows\n%v\n%s", key, s.language, text, all[key], code)
		}
		if shorter[s.language+" "+key] {
			return s.curl(key, o)
		}
		return answer
	})
	s.t.Logf("%d examples in %s were run", ran, s.language)
	if ran < 20 {
		s.t.Errorf("only %d examples in %s were run", ran, s.language)
	}
}

// notRun is the problem of an example that is not run.
const notRun = "not run"

// responsesShown returns the responses that the reference shows, by operation. Responses that are not JSON are strings.
func responsesShown(t *testing.T) map[string]any {
	t.Helper()
	files, err := referenceFiles.ReadDir("reference/responses")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, file := range files {
		text, err := referenceFiles.ReadFile("reference/responses/" + file.Name())
		if err == nil {
			err = json.Unmarshal(text, &all) // adds to the map
		}
		if err != nil {
			t.Fatalf("%s: %v", file.Name(), err)
		}
	}
	return all
}

// sameText reports whether a text is a response that the reference shows.
func sameText(text string, isJSON bool, want any) bool {
	if shown, ok := want.(string); ok && !isJSON {
		return strings.TrimSpace(text) == strings.TrimSpace(shown)
	}
	var got any
	return json.Unmarshal([]byte(text), &got) == nil && reflect.DeepEqual(got, want)
}

// printedValues reports whether an example printed a response: as a value, or its status and its text. Each line of
// text is a value.
func printedValues(o *wire.ReferenceOperation, text string, want any) bool {
	var values []any
	for line := range strings.Lines(text) {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			return false
		}
		values = append(values, v)
	}
	_, isText := want.(string)
	switch len(values) {
	case 1:
		return reflect.DeepEqual(values[0], want) || reflect.DeepEqual(snakeKeys(values[0]), want)
	case 2:
		body, ok := values[1].(string)
		return ok && fmt.Sprint(values[0]) == strconv.Itoa(o.Status) && sameText(body, !isText, want)
	}
	return false
}

// snakeKeys returns a value whose keys are written as in the API: createdAt becomes created_at. The official client for
// Node.js renames the fields of a few responses.
func snakeKeys(v any) any {
	switch of := v.(type) {
	case []any:
		for i := range of {
			of[i] = snakeKeys(of[i])
		}
	case map[string]any:
		renamed := map[string]any{}
		for key, item := range of {
			var b strings.Builder
			for _, c := range key {
				if unicode.IsUpper(c) {
					b.WriteByte('_')
				}
				b.WriteRune(unicode.ToLower(c))
			}
			renamed[b.String()] = snakeKeys(item)
		}
		return renamed
	}
	return v
}
