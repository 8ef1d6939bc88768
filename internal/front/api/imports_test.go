package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/front/api/wire/wiretest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// part is one part of a multipart form.
type part struct{ name, text string }

// formOf returns a multipart form with the given parts, in that order.
func formOf(t testing.TB, parts ...part) (mediaType, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		var to io.Writer
		var err error
		if p.name == "file" {
			to, err = w.CreateFormFile(p.name, "people.csv")
		} else {
			to, err = w.CreateFormField(p.name)
		}
		if err == nil {
			_, err = io.WriteString(to, p.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.String()
}

// upload posts a multipart form that creates an import.
func (f *fixture) upload(t testing.TB, parts ...part) *httptest.ResponseRecorder {
	t.Helper()
	mediaType, body := formOf(t, parts...)
	return f.do(t, "POST /contacts/imports\nContent-Type: "+mediaType+"\n\n"+body)
}

// importing creates an import and returns its ID.
func (f *fixture) importing(t testing.TB, file string, fields map[string]string) string {
	t.Helper()
	parts := []part{{"file", file}}
	for name, text := range fields {
		parts = append(parts, part{name, text})
	}
	w := f.upload(t, parts...)
	var made ref
	if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code != 201 || made.Object != "contact_import" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return made.ID
}

// imported waits until an import has ended.
func (f *fixture) imported(t testing.TB, importID string) (i contactImportWire, text string) {
	t.Helper()
	stop := f.Run(f.Services.Imports.JobKind())
	defer stop()
	testnode.Until(t, "the import ends", func() bool {
		text = f.do(t, "GET /contacts/imports/"+importID).Body.String()
		return !strings.Contains(text, `"completed_at":null`)
	})
	var got struct {
		Status    string
		Counts    importCounts
		Error     *string
		Processed int64
	}
	if err := json.Unmarshal([]byte(text), &got, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	return contactImportWire{Status: got.Status, Counts: got.Counts, Error: got.Error, Processed: got.Processed}, text
}

// An unclosed quote costs only its own row, whether or not later rows have quotes, and the failed row names its lines.
func TestImportWithUnclosedQuote(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		const rows = 3000
		for name, says := range map[string]string{"last": "\n3,The row (line 3) opens a quote that is never closed.,,\n",
			"later": "\n3,\"The row (line 3) opens a quote that ends in line 3002, where"} {
			file := strings.Builder{}
			file.WriteString("email,first_name\na@x.example,A\n" + name + "@x.example,\"B\n")
			for i := range rows - 3 {
				fmt.Fprintf(&file, "%s%d@x.example,C\n", name, i)
			}
			file.WriteString("z@x.example,Z\n")
			if name == "later" {
				file.WriteString("y@x.example,\"Y, Z\"\n")
			}
			importID := f.importing(t, file.String(), nil)
			i, text := f.imported(t, importID)
			if i.Status != "completed" || i.Counts.Failed != 1 || i.Counts.Created+i.Counts.Skipped < rows-2 {
				t.Errorf("%s: %s", name, text)
			}
			if w := f.do(t, "GET /contacts/imports/"+importID+"/failures"); !strings.Contains(w.Body.String(), says) {
				t.Errorf("%s: %s", name, w.Body)
			}
		}
	})
}

// Spreadsheet formulas in the failed rows of an import are written as in exports: either unchanged or escaped with an
// apostrophe.
func TestFormulasInFailures(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		importID := f.importing(t, "email,=note\n=1+1,'-x\n", nil)
		f.imported(t, importID)
		for query, want := range map[string][2]string{"": {"line,reason,email,=note\n2,", ",=1+1,'-x\n"},
			"?formulas=quote": {"line,reason,email,'=note\n2,", ",'=1+1,''-x\n"}} {
			w := f.do(t, "GET /contacts/imports/"+importID+"/failures"+query)
			if text := w.Body.String(); !strings.HasPrefix(text, want[0]) || !strings.HasSuffix(text, want[1]) {
				t.Errorf("%q: %d %s", query, w.Code, text)
			}
		}
	})
}

