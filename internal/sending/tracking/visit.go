package tracking

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"time"
)

// visitor identifies a client together with the recipient whose links the client follows. IPv6 clients are identified
// by their /64 network, because a client may change its address within that network.
type visitor struct {
	emailID  string
	position int
	from     netip.Prefix
}

func visitorOf(h *Hit) visitor {
	bits := 64
	if h.Addr.Is4() {
		bits = 32
	}
	from, _ := h.Addr.Prefix(bits) // the zero prefix if the client's address is unknown
	return visitor{h.EmailID, h.Position, from}
}

// visit holds a visitor's latest requests.
type visit struct {
	links     []followedLink // the last three distinct links
	reason    Reason         // ByBurst or ByHead
	machineAt time.Time      // time of the last hit for which the reason applied
}

type followedLink struct {
	link uint64
	at   time.Time
}

var seed = maphash.MakeSeed()

// add adds a hit to the visit and determines whether the visitor is a bot.
func (v *visit) add(h *Hit, at time.Time) {
	old := func(f followedLink) bool { return at.Sub(f.at) > burstWithin }
	v.links = slices.DeleteFunc(v.links, old)
	if h.Head {
		v.reason, v.machineAt = ByHead, at
		return
	}
	if h.URL != "" {
		link := maphash.String(seed, h.URL)
		if !slices.ContainsFunc(v.links, func(f followedLink) bool { return f.link == link }) {
			v.links = append(v.links, followedLink{link, at})
		}
		v.links = v.links[max(0, len(v.links)-3):]
		n := len(v.links)
		if n >= 3 || n == 2 && v.links[1].at.Sub(v.links[0].at) <= pairWithin {
			v.reason, v.machineAt = ByBurst, at
		}
	}
}

// judge returns the reason why a hit at a given time is attributed to a bot, or "" if there is none. Only requests
// within burstWithin of the hit's time are considered.
func (v *visit) judge(at time.Time) Reason {
	if v.reason == "" || v.machineAt.Sub(at).Abs() > burstWithin {
		return ""
	}
	return v.reason
}

const (
	visitsMax = 20_000           // of a generation
	visitsAge = 15 * time.Second // lifetime of a generation; no entry is needed for that long
)

// generations is a map that limits its memory and the age of its entries. Entries are kept in a young map and an old
// map; when the young map is full or too old, it replaces the old map.
type generations[K comparable, V any] struct {
	young, old map[K]V
	began      time.Time
}

// get returns the value for a key and moves the entry to the young map.
func (g *generations[K, V]) get(k K) (v V, ok bool) {
	if v, ok = g.young[k]; ok {
		return v, true
	}
	if v, ok = g.old[k]; ok {
		g.young[k] = v
	}
	return v, ok
}

func (g *generations[K, V]) set(k K, v V, now time.Time) {
	if g.young == nil || len(g.young) >= visitsMax || now.Sub(g.began) > visitsAge {
		g.old, g.young, g.began = g.young, map[K]V{}, now
	}
	g.young[k] = v
}
