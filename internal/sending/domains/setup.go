package domains

// These are the values of Domain.Setup: the ways in which a domain's owner puts its records into the DNS.
const (
	SetupRecords    = "records"    // the owner installs each record
	SetupCNAME      = "cname"      // three CNAME records lead to names in Config.DNSZone
	SetupDelegation = "delegation" // NS records delegate the domain to this installation's name servers
)

// These are the values of AdvisedRecord.Purpose.
const (
	PurposeDMARC      = "dmarc"
	PurposeTLSReports = "tls_reports"
	PurposeMTASTS     = "mta_sts"
	PurposeBIMI       = "bimi"
)

// AdvisedRecord is a DNS record that a domain can do without, but that its owner should install.
//
// A function in Deps.Advised returns the same records before and after they were installed. The zone of a delegated
// domain consists of what these functions return, so a record that was left out would disappear from the DNS.
type AdvisedRecord struct {
	Purpose string
	Name    string // absolute, lower case, no final dot
	Type    string // TXT, CNAME, TLSA, A or AAAA
	Value   string // as in nameserver.Record
	Why     string // one or two sentences for the domain's owner
}

// Advice says how to enter records at the domain's DNS provider, and what is wrong with those that were found.
type Advice struct {
	Provider  string // name of the DNS provider, such as "Cloudflare"; "" if it is unknown
	Link      string // URL of the provider's page with the domain's records; "" if it is unknown
	ApplyLink string // URL at which the provider installs the records by itself (Domain Connect); "" if it cannot
	Notes     []string
	Forms     []FieldForm
	Problems  []Problem
}

// FieldForm is a record as the owner enters it in the provider's form.
type FieldForm struct {
	Key                   string // of the record; see Record.Key
	NameLabel, Name       string // the provider's word for the field, and its content
	ValueLabel, Value     string
	PriorityLabel, TTLTip string // "" if the provider has no such field
}

// Problem is a mistake in the DNS of a domain.
type Problem struct {
	Key   string // of the record that it concerns, or "" if it concerns none of the wanted ones
	Code  string // such as name_doubled or two_spf_records
	Name  string // the DNS name at which the mistake is
	Type  string // type of the record
	Found string // the value there; "" for none
	Text  string // what is wrong, and what to do
}
