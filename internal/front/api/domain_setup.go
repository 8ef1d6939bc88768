package api

import (
	"context"
	"strings"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/sending/domains"
)

type changeSetupIn struct {
	Setup *string               `json:"setup,omitzero" doc:"How the owner publishes the records. records: each record separately. cname: three CNAME records for sending. delegation: one set of NS records." enum:"records,cname,delegation"`
	DMARC wire.Optional[string] `json:"dmarc,omitzero" doc:"The text of the DMARC record, such as v=DMARC1; p=reject. Postrider adds its address for reports to the tag rua. Null restores the default." maxLength:"450"`
	BIMI  wire.Optional[string] `json:"bimi,omitzero" doc:"The text of the BIMI record, such as v=BIMI1; l=https://example.com/logo.svg. Null removes it." maxLength:"1000"`
}

type setupChoice struct {
	Setup     string  `json:"setup" doc:"The set-up." enum:"records,cname,delegation"`
	Available bool    `json:"available" doc:"Whether the set-up can be chosen."`
	Reason    *string `json:"reason" doc:"Why the set-up cannot be chosen; null if it can."`
	Warning   *string `json:"warning" doc:"What to consider before choosing the set-up."`
}

type setupRecord struct {
	Record   string   `json:"record" doc:"The purpose of the record." enum:"SPF,DKIM,Receiving,Tracking,TrackingCAA,Delegation"`
	Name     string   `json:"name" doc:"The name, relative to the registrable domain."`
	FullName string   `json:"full_name" doc:"The whole name."`
	Type     string   `json:"type" doc:"The type of the DNS record." enum:"MX,TXT,CNAME,CAA,NS"`
	TTL      string   `json:"ttl" doc:"The time to live; Auto means the default of the provider."`
	Status   string   `json:"status" doc:"The result of the last check." enum:"not_started,pending,verified,failed,temporary_failure"`
	Value    string   `json:"value" doc:"The value of the record."`
	Priority int      `json:"priority,omitzero" doc:"Only in MX records."`
	Found    []string `json:"found" doc:"The values that the last look-up found instead of the wanted one."`
	Advice   *string  `json:"advice" doc:"What to do so that the record is verified."`
}

type setupAdvised struct {
	Purpose string   `json:"purpose" doc:"The purpose of the record." enum:"dmarc,tls_reports,mta_sts,bimi"`
	Name    string   `json:"name" doc:"The whole name."`
	Type    string   `json:"type" doc:"The type of the DNS record." enum:"TXT,CNAME,TLSA,A,AAAA"`
	Value   string   `json:"value" doc:"The value of the record."`
	Why     string   `json:"why" doc:"The benefit of the record."`
	Status  string   `json:"status" doc:"missing: the name has no such record. different: the name has another record of this kind." enum:"not_started,verified,missing,different"`
	Found   []string `json:"found" doc:"The values that the last look-up found instead of the wanted one."`
}

type setupField struct {
	Label string `json:"label" doc:"The label of the field in the provider's form. Empty if it is not known."`
	Value string `json:"value" doc:"The text to enter into the field."`
}

type setupForm struct {
	FullName string     `json:"full_name" doc:"The full_name of the record."`
	Type     string     `json:"type" doc:"The type of the DNS record."`
	Name     setupField `json:"name" doc:"The field for the name of the record."`
	Value    setupField `json:"value" doc:"The field for the value of the record."`
	Priority *string    `json:"priority" doc:"The number to enter into the field for the priority of an MX record; null if there is no such field."`
}

type setupProblem struct {
	Code     string   `json:"code" doc:"The kind of problem, such as name_doubled. New kinds may be added."`
	FullName string   `json:"full_name" doc:"The name with the problem."`
	Type     string   `json:"type" doc:"The type of the record."`
	Found    []string `json:"found" doc:"The values that were found at the name."`
	Text     string   `json:"text" doc:"A description of the problem, with advice."`
}

type setupProvider struct {
	Name      *string     `json:"name" doc:"The DNS provider, if it was recognized."`
	Link      *string     `json:"link" doc:"The provider's page with the records of the domain."`
	ApplyLink *string     `json:"apply_link" doc:"A page on which the provider can add the records automatically (Domain Connect)."`
	Notes     []string    `json:"notes" doc:"Notes about the provider's form."`
	Forms     []setupForm `json:"forms" doc:"The records in the format of the provider's form."`
}

