package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func readAll(t *testing.T, a *http.Response) []byte {
	t.Helper()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A JSON-RPC batch is refused with one error, whatever protocol version the client uses, and none of its calls runs.
func TestBatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	asked := 0
	f.Server.API = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked++; w.Write([]byte(`{}`)) })
	second := time.Now()
	f.rate.Now = func() time.Time { second = second.Add(time.Second); return second }
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_usage","arguments":{}}}`
	calls := make([]string, 5000)
	for i := range calls {
		calls[i] = strings.Replace(listTools, `"id":1`, fmt.Sprintf(`"id":%d`, i), 1)
	}
	many := "[" + strings.Join(calls, ",") + "]"
	for _, version := range []string{"", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "none"} {
		for _, body := range []string{"[" + call + "]", "[" + call + "," + listTools + "]", " \r\n\t[" + call + "]", "[]",
			"[", "[1]", many} {
			header := []string{"Authorization", "Bearer " + f.Token}
			if version != "" {
				header = append(header, "MCP-Protocol-Version", version)
			}
			a := f.post("POST", body, header...)
			text := readAll(t, a)
			var refused struct {
				JSONRPC string
				ID      json.RawMessage
				Error   struct {
					Code    int
					Message string
				}
			}
			if err := json.Unmarshal(text, &refused); err != nil || a.StatusCode != http.StatusBadRequest ||
				refused.JSONRPC != "2.0" || string(refused.ID) != "null" || refused.Error.Code != -32600 ||
				!strings.Contains(refused.Error.Message, "batches") || a.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%q, %.60s: %d, %d bytes, %.200s, %v", version, body, a.StatusCode, len(text), text, err)
			}
		}
	}
	if asked != 0 {
		t.Errorf("%d calls of batches ran", asked)
	}
	for _, body := range []string{call, " \n" + call} {
		if a := f.post("POST", body, "Authorization", "Bearer "+f.Token); a.StatusCode != http.StatusOK {
			t.Errorf("a single call: %d %s", a.StatusCode, readAll(t, a))
		}
	}
	if asked != 2 {
		t.Errorf("%d single calls ran, want 2", asked)
	}
	white := f.post("POST", strings.Repeat(" ", bodyMax+1)+call, "Authorization", "Bearer "+f.Token)
	if white.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("more than 1 MB of white space: %d", white.StatusCode)
	}
}

// Each call counts toward the team's rate limit.
func TestCallsAreCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	second := time.Now()
	f.rate.Now = func() time.Time { return second }
	list := func(token string) int {
		return f.post("POST", listTools, "Authorization", "Bearer "+token).StatusCode
	}
	for i := range perSecond {
		if status := list(f.Token); status != http.StatusOK {
			t.Fatalf("call %d: %d", i, status)
		}
	}
	if status := list(f.Token); status != http.StatusTooManyRequests {
		t.Errorf("one call too many: %d", status)
	}
	if status := list(f.OtherToken); status != http.StatusOK {
		t.Errorf("another team: %d", status)
	}
	second = second.Add(time.Second)
	if status := list(f.Token); status != http.StatusOK {
		t.Errorf("a second later: %d", status)
	}
}

// The memory for answers is limited on each node, and no team gets all of it.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	var mu sync.Mutex
	second := time.Now()
	f.rate.Now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		second = second.Add(time.Second)
		return second
	}
	begun, end := make(chan struct{}), make(chan struct{})
	inner := f.Server.handler
	f.Server.handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	})
	list := func(token string) *http.Response {
		return f.post("POST", listTools, "Authorization", "Bearer "+token)
	}
	const share = answersMax / answerSize * 7 / 8
	var all sync.WaitGroup
	for range share {
		all.Go(func() {
			if a := list(f.Token); a.StatusCode != http.StatusOK {
				t.Errorf("%d within the share", a.StatusCode)
			}
		})
		<-begun
	}
	if a := list(f.Token); a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") != "1" {
		t.Errorf("%d beyond the share", a.StatusCode)
	}
	all.Go(func() {
		if a := list(f.OtherToken); a.StatusCode != http.StatusOK {
			t.Errorf("%d for another team", a.StatusCode)
		}
	})
	<-begun
	close(end)
	all.Wait()
	f.Server.handler = inner
	if a := list(f.Token); a.StatusCode != http.StatusOK {
		t.Errorf("%d after the others ended", a.StatusCode)
	}

	// An answer never takes more than the memory that is reserved for it.
	f.Server.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, answerSize+1))
	})
	if a := list(f.Token); a.StatusCode != http.StatusInternalServerError || len(readAll(t, a)) > 100 {
		t.Errorf("%d for an answer that is too long", a.StatusCode)
	}
	f.Server.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			w.Write(make([]byte, answerSize/2))
		}
	})
	if a := list(f.Token); len(readAll(t, a)) != answerSize {
		t.Error("an answer in parts is not bounded")
	}
}

// The longest answer of a tool fits into the memory that is reserved for it, even if each character is escaped.
func TestLongestAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	for _, c := range []string{"<", `"`, "\\", "x", "é"} {
		text, err := json.Marshal(map[string]any{"data": strings.Repeat(c, (256<<10)/len(c))})
		f.Must(err)
		f.Server.API = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(bytes.TrimSpace(text)) })
		a := f.post("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_emails","arguments":{}}}`,
			"Authorization", "Bearer "+f.Token)
		if got := readAll(t, a); a.StatusCode != http.StatusOK || len(got) < answerMax/4 {
			t.Errorf("%q: %d, %d bytes", c, a.StatusCode, len(got))
		}
	}
	// Invisible characters are removed from the answer, which says how many.
	text, err := json.Marshal(map[string]any{"data": strings.Repeat("\u2028", (256<<10)/3)})
	f.Must(err)
	f.Server.API = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(bytes.TrimSpace(text)) })
	a := f.post("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_emails","arguments":{}}}`,
		"Authorization", "Bearer "+f.Token)
	const said = "87381 invisible characters were removed"
	if got := readAll(t, a); a.StatusCode != http.StatusOK || !bytes.Contains(got, []byte(said)) {
		t.Errorf("hidden characters: %d %.300s", a.StatusCode, got)
	}
}
