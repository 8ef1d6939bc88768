package links_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// memory is a limit that allows one team to read two large messages concurrently while another team reads one large
// message.
const memory = 10 << 20

// large returns a message of about one megabyte with a text part and an attached file.
func large() string {
	lines := strings.Repeat("x\n", 1<<19/3)
	return "Subject: Large\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\n" + lines +
		"--b\nContent-Type: application/pdf; name=a.pdf\n\n" + lines + "--b--\n"
}

// readers returns the requests that read one of a team's received emails, mapped to the names of the API keys that the
// requests need.
func (s *site) readers(t testing.TB, team, id string) map[string]string {
	t.Helper()
	e, err := s.received.File(t.Context(), s.team[team], id, s.fileOf(t, team, id))
	if err != nil {
		t.Fatal(err)
	}
	file, _ := s.received.FileURL(s.team[team], id, e.ID, time.Now())
	return map[string]string{"/emails/receiving/" + id: team, "/emails/receiving/" + id + "?html_format=cid": team,
		file: "", s.share(t, team, id, ""): ""}
}

func (s *site) fileOf(t testing.TB, team, id string) string {
	t.Helper()
	w := s.do(t, team, "GET /emails/receiving/"+id+"/attachments", "")
	_, rest, _ := strings.Cut(w.Body.String(), `"data":[{"id":"`)
	if w.Code != 200 || len(rest) < 36 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return rest[:36]
}

// hold opens downloads of a team's email without reading them until the team's share of memory is used up.
func (s *site) hold(t testing.TB, team, id string) (all []receiving.Download) {
	t.Helper()
	link, _ := s.received.FileURL(s.team[team], id, s.fileOf(t, team, id), time.Now())
	for {
		d, err := s.received.OpenFile(t.Context(), link[strings.LastIndexByte(link, '/')+1:])
		if err != nil {
			if fault.KindOf(err) != fault.Unavailable {
				t.Error(err)
			}
			return all
		}
		all = append(all, d)
	}
}

func closeAll(t testing.TB, all []receiving.Download) {
	for _, d := range all {
		readAll(t, d)
	}
}

// wantBusy checks that the API or a link refused a request because no memory was left.
func wantBusy(t testing.TB, line string, w *httptest.ResponseRecorder) {
	t.Helper()
	text := w.Body.String()
	if w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(text, "Try again in a moment") {
		t.Errorf("%.40s: %d, Retry-After %s, %.200s", line, w.Code, w.Header().Get("Retry-After"), text)
	}
	if strings.HasPrefix(line, "/emails/") && !strings.Contains(text, `"name":"service_unavailable"`) {
		t.Errorf("%.40s: %s", line, text)
	}
}

// handIn submits a large message to the SMTP server at addr.
func handIn(t testing.TB, addr string) error {
	t.Helper()
	client, err := smtp.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	text := "Subject: x\r\n\r\n" + strings.Repeat(strings.Repeat("x", 70)+"\r\n", memory/3/72)
	return client.SendMail("jo@sender.example", []string{"in@in.acme.example"}, strings.NewReader(text))
}

// While downloads use all of a team's memory, requests that read the team's emails get 503 and incoming mail for the
// team gets 451. Other teams are not affected. After the downloads have finished, the same requests succeed.
func TestReadersWithoutMemory(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, receiving.Config{Memory: memory, ReadWait: 1, TakeWait: 1})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var served sync.WaitGroup
		served.Go(func() {
			if err := smtpserver.New(smtpserver.Config{}, s.received, slog.New(slog.DiscardHandler)).Serve(ctx, l); err != nil {
				t.Error(err)
			}
		})
		defer served.Wait()
		defer cancel()
		mine, others := s.receive(t, "in@in.acme.example", large()), s.receive(t, "in@other.example", large())
		asked, elsewhere := s.readers(t, "acme", mine), s.readers(t, "other", others)

		held := s.hold(t, "acme", mine)
		if len(held) < 2 {
			t.Errorf("%d downloads of a megabyte out of 10 MB", len(held))
		}
		for line, key := range asked {
			wantBusy(t, line, s.do(t, key, line, ""))
		}
		for line, key := range elsewhere {
			if w := s.do(t, key, line, ""); w.Code != 200 {
				t.Errorf("another team: %.40s: %d %.200s", line, w.Code, w.Body)
			}
		}
		raw, _ := s.received.RawURL(s.team["acme"], mine, time.Now())
		s.get(t, raw, 200) // the raw message is streamed and does not need memory
		reply, ok := errors.AsType[*smtp.SMTPError](handIn(t, l.Addr().String()))
		if !ok || reply.Code != 451 || reply.EnhancedCode != (smtp.EnhancedCode{4, 3, 2}) {
			t.Errorf("by SMTP: %v", reply)
		}
		lines := s.log.Take()
		if strings.Count(lines, "ERROR") != 2 || !strings.Contains(lines, "too many large messages are in memory") {
			t.Errorf("the log, of which a line each from the API and links is wanted:\n%s", lines)
		}
		closeAll(t, held)
		for range 3 { // refused requests did not keep memory reserved
			for line, key := range asked {
				if w := s.do(t, key, line, ""); w.Code != 200 {
					t.Errorf("%.40s: %d %.200s", line, w.Code, w.Body)
				}
			}
			if err := handIn(t, l.Addr().String()); err != nil {
				t.Errorf("by SMTP: %v", err)
			}
		}
	})
}

