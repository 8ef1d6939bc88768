package jobs

// Share limits an owner's claimed jobs in one group. Kind.Limit, which applies to the whole group, is a separate limit.
type Share struct {
	Most  int // jobs
	Doubt Doubt
}

// Doubt is the degree of doubt that the jobs in a group will end soon. An owner may use three quarters of its workers
// for groups in doubt, and a quarter of that number for stuck groups. The remaining workers serve groups that make
// progress. If an owner has jobs in only one group, the group gets half of the owner's workers. If the owner has
// several groups, each group gets at most a quarter of the number of workers that then stay free. A group that makes
// progress now may be stuck later.
type Doubt uint8

const (
	Sure    Doubt = iota // jobs end soon: recent jobs took little time
	Unknown              // no recent jobs
	Stuck                // jobs may not end soon: recent or current jobs take a long time
)

// doubts counts, during one call to plan, each owner's claimed jobs in groups that are in doubt. An owner's count is
// computed on first use.
type doubts struct {
	k     *dispatcher
	count map[string]*[3]int // number of jobs by owner and Doubt
}

// bound returns how many more jobs, up to n, an owner may claim in a group. The own parameter is the owner's number of
// claimed and planned jobs in the group.
func (d *doubts) bound(n int, s share, own int) (int, Doubt) {
	k := d.k
	if k.Share == nil || n <= 0 {
		return n, Sure
	}
	may := k.Share(s.group, s.owner)
	free, held := int(k.workers.Available(s.owner)), int(k.workers.Held(s.owner))
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

// add adds planned jobs to the counts.
func (d *doubts) add(owner string, what Doubt, n int) {
	if what != Sure {
		d.of(owner)[what] += n
	}
}
