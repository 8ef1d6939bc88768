package dbtest

import "testing"

// A statement on a table of teams must compare a team or insert one. To read the column is not enough.
func TestWithoutTeam(t *testing.T) {
	t.Parallel()
	tables := map[string]bool{"books": true, "pages": true}
	for text, named := range map[string]bool{
		`SELECT id FROM books WHERE id = $1 AND team_id = $2`:                       true,
		`SELECT id FROM books WHERE (team_id, id) > ($1, $2)`:                       true,
		`SELECT id FROM books b WHERE COALESCE(b.team_id, b.team_id) = $2`:          true,
		`SELECT id FROM books WHERE team_id IS NOT DISTINCT FROM $1`:                true,
		`SELECT 1 FROM books b JOIN pages p ON p.book_id = b.id AND b.team_id = $1`: true,
		`SELECT 1 FROM shops s, books b WHERE s.id = $1 AND s.team = b.team_id`:     true,
		`INSERT INTO books (id, team_id) VALUES ($1, $2)`:                           true,
		`INSERT OR FAIL INTO books (id, team_id) VALUES ($1, $2), ($3, $4)`:         true,
		`SELECT id FROM shelves WHERE id = $1`:                                      true,
		`SELECT id, team_id FROM books WHERE id = $1`:                               false,
		`UPDATE books SET title = $2 WHERE id = $1 RETURNING team_id`:               false,
		`DELETE FROM pages WHERE id IN (SELECT id FROM pages WHERE at < $1)`:        false,
		`INSERT INTO books (id) VALUES ($1)`:                                        false,
	} {
		if without := withoutTeam(text, tables); (len(without) == 0) != named {
			t.Errorf("%s: %q are without a team", text, without)
		}
	}
}
