package explain

import (
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// Interval is a part of the time from an email's acceptance to its outcome.
type Interval struct {
	Reason   Reason    `json:"reason" doc:"The name of the reason, which does not change."`
	Cause    Cause     `json:"cause" enum:"postrider,limit,schedule,sender,dns,host,handover,unknown" doc:"The cause of the time: Postrider's own work, a limit of Postrider, a schedule, a state of the sender such as an unverified domain, the DNS, the recipient's mail host, the final answer of a host that accepted the email, or an unknown cause."`
	Says     string    `json:"says" doc:"The reason in one sentence."`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Duration float64   `json:"duration_ms"`
	Attempt  int       `json:"attempt" doc:"The number of the attempt to which the interval belongs, from 1; 0 if it is none."`
}

// IntervalSum is the length of all intervals with the same cause.
type IntervalSum struct {
	Cause    Cause   `json:"cause" enum:"postrider,limit,schedule,sender,dns,host,handover,unknown"`
	Duration float64 `json:"duration_ms"`
}

// Reason names why time passed.
type Reason string

// Cause groups reasons.
type Cause string

// The causes.
const (
	byPostrider Cause = "postrider"
	byLimit     Cause = "limit"
	bySchedule  Cause = "schedule"
	bySender    Cause = "sender"
	byDNS       Cause = "dns"
	byHost      Cause = "host"
	byHandover  Cause = "handover"
	byUnknown   Cause = "unknown"
)

// The reasons.
const (
	scheduled        Reason = "scheduled"
	release          Reason = "release"
	enqueuing        Reason = "enqueuing"
	queue            Reason = "queue"
	claimWait        Reason = "claim"
	repeated         Reason = "repeated"
	teamShare        Reason = "team_share"
	destinationLimit Reason = "destination_limit"
	rateLimited      Reason = "rate_limit"
	paused           Reason = "pause"
	operatorPause    Reason = "operator_pause"
	retrySchedule    Reason = "retry_schedule"
	withheld         Reason = "domain_not_verified"
	fileMissing      Reason = "file"
	outage           Reason = "outage"
	conversation     Reason = "conversation"
	recording        Reason = "recording"
	handover         Reason = "handover"
	unrecorded       Reason = "not_recorded"
	capture          Reason = "capture"
	simulation       Reason = "simulation"
)

// spanReasons holds the reason for each recorded span of an attempt.
var spanReasons = map[evidence.Span]Reason{evidence.Memory: "memory", evidence.DNS: "dns",
	evidence.Prepare: "prepare",
	evidence.Permit:  "connection_share", evidence.Slot: "destination_slot", evidence.Address: "address",
	evidence.Work: "work", evidence.Earlier: "earlier_hosts", evidence.Connect: "connect",
	evidence.Greeting: "greeting", evidence.TLS: "tls", evidence.Envelope: "envelope", evidence.Body: "data",
	evidence.Final: "final_answer"}

// reasons explains each reason.
var reasons = map[Reason]struct {
	cause Cause
	says  string
}{
	scheduled: {bySchedule, "The email was scheduled for later."},
	release:   {byPostrider, "The scheduled email was due, and waited for the job that releases it."},
	enqueuing: {byPostrider, "The delivery was not enqueued yet. Files that the email names by a URL are " +
		"fetched first."},
	queue:     {byUnknown, "The email waited in the queue. The cause was not recorded."},
	claimWait: {byPostrider, "The email was in the queue until a worker claimed it. No limit was reached."},
	repeated: {byPostrider, "The delivery was begun and ended without an attempt, for example because a " +
		"node stopped or its broadcast paused. The cause was not recorded."},
	teamShare: {byLimit, "The email waited in the queue, because the team used its whole share of the " +
		"connections to this destination."},
	destinationLimit: {byLimit, "The email waited in the queue, because all connections to this destination " +
		"were in use."},
	rateLimited: {byLimit, "The email waited in the queue, because of the limit on messages per second to " +
		"this destination."},
	paused: {byLimit, "Postrider paused the destination, because a host there asked for less mail."},
	operatorPause: {byLimit, "The email waited in the queue, because the operator of this installation had paused the " +
		"destination."},
	retrySchedule: {bySchedule, "Postrider waited for the next try, by its retry schedule or as long as the " +
		"host asked."},
	withheld:     {bySender, "The email was withheld, because the sender's domain could not send."},
	fileMissing:  {byPostrider, "A file of the email could not be read."},
	outage:       {byPostrider, "A part of this installation was away."},
	conversation: {byHost, "The SMTP conversation. The times of its stages were not recorded."},
	recording:    {byPostrider, "Postrider recorded the outcome."},
	handover:     {byHandover, "The host read the message and accepted it."},
	capture:      {byPostrider, "Postrider stored the message in its outbox, instead of sending it."},
	simulation:   {byPostrider, "Postrider simulated the outcome of a test address."},
	unrecorded:   {byUnknown, "Nothing was recorded about this time."},
	"memory":     {byLimit, "The email waited for memory, which large emails of the team used."},
	"dns":        {byDNS, "Postrider looked up the mail hosts of the destination."},
	"prepare": {byPostrider, "Postrider composed and signed the message. Teams take turns, so other teams' " +
		"messages may have come first."},
	"connection_share": {byLimit, "The team used its whole share of all connections."},
	"destination_slot": {byLimit, "All connections to this destination were in use."},
	"address": {byLimit, "Another connection to the same address was being opened, and its result was " +
		"awaited."},
	"work":          {byPostrider, "Postrider prepared the attempt."},
	"earlier_hosts": {byHost, "Hosts with a higher preference were tried first."},
	"connect":       {byHost, "The connection was opened."},
	"greeting":      {byHost, "The host took this long to greet."},
	"tls":           {byHost, "EHLO, encryption and login."},
	"envelope":      {byHost, "The host took sender and recipients, and allowed the message."},
	"data":          {byHost, "The message was transmitted."},
	"final_answer":  {byHost, "The host took this long to answer to the message."},
}

// segment is a time with a known reason; says replaces the reason's sentence if it is not "".
type segment struct {
	from, to time.Time
	reason   Reason
	says     string
}

// builder adds intervals, each from the end of the one before.
type builder struct {
	cursor, end time.Time
	attempt     int
	all         []Interval
}

// until adds an interval that ends at the given time. If the time has passed already, until does nothing, so that
// recorded times that overlap, for example after a step of the clock, cannot make the sum wrong.
func (b *builder) until(at time.Time, why Reason, says string) {
	if at.After(b.end) {
		at = b.end
	}
	if !at.After(b.cursor) {
		return
	}
	known := reasons[why]
	if says == "" {
		says = known.says
	}
	if last := len(b.all) - 1; last >= 0 && b.all[last].Reason == why && b.all[last].Says == says &&
		b.all[last].Attempt == b.attempt {
		b.all[last].To = at
	} else {
		b.all = append(b.all, Interval{Reason: why, Cause: known.cause, Says: says, From: b.cursor, To: at,
			Attempt: b.attempt})
	}
	b.cursor = at
}

// fill adds intervals until the given time. Each part of the time has the reason of the first segment that covers it,
// or else the reason otherwise.
func (b *builder) fill(at time.Time, segments []segment, otherwise Reason) {
	var cuts []time.Time
	for _, s := range segments {
		cuts = append(cuts, s.from, s.to)
	}
	cuts = append(slices.DeleteFunc(cuts, func(t time.Time) bool { return !t.Before(at) }), at)
	slices.SortFunc(cuts, time.Time.Compare)
	for _, cut := range cuts {
		covers := func(s segment) bool { return !s.from.After(b.cursor) && s.to.After(b.cursor) }
		if i := slices.IndexFunc(segments, covers); i >= 0 {
			b.until(cut, segments[i].reason, segments[i].says)
		} else {
			b.until(cut, otherwise, "")
		}
	}
}

// intervals returns the intervals of a recipient from the email's acceptance until the end.
func (f *Facts) intervals(h *history, end time.Time) []Interval {
	happened, tries := h.happened, h.tries
	b := &builder{cursor: f.CreatedAt, end: end}
	if f.ScheduledAt.After(f.CreatedAt) {
		b.until(f.ScheduledAt, scheduled, "")
		for _, e := range happened {
			if e.Type == "queued" {
				b.until(e.At, release, "")
			}
		}
	}
	var retry segment
	holds := f.holds(happened, tries)
	for _, i := range tries {
		t := &f.Attempts[i]
		b.before(t, retry, holds)
		b.attempt = i + 1
		last := i == tries[len(tries)-1]
		b.within(t, t.Outcome == "delivered" || last && h.ended("delivered"))
		b.attempt = 0
		retry = segment{t.StartedAt, t.NextAt, retrySchedule, ""}
	}
	rest := holds
	if !h.ended("delivered", "bounced") { // the retry is otherwise that of other recipients
		rest = append(rest, retry)
	}
	if by := f.operatorHold(h); by != nil {
		rest = append(rest, segment{by.Since, f.Now, operatorPause, ""})
	}
	switch {
	case f.lostTimeline():
		b.fill(end, rest, unrecorded)
	case len(tries) > 0 && (retry.to.IsZero() || h.ended("delivered", "bounced")):
		b.attempt = tries[len(tries)-1] + 1
		b.fill(end, rest, recording)
	default:
		b.fill(end, rest, queue)
	}
	for i := range b.all {
		b.all[i].Duration = inMS(b.all[i].To.Sub(b.all[i].From))
	}
	return b.all
}

// holds returns the segments that begin with events about withheld emails. Each lasts until the next of the attempts,
// or else until now.
func (f *Facts) holds(happened []events.Entry, tries []int) (all []segment) {
	for _, e := range happened {
		if e.Type != "delivery_delayed" || e.Data == "" {
			continue
		}
		var why events.Delayed
		if json.Unmarshal([]byte(e.Data), &why) != nil || why.Reason == "" {
			continue
		}
		s := segment{e.At, f.Now, fileMissing, why.Message}
		if why.Reason == string(withheld) {
			s.reason = withheld
		}
		for _, i := range tries {
			if at := f.Attempts[i].StartedAt; at.After(e.At) && at.Before(s.to) {
				s.to = at
			}
		}
		all = append(all, s)
	}
	slices.Reverse(all) // later ones take precedence
	return all
}

// before adds the time before an attempt.
func (b *builder) before(t *Try, retry segment, holds []segment) {
	e := t.Evidence
	if e == nil {
		b.fill(t.StartedAt, append(slices.Clone(holds), retry), queue)
		return
	}
	claim := t.StartedAt
	for x := evidence.Memory; x <= evidence.Work; x++ {
		claim = claim.Add(-e.Times[x])
	}
	if e.Enqueued > 0 && retry.to.IsZero() {
		b.until(claim.Add(-e.Enqueued), enqueuing, "")
	}
	segments := slices.Clone(holds)
	if e.Outage != 0 {
		segments = append(segments, segment{claim.Add(-e.OutageOf), claim, outage, outages[e.Outage]})
	}
	segments = append(segments, retry)
	if e.PauseLength > 0 {
		until := claim.Add(-e.PauseEnd)
		why := paused
		if e.Limits&evidence.OperatorPause != 0 {
			why = operatorPause
		}
		segments = append(segments, segment{until.Add(-e.PauseLength), until, why, pauseText(e)})
	}
	first := len(b.all)
	b.fill(claim, segments, queueReason(e))
	for i := first; i < len(b.all); i++ {
		if x := &b.all[i]; x.Reason == queue && x.To.Sub(x.From) < claimMax {
			x.Reason, x.Cause, x.Says = claimWait, reasons[claimWait].cause, reasons[claimWait].says
		}
	}
	for x, at := evidence.Memory, claim; x <= evidence.Work; x++ {
		at = at.Add(e.Times[x])
		b.until(at, spanReasons[x], "")
	}
	b.until(t.StartedAt, "work", "")
}

// outages explains which part of the installation was away.
var outages = map[evidence.Outage]string{
	evidence.Database:    "The database of this installation was away.",
	evidence.NameServers: "The name servers of this installation were away.",
	evidence.BlobStore:   "The file store of this installation was away.",
}

func pauseText(e *evidence.Evidence) string {
	if e.PauseReply == "" {
		return ""
	}
	return strings.TrimSuffix(reasons[paused].says, ".") + " (" + e.PauseReply + ")."
}

// claimMax is the time within which workers normally claim a job. A shorter wait needs no other cause.
const claimMax = time.Second

// queueReason returns why an email waited in the queue, as far as it was recorded.
func queueReason(e *evidence.Evidence) Reason {
	switch {
	case e.Limits&evidence.RateLimit != 0:
		return rateLimited
	case e.Limits&evidence.TeamShare != 0:
		return teamShare
	case e.Limits&evidence.DestinationLimit != 0:
		return destinationLimit
	case e.Runs > 0:
		return repeated
	}
	return queue
}

// within adds the time of an attempt. The parameter delivered says that the host accepted the email.
func (b *builder) within(t *Try, delivered bool) {
	end := t.StartedAt.Add(t.Duration)
	e := t.Evidence
	switch {
	case captured(t):
		b.until(end, capture, "")
		return
	case simulated(t):
		b.until(end, simulation, "")
		return
	case t.Host == "" && (e == nil || !e.Talked()):
		b.until(end, spanReasons[evidence.DNS], "")
		return
	case e == nil || !e.Talked():
		b.until(end, conversation, "")
		return
	}
	at := t.StartedAt
	for x := evidence.Earlier; x <= evidence.Final; x++ {
		at = at.Add(e.Times[x])
		if at.After(end) {
			at = end
		}
		why := spanReasons[x]
		if x == evidence.Final && delivered {
			why = handover
		}
		b.until(at, why, "")
	}
	b.until(end, recording, "")
}

// inMS returns a length in milliseconds with the precision of the database, a microsecond.
func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// sums returns the lengths of intervals by cause, the longest first.
func sums(all []Interval) []IntervalSum {
	total := map[Cause]time.Duration{}
	for _, i := range all {
		total[i.Cause] += i.To.Sub(i.From)
	}
	list := []IntervalSum{}
	for c, d := range total {
		list = append(list, IntervalSum{c, inMS(d)})
	}
	slices.SortFunc(list, func(a, b IntervalSum) int {
		if a.Duration != b.Duration {
			if a.Duration > b.Duration {
				return -1
			}
			return 1
		}
		return strings.Compare(string(a.Cause), string(b.Cause))
	})
	return list
}
