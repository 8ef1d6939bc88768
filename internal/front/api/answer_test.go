package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// These constants have the same values as in package wire.
const (
	responsesMax = 512 << 20        // memory for large responses, in bytes
	responseCost = 3                // bytes of memory reserved for each byte of a response
	memoryWait   = 10 * time.Second // maximum time that a request waits for memory
)

// large sends an email with an HTML body of the given size in bytes and returns the email's ID.
func (f *fixture) large(t testing.TB, size int) string {
	t.Helper()
	w := f.do(t, "POST /emails\n\n"+`{"from":"a@resend.dev","to":"delivered@resend.dev","subject":"Large","html":"`+
		strings.Repeat("x", size)+`"}`)
	var made emailID
	if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return made.ID
}

// halting is a client that receives the next part of a response only when the test allows it.
type halting struct {
	*httptest.ResponseRecorder
	at, on chan struct{}
}

func (w *halting) Write(p []byte) (int, error) {
	w.at <- struct{}{}
	<-w.on
	return w.ResponseRecorder.Write(p)
}

// asks sends a request from a halting client and returns when the response begins. When the test calls the returned
// function end, the client receives the rest of the response.
func (f *fixture) asks(t *testing.T, path string) (w *halting, end func()) {
	t.Helper()
	w = &halting{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	over := make(chan struct{})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+f.keys["full"])
	go func() {
		defer close(over)
		f.ServeHTTP(w, r)
	}()
	<-w.at
	return w, func() {
		for {
			select {
			case w.on <- struct{}{}:
			case <-w.at:
			case <-over:
				return
			}
		}
	}
}

// A request for a large email reserves memory before it reads the email. The reservation shrinks to the length of the
// response and lasts until the client has received it.
func TestMemoryOfLargeEmails(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, d, Options{})
		const size = 3 << 20
		large, small := f.large(t, size), f.large(t, wire.LargeResponse-1000)
		read := 0
		reserved := func() {
			if n := f.Capacity.Responses.Held(f.Acme.TeamID); n != size*responseCost {
				t.Errorf("the text is read with %d bytes of memory", n)
			}
			read++
		}
		trace.Before(`COALESCE(b.html, ''), COALESCE`, reserved)
		if w := f.do(t, "GET /emails/"+large+"/checks"); w.Code != 200 || read != 1 {
			t.Errorf("the checks: %d %s, read %d times", w.Code, w.Body, read)
		}
		trace.Before(`COALESCE(b.html, ''), COALESCE`, reserved)
		w, end := f.asks(t, "/emails/"+large)
		if n := f.Capacity.Responses.Held(f.Acme.TeamID); n < size || n > size+2000 || read != 2 {
			t.Errorf("the answer has %d bytes of memory", n)
		}
		for _, path := range []string{"/emails/" + small, "/emails/" + large + "/events", "/emails/" + large + "/attempts",
			"/emails/" + large + "/explain"} {
			trace.Take()
			before := f.Capacity.Responses.Held(f.Acme.TeamID)
			if w := f.do(t, "GET "+path); w.Code != 200 || f.Capacity.Responses.Held(f.Acme.TeamID) != before {
				t.Errorf("%s: %d", path, w.Code)
			}
			for _, s := range trace.Take() {
				if strings.Contains(s.SQL, "COALESCE(b.html, ''), COALESCE") {
					t.Errorf("%s reads the texts: %s", path, s.SQL)
				}
			}
		}
		end()
		var got struct {
			HTML string `json:"html"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.HTML) != size ||
			w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
			t.Errorf("%d %v, %d bytes of HTML, %v", w.Code, w.Header(), len(got.HTML), err)
		}
		if n := f.Capacity.Responses.Held(f.Acme.TeamID); n != 0 {
			t.Errorf("%d bytes of memory are held", n)
		}
	})
}

// If not enough memory for a large response becomes free in time, the client gets an error that asks for a retry. Small
// responses do not reserve memory.
func TestNoMemoryForLargeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.SQLite(t), Options{})
		large, small := f.large(t, wire.LargeResponse+1), f.large(t, 1000)
		f.Must(f.Capacity.Responses.Acquire(context.Background(), "others", responsesMax))
		began := time.Now()
		wantError(t, f.do(t, "GET /emails/"+large), 503, "service_unavailable")
		if waited := time.Since(began); waited != memoryWait {
			t.Errorf("it waited for %v", waited)
		}
		if w := f.do(t, "GET /emails/"+small); w.Code != 200 {
			t.Errorf("a small one: %d %s", w.Code, w.Body)
		}
		f.Capacity.Responses.Release("others", responsesMax)
		if w := f.do(t, "GET /emails/"+large); w.Code != 200 {
			t.Errorf("with memory: %d %.200s", w.Code, w.Body)
		}
	})
}

// A client that reads a large received email slowly does not delay other clients or incoming mail. The memory reserved
// for the message is released when the response is encoded.
func TestSlowReaderOfReceivedEmail(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	const size = 2 << 20
	f.Services.Receiving = testnode.Must(receiving.New(receiving.Config{Hostname: "mx.postrider.test",
		PublicURL: "https://a.example",
		Hosts:     []string{"mx.postrider.test"}, Memory: 3 * (size + 2000), TakeWait: time.Minute, ReadWait: time.Minute},
		receiving.Deps{DB: f.DB, Quotas: f.Quotas, Recorder: f.Recorder, Blobs: f.Blobs, Keys: f.Keys, Domains: f.Domains,
			Emails: f.Emails,
			Teams:  f.Teams, Log: f.Log}))
	f.API = New(Options{Services: f.Services, Log: f.Log})
	f.do(t, "POST /domains\n\n"+fmt.Sprintf(onlyReceiving, "in.example"))
	f.verified("in.example")
	line := strings.Repeat("x", 70) + "\n"
	message := "RECEIVE a@one.example b@in.example\n\nSubject: Large\n\n" + strings.Repeat(line, size/len(line)-100)
	answer := f.receive(t, message)
	id, ok := strings.CutPrefix(answer, "250 ")
	if !ok {
		t.Fatal(answer)
	}
	_, end := f.asks(t, "/emails/receiving/"+id)
	_, end2 := f.asks(t, "/emails/receiving/"+id) // without the release, the request would wait for memory for a minute
	if answer := f.receive(t, message); !strings.HasPrefix(answer, "250 ") {
		t.Error(answer)
	}
	if n := f.Capacity.Responses.Held(f.Acme.TeamID); n < size {
		t.Errorf("the answers have %d bytes of memory", n)
	}
	end()
	end2()
	if n := f.Capacity.Responses.Held(f.Acme.TeamID); n != 0 {
		t.Errorf("%d bytes of memory are held", n)
	}
}
