package api

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

type domainPolicyIn struct {
	Mode   string                            `json:"mode" doc:"testing: senders deliver in any case, and report failures. enforce: senders do not deliver to hosts that they cannot verify. off: the policy is withdrawn." enum:"off,testing,enforce"`
	MaxAge int64                             `json:"max_age,omitzero" doc:"How long senders may keep the policy, in seconds. The mode testing allows 86400 (the default) to 31557600, and the mode enforce 604800 (the default) to 31557600." maximum:"31557600"`
	Hosts  wire.Array[string, maxNamedHosts] `json:"hosts,omitzero" doc:"Mail hosts that the policy lists before the MX records name them. If absent, the list stays as it is. An empty list removes all."`
}

type domainPolicyHostWire struct {
	Host   string `json:"host" doc:"The name of the mail host."`
	Source string `json:"source" doc:"Why the policy lists the host. installation: the host receives mail for this installation. mx: the MX records name it. named: the team has named it. earlier: the MX records named it until recently." enum:"installation,mx,named,earlier"`
}

type domainPolicyRecordWire struct {
	Name  string `json:"name" doc:"The whole name."`
	Type  string `json:"type" doc:"The type of the DNS record." enum:"CNAME,TXT"`
	Value string `json:"value" doc:"The value of the record."`
}

type domainPolicyProblemWire struct {
	Type    string `json:"type" doc:"The part that is wrong: a mail host, the policy, a record, the MX records or a certificate." enum:"host,policy,record,mx,certificate"`
	Message string `json:"message"`
}

type domainPolicyWire struct {
	Object   string                    `json:"object"`
	DomainID string                    `json:"domain_id"`
	Domain   string                    `json:"domain" doc:"The domain."`
	Mode     string                    `json:"mode" doc:"The mode that was chosen." enum:"off,testing,enforce"`
	Status   string                    `json:"status" doc:"pending: the records were not found yet. working: senders can use the policy. updating: the policy was changed, and the TXT record still has the former id. Publish the record after new_id_at and before publish_by. failing: the last check found problems. ending: the policy is withdrawn, but still served with the mode none." enum:"off,pending,working,updating,failing,ending"`
	MaxAge   *int64                    `json:"max_age" doc:"How long senders may keep the policy, in seconds."`
	PolicyID *string                   `json:"policy_id" doc:"The id that the TXT record should have now. After a change, it stays the former id until new_id_at."`
	Policy   *string                   `json:"policy" doc:"The text of the policy, as it is served."`
	Hosts    []domainPolicyHostWire    `json:"hosts" doc:"The mail hosts that the policy lists."`
	Records  []domainPolicyRecordWire  `json:"records" doc:"The DNS records that the policy needs."`
	Problems []domainPolicyProblemWire `json:"problems" doc:"The problems that the last check found. While the status is updating or ending, a former id in the TXT record is one of them from new_id_at on."`

	Automatic   bool          `json:"records_automatic" doc:"Whether the domain is delegated to the name servers of this installation, which publish the records and each new id. Its owner then publishes nothing."`
	NewIDAt     *wire.ISOTime `json:"new_id_at" doc:"When the new id appears in policy_id and records, five minutes after a change of the policy. Publish the TXT record then. Null if no new id will appear."`
	PublishBy   *wire.ISOTime `json:"publish_by" doc:"Until when to publish the new id; null in other states than updating. Afterwards, the status is failing, and the team gets a notice."`
	NextCheckAt *wire.ISOTime `json:"next_check_at" doc:"When the next check is due; null without a policy. POST /domains/{domain_id}/verify makes it due at once, and it then runs within a minute."`

	CheckedAt      *wire.ISOTime `json:"checked_at" doc:"When the records and the hosts were last checked; null before the first check."`
	TestingSince   *wire.ISOTime `json:"testing_since" doc:"Since when the mode has been testing; null in other modes."`
	KeepUntil      *wire.ISOTime `json:"keep_until" doc:"Until when the records must stay after the policy was withdrawn, because senders may have copies of it; null in other modes."`
	EnforceBlocked *string       `json:"enforce_blocked_reason" doc:"Why the mode enforce would be refused; null if it would be accepted."`
	EnforceAdvised bool          `json:"enforce_advised" doc:"Whether the policy has been tested for 14 days without a failure in the TLS reports about the domain."`
}

func domainPolicyToWire(p servedpolicies.Policy) domainPolicyWire {
	w := domainPolicyWire{Object: "mta_sts", DomainID: p.DomainID, Domain: p.Domain, Mode: string(p.Mode),
		Status: string(p.State), PolicyID: orNull(p.ID), Policy: orNull(p.Text), Hosts: []domainPolicyHostWire{},
		Records: []domainPolicyRecordWire{}, Problems: []domainPolicyProblemWire{}, CheckedAt: isoOrNull(p.CheckedAt),
		TestingSince: isoOrNull(p.TestingSince), KeepUntil: isoOrNull(p.KeepUntil),
		EnforceBlocked: orNull(p.EnforceBlocked), EnforceAdvised: p.EnforceAdvised, Automatic: p.Automatic,
		NewIDAt: isoOrNull(p.NewIDAt), PublishBy: isoOrNull(p.PublishBy), NextCheckAt: isoOrNull(p.NextCheckAt)}
	if p.MaxAge > 0 {
		w.MaxAge = new(int64(p.MaxAge / time.Second))
	}
	for _, h := range p.Hosts {
		w.Hosts = append(w.Hosts, domainPolicyHostWire{h.Name, h.Source})
	}
	for _, r := range p.Records {
		w.Records = append(w.Records, domainPolicyRecordWire(r))
	}
	for _, x := range p.Problems {
		w.Problems = append(w.Problems, domainPolicyProblemWire(x))
	}
	return w
}

func (a *API) getMTASTS(ctx context.Context, c *wire.Call, _ wire.None) (domainPolicyWire, error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return domainPolicyWire{}, err
	}
	p, err := a.Services.ServedPolicies.Get(ctx, c.TeamID, id)
	return domainPolicyToWire(p), err
}

func (a *API) setMTASTS(ctx context.Context, c *wire.Call, in domainPolicyIn) (domainPolicyWire, error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return domainPolicyWire{}, err
	}
	p, err := a.Services.ServedPolicies.Set(ctx, c.TeamID, id, servedpolicies.Change{Mode: servedpolicies.Mode(in.Mode),
		MaxAge: time.Duration(in.MaxAge) * time.Second, Hosts: in.Hosts})
	return domainPolicyToWire(p), err
}
