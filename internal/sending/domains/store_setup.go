package domains

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/platform/db"
)

const selectOverdueFormer = `SELECT id, team_id FROM domains WHERE former_setup <> '' AND NOT placeholder
	AND checked_at < $1 ORDER BY checked_at LIMIT $2`

// overdueFormer returns the domains of all teams that still use their former set-up and were last looked up before the
// given time.
func overdueFormer(ctx context.Context, r db.Reader, before time.Time, limit int) ([]owned, error) {
	rows, err := r.Query(ctx, selectOverdueFormer, before.UnixMicro(), limit)
	return db.Collect(rows, err, func(r db.Row) (o owned, err error) {
		err = r.Scan((*db.ID)(&o.id), (*db.ID)(&o.teamID))
		return o, err
	})
}

const selectWithNames = `SELECT ` + columns + ` FROM domains WHERE setup_token > $1 AND setup_token <> ''
	AND NOT placeholder ORDER BY setup_token LIMIT $2`

// domainsWithNames returns a page of the domains of all teams that may have names in zones of this installation. It
// does not require a team id, because the name servers answer for all teams. The page begins after a token.
func domainsWithNames(ctx context.Context, r db.Reader, after string, limit int) ([]Domain, error) {
	rows, err := r.Query(ctx, selectWithNames, after, limit)
	return db.Collect(rows, err, scan)
}

const selectToDelegate = `SELECT id, team_id FROM domains WHERE name = $1 AND setup = $2 AND NOT placeholder`

// toDelegate returns the domain with a name, of any team, if its owner has chosen to delegate it.
func toDelegate(ctx context.Context, r db.Reader, name string) (o owned, err error) {
	err = r.QueryRow(ctx, selectToDelegate, name, SetupDelegation).Scan((*db.ID)(&o.id), (*db.ID)(&o.teamID))
	return o, err
}

// domainBelow returns the name of a team's domain below a name, or "" if the team has none.
func domainBelow(ctx context.Context, r db.Reader, teamID, name string) (below string, err error) {
	err = r.QueryRow(ctx, `SELECT name FROM domains WHERE team_id = $1 AND name LIKE $2 ORDER BY name LIMIT 1`,
		db.ID(teamID), "%."+name).Scan(&below)
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find domains below %s: %w", name, err)
	}
	return below, nil
}

// zoneVersion is the version of a zone's content.
type zoneVersion struct {
	checksum string
	serial   uint32
}

const selectZoneVersions = `SELECT id, zone_checksum, zone_serial FROM domains WHERE id = ANY($1)`

// zoneVersions returns the stored versions of the zones of domains of any teams.
func zoneVersions(ctx context.Context, r db.Reader, domainIDs []string) (map[string]zoneVersion, error) {
	all := make(map[string]zoneVersion, len(domainIDs))
	rows, err := r.Query(ctx, selectZoneVersions, db.IDs(domainIDs))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var id string
		var v zoneVersion
		var serial int64
		err = r.Scan((*db.ID)(&id), &v.checksum, &serial)
		v.serial = uint32(serial)
		all[id] = v
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the versions of zones: %w", err)
	}
	return all, nil
}

func saveZoneVersion(ctx context.Context, tx *db.Tx, teamID, domainID string, v zoneVersion) {
	tx.Queue(ctx, `UPDATE domains SET zone_checksum = $3, zone_serial = $4 WHERE id = $1 AND team_id = $2`,
		db.ID(domainID), db.ID(teamID), v.checksum, int64(v.serial))
}

// storedAdvised is what a look-up found about an advised record, as it is stored.
type storedAdvised struct {
	Purpose string       `json:"purpose"`
	Name    string       `json:"name"`
	Type    string       `json:"type"`
	Value   string       `json:"value"`
	Why     string       `json:"why"`
	Status  AdvisedState `json:"status"`
	Found   string       `json:"found,omitzero"`
}

func saveAdvised(ctx context.Context, tx *db.Tx, teamID, domainID string, all []storedAdvised) {
	text := ""
	if len(all) > 0 {
		encoded, _ := json.Marshal(all) // Strings can always be encoded.
		text = string(encoded)
	}
	tx.Queue(ctx, `UPDATE domains SET advised = $3 WHERE id = $1 AND team_id = $2`, db.ID(domainID), db.ID(teamID), text)
}

func advisedOf(ctx context.Context, r db.Reader, teamID, domainID string) (all []storedAdvised, err error) {
	var text string
	err = r.QueryRow(ctx, `SELECT advised FROM domains WHERE id = $1 AND team_id = $2`, db.ID(domainID),
		db.ID(teamID)).Scan(&text)
	if err == nil && text != "" {
		err = json.Unmarshal([]byte(text), &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the advised records of domain %s: %w", domainID, err)
	}
	return all, nil
}
