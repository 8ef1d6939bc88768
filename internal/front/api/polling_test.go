package api

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/platform/blob/blobtest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

type sentEmail struct {
	ID string `json:"id"`
}

// poller polls a list for new items, as clients do, and remembers the ID of the newest item that it has seen.
type poller struct {
	f      *fixture
	path   string
	newest string
}

// poll returns the IDs of new items, newest first.
func (p *poller) poll(t *testing.T) (found []string) {
	t.Helper()
	query := "?limit=100"
	if p.newest != "" {
		query += "&before=" + p.newest
	}
	w := p.f.do(t, "GET "+p.path+query)
	var list struct {
		Data []sentEmail `json:"data"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, one := range list.Data {
		found = append(found, one.ID)
	}
	if len(found) > 0 {
		p.newest = found[0]
	}
	return found
}

// sentID returns the email ID in a response, or the complete response if it contains no ID.
func sentID(w *httptest.ResponseRecorder) string {
	var sent sentEmail
	if err := json.Unmarshal(w.Body.Bytes(), &sent); err != nil || sent.ID == "" {
		return w.Body.String()
	}
	return sent.ID
}

// A client that polls a list sees each email, even if other emails are accepted while an email is being stored.
func TestPollingMissesNothing(t *testing.T) {
	const small = `POST /emails

{"from":"hello@acme.example","to":"a@example.net","subject":"Hi","text":"Hello."`
	withFile := small + `,"attachments":[{"filename":"a.txt","content":"` +
		base64.StdEncoding.EncodeToString([]byte("the file")) + `"}]}`
	const message = `RECEIVE from@example.net a@in.acme.example

From: from@example.net
To: a@in.acme.example
Subject: Hi

`
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		bucket := blobtest.New(t)
		f := newFixtureOn(t, d, Options{}, nil, bucket.URL)
		f.verified("acme.example")
		on := true
		if _, err := f.Services.Domains.AddVerified(t.Context(), f.Acme.TeamID, domains.NewDomain{Name: "in.acme.example",
			Capabilities: domains.Capabilities{Receiving: &on}}); err != nil {
			t.Fatal(err)
		}
		receive := func(body string) string { return strings.TrimPrefix(f.receive(t, message+body), "250 ") }
		for name, x := range map[string]struct {
			path        string
			slow, quick func() string
		}{
			"sent": {"/emails", func() string { return sentID(f.do(t, withFile)) },
				func() string { return sentID(f.do(t, small+"}")) }},
			"received": {"/emails/receiving",
				func() string { return receive(strings.Repeat("A line of a long message.\n", 10_000)) },
				func() string { return receive("Hello.\n") }},
		} {
			t.Run(name, func(t *testing.T) {
				p := &poller{f: f, path: x.path}
				var want, seen []string
				want = append(want, x.quick())
				seen = append(seen, p.poll(t)...)
				waiting, release := bucket.Hold()
				late := make(chan string, 1)
				go func() { late <- x.slow() }()
				<-waiting
				want = append(want, x.quick())
				seen = append(seen, p.poll(t)...)
				release()
				want = append(want, <-late)
				seen = append(seen, p.poll(t)...)
				if !slices.Equal(seen, want) {
					t.Errorf("seen %v, want %v", seen, want)
				}
			})
		}
	})
}

// The email list contains the emails from a batch in reverse order, with the last email first.
func TestBatchKeepsItsOrder(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("acme.example")
		var all []string
		for i := range 100 {
			all = append(all, fmt.Sprintf(`{"from":"hello@acme.example","to":"a@example.net","subject":"%d","text":"Hello."}`,
				i))
		}
		w := f.do(t, "POST /emails/batch\n\n["+strings.Join(all, ",")+"]")
		var batch struct {
			Data []sentEmail `json:"data"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &batch); err != nil || len(batch.Data) != 100 {
			t.Fatalf("%d %.300s", w.Code, w.Body)
		}
		p := poller{f: f, path: "/emails"}
		for i, listed := range p.poll(t) {
			if want := batch.Data[99-i].ID; listed != want {
				t.Fatalf("the list has %s at %d, want %s", listed, i, want)
			}
		}
	})
}
