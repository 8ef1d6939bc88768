package tlspolicies

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
)

const pruneBatch = 1000 // rows

// size is what prune reads of a row.
type size struct {
	domain   string
	text     int64 // bytes of the policy
	usedAt   time.Time
	enforced bool // whether the row has a valid policy that is enforced
}

// enforceHead is how the text of each enforced policy begins.
var enforceHead, _, _ = strings.Cut(mtasts.Policy{Mode: mtasts.Enforce}.Text(), "max_age")

// prune deletes rows until the cache is within its limits.
func (s *Service) prune(ctx context.Context) error {
	var all []size
	for last := ""; ; last = all[len(all)-1].domain {
		batch, err := s.sizes(ctx, last, pruneBatch)
		if err != nil {
			return err
		}
		all = append(all, batch...)
		if len(batch) < pruneBatch {
			break
		}
	}
	excess := s.c.Limits.excess(all)
	if len(excess) > 0 {
		s.p.Log.Warn("the cache of TLS policies exceeds its limits; the least recently used ones are deleted",
			"rows", len(all), "deleted", len(excess), "first", excess[0].domain)
	}
	for batch := range slices.Chunk(excess, pruneBatch) {
		if err := s.removeUnused(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// share is what a site or the cache has.
type share struct {
	rows int
	text int64
}

// excess returns the rows to delete: first those of sites that exceed their share, then those of others. Among them,
// rows without a valid enforced policy come first, and then those that were used least recently.
func (l Limits) excess(all []size) (excess []size) {
	slices.SortFunc(all, func(a, b size) int {
		if a.enforced != b.enforced {
			return map[bool]int{true: 1, false: -1}[a.enforced]
		}
		return cmp.Or(a.usedAt.Compare(b.usedAt), strings.Compare(a.domain, b.domain))
	})
	var total share
	sites := map[string]*share{}
	for _, z := range all {
		site := siteOf(z.domain)
		if sites[site] == nil {
			sites[site] = &share{}
		}
		sites[site].add(z, 1)
		total.add(z, 1)
	}
	var rest []size
	for _, z := range all {
		if site := sites[siteOf(z.domain)]; site.rows > l.SiteRows || site.text > l.SiteText {
			site.add(z, -1)
			total.add(z, -1)
			excess = append(excess, z)
		} else {
			rest = append(rest, z)
		}
	}
	for _, z := range rest {
		if total.rows <= l.Rows && total.text <= l.Text {
			break
		}
		total.add(z, -1)
		excess = append(excess, z)
	}
	return excess
}

func (s *share) add(z size, n int) {
	s.rows += n
	s.text += int64(n) * z.text
}