type setupWire struct {
	Object      string         `json:"object"`
	ID          string         `json:"id" doc:"The ID of the domain."`
	Name        string         `json:"name" doc:"The domain."`
	Setup       string         `json:"setup" doc:"The chosen set-up." enum:"records,cname,delegation"`
	FormerSetup *string        `json:"former_setup" doc:"The previous set-up, as long as its records are found. The domain also works with these records."`
	Status      string         `json:"status" doc:"The status of the domain, based on the records of the chosen set-up." enum:"not_started,pending,verified,failed,partially_verified,partially_failed"`
	Setups      []setupChoice  `json:"setups" doc:"The set-ups, and whether each can be chosen."`
	Records     []setupRecord  `json:"records" doc:"The records of the chosen set-up."`
	Former      []setupRecord  `json:"former_records" doc:"The records of former_setup that the chosen set-up does not have."`
	Keys        []dkimKeyWire  `json:"keys" doc:"The DKIM keys of the domain, including those of rotations."`
	DMARC       *string        `json:"dmarc" doc:"The chosen DMARC record; null for the default."`
	BIMI        *string        `json:"bimi" doc:"The chosen BIMI record; null for none."`
	Advised     []setupAdvised `json:"advised" doc:"Optional records. They do not affect status."`
	Provider    *setupProvider `json:"provider" doc:"Null until the DNS was examined. The first request begins the examination, which takes some seconds."`
	Problems    []setupProblem `json:"problems" doc:"Problems with the DNS records of the domain."`
}

// valuesFound returns the values that a look-up found, which are stored one per line.
func valuesFound(text string) []string {
	if text == "" {
		return []string{}
	}
	return strings.Split(text, "\n")
}

func setupRecords(all []domains.Record) []setupRecord {
	list := []setupRecord{}
	for _, r := range all {
		list = append(list, setupRecord{r.Kind, r.Name, r.FQDN, r.Type, "Auto", string(r.Status), r.Value, r.Priority,
			valuesFound(r.Found), orNull(r.Advice())})
	}
	return list
}

func setupToWire(v domains.Setup) setupWire {
	d := &v.Domain
	w := setupWire{Object: "domain_setup", ID: d.ID, Name: d.Name, Setup: d.Setup, FormerSetup: orNull(d.FormerSetup),
		Status: string(d.Status), Setups: []setupChoice{}, Records: setupRecords(v.Records), Former: setupRecords(v.Former),
		Keys: dkimKeysToWire(v.Keys), DMARC: orNull(d.DMARCRecord), BIMI: orNull(d.BIMIRecord),
		Advised: []setupAdvised{}, Problems: []setupProblem{}}
	for _, c := range v.Choices {
		w.Setups = append(w.Setups, setupChoice{c.Setup, c.Reason == "", orNull(c.Reason), orNull(c.Warning)})
	}
	for _, a := range v.Advised {
		w.Advised = append(w.Advised, setupAdvised{a.Purpose, a.Name, a.Type, a.Value, a.Why, string(a.State),
			valuesFound(a.Found)})
	}
	for _, x := range v.Problems {
		w.Problems = append(w.Problems, setupProblem{x.Code, x.Name, x.Type, valuesFound(x.Found), x.Text})
	}
	if v.Advice == nil {
		return w
	}
	p := &setupProvider{Name: orNull(v.Advice.Provider), Link: orNull(v.Advice.Link),
		ApplyLink: orNull(v.Advice.ApplyLink), Notes: append([]string{}, v.Advice.Notes...), Forms: []setupForm{}}
	for _, f := range v.Advice.Forms {
		for _, r := range v.Records {
			if r.Key == f.Key {
				p.Forms = append(p.Forms, setupForm{r.FQDN, r.Type, setupField{f.NameLabel, f.Name},
					setupField{f.ValueLabel, f.Value}, orNull(f.Priority)})
				break
			}
		}
	}
	w.Provider = p
	return w
}

func (a *API) getDomainSetup(ctx context.Context, c *wire.Call, _ wire.None) (setupWire, error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return setupWire{}, err
	}
	v, err := a.Services.Domains.GetSetup(ctx, c.TeamID, id)
	if err != nil {
		return setupWire{}, err
	}
	return setupToWire(v), nil
}

func (a *API) changeDomainSetup(ctx context.Context, c *wire.Call, in changeSetupIn) (setupWire, error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return setupWire{}, err
	}
	change := domains.SetupChange{Setup: in.Setup, DMARC: in.DMARC.Replacement(), BIMI: in.BIMI.Replacement()}
	if err := a.Services.Domains.ChangeSetup(ctx, c.TeamID, id, change); err != nil {
		return setupWire{}, err
	}
	return a.getDomainSetup(ctx, c, wire.None{})
}