// stuck is a client that does not read the response until free is closed.
type stuck struct {
	*httptest.ResponseRecorder
	once sync.Once
	at   chan struct{} // closed at the first write
	free chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.at) })
	<-s.free
	return s.ResponseRecorder.Write(b)
}

// The memory for a download stays reserved until the client has read the whole file. Slow clients can use only their
// own team's share of memory. API responses use a separate pool of memory (see TestSlowReaderOfReceivedEmail in package
// api).
func TestSlowReadersShareMemory(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, receiving.Config{Memory: memory, ReadWait: 1})
		mine, others := s.receive(t, "in@in.acme.example", large()), s.receive(t, "in@other.example", large())
		elsewhere := s.readers(t, "other", others)
		for line, key := range s.readers(t, "acme", mine) {
			if strings.HasPrefix(line, "/emails/receiving/") {
				continue
			}
			free := make(chan struct{})
			var all sync.WaitGroup
			slow := 0
			for ; slow < 2*memory>>20; slow++ {
				w := &stuck{ResponseRecorder: httptest.NewRecorder(), at: make(chan struct{}), free: free}
				all.Go(func() { s.ServeHTTP(w, s.request(t, key, line, "")) })
				<-w.at
				if w.ResponseRecorder.Code == 503 {
					break
				}
			}
			if slow < 1 || slow > 2*memory>>20-1 {
				t.Errorf("%.40s: %d slow clients of a megabyte each out of 10 MB", line, slow)
			}
			for line, key := range elsewhere {
				if w := s.do(t, key, line, ""); w.Code != 200 {
					t.Errorf("another team: %.40s: %d %.200s", line, w.Code, w.Body)
				}
			}
			close(free)
			all.Wait()
			if w := s.do(t, key, line, ""); w.Code != 200 {
				t.Errorf("%.40s: %d %.200s", line, w.Code, w.Body)
			}
		}
	})
}

// If a client disconnects while its request is waiting for memory, no memory is reserved and nothing is logged.
func TestReadersThatGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, dbtest.SQLite(t), receiving.Config{Memory: memory})
		id := s.receive(t, "in@in.acme.example", large())
		asked := s.readers(t, "acme", id)
		held := s.hold(t, "acme", id)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for line, key := range asked {
			all.Go(func() { s.ServeHTTP(httptest.NewRecorder(), s.request(t, key, line, "").WithContext(ctx)) })
		}
		synctest.Wait()
		start := time.Now()
		cancel()
		all.Wait()
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the requests ended %v later, want at once", waited)
		}
		if lines := s.log.Take(); strings.Contains(lines, "ERROR") {
			t.Errorf("the log:\n%s", lines)
		}
		closeAll(t, held)
		if n := len(s.hold(t, "acme", id)); n != len(held) {
			t.Errorf("%d downloads get memory, %d before", n, len(held))
		}
	})
}

// While the blob store is unavailable, requests that read emails get 503. If a blob is lost, the response is 500 and
// the log names the blob.
func TestReadersWithoutBlobs(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, receiving.Config{})
		id := s.receive(t, "in@in.acme.example", large())
		asked := s.readers(t, "acme", id)
		raw, _ := s.received.RawURL(s.team["acme"], id, time.Now())
		asked[raw] = ""
		sent := s.send(t, `{"from":"a@acme.example","to":"b@example.net","subject":"x","text":"x",
			"attachments":[{"filename":"a","content":"eA=="}]}`)
		attachment := look(t, s.get(t, s.share(t, "acme", sent, ""), 200)).links[0]
		asked[attachment] = ""
		all := func(want func(line string, w *httptest.ResponseRecorder)) {
			for line, key := range asked {
				want(line, s.do(t, key, line, ""))
			}
		}
		well := func(line string, w *httptest.ResponseRecorder) {
			if w.Code != 200 {
				t.Errorf("%.40s: %d %.200s", line, w.Code, w.Body)
			}
		}
		all(well)
		if err := os.Rename(s.folder, s.folder+".away"); err != nil {
			t.Fatal(err)
		}
		all(func(line string, w *httptest.ResponseRecorder) { wantBusy(t, line, w) })
		if err := os.Rename(s.folder+".away", s.folder); err != nil {
			t.Fatal(err)
		}
		all(well)

		s.log.Take()
		var key string
		if err := d.QueryRow(t.Context(), `SELECT blob_key FROM received_emails WHERE id = $1`, db.ID(id)).
			Scan(&key); err != nil {
			t.Fatal(err)
		}
		if err := s.Blobs.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		delete(asked, attachment)
		all(func(line string, w *httptest.ResponseRecorder) {
			if w.Code != 500 || strings.Contains(w.Body.String(), "received/") {
				t.Errorf("lost: %.40s: %d %s", line, w.Code, w.Body)
			}
			lines, want := s.log.Take(), "the raw message of received email "+id+" is lost"
			if strings.Count(lines, "ERROR") != 1 || !strings.Contains(lines, want) {
				t.Errorf("lost: %.40s: the log has\n%s", line, lines)
			}
		})
		if w := s.do(t, "acme", "GET /emails/receiving", ""); w.Code != 200 || !strings.Contains(w.Body.String(), id) {
			t.Errorf("the list without the message: %d %s", w.Code, w.Body)
		}
	})
}
