package domainreports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	eraseRows  = 500 // rows of one transaction
	sweepPage  = 500 // domains of one query
	orphanTime = oneDay
)

// addressed is a domain with an address for reports.
type addressed struct {
	domainID, teamID string
	gone             bool // whether the domain or the address is missing
}

func scanAddressed(r db.Row) (a addressed, err error) {
	var gone int64
	err = r.Scan((*db.ID)(&a.domainID), (*db.ID)(&a.teamID), &gone)
	a.gone = gone == 1
	return a, err
}

// addMissing gives addresses to domains that have none, which an earlier version created.
func (s *Service) addMissing(ctx context.Context) error {
	for after := ""; ; {
		rows, err := s.p.DB.Query(ctx, `SELECT d.id, d.team_id, CASE WHEN a.domain_id IS NULL THEN 1 ELSE 0 END
			FROM domains d LEFT JOIN report_addresses a ON a.domain_id = d.id WHERE d.id > $1 ORDER BY d.id LIMIT $2`,
			db.OrNoID(after), sweepPage)
		some, err := db.Collect(rows, err, scanAddressed)
		if err != nil {
			return fmt.Errorf("list domains without an address for reports: %w", err)
		}
		missing := slices.DeleteFunc(slices.Clone(some), func(a addressed) bool { return !a.gone })
		if len(missing) > 0 {
			err := s.p.DB.Update(ctx, func(tx *db.Tx) error {
				for _, a := range missing {
					insertToken(ctx, tx, a.teamID, a.domainID)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("add addresses for reports: %w", err)
			}
		}
		if len(some) < sweepPage {
			return nil
		}
		after = some[len(some)-1].domainID
	}
}

// Sweep deletes files after 30 days, counts after the retention time, and everything about deleted domains. It
// also adds missing addresses. The scheduler calls it periodically. It covers all teams.
func (s *Service) Sweep(ctx context.Context) error {
	failed := s.addMissing(ctx)
	for after := ""; ; {
		rows, err := s.p.DB.Query(ctx, `SELECT a.domain_id, a.team_id, CASE WHEN d.id IS NULL THEN 1 ELSE 0 END
			FROM report_addresses a LEFT JOIN domains d ON d.id = a.domain_id WHERE a.domain_id > $1
			ORDER BY a.domain_id LIMIT $2`, db.OrNoID(after), sweepPage)
		some, err := db.Collect(rows, err, scanAddressed)
		if err != nil {
			return fmt.Errorf("list domains with reports: %w", err)
		}
		for _, a := range some {
			if err := ctx.Err(); err != nil {
				return err
			}
			if a.gone {
				failed = errors.Join(failed, s.eraseDomain(ctx, a))
			} else {
				failed = errors.Join(failed, s.expire(ctx, a))
			}
			after = a.domainID
		}
		if len(some) < sweepPage {
			break
		}
	}
	return errors.Join(failed, s.sweepBlobs(ctx))
}

// expire deletes what is old of one domain.
func (s *Service) expire(ctx context.Context, a addressed) error {
	now := s.c.Now()
	if err := s.dropFiles(ctx, a, id.First(now.Add(-rawFor))); err != nil {
		return err
	}
	before := today(now.Add(-s.c.Retention))
	for _, text := range []string{
		`DELETE FROM received_dmarc_rows WHERE domain_id = $1 AND team_id = $2 AND day < $3 AND digest IN
			(SELECT digest FROM received_dmarc_rows WHERE domain_id = $1 AND day < $3 LIMIT $4)`,
		`DELETE FROM received_tls_rows WHERE domain_id = $1 AND team_id = $2 AND day < $3 AND digest IN
			(SELECT digest FROM received_tls_rows WHERE domain_id = $1 AND day < $3 LIMIT $4)`,
		`DELETE FROM report_days WHERE domain_id = $1 AND team_id = $2 AND day < $3 AND day IN
			(SELECT day FROM report_days WHERE domain_id = $1 AND day < $3 LIMIT $4)`,
		`DELETE FROM report_reporters WHERE domain_id = $1 AND team_id = $2 AND day < $3 AND (day, reporter) IN
			(SELECT day, reporter FROM report_reporters WHERE domain_id = $1 AND day < $3 LIMIT $4)`} {
		err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
			return tx.Exec(ctx, text, db.ID(a.domainID), db.ID(a.teamID), before, eraseRows)
		})
		if err != nil {
			return fmt.Errorf("delete old counts of reports: %w", err)
		}
	}
	return s.dropReports(ctx, a, id.First(db.Time(before)))
}

