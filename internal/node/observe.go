package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/telemetry"
	"github.com/postrider/postrider/internal/platform/tracing"
	"github.com/postrider/postrider/internal/sending/delivery"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	// measureEvery is the shortest time between two measurements of the installation's figures.
	measureEvery = 15 * time.Second
	// measureShare limits the cost of the measurements: a measurement is followed by a pause of at least measureShare
	// times its own duration.
	measureShare = 50
	measureTime  = 30 * time.Second // time limit of a measurement
	// measureAgain is the longest pause after a measurement that failed: what it took is not its cost, because the
	// database may just have been away. The figures are needed most after that.
	measureAgain = 2 * time.Minute
)

// observation is what operators see of a node.
type observation struct {
	metrics *telemetry.Metrics
	health  *telemetry.Health
	disks   *disks
	tracer  *tracing.Exporter // nil unless otlp_endpoint is set
	metered net.Listener      // of metrics_listen; nil if it is empty or Run has not begun

	certificates *certificateList
}

// newObservation builds the metrics and the checks. It is called before all services are built, so the functions look
// up services when they are called.
func (n *Node) newObservation(log *slog.Logger) (o observation, err error) {
	o = observation{disks: &disks{folders: diskFolders(n.Config)}, certificates: &certificateList{}}
	o.health = telemetry.NewHealth(n.checks(o.certificates)...)
	o.metrics = telemetry.New(telemetry.Sources{Version: n.o.Version, Health: o.health,
		Connections:   n.openConnections,
		Pauses:        func() (int, int) { return n.Delivery.Pauses() },
		Relays:        func() map[string]bool { return n.Delivery.RestingRelays() },
		RunningJobs:   func() map[string]int64 { return n.runner.Running() },
		SecureLookUps: n.secureLookUps,
		Zones:         n.zonesInUse,
		Disks:         func() []telemetry.Disk { return n.disks.last() },
		BlobErrors:    func() map[string]int64 { return n.Blobs.Failures() },
		Clock:         func() (time.Duration, bool) { return n.DB.ClockOffset() },
		Expiries: func() []telemetry.CertificateExpiry {
			all, _ := o.certificates.expiries()
			return all
		},
		MissingCertificates: o.certificates.count})
	o.metrics.SetRelays(relayNames(n.Config))
	o.tracer, err = newTracer(n.Config, n.o.Version, log, o.metrics)
	return o, err
}

// openConnections returns the number of open SMTP connections by kind.
func (n *Node) openConnections() map[string]int64 {
	all := map[string]int64{"smtp_out": int64(n.Delivery.Connections())}
	for _, p := range n.openPorts() {
		all[p.name] = p.server.Connections()
	}
	if s := n.nameServer.server; s != nil {
		all["dns"] = s.Connections()
	}
	return all
}

// observeAttempt is called after each delivery attempt.
func (n *Node) observeAttempt(r delivery.Report) {
	m := n.metrics
	for _, x := range []struct {
		outcome string
		n       int
	}{{"delivered", r.Delivered}, {"deferred", r.Deferred}, {"bounced", r.Bounced}, {"failed", r.Failed}} {
		if x.n > 0 {
			m.Delivered(x.outcome, r.Provider, x.n)
			if r.Relay != "" {
				m.RelayDelivered(x.outcome, r.Relay, x.n)
			}
		}
	}
	if r.Conversation > 0 {
		m.Conversation(r.Provider, r.Conversation)
	}
	if r.Attempt == 1 {
		class := "single"
		if r.Bulk {
			class = "bulk"
		}
		m.Waited(class, r.Waited)
	}
	if n.tracer != nil {
		n.traceAttempt(r)
	}
}

// observeDelivery returns the function that package delivery calls; nil if the node has no metrics.
func (n *Node) observeDelivery() func(delivery.Report) {
	if n.metrics == nil {
		return nil
	}
	return n.observeAttempt
}

// observeWebhook returns the function that package webhooks calls; nil if the node has no metrics.
func (n *Node) observeWebhook() func(outcome string, took time.Duration) {
	if n.metrics == nil {
		return nil
	}
	return n.metrics.Webhook
}

