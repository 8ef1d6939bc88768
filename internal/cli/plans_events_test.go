package cli

import "strings"

// events calls all operations on custom events.
func (d *driver) events() {
	d.t.Helper()
	id := d.do("POST", "/events", `{"name":"trial.started","schema":{"plan":"string"}}`)
	d.do("POST", "/events", `{"name":"trial.ended"}`)
	d.do("PATCH", "/events/"+id, `{"schema":{"plan":"string","seats":"number"}}`)
	d.do("PATCH", "/events/trial.ended", `{"schema":null}`)
	d.do("GET", "/events/"+id, "")
	d.do("GET", "/events/trial.started", "")
	d.pages("/events")
	contactID := d.do("POST", "/contacts", `{"email":"events@one.example"}`)
	sent := `{"event":"trial.started","contact_id":"` + contactID + `","payload":{"plan":"pro"}}`
	d.do("POST", "/events/send", sent)
	d.do("POST", "/events/send", strings.Replace(sent, `"contact_id":"`+contactID, `"email":"nobody@one.example`, 1))
	d.do("DELETE", "/events/trial.ended", "")
	d.do("DELETE", "/events/"+id, "")
}
