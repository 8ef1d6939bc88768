package automations

import (
	"context"
	"sync"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/flow"
)

// The compiled graphs of versions take some times the memory of their JSON.
const (
	versionsOctets = 8 << 20 // of JSON
	versionOctets  = 512     // that count for any version besides its own
)

// version is the graph of a version, with what is known of it once.
type version struct {
	*flow.Graph
	emails map[string][]string // by the key of a step: those that send emails and may be next, if nothing else is waited for
	octets int
}

// versions has the graphs of versions, which never change. When there are too many, all are dropped.
type versions struct {
	mu     sync.Mutex
	all    map[string]*version
	octets int
}

// get returns a version of a team's automations, reading it if it is not known.
func (v *versions) get(ctx context.Context, r db.Reader, teamID, versionID string) (*version, error) {
	v.mu.Lock()
	known := v.all[versionID]
	v.mu.Unlock()
	if known != nil {
		return known, nil
	}
	g, octets, err := getVersion(ctx, r, teamID, versionID)
	if err != nil {
		return nil, err
	}
	made := newVersion(g, octets)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all == nil || v.octets+made.octets > versionsOctets {
		v.all, v.octets = map[string]*version{}, 0
	}
	if v.all[versionID] == nil {
		v.octets += made.octets
	}
	v.all[versionID] = made
	return made, nil
}

func newVersion(g *flow.Graph, octets int) *version {
	v := &version{Graph: g, emails: map[string][]string{}, octets: octets + versionOctets}
	types, next := map[string]flow.Type{}, map[string][]string{}
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
func ahead(from string, types map[string]flow.Type, next map[string][]string) (emails []string) {
	seen, list := map[string]bool{from: true}, []string{from}
	for len(list) > 0 && len(emails) < aheadMost {
		key := list[0]
		list = list[1:]
		switch types[key] {
		case flow.SendEmail:
			emails = append(emails, key)
			continue
		case flow.Delay, flow.WaitForEvent, flow.WaitUntil, flow.Webhook:
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
