package broadcasts

import (
	"context"
	"strings"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
)

// findMost is the number of a team's newest broadcasts among which Find looks for a name.
const findMost = 500

// Find returns up to limit of the team's 500 newest broadcasts whose name contains a text, newest first, or the
// broadcast whose id it is. The case of letters does not matter. The broadcasts have only an id, a team, a name and a
// status.
func (s *Service) Find(ctx context.Context, teamID, text string, limit int) (found []Broadcast, err error) {
	text = strings.ToLower(strings.TrimSpace(text))
	if id.Valid(text) {
		b, err := getRow(ctx, s.p.DB.Reader, teamID, text)
		if fault.KindOf(err) == fault.NotFound {
			return nil, nil
		}
		return []Broadcast{b}, err
	}
	if text == "" {
		return nil, nil
	}
	all, err := listNames(ctx, s.p.DB.Reader, teamID, findMost)
	for _, b := range all {
		if len(found) < limit && strings.Contains(strings.ToLower(b.Name), text) {
			found = append(found, b)
		}
	}
	return found, err
}
