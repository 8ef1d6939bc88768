package jobs

// reserve is how many of n places bulk jobs leave to others: a quarter, at least one, but none of a single place.
func reserve(n int) int {
	if n < 2 {
		return 0
	}
	return max(n/4, 1)
}

// bulk counts the jobs of bulk lanes that are in hand.
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

// bulkRoom is how many more jobs of bulk lanes an owner may have in hand when planned of them are planned already.
// The reserve is taken of the workers that the owner holds or may still take.
func (k *dispatcher) bulkRoom(owner string, planned int) int {
	room := int(k.workers.Room(owner))
	most := room + int(k.workers.Held(owner))
	return min(room, most-reserve(most)-k.bulk.owners[owner]-planned)
}
