package node

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/telemetry"
	"github.com/postrider/postrider/internal/platform/tracing"
	"github.com/postrider/postrider/internal/sending/delivery"
)

// The key of the attribute that joins the spans about an email.
const emailAttribute = "postrider.email.id"

// replayAge is the age from which an email in a response was accepted by an earlier request with the same idempotency
// key.
const replayAge = 5 * time.Second

// newTracer returns the exporter of traces, or nil if otlp_endpoint is empty.
func newTracer(c config.Config, version string, log *slog.Logger, m *telemetry.Metrics) (*tracing.Exporter, error) {
	if c.OTLPEndpoint == "" {
		return nil, nil
	}
	headers, err := c.OTLPHeader()
	if err != nil {
		return nil, fmt.Errorf("otlp_headers: %w", err)
	}
	e, err := tracing.New(tracing.Config{Endpoint: c.OTLPEndpoint, Headers: headers, Ratio: c.OTLPSample,
		Version: version, Host: c.Hostname}, log, m.Spans)
	if err != nil {
		return nil, fmt.Errorf("otlp_endpoint: %w", err)
	}
	return e, nil
}

// traceRequest traces a request to the API. If the request created one email and the client has no trace, the request
// is the first span of the email's trace. Otherwise, the request belongs to the client's trace or to a new one, each
// email has a trace with a first span of its own, and the spans have links.
func (n *Node) traceRequest(r wire.ServedRequest) {
	if r.Route == "/healthz" || r.Route == "/readyz" {
		return
	}
	s := tracing.Span{Name: r.Method + " " + r.Route, Kind: tracing.Server, Start: r.Start, End: r.Start.Add(r.Duration),
		Attributes: []tracing.Attribute{{Key: "http.request.method", Value: r.Method}, {Key: "http.route", Value: r.Route},
			{Key: "http.response.status_code", Value: r.Status}, {Key: "postrider.request.id", Value: r.ID}}}
	if r.TeamID != "" {
		s.Attributes = append(s.Attributes, tracing.Attribute{Key: "postrider.team.id", Value: r.TeamID})
	}
	if r.Status >= 500 {
		s.Error = "status " + strconv.Itoa(r.Status)
	}
	var emails []string
	for _, e := range r.Emails {
		if e.ID != "" {
			emails = append(emails, e.ID)
		}
	}
	parent, hasParent := tracing.ParseTraceparent(r.Traceparent)
	// Strangers must not decide what is sampled, or fill the traces of others.
	hasParent = hasParent && r.TeamID != ""
	if len(emails) == 1 && !hasParent && isNew(emails[0], r.Start) {
		s.Trace, _ = tracing.EmailTrace(emails[0])
		s.ID = tracing.EmailSpan(s.Trace)
		s.Attributes = append(s.Attributes, tracing.Attribute{Key: emailAttribute, Value: emails[0]})
		if n.tracer.Sampled(s.Trace) {
			n.tracer.Add(s)
		}
		return
	}
	s.Trace, s.ID = tracing.NewTrace(), tracing.NewSpan()
	sampled := n.tracer.Sampled(s.Trace)
	if hasParent {
		s.Trace, s.Parent, sampled = parent.Trace, parent.Span, parent.Sampled
	}
	for _, email := range emails {
		t, _ := tracing.EmailTrace(email)
		s.Links = append(s.Links, tracing.Link{Trace: t, Span: tracing.EmailSpan(t)})
		if isNew(email, r.Start) {
			n.traceEmail("api", email, s.End, tracing.Link{Trace: s.Trace, Span: s.ID})
		}
	}
	if len(emails) == 1 {
		s.Attributes = append(s.Attributes, tracing.Attribute{Key: emailAttribute, Value: emails[0]})
	}
	if sampled {
		n.tracer.Add(s)
	}
}

// isNew reports whether an email was accepted by a request that began at the given time.
func isNew(emailID string, start time.Time) bool {
	at, ok := id.Time(emailID)
	return ok && start.Sub(at) < replayAge
}

// traceAccepted adds the first spans of the traces of emails.
func (n *Node) traceAccepted(source string, ids []string) {
	now := time.Now()
	for _, email := range ids {
		n.traceEmail(source, email, now)
	}
}

// traceEmail adds the first span of an email's trace.
func (n *Node) traceEmail(source, email string, at time.Time, links ...tracing.Link) {
	t, ok := tracing.EmailTrace(email)
	if !ok || !n.tracer.Sampled(t) {
		return
	}
	n.tracer.Add(tracing.Span{Trace: t, ID: tracing.EmailSpan(t), Name: "accept email", Kind: tracing.Producer, Start: at,
		End: at, Links: links, Attributes: []tracing.Attribute{{Key: emailAttribute, Value: email},
			{Key: "postrider.source", Value: source}}})
}

// traceAttempt traces a delivery attempt, in the email's trace.
func (n *Node) traceAttempt(r delivery.Report) {
	t, ok := tracing.EmailTrace(r.EmailID)
	if !ok || !n.tracer.Sampled(t) {
		return
	}
	s := tracing.Span{Trace: t, ID: tracing.NewSpan(), Parent: tracing.EmailSpan(t), Name: "deliver email",
		Kind: tracing.Client, Start: r.Began, End: r.Began.Add(r.Took), Attributes: []tracing.Attribute{
			{Key: emailAttribute, Value: r.EmailID}, {Key: "postrider.team.id", Value: r.TeamID},
			{Key: "postrider.destination", Value: r.Destination}, {Key: "postrider.provider", Value: r.Provider},
			{Key: "postrider.attempt", Value: r.Attempt}, {Key: "postrider.outcome", Value: r.Outcome},
			{Key: "postrider.bulk", Value: r.Bulk}, {Key: "postrider.smtp.code", Value: r.Code},
			{Key: "server.address", Value: r.Host}}}
	if r.Outcome != "delivered" {
		s.Error = r.Outcome
	}
	n.tracer.Add(s)
}
