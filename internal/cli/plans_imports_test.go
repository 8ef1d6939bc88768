package cli

import (
	"strings"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// imported calls all operations on contact imports.
func (d *driver) imported() {
	d.t.Helper()
	ctx := d.t.Context()
	segmentID := d.do("POST", "/segments", `{"name":"Imported"}`)
	topicID := d.do("POST", "/topics", `{"name":"Imported","default_subscription":"opt_out"}`)
	file := "email,first_name,plan,seats\na@import.example,A,pro,1\nwrong@,,,\nb@import.example,B,,x\n"
	last := ""
	for _, conflict := range []string{"upsert", "upsert", "skip"} {
		stored, err := d.Imports.Store(ctx, strings.NewReader(file))
		if err != nil {
			d.t.Fatal(err)
		}
		i, err := d.Imports.Create(ctx, d.team, stored, imports.NewImport{OnConflict: conflict,
			Segments: []string{segmentID}, Topics: []contacts.Choice{{TopicID: topicID, Subscription: contacts.OptIn}},
			Map: &imports.Map{FirstName: "first_name", Properties: map[string]imports.Column{"plan": {Name: "plan"},
				"seats": {Name: "seats", Type: "number"}}}})
		if err != nil {
			d.t.Fatal(err)
		}
		if conflict == "skip" {
			d.do("POST", "/contacts/imports/"+i.ID+"/cancel", "")
		}
		eventually(d.t, "the import ends", func() bool {
			return d.count(`SELECT COUNT(*) FROM contact_imports WHERE id = $1 AND finished_at > 0`, db.ID(i.ID)) == 1
		})
		if conflict == "upsert" {
			last = i.ID
		}
		file = strings.Replace(file, ",A,pro,1", ",C,free,2", 1)
		if status, text := d.ask(d.key, "GET", "/contacts/imports/"+i.ID+"/failures", ""); status != 200 {
			d.t.Errorf("%d %s", status, text)
		}
	}
	d.do("GET", d.pagesOfImports()+"?status=completed", "")
	a, err := erasure.Parse("wrong@import.example")
	if err == nil {
		_, err = imports.EraseAddress(ctx, d.DB, a, erasure.Scope{Teams: []string{d.team}, All: true})
	}
	if err != nil {
		d.t.Error(err)
	}
	d.change(`UPDATE contact_imports SET finished_at = $1 WHERE id = $2 AND team_id = $3`,
		time.Now().Add(-2*d.Config.ImportRetention).UnixMicro(), db.ID(last), db.ID(d.team))
}

func (d *driver) pagesOfImports() string {
	const path = "/contacts/imports"
	d.do("GET", path+"/"+d.pages(path), "")
	return path
}
