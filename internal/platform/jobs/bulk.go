package jobs

// reserve returns how many of n workers bulk jobs leave to other jobs: a quarter, but at least one. It returns 0 if n
// is 1.
func reserve(n int) int {
	if n < 2 {
		return 0
	}
	return max(n/4, 1)
}

// bulk counts the claimed jobs of bulk lanes.
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

// bulkRoom returns how many more jobs of bulk lanes an owner may claim if planned of them are already planned. The
// reserve is a part of the workers that the owner holds or may still acquire.
func (k *dispatcher) bulkRoom(owner string, planned int) int {
	room := int(k.workers.Available(owner))
	most := room + int(k.workers.Held(owner))
	return min(room, most-reserve(most)-k.bulk.owners[owner]-planned)
}
