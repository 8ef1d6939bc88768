package automations

import (
	"context"
	"hash/crc32"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/platform/db"
)

// The compiled graphs of versions take some times the memory of their JSON.
const (
	versionsOctets = 8 << 20            // of JSON
	teamOctets     = versionsOctets / 4 // that one team may have of them: at least eight of the largest graphs
	versionOctets  = 512                // that count for any version besides its own
)

// version is the graph of a version, with what is known of it once.
type version struct {
	*engine.Graph
	emails map[string][]string // by the key of a step: those that send emails and may be next, if nothing else is waited for

	id, teamID string
	octets     int
}

// versions has the graphs of versions, which never change. When there are too many, those go that were used longest
// ago: of the team, if it has its share, and of all otherwise.
type versions struct {
	// Graphs are compiled one after the other, and read one after the other for each team, so that one with many large
	// ones leaves others a processor, and keeps them waiting for one graph only. Teams that share a turn are rare.
	turns     [64]sync.Mutex
	compiling sync.Mutex

	mu    sync.Mutex
	all   *recent
	teams map[string]*recent
}

// recent has versions by their ids, in the order in which they were used.
type recent struct {
	*simplelru.LRU[string, *version]
	octets int
}

func newRecent() *recent {
	r := &recent{}
	// fails for sizes below 1
	r.LRU, _ = simplelru.NewLRU(versionsOctets/versionOctets+1, func(_ string, v *version) { r.octets -= v.octets })
	return r
}

func (r *recent) add(v *version) {
	r.Add(v.id, v)
	r.octets += v.octets
}

// known returns a version of a team's automations if it is at hand, and nil otherwise.
func (v *versions) known(teamID, versionID string) *version {
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

// get returns a version of a team's automations, reading it if it is not known. It must not be called in a transaction:
// to read a large one takes some 30 ms.
func (v *versions) get(ctx context.Context, r db.Reader, teamID, versionID string) (*version, error) {
	if known := v.known(teamID, versionID); known != nil {
		return known, nil
	}
	turn := &v.turns[crc32.ChecksumIEEE([]byte(teamID))%uint32(len(v.turns))]
	turn.Lock()
	defer turn.Unlock()
	if known := v.known(teamID, versionID); known != nil {
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
	v.keep(made)
	return made, nil
}

func (v *versions) keep(made *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.teams == nil {
		v.all, v.teams = newRecent(), map[string]*recent{}
	}
	of := v.teams[made.teamID]
	if of == nil {
		of = newRecent()
		v.teams[made.teamID] = of
	}
	if of.Contains(made.id) {
		return
	}
	of.add(made)
	v.all.add(made)
	for of.octets > teamOctets {
		_, oldest, _ := of.GetOldest()
		v.drop(oldest)
	}
	for v.all.octets > versionsOctets {
		_, oldest, _ := v.all.GetOldest()
		v.drop(oldest)
	}
}

func (v *versions) drop(old *version) {
	v.all.Remove(old.id)
	of := v.teams[old.teamID]
	if of.Remove(old.id); of.Len() == 0 {
		delete(v.teams, old.teamID)
	}
}

func newVersion(g *engine.Graph, octets int) *version {
	v := &version{Graph: g, emails: map[string][]string{}, octets: octets + versionOctets}
	types, next := map[string]engine.Type{}, map[string][]string{}
	for _, s := range g.Steps {
		types[s.Key] = s.Type
	}
	for _, c := range g.Connections {
		next[c.From] = append(next[c.From], c.To)
	}
	for _, s := range g.Steps {
		v.emails[s.Key] = ahead(s.Key, types, next)
	}
	return v
}

// aheadMost limits the emails that are prepared before it is known which of them is sent.
const aheadMost = 4

// ahead returns the steps that send emails among a step and those that may follow it without a pause.
func ahead(from string, types map[string]engine.Type, next map[string][]string) (emails []string) {
	seen, list := map[string]bool{from: true}, []string{from}
	for len(list) > 0 && len(emails) < aheadMost {
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
