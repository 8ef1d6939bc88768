// Package evidence defines what an attempt to deliver an email stores about itself, beside the outcome and the SMTP
// conversation: the route, the encryption, the signatures, the times of its stages, and why the email waited before.
//
// The evidence is packed into a few dozen bytes, which are part of the attempt's row. Facts that the row has already,
// such as the host's name, are left out. A fact that was not recorded stays unknown; no reader may guess it.
//
// # Failures
//
// Unpack returns an error for bytes that Pack did not make, and another one for a later format. Fields that a later
// release added to the same format are ignored.
//
// # Out of scope
//
// The package neither explains the facts (see package explain) nor stores them.
package evidence

import (
	"net/netip"
	"time"
)

// Evidence holds the recorded facts about one attempt. The zero value of each field means that it was not recorded.
type Evidence struct {
	Provider Provider
	Source   netip.Addr // the local address of the connection
	Hello    string     // the name in EHLO
	Clear    Clear      // why the connection was not encrypted
	Cert     Cert       // whether the certificate was valid
	Rule     Rule       // what decided how the connection had to be encrypted
	Hosts    int        // number of addresses that were found for the destination
	Reused   bool       // whether the connection had carried another message

	SigningDomain string // d= of the DKIM signatures
	Selectors     []string

	Stage Stage // the stage that decided the outcome
	Local bool  // Postrider wrote the reply, because no host answered

	// Times holds how long each stage took; see also Has.
	Times [stages]time.Duration
	Has   Stages // the stages whose times were recorded

	Enqueued time.Duration // from the creation of the email's job until this attempt was claimed; 0 if unimportant
	Runs     int           // earlier runs of the job since the last attempt that ended without one
	Outage   Outage        // the part of this installation that was away before the attempt
	OutageOf time.Duration // how long before the claim the outage was noticed first

	// The destination was paused until PauseEnd before the claim, for the time PauseLength.
	PauseEnd, PauseLength time.Duration
	PauseReply            string // the codes of the answer that caused the pause, such as "421 4.7.28"
	Limits                Limits // limits that were reached while the email waited in the queue

	Trouble *Trouble // nil for an attempt that went well
}

// Span is a part of an attempt, or of the wait directly before it, whose length is recorded.
type Span uint8

// The spans, in the order in which they follow each other. The spans until Work come before the attempt's start.
const (
	Memory   Span = iota // until memory for the email was free
	DNS                  // the look-up of the destination's hosts
	Prepare              // until the message was composed and signed, including the wait for a turn
	Permit               // until the team's share of the connections had one free
	Slot                 // until the destination took another connection
	Address              // until another connection to the same address was open
	Work                 // the rest of the time between the claim and the start
	Earlier              // hosts that were tried first
	Connect              // the TCP connection
	Greeting             // until the host greeted
	TLS                  // EHLO, STARTTLS and authentication
	Envelope             // MAIL, RCPT and DATA
	Body                 // sending the message
	Final                // the answer to the message
	stages
)

// Stages is a set of spans.
type Stages uint16

// Contains reports whether the set contains a span.
func (s Stages) Contains(x Span) bool { return s&(1<<x) != 0 }

// Set records the length of a span, which is added to an earlier one.
func (e *Evidence) Set(x Span, took time.Duration) {
	e.Has |= 1 << x
	e.Times[x] += max(took, 0)
}

// Forget removes the length of a span.
func (e *Evidence) Forget(x Span) {
	e.Has &^= 1 << x
	e.Times[x] = 0
}

// Talked reports whether the times of a conversation with a host were recorded.
func (e *Evidence) Talked() bool { return e.Has>>Earlier != 0 }

// Took returns the length of a span, and whether it was recorded.
func (e *Evidence) Took(x Span) (time.Duration, bool) { return e.Times[x], e.Has.Contains(x) }

// Stage is the stage of the SMTP conversation whose reply decided the outcome, by the names of package smtpclient.
type Stage uint8

// stageNames holds the names of the stages; 0 means that the stage was not recorded.
var stageNames = []string{"", "connect", "greeting", "hello", "tls", "auth", "mail", "rcpt", "data", "body", "final"}

// StageOf returns the stage with a name, or 0.
func StageOf(name string) Stage {
	for i, n := range stageNames {
		if n == name {
			return Stage(i)
		}
	}
	return 0
}

// String returns the name of the stage, or "".
func (s Stage) String() string {
	if int(s) < len(stageNames) {
		return stageNames[s]
	}
	return ""
}

// Clear says why a connection was not encrypted.
type Clear uint8

const (
	NotOffered  Clear = iota + 1 // the host does not offer STARTTLS
	Refused                      // the host offered STARTTLS and refused it
	Broken                       // a TLS handshake with this address failed, so TLS was not used
	SwitchedOff                  // the settings of the relay demand no TLS
)

// Cert says whether the certificate of an encrypted connection was valid for the host's name.
type Cert uint8

const (
	Valid Cert = iota + 1
	Expired
	OtherName
	UnknownIssuer
	Invalid // for another reason
)

// Rule says what decided how the connection to a host had to be encrypted. The order must not change, because attempts
// store the number. 0 means that nothing demanded encryption, or that the rule was not recorded.
type Rule uint8

const (
	SenderRequires   Rule = iota + 1 // the sending domain's setting tls
	OperatorRequires                 // the operator's settings for the destination
	DANE                             // the TLSA records of the host (RFC 7672)
	DANEUnusable                     // the host has TLSA records, but none that can be used: TLS without verification
	MTASTS                           // the MTA-STS policy of the domain, in the mode enforce (RFC 8461)
	MTASTSTesting                    // the MTA-STS policy of the domain, in the mode testing, which demands nothing
)

// Outage is a part of this installation.
type Outage uint8

const (
	SomePart Outage = iota + 1 // the part was not recorded
	Database
	NameServers
	BlobStore
)

// Limits is a set of limits.
type Limits uint8

const (
	TeamShare        Limits = 1 << iota // the team's share of the connections to the destination
	DestinationLimit                    // the connections to the destination
	RateLimit                           // the messages per second to the destination
	OperatorPause                       // the operator had paused the destination, for PauseLength
)
