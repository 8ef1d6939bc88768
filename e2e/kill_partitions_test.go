package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// droppedStore is a PostgreSQL database whose next drop of a partition a test can stop.
type droppedStore struct {
	*testing.T
	*db.DB
}

func (s droppedStore) exec(text string, args ...any) {
	s.Helper()
	err := s.Update(s.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(s.Context(), text, args...)
		return err
	})
	if err != nil {
		s.Fatalf("%s: %v", text, err)
	}
}

func (s droppedStore) count(text string, args ...any) (n int) {
	s.Helper()
	if err := s.QueryRow(s.Context(), text, args...).Scan(&n); err != nil {
		s.Fatalf("%s: %v", text, err)
	}
	return n
}

// stoppable makes the server stop for some seconds before the n-th statement that detaches or drops a table, where
// stop_at has n.
func (s droppedStore) stoppable() {
	s.Helper()
	s.exec(`CREATE SEQUENCE stops`)
	s.exec(`CREATE TABLE stop_at (n BIGINT)`)
	s.exec(`INSERT INTO stop_at VALUES (0)`)
	s.exec(`CREATE FUNCTION stop() RETURNS event_trigger LANGUAGE plpgsql AS $f$ DECLARE at BIGINT; BEGIN
		SELECT n INTO at FROM stop_at;
		IF at > 0 AND nextval('stops') = at THEN PERFORM pg_sleep(3); END IF; END $f$`)
	s.exec(`CREATE EVENT TRIGGER stop ON ddl_command_start WHEN TAG IN ('ALTER TABLE', 'DROP TABLE')
		EXECUTE FUNCTION stop()`)
}

func (s droppedStore) stopAt(n int) {
	s.Helper()
	s.exec(`SELECT setval('stops', 1, FALSE)`)
	s.exec(`UPDATE stop_at SET n = $1`, n)
}

// age gives an email an id of some days ago, and returns that id.
func (s droppedStore) age(emailID string, days int) string {
	s.Helper()
	at, _ := id.Time(emailID)
	old := id.First(at.AddDate(0, 0, -days))[:24] + uuid.NewString()[24:]
	s.exec(`UPDATE emails SET id = $2 WHERE id = $1`, db.ID(emailID), db.ID(old))
	s.exec(`UPDATE email_events SET email_id = $2, created_at = created_at - $3 WHERE email_id = $1`, db.ID(emailID),
		db.ID(old), int64(days)*24*time.Hour.Microseconds())
	s.exec(`UPDATE jobs SET dedupe = $2 WHERE dedupe = $1`, emailID, old)
	return old
}

// runDue starts the node with a job that changes partitions due at once.
func (s droppedStore) runDue(n *node, retention string) {
	s.Helper()
	// As after the end of the dead node was noticed, which takes half a minute.
	s.exec(`UPDATE jobs SET run_at = $1, set_at = $1, holder = NULL WHERE kind = 'cron.partitions'`,
		db.Now().Add(-time.Minute).UnixMicro())
	n.env[len(n.env)-1] = "POSTRIDER_EMAIL_RETENTION=" + retention
	n.launch()
}

// TestKillDrop kills the program while PostgreSQL drops a partition for it: between two statements, and after the last
// one was sent. Nothing is lost: either the partition is as before, or what must stay is in the default partition. The
// next run drops the partition.
func TestKillDrop(t *testing.T) {
	t.Parallel()
	url := dbtest.EmptyPostgresURL(t)
	n := start(t, []string{"POSTRIDER_DATABASE_URL=" + url, "POSTRIDER_PARTITION_BY=day", ""})
	s := droppedStore{t, dbtest.Open(t, url)}
	var ids []string
	for i := range 4 {
		var made struct{ ID string }
		more := ""
		if i == 0 {
			more = `,"scheduled_at":"in 1 hour"`
		}
		n.must(http.MethodPost, "/emails", `{"from":"a@resend.dev","to":"delivered@resend.dev","subject":"s","text":"t"`+
			more+`}`, &made)
		ids = append(ids, made.ID)
	}
	eventually(t, time.Minute, "three are delivered", func() bool {
		return s.count(`SELECT COUNT(*) FROM email_events WHERE type = 5 /* delivered */`) == 3
	})
	n.kill()
	for i := range 3 {
		ids[i] = s.age(ids[i], 5)
	}
	s.exec(`UPDATE migrations SET applied_at = applied_at - $1`, 100*24*time.Hour.Microseconds())
	s.exec(`INSERT INTO email_counts_until (team_id, until, version) SELECT id, $1, 1 FROM teams`,
		time.Now().UnixMicro())
	day := "emails_" + db.Now().AddDate(0, 0, -5).Format("20060102")
	there := func() bool { return s.count(`SELECT COUNT(*) FROM pg_class WHERE relname = $1`, day) == 1 }
	s.runDue(n, "720h")
	eventually(t, time.Minute, "the day has a partition", there)
	n.kill()
	s.stoppable()
	const last = 10 // five tables are detached and dropped
	for _, k := range []int{1, 4, last} {
		s.stopAt(k)
		s.runDue(n, "72h")
		eventually(t, time.Minute, fmt.Sprintf("statement %d is stopped", k), func() bool {
			return s.count(`SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
				AND wait_event = 'PgSleep'`) == 1
		})
		n.kill()
		s.stopAt(0)
		eventually(t, time.Minute, "the server notices it", func() bool {
			return s.count(`SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
				AND pid <> pg_backend_pid() AND state <> 'idle'`) == 0
		})
		left, inDefault := s.count(`SELECT COUNT(*) FROM emails`), s.count(`SELECT COUNT(*) FROM emails_default`)
		if there() && (left != 4 || inDefault != 0) || !there() && (left != 2 || inDefault != 1) || k < last && !there() {
			t.Fatalf("after a kill before statement %d, %d emails are left, %d of them in the default partition", k, left,
				inDefault)
		}
	}
	s.runDue(n, "72h")
	eventually(t, time.Minute, "the partition is dropped", func() bool { return !there() })
	if s.count(`SELECT COUNT(*) FROM emails_default WHERE id = $1`, db.ID(ids[0])) != 1 ||
		s.count(`SELECT COUNT(*) FROM emails`) != 2 || s.count(`SELECT COUNT(*) FROM email_events`) != 3 {
		t.Errorf("%d emails and %d events are left", s.count(`SELECT COUNT(*) FROM emails`),
			s.count(`SELECT COUNT(*) FROM email_events`))
	}
	n.must(http.MethodPost, "/emails/"+ids[0]+"/cancel", "", nil)
	n.must(http.MethodGet, "/emails/"+ids[3], "", nil)
}
