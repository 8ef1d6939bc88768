// Package dmarcrpt reads and writes DMARC aggregate reports: those of RFC 9990 and, for reading only, those of RFC 7489
// with the deviations that occur in practice.
//
// # Invariants
//
//   - Reading needs little memory, whatever the file contains: rows are passed on one at a time, and a tag, a text and
//     a list have maximum sizes. The file, the XML in it, their ratio and the number of rows are limited too.
//   - Elements are found by name, in any order. Elements of other namespaces and unknown elements are skipped.
//   - The sum of the counts of a report fits an int64.
//   - The writer writes only reports that are valid by RFC 9990.
//
// # Failures
//
// An error says what is wrong with the file or report. A report is read as a whole or not at all: if [Read] returns an
// error, the caller must discard the rows that it has received. If a file is something other than a report, the error
// is [ErrNoReport]. A required value that is missing, a number that is none, two different values of one element, and
// document type declarations are errors. Words outside the vocabulary of the RFCs are not: they are read as empty.
//
// # Out of scope
//
// The package does no I/O of its own, does not read mail, does not find out who sent a report, and does not recognize
// reports that it has seen before.
package dmarcrpt

import (
	"net/netip"
	"time"
)

// Namespace is the XML namespace of RFC 9990.
const Namespace = "urn:ietf:params:xml:ns:dmarc-2.0"

// Header is a report without its rows.
type Header struct {
	Org, Email, Contact string // the reporter, how to reach it, and further contact details
	ID                  string
	Begin, End          time.Time // first and last second of the reported period, in UTC
	Errors              []string  // mistakes that the reporter found in the DMARC record
	Generator           string    // the program that made the report
	Policy              Policy
}

// Policy is the DMARC policy that the reporter found.
type Policy struct {
	Domain                string // the domain of the DMARC record, in lower case
	Discovery             string // how the record was found: psl, treewalk or empty
	P, SP, NP             string // none, quarantine, reject or empty
	StrictDKIM, StrictSPF bool
	Testing               bool
	FailureReports        string // the fo tag
	Percent               int    // the pct tag of RFC 7489; 100 if it is missing
}

// Row is the number of messages with the same origin and results.
type Row struct {
	Source      netip.Addr
	Count       int64
	Disposition string // what happened to the messages: none, pass, quarantine, reject, or empty if it is unknown
	DKIM, SPF   bool   // whether the method passed for an aligned domain
	Reasons     []Reason

	HeaderFrom   string // domain in From
	EnvelopeFrom string // domain in MAIL FROM; empty for the null return path, or if it is unknown
	EnvelopeTo   string // domain of the recipients, or empty

	Signatures []Result // results of DKIM
	Paths      []Result // results of SPF; a report of RFC 9990 has at most one
}

// Reason is a reason why the disposition differs from the policy.
type Reason struct {
	// Type is local_policy, mailing_list, other, policy_test_mode or trusted_forwarder. In reports of RFC 7489, it can
	// also be forwarded or sampled_out. Unknown types are read as other.
	Type    string
	Comment string
}

// Result is a result of SPF or of a DKIM signature, regardless of alignment.
type Result struct {
	Domain   string
	Selector string // of a signature
	Scope    string // of SPF: mfrom, helo or empty
	Result   string // a result of RFC 8601 section 2.7, or empty if it is unknown
	Detail   string // more information for people
}

// These are the vocabularies of the elements.
var (
	policies     = []string{"none", "quarantine", "reject"}
	dispositions = []string{"none", "pass", "quarantine", "reject"}
	discoveries  = []string{"psl", "treewalk"}
	reasons      = []string{"local_policy", "mailing_list", "other", "policy_test_mode", "trusted_forwarder"}
	oldReasons   = []string{"forwarded", "sampled_out"} // of RFC 7489
	scopes       = []string{"mfrom", "helo"}
	signatures   = []string{"none", "pass", "fail", "policy", "neutral", "temperror", "permerror"}
	paths        = []string{"none", "neutral", "pass", "fail", "softfail", "policy", "temperror", "permerror"}
	// synonyms are older names of results.
	synonyms = map[string]string{"hardfail": "fail", "unknown": "temperror", "error": "permerror"}
)

const (
	maxSignatures = 100 // of one row (RFC 9990 section 3.1.3)
	maxCount      = 1_000_000_000_000
)
