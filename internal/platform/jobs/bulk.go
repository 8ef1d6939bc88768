package jobs

// reserve returns how many of n workers bulk jobs must leave for other jobs: a quarter, but at least one. If n is 1,
// reserve returns 0.
func reserve(n int) int {
	if n < 2 {
		return 0
	}
	return max(n/4, 1)
}

// bulk counts claimed jobs in bulk lanes.
type bulk struct {
	groups map[string]int
	owners map[string]int
	shares map[share]int
}

func newBulk() bulk {
	return bulk{map[string]int{}, map[string]int{}, map[share]int{}}
}

func (b *bulk) add(s share, n int) {
	count(b.groups, s.group, n)
	count(b.owners, s.owner, n)
	count(b.shares, s, n)
}

func count[K comparable](m map[K]int, key K, n int) {
	if m[key] += n; m[key] == 0 {
		delete(m, key)
	}
}

// bulkRoom returns how many more bulk jobs an owner may claim. The planned parameter is the number of bulk jobs that
// the current claim already contains. The reserve for other jobs is computed from all workers that the owner holds or
// may still acquire.
func (k *dispatcher) bulkRoom(owner string, planned int) int {
	room := int(k.workers.Available(owner))
	most := room + int(k.workers.Held(owner))
	return min(room, most-reserve(most)-k.bulk.owners[owner]-planned)
}
