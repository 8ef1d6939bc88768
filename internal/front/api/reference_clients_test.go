package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/front/api/wire"
)

// madeRequest is a request that an example made.
type madeRequest struct {
	Method, Path string
	Query        url.Values
	Body         any
}

// recordingServer answers every request with an empty list and records it.
type recordingServer struct {
	*httptest.Server
	mu   sync.Mutex
	made []madeRequest
}

func newRecordingServer(t *testing.T) *recordingServer {
	s := &recordingServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		m := madeRequest{Method: r.Method, Path: r.URL.Path, Query: r.URL.Query()}
		if len(text) > 0 {
			json.Unmarshal(text, &m.Body)
		}
		s.mu.Lock()
		s.made = append(s.made, m)
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"list","data":[]}`)
	}))
	t.Cleanup(s.Close)
	return s
}

// shownExample is an example of the API reference in one language, with the request that the reference shows for curl.
type shownExample struct {
	name, code string
	want       madeRequest
}

// examplesIn returns the examples of all operations in a language. Examples with a file are left out, because they read
// one.
func examplesIn(t *testing.T, language string) (all []shownExample) {
	t.Helper()
	groups, err := New(Options{}).ReferenceGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for _, o := range g.Operations {
			for _, e := range o.Examples {
				if e.Language == language && !strings.Contains(o.Examples[0].Code, " -F ") {
					all = append(all, shownExample{o.Method + " " + o.Path, e.Code, requestOf(t, o)})
				}
			}
		}
	}
	if len(all) < 50 {
		t.Fatalf("%d examples in %s", len(all), language)
	}
	return all
}

var (
	curlTarget = regexp.MustCompile(`"\$URL(/[^"]*)"`)
	curlBody   = regexp.MustCompile(`(?s) -d '(.*)'$`)
)

// requestOf returns the request that an operation's example for curl makes.
func requestOf(t *testing.T, o wire.ReferenceOperation) madeRequest {
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

// alsoSent lists fields that clients send in bodies in addition to those of the caller: the ID that the path has too,
// and empty fields.
var alsoSent = []string{"id", "contact_id", "broadcast_id", "webhook_id", "automation_id", "segment_id", "scheduled_at",
	"reply_to", "audience_id"}

// sameRequest reports whether a client made the request that the reference shows. A client may send an ID or an empty
// field in addition, and a list of topics instead of an object with the list.
func sameRequest(made, want madeRequest) bool {
	if made.Method != want.Method || made.Path != want.Path || made.Query.Encode() != want.Query.Encode() {
		return false
	}
	if want.Body == nil {
		return true // a client may send an empty object
	}
	if of, ok := want.Body.(map[string]any); ok {
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
	}
	return reflect.DeepEqual(made.Body, want.Body)
}

// compare checks that each example made exactly one request, in the order of the examples.
func (s *recordingServer) compare(t *testing.T, all []shownExample) {
	t.Helper()
	if len(s.made) != len(all) {
		t.Errorf("%d examples made %d requests", len(all), len(s.made))
	}
	for i := range min(len(all), len(s.made)) {
		if !sameRequest(s.made[i], all[i].want) {
			t.Errorf("%s made the request %+v, want %+v:\n%s", all[i].name, s.made[i], all[i].want, all[i].code)
		}
	}
}

// Each example for Node.js makes the request that the reference shows for curl, with the official client where it has a
// method.
func TestReferenceInNode(t *testing.T) {
	t.Parallel()
	s := newRecordingServer(t)
	all := examplesIn(t, "node")
	var b strings.Builder
	b.WriteString("import { Resend } from 'resend';\nconsole.log = () => {};\n")
	for _, e := range all {
		code := strings.Replace(e.code, "import { Resend } from 'resend';\n", "", 1)
		b.WriteString("try {\n" + code + "\n} catch (error) { console.error(" + strconv.Quote(e.name) + ", error); }\n")
	}
	folder, err := filepath.Abs("../../../compat")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "--input-type=module", "-")
	cmd.Dir, cmd.Stdin = folder, strings.NewReader(b.String())
	cmd.Env = append(os.Environ(), "URL="+s.URL, "KEY=re_12345678_123456789012345678901234")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("run the examples with Node.js and the official client (make deps installs it): %v\n%s", err, out)
	}
	s.compare(t, all)
}

// Each example for Go makes the request that the reference shows for curl, with the official client where it has a
// method.
func TestReferenceInGo(t *testing.T) {
	t.Parallel()
	s := newRecordingServer(t)
	all := examplesIn(t, "go")
	folder := t.TempDir()
	var calls strings.Builder
	for i, e := range all {
		name := "example" + strconv.Itoa(i)
		calls.WriteString("\t" + name + "()\n")
		code := strings.Replace(e.code, "func main() {", "func "+name+"() {", 1)
		code = strings.ReplaceAll(code, "log.Fatal(err)", "log.Print("+strconv.Quote(e.name)+", err)")
		if err := os.WriteFile(filepath.Join(folder, name+".go"), []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := "package main\n\nfunc main() {\n" + calls.String() + "}\n"
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "examples")
	if out, err := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", program}, files...)...).
		CombinedOutput(); err != nil {
		t.Fatalf("build the examples: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), "URL="+s.URL, "KEY=re_12345678_123456789012345678901234")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("run the examples: %v\n%s", err, &errs)
	}
	s.compare(t, all)
}