func TestImportsThroughTheAPI(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		var segment ref
		w := f.do(t, "POST /segments\n\n"+`{"name":"News"}`)
		if err := json.Unmarshal(w.Body.Bytes(), &segment); err != nil {
			t.Fatal(err)
		}
		file := "Mail;Plan;Seats\nann@example.org;\"a\nb\";2\nnobody;x;\nbob@example.org;;many\n"
		// In an upload, the form fields may come before or after the file.
		mapping := part{"column_map", `{"email":"Mail","first_name":null,"properties":{"plan":"Plan",` +
			`"seats":{"column":"seats","type":"number"}}}`}
		w = f.upload(t, part{"segments", `[{"id":"` + segment.ID + `"}]`}, part{"file", file}, part{"ignored", "x"},
			mapping, part{"on_conflict", "upsert"})
		var made ref
		if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code != 201 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		i, text := f.imported(t, made.ID)
		if i.Status != "completed" || i.Counts != (importCounts{3, 1, 0, 0, 2}) || i.Processed != int64(len(file)) ||
			!strings.Contains(text, `"filename":"people.csv"`) {
			t.Errorf("%s", text)
		}
		w = f.do(t, "GET /contacts/imports/"+made.ID+"/failures")
		want := "line,reason,Mail,Plan,Seats\n4,"
		if w.Code != 200 || !strings.HasPrefix(w.Body.String(), want) || strings.Count(w.Body.String(), "\n") != 3 ||
			!strings.HasPrefix(w.Header().Get("Content-Type"), "text/csv") ||
			!strings.Contains(w.Body.String(),
				"5,\"The `seats` field must be a number, as 12 or 12.5, not \"\"many\"\".\",bob@example.org,,many\n") {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		w = f.do(t, "GET /contacts/ann@example.org")
		if !strings.Contains(w.Body.String(), `"plan":{"type":"string","value":"a\nb"}`) &&
			!strings.Contains(w.Body.String(), `"plan":{"value":"a\nb","type":"string"}`) {
			t.Errorf("%s", w.Body)
		}
		if w = f.do(t, "GET /segments/"+segment.ID+"/contacts"); !strings.Contains(w.Body.String(), "ann@example.org") {
			t.Errorf("%s", w.Body)
		}
		f.watched(t, made.ID)
		for range 10 {
			f.importing(t, "email\n", nil)
		}
		var list struct {
			HasMore bool `json:"has_more"`
			Data    []ref
		}
		for query, n := range map[string]int{"": 10, "?status=queued": 10, "?status=completed": 1, "?status=failed": 0,
			"?limit=11": 11, "?status=queued&limit=4": 4} {
			w = f.do(t, "GET /contacts/imports"+query)
			err := json.Unmarshal(w.Body.Bytes(), &list, json.MatchCaseInsensitiveNames(true))
			if err != nil || len(list.Data) != n {
				t.Errorf("%s: %d %s", query, w.Code, w.Body)
			}
		}
		wantError(t, f.do(t, "GET /contacts/imports?status=done"), 422, "validation_error")
	})
}

// watched reads the event stream for an import that has ended.
func (f *fixture) watched(t *testing.T, importID string) {
	t.Helper()
	s := wiretest.Serve(t, f)
	status, text := wiretest.Send(t, f.keys["full"], http.MethodGet, s.URL+"/contacts/imports/"+importID+"/events", nil)
	if status != 200 || !strings.HasPrefix(text, "event: done\ndata: {\"object\":\"contact_import\"") ||
		!strings.HasSuffix(text, "}\n\n") {
		t.Errorf("%d %q", status, text)
	}
}

