package dmarcreports_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
)

// These variables are set in a process that is killed while it sends reports.
const (
	killDatabase = "POSTRIDER_TEST_DMARCREPORTS_DATABASE"
	killMailbox  = "POSTRIDER_TEST_DMARCREPORTS_MAILBOX" // file with a line for each email
	killTime     = "POSTRIDER_TEST_DMARCREPORTS_TIME"
)

const (
	killDomains = 100
	killMails   = 25 // after which a process is killed
	killWorkers = 8  // that may be sending then
)

// Processes that send reports are killed by kill -9, before or after an email has arrived. Each domain gets at most one
// report, and only those that were being sent are lost.
func TestKill(t *testing.T) {
	if os.Getenv(killDatabase) != "" {
		sendAndDie(t)
		return
	}
	t.Parallel()
	for engine, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLiteFile,
		"postgres": dbtest.PostgresURL} {
		t.Run(engine, func(t *testing.T) {
			at := url(t)
			d := dbtest.Open(t, at)
			f := newFixture(t, d)
			s := f.node()
			fill(s)
			f.publishAll()
			for i := range killDomains {
				s.Count(f.facts(fmt.Sprintf("d%d.example", i), "192.0.2.2"))
			}
			f.flush(s)
			if engine == "sqlite" {
				d.Close() // only one process may have the file open
			}
			mailbox := filepath.Join(t.TempDir(), "mailbox")
			kills, now := 0, later
			for done := false; !done && kills < 20; now = now.Add(time.Hour) {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKill$", "-test.count=1")
				cmd.Env = append(os.Environ(), killDatabase+"="+at, killMailbox+"="+mailbox, killTime+"="+now.Format(time.RFC3339))
				out, err := cmd.CombinedOutput()
				switch {
				case err == nil:
					done = true
				case cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
					kills++
				default:
					t.Fatalf("%v\n%s", err, out)
				}
			}
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
			if kills < 3 || len(got) > killDomains || len(got) < killDomains-kills*killWorkers {
				t.Errorf("%d reports after %d kills", len(got), kills)
			}
			if engine == "sqlite" {
				f.d = dbtest.Open(t, at)
			}
			if n := f.rows("dmarc_reports") + f.rows("dmarc_report_rows"); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		})
	}
}

func (f *fixture) publishAll() {
	for i := range killDomains {
		f.publish(fmt.Sprintf("d%d.example", i), fmt.Sprintf("p=none; rua=mailto:dmarc@d%d.example", i))
	}
}

// sendAndDie sends reports and kills its own process.
func sendAndDie(t *testing.T) {
	f := newFixture(t, dbtest.Open(t, os.Getenv(killDatabase)))
	now, err := time.Parse(time.RFC3339, os.Getenv(killTime))
	if err != nil {
		t.Fatal(err)
	}
	f.at(now)
	f.publishAll()
	mailbox, err := os.OpenFile(os.Getenv(killMailbox), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer mailbox.Close()
	var mails atomic.Int32
	s := f.node(func(_ *dmarcreports.Config, p *dmarcreports.Deps) {
		p.Mail = func(_ context.Context, _, to string, _ []byte) error {
			n := mails.Add(1)
			before := now.Hour()%2 == 0
			if n == killMails && before {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			_, err := mailbox.WriteString(to + "\n")
			if n == killMails && !before {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return err
		}
	})
	if err := s.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
}
