package nodelimits

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
)

// demand is one node's database row for a limit.
type demand struct {
	node string
	want float64 // how much the node could use
	used float64 // how much the node cannot release immediately
	held float64 // the maximum that the node uses until it writes another value
}

// target returns how many slots a node may have. Nodes that still use more than their reduced share keep the excess
// slots until they can release them. The remaining slots are divided among the other nodes.
func target(key string, limit int, all []demand, node string, turn int64) int {
	all = slices.Clone(all)
	for {
		shares := divideWhole(key, limit, all, turn)
		mine := shares[node]
		kept := slices.DeleteFunc(all, func(d demand) bool {
			over := d.used > float64(shares[d.node])
			if over && d.node != node {
				limit = max(limit-int(d.used), 0)
			}
			return over && d.node != node
		})
		if len(kept) == len(shares) {
			return mine
		}
		all = kept
	}
}

// divide returns the max-min fair share for each demand. A node that wants less than an even share gets the amount that
// it wants, and the other nodes divide the remainder evenly. Capacity that no node wants is divided evenly among all
// nodes, so that the shares add up to the limit. The result of divide does not depend on the order of the demands.
func divide(limit float64, all []demand) map[string]float64 {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b demand) int {
		return cmp.Or(cmp.Compare(a.want, b.want), cmp.Compare(a.node, b.node))
	})
	shares, left := make(map[string]float64, len(all)), limit
	for i, d := range all {
		n := max(min(d.want, left/float64(len(all)-i)), 0)
		shares[d.node] = n
		left -= n
	}
	for i, d := range all {
		n := max(left/float64(len(all)-i), 0)
		shares[d.node] += n
		left -= n
	}
	return shares
}

// divideWhole is like divide, but its shares are whole numbers. The order in which nodes get the remainder depends on
// the key, so that no node gets the remainder of every key. If more nodes want slots than the limit allows, the nodes
// take turns: in each turn, the order begins with a different node.
func divideWhole(key string, limit int, all []demand, turn int64) map[string]int {
	all = slices.Clone(all)
	wanting := 0
	for i, d := range all {
		if all[i].want = math.Ceil(d.want); d.want > 0 {
			wanting++
		}
	}
	if limit < wanting {
		for i, d := range all {
			all[i].want = min(d.want, 1)
		}
	}
	order(key, all)
	// Among nodes that want the same number, the following loops prefer the last node.
	if n := len(all); limit < wanting {
		first := int(((turn % int64(n)) + int64(n)) % int64(n))
		all = slices.Concat(all[first:], all[:first])
	}
	slices.SortStableFunc(all, func(a, b demand) int { return cmp.Compare(a.want, b.want) })
	shares, left := make(map[string]int, len(all)), max(limit, 0)
	for i, d := range all {
		n := left / (len(all) - i)
		if d.want < float64(n) {
			n = max(int(d.want), 0)
		}
		shares[d.node] = n
		left -= n
	}
	for i, d := range all {
		n := left / (len(all) - i)
		shares[d.node] += n
		left -= n
	}
	return shares
}

// order sorts demands by a hash of the key and the node's id.
func order(key string, all []demand) {
	rank := func(node string) uint64 {
		h := fnv.New64a()
		h.Write([]byte(key))
		h.Write([]byte{0})
		h.Write([]byte(node))
		return h.Sum64()
	}
	slices.SortFunc(all, func(a, b demand) int {
		return cmp.Or(cmp.Compare(rank(a.node), rank(b.node)), cmp.Compare(a.node, b.node))
	})
}
