package api

import (
	"cmp"
	"context"
	"net/http"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

type capabilitiesIn struct {
	Sending   *string `json:"sending,omitzero" enum:"enabled,disabled"`
	Receiving *string `json:"receiving,omitzero" enum:"enabled,disabled"`
}

type createDomainIn struct {
	Name              string         `json:"name" doc:"The domain, such as example.com."`
	Region            string         `json:"region,omitzero" enum:"us-east-1,eu-west-1,sa-east-1,ap-northeast-1" default:"us-east-1"`
	CustomReturnPath  string         `json:"custom_return_path,omitzero" doc:"The first label of the domain that receives bounces." default:"send" maxLength:"63"`
	OpenTracking      bool           `json:"open_tracking,omitzero"`
	ClickTracking     bool           `json:"click_tracking,omitzero"`
	TLS               string         `json:"tls,omitzero" doc:"opportunistic uses TLS if the receiving server offers it. enforced sends only over TLS with a verified certificate." enum:"opportunistic,enforced" default:"opportunistic"`
	Capabilities      capabilitiesIn `json:"capabilities,omitzero"`
	TrackingSubdomain string         `json:"tracking_subdomain,omitzero" doc:"The first label of the hostname of tracked links." maxLength:"63"`
}

type updateDomainIn struct {
	OpenTracking      *bool                 `json:"open_tracking,omitzero"`
	ClickTracking     *bool                 `json:"click_tracking,omitzero"`
	TLS               *string               `json:"tls,omitzero" enum:"opportunistic,enforced"`
	Capabilities      capabilitiesIn        `json:"capabilities,omitzero"`
	TrackingSubdomain wire.Optional[string] `json:"tracking_subdomain,omitzero" doc:"Null removes it." maxLength:"63"`

	Name       wire.Immutable[string] `json:"name,omitzero" hidden:"true"`
	Region     wire.Immutable[string] `json:"region,omitzero" hidden:"true"`
	ReturnPath wire.Immutable[string] `json:"custom_return_path,omitzero" hidden:"true"`
}

type capabilitiesWire struct {
	Sending   string `json:"sending" enum:"enabled,disabled"`
	Receiving string `json:"receiving" enum:"enabled,disabled"`
}

type recordWire struct {
	Record   string `json:"record" enum:"SPF,DKIM,Receiving,Tracking,TrackingCAA,Delegation"`
	Name     string `json:"name"`
	Type     string `json:"type" enum:"MX,TXT,CNAME,CAA,NS"`
	TTL      string `json:"ttl"`
	Status   string `json:"status" enum:"not_started,pending,verified,failed,temporary_failure"`
	Value    string `json:"value"`
	Priority int    `json:"priority,omitzero" doc:"Only in MX records."`
}

// DomainItem represents a domain in a list, without its DNS records. DomainItem is exported because Huma skips
// the fields of unexported embedded types.
type DomainItem struct {
	ID            string           `json:"id"`
	Name          string           `json:"name"`
	Status        string           `json:"status" enum:"not_started,pending,verified,failed,partially_verified,partially_failed"`
	CreatedAt     wire.DBTime      `json:"created_at"`
	Region        string           `json:"region"`
	OpenTracking  bool             `json:"open_tracking"`
	ClickTracking bool             `json:"click_tracking"`
	Capabilities  capabilitiesWire `json:"capabilities"`

	TrackingInactive string `json:"tracking_inactive_reason,omitzero" doc:"Why nothing is tracked although tracking is on. Only Postrider has this field." enum:"no_tracking_subdomain,tracking_subdomain_not_verified,domain_not_verified"`
}

type domainWire struct {
	Object string `json:"object"`
	DomainItem
	TLS               string       `json:"tls" enum:"opportunistic,enforced"`
	TrackingSubdomain *string      `json:"tracking_subdomain"`
	Records           []recordWire `json:"records"`
}

func onOff(b bool) string {
	if b {
		return "enabled"
	}
	return "disabled"
}

func (a *API) domainToItem(d domains.Domain) DomainItem {
	return DomainItem{d.ID, d.Name, string(d.Status), wire.DBTime(d.CreatedAt), d.Region, d.OpenTracking, d.ClickTracking,
		capabilitiesWire{onOff(d.Sending), onOff(d.Receiving)}, a.Services.Domains.TrackingInactive(&d)}
}

func (a *API) domainToWire(d domains.Domain) domainWire {
	w := domainWire{Object: "domain", DomainItem: a.domainToItem(d), TLS: d.TLS,
		TrackingSubdomain: orNull(d.TrackingSubdomain),
		Records:           []recordWire{}}
	for _, r := range a.Services.Domains.Records(&d) {
		w.Records = append(w.Records, recordWire{r.Kind, r.Name, r.Type, "Auto", string(r.Status), r.Value, r.Priority})
	}
	return w
}

func capabilities(in capabilitiesIn) (c domains.Capabilities, err error) {
	for _, f := range []struct {
		name string
		text *string
		dst  **bool
	}{{"sending", in.Sending, &c.Sending}, {"receiving", in.Receiving, &c.Receiving}} {
		if f.text == nil {
			continue
		}
		on := *f.text == "enabled"
		if !on && *f.text != "disabled" {
			return c, invalidChoice("capabilities."+f.name, "enabled", "disabled")
		}
		*f.dst = &on
	}
	return c, nil
}

func (in *createDomainIn) domain() (domains.NewDomain, error) {
	c, err := capabilities(in.Capabilities)
	return domains.NewDomain{Name: in.Name, Region: in.Region, ReturnPath: in.CustomReturnPath,
		TrackingSubdomain: in.TrackingSubdomain,
		TLS:               in.TLS, OpenTracking: in.OpenTracking, ClickTracking: in.ClickTracking, Capabilities: c}, err
}

func (a *API) createDomain(ctx context.Context, c *wire.Call, in createDomainIn) (domainWire, error) {
	n, err := in.domain()
	if err != nil {
		return domainWire{}, err
	}
	d, err := a.Services.Domains.Create(ctx, c.TeamID, n)
	if err == nil {
		a.warnOfTracking(c, d)
	}
	return a.domainToWire(d), err
}

// warnOfTracking adds a warning to the response if a domain's tracking is switched on but inactive.
func (a *API) warnOfTracking(c *wire.Call, d domains.Domain) {
	text := ""
	switch a.Services.Domains.TrackingInactive(&d) {
	case domains.NoTrackingSubdomain:
		text = "Opens and clicks are not tracked, because the domain has no tracking_subdomain. Set tracking_subdomain, " +
			"install its CNAME record and verify the domain."
	case domains.TrackingRecordNotVerified:
		text = "Opens and clicks are not tracked until the CNAME record of tracking_subdomain is verified. Install the " +
			"record and verify the domain."
	case domains.TrackingDomainNotVerified:
		text = "Opens and clicks are not tracked until the domain is verified. Install its records and verify it."
	}
	if text != "" {
		c.Header.Set(wire.WarningHeader, text)
	}
}

func (a *API) listDomains(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[DomainItem], error) {
	p, err := c.Page(0)
	if err != nil {
		return wire.List[DomainItem]{}, err
	}
	read := func(p page.Page) ([]domains.Domain, bool, error) { return a.Services.Domains.List(ctx, c.TeamID, p) }
	return wire.FullList(p, read, func(d domains.Domain) string { return d.ID }, a.domainToItem)
}

func (a *API) getDomain(ctx context.Context, c *wire.Call, _ wire.None) (domainWire, error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return domainWire{}, err
	}
	d, err := a.Services.Domains.Get(ctx, c.TeamID, id)
	return a.domainToWire(d), err
}

