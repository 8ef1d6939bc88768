package api

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// lastEntry returns the id of the newest entry in the request log.
func (f *fixture) lastEntry(t *testing.T) string {
	t.Helper()
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal(f.do(t, "GET /logs?limit=1").Body.Bytes(), &list); err != nil || len(list.Data) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	return list.Data[0].ID
}

// requestBody returns the request body of a log entry as the API shows it.
func (f *fixture) requestBody(t *testing.T, entryID string) string {
	t.Helper()
	w := f.do(t, "GET /logs/"+entryID)
	var e struct {
		Body json.RawMessage `json:"request_body"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != 200 {
		t.Fatalf("%d %s, %v", w.Code, w.Body, err)
	}
	return string(e.Body)
}

// storedBody returns the request body of a log entry as the database stores it.
func (f *fixture) storedBody(t *testing.T, entryID string) (body string) {
	t.Helper()
	f.Must(f.DB.QueryRow(t.Context(), `SELECT request_body FROM request_logs WHERE id = $1`, db.ID(entryID)).Scan(&body))
	return body
}

// shownBody returns a request body as the API shows it if the log stores it whole, but for strings that are too long.
func shownBody(body string, longest int) string {
	text, err := wire.Encode(verbatim(requestlog.Redact([]byte(body), longest)))
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(text))
}

// The request log stores a reference in place of the bodies of sent emails, and shows the same as if it stored the
// bodies, whatever the client's JSON encoder escapes.
func TestLogRefersToBodies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(`<p class=\"a\">Grüße & mehr</p>\n`, 300)
	php := strings.Repeat(`<p class=\"a\">Gr\u00fc\u00dfe & mehr<\/p>\n\ud83d\ude00`, 300)
	object := func(members string) string {
		return `{"from":"a@example.org","to":["ann@example.net"],"subject":"s",` + members + `}`
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		f.verified("example.org")
		template := f.created(t, "POST /templates\n\n"+`{"name":"x","html":"<p>nowhere else</p>","subject":"s"}`)
		f.do(t, "POST /templates/"+template+"/publish")
		for name, x := range map[string]struct {
			body   string
			stored bool // whether the log itself contains the words "nowhere else"
		}{
			"short":                {object(`"html":"<p>nowhere else</p>"`), false},
			"both":                 {object(`"html":"<p>nowhere else</p>", "text" : "nowhere else"`), false},
			"empty text":           {object(`"text":"","html":"nowhere else"`), false},
			"null":                 {object(`"text":null,"html":"nowhere else"`), false},
			"Node.js":              {object(`"html":"<p>nowhere else 'ä' \u001f\u2028 \"</p>` + long + `"`), false},
			"Go":                   {object(`"html":"\u003cp\u003enowhere else ä \u0026 \u2028 \"\u003c/p\u003e"`), false},
			"Python":               {object(`"html":"<p>nowhere else \u00e4 \ud83d\ude00 \u007f</p>"`), false},
			"PHP":                  {object(`"html":"<p>nowhere else<\/p>` + php + `"`), false},
			".NET":                 {object(`"html":"\u003Cp\u003Enowhere else \u00E4 \u0022\u0027\u002B\uD83D\uDE00"`), false},
			"old Go":               {object(`"html":"nowhere else \u0008 \u000c \n"`), false},
			"secret":               {object(`"html":"nowhere else https://a.example/?token=s3cr3t&b=1 whsec_s3cr3t"`), false},
			"cut in a character":   {object(`"html":"nowhere else` + strings.Repeat("ä€😀", 200) + `"`), false},
			"cut in an escape":     {object(`"html":"nowhere else ` + strings.Repeat(`\ud83d\ude00`, 200) + `"`), false},
			"exactly the limit":    {object(`"html":"nowhere else` + strings.Repeat("x", 1012) + `"`), false},
			"one more":             {object(`"html":"nowhere else` + strings.Repeat("x", 1013) + `"`), false},
			"ends like a cut one":  {object(`"html":"nowhere else… [5 more bytes]"`), false},
			"like a reference":     {object(`"html":"[7,\"<\"] nowhere else","tags":[],"x":[{"html":[7],"text":[]}]`), false},
			"twice":                {object(`"html":"first","html":"nowhere else"`), false},
			"twice, the first":     {object(`"html":"nowhere else","html":"last"`), true},
			"mixed escapes":        {object(`"html":"nowhere else \u003c <\u0061\/"`), false},
			"escaped secret":       {object(`"html":"nowhere else ?a=\u0026token=s3cr3t\u0026b"`), false},
			"invalid UTF-8":        {object("\"html\":\"nowhere else \xff\""), true},
			"half a pair":          {object(`"html":"nowhere else \ud83d"`), true},
			"escaped name":         {object(`"\u0068tml":"nowhere else"`), true},
			"other members":        {object(`"html":"x","HTML":"nowhere else","x":{"text":"nowhere else"}`), true},
			"scheduled":            {object(`"html":"nowhere else","scheduled_at":"in 1 hour"`), false},
			"attachment":           {object(`"text":"nowhere else","attachments":[{"filename":"a","content":"aGk="}]`), false},
			"template":             {object(`"template":{"id":"` + template + `"},"x":"nowhere else"`), true},
			"refused":              {object(`"html":"nowhere else","tags":[{"name":"!","value":"!"}]`), true},
			"of the wrong type":    {object(`"html":["nowhere else"]`), true},
			"batch":                {`[` + object(`"html":"nowhere else"`) + `, ` + object(`"text":"nowhere else ä"`) + `]`, false},
			"batch, permissive":    {`[{"html":"nowhere"},` + object(`"text":"nowhere else"`) + `,{"headers":5,"html":[8]}]`, false},
			"batch, partly inline": {`[` + object(`"html":"a"`) + `,` + object("\"text\":\"nowhere else \xff\"") + `]`, true},
			"batch, too long": {`[` + strings.Repeat(object(`"html":"nowhere else `+strings.Repeat("x", 1200)+`"`)+`,`, 69) +
				object(`"html":"x"`) + `]`, false},
			"batch, not too long": {`[` + strings.Repeat(object(`"html":"nowhere else `+strings.Repeat("x", 600)+`"`)+`,`, 69) +
				object(`"html":"x"`) + `]`, false},
		} {
			path, head := "/emails", ""
			if x.body[0] == '[' {
				path, head = "/emails/batch", "X-Batch-Validation: permissive\n"
			}
			w := f.do(t, "POST "+path+"\n"+head+"\n"+x.body)
			longest := 1 << 10
			if w.Code >= 400 {
				longest = 16 << 10
			}
			entry := f.lastEntry(t)
			stored := f.storedBody(t, entry)
			if got, want := f.requestBody(t, entry), shownBody(x.body, longest); got != want {
				t.Errorf("%s: %d, the log shows\n%s\nwant\n%s\nand stores\n%s", name, w.Code, got, want, stored)
			}
			if strings.Contains(stored, "nowhere else") != x.stored {
				t.Errorf("%s: %d, the log stores\n%s", name, w.Code, stored)
			}
			if wantCode := 422; (w.Code == wantCode) != (name == "refused" || name == "of the wrong type") {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
	})
}

// A repeated request shows the body of the email that the first request sent.
func TestLogOfRepeatedRequests(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		f.verified("example.org")
		one := `{"from":"a@example.org","to":["ann@example.net"],"subject":"s","html":"<p>nowhere else</p>"}`
		differently := strings.NewReplacer("<", `\u003c`, `"s"`, ` "s"`).Replace(one)
		for _, request := range []string{
			"POST /emails\nIdempotency-Key: a\n\n" + one,
			"POST /emails\nIdempotency-Key: a\n\n" + differently,
			"POST /emails/batch\nIdempotency-Key: b\nX-Batch-Validation: permissive\n\n[{}," + one + "]",
			"POST /emails/batch\nIdempotency-Key: b\nX-Batch-Validation: permissive\n\n[{}," + differently + "]",
		} {
			if w := f.do(t, request); w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			_, body, _ := strings.Cut(request, "\n\n")
			entry := f.lastEntry(t)
			if got, want := f.requestBody(t, entry), shownBody(body, 1<<10); got != want {
				t.Errorf("the log shows\n%s\nwant\n%s", got, want)
			}
			if stored := f.storedBody(t, entry); strings.Contains(stored, "nowhere else") {
				t.Errorf("the log stores %s", stored)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails`); n != 2 {
			t.Errorf("%d emails", n)
		}
		w := f.do(t, "POST /emails\nIdempotency-Key: a\n\n"+strings.Replace(one, "nowhere", "somewhere", 1))
		if got := f.storedBody(t, f.lastEntry(t)); w.Code != 409 || !strings.Contains(got, "somewhere else") {
			t.Errorf("another payload: %d, the log stores %s", w.Code, got)
		}
	})
}

// Once an email's content is deleted, the log shows null in its place, and the rest of the request.
func TestLogOfDeletedBodies(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		f.verified("example.org")
		one := `{"from":"a@example.org","to":["no@example.net"],"subject":"s","html":"<p>a</p>","text":"b","x":{"html":"c"}}`
		f.do(t, "POST /suppressions\n\n"+`{"email":"no@example.net"}`) // so that the emails are settled
		var sent struct{ Data []ref }
		w := f.do(t, "POST /emails/batch\n\n["+one+","+one+"]")
		if err := json.Unmarshal(w.Body.Bytes(), &sent); err != nil || len(sent.Data) != 2 {
			t.Fatalf("%d %s, %v", w.Code, w.Body, err)
		}
		entry := f.lastEntry(t)
		f.Must(f.Emails.DeleteContent(t.Context(), f.Acme.TeamID, sent.Data[0].ID))
		gone := strings.NewReplacer(`"<p>a</p>"`, "null", `"b"`, "null").Replace(one)
		trace.Take()
		if got, want := f.requestBody(t, entry), "["+gone+","+one+"]"; got != want {
			t.Errorf("the log shows\n%s\nwant\n%s", got, want)
		}
		reads := 0
		for _, s := range trace.Take() {
			if strings.Contains(s.SQL, "email_bodies") {
				reads++
			}
		}
		if reads != 1 {
			t.Errorf("the bodies are read by %d statements", reads)
		}
		if w := f.do(t, "GET /logs/"+entry+"\nAuthorization: other\n\n"); w.Code != 404 {
			t.Errorf("another team reads %d %s", w.Code, w.Body)
		}
		f.Must(d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE email_bodies SET team_id = $1`, db.ID(dbtest.ID("other")))
			return err
		}))
		if got, want := f.requestBody(t, entry), "["+gone+","+gone+"]"; got != want {
			t.Errorf("the log shows another team's bodies:\n%s", got)
		}
	})
}

