package automations

import (
	"context"
	"hash/crc32"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/platform/db"
)

// Limits on the graph cache, in bytes of JSON. A parsed graph uses several times as much memory as its JSON.
const (
	maxCacheBytes   = 8 << 20           // of all teams
	maxTeamBytes    = maxCacheBytes / 4 // limit per team: about eight graphs of the maximum size
	versionOverhead = 512               // added to the JSON size of each version
)

// version is the graph of an automation version, with data that is computed from the graph once.
type version struct {
	*engine.Graph
	emails map[string][]string // keyed by step: the email steps that a run can reach without a wait

	id, teamID string
	size       int
}

// versions caches the graphs of automation versions, which never change. If the cache is full, the least recently used
// version is evicted. If a team exceeds its limit, the team's least recently used version is evicted.
type versions struct {
	// The lock in teamLocks ensures that each team loads one graph at a time; two teams rarely share a lock. The lock
	// compiling ensures that only one graph across all teams is parsed at a time. Because of both locks, a team with many
	// large graphs uses only one processor, and other teams wait for at most one of its graphs.
	teamLocks [64]sync.Mutex
	compiling sync.Mutex

	mu    sync.Mutex
	all   *versionLRU
	teams map[string]*versionLRU
}

// versionLRU contains versions, keyed by id and ordered by last use.
type versionLRU struct {
	*simplelru.LRU[string, *version]
	size int
}

func newVersionLRU() *versionLRU {
	r := &versionLRU{}
	// The error is ignored because NewLRU fails only for sizes below 1.
	r.LRU, _ = simplelru.NewLRU(maxCacheBytes/versionOverhead+1, func(_ string, v *version) { r.size -= v.size })
	return r
}

func (r *versionLRU) add(v *version) {
	r.Add(v.id, v)
	r.size += v.size
}

// cached returns a version of one of a team's automations from the cache, or nil if the cache does not contain that
// version.
func (v *versions) cached(teamID, versionID string) *version {
	v.mu.Lock()
	defer v.mu.Unlock()
	of := v.teams[teamID]
	if of == nil {
		return nil
	}
	known, _ := of.Get(versionID)
	if known != nil {
		v.all.Get(versionID)
	}
	return known
}

// get returns a version of one of a team's automations from the cache, and loads the version first if necessary. Do not
// call get in a transaction, because loading a large graph takes about 30 ms.
func (v *versions) get(ctx context.Context, r db.Reader, teamID, versionID string) (*version, error) {
	if known := v.cached(teamID, versionID); known != nil {
		return known, nil
	}
	turn := &v.teamLocks[crc32.ChecksumIEEE([]byte(teamID))%uint32(len(v.teamLocks))]
	turn.Lock()
	defer turn.Unlock()
	if known := v.cached(teamID, versionID); known != nil {
		return known, nil
	}
	steps, connections, err := getVersion(ctx, r, teamID, versionID)
	if err != nil {
		return nil, err
	}
	v.compiling.Lock()
	defer v.compiling.Unlock()
	g, err := storedGraph(versionID, steps, connections)
	if err != nil {
		return nil, err
	}
	made := newVersion(g, len(steps)+len(connections))
	made.id, made.teamID = versionID, teamID
	v.add(made)
	return made, nil
}

func (v *versions) add(made *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.teams == nil {
		v.all, v.teams = newVersionLRU(), map[string]*versionLRU{}
	}
	of := v.teams[made.teamID]
	if of == nil {
		of = newVersionLRU()
		v.teams[made.teamID] = of
	}
	if of.Contains(made.id) {
		return
	}
	of.add(made)
	v.all.add(made)
	for of.size > maxTeamBytes {
		_, oldest, _ := of.GetOldest()
		v.evict(oldest)
	}
	for v.all.size > maxCacheBytes {
		_, oldest, _ := v.all.GetOldest()
		v.evict(oldest)
	}
}

func (v *versions) evict(old *version) {
	v.all.Remove(old.id)
	of := v.teams[old.teamID]
	if of.Remove(old.id); of.Len() == 0 {
		delete(v.teams, old.teamID)
	}
}

func newVersion(g *engine.Graph, size int) *version {
	v := &version{Graph: g, emails: map[string][]string{}, size: size + versionOverhead}
	types, next := map[string]engine.Type{}, map[string][]string{}
	for _, s := range g.Steps {
		types[s.Key] = s.Type
	}
	for _, c := range g.Connections {
		next[c.From] = append(next[c.From], c.To)
	}
	for _, s := range g.Steps {
		v.emails[s.Key] = nextEmails(s.Key, types, next)
	}
	return v
}

// maxPreparedEmails is the maximum number of emails that are prepared before it is known which of them the run will
// send.
const maxPreparedEmails = 4

// nextEmails returns the email steps that a run can reach from the given step without a wait. The given step itself is
// included.
func nextEmails(from string, types map[string]engine.Type, next map[string][]string) (emails []string) {
	seen, list := map[string]bool{from: true}, []string{from}
	for len(list) > 0 && len(emails) < maxPreparedEmails {
		key := list[0]
		list = list[1:]
		switch types[key] {
		case engine.SendEmail:
			emails = append(emails, key)
			continue
		case engine.Delay, engine.WaitForEvent, engine.WaitUntil, engine.Webhook:
			if key != from {
				continue
			}
		}
		for _, to := range next[key] {
			if !seen[to] {
				seen[to] = true
				list = append(list, to)
			}
		}
	}
	return emails
}
