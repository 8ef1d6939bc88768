package api

import (
	"encoding/json"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// An OAuth client may be allowed to write broadcasts but not to send them. Such a client can neither send a broadcast
// when creating it nor send a test email.
func TestWriteBroadcastsWithoutSending(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("example.org")
		f.grant("broadcasts:write")
		draft := `{"from":"a@example.org","subject":"s","text":"t","segment_id":"` + f.segment("c@example.org") + `"`
		w := f.do(t, "POST /broadcasts"+as+draft+`}`)
		var made ref
		if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code != 201 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		for path, body := range map[string]string{
			"":                      draft + `,"send":true}`,
			"/" + made.ID + "/test": `{"to":["a@example.net"]}`,
			"/" + made.ID + "/send": `{}`,
		} {
			if w := f.do(t, "POST /broadcasts"+path+as+body); w.Code != 403 {
				t.Errorf("POST /broadcasts%s: %d %s", path, w.Code, w.Body)
			}
		}
		n := f.Count(`SELECT COUNT(*) FROM broadcasts WHERE status <> 'draft'`) + f.Count(`SELECT COUNT(*) FROM emails`)
		if n != 0 {
			t.Errorf("%d were sent", n)
		}
	})
}
