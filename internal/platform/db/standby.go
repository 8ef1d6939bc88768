package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// standbys is what PostgreSQL reports about the copies of its data. A commit without a synchronous standby is lost if
// the primary is lost before its standbys have received the commit.
type standbys struct {
	commit      string // synchronous_commit
	names       string // synchronous_standby_names
	connected   int    // standbys, and other programs that receive the log, such as a backup
	slots       int    // replication slots for standbys, which may be disconnected
	synchronous int    // connected standbys for which commits wait; 0 if the user lacks rights
	rights      bool   // whether the user may see the state of standbys
	user        string
}

// LogStandbys logs, once at the start of a node, whether accepted emails survive the loss of the primary. LogStandbys
// logs nothing on SQLite, or if commits wait for a connected standby.
func (d *DB) LogStandbys(ctx context.Context) {
	if d.Alone() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var s standbys
	err := d.QueryRow(ctx, `SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
		(SELECT COUNT(*) FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'),
		(SELECT COUNT(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT temporary),
		(SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
		pg_has_role('pg_read_all_stats', 'USAGE'), current_user::TEXT`).Scan(&s.commit, &s.names, &s.connected, &s.slots,
		&s.synchronous, &s.rights, &s.user)
	if err != nil {
		d.log.Info("could not ask PostgreSQL for its standbys", "error", err)
		return
	}
	if s.commit == "off" {
		d.log.Warn("synchronous_commit is off, so a crash of PostgreSQL loses accepted emails: turn it on")
	}
	switch {
	case s.names == "" && s.connected+s.slots == 0:
		d.log.Info("PostgreSQL has no standby: if it loses its disk, only backups remain")
	case s.names == "":
		d.log.Warn("PostgreSQL has no synchronous standby, so a failover may lose accepted emails: set "+
			"synchronous_standby_names, or synchronous_mode of Patroni", "connected", s.connected)
	case s.commit == "local":
		d.log.Warn("synchronous_commit is local, so commits wait for no standby, and a failover may lose accepted emails: " +
			"set it to on")
	case !s.rights:
		d.log.Info("the database user may not see whether a synchronous standby is connected",
			"grant", fmt.Sprintf("GRANT pg_monitor TO %s", pgx.Identifier{s.user}.Sanitize()))
	case s.synchronous == 0:
		d.log.Warn("no synchronous standby is connected, so commits wait until one is",
			"synchronous_standby_names", s.names)
	}
}
