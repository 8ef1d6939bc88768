package telemetry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Definition declares a metric.
type Definition struct {
	Name   string
	Type   string // counter, gauge or histogram
	Labels []string
	Help   string
}

// installationPrefix begins the names of the metrics that describe the whole installation.
const installationPrefix = "postrider_installation_"

// catalog lists all metrics, except for those of the Go runtime and of the process.
var catalog = []Definition{
	{"postrider_build_info", "gauge", []string{"version"}, "1, with the version of the program."},
	{"postrider_api_requests_total", "counter", []string{"group", "class"},
		"Requests to the API, also by connected apps (MCP), by the first part of the path and the class of the status."},
	{"postrider_api_request_duration_seconds", "histogram", []string{"group"},
		"Time from the request to the end of its response, without event streams."},
	{"postrider_emails_accepted_total", "counter", []string{"source"},
		"Accepted emails: by the API, SMTP, the dashboard, a broadcast, an automation, a forwarding rule (forward), or " +
			"Postrider itself (system)."},
	{"postrider_deliveries_total", "counter", []string{"outcome", "provider"},
		"Recipients by the outcome of a delivery attempt, and by the provider that the MX hosts of their domain belong to. " +
			"A deferred recipient is tried again and counted again. Failed means that Postrider could not send the email."},
	{"postrider_smtp_conversation_duration_seconds", "histogram", []string{"provider"},
		"Time of sending one message to a mail host over an open connection."},
	{"postrider_delivery_wait_seconds", "histogram", []string{"class"},
		"Time from the acceptance of an email, or from its scheduled time, to the claim for its first delivery attempt."},
	{"postrider_connections_open", "gauge", []string{"kind"},
		"Open connections: of clients (http, smtp_in, smtp_submit, smtp_submits, dns), and to mail hosts (smtp_out), including " +
			"idle ones."},
	{"postrider_destinations_paused", "gauge", nil,
		"Destinations that this node pauses because they asked for less mail."},
	{"postrider_mail_hosts_failing", "gauge", nil,
		"Addresses of mail hosts that this node does not try at present because they did not answer."},
	{"postrider_relay_deliveries_total", "counter", []string{"relay", "outcome"},
		"Recipients by the relay of relay_addr (relay) or of a table, and by the outcome of an attempt through it. If " +
			"several relays were tried, the last one counts."},
	{"postrider_relay_resting", "gauge", []string{"relay"},
		"1 while this node sends no mail to a relay because it did not answer or refused the connection, and 0 otherwise."},
	{"postrider_secure_lookups_total", "counter", []string{"outcome"},
		"DNS look-ups for DANE that no cache answered: secure (authenticated), absent (an authenticated absence), insecure, " +
			"bogus (wrong signatures) or failed. Lapsed counts the insecure ones whose last answer was secure."},
	{"postrider_dns_queries_total", "counter", []string{"zone", "rcode"},
		"Queries to the name server, by zone (customer, own for dns_zone, or none) and by response code, such as " +
			"NOERROR or NXDOMAIN."},
	{"postrider_dns_queries_limited_total", "counter", []string{"reason"},
		"Queries to the name server without a full response: above dns_rate_limit (rate_limit), or not a DNS query " +
			"(malformed)."},
	{"postrider_dns_zones", "gauge", nil, "Zones that the name server answers for, with the role dns."},
	{"postrider_dns_invalid", "gauge", []string{"kind"},
		"Zones and records of customers' domains that the name server leaves out because they are invalid, by kind (zone " +
			"or record). The log names them."},
	{"postrider_dns_zones_read_timestamp_seconds", "gauge", nil,
		"When the zones of the name server were last read from the database."},
	{"postrider_webhook_attempts_total", "counter", []string{"outcome"},
		"Attempts to deliver a webhook event: success, retry (a failure that is tried again), or failed (the last one)."},
	{"postrider_webhook_attempt_duration_seconds", "histogram", nil, "Time of an attempt to deliver a webhook event."},
	{"postrider_received_messages_total", "counter", []string{"result"},
		"Received messages: stored for a team, or a report (a bounce or a complaint)."},
	{"postrider_jobs_total", "counter", []string{"kind", "result"},
		"Runs of jobs: done (also if the job is to run again later), failed (tried again), parked (failed for the last " +
			"time), or lost to another node."},
	{"postrider_jobs_running", "gauge", []string{"kind"}, "Jobs that run at present."},
	{"postrider_transactions_total", "counter", []string{"result"},
		"Writing transactions. With SQLite, several of them share a commit; with PostgreSQL, several updates may share one."},
	{"postrider_transaction_duration_seconds", "histogram", nil, "Time of a writing transaction with its commit."},
	{"postrider_transaction_wait_seconds", "histogram", nil,
		"Time that a writing transaction waited before: for the writer (SQLite) or for a connection (PostgreSQL)."},
	{"postrider_disk_free_bytes", "gauge", []string{"folder"},
		"Space that the node may still use on the file system of a folder: data_dir, or blob_url if it names a folder."},
	{"postrider_disk_size_bytes", "gauge", []string{"folder"}, "Size of that file system."},
	{"postrider_blob_errors_total", "counter", []string{"operation"},
		"Operations of the blob store that failed, except for blobs that do not exist."},
	{"postrider_clock_offset_seconds", "gauge", nil,
		"PostgreSQL's clock minus this node's clock. With SQLite, this metric does not exist."},
	{"postrider_certificate_expiry_timestamp_seconds", "gauge", []string{"source"},
		"When the certificate that expires first becomes invalid, by the source of the certificates."},
	{"postrider_certificates_missing", "gauge", nil,
		"Hosts of this node's listeners for which the certificate authority has issued no certificate, or only an " +
			"expired one. Customers' hosts do not count."},
	{"postrider_check_ok", "gauge", []string{"check"}, "1 if a check of /readyz passed, and 0 if it failed."},
	{"postrider_trace_spans_total", "counter", []string{"result"},
		"Spans of traces: sent to otlp_endpoint, or dropped because the buffer was full or the receiver refused them."},

	{installationPrefix + "queue_jobs", "gauge", []string{"class", "state"},
		"Emails that wait for delivery, counted once for each destination: due now, or later (a retry). Bulk mail has its " +
			"own class. Emails that a node is sending are not counted. The count stops at 1,000,000."},
	{installationPrefix + "queue_oldest_due_seconds", "gauge", []string{"class"},
		"How long the email that has been due longest has waited since it became due."},
	{installationPrefix + "webhook_jobs", "gauge", []string{"state"},
		"Jobs that deliver webhook events: due now, or later (a retry)."},
	{installationPrefix + "webhook_oldest_due_seconds", "gauge", nil,
		"How long the webhook job that has been due longest has waited since it became due."},
	{installationPrefix + "jobs_parked", "gauge", []string{"kind"},
		"Jobs that failed for the last time and wait for an operator (postrider jobs)."},
	{installationPrefix + "broadcasts", "gauge", []string{"status"}, "Broadcasts that are being sent or are paused."},
	{installationPrefix + "last_backup_timestamp_seconds", "gauge", nil,
		"When the last backup that Postrider knows of was complete. Without one, this metric does not exist."},
	{installationPrefix + "created_timestamp_seconds", "gauge", nil, "When the database was created."},
	{installationPrefix + "measured_timestamp_seconds", "gauge", nil,
		"When this node measured the figures of the installation."},
}

