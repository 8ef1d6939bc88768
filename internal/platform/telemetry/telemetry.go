// Package telemetry shows operators what a node does: metrics in Prometheus's format, profiles, and the health of the
// node's parts.
//
// # Invariants
//
// Every metric is declared once, in the catalog; docs/operating/metrics.md lists the catalog. Services do not import
// this package: package node gives them functions that count, and gives this package functions that read. Counting
// costs a few atomic operations. A scrape reads counters and values that were measured before; it never queries the
// database.
//
// Metrics whose names begin with postrider_installation_ describe the whole installation, so that all nodes show about
// the same value. All other metrics describe one node.
//
// # Failures
//
// A value that was never measured is omitted. A check that has not ended yet counts as passed.
//
// # Out of scope
//
// The package does not authenticate anybody: its listener must be reachable by the operator only. It does not decide
// when somebody is told of a problem; see package alarms and the rules in deploy/prometheus.
package telemetry

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics holds the metrics of a node. A Metrics is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	requests        *prometheus.CounterVec
	requestTime     *prometheus.HistogramVec
	accepted        *prometheus.CounterVec
	deliveries      *prometheus.CounterVec
	byRelay         *prometheus.CounterVec
	conversations   *prometheus.HistogramVec
	firstWait       *prometheus.HistogramVec
	webhooks        *prometheus.CounterVec
	webhookTime     prometheus.Observer
	jobs            *prometheus.CounterVec
	transactions    *prometheus.CounterVec
	transactionTime prometheus.Observer
	transactionWait prometheus.Observer
	received        *prometheus.CounterVec
	spans           *prometheus.CounterVec
	queries         *prometheus.CounterVec
	queriesDropped  *prometheus.CounterVec

	relaysMu sync.Mutex
	relays   []string // names, whose series exist

	connections  atomic.Int64 // open HTTP connections
	installation atomic.Pointer[Installation]
}

// Sources are functions that read the present state of a node. A scrape calls them, so they must be quick and must not
// use the network or the database. A nil function omits its metrics.
type Sources struct {
	Version     string
	Connections func() map[string]int64 // open connections by kind, without those of HTTP
	Pauses      func() (destinations, hosts int)
	Relays      func() map[string]bool // whether each relay rests, by name
	// SecureLookUps returns the numbers of DNS look-ups for DANE, by outcome.
	SecureLookUps func() map[string]int64
	// Zones returns the state of the name server's zones; ok is false if the node has none.
	Zones       func() (z Zones, ok bool)
	RunningJobs func() map[string]int64 // by kind
	Disks       func() []Disk
	BlobErrors  func() map[string]int64 // by operation
	Clock       func() (offset time.Duration, ok bool)
	Expiries    func() []CertificateExpiry
	Health      *Health
	// MissingCertificates returns the number of hosts without a certificate; ok is false if it is not known yet.
	MissingCertificates func() (n int, ok bool)
}

// Disk is the space of the file system that holds a folder, in bytes.
type Disk struct {
	Folder     string // name of the folder's setting
	Free, Size uint64
}

// CertificateExpiry says when a certificate expires.
type CertificateExpiry struct {
	Source   string    // where the certificate comes from, such as "file"; one of few values
	Name     string    // host name or file name, for people
	NotAfter time.Time // end of the certificate's validity
}

// Installation holds figures about the whole installation, which are measured at intervals.
type Installation struct {
	At         time.Time
	Queue      map[string]Backlog // delivery jobs by class: single and bulk
	Webhooks   Backlog
	Parked     map[string]int64 // parked jobs by kind
	Sending    int64            // broadcasts that are being sent
	Paused     int64            // paused broadcasts
	LastBackup time.Time        // zero if no backup was recorded
	Created    time.Time        // when the database was created
}

// Backlog describes the waiting jobs of a kind.
type Backlog struct {
	Due, Later int64
	Oldest     time.Duration // how long the oldest due job has been due; 0 if no job is due
}

// New returns the metrics of a node.
func New(s Sources) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.requests = m.counter("postrider_api_requests_total")
	m.requestTime = m.histogram("postrider_api_request_duration_seconds", prometheus.DefBuckets)
	m.accepted = m.counter("postrider_emails_accepted_total")
	m.deliveries = m.counter("postrider_deliveries_total")
	m.byRelay = m.counter("postrider_relay_deliveries_total")
	m.conversations = m.histogram("postrider_smtp_conversation_duration_seconds",
		[]float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300})
	m.firstWait = m.histogram("postrider_delivery_wait_seconds",
		[]float64{.05, .25, 1, 5, 15, 60, 300, 900, 3600, 14400})
	m.webhooks = m.counter("postrider_webhook_attempts_total")
	m.webhookTime = m.histogram("postrider_webhook_attempt_duration_seconds",
		[]float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 15}).WithLabelValues()
	m.jobs = m.counter("postrider_jobs_total")
	m.transactions = m.counter("postrider_transactions_total")
	transaction := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 20}
	m.transactionTime = m.histogram("postrider_transaction_duration_seconds", transaction).WithLabelValues()
	m.transactionWait = m.histogram("postrider_transaction_wait_seconds", transaction).WithLabelValues()
	m.received = m.counter("postrider_received_messages_total")
	m.spans = m.counter("postrider_trace_spans_total")
	m.queries = m.counter("postrider_dns_queries_total")
	m.queriesDropped = m.counter("postrider_dns_queries_limited_total")
	m.prepare()
	m.readSources(s)
	m.readInstallation()
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// prepare creates the series whose labels are known, so that they exist with the value 0 before the first event. A rate
// would otherwise miss that event.
func (m *Metrics) prepare() {
	for _, source := range Sent {
		m.accepted.WithLabelValues(source)
	}
	for _, provider := range Providers {
		for _, outcome := range Outcomes {
			m.deliveries.WithLabelValues(outcome, provider)
		}
		m.conversations.WithLabelValues(provider)
	}
	for _, class := range Classes {
		m.firstWait.WithLabelValues(class)
	}
	for _, outcome := range []string{"success", "retry", "failed"} {
		m.webhooks.WithLabelValues(outcome)
	}
	for _, result := range []string{"committed", "failed"} {
		m.transactions.WithLabelValues(result)
	}
	for _, result := range []string{"sent", "dropped"} {
		m.spans.WithLabelValues(result)
	}
	for _, result := range []string{"stored", "report"} {
		m.received.WithLabelValues(result)
	}
	for _, zone := range []string{"customer", "own"} {
		m.queries.WithLabelValues(zone, "NOERROR")
		m.queries.WithLabelValues(zone, "NXDOMAIN")
	}
	m.queries.WithLabelValues("none", "REFUSED")
	for _, reason := range []string{"rate_limit", "malformed"} {
		m.queriesDropped.WithLabelValues(reason)
	}
}