// An erasure replaces an address in the log even if the log refers to the body of an email to somebody else. That email
// is not changed.
func TestEraseFromReferredBodies(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		f.verified("example.org")
		object := func(members string) string {
			return `{"from":"a@example.org","to":["ann@example.net"],"subject":"s",` + members + `}`
		}
		bodies := []string{
			object(`"html":"<p>100% of Bob@example.net</p>","text":"other text"`),
			object(`"text":"write to b\u00f6b@example.net or bob%40example.net\nbob@example.net"`),
			"[" + object(`"text":"jbob@example.net"`) + "," + object(`"text":"bob@example.net"`) + "]",
			object(`"text":"jbob@example.net, bob@example.net.example, 100%"`),
			object(`"text":"` + strings.Repeat("x", 1100) + ` bob@example.net"`), // not shown
		}
		entries := make([]string, len(bodies))
		for i, body := range bodies {
			path := "/emails"
			if body[0] == '[' {
				path = "/emails/batch"
			}
			if w := f.do(t, "POST "+path+"\n\n"+body); w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			entries[i] = f.lastEntry(t)
		}
		a := testnode.Must(erasure.Parse("bob@example.net"))
		for _, dry := range []bool{true, false} {
			found, err := requestlog.EraseAddress(t.Context(), d, a, erasure.Scope{Teams: []string{f.Acme.TeamID}, DryRun: dry})
			if err != nil || len(found) != 1 || found[0].N != 3 {
				t.Errorf("dry run %v: %+v, %v", dry, found, err)
			}
		}
		for i, body := range bodies {
			if got, want := f.requestBody(t, entries[i]), a.Replace(shownBody(body, 1<<10)); got != want {
				t.Errorf("the log shows\n%s\nwant\n%s", got, want)
			}
		}
		for i, want := range []bool{false, true, false, false, false} {
			if stored := f.storedBody(t, entries[i]); strings.Contains(stored, "other text") ||
				strings.Contains(stored, "jbob") || strings.Contains(stored, "write to") != want {
				t.Errorf("the log stores %s", stored)
			}
		}
		found, err := requestlog.EraseAddress(t.Context(), d, a, erasure.Scope{Teams: []string{f.Acme.TeamID}})
		if err != nil || len(found) > 0 {
			t.Errorf("again: %+v, %v", found, err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM email_bodies WHERE html LIKE '%Bob@%' OR body_text LIKE '%bob@%'`); n != 6 {
			t.Errorf("%d emails still contain it", n)
		}
	})
}

// Bodies of requests that create no email are stored: checks of drafts, and requests for approval, whose bodies are not
// logged at all.
func TestLogOfRequestsWithoutEmails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		f.verified("example.org")
		one := `{"from":"a@example.org","to":["ann@example.net"],"subject":"s","html":"<p>nowhere else</p>"}`
		var kept []bool
		for _, path := range []string{"/emails/checks", "/approvals", "/emails", "/email", "/emails/sending"} {
			if w := f.do(t, "POST "+path+"\n\n"+one); w.Code/100 != 2 {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
			kept = append(kept, strings.Contains(f.storedBody(t, f.lastEntry(t)), "nowhere else"))
		}
		if want := []bool{true, false, false, false, false}; !slices.Equal(kept, want) {
			t.Errorf("the log stores the bodies: %v, want %v", kept, want)
		}
		if n := f.Count(`SELECT COUNT(*) FROM request_logs WHERE email_ids <> '' AND team_id = $1`,
			db.ID(f.Acme.TeamID)); n != 3 {
			t.Errorf("%d entries refer to emails", n)
		}
	})
}
