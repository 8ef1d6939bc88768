// Package tlsrpt implements the formats of SMTP TLS reports (RFC 8460): the TXT record by which a domain asks for
// reports, and the reports themselves.
//
// # Invariants
//
// The package has no state and does no I/O. A [Record] that [FindRecord] returns has at least one target, and each of
// its targets can be used: a mail address, or an https URL with a host. The memory that [Read] needs is limited by
// [MaxSize], whatever the file contains. A report that Read returns has an id, a period, and at least one policy. Its
// counts are not negative.
//
// # Failures
//
// An error says what is wrong with the record or the report. A record with an error counts as missing. Read is lenient
// about forms that real reporters write: it ignores unknown fields and values of the wrong type, and replaces text that
// is not UTF-8.
//
// # Out of scope
//
// The package does not look up records, count sessions, or send reports (see package tlsreports). It does not check who
// sent a report.
package tlsrpt

import "time"

// These are limits on reports, in bytes.
const (
	MaxPacked = 1 << 20  // of a report compressed by gzip
	MaxSize   = 10 << 20 // of a report that is not compressed
)

// These are the media types of reports (RFC 8460 sections 6.4 and 6.5).
const (
	MediaType     = "application/tlsrpt+json"
	MediaTypeGzip = "application/tlsrpt+gzip"
)

// ReportType is the report-type of a multipart/report with a TLS report (RFC 8460 section 5.3).
const ReportType = "tlsrpt"

// These are the fields in the header of a report's email.
const (
	DomainField    = "TLS-Report-Domain"    // the policy domain
	SubmitterField = "TLS-Report-Submitter" // the domain that sends the report
)

// PolicyType is the type of a policy.
type PolicyType string

// These are the types of policies (RFC 8460 section 4.4).
const (
	TLSA     PolicyType = "tlsa"
	STS      PolicyType = "sts"
	NoPolicy PolicyType = "no-policy-found"
)

// Result is a result type (RFC 8460 section 4.3). The empty Result means success.
type Result string

// These are the result types of RFC 8460. Reports may contain others.
const (
	NoSTARTTLS         Result = "starttls-not-supported"
	HostMismatch       Result = "certificate-host-mismatch"
	CertificateExpired Result = "certificate-expired"
	NotTrusted         Result = "certificate-not-trusted"
	ValidationFailure  Result = "validation-failure"
	TLSAInvalid        Result = "tlsa-invalid"
	DNSSECInvalid      Result = "dnssec-invalid"
	DANERequired       Result = "dane-required"
	FetchError         Result = "sts-policy-fetch-error"
	PolicyInvalid      Result = "sts-policy-invalid"
	WebPKIInvalid      Result = "sts-webpki-invalid"
)

// Results returns all result types of RFC 8460.
func Results() []Result {
	return []Result{NoSTARTTLS, HostMismatch, CertificateExpired, NotTrusted, ValidationFailure, TLSAInvalid,
		DNSSECInvalid, DANERequired, FetchError, PolicyInvalid, WebPKIInvalid}
}

// Report is a report about the sessions of one period, usually a day.
type Report struct {
	Organization string // that sends the report
	Contact      string
	ID           string
	Begin, End   time.Time // both within the period, to the second
	Policies     []PolicyReport
}

// PolicyReport counts the sessions to which one policy applied.
type PolicyReport struct {
	Policy             Policy
	Successful, Failed int64
	Failures           []Failure
}

// Policy is a policy as reports describe it.
type Policy struct {
	Type PolicyType
	// Strings has the TLSA records, or the lines of the MTA-STS policy.
	Strings []string
	Domain  string // in A-labels
	// MX has the patterns of mail hosts of an MTA-STS policy.
	MX []string
}

// Failure counts sessions that failed in the same way. All fields but Result and Sessions may be empty.
type Failure struct {
	Result      Result
	SendingIP   string // address of the sender
	Host        string // name of the mail host
	Hello       string // name with which the mail host introduced itself
	ReceivingIP string // address of the mail host
	Sessions    int64
	Information string // URI of further information
	Reason      string
}
