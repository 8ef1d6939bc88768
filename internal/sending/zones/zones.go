// Package zones keeps the zones of the name server in memory: those of customers' domains, which come from the
// database, and the operator's own zone (the setting dns_zone), to which customers' records and delegations point.
//
// # Invariants
//
// The zones are read at the start, after each change that the node hears of, and at least every minute. A zone that has
// not changed is not compiled again. The pause after a reading is at least ten times as long as the reading, so frequent
// changes do not occupy the database.
//
// The operator's zone has, besides the records that [Deps.Content] gives, the addresses of the name servers. The name
// "*.ns1.ZONE" leads to the first server, "*.ns2.ZONE" to the second one, and so on: a customer delegates a domain to
// names such as TOKEN.ns1.ZONE, and the token shows which team's domain it is. No other zone may lie in the operator's
// zone, or a customer could take over the names of others.
//
// A query about an awaited zone makes Run call [Deps.Check], at most once a minute per zone. Therefore, a domain whose
// delegation was missing for a long time works soon after a resolver has found the new one.
//
// # Failures
//
// While the database is away, the last zones stay in use. An invalid record is left out of its zone, and a zone that is
// invalid as a whole is left out. Both are logged once per reason and counted in [State]. [Service.Problem] returns
// what is wrong with the name server itself: one customer's mistake must not hide that, or alarm the operator.
//
// # Out of scope
//
// The package makes no records for domains (see package domains) and answers no queries (see package nameserver).
package zones

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/nameserver"
)

const (
	every       = time.Minute // longest time between two readings
	readTime    = 2 * time.Minute
	restFactor  = 10              // pause after a reading, as a multiple of its duration
	restMin     = time.Second     // shortest pause after a reading
	staleAfter  = 5 * time.Minute // age of the zones from which on Problem reports that they cannot be read
	maxLogged   = 20              // invalid zones that are logged after one reading
	addressTTL  = 3600            // of the addresses of name servers, in seconds
	serverLabel = "ns"            // before the number of a server, as in *.ns1.ZONE
)

// Server is a name server of the installation.
type Server struct {
	Name  string
	Addrs []netip.Addr
}

// Config describes the operator's zone.
type Config struct {
	Zone    string   // without final dot; "" for none
	Servers []Server // at least one
	Mailbox string   // of the zone's SOA record, as [nameserver.MailboxName] returns it
}

// Deps holds what the service needs.
type Deps struct {
	// Content returns the zones of customers. A zone with the name Config.Zone contains the records that customers point
	// to; of its other fields, only Serial counts.
	Content func(ctx context.Context) (nameserver.Content, error)
	// Check looks up now whether an awaited zone is delegated. It must not wait for the look-up.
	Check func(ctx context.Context, name string) error
	// Publish makes the name server use a set of zones.
	Publish func(*nameserver.Set)
	Log     *slog.Logger
	// Now is the clock.
	Now func() time.Time
}

// Service reads the zones and publishes them.
type Service struct {
	Deps
	c    Config
	wake chan struct{}

	queries queries // queries about awaited zones

	compiled map[string]*nameserver.Compiled // by name; only Run uses it
	logged   map[string]string               // reasons for which zones were left out, by name; only Run uses it

	dropped map[string][]*nameserver.RecordError // invalid records of compiled zones, by name; only Run uses it

	mu    sync.Mutex
	state State
}

// State describes the zones in use.
type State struct {
	Zones      int       // 0 before the first reading
	BadZones   int       // customers' zones that were left out because they are invalid
	BadRecords int       // records that were left out because they are invalid
	Partial    bool      // there are more zones than the name server can have
	OwnBad     bool      // the operator's zone is invalid
	ReadAt     time.Time // when the zones were read last; zero if they never were
	Err        error     // why they could not be read since; nil if nothing is wrong
}

// New returns the service. New fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return &Service{Deps: d, c: c, wake: make(chan struct{}, 1), queries: newQueries(),
		compiled: map[string]*nameserver.Compiled{}, dropped: map[string][]*nameserver.RecordError{},
		logged: map[string]string{}}, nil
}

// Changed makes Run read the zones again soon.
func (s *Service) Changed() {
	select {
	case s.wake <- struct{}{}:
	default: // a reading is already due
	}
}

// State returns the state of the zones.
func (s *Service) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// These are the problems that Problem returns. Strangers see them, so they name no customer.
var (
	errNotRead = errors.New("the zones have not been read from the database yet, so the name server answers nothing")
	errStale   = errors.New("the zones cannot be read from the database, so the name server answers with earlier ones")
	errPartial = errors.New("more domains have zones than the name server can have, so it does not answer for some")
	errOwnZone = errors.New("the zone of dns_zone is invalid, so the name server does not answer for it; the log says why")
)

// Problem returns what is wrong with the name server's zones as a whole, or nil. Zones and records of single customers
// that are invalid are no problem of the name server, so that no customer can cause one.
func (s *Service) Problem() error {
	state := s.State()
	switch {
	case state.ReadAt.IsZero():
		return errNotRead
	case state.Err != nil && s.Now().Sub(state.ReadAt) > staleAfter:
		return errStale
	case state.OwnBad:
		return errOwnZone
	case state.Partial:
		return errPartial
	}
	return nil
}

// Run reads and publishes the zones until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var checks sync.WaitGroup
	defer checks.Wait()
	checks.Go(func() { s.checkAwaited(ctx) })
	for {
		began := time.Now()
		s.refresh(ctx)
		rest := max(restFactor*time.Since(began), restMin)
		if !s.sleep(ctx, rest, nil) || !s.sleep(ctx, every-rest, s.wake) {
			return nil
		}
	}
}