// The event stream for an import reports each state until the import ends or the node stops.
func TestWatchImport(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		s := wiretest.Serve(t, f)
		open := func(importID string) *bufio.Scanner {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				s.URL+"/contacts/imports/"+importID+"/events", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+f.keys["full"])
			w, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { w.Body.Close() })
			lines := bufio.NewScanner(w.Body)
			if lines.Scan(); lines.Text() != "event: progress" {
				t.Errorf("%d %s", w.StatusCode, lines.Text())
			}
			return lines
		}
		lines := open(f.importing(t, "email\na@example.org\n", nil))
		stop := f.Run(f.Services.Imports.JobKind())
		last := ""
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "event: ") {
				last = lines.Text()
			}
		}
		if last != "event: done" || lines.Err() != nil {
			t.Errorf("the stream ended with %q, %v", last, lines.Err())
		}
		stop()
		lines = open(f.importing(t, "email\na@example.org\n", nil))
		f.Services.Imports.Close()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "event: done") {
				t.Error("an import that waits is done")
			}
		}
	})
}

// The number of event streams is limited per team and per node. When a client closes a stream, another stream can be
// opened.
func TestWatchersAreCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	s := wiretest.Serve(t, f)
	events := "/contacts/imports/" + f.importing(t, "email\na@example.org\n", nil) + "/events"
	var all []*http.Response
	for range 10 {
		w := wiretest.Fetch(t, s, f.keys["full"], http.MethodGet, events)
		if line, err := bufio.NewReader(w.Body).ReadString('\n'); w.StatusCode != 200 || line != "event: progress\n" {
			t.Fatalf("%d %q %v", w.StatusCode, line, err)
		}
		all = append(all, w)
	}
	for _, path := range []string{events, "/webhooks/listen"} {
		wantError(t, f.do(t, "GET "+path), 429, "rate_limit_exceeded")
	}
	if status, next := f.watch(t, s, "", "other", ""); status != 200 || next() != ": watching\n" {
		t.Errorf("another team: %d", status)
	}
	all[0].Body.Close()
	// The server notices the closed connection when it writes the next event.
	f.do(t, "POST "+strings.TrimSuffix(events, "/events")+"/cancel")
	testnode.Until(t, "the streams have ended", func() bool { return f.Capacity.EventStreams.Held(f.Acme.TeamID) == 0 })
	if w := f.do(t, "GET "+events); w.Code != 200 || !strings.HasPrefix(w.Body.String(), "event: done\n") {
		t.Errorf("with places: %d %s", w.Code, w.Body)
	}
	f.Services.Live.Close()
	testnode.Until(t, "the other team's stream has ended", func() bool {
		return f.Capacity.EventStreams.Held(f.Other.TeamID) == 0
	})
	f.Must(f.Capacity.EventStreams.Acquire(t.Context(), "others", 256))
	wantError(t, f.do(t, "GET "+events), 429, "rate_limit_exceeded")
	f.Capacity.EventStreams.Release("others", 256)
}

func TestImportsRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		file := part{"file", "email,name\na@example.org,A\n"}
		many := make([]part, 51)
		for i := range many {
			many[i] = part{fmt.Sprint("x", i), ""}
		}
		for name, c := range map[string]struct {
			parts []part
			says  string
			code  int
		}{
			"no file":          {[]part{{"column_map", "{}"}}, "`file`", 422},
			"two files":        {[]part{file, file}, "twice", 422},
			"a map of words":   {[]part{file, {"column_map", "email"}}, "`column_map`", 422},
			"a map of a list":  {[]part{file, {"column_map", "[]"}}, "`column_map`", 422},
			"a map of numbers": {[]part{file, {"column_map", `{"email":1}`}}, "`column_map`", 422},
			"a NUL":            {[]part{file, {"column_map", `{"email":"\u0000"}`}}, "`column_map`", 422},
			"a raw NUL":        {[]part{file, {"column_map", "\x00"}}, "NUL", 422},
			"no column":        {[]part{file, {"column_map", `{"email":"mail"}`}}, "email, name", 422},
			"a policy":         {[]part{file, {"on_conflict", "replace"}}, "`on_conflict`", 422},
			"segments":         {[]part{file, {"segments", "x"}}, "`segments`", 422},
			"no segment":       {[]part{file, {"segments", `["x"]`}}, "`segments`", 422},
			"topics":           {[]part{file, {"topics", `{"id":"x"}`}}, "`topics`", 422},
			"properties": {[]part{file, {"column_map", `{"properties":{` + strings.Repeat(`"a":"email",`, 200) +
				`"a":"email"}}`}}, "properties", 422},
			"a long field":   {[]part{{"column_map", strings.Repeat("x", 64<<10+1)}, file}, "`column_map`", 422},
			"many parts":     {many, "parts", 400},
			"a picture":      {[]part{{"file", "\x89PNG\r\n\x1a\n" + strings.Repeat("x", 1<<19)}}, "save it as CSV", 422},
			"a large file":   {[]part{{"file", "email\n" + strings.Repeat("x", 1<<20)}}, "larger than 1048576", 422},
			"more than that": {[]part{{"file", "email\n" + strings.Repeat("x", 3<<20)}}, "larger than 1048576", 422},
		} {
			w := f.upload(t, c.parts...)
			text := w.Body.String()
			if w.Code != c.code || !strings.Contains(text, c.says) || !strings.Contains(text, "validation_error") &&
				c.says != "`file`" {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
		mediaType, body := formOf(t, file)
		for name, text := range map[string]string{
			"JSON":           "Content-Type: application/json\n\n{}",
			"no type":        "\n{}",
			"no boundary":    "Content-Type: multipart/form-data\n\n" + body,
			"cut":            "Content-Type: " + mediaType + "\n\n" + body[:len(body)-20],
			"cut in a field": "Content-Type: " + mediaType + "\n\n" + body[:30],
			"empty":          "Content-Type: " + mediaType + "\n\n",
			"a long header": "Content-Type: multipart/form-data; boundary=x\n\n--x\n" +
				"Content-Disposition: form-data; name=\"" + strings.Repeat("y", 1<<19) + "\"\n\nz\n--x--\n",
		} {
			w := f.do(t, "POST /contacts/imports\n"+text)
			if w.Code != 400 || !strings.Contains(w.Body.String(), "validation_error") {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
		if strings.Contains(f.log.String(), "level=ERROR") {
			t.Errorf("failures of ours:\n%s", f.log)
		}
		if n := f.Count(`SELECT COUNT(*) FROM contact_imports`); n != 0 {
			t.Errorf("%d imports of what was refused", n)
		}
		f.Must(f.Blobs.List(t.Context(), "imports/", func(b blob.Info) error { return errors.New(b.Key + " is left") }))
		w := f.do(t, "POST /contacts/imports\nAuthorization: sending\nContent-Type: "+mediaType+"\n\n"+body)
		wantError(t, w, 401, "restricted_api_key")
	})
}

// If an upload is refused, a client that sends the whole form before it reads the response still receives the error.
// The connection remains usable after a refused upload.
func TestRefusedUploadIsReceived(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	f.Services.Imports = testnode.Must(imports.New(imports.Config{MaxSize: 20 << 20}, imports.Deps{DB: f.DB,
		Queue: f.Queue,
		Blobs: f.Blobs, Contacts: f.Contacts, Log: f.Log}))
	f.API = New(Options{Services: f.Services, Log: f.Log})
	s := wiretest.Serve(t, f)
	mediaType, body := formOf(t, part{"file", "%PDF-1.7\n" + strings.Repeat("x", 15<<20)})
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/contacts/imports", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+f.keys["full"])
		r.Header.Set("Content-Type", mediaType)
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(w.Body)
		w.Body.Close()
		if err != nil || w.StatusCode != 422 || !strings.Contains(string(text), "a PDF") {
			t.Errorf("%d %s, %v", w.StatusCode, text, err)
		}
	}
}
