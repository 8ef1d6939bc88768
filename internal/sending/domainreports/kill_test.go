package domainreports_test

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

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// These variables are set in a process that is killed while it receives reports.
const (
	killDatabase = "POSTRIDER_TEST_REPORTS_DATABASE"
	killReplies  = "POSTRIDER_TEST_REPORTS_REPLIES" // file with a line for each accepted report
	killAfter    = "POSTRIDER_TEST_REPORTS_AFTER"
)

const killReports = 40

// Processes that receive reports are killed by kill -9, in the transaction that stores a report or after its commit.
// The sender repeats what was not accepted. In the end, each report counts exactly once.
func TestKill(t *testing.T) {
	if os.Getenv(killDatabase) != "" {
		receiveAndDie(t)
		return
	}
	t.Parallel()
	for engine, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLiteFile,
		"postgres": dbtest.PostgresURL} {
		t.Run(engine, func(t *testing.T) {
			at := url(t)
			d := dbtest.Open(t, at)
			f := newFixture(t, d)
			f.teamsOf()
			on, _ := f.domain("shop.example")
			if engine == "sqlite" {
				d.Close() // only one process may have the file open
			}
			folder, kills := t.TempDir(), 0
			replies := filepath.Join(folder, "replies")
			for round := 0; ; round++ {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKill$", "-test.count=1")
				cmd.Env = append(os.Environ(), killDatabase+"="+at, killReplies+"="+replies,
					killAfter+"="+fmt.Sprint(4+round), "TMPDIR="+folder) // a killed process leaves files
				out, err := cmd.CombinedOutput()
				if err == nil {
					break
				}
				if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || round > killReports {
					t.Fatalf("%v\n%s", err, out)
				}
				kills++
			}
			if engine == "sqlite" {
				d = dbtest.Open(t, at)
			}
			f = newFixture(t, d)
			v := f.dmarc(on, 20)
			if all := f.list(on); kills < 3 || len(all) != killReports || v.Messages != 3*killReports {
				t.Errorf("%d reports, %d messages after %d kills", len(all), v.Messages, kills)
			}
		})
	}
}

// receiveAndDie receives the reports that were not accepted before, and kills its own process after a number of them:
// in odd rounds before the commit, in even rounds between the commit and the reply.
func receiveAndDie(t *testing.T) {
	var after, stored int32
	fmt.Sscan(os.Getenv(killAfter), &after)
	dead := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	var armed atomic.Bool
	d, err := db.Open(t.Context(), db.Options{URL: os.Getenv(killDatabase), Log: slog.New(slog.DiscardHandler),
		Trace: func(s db.Statement) {
			if armed.Load() && after%2 == 1 && strings.Contains(s.SQL, "INTO received_dmarc_rows") {
				dead()
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	f := newFixture(t, d)
	var name, team string
	f.Must(d.QueryRow(t.Context(), `SELECT name, team_id FROM domains`).Scan(&name, (*db.ID)(&team)))
	on, err := f.Domains.GetByName(t.Context(), team, name)
	f.Must(err)
	to, err := f.Reports.Address(t.Context(), &on)
	f.Must(err)
	f.reporter("mail.example")
	lines, _ := os.ReadFile(os.Getenv(killReplies))
	replies, err := os.OpenFile(os.Getenv(killReplies), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	f.Must(err)
	defer replies.Close()
	c := dial(t, f.listen(t))
	for i := range killReports {
		id := fmt.Sprintf("report-%d\n", i)
		if strings.Contains(string(lines), id) {
			continue
		}
		if stored++; stored == after {
			armed.Store(true)
		}
		r := f.day(name, strings.TrimSpace(id), 1+i%14, row(name, ownSource, 3, "s", true, true))
		r.org = fmt.Sprint("part ", i)
		f.send(c, to, "mail.example", r)
		if stored == after {
			dead()
		}
		if _, err := replies.WriteString(id); err != nil {
			t.Fatal(err)
		}
	}
}
