package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/sending/delivery"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// destinationsEvery is how often the node looks whether the file of destinations has changed.
const destinationsEvery = 2 * time.Second

// destinations holds what the operator has set for some destinations, as of the last valid version of the file.
type destinations struct {
	mu    sync.Mutex
	seen  fileVersion
	valid []config.Destination
	err   error // why the last version is not used; nil if it is
}

// problem returns why the last version of the file is not used; nil if it is.
func (d *destinations) problem() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// fileVersion identifies a version of a file.
type fileVersion struct {
	path    string
	changed time.Time
	size    int64
}

func versionOf(path string) (fileVersion, error) {
	if path == "" {
		return fileVersion{}, nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fileVersion{path: path}, err
	case !info.Mode().IsRegular(): // reading a pipe might never end
		return fileVersion{path: path}, &fs.PathError{Op: "read", Path: path, Err: errors.New("it is not a file")}
	}
	return fileVersion{path, info.ModTime(), info.Size()}, nil
}

// openDestinations reads the file of destinations for the first time. A node does not start with an invalid file. A
// command sends no mail, so it ignores the file's problems, which the node reports.
func (n *Node) openDestinations() error {
	n.destinations.take(readDestinations(*n.settings()))
	if err := n.destinations.problem(); err != nil && !n.o.Beside {
		return fmt.Errorf("read destinations_file: %w", err)
	}
	return nil
}

// destinationsRead is what reading the file of destinations has led to.
type destinationsRead struct {
	seen   fileVersion
	tables []config.Destination
	err    error // why the tables cannot be used; nil if they can
}

// readDestinations reads the file of destinations that c names.
func readDestinations(c config.Config) (r destinationsRead) {
	// The version comes first, so that a later change is noticed.
	if r.seen, r.err = versionOf(c.DestinationsFile); r.err != nil || c.DestinationsFile == "" {
		return r
	}
	var data []byte
	if data, r.err = os.ReadFile(c.DestinationsFile); r.err == nil {
		r.tables, r.err = config.ParseDestinations(c.DestinationsFile, data, relayNames(c))
	}
	return r
}

// take takes over what was read. If it cannot be used, the former tables stay in use.
func (d *destinations) take(r destinationsRead) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen, d.err = r.seen, r.err; r.err == nil {
		d.valid = r.tables
	}
}

// fits returns an error if the tables that r leaves in use name a relay that c lacks. Their mail would go another way
// than through that relay.
func (d *destinations) fits(r destinationsRead, c config.Config) error {
	if r.err == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known := relayNames(c)
	for _, table := range d.valid {
		if table.Relay != "" && !slices.Contains(known, table.Relay) {
			return fmt.Errorf("destinations_file: the table [%s] in use sends mail through the relay %s, which the new "+
				"settings lack, and the file has no other valid version: %w", table.Name, table.Relay, r.err)
		}
	}
	return nil
}

func relayNames(c config.Config) (all []string) {
	for _, r := range c.AllRelays() {
		all = append(all, r.Name)
	}
	return all
}

// watchDestinations takes over changes of the file of destinations until ctx ends.
func (n *Node) watchDestinations(ctx context.Context) error {
	tick := time.NewTicker(destinationsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			n.followDestinations()
		}
	}
}

// followDestinations takes over a change of the file of destinations.
func (n *Node) followDestinations() {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	d := &n.destinations
	now, _ := versionOf(n.settings().DestinationsFile) // readDestinations returns the error
	d.mu.Lock()
	_, unread := errors.AsType[*fs.PathError](d.err)
	same := now == d.seen && !unread
	d.mu.Unlock()
	if !same && n.renewDestinations(readDestinations(*n.settings())) {
		n.Delivery.Apply(n.deliveryRoutes())
	}
}

// renewDestinations takes over what was read of the file of destinations, logs it, and reports whether it is valid. The
// caller must hold n.reloading.
func (n *Node) renewDestinations(r destinationsRead) bool {
	d := &n.destinations
	before := d.problem()
	d.take(r)
	switch path := r.seen.path; {
	case r.err == nil && path != "":
		n.Log.Info("the file of destinations is in use", "file", path, "tables", len(r.tables))
	case r.err != nil && (before == nil || before.Error() != r.err.Error()):
		n.Log.Error("the file of destinations is not used; the node keeps the version before", "error", r.err)
	}
	return r.err == nil
}

// checkDestinations is a check of /readyz.
func (n *Node) checkDestinations(context.Context) error {
	if n.destinations.problem() != nil {
		return errors.New("the file of destinations is invalid, so the version before is in use; the log has the problems")
	}
	return nil
}

func relayOf(r config.Relay) routing.Relay {
	return routing.Relay{Name: r.Name, Address: r.Address, Username: r.Username, Password: string(r.Password),
		TLS: tlsMode(r.TLS), Domains: r.Domains, From: r.From}
}

// deliveryRoutes returns the part of the settings for deliveries that can change while the node runs.
func (n *Node) deliveryRoutes() delivery.Config {
	c := n.settings()
	o := delivery.Config{LaneRate: c.LaneRate, Schedule: c.RetrySchedule}
	for _, r := range c.AllRelays() {
		o.Relays = append(o.Relays, relayOf(r))
	}
	n.destinations.mu.Lock()
	defer n.destinations.mu.Unlock()
	for _, d := range n.destinations.valid {
		x := routing.Destination{Name: d.Name, Domains: d.Domains, Hosts: d.Hosts, Connections: d.Connections,
			Messages: d.Messages, Rate: float64(d.Rate), Schedule: d.Schedule, Lifetime: d.Lifetime, Paused: d.Paused,
			Reason: d.Reason, Relay: d.Relay}
		if d.TLS != "" {
			mode := tlsMode(d.TLS)
			x.TLS = &mode
		}
		for _, name := range d.Providers {
			x.Providers = append(x.Providers, evidence.ProviderByName(name))
		}
		o.Destinations = append(o.Destinations, x)
	}
	return o
}
