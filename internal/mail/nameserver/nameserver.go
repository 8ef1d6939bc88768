// Package nameserver is an authoritative DNS server. It answers queries about its zones over UDP and TCP, from memory.
//
// # Invariants
//
// The server answers from an immutable [Set], which [Server.Use] replaces atomically. Each answer comes from one set
// only. [Compile] or [CompileShared] has validated all content. The server refuses queries about other names and never
// asks another server. Memory and connections are bounded, whatever clients send. A response keeps the upper and lower
// case of the name in the question.
//
// # Failures
//
// A packet that is no DNS query is dropped, because a response to a forged source address helps an attacker. Before the
// first call of Use, every query is answered with SERVFAIL, so that resolvers ask the other servers of the zone. An
// answer that does not fit is truncated, and the client repeats the query over TCP.
//
// # Out of scope
//
// The package does not read zones from a database (see package zones), sign them (DNSSEC), transfer them, or accept
// updates and notifications.
package nameserver

import "fmt"

// Zone is the content of a zone. Its apex gets a SOA record and the NS records from the other fields.
//
// Package zones uses only Records and Serial of a zone with the name of the operator's zone (the setting dns_zone). It
// sets the other fields itself.
type Zone struct {
	Name    string   // A-labels, lower case, no final dot
	Serial  uint32   // changes with the content
	NS      []string // names of the servers, in the zone's NS records
	Mailbox string   // mailbox of the SOA record, as [MailboxName] returns it
	Records []Record // without SOA and NS records of the apex
}

// Content is what a name server shall answer.
type Content struct {
	Zones   []Zone
	Awaited []string // names of zones that are missing until somebody delegates them to this installation
	Partial bool     // there are more zones than a server can have, so some are missing
}

// Record is a record of a zone.
type Record struct {
	Name  string // absolute, lower case, no final dot; may begin with "*."
	Type  string // A, AAAA, CNAME, MX, TXT, TLSA or CAA
	TTL   uint32 // seconds
	Value string // presentation form; TXT: the whole text without quotes; MX: "10 host"
}

// RecordError says why a record is invalid.
type RecordError struct {
	Name, Type string
	Cause      error
}

// Error names the record and the cause.
func (e *RecordError) Error() string { return fmt.Sprintf("record %s %s: %v", e.Name, e.Type, e.Cause) }

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Cause }
