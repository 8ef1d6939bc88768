package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// snapshot measures sending while another transaction stays open, as pg_dump or a long report keeps one open.
// PostgreSQL cannot remove or skip the rows that this transaction may still read. The pages that a claim reads must not
// increase from run to run.
func (b *measurement) snapshot(ctx context.Context) error {
	if !db.IsPostgres(b.url) {
		return errors.New("--snapshot measures PostgreSQL: set POSTRIDER_DATABASE_URL")
	}
	n, err := b.start(ctx)
	if err != nil {
		return err
	}
	defer n.stop()
	if _, err := b.load(ctx, n, 500, 0); err != nil { // warm-up load
		return err
	}
	if err := n.idle(ctx); err != nil {
		return err
	}
	d, err := db.Open(ctx, b.options(2))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
		tx.Queue(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`)
		if _, err := tx.Exec(ctx, `SELECT COUNT(*) FROM migrations`); err != nil {
			return fmt.Errorf("open a transaction: %w", err)
		}
		opened, sent := time.Now(), 0
		for range b.runs {
			if err := b.snapshotRun(ctx, d, n); err != nil {
				return err
			}
			sent += b.emails
			b.say("    the transaction has been open for %.0f s, with %d emails since", time.Since(opened).Seconds(), sent)
		}
		return nil
	})
}

// snapshotRun sends emails until all are delivered, and reports what the server did for them.
func (b *measurement) snapshotRun(ctx context.Context, d *db.DB, n *measuredNode) error {
	before, err := readServerWork(ctx, d)
	if err != nil {
		return err
	}
	cpu, start := n.cpu(), time.Now()
	if _, err := b.load(ctx, n, b.emails, 0); err != nil {
		return err
	}
	if err := n.idle(ctx); err != nil {
		return err
	}
	took, used := time.Since(start), n.cpu()-cpu
	w, err := readServerWork(ctx, d)
	if err != nil {
		return err
	}
	emails, claims := float64(b.emails), float64(w.claims-before.claims)
	b.say("end to end                  %8.0f /s   CPU %.2f ms an email", emails/took.Seconds(),
		used.Seconds()*1000/emails)
	pages := float64(w.claimPages - before.claimPages)
	b.say("claims                      %8.0f pages, %.2f ms each   %.1f emails each   %.1f pages an email", pages/claims,
		(w.claimTime-before.claimTime)/claims, emails/claims, pages/emails)
	b.say("other statements on jobs    %8.0f pages, %.3f ms an email   all statements %.0f pages, %.2f ms an email",
		float64(w.jobPages-before.jobPages)/emails, (w.jobTime-before.jobTime)/emails,
		float64(w.pages-before.pages)/emails, (w.time-before.time)/emails)
	return nil
}

// serverWork is what PostgreSQL has done since its statistics were reset. Pages are pages of the buffer cache that
// statements used; times are in milliseconds.
type serverWork struct {
	claims, claimPages, jobPages, pages int64
	claimTime, jobTime, time            float64
}

func readServerWork(ctx context.Context, d *db.DB) (w serverWork, err error) {
	err = d.Update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `WITH s AS (
			SELECT calls, shared_blks_hit + shared_blks_read AS pages, total_exec_time AS took,
				query LIKE '%UPDATE jobs SET run_at = $1, attempt = attempt + %' AS claims,
				query LIKE '% jobs %' AS jobs
			FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database())
			SELECT COALESCE(SUM(calls) FILTER (WHERE claims), 0)::BIGINT,
				COALESCE(SUM(pages) FILTER (WHERE claims), 0)::BIGINT,
				COALESCE(SUM(pages) FILTER (WHERE jobs AND NOT claims), 0)::BIGINT, SUM(pages)::BIGINT,
				COALESCE(SUM(took) FILTER (WHERE claims), 0), COALESCE(SUM(took) FILTER (WHERE jobs AND NOT claims), 0),
				SUM(took)
			FROM s`).Scan(&w.claims, &w.claimPages, &w.jobPages, &w.pages, &w.claimTime, &w.jobTime, &w.time)
	})
	if err != nil {
		err = fmt.Errorf("read pg_stat_statements; the server needs shared_preload_libraries = 'pg_stat_statements': %w",
			err)
	}
	return w, err
}
