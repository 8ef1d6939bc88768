package bench

import (
	"context"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// contactRows are rows of contacts, one in each place of the lists.
type contactRows struct {
	ids          []db.ID
	teamIDs      []string
	addresses    []string
	firstNames   []string
	unsubscribed []bool
	at           []int64
}

func (c *contactRows) add(contactID, teamID string, number int, at time.Time) {
	c.ids, c.teamIDs = append(c.ids, db.ID(contactID)), append(c.teamIDs, teamID)
	c.addresses = append(c.addresses, "user"+strconv.Itoa(number)+"@example.net")
	c.firstNames = append(c.firstNames, "User "+strconv.Itoa(number))
	c.unsubscribed, c.at = append(c.unsubscribed, number%50 == 0), append(c.at, at.UnixMicro())
}

// insert inserts the rows. A store that was filled before has some of the contacts.
func (c *contactRows) insert(ctx context.Context, tx *db.Tx) {
	tx.QueueRows(ctx, `contacts (id, team_id, address, first_name, last_name, unsubscribed, created_at, updated_at)`,
		`ON CONFLICT (team_id, address) DO NOTHING`, c.ids, db.IDs(c.teamIDs), c.addresses, c.firstNames, "Example",
		c.unsubscribed, c.at, c.at)
}