// sleep waits for a time, or until something arrives on wake. It returns false if ctx has ended.
func (s *Service) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-t.C:
	}
	return true
}

// refresh reads the zones and publishes them. If they cannot be read, the earlier ones stay.
func (s *Service) refresh(ctx context.Context) {
	read, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	content, err := s.Content(read)
	if ctx.Err() != nil {
		return
	}
	before := s.State()
	if err != nil {
		if before.Err == nil {
			s.Log.Error("could not read the zones of the name server; it answers with earlier ones", "error", err,
				"zones", before.Zones)
		}
		s.set(func(state *State) { state.Err = err })
		return
	}
	if before.Err != nil {
		s.Log.Info("the zones of the name server are read again", "zones", len(content.Zones))
	}
	if content.Partial && !before.Partial {
		s.Log.Error("more domains have zones than the name server can have; it does not answer for the rest", "zones",
			len(content.Zones))
	}
	set, state := s.compile(&content)
	s.queries.forget(s.Now())
	s.Publish(set)
	state.Partial, state.ReadAt = content.Partial, s.Now()
	s.set(func(was *State) { *was = state })
}

func (s *Service) set(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// compile validates the zones and returns those that are valid, with the operator's zone. The state says how many zones
// and records are left out.
func (s *Service) compile(content *nameserver.Content) (set *nameserver.Set, state State) {
	next := make(map[string]*nameserver.Compiled, len(content.Zones)+1)
	all, dropped := make([]*nameserver.Compiled, 0, len(content.Zones)+1), map[string][]*nameserver.RecordError{}
	reasons := map[string]string{}
	refuse := func(name string, reason error) {
		reasons[name] = reason.Error()
		if s.c.Zone != "" && name == s.c.Zone {
			state.OwnBad = true
		} else {
			state.BadZones++
		}
	}
	use := func(z *nameserver.Zone) {
		c, invalid, err := s.reuse(z)
		if err != nil {
			refuse(z.Name, err)
			return
		}
		next[z.Name] = c
		all = append(all, c)
		for _, r := range invalid {
			reasons[z.Name+": "+r.Error()] = r.Error()
		}
		if state.BadRecords += len(invalid); len(invalid) > 0 {
			dropped[z.Name] = invalid
		}
	}
	own := nameserver.Zone{Name: s.c.Zone}
	for i := range content.Zones {
		z := &content.Zones[i]
		switch {
		case s.c.Zone != "" && z.Name == s.c.Zone:
			own.Serial, own.Records = z.Serial, append(own.Records, z.Records...)
			continue
		case s.c.Zone != "" && strings.HasSuffix(z.Name, "."+s.c.Zone):
			refuse(z.Name, errors.New("the zone lies in dns_zone"))
			continue
		case next[z.Name] != nil:
			refuse(z.Name, errors.New("the zone exists twice; only the first one is used"))
			continue
		}
		use(z)
	}
	if s.c.Zone != "" {
		s.complete(&own)
		use(&own)
	}
	s.compiled, s.dropped = next, dropped
	s.report(reasons)
	set, err := nameserver.NewSet(all, content.Awaited...)
	if err != nil { // duplicates were removed above
		s.Log.Error("the zones of the name server are not a set", "error", err)
	}
	state.Zones = set.Len()
	return set, state
}

// reuse returns the compiled form of a zone, and its invalid records, which are left out. They are those of the last
// reading if the zone has not changed.
func (s *Service) reuse(z *nameserver.Zone) (*nameserver.Compiled, []*nameserver.RecordError, error) {
	if c := s.compiled[z.Name]; c != nil && c.Fingerprint() == z.Fingerprint() {
		return c, s.dropped[z.Name], nil
	}
	return nameserver.CompileShared(*z)
}

// complete adds to the operator's zone what its settings say.
func (s *Service) complete(z *nameserver.Zone) {
	z.NS, z.Mailbox = nil, s.c.Mailbox
	var addresses []nameserver.Record
	for i, server := range s.c.Servers {
		z.NS = append(z.NS, server.Name)
		names := []string{fmt.Sprintf("*.%s%d.%s", serverLabel, i+1, z.Name)}
		if strings.HasSuffix(server.Name, "."+z.Name) {
			names = append(names, server.Name)
		}
		for _, name := range names {
			for _, a := range server.Addrs {
				typ := "A"
				if a.Is6() {
					typ = "AAAA"
				}
				addresses = append(addresses, nameserver.Record{Name: name, Type: typ, TTL: addressTTL, Value: a.String()})
			}
		}
	}
	// The addresses come first, so a conflicting record is the one that is left out.
	z.Records = slices.Concat(addresses, z.Records)
}

// report logs zones and records that are left out for a new reason. Only the operator's own zone is an error.
func (s *Service) report(reasons map[string]string) {
	logged := 0
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if s.logged[name] == reasons[name] {
			continue
		}
		if logged++; logged > maxLogged {
			s.Log.Warn("further zones or records of the name server are invalid and left out", "all", len(reasons))
			break
		}
		level := slog.LevelWarn
		if name == s.c.Zone {
			level = slog.LevelError
		}
		s.Log.Log(context.Background(), level, "a zone of the name server, or a record in it, is invalid and left out",
			"zone", name, "error", reasons[name])
	}
	s.logged = reasons
}
