package api

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// watch opens an event stream and returns a function that reads the next event.
func (f *fixture) watch(t *testing.T, s *httptest.Server, query, key, last string) (status int, next func() string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(stop)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/webhooks/listen"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.keys[key])
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	return answer.StatusCode, func() string {
		block := ""
		for lines.Scan() && lines.Text() != "" {
			block += lines.Text() + "\n"
		}
		return block
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		s := httptest.NewServer(f)
		defer s.Close()
		defer f.Services.Live.Close()
		status, next := f.watch(t, s, "?events=domain.created,suppression.added", "full", "")
		if first := next(); status != 200 || first != ": watching\n" {
			t.Fatalf("%d %q", status, first)
		}
		_, others := f.watch(t, s, "", "other", "")
		others()
		f.do(t, "POST /api-keys\n\n"+`{"name":"x"}`)
		f.do(t, "POST /domains\n\n"+`{"name":"example.org"}`)
		f.do(t, "POST /suppressions\n\n"+`{"email":"a@example.net"}`)
		created, suppressed := next(), next()
		if !strings.HasPrefix(created, "id: msg_") ||
			!strings.Contains(created, "\nevent: domain.created\ndata: {\"type\":\"domain.created\",") {
			t.Errorf("first %q", created)
		}
		if !strings.Contains(suppressed, "\nevent: suppression.added\n") ||
			!strings.Contains(suppressed, `"email":"a@example.net"`) {
			t.Errorf("second %q", suppressed)
		}
		f.do(t, "POST /suppressions\nAuthorization: other\n\n"+`{"email":"b@example.net"}`)
		if got := others(); !strings.Contains(got, "b@example.net") {
			t.Errorf("the other team sees %q", got)
		}

		f.do(t, "POST /suppressions\n\n"+`{"email":"c@example.net"}`)
		id, _, _ := strings.Cut(strings.TrimPrefix(suppressed, "id: "), "\n")
		_, again := f.watch(t, s, "?events=suppression.added", "full", id)
		again()
		if got := again(); !strings.Contains(got, "c@example.net") {
			t.Errorf("after an interruption it shows %q", got)
		}
		wantError(t, f.do(t, "GET /webhooks/listen\nAuthorization: sending"), 401, "restricted_api_key")
		wantError(t, f.do(t, "GET /webhooks/listen\nAuthorization: -"), 401, "missing_api_key")
		wantError(t, f.do(t, "GET /webhooks/listen\nAuthorization: suspended"), 403, "suspended_api_key")
		wantError(t, f.do(t, "GET /webhooks/listen?events=nonsense"), 422, "validation_error")
	})
}

// The request log contains neither an entry for an open event stream nor the events in that stream.
func TestListenIsNotLogged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	seen := make(chan RequestRecord, 2)
	f.observe(func(_ context.Context, r RequestRecord) { seen <- r })
	f.Services.Live.Close()
	f.do(t, "GET /webhooks/listen")
	if r := <-seen; r.Logged() || len(r.Answer) > 0 || r.Status != 200 {
		t.Errorf("%+v", r)
	}
}

// An event stream ends when its API key is deleted, or when its team is suspended or deleted. After such a change, the
// stream sends no more events and ends before the next heartbeat.
func TestListenEndsAtOnce(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(t *testing.T, f *fixture, keyID string){
		"key deleted": func(t *testing.T, f *fixture, keyID string) { f.do(t, "DELETE /api-keys/"+keyID) },
		"scope taken away": func(t *testing.T, f *fixture, keyID string) {
			if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `UPDATE api_keys SET permission = 'sending_access' WHERE id = $1`, db.ID(keyID))
				return err
			}); err != nil {
				t.Error(err)
			}
			f.DB.Hint(teams.HintTopic, f.Acme.TeamID)
		},
		"team suspended": func(t *testing.T, f *fixture, _ string) {
			if err := f.Services.Teams.SetSuspended(t.Context(), f.Acme.TeamID, true); err != nil {
				t.Error(err)
			}
		},
		"team deleted": func(t *testing.T, f *fixture, _ string) {
			if err := f.Services.Teams.Delete(t.Context(), jobs.NewQueue(f.DB), f.Acme.TeamID); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				f := newFixture(t, d, Options{Heartbeat: time.Hour})
				s := httptest.NewServer(f)
				defer s.Close()
				defer f.Services.Live.Close()
				made := f.do(t, "POST /api-keys\n\n"+`{"name":"short-lived"}`)
				var key struct{ ID, Token string }
				if err := json.Unmarshal(made.Body.Bytes(), &key); err != nil {
					t.Fatal(err)
				}
				f.keys["short-lived"] = key.Token
				_, next := f.watch(t, s, "", "short-lived", "")
				next()
				_, others := f.watch(t, s, "", "other", "")
				others()
				end(t, f, key.ID)
				ended := make(chan string)
				go func() {
					shown := ""
					for block := next(); block != ""; block = next() {
						shown += block
					}
					ended <- shown
				}()
				err := d.Update(t.Context(), func(tx *db.Tx) error {
					return f.Recorder.Record(t.Context(), tx, events.Event{TeamID: f.Acme.TeamID, Type: events.SuppressionAdded,
						Data: suppressions.Suppression{ID: id.New(), TeamID: f.Acme.TeamID, Address: "late@example.net"}})
				})
				if err != nil {
					t.Fatal(err)
				}
				select {
				case shown := <-ended:
					if strings.Contains(shown, "event:") {
						t.Errorf("it showed %q", shown)
					}
				case <-time.After(20 * time.Second):
					t.Error("the stream goes on")
				}
				f.do(t, "POST /suppressions\nAuthorization: other\n\n"+`{"email":"b@example.net"}`)
				got := others()
				for got == ": still there\n" {
					got = others()
				}
				if !strings.Contains(got, "b@example.net") {
					t.Errorf("the other team sees %q", got)
				}
			})
		})
	}
}
