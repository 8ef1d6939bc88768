package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

// crowd creates n contacts in a segment, and returns the segment's ID and the contact IDs, newest first.
func (f *fixture) crowd(t testing.TB, n int) (segmentID string, ids []string) {
	t.Helper()
	g, err := f.Services.Contacts.Segments.Create(t.Context(), f.Acme.TeamID, segments.Definition{Name: "All"})
	f.Must(err)
	addresses := make([]string, n)
	for i := range n {
		ids = append(ids, fmt.Sprintf("01890000-0000-7000-8000-%012d", i))
		addresses[i] = fmt.Sprintf("to%d@one.example", i)
	}
	f.Update(func(tx *db.Tx) error {
		tx.QueueRows(t.Context(), `contacts (id, team_id, address, first_name, last_name, unsubscribed, source_id, created_at,
			updated_at)`, "", db.IDs(ids), db.ID(f.Acme.TeamID), addresses, "Ann", "Smith", false, db.ID(""), int64(1),
			int64(1))
		tx.QueueRows(t.Context(), `contact_segments (team_id, segment_id, contact_id, created_at)`, "",
			db.ID(f.Acme.TeamID), db.ID(g.ID), db.IDs(ids), int64(1))
		return nil
	})
	slices.Reverse(ids)
	return g.ID, ids
}

// flushed is a client that calls do for each flushed part of a response.
type flushed struct {
	*httptest.ResponseRecorder
	do func(size int)
}

func (w *flushed) FlushError() error { w.do(w.Body.Len()); return nil }

// get sends a request from a client that receives the response in parts, and reports whether the response was
// truncated.
func (f *fixture) get(t testing.TB, method, path string, each func(size int)) (w *httptest.ResponseRecorder,
	cut bool) {
	t.Helper()
	w = httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	r.Header.Set("Authorization", "Bearer "+f.keys["full"])
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				panic(p)
			}
			cut = true
		}
	}()
	f.ServeHTTP(&flushed{w, each}, r)
	return w, false
}

