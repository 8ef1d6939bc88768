package jobs

// Share limits what an owner may have in hand of a group, in addition to Limit, which applies to the group as a
// whole.
type Share struct {
	Most  int // jobs
	Doubt Doubt
}

// Doubt is whether the jobs of a group may be expected to end soon. An owner may have three quarters of its workers
// in hand for groups in doubt, and a quarter of these for groups that are stuck, so that some are always left for
// groups that make progress. A group that is its owner's only one gets half of the owner's workers; beside others it
// gets no more than a quarter of what stays free, because groups that make progress today may be stuck tomorrow.
type Doubt uint8

const (
	Sure    Doubt = iota // the last ones ended soon
	Unknown              // there were none recently
	Stuck                // the last ones took long, or those in hand do
)

// doubts counts, for one plan, what owners have in hand for groups in doubt. It counts an owner when it is first
// needed.
type doubts struct {
	k     *dispatcher
	count map[string]*[3]int // jobs by owner and Doubt
}

// bound returns how many of n more jobs an owner may have for a group of which it has own already, planned ones
// included.
func (d *doubts) bound(n int, s share, own int) (int, Doubt) {
	k := d.k
	if k.Share == nil || n <= 0 {
		return n, Sure
	}
	may := k.Share(s.group, s.owner)
	free, held := int(k.workers.Room(s.owner)), int(k.workers.Held(s.owner))
	even := (free+held)/2 - own
	if held > own {
		even = (free - 4*own) / 5
	}
	if own == 0 {
		even = max(even, 1)
	}
	n = min(n, may.Most-own, even)
	if may.Doubt == Sure || n <= 0 {
		return n, may.Doubt
	}
	c := d.of(s.owner)
	most := max((held+free)*3/4, 1)
	n = min(n, most-c[Unknown]-c[Stuck])
	if may.Doubt == Stuck {
		n = min(n, max(most/4, 1)-c[Stuck])
	}
	return n, may.Doubt
}

func (d *doubts) of(owner string) *[3]int {
	c := d.count[owner]
	if c == nil {
		c = &[3]int{}
		if d.count == nil {
			d.count = map[string]*[3]int{}
		}
		d.count[owner] = c
		for s, n := range d.k.shares {
			if s.owner == owner {
				c[d.k.Share(s.group, owner).Doubt] += n
			}
		}
	}
	return c
}

// add counts jobs that are planned.
func (d *doubts) add(owner string, what Doubt, n int) {
	if what != Sure {
		d.of(owner)[what] += n
	}
}
