// Package authres judges by SPF, DKIM, DMARC and ARC where a received message comes from.
package authres

import (
	"context"
	"io"
	"net/netip"
)

// Results are the verdicts on one message, in the words of RFC 8601: pass, fail, softfail, neutral, none, temperror, permerror.
type Results struct {
	SPF    Verdict
	DKIM   []Verdict // one for each signature, in the order of the message
	DMARC  Verdict
	Policy string // of the DMARC record: none, quarantine or reject; empty without a record
	ARC    Verdict
	// Header is the value of an Authentication-Results field that says the same.
	Header string
}

// Verdict is one method's result.
type Verdict struct {
	Result string
	Domain string // whom it speaks of
	Detail string // why, for people
}

// Origin is where a message came from.
type Origin struct {
	Addr     netip.Addr
	Hello    string
	MailFrom string // empty for the null return path
}

// Checker evaluates messages.
type Checker interface {
	// Check reads raw from its start, more than once.
	Check(ctx context.Context, o Origin, raw io.ReaderAt, size int64) Results
}