// Catalog returns the definitions of all metrics, except for those of the Go runtime and of the process.
func Catalog() []Definition { return slices.Clone(catalog) }

// Markdown returns the table of the metrics in docs/operating/metrics.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, d := range catalog {
		labels := make([]string, len(d.Labels))
		for i, l := range d.Labels {
			labels[i] = "`" + l + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Type, strings.Join(labels, ", "), d.Help)
	}
	return b.String()
}

// definition returns the definition of a metric. It panics if the catalog has none, or one of another type.
func definition(name, kind string) Definition {
	i := slices.IndexFunc(catalog, func(d Definition) bool { return d.Name == name && d.Type == kind })
	if i < 0 {
		panic("telemetry: the catalog has no " + kind + " " + name)
	}
	return catalog[i]
}

func (m *Metrics) counter(name string) *prometheus.CounterVec {
	d := definition(name, "counter")
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.help()}, d.Labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) histogram(name string, buckets []float64) *prometheus.HistogramVec {
	d := definition(name, "histogram")
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.help(), Buckets: buckets}, d.Labels)
	m.registry.MustRegister(h)
	return h
}

// help returns the help text, which says whether the metric is about one node or about all.
func (d Definition) help() string {
	if strings.HasPrefix(d.Name, installationPrefix) {
		return "Whole installation, so all nodes show about the same. " + d.Help
	}
	return "This node. " + d.Help
}

// emit adds a value of a metric that is being collected.
type emit func(value float64, labels ...string)

// sampled is a metric whose values a function reads at each scrape.
type sampled struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(emit)
}

// sample registers a metric whose values a function reads at each scrape.
func (m *Metrics) sample(name, kind string, read func(emit)) {
	d := definition(name, kind)
	s := sampled{prometheus.NewDesc(d.Name, d.help(), d.Labels, nil), prometheus.GaugeValue, read}
	if kind == "counter" {
		s.kind = prometheus.CounterValue
	}
	m.registry.MustRegister(s)
}

// Describe implements prometheus.Collector.
func (s sampled) Describe(all chan<- *prometheus.Desc) { all <- s.desc }

// Collect implements prometheus.Collector.
func (s sampled) Collect(all chan<- prometheus.Metric) {
	s.read(func(value float64, labels ...string) {
		all <- prometheus.MustNewConstMetric(s.desc, s.kind, value, labels...)
	})
}
