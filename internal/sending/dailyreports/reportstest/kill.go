package reportstest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// These variables are set in a process that is killed while it sends reports.
const (
	killDatabase = "POSTRIDER_TEST_REPORTS_DATABASE"
	killMailbox  = "POSTRIDER_TEST_REPORTS_MAILBOX" // file with a line for each email
	killTime     = "POSTRIDER_TEST_REPORTS_TIME"
)

// MailFunc sends an email with a report.
type MailFunc func(ctx context.Context, from, to string, raw []byte) error

// KillCase describes a test by Kill.
type KillCase struct {
	Domains int // that get a report
	Mails   int // emails after which a process is killed
	Workers int // emails that may be being sent then
	Later   time.Time
	Count   func(t *testing.T, d *db.DB)                               // stores counts for each domain
	Send    func(t *testing.T, d *db.DB, now time.Time, mail MailFunc) // sends the due reports
	Rows    func(t *testing.T, d *db.DB) int                           // returns the number of rows
}

// Kill kills processes that send reports by kill -9, before or after an email has arrived. Each domain must get at most
// one report, and only those that were being sent may be lost. Only the test TestKill may call Kill, because the
// processes run this test.
func Kill(t *testing.T, c KillCase) {
	if os.Getenv(killDatabase) != "" {
		c.sendAndDie(t)
		return
	}
	t.Parallel()
	for engine, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLiteFile,
		"postgres": dbtest.PostgresURL} {
		t.Run(engine, func(t *testing.T) {
			at := url(t)
			d := dbtest.Open(t, at)
			c.Count(t, d)
			if engine == "sqlite" {
				d.Close() // only one process may have the file open
			}
			mailbox := filepath.Join(t.TempDir(), "mailbox")
			kills := killUntilDone(t, at, mailbox, c.Later)
			lines, err := os.ReadFile(mailbox)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]int{}
			for line := range strings.Lines(string(lines)) {
				if got[line]++; got[line] > 1 {
					t.Errorf("%d reports to %s", got[line], line)
				}
			}
			if kills < 3 || len(got) > c.Domains || len(got) < c.Domains-kills*c.Workers {
				t.Errorf("%d reports after %d kills", len(got), kills)
			}
			if engine == "sqlite" {
				d = dbtest.Open(t, at)
			}
			if n := c.Rows(t, d); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		})
	}
}

// killUntilDone starts processes that send reports, each an hour later than the one before, until one of them survives.
// It returns how many were killed.
func killUntilDone(t *testing.T, database, mailbox string, now time.Time) (kills int) {
	t.Helper()
	for ; kills < 20; now = now.Add(time.Hour) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKill$", "-test.count=1")
		cmd.Env = append(os.Environ(), killDatabase+"="+database, killMailbox+"="+mailbox,
			killTime+"="+now.Format(time.RFC3339))
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
			return kills
		case cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
			kills++
		default:
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return kills
}

// sendAndDie sends reports and kills its own process.
func (c *KillCase) sendAndDie(t *testing.T) {
	now, err := time.Parse(time.RFC3339, os.Getenv(killTime))
	if err != nil {
		t.Fatal(err)
	}
	mailbox, err := os.OpenFile(os.Getenv(killMailbox), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer mailbox.Close()
	var mails atomic.Int32
	c.Send(t, dbtest.Open(t, os.Getenv(killDatabase)), now, func(_ context.Context, _, to string, _ []byte) error {
		die := int(mails.Add(1)) == c.Mails
		before := now.Hour()%2 == 0
		if die && before {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		_, err := mailbox.WriteString(to + "\n")
		if die && !before {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return err
	})
}
