package domainconnect

import (
	"strings"

	"github.com/postrider/postrider/internal/sending/domains"
)

// templateVersion must be increased when the records of the template change.
const templateVersion = 1

// Template is a template in the JSON form of the draft (section 6).
type Template struct {
	ProviderID          string           `json:"providerId"`
	ProviderName        string           `json:"providerName"`
	ServiceID           string           `json:"serviceId"`
	ServiceName         string           `json:"serviceName"`
	Version             int              `json:"version"`
	Description         string           `json:"description"`
	VariableDescription string           `json:"variableDescription"`
	SyncPubKeyDomain    string           `json:"syncPubKeyDomain"`
	MultiInstance       bool             `json:"multiInstance"`
	Records             []TemplateRecord `json:"records"`
}

// TemplateRecord is a record of a template.
type TemplateRecord struct {
	Type     string `json:"type"`
	GroupID  string `json:"groupId"`
	Host     string `json:"host"`
	PointsTo string `json:"pointsTo,omitzero"`
	Data     string `json:"data,omitzero"`
	Priority int    `json:"priority,omitzero"`
	TTL      int    `json:"ttl"`
	Conflict string `json:"txtConflictMatchingMode,omitzero"`
	Prefix   string `json:"txtConflictMatchingPrefix,omitzero"`
}

// These are the groups of the template's records.
const (
	groupSending   = "sending"
	groupReceiving = "receiving"
	groupTracking  = "tracking"
)

const recordTTL = 3600

// Template returns the template that the operator gives to DNS providers.
func (s *Service) Template() (Template, error) {
	if s.c.ProviderID == "" {
		return Template{}, ErrOff
	}
	t := Template{ProviderID: s.c.ProviderID, ProviderName: s.c.Name, ServiceID: s.c.ServiceID, ServiceName: "Email",
		Version: templateVersion, SyncPubKeyDomain: s.c.KeyDomain, MultiInstance: true,
		Description: "Records of a domain that sends and receives email through " + s.c.Name + ".",
		VariableDescription: "returnpath: label of the return path; rsaselector, rsakey, edselector, edkey: selectors and values " +
			"of the DKIM records; tracking: label of tracked links"}
	dkim := func(selector, value string) TemplateRecord {
		return TemplateRecord{Type: "TXT", GroupID: groupSending, Host: "%" + selector + "%._domainkey", Data: "%" + value + "%",
			TTL: recordTTL, Conflict: "All"}
	}
	t.Records = []TemplateRecord{
		{Type: "MX", GroupID: groupSending, Host: "%returnpath%", PointsTo: s.c.BounceHost, Priority: 10, TTL: recordTTL},
		{Type: "TXT", GroupID: groupSending, Host: "%returnpath%", Data: "v=spf1 include:" + s.c.SPFInclude + " ~all",
			TTL: recordTTL, Conflict: "Prefix", Prefix: "v=spf1"},
		dkim("rsaselector", "rsakey"), dkim("edselector", "edkey"),
		{Type: "MX", GroupID: groupReceiving, Host: "@", PointsTo: s.c.InboundHost, Priority: 10, TTL: recordTTL},
		{Type: "CNAME", GroupID: groupTracking, Host: "%tracking%", PointsTo: s.c.TrackingHost, TTL: recordTTL},
	}
	return t, nil
}

// parameters returns the template's parameters for the wanted records. It returns false if the template cannot produce
// the records, because the domain has another set-up, or the hosts of another region.
func (s *Service) parameters(zone, domain string, wanted []domains.Record) (map[string]string, bool) {
	p := map[string]string{"domain": zone}
	if domain != zone {
		p["host"] = strings.TrimSuffix(domain, "."+zone)
	}
	var groups []string
	made := map[string]bool{}
	group := func(name string) {
		if !made[name] {
			made[name] = true
			groups = append(groups, name)
		}
	}
	label := func(name string) string { return strings.TrimSuffix(name, "."+domain) }
	for _, r := range wanted {
		fits := true
		switch r.Key {
		case "mx":
			p["returnpath"], fits = label(r.FQDN), r.Value == s.c.BounceHost
			group(groupSending)
		case "spf":
			fits = r.Value == "v=spf1 include:"+s.c.SPFInclude+" ~all"
		case "dkim":
			p["rsaselector"], p["rsakey"] = strings.TrimSuffix(label(r.FQDN), "._domainkey"), r.Value
		case "dkim-ed25519":
			p["edselector"], p["edkey"] = strings.TrimSuffix(label(r.FQDN), "._domainkey"), r.Value
		case "receiving":
			fits = r.Value == s.c.InboundHost
			group(groupReceiving)
		case "tracking":
			p["tracking"], fits = label(r.FQDN), r.Value == s.c.TrackingHost
			group(groupTracking)
		case "caa":
		default:
			fits = false
		}
		if !fits {
			return nil, false
		}
	}
	// The group for sending needs both keys. A domain that does not send has no record with the second key.
	if !made[groupSending] || p["rsakey"] == "" || p["edkey"] == "" {
		return nil, false
	}
	p["groupId"] = strings.Join(groups, ",")
	return p, true
}