// If a request has no limit, the list contains all items. A long list is streamed: each part is sent to the client
// before the next part is read from the database.
func TestLongLists(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		segment, ids := f.crowd(t, 2*wire.ListChunk+500)
		reads := func() (n int) {
			for _, s := range trace.Take() {
				if strings.Contains(s.SQL, "c.first_name") { // queries that only select ids are not counted
					n++
				}
			}
			return n
		}
		for _, c := range []struct {
			path  string
			want  []string
			parts int
			first int // number of pages that are read before the first part is sent
		}{
			{"/contacts", ids, 3, 1},
			{"/contacts?segment_id=" + segment, ids, 3, 1},
			{"/segments/" + segment + "/contacts", ids, 3, 1},
			{"/audiences/" + segment + "/contacts", ids, 3, 1},
			{"/contacts?after=" + ids[99], ids[100:], 3, 1},
			{"/contacts?after=" + ids[499], ids[500:], 2, 1},
			{"/contacts?after=" + ids[1499], ids[1500:], 0, 1},
			{"/contacts?before=" + ids[2000], ids[:2000], 3, 2},
			{"/segments/" + segment + "/contacts?before=" + ids[1500], ids[:1500], 3, 2}, // the last page is empty
			{"/contacts?before=" + ids[1000], ids[:1000], 0, 1},
			{"/contacts?limit=100", ids[:100], 0, 1},
		} {
			trace.Take()
			parts, had, got := 0, 0, reads
			w, cut := f.get(t, http.MethodGet, c.path, func(size int) {
				parts++
				if n := got(); parts == 1 && n != c.first || parts > 1 && n != 1 {
					t.Errorf("%s: %d pages were read before part %d", c.path, n, parts)
				}
				if size-had > 300*wire.ListChunk {
					t.Errorf("%s: part %d has %d bytes", c.path, parts, size-had)
				}
				had = size
			})
			var l struct {
				Object  string `json:"object"`
				HasMore *bool  `json:"has_more"`
				Data    []struct {
					ID        string  `json:"id"`
					FirstName *string `json:"first_name"`
				} `json:"data"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Code != 200 || cut || l.Object != "list" ||
				l.HasMore == nil || *l.HasMore != strings.Contains(c.path, "limit") || parts != c.parts ||
				w.Header().Get("Content-Type") != "application/json; charset=utf-8" {
				t.Errorf("%s: %d %v in %d parts, cut %v: %.100s, %v", c.path, w.Code, w.Header(), parts, cut, w.Body, err)
			}
			var have []string
			for _, item := range l.Data {
				if have = append(have, item.ID); item.FirstName == nil || *item.FirstName != "Ann" {
					t.Fatalf("%s: %+v", c.path, item)
				}
			}
			if !slices.Equal(have, c.want) {
				t.Errorf("%s: %d items, want %d", c.path, len(have), len(c.want))
			}
			if short := strings.HasPrefix(w.Body.String(), `{"object":"list","has_more":`); short != (c.parts == 0) ||
				short != (w.Header().Get("Content-Length") != "") {
				t.Errorf("%s: %v %.100s", c.path, w.Header(), w.Body)
			}
		}
		trace.Take()
		if w, cut := f.get(t, http.MethodHead, "/contacts", func(int) {}); w.Code != 200 || w.Body.Len() > 0 || cut ||
			reads() != 1 {
			t.Errorf("HEAD: %d, %d bytes, cut %v", w.Code, w.Body.Len(), cut)
		}
		if n := f.Capacity.LongLists.Held(f.Acme.TeamID); n != 0 {
			t.Errorf("%d places are held", n)
		}
	})
}

// The request log records only the length of a long list, as it does for any response that is too long to store.
func TestLongListInTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	f.remember(t)
	f.crowd(t, wire.ListChunk+1)
	w, _ := f.get(t, http.MethodGet, "/contacts", func(int) {})
	all, _, _, err := f.Services.Logs.List(t.Context(), f.Acme.TeamID, requestlog.Filter{Endpoint: "/contacts"},
		page.Page{Limit: 1})
	f.Must(err)
	e, err := f.Services.Logs.Get(t.Context(), f.Acme.TeamID, all[0].ID)
	want := fmt.Sprintf(`{"omitted":"The body had %d bytes, which is more than the log keeps."}`, w.Body.Len())
	if err != nil || e.ResponseBody != want || e.Status != 200 {
		t.Errorf("%d %s, want %s (%v)", e.Status, e.ResponseBody, want, err)
	}
}

// An error that occurs before a long list begins causes an error response. An error while the list is streamed
// truncates the list.
func TestLongListThatFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		segment, _ := f.crowd(t, 2*wire.ListChunk+1)
		w, cut := f.get(t, http.MethodGet, "/segments/"+segment+"/contacts", func(int) {
			f.Must(f.Services.Contacts.Segments.Delete(t.Context(), f.Acme.TeamID, segment))
		})
		if w.Code != 200 || !cut || json.Unmarshal(w.Body.Bytes(), new(any)) == nil {
			t.Errorf("%d, cut %v", w.Code, cut)
		}
		w, cut = f.get(t, http.MethodGet, "/segments/"+segment+"/contacts", func(int) {})
		if wantError(t, w, 404, "not_found"); cut {
			t.Error("an error is cut")
		}
	})
}

// A request for a long list waits for streaming capacity for a limited time. Short lists do not need streaming
// capacity.
func TestPlacesOfLongLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.SQLite(t), Options{})
		_, ids := f.crowd(t, wire.ListChunk+1)
		f.Must(f.Capacity.LongLists.Acquire(context.Background(), "others", 128))
		wantError(t, f.do(t, "GET /contacts"), 429, "rate_limit_exceeded")
		if w := f.do(t, "GET /contacts?after="+ids[0]); w.Code != 200 {
			t.Errorf("a short list: %d %s", w.Code, w.Body)
		}
		f.Capacity.LongLists.Release("others", 128)
		if w := f.do(t, "GET /contacts"); w.Code != 200 {
			t.Errorf("with places: %d %s", w.Code, w.Body)
		}
	})
}