// countConnection counts the open HTTP connections. Connections that were taken over, as for event streams of some
// protocols, no longer count.
func (n *Node) countConnection(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		n.metrics.HTTPConnections(1)
	case http.StateClosed, http.StateHijacked:
		n.metrics.HTTPConnections(-1)
	}
}

// observeRequest is called after each request to the API.
func (n *Node) observeRequest(r wire.ServedRequest) {
	took := r.Duration
	if r.Streamed {
		took = 0
	}
	n.metrics.Request(r.Group, r.Status, took)
	if n.tracer != nil {
		n.traceRequest(r)
	}
}

// observeAccepted is called after emails were accepted.
func (n *Node) observeAccepted(source string, ids []string) {
	n.metrics.Accepted(source, len(ids))
	if n.tracer != nil && source != "api" { // traceRequest traces emails that the API accepted
		n.traceAccepted(source, ids)
	}
}

// observeUpdate returns the function that counts transactions.
func (o *observation) observeUpdate() db.UpdateObserver {
	if o.metrics == nil {
		return nil
	}
	return func(wait, took time.Duration, err error) { o.metrics.Transaction(wait, took, err == nil) }
}

// listenMetrics opens metrics_listen.
func (n *Node) listenMetrics() error {
	if n.Config.MetricsListen == "" {
		return nil
	}
	return n.openOnce(&n.metered, "metrics", "metrics_listen", n.Config.MetricsListen)
}

// MetricsAddr returns the address of the listener for metrics, or "" if it is not open.
func (n *Node) MetricsAddr() string { return addressOfListener(n.metered) }

