package dashboard_test

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/dashboard"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// eachAway runs a test on a node whose database can be taken away: PostgreSQL behind a proxy that refuses connections,
// and SQLite on a disk that cannot be read.
func eachAway(t *testing.T, f func(t *testing.T, b *board, away func() (back func()))) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) {
		proxy := dbtest.ProxyTo(t, dbtest.PostgresURL(t))
		b := newBoard(t, map[string]string{"data_dir": t.TempDir(), "database_url": proxy.URL()})
		f(t, b, func() func() {
			proxy.Refuse()
			return func() { b.must(proxy.Pass()) }
		})
	})
	t.Run("sqlite", func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "postrider.db")
		dbtest.WriteSQLite(t, path)
		b := newBoard(t, map[string]string{"data_dir": dir})
		f(t, b, func() func() {
			b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error { // the readers must read their pages again
				_, err := tx.Exec(t.Context(), `INSERT INTO hints (topic, payload) VALUES ('nobody', '')`)
				return err
			}))
			return dbtest.Unreadable(t, path)
		})
	})
}

const (
	awaySays  = "The database cannot be reached at present. This page tries again by itself."
	unchanged = "The database cannot be reached at present, so nothing was changed. This page keeps what you typed."
	reloadTag = `<noscript><meta http-equiv="refresh" content="5"></noscript>`
	noObject  = "01890a5d-ac96-774b-bcce-b302099a8057"
)

// While the database is away, every page says so and reloads itself, and every form comes back with what was typed.
// Both work again when the database is back.
func TestOutage(t *testing.T) {
	t.Parallel()
	eachAway(t, func(t *testing.T, b *board, away func() func()) {
		v := b.visitor(teams.Owner)
		back := away()
		for _, x := range dashboard.Routes() {
			method, path, _ := strings.Cut(x.Pattern, " ")
			if path == "/app" || path == "/app/{$}" {
				continue
			}
			path = parameter.ReplaceAllString(path, noObject)
			var w *http.Response
			var page string
			if method == http.MethodGet {
				w, page = v.exchange(method, path+"?in=a%22b", nil)
			} else {
				w, page = v.exchange(method, path, url.Values{"team": {v.teamID}, "name": {`A "<b>`, "second"},
					"password": {"a secret"}, "text": {"\nline\nline"}})
			}
			if w.StatusCode != 503 || w.Header.Get("Retry-After") != "5" {
				t.Errorf("%s: %d, Retry-After %q\n%s", x.Pattern, w.StatusCode, w.Header.Get("Retry-After"), page)
			}
			want := []string{awaySays, reloadTag, `data-retry="` + path + `?in=a%22b"`}
			switch policy := w.Header.Get("Content-Security-Policy"); {
			case strings.HasSuffix(path, "/html"):
				want = []string{`<p role="status">The database is not available at present.`,
					"Load the page again to try once more."}
				if w.Header.Get("X-Frame-Options") != "" || !strings.HasPrefix(policy, "sandbox;") ||
					!strings.HasSuffix(policy, "frame-ancestors 'self'") {
					t.Errorf("%s cannot be shown in a frame: %v", x.Pattern, w.Header)
				}
			case w.Header.Get("X-Frame-Options") != "DENY":
				t.Errorf("%s can be shown in a frame: %v", x.Pattern, w.Header)
			case method == http.MethodPost:
				want = []string{unchanged, `<form method="post" action="` + path + `">`,
					`<input type="hidden" name="name" value="A &#34;&lt;b&gt;"><input type="hidden" name="name" value="second">`,
					`name="text" value="` + "\nline\nline" + `"`, `name="team" value="` + v.teamID + `"`,
					`name="password" type="password"`, "Submit again", `data-retry="/readyz"`}
			}
			for _, text := range want {
				if !strings.Contains(page, text) {
					t.Errorf("%s lacks %s\n%s", x.Pattern, text, page)
				}
			}
			if strings.Contains(page, "a secret") || method == http.MethodPost && strings.Contains(page, "http-equiv") {
				t.Errorf("%s shows a secret, or reloads a form\n%s", x.Pattern, page)
			}
		}

		html := strings.Repeat("x", 100<<10)
		w, page := v.exchange("POST", "/app/emails/new", url.Values{"team": {v.teamID}, "html": {html}})
		if w.StatusCode != 503 || !strings.Contains(page, html) {
			t.Errorf("a form of 100 KB is lost: %d\n%.1000s", w.StatusCode, page)
		}
		if w, page := v.exchange("POST", "/app/emails/new", url.Values{"html": {strings.Repeat("x", 1<<20)}}); w.StatusCode !=
			503 || !strings.Contains(page, "This page cannot keep what you typed.") {
			t.Errorf("a form that is too large: %d\n%.1000s", w.StatusCode, page)
		}
		back()
		b.eventually("the pages are back", func() bool {
			status, _ := v.get("/app/settings")
			return status == 200
		})
		_, page = v.post("/app/settings/name", url.Values{"name": {"Better name"}})
		if !strings.Contains(page, "Better name") {
			t.Errorf("the form cannot be submitted again\n%s", page)
		}
	})
}

