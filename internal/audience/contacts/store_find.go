package contacts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// key is an expression by whose beginning an index finds contacts, and the condition of the index.
type key struct{ expression, condition string }

var (
	byAddress  = key{`address COLLATE "C"`, ``}
	byName     = key{`LOWER((first_name || ' ' || last_name) COLLATE "C")`, ` AND first_name <> ''`}
	byLastName = key{`LOWER(last_name COLLATE "C")`, ` AND last_name <> ''`}
)

// contactsWithPrefix returns up to limit contacts of a team whose key begins with a prefix, in the order of the key.
// U+10FFFF, which is no character, comes after every character.
func contactsWithPrefix(ctx context.Context, r db.Reader, teamID string, by key, prefix string, limit int) ([]Contact,
	error) {
	rows, err := r.Query(ctx, `SELECT `+contactColumns+` FROM contacts WHERE team_id = $1`+by.condition+
		` AND `+by.expression+` >= $2 AND `+by.expression+` < $3 ORDER BY `+by.expression+` LIMIT $4`, db.ID(teamID), prefix,
		prefix+"\U0010FFFF", limit)
	all, err := db.Collect(rows, err, scanContact)
	if err != nil {
		return nil, fmt.Errorf("find contacts: %w", err)
	}
	return all, nil
}