// runObservation runs the checks and measurements and serves metrics_listen, until the caller calls stop. From the end
// of ctx on, the node is not ready. The metrics are served until all services have stopped.
func (n *Node) runObservation(ctx context.Context) (stop func()) {
	context.AfterFunc(ctx, n.health.Stop)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() { n.health.Run(ctx) })
	all.Go(func() { n.watchCertificates(ctx) })
	if n.Config.MetricsListen != "" {
		all.Go(func() { n.measure(ctx) })
	}
	if n.Alarms != nil {
		all.Go(func() { n.watchNode(ctx) })
	}
	if n.tracer != nil {
		all.Go(func() { n.tracer.Run(ctx) })
	}
	if l := n.metered; l != nil {
		all.Go(func() {
			if err := telemetry.Serve(ctx, l, telemetry.Handler(n.metrics, n.health, n.Log), n.Log); err != nil {
				n.Log.Error("metrics are no longer served", "error", err)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// measure measures the figures of the installation until ctx ends.
func (n *Node) measure(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		err := n.measureOnce(ctx)
		if err != nil && ctx.Err() == nil {
			n.Log.Warn("the figures of the installation could not be measured", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pauseAfter(time.Since(began), err)):
		}
	}
}

// pauseAfter returns the pause after a measurement that took some time.
func pauseAfter(took time.Duration, err error) time.Duration {
	pause := max(measureEvery, measureShare*took)
	if err != nil {
		pause = min(pause, measureAgain)
	}
	return pause
}

// measureOnce measures the figures of the installation. It reads indexes of waiting jobs, and no large table.
func (n *Node) measureOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	i := telemetry.Installation{At: time.Now(), Queue: map[string]telemetry.Backlog{}}
	limits := db.Long{Owner: "telemetry", Time: measureTime}
	err := n.DB.ReadLong(ctx, limits, func(ctx context.Context, r db.Reader) error {
		single, bulk, err := jobs.MeasureBacklog(ctx, r, emails.DeliveryKind, emails.BulkLanes, n.DB.Now())
		if err != nil {
			return err
		}
		i.Queue["single"], i.Queue["bulk"] = telemetry.Backlog(single), telemetry.Backlog(bulk)
		calls, _, err := jobs.MeasureBacklog(ctx, r, webhooks.Kind, "", n.DB.Now())
		i.Webhooks = telemetry.Backlog(calls)
		return err
	})
	if err != nil {
		return err
	}
	if i.Parked, err = jobs.CountParked(ctx, n.DB.Reader); err != nil {
		return err
	}
	if i.Sending, i.Paused, err = n.Broadcasts.CountActive(ctx); err != nil {
		return err
	}
	if i.LastBackup, err = n.lastBackup(ctx); err != nil {
		return err
	}
	if i.Created, err = n.DB.Began(ctx); err != nil {
		return fmt.Errorf("find out when the installation began: %w", err)
	}
	n.metrics.SetInstallation(i)
	return nil
}

// lastBackup returns when the last backup was complete, or the zero time if none is known.
func (n *Node) lastBackup(ctx context.Context) (time.Time, error) {
	text, err := n.DB.Fact(ctx, db.FactLastBackup)
	if err != nil || text == "" {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("read the time of the last backup: %w", err)
	}
	return at, nil
}

// Ready returns the report of /readyz.
func (n *Node) Ready(ctx context.Context) telemetry.Report { return n.health.Report(ctx) }

// Times of the checks.
const (
	blobsEvery = time.Minute
	dnsEvery   = 30 * time.Second
	clockEvery = 10 * time.Second
	diskEvery  = 10 * time.Second
	zonesEvery = 10 * time.Second
	// dnssecEvery is how long a resolver that has stopped validating goes unnoticed.
	dnssecEvery = 5 * time.Minute
	// clockMax is how far a node's clock may differ from the database's. Signatures and links contain times.
	clockMax = 5 * time.Second
)

// checks returns the checks of /readyz. Their errors are shown to anybody, so they name neither addresses nor folders.
func (n *Node) checks(c *certificateList) []telemetry.Check {
	all := []telemetry.Check{
		{Name: "database", Vital: true, Every: diskEvery, Run: n.checkDatabase},
		{Name: "disk", Vital: n.Config.DatabaseURL == "", Every: diskEvery, Run: func(context.Context) error {
			return n.disks.checkFull()
		}},
		{Name: "disk_space", Every: diskEvery, Run: func(context.Context) error { return n.disks.checkSpace() }},
		{Name: "blobs", Every: blobsEvery, Run: func(ctx context.Context) error {
			if err := n.Blobs.Probe(ctx); err != nil {
				return errors.New("the blob store does not work, so attachments can be neither stored nor read")
			}
			return nil
		}},
	}
	all = append(all, telemetry.Check{Name: "destinations", Every: destinationsEvery, Run: n.checkDestinations})
	if n.Config.DatabaseURL != "" {
		all = append(all, telemetry.Check{Name: "clock", Every: clockEvery, Run: n.checkClock})
	}
	if n.Config.ACME {
		all = append(all, telemetry.Check{Name: "certificates", Every: certificatesEvery, Run: c.check})
	}
	if !n.Config.TrustDomains {
		all = append(all, telemetry.Check{Name: "dns", Every: dnsEvery, Run: n.checkDNS})
	}
	if n.checksTLSA() {
		all = append(all, telemetry.Check{Name: "tlsa", Every: tlsaEvery, Run: n.checkTLSA})
	}
	if n.Has("dns") {
		all = append(all, telemetry.Check{Name: "dns_zones", Every: zonesEvery, Run: n.checkZones})
	}
	if n.wantsDNSSEC() {
		all = append(all, telemetry.Check{Name: "dnssec", Every: dnssecEvery, Run: n.checkDNSSEC})
	}
	return all
}

// checkDatabase returns an error if the node cannot read from the database or cannot store anything in it.
func (n *Node) checkDatabase(ctx context.Context) error {
	err := n.DB.Ready(ctx)
	switch {
	case db.IsFull(err):
		return errors.New("the disk of the database is full, so the database accepts no writes")
	case err != nil:
		return errors.New("the database does not answer, or does not accept writes")
	}
	return nil
}

func (n *Node) checkClock(context.Context) error {
	if offset, ok := n.DB.ClockOffset(); ok && offset.Abs() > clockMax {
		return fmt.Errorf("the clocks of this node and of PostgreSQL differ by %s", offset.Abs().Round(time.Second))
	}
	return nil
}