// If the answer to a commit is lost, the form says that it may have been carried out, and keeps what was typed.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	proxy := dbtest.ProxyTo(t, dbtest.PostgresURL(t))
	b := newBoard(t, map[string]string{"data_dir": t.TempDir(), "database_url": proxy.URL()})
	v := b.visitor(teams.Owner)
	proxy.LoseAnswers(1000) // the node commits too
	w, page := v.exchange("POST", "/app/settings/name", url.Values{"team": {v.teamID}, "name": {"Better name"}})
	b.must(proxy.Pass())
	if w.StatusCode != 503 || w.Header.Get("Retry-After") == "" || !strings.Contains(page, "Look before you repeat it.") ||
		!strings.Contains(page, `value="Better name"`) || strings.Contains(page, "nothing was changed") {
		t.Errorf("%d\n%s", w.StatusCode, page)
	}
	b.eventually("the page is back", func() bool { status, _ := v.get("/app/settings"); return status == 200 })
	v.shows("/app/settings", 200, "Better name") // the commit succeeded
}

// While the files of emails cannot be read, the views of an email that need them say so and reload themselves.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		id := b.sendJSON(map[string]any{"from": "billing@acme.example", "to": "laura@example.org", "subject": "File",
			"text": "Hello", "attachments": []map[string]any{{"filename": "a.txt", "content": "eHh4"}}})
		b.delivered(id)
		back := b.storeAway()
		for _, path := range []string{"/app/emails/" + id + "?view=raw", "/app/emails/" + id + "/raw"} {
			w, page := v.exchange(http.MethodGet, path, nil)
			for _, text := range []string{"cannot be read at present.", "This page tries again by itself.", reloadTag,
				`data-retry="` + path + `"`} {
				if w.StatusCode != 503 || w.Header.Get("Retry-After") != "5" || !strings.Contains(page, text) {
					t.Errorf("%s: %d without %s\n%s", path, w.StatusCode, text, page)
				}
			}
		}
		back()
		v.shows("/app/emails/"+id+"?view=raw", 200, "a.txt")
	})
}

// storeAway makes the files of emails unreadable: it puts a folder in the place of each.
func (b *board) storeAway() (back func()) {
	b.t.Helper()
	const beside = ".away"
	var files []string
	b.must(filepath.WalkDir(filepath.Join(b.Config.DataDir, "blobs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files = append(files, path)
		return nil
	}))
	if len(files) == 0 {
		b.t.Fatal("the store has no files")
	}
	for _, path := range files {
		b.must(os.Rename(path, path+beside))
		b.must(os.Mkdir(path, 0o700))
	}
	return func() {
		for _, path := range files {
			b.must(os.Remove(path))
			b.must(os.Rename(path+beside, path))
		}
	}
}

// Live updates begin with 503 while the database is away, and an open page is told of changes when it is back.
func TestLiveOutage(t *testing.T) {
	t.Parallel()
	eachAway(t, func(t *testing.T, b *board, away func() func()) {
		v := b.visitor(teams.Viewer)
		open := func() *http.Response {
			r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/app/live", nil)
			b.must(err)
			r.Header.Set("Accept", "text/event-stream")
			w, err := v.c.Do(r)
			b.must(err)
			t.Cleanup(func() { w.Body.Close() })
			return w
		}
		told := func(w *http.Response) bool { // until the stream says that something changed, or ends
			for lines := bufio.NewScanner(w.Body); lines.Scan(); {
				if lines.Text() == "event: change" {
					return true
				}
			}
			return false
		}
		back := away()
		if w := open(); w.StatusCode != 503 || w.Header.Get("Retry-After") == "" {
			t.Errorf("a stream without the database begins with %d", w.StatusCode)
		}
		back()
		var after *http.Response
		b.eventually("a stream begins again", func() bool { after = open(); return after.StatusCode == 200 })
		b.send("after@example.org", "After the outage")
		if !told(after) {
			t.Error("the new stream ended without a change")
		}
	})
}

// exchange makes a request without following redirects, and returns the response and its body. It repeats the request
// as long as the user requests too many pages in a second.
func (v *visitor) exchange(method, path string, form url.Values) (w *http.Response, body string) {
	v.t.Helper()
	c := *v.c
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	v.eventually("the user may request another page", func() bool {
		r, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(form.Encode()))
		v.must(err)
		r.Header.Set("Accept", "text/html")
		if method == http.MethodPost {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		w, err = c.Do(r)
		v.must(err)
		defer w.Body.Close()
		text, err := io.ReadAll(w.Body)
		v.must(err)
		body = string(text)
		return w.StatusCode != http.StatusTooManyRequests
	})
	return w, body
}

// Slow visitors who are not signed in cannot take the memory in which the forms of members are kept during an outage.
func TestLargeFormsInOutage(t *testing.T) {
	t.Parallel()
	eachAway(t, func(t *testing.T, b *board, away func() func()) {
		v := b.visitor(teams.Member)
		v.get("/app/settings") // sets the cookie that names the user
		back := away()
		defer back()
		const guests = 20
		for range guests {
			b.slowForm("postrider=" + strings.Repeat("x", 43))
		}
		large := strings.Repeat("x", 100<<10)
		if _, page := v.exchange("POST", "/app/emails/new", url.Values{"html": {large}}); !strings.Contains(page, large) {
			t.Errorf("the form of a member is lost: %.1000s", page)
		}
	})
}

// slowForm begins to submit a large form with the given cookies, and returns when the server reads the form.
func (b *board) slowForm(cookies string) {
	b.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	b.must(err)
	b.t.Cleanup(func() { c.Close() })
	b.must(c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprintf(c, "POST /app/emails/new HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nContent-Length: 100000\r\n"+
		"Content-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n\r\n",
		strings.TrimPrefix(b.url, "http://"), cookies)
	b.must(err)
	line, err := bufio.NewReader(c).ReadString('\n')
	b.must(err)
	if !strings.HasPrefix(line, "HTTP/1.1 100") {
		b.t.Fatalf("the server does not read the form: %s", line)
	}
}
