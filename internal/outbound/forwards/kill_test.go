package forwards_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// These variables are set in a process that is killed while it receives and forwards messages.
const (
	killDatabase = "POSTRIDER_TEST_FORWARDS_DATABASE"
	killReplies  = "POSTRIDER_TEST_FORWARDS_REPLIES" // file with a line for each accepted message
	killHost     = "POSTRIDER_TEST_FORWARDS_HOST"    // address of the mail host that gets forwarded mail
	killRound    = "POSTRIDER_TEST_FORWARDS_ROUND"
)

const killMessages = 12

// killPlaces are parts of the statements before which a process is killed: in the transaction that stores a message and
// inserts its job, when a job is claimed, in the transaction that accepts the forwarded email and ends the job, and
// while the email is delivered. An empty place is the moment between the commit and the reply to the sender.
var killPlaces = []string{"INSERT INTO received_emails", "", "SET forwarded = forwarded + 1", "INTO forwarded_copies",
	"INTO email_messages", "UPDATE emails SET", "DELETE FROM jobs"}

// Processes that receive and forward messages are killed by kill -9 at several moments. The sender repeats what was not
// accepted. In the end, each message was accepted for forwarding exactly once, because one transaction does that and ends
// the job, and it reached the host at least once.
func TestKill(t *testing.T) {
	if os.Getenv(killDatabase) != "" {
		forwardAndDie(t)
		return
	}
	t.Parallel()
	for engine, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLiteFile,
		"postgres": dbtest.PostgresURL} {
		t.Run(engine, func(t *testing.T) {
			at := url(t)
			d := dbtest.Open(t, at)
			f := newFixture(t, d)
			f.rule("*", "bob@target.example")
			f.exec(`DELETE FROM emails`)
			host := smtptest.NewServer(t, smtptest.Config{})
			if engine == "sqlite" {
				d.Close() // only one process may have the file open
			}
			folder, kills := t.TempDir(), 0
			replies := filepath.Join(folder, "replies")
			for round := 0; ; round++ {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKill$", "-test.count=1")
				cmd.Env = append(os.Environ(), killDatabase+"="+at, killReplies+"="+replies, killHost+"="+host.Addr,
					killRound+"="+fmt.Sprint(round), "TMPDIR="+folder) // a killed process leaves files
				out, err := cmd.CombinedOutput()
				if err == nil {
					if round < len(killPlaces) {
						t.Errorf("no process was killed at %q", killPlaces[round])
					}
					break
				}
				if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || round > len(killPlaces) {
					t.Fatalf("%v\n%s", err, out)
				}
				kills++
			}
			if engine == "sqlite" {
				d = dbtest.Open(t, at)
			}
			got := map[string]int{}
			for _, m := range host.Messages() {
				_, id, _ := strings.Cut(string(m.Data), "\r\nMessage-ID: <")
				id, _, _ = strings.Cut(id, "@")
				got[id]++
			}
			var emails, received, counted int
			err := d.QueryRow(t.Context(), `SELECT (SELECT COUNT(*) FROM emails), (SELECT COUNT(*) FROM received_emails),
				(SELECT SUM(forwarded) FROM forwards)`).Scan(&emails, &received, &counted)
			if err != nil || kills != len(killPlaces) || emails != received || counted != received || received < killMessages ||
				len(got) != killMessages {
				t.Errorf("%d kills, %d received, %d accepted, %d counted, at the host %v; %v", kills, received, emails, counted,
					got, err)
			}
		})
	}
}

// forwardAndDie receives the messages that were not accepted before, forwards everything, and kills its own process at
// the place of the round, in the middle of the messages.
func forwardAndDie(t *testing.T) {
	var round int
	fmt.Sscan(os.Getenv(killRound), &round)
	place := "none"
	if round < len(killPlaces) {
		place = killPlaces[round]
	}
	dead := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	var armed atomic.Bool
	d, err := db.Open(t.Context(), db.Options{URL: os.Getenv(killDatabase), Log: slog.New(slog.DiscardHandler),
		Trace: func(s db.Statement) {
			if place != "" && armed.Load() && strings.Contains(s.SQL, place) {
				dead()
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	f := &fixture{Node: testnode.Bare(t, d, testnode.Options{MaxSize: 4 << 20}), t: t, keys: zone{}}
	f.build(os.Getenv(killHost))
	lines, _ := os.ReadFile(os.Getenv(killReplies))
	replies, err := os.OpenFile(os.Getenv(killReplies), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	f.Must(err)
	defer replies.Close()
	f.exec(`UPDATE jobs SET holder = NULL, run_at = 0`) // as after the death of a node was noticed
	sent := 0
	for i := range killMessages {
		id := fmt.Sprintf("message-%d", i)
		if strings.Contains(string(lines), id+"\n") {
			continue
		}
		if sent++; sent > 2 && place != "none" {
			break // some messages are left for the next rounds
		}
		armed.Store(sent == 2 && place == killPlaces[0])
		f.deliver("From: ann@author.example\r\nMessage-ID: <"+id+"@author.example>\r\n\r\nHello\r\n", "ann@author.example",
			"sales@in.acme.example")
		if sent == 2 && place == "" {
			dead()
		}
		if _, err := fmt.Fprintln(replies, id); err != nil {
			t.Fatal(err)
		}
	}
	armed.Store(true)
	f.run(0)
}
