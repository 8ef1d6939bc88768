package delivery

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/emails"
)

// If a wrong key makes every job fail, the log does not contain a line for each job.
func TestLogOfWrongKey(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Config{}, newNetwork().dns)
		wrong := []byte(strings.Repeat("w", keyring.MasterSize))
		f.Domains.Keys = testnode.Must(keyring.New(wrong))
		var logged testnode.Logged
		log := slog.New(lograte.NewHandler(slog.NewTextHandler(&logged, nil)))
		f.service.p.Log = log
		f.runner = jobs.NewRunner(d, f.Queue, log, time.Second)
		f.runner.Handle(f.service.Kind())
		const count = 100
		var all []emails.Send
		for i := range count {
			all = append(all, testnode.Hello(fmt.Sprintf("r%d@d%d.example", i, i)))
		}
		_, err := f.Emails.SendBatch(t.Context(), f.Acme, all, false, emails.Idempotency{})
		f.Must(err)
		f.run()
		testnode.Until(t, "all jobs have failed", func() bool {
			return f.Count(`SELECT COUNT(*) FROM jobs WHERE failures > 0`) == count
		})
		lines := strings.Count(logged.String(), "\n")
		if lines == 0 || lines > 3*lograte.Burst ||
			!strings.Contains(logged.String(), "a job failed and will be tried again") {
			t.Errorf("%d lines for %d jobs: %s", lines, count, logged.String())
		}
	})
}