// Values of labels.
var (
	Sent      = []string{"api", "smtp", "dashboard", "broadcast", "automation", "system"}
	Outcomes  = []string{"delivered", "deferred", "bounced", "failed"}
	Providers = []string{"google", "microsoft", "yahoo", "apple", "other"}
	Classes   = []string{"single", "bulk"}
)

// statusClasses holds the classes of HTTP statuses by their first digit. The status 0 means that no response was sent.
var statusClasses = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// Request counts a request to the API. A duration of 0 is not observed.
func (m *Metrics) Request(group string, status int, took time.Duration) {
	m.requests.WithLabelValues(group, statusClasses[min(max(status/100, 0), len(statusClasses)-1)]).Inc()
	if took > 0 {
		m.requestTime.WithLabelValues(group).Observe(took.Seconds())
	}
}

// Accepted counts accepted emails.
func (m *Metrics) Accepted(source string, n int) { m.accepted.WithLabelValues(source).Add(float64(n)) }

// Delivered counts recipients with an outcome of a delivery attempt.
func (m *Metrics) Delivered(outcome, provider string, recipients int) {
	m.deliveries.WithLabelValues(outcome, provider).Add(float64(recipients))
}

// RelayDelivered counts recipients with an outcome of an attempt through a relay.
func (m *Metrics) RelayDelivered(outcome, relay string, recipients int) {
	m.byRelay.WithLabelValues(relay, outcome).Add(float64(recipients))
}

// SetRelays creates the series of the configured relays, and removes those of the others.
func (m *Metrics) SetRelays(names []string) {
	m.relaysMu.Lock()
	defer m.relaysMu.Unlock()
	for _, name := range m.relays {
		if !slices.Contains(names, name) {
			m.byRelay.DeletePartialMatch(prometheus.Labels{"relay": name})
		}
	}
	m.relays = slices.Clone(names)
	for _, name := range names {
		for _, outcome := range Outcomes {
			m.byRelay.WithLabelValues(name, outcome)
		}
	}
}

// Conversation observes an SMTP conversation with a mail host.
func (m *Metrics) Conversation(provider string, took time.Duration) {
	m.conversations.WithLabelValues(provider).Observe(took.Seconds())
}

// Waited observes how long an email waited for its first delivery attempt.
func (m *Metrics) Waited(class string, wait time.Duration) {
	m.firstWait.WithLabelValues(class).Observe(wait.Seconds())
}

// Webhook counts an attempt to deliver a webhook event.
func (m *Metrics) Webhook(outcome string, took time.Duration) {
	m.webhooks.WithLabelValues(outcome).Inc()
	m.webhookTime.Observe(took.Seconds())
}

// Job counts a run of a job.
func (m *Metrics) Job(kind, result string) { m.jobs.WithLabelValues(kind, result).Inc() }

// Kind creates the series of a job kind, before its first job.
func (m *Metrics) Kind(kind string) {
	for _, result := range []string{"done", "failed", "parked", "lost"} {
		m.jobs.WithLabelValues(kind, result)
	}
}

// Transaction counts a transaction that waited for the writer or a connection, and then took some time.
func (m *Metrics) Transaction(wait, took time.Duration, committed bool) {
	result := "committed"
	if !committed {
		result = "failed"
	}
	m.transactions.WithLabelValues(result).Inc()
	m.transactionTime.Observe(took.Seconds())
	m.transactionWait.Observe(wait.Seconds())
}

// Received counts a received message.
func (m *Metrics) Received(result string) { m.received.WithLabelValues(result).Inc() }

// Query counts a query to the name server, by the kind of its zone (customer, own or none) and the response code.
func (m *Metrics) Query(zone, rcode string) { m.queries.WithLabelValues(zone, rcode).Inc() }

// QueryDropped counts a query to the name server that got no full response. The reason is rate_limit or malformed.
func (m *Metrics) QueryDropped(reason string) { m.queriesDropped.WithLabelValues(reason).Inc() }

// Spans counts spans of traces.
func (m *Metrics) Spans(result string, n int) { m.spans.WithLabelValues(result).Add(float64(n)) }

// HTTPConnections adds to the number of open HTTP connections.
func (m *Metrics) HTTPConnections(n int64) { m.connections.Add(n) }

// SetInstallation replaces the figures about the whole installation.
func (m *Metrics) SetInstallation(i Installation) { m.installation.Store(&i) }

// Installation returns the figures that were measured last, or nil.
func (m *Metrics) Installation() *Installation { return m.installation.Load() }
