package api

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// The policy of a receiving domain is set and read by HTTP. Refused requests name the field.
func TestMTASTS(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		on := true
		in := f.Verified(f.Acme.TeamID, domains.NewDomain{Name: "in.example",
			Capabilities: domains.Capabilities{Receiving: &on}})
		out := f.verified("out.example")
		path := "/domains/" + in.ID + "/mta-sts"
		expect := func(request string, status int, parts ...string) {
			t.Helper()
			w := f.do(t, request)
			if w.Code != status {
				t.Errorf("%s: %d %s", request, w.Code, w.Body)
			}
			for _, part := range parts {
				if !strings.Contains(w.Body.String(), part) {
					t.Errorf("%s: %q is not in %s", request, part, w.Body)
				}
			}
		}
		expect("GET "+path, 200, `"object":"mta_sts"`, `"mode":"off"`, `"policy":null`, `"records":[]`, `"checked_at":null`,
			`"enforce_blocked_reason":null`, `"new_id_at":null`, `"publish_by":null`, `"next_check_at":null`,
			`"records_automatic":false`)
		expect("PUT "+path+"\n\n"+`{"mode":"testing","hosts":["mx2.example"]}`, 200, `"mode":"testing"`, `"status":"pending"`,
			`"max_age":86400`, `mode: testing\nmx: inbound.postrider.test\nmx: mx2.example\nmax_age: 86400\n`,
			`{"name":"mta-sts.in.example","type":"CNAME","value":"postrider.test"}`, `"value":"v=STSv1; id=`,
			`{"host":"mx2.example","source":"named"}`, `"new_id_at":null`, `"next_check_at":"2`)
		expect("GET "+path, 200, `"mode":"testing"`, `{"host":"inbound.postrider.test","source":"installation"}`)
		expect("PUT "+path+"\n\n"+`{"mode":"enforce","max_age":1209600}`, 200, `"max_age":1209600`, `mx: mx2.example`)
		for request, field := range map[string]string{
			"PUT " + path + "\n\n" + `{}`:                                                           "mode",
			"PUT " + path + "\n\n" + `{"mode":"none"}`:                                              "mode",
			"PUT " + path + "\n\n" + `{"mode":"enforce","max_age":86400}`:                           "max_age",
			"PUT " + path + "\n\n" + `{"mode":"testing","hosts":["no host"]}`:                       "hosts",
			"PUT " + path + "\n\n" + `{"mode":"testing","hosts":` + jsonList("a.example", 11) + `}`: "hosts",
			"PUT /domains/" + out.ID + "/mta-sts\n\n" + `{"mode":"testing"}`:                        "mode",
		} {
			expect(request, 422, "`"+field+"`")
		}
		for _, method := range []string{"GET ", "PUT "} {
			body := ""
			if method == "PUT " {
				body = "\n\n" + `{"mode":"off"}`
			}
			expect(method+path+"\nAuthorization: other"+body, 404)
			expect(method+path+"\nAuthorization: sending"+body, 401)
		}
		f.Must(f.ServedPolicies.Check(t.Context()))
		expect("GET "+path, 200, `"status":"working"`, `"checked_at":"2`)
		expect("PUT "+path+"\n\n"+`{"mode":"testing"}`, 200, `"status":"updating"`, `"new_id_at":"2`, `"publish_by":"2`)
		f.Must(f.ServedPolicies.Check(t.Context()))
		if before := f.do(t, "GET "+path).Body.String(); f.do(t, "POST /domains/"+in.ID+"/verify").Code != 200 ||
			f.do(t, "GET "+path).Body.String() == before {
			t.Errorf("a request to verify the domain makes no check due: %s", before)
		}
		expect("PUT "+path+"\n\n"+`{"mode":"off"}`, 200, `"status":"ending"`, `"new_id_at":"2`, `"mode":"off"`, `mode: none`, `"keep_until":"2`)
	})
}

// jsonList returns a JSON array with n equal texts.
func jsonList(text string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(`"`+text+`",`, n), ",") + "]"
}