// dropFiles deletes the files of reports that were received before an id was made.
func (s *Service) dropFiles(ctx context.Context, a addressed, before string) error {
	for {
		rows, err := s.p.DB.Query(ctx, `SELECT id, blob_key FROM received_reports WHERE domain_id = $1 AND team_id = $2
			AND blob_key <> '' AND id < $3 ORDER BY id LIMIT $4`, db.ID(a.domainID), db.ID(a.teamID), db.ID(before), eraseRows)
		type stored struct{ id, key string }
		some, err := db.Collect(rows, err, func(r db.Row) (x stored, err error) {
			return x, r.Scan((*db.ID)(&x.id), &x.key)
		})
		if err != nil {
			return fmt.Errorf("list old files of reports: %w", err)
		}
		if len(some) == 0 {
			return nil
		}
		var ids []string
		for _, x := range some {
			if err := s.p.Blobs.Delete(ctx, x.key); err != nil {
				return err
			}
			ids = append(ids, x.id)
		}
		err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
			tx.Queue(ctx, `UPDATE received_reports SET blob_key = '' WHERE id = ANY($1) AND team_id = $2`, db.IDs(ids),
				db.ID(a.teamID))
			return nil
		})
		if err != nil {
			return fmt.Errorf("forget old files of reports: %w", err)
		}
	}
}

// dropReports deletes the reports that were received before an id was made. Their files must be deleted before.
func (s *Service) dropReports(ctx context.Context, a addressed, before string) error {
	err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		return tx.Exec(ctx, `DELETE FROM received_reports WHERE id IN (SELECT id FROM received_reports WHERE domain_id = $1
			AND team_id = $2 AND id < $3 LIMIT $4)`, db.ID(a.domainID), db.ID(a.teamID), db.ID(before), eraseRows)
	})
	if err != nil {
		return fmt.Errorf("delete old reports: %w", err)
	}
	return nil
}

// lastID is greater than every id.
const lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

// eraseDomain deletes everything about one domain; the address comes last, so that an interrupted call is repeated.
func (s *Service) eraseDomain(ctx context.Context, a addressed) error {
	if err := s.dropFiles(ctx, a, lastID); err != nil {
		return err
	}
	if err := s.dropReports(ctx, a, lastID); err != nil {
		return err
	}
	for _, table := range []string{"received_dmarc_rows", "received_tls_rows"} {
		err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
			return tx.Exec(ctx, `DELETE FROM `+table+` WHERE domain_id = $1 AND digest IN (SELECT digest FROM `+table+`
				WHERE domain_id = $1 AND team_id = $2 LIMIT $3)`, db.ID(a.domainID), db.ID(a.teamID), eraseRows)
		})
		if err != nil {
			return fmt.Errorf("erase %s: %w", table, err)
		}
	}
	err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		return tx.Exec(ctx, `DELETE FROM report_reporters WHERE domain_id = $1 AND (day, reporter) IN (SELECT day, reporter
			FROM report_reporters WHERE domain_id = $1 AND team_id = $2 LIMIT $3)`, db.ID(a.domainID), db.ID(a.teamID), eraseRows)
	})
	if err != nil {
		return fmt.Errorf("erase the counts of reporters: %w", err)
	}
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if err := lockReports(ctx, tx, a.domainID); err != nil {
			return err
		}
		var stored bool // a report that arrived meanwhile; the address stays, so that the next call finds it
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM received_reports WHERE domain_id = $1 AND team_id = $2)`,
			db.ID(a.domainID), db.ID(a.teamID)).Scan(&stored)
		if err != nil || stored {
			return err
		}
		tx.Queue(ctx, `DELETE FROM report_days WHERE domain_id = $1 AND team_id = $2`, db.ID(a.domainID), db.ID(a.teamID))
		tx.Queue(ctx, `DELETE FROM report_addresses WHERE domain_id = $1 AND team_id = $2`, db.ID(a.domainID),
			db.ID(a.teamID))
		return nil
	})
	if err != nil {
		return fmt.Errorf("erase the address for reports: %w", err)
	}
	return nil
}

// EraseTeam deletes the reports about a team's domains, with their files and addresses.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for {
		rows, err := s.p.DB.Query(ctx, `SELECT domain_id, team_id, 1 FROM report_addresses WHERE team_id = $1 LIMIT $2`,
			db.ID(teamID), sweepPage)
		some, err := db.Collect(rows, err, scanAddressed)
		if err != nil {
			return fmt.Errorf("list the domains of team %s with reports: %w", teamID, err)
		}
		if len(some) == 0 {
			return nil
		}
		for _, a := range some {
			if err := s.eraseDomain(ctx, a); err != nil {
				return fmt.Errorf("erase the reports of team %s: %w", teamID, err)
			}
		}
	}
}

// sweepBlobs deletes files without a report, which remain of repeated reports and after failures.
func (s *Service) sweepBlobs(ctx context.Context) error {
	return s.p.Blobs.Sweep(ctx, blobPrefix, time.Now().Add(-orphanTime), func(ctx context.Context, keys []string) (
		[]string, error) {
		rows, err := s.p.DB.Query(ctx, `SELECT blob_key FROM received_reports WHERE blob_key = ANY($1)
			AND blob_key <> ''`, keys)
		used, err := db.Collect(rows, err, func(r db.Row) (key string, err error) { return key, r.Scan(&key) })
		return slices.Clip(used), err
	})
}
