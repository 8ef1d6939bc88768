package nodelimits

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// wants returns one demand per argument, for nodes named a, b, c and so on.
func wants(all ...float64) (d []demand) {
	for i, w := range all {
		d = append(d, demand{node: string(rune('a' + i)), want: w})
	}
	return d
}

func TestDivide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		limit float64
		wants []float64
		want  []float64
	}{
		{"one node", 10, []float64{1}, []float64{10}},
		{"all want all", 9, []float64{9, 9, 9}, []float64{3, 3, 3}},
		{"one wants little", 10, []float64{1, 10, 10}, []float64{1, 4.5, 4.5}},
		{"what nobody wants", 9, []float64{1, 1, 1}, []float64{3, 3, 3}},
		{"one idles", 10, []float64{0, 10}, []float64{0, 10}},
		{"less than one each", 1, []float64{1, 1, 1, 1}, []float64{.25, .25, .25, .25}},
	} {
		got := divide(c.limit, wants(c.wants...))
		for i, w := range c.want {
			if n := got[string(rune('a'+i))]; math.Abs(n-w) > 1e-9 {
				t.Errorf("%s: node %d has %v, want %v", c.name, i, n, w)
			}
		}
	}
}

func TestDivideWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		limit int
		wants []float64
		want  []int // in ascending order
	}{
		{"all want all", 20, []float64{20, 20, 20}, []int{6, 7, 7}},
		{"one wants little", 20, []float64{2, 20, 20}, []int{2, 9, 9}},
		{"one idles", 20, []float64{0, 0, 20}, []int{0, 0, 20}},
		{"what nobody wants", 20, []float64{1, 1, 1}, []int{6, 7, 7}},
		{"one place", 1, []float64{20, 1, 20}, []int{0, 0, 1}},
		{"one place that one wants", 1, []float64{0, 1, 0}, []int{0, 0, 1}},
		{"two places", 2, []float64{1, 1, 20}, []int{0, 1, 1}},
		{"no place", 0, []float64{1, 1}, []int{0, 0}},
	} {
		shares := divideWhole("k", c.limit, wants(c.wants...), 7)
		if got := slices.Sorted(maps.Values(shares)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	first := map[string]int{}
	for i := range 300 {
		for node, n := range divideWhole(fmt.Sprint("k", i), 1, wants(0, 0, 0), 0) {
			first[node] += n
		}
	}
	if len(first) != 3 || first["a"] < 50 || first["b"] < 50 || first["c"] < 50 {
		t.Errorf("of 300 keys the single place is with %v", first)
	}
}

// If there are fewer slots than nodes, each node gets its turn, regardless of the demands of other nodes.
func TestTurns(t *testing.T) {
	t.Parallel()
	for limit := 1; limit < 5; limit++ {
		had := map[string]int{}
		for turn := range int64(5) {
			sum := 0
			for node, n := range divideWhole("k", limit, wants(1, 20, 3, 20, 1), turn) {
				had[node] += n
				sum += n
			}
			if sum != limit {
				t.Errorf("%d places are divided as %d", limit, sum)
			}
		}
		for _, d := range wants(1, 20, 3, 20, 1) {
			if had[d.node] != limit {
				t.Errorf("of %d places, in five turns, node %s has had %d", limit, d.node, had[d.node])
			}
		}
	}
}

// If a node uses more than its share, target does not give the excess to other nodes.
func TestTargetLeavesWhatIsUsed(t *testing.T) {
	t.Parallel()
	all := wants(20, 20, 20)
	all[0].used = 13
	got := []int{target("k", 20, all, "a", 0), target("k", 20, all, "b", 0), target("k", 20, all, "c", 0)}
	if got[0] > 7 || got[1]+got[2] != 7 || min(got[1], got[2]) != 3 {
		t.Errorf("while one of three uses 13 of 20 they may have %v", got)
	}
}

// checkDivision checks the rules that every result of divideWhole must follow.
func checkDivision(t *testing.T, limit int, all []demand, turn int64) {
	t.Helper()
	shuffled := slices.Clone(all)
	rand.Shuffle(len(all), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	parts, whole := divide(float64(limit), all), divideWhole("k", limit, all, turn)
	if !maps.Equal(parts, divide(float64(limit), shuffled)) ||
		!maps.Equal(whole, divideWhole("k", limit, shuffled, turn)) {
		t.Fatalf("the division of %d among %+v depends on their order", limit, all)
	}
	sum, sumWhole, wanting := 0.0, 0, 0
	for _, d := range all {
		sum += parts[d.node]
		sumWhole += whole[d.node]
		if d.want > 0 {
			wanting++
		}
		if parts[d.node] < 0 || whole[d.node] < 0 {
			t.Fatalf("a negative share: %v, %v", parts, whole)
		}
	}
	if len(all) > 0 && (math.Abs(sum-float64(limit)) > 1e-6*float64(limit+1) || sumWhole != limit) {
		t.Fatalf("%d is divided among %+v as %v, %v", limit, all, parts, whole)
	}
	for _, d := range all {
		even := float64(limit) / float64(len(all))
		if parts[d.node] < min(d.want, even)-1e-6 {
			t.Fatalf("of %d, %s wants %v and has %v", limit, d.node, d.want, parts[d.node])
		}
		if limit >= wanting && float64(whole[d.node]) < math.Floor(min(math.Ceil(d.want), even)) {
			t.Fatalf("of %d, %s wants %v and has %d", limit, d.node, d.want, whole[d.node])
		}
	}
}

func FuzzDivide(f *testing.F) {
	f.Add(uint64(1), 20, 3)
	f.Add(uint64(2), 1, 5)
	f.Fuzz(func(t *testing.T, seed uint64, limit, nodes int) {
		r := rand.New(rand.NewPCG(seed, 0))
		limit, nodes = max(limit, 0)%100_000, max(nodes, 0)%50
		var all []demand
		for i := range nodes {
			all = append(all, demand{node: fmt.Sprint("n", i), want: max(r.NormFloat64()*float64(limit), 0)})
		}
		checkDivision(t, limit, all, r.Int64()-r.Int64())
	})
}

func TestDivisions(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		limit := []int{1, 2, 3, 10, 20, 1000}[r.IntN(6)]
		var all []demand
		for i := range 1 + r.IntN(7) {
			want := math.Floor(r.Float64()*3*float64(limit)) / float64(1+r.IntN(4))
			all = append(all, demand{node: fmt.Sprint("n", i), want: want})
		}
		checkDivision(t, limit, all, r.Int64())
	}
}