func (a *API) updateDomain(ctx context.Context, c *wire.Call, in updateDomainIn) (ref, error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return ref{}, err
	}
	caps, err := capabilities(in.Capabilities)
	if err != nil {
		return ref{}, err
	}
	if in.Name.Given() || in.Region.Given() || in.ReturnPath.Given() {
		d, err := a.Services.Domains.Get(ctx, c.TeamID, id)
		if err == nil {
			err = cmp.Or(in.Name.MustEqual("name", d.Name), in.Region.MustEqual("region", d.Region),
				in.ReturnPath.MustEqual("custom_return_path", d.ReturnPath))
		}
		if err != nil {
			return ref{}, err
		}
	}
	err = a.Services.Domains.Update(ctx, c.TeamID, id, domains.Change{OpenTracking: in.OpenTracking,
		ClickTracking: in.ClickTracking, TLS: in.TLS, TrackingSubdomain: in.TrackingSubdomain.Replacement(),
		Capabilities: caps})
	if err != nil {
		return ref{}, err
	}
	if d, err := a.Services.Domains.Get(ctx, c.TeamID, id); err == nil { // the change is made even if no warning is
		a.warnOfTracking(c, d)
	}
	return ref{"domain", id}, nil
}

func (a *API) deleteDomain(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return gone{}, err
	}
	return gone{"domain", id, true}, a.Services.Domains.Delete(ctx, c.TeamID, id)
}

func (a *API) verifyDomain(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return ref{}, err
	}
	return ref{"domain", id}, a.Services.Domains.Verify(ctx, c.TeamID, id)
}

type claimRecord struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
	TTL   string `json:"ttl"`
}

type claimWire struct {
	Object        string      `json:"object"`
	ID            string      `json:"id"`
	Name          string      `json:"name"`
	Status        string      `json:"status" enum:"pending,verified,completed,blocked,expired,superseded,canceled,failed"`
	DomainID      *string     `json:"domain_id"`
	Region        *string     `json:"region"`
	Record        claimRecord `json:"record"`
	BlockedReason *string     `json:"blocked_reason"`
	FailureReason *string     `json:"failure_reason"`
	CreatedAt     wire.DBTime `json:"created_at"`
	ExpiresAt     wire.DBTime `json:"expires_at"`
}

func claimToWire(c domains.Claim) claimWire {
	return claimWire{"domain_claim", c.ID, c.Name, string(c.Status), orNull(c.DomainID), orNull(c.Region),
		claimRecord{"TXT", c.Name, c.RecordValue(), "Auto"}, orNull(c.BlockedReason), orNull(c.FailureReason),
		wire.DBTime(c.CreatedAt),
		wire.DBTime(c.ExpiresAt)}
}

func (a *API) claimDomain(ctx context.Context, c *wire.Call, in createDomainIn) (claimWire, error) {
	n, err := in.domain()
	if err != nil {
		return claimWire{}, err
	}
	claim, created, err := a.Services.Domains.Claim(ctx, c.TeamID, n)
	if !created {
		c.Status = http.StatusOK
	}
	return claimToWire(claim), err
}

func (a *API) getClaim(ctx context.Context, c *wire.Call, _ wire.None) (claimWire, error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return claimWire{}, err
	}
	claim, err := a.Services.Domains.GetClaim(ctx, c.TeamID, id)
	return claimToWire(claim), err
}

func (a *API) verifyClaim(ctx context.Context, c *wire.Call, _ wire.None) (claimWire, error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return claimWire{}, err
	}
	claim, err := a.Services.Domains.VerifyClaim(ctx, c.TeamID, id)
	return claimToWire(claim), err
}
