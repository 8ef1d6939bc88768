package cli

import (
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/platform/db"
)

// audience calls every operation on contacts, properties and segments.
func (d *driver) audience() {
	d.t.Helper()
	ctx := d.t.Context()
	must := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Fatal(err)
		}
	}
	for _, p := range []string{`{"key":"plan","type":"string"}`, `{"key":"seats","type":"number"}`,
		`{"key":"gone","type":"string"}`} {
		d.do("POST", "/contact-properties", p)
	}
	gone := d.pages("/contact-properties")
	hand := d.do("POST", "/segments", `{"name":"By hand"}`)
	d.do("POST", "/segments", `{"name":"By filter","filter":{"type":"and","rules":[
		{"type":"rule","field":"contact.properties.plan","operator":"eq","value":"pro"},
		{"type":"rule","field":"contact.properties.seats","operator":"gt","value":1}]}}`)
	filtered := d.pages("/segments")
	deleted := d.do("POST", "/audiences", `{"name":"Deleted"}`)
	id := d.do("POST", "/contacts", `{"email":"r@one.example","properties":{"plan":"pro","seats":2,"gone":"x"},`+
		`"segments":["`+hand+`","`+deleted+`"]}`)
	d.do("POST", "/audiences/"+hand+"/contacts", `{"email":"s@one.example","properties":{"plan":"pro","seats":3}}`)
	d.do("POST", "/contacts", `{"email":"r@one.example","properties":{"plan":"free","seats":null},"segments":["`+
		hand+`"]}`)
	d.do("PATCH", "/contacts/r@one.example", `{"first_name":"R","properties":{"seats":7,"plan":"pro"}}`)
	d.do("PATCH", "/contacts/"+id, `{"email":"t@one.example"}`)
	d.do("GET", "/contacts/"+id, "")
	d.do("GET", "/contacts/t@one.example", "")
	d.do("GET", "/audiences/"+hand+"/contacts/t@one.example", "")
	d.do("GET", "/audiences/"+filtered+"/contacts/"+id, "")
	d.pages("/contacts")
	d.pages("/contacts?segment_id=" + hand)
	d.pages("/segments/" + filtered + "/contacts")
	d.pages("/contacts/" + id + "/segments")
	d.pages("/contacts/" + id + "/topics")
	d.do("DELETE", "/contacts/"+id+"/segments/"+hand, "")
	d.do("POST", "/contacts/"+id+"/segments/"+hand, "")
	d.do("PATCH", "/segments/"+hand, `{"name":"Renamed"}`)
	d.do("PATCH", "/segments/"+filtered,
		`{"filter":{"type":"rule","field":"contact.properties.plan","operator":"eq","value":"pro"}}`)
	d.do("PATCH", "/contact-properties/"+gone, `{"fallback_value":"none"}`)
	d.do("GET", "/contact-properties/"+gone, "")
	for _, segmentID := range []string{hand, filtered} {
		d.do("GET", "/segments/"+segmentID, "")
		for _, a := range []contacts.Audience{{}, {SegmentID: segmentID, Before: d.DB.Now(), Properties: []string{"plan"}}} {
			members, _, err := d.Contacts.Walk(ctx, d.team, a, "", 1)
			must(err)
			members, _, err = d.Contacts.Walk(ctx, d.team, a, members[0].ID, 1)
			must(err)
			_, err = d.Contacts.AudienceMembers(ctx, d.DB.Reader, d.team, "", []string{id, members[0].ID})
			must(err)
			must(d.DB.Update(ctx, func(tx *db.Tx) error {
				d.Contacts.RecordMailed(ctx, tx, d.team, []string{id, members[0].ID})
				return nil
			}))
		}
	}
	d.do("DELETE", "/contacts/s@one.example", "")
	d.do("DELETE", "/contact-properties/"+gone, "")
	d.do("DELETE", "/audiences/"+deleted, "")
}
