package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/domains"
)

// exampleGroups lists the groups in an order in which their examples work one after another. Operations that delete
// something are run last, in the opposite order of groups.
var exampleGroups = []string{"domains", "api-keys", "templates", "topics", "segments", "contact-properties", "contacts",
	"audiences", "emails", "receiving", "suppressions", "webhooks", "events", "automations", "broadcasts", "oauth-grants",
	"approvals", "team", "usage", "logs", "audit-log"}

// madeIDs maps operations to the parameter that stands for the object that they create.
var madeIDs = map[string]string{"POST /domains": "domain_id", "POST /api-keys": "api_key_id",
	"POST /templates": "template_id", "POST /topics": "topic_id", "POST /segments": "segment_id",
	"POST /contact-properties": "contact_property_id", "POST /contacts": "contact_id",
	"POST /contacts/imports": "import_id", "POST /contacts/{contact}/erase": "erasure_id",
	"POST /audiences": "audience_id",
	"POST /emails":    "email_id", "POST /webhooks": "webhook_id", "POST /events": "event_id",
	"POST /automations": "automation_id", "POST /broadcasts": "broadcast_id", "POST /approvals": "approval_id",
	"POST /domains/{domain_id}/forwards": "forward_id",
	"POST /team/invitations":             "invitation_id", "POST /suppressions": "suppression_id"}

// exampleRun sends the examples to a node.
type exampleRun struct {
	*fixture
	t          *testing.T
	operations map[string]*wire.ReferenceOperation // by method and path
	group      map[string]string                   // the IDs of groups, by method and path
	order      []string                            // the operations in the order in which their examples run
	ids        map[string]string                   // real IDs by the names of parameters
	shown      []string                            // pairs of a real ID and the ID that stands for it in the reference
	seen       map[string]string                   // further real IDs
}

// set makes id the object that a parameter stands for from now on.
func (x *exampleRun) set(name, id string) {
	if id == "" {
		x.t.Fatalf("no ID for %s", name)
	}
	x.ids[name] = id
	x.shown = append([]string{id, exampleParam(name)}, x.shown...)
}

// find sets a parameter to the value at a path of JSON names, such as data.0.id, in the response to a request.
func (x *exampleRun) find(name, request, path string) {
	x.t.Helper()
	w := x.do(x.t, request)
	x.set(name, at(w.Body.Bytes(), path))
}

// at returns the string at a path of JSON names.
func at(text []byte, path string) string {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return ""
	}
	for name := range strings.SplitSeq(path, ".") {
		switch of := v.(type) {
		case map[string]any:
			v = of[name]
		case []any:
			i := int(name[0] - '0')
			if i >= len(of) {
				return ""
			}
			v = of[i]
		}
	}
	s, _ := v.(string)
	return s
}

// exampleFile is the content of the file contacts.csv, which some examples upload.
const exampleFile = "email,first_name\nkatherine@example.net,Katherine\nno address,Nobody\n"

// shellWords splits a command as a shell does, and replaces the variables.
func shellWords(command, key string) (words []string) {
	command = strings.ReplaceAll(command, "\\\n", " ")
	var word strings.Builder
	in := false
	for i := 0; i < len(command); i++ {
		switch c := command[i]; c {
		case '\'':
			end := strings.IndexByte(command[i+1:], '\'')
			word.WriteString(command[i+1 : i+1+end])
			i, in = i+1+end, true
		case '"':
			end := strings.IndexByte(command[i+1:], '"')
			word.WriteString(strings.NewReplacer("$URL", "", "$KEY", key).Replace(command[i+1 : i+1+end]))
			i, in = i+1+end, true
		case '\\':
			i++
			word.WriteByte(command[i])
		case ' ', '\n':
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			in = false
		default:
			word.WriteByte(c)
			in = true
		}
	}
	return append(words, word.String())
}

// send sends the request that a curl command makes.
func (x *exampleRun) send(command, key string) *httptest.ResponseRecorder {
	x.t.Helper()
	words := shellWords(command, key)
	method, target, headers, body := "GET", words[0], "\nUser-Agent: curl/8.5.0", ""
	var form []part
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "-X":
			i++
			method = words[i]
		case "-H":
			i++
			headers += "\n" + words[i]
		case "-d":
			i++
			body = words[i]
			if method == "GET" {
				method = "POST"
			}
		case "-F":
			i++
			name, v, _ := strings.Cut(words[i], "=")
			if strings.HasPrefix(v, "@") {
				v = exampleFile
			}
			form = append(form, part{name, v})
			method = "POST"
		default:
			target = words[i]
		}
	}
	if form != nil {
		mediaType, text := formOf(x.t, form...)
		headers, body = headers+"\nContent-Type: "+mediaType, text
	}
	return x.do(x.t, method+" "+target+headers+"\n\n"+body)
}

// real replaces the IDs of the reference by real ones.
func (x *exampleRun) real(text string) string {
	for name, id := range x.ids {
		text = strings.ReplaceAll(text, exampleParam(name), id)
	}
	return text
}

var (
	anyID     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	variables = []struct {
		is *regexp.Regexp
		to string
	}{
		{regexp.MustCompile(`re_\w{8}_\w{24}`), "re_c1tpEyD8_NKFusih9vKVQknRAQfmFcWCv"},
		{regexp.MustCompile(`whsec_[\w+/=]{40,}`), "whsec_SXQgaXMgbm90IGEgcmVhbCBzZWNyZXQsIGJ1dCBpdCBsb29rcyBsaWtlIGl0"},
		{regexp.MustCompile(`p=[\w+/=]{40,}`), "p=MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA…IDAQAB"},
		{regexp.MustCompile(`(msg|atmpt)_[0-9a-f]{32}`), "${1}_019a4c1e5d0c7b1f8a2c3d4e5f607182"},
		{regexp.MustCompile(`verification=[0-9a-f]{32}`), "verification=5f3c1a9e7b2d4f608c1e3a5b7d9f0123"},
		{regexp.MustCompile(`(/download/(?:received/|raw/)?|token=)[\w.-]{40,}`), "${1}eyJhbGciOiJIUzI1NiJ9…"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?\+00`), "2026-11-03 09:30:00.123456+00"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`), "2026-11-03T09:30:00.123Z"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{4,9}Z`), "2026-11-03T09:30:00.123456Z"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}\+00:00`),
			"2026-11-03T09:30:00.123456+00:00"},
		{regexp.MustCompile(`(id=|"policy_id":")\d{14}`), "${1}20261103093000"},
		{regexp.MustCompile(`\b[a-hjkmnp-z][a-hjkmnp-z2-9]{9}(\._domainkey|","algorithm")`), "k7m2q9xw4t${1}"},
		{regexp.MustCompile(`k7m2q9xw4t(","algorithm":"ed|\._domainkey\.[a-z.]+","value":"v=DKIM1; k=ed)`), "p3v8zd6hcn${1}"},
		{regexp.MustCompile(`[a-z2-7]{16}@inbound\.`), "k3v7q2mxd5trw4sa@inbound."},
		{regexp.MustCompile(`"(day|start_date|end_date)":"\d{4}-\d\d-\d\d"`), `"${1}":"2026-11-03"`},
		{regexp.MustCompile(`"period":"\d{4}-\d\d-\d\d"`), `"period":"2026-11-03"`},
		{regexp.MustCompile(`(at|for|since|until) \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`), "${1} 2026-11-03 09:30:00 UTC"},
		{regexp.MustCompile(`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d \+0000`),
			"Tue, 03 Nov 2026 09:30:00 +0000"},
		{regexp.MustCompile(`\d+(\.\d+)? (ms|s) after`), "13 ms after"},
		{regexp.MustCompile(`scenario/1`), "resend-node:6.38.0"},
		{regexp.MustCompile(`"filename":"(people\.csv|blob)"`), `"filename":"contacts.csv"`}, // as curl calls it
		{regexp.MustCompile(`,(\d{3}),\d+,(curl/|resend-)`), ",$1,3,$2"},
		{regexp.MustCompile(`"MD[A-Za-z0-9]{46}"`), `"MDE5YTRjMWUtMTNkMS03ZWQ3LTg3NDAtZGI2Y2FkNjZiMThh"`},
		{regexp.MustCompile(`("(?:total|duration|valid_for)_ms":)[\d.]+`), "${1}12.5"},
	}
)

// record returns a response with the IDs and times that the reference shows.
func (x *exampleRun) record(key, text string) string {
	text = strings.NewReplacer(x.shown...).Replace(text)
	n := 0
	text = anyID.ReplaceAllStringFunc(text, func(id string) string {
		if strings.HasPrefix(id, "019a4c1e-") {
			return id
		}
		if x.seen[id] == "" {
			n++
			x.seen[id] = exampleID(fmt.Sprint(key, n))
		}
		return x.seen[id]
	})
	for _, v := range variables {
		text = v.is.ReplaceAllString(text, v.to)
	}
	return text
}

// newExampleRun returns a run of all examples on a node of its own.
func newExampleRun(t *testing.T) *exampleRun {
	t.Helper()
	r, err := loadReference()
	if err != nil {
		t.Fatal(err)
	}
	f := newFixtureWith(t, dbtest.SQLite(t), Options{PublicURL: testnode.PublicURL},
		testnode.Options{Guard: netguard.Options{AllowLoopback: true}})
	f.remember(t)
	f.verified("acme.example")
	x := &exampleRun{fixture: f, t: t, ids: map[string]string{}, seen: map[string]string{},
		operations: map[string]*wire.ReferenceOperation{}, group: map[string]string{}}
	all := groups(t)
	for g := range all {
		for i := range all[g].Operations {
			o := &all[g].Operations[i]
			x.operations[o.Method+" "+o.Path], x.group[o.Method+" "+o.Path] = o, all[g].ID
		}
	}
	var last []string
	for _, id := range exampleGroups {
		var deletions []string
		for _, key := range r.order {
			switch {
			case x.group[key] != id:
			case strings.HasPrefix(key, "DELETE "):
				deletions = append(deletions, key)
			default:
				x.order = append(x.order, key)
			}
		}
		last = append(deletions, last...)
	}
	x.order = append(x.order, last...)
	for _, key := range r.order {
		if !slices.Contains(x.order, key) {
			t.Errorf("the example of %s was not sent: add its group to exampleGroups", key)
		}
	}
	return x
}

// each calls run for each operation, after the preparations of its example. The result of run is the node's response.
func (x *exampleRun) each(run func(key string, o *wire.ReferenceOperation) *httptest.ResponseRecorder) {
	x.t.Helper()
	for _, key := range x.order {
		if prepare := preparations[key]; prepare != nil {
			prepare(x)
		}
		o := x.operations[key]
		w := run(key, o)
		if w.Code != o.Status {
			x.t.Errorf("%s: %d %s\n%s", key, w.Code, w.Body, x.real(o.Examples[0].Code))
		}
		x.response(key, w) // the IDs in later responses depend on those in earlier ones
		if name := madeIDs[key]; name != "" && x.ids[name] == "" {
			x.t.Fatalf("%s has returned no ID", key)
		}
	}
}

// curl sends an operation's example for curl.
func (x *exampleRun) curl(key string, o *wire.ReferenceOperation) *httptest.ResponseRecorder {
	x.t.Helper()
	w := x.send(x.real(o.Examples[0].Code), x.keys["full"])
	x.learn(key, w)
	return w
}

// learn remembers the ID of the object that the response of an operation has.
func (x *exampleRun) learn(key string, w *httptest.ResponseRecorder) {
	if id := at(w.Body.Bytes(), "id"); madeIDs[key] != "" && id != "" {
		x.set(madeIDs[key], id)
	}
	if id := at(w.Body.Bytes(), "domain_id"); key == "POST /domains/claim" && id != "" {
		x.set("claimed_domain_id", id)
	}
}

// response returns the response of an operation with the IDs and times that the reference shows.
func (x *exampleRun) response(key string, w *httptest.ResponseRecorder) (text string, isJSON bool) {
	text = x.record(key, strings.ReplaceAll(w.Body.String(), "\r\n", "\n"))
	return text, strings.HasPrefix(w.Header().Get("Content-Type"), wire.MediaJSON)
}

// TestReferenceExamples sends each example of the API reference, as the curl command that the reference shows, to a
// node. Each must succeed, and its response is the one that the reference shows. Run the test with -update to record
// the responses.
func TestReferenceExamples(t *testing.T) {
	t.Parallel()
	x := newExampleRun(t)
	recorded := map[string]map[string]jsontext.Value{}
	x.each(func(key string, o *wire.ReferenceOperation) *httptest.ResponseRecorder {
		w := x.curl(key, o)
		if w.Code != o.Status {
			return w
		}
		text, isJSON := x.response(key, w)
		v := jsontext.Value(text)
		if !isJSON {
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			v = quoted
		}
		if recorded[x.group[key]] == nil {
			recorded[x.group[key]] = map[string]jsontext.Value{}
		}
		recorded[x.group[key]][key] = v
		return w
	})
	compareResponses(t, recorded)
}

// compareResponses compares the responses of each group with the group's file, or writes the file.
func compareResponses(t *testing.T, recorded map[string]map[string]jsontext.Value) {
	t.Helper()
	for id, responses := range recorded {
		want, err := json.Marshal(responses, json.Deterministic(true), jsontext.WithIndent("  "))
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		file := "reference/responses/" + id + ".json"
		if *update {
			if err := os.WriteFile(file, append(want, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(string(have), string(want)+"\n"); diff != "" {
			t.Errorf("%s, - and what was answered, +; run with -update to accept it:\n%s", file, diff)
		}
	}
}

const heldEmail = `{"from":"Acme <hello@acme.example>","to":["ada@example.net"],"subject":"Your order",` +
	`"html":"<p>Thank you for your order.</p>","scheduled_at":"in 2 hours"}`

// broadcast creates a broadcast with further fields.
func (x *exampleRun) broadcast(further string) {
	x.find("broadcast_id", "POST /broadcasts\n\n"+x.real(fillIDs(`{"name":"Spring news","segment_id":"{segment_id}",`+
		`"from":"Acme <news@acme.example>","subject":"News","html":"<p>Spring is here.</p>"`+further+"}")), "id")
}

// preparations makes what an example needs besides the examples before it.
var preparations = map[string]func(x *exampleRun){
	"POST /domains/claim": func(x *exampleRun) {
		x.do(x.t, "POST /domains\nAuthorization: other\n\n"+`{"name":"shop.example"}`)
	},
	"POST /domains/{domain_id}/keys/rotate": func(x *exampleRun) {
		x.set("rotated_domain_id", x.verified("news.acme.example").ID)
	},
	"GET /domains/{domain_id}/mta-sts": func(x *exampleRun) {
		on := true
		d := x.Verified(x.Acme.TeamID, domains.NewDomain{Name: "inbox.acme.example",
			Capabilities: domains.Capabilities{Receiving: &on}})
		x.set("receiving_domain_id", d.ID)
	},
	"PATCH /emails/{email_id}": func(x *exampleRun) { x.find("email_id", "POST /emails\n\n"+heldEmail, "id") },
	"GET /emails/{email_id}": func(x *exampleRun) {
		id := x.ids["email_id"]
		x.Happen(events.Event{TeamID: x.Acme.TeamID, EmailID: id, Type: events.EmailSent},
			events.Event{TeamID: x.Acme.TeamID, EmailID: id, Type: events.EmailDelivered, Recipient: "ada@example.net",
				Attempt: &events.Attempt{Destination: "example.net", Recipients: []string{"ada@example.net"},
					Host: "mx.example.net [192.0.2.25]", TLS: "TLS 1.3, TLS_AES_128_GCM_SHA256, verified",
					Outcome: "delivered", Reply: "250 2.0.0 Ok: queued as 4711",
					Conversation: "S: 220 mx.example.net ESMTP\nC: EHLO out.acme.example\nS: 250 mx.example.net\n" +
						"C: MAIL FROM:<bounce@send.acme.example>\nS: 250 2.1.0 Ok\nC: RCPT TO:<ada@example.net>\n" +
						"S: 250 2.1.5 Ok\nC: DATA\nS: 354 End data with <CR><LF>.<CR><LF>\nS: 250 2.0.0 Ok: queued as 4711\n",
					// With a conversation that ends after the event, the explanation has no interval for the recording. A shorter
					// one would have such an interval on a busy machine only.
					StartedAt: time.Now(), Duration: time.Minute}})
	},
	"GET /emails/{email_id}/attachments": func(x *exampleRun) {
		delivered := x.ids["email_id"]
		x.find("email_id", "POST /emails\n\n"+strings.TrimSuffix(heldEmail, "}")+
			`,"attachments":[{"filename":"invoice.txt","content":"SW52b2ljZSA0NzEx"}]}`, "id")
		x.find("attachment_id", "GET /emails/"+x.ids["email_id"]+"/attachments", "data.0.id")
		x.ids["delivered"] = delivered
	},
	"GET /emails/{email_id}/events": func(x *exampleRun) { x.ids["email_id"] = x.ids["delivered"] },
	"POST /domains/{domain_id}/forwards": func(x *exampleRun) {
		x.do(x.t, "PATCH /domains/"+x.ids["domain_id"]+"\n\n"+`{"capabilities":{"receiving":"enabled"}}`)
	},
	"POST /domains/{domain_id}/forwards/{forward_id}/confirmation": func(x *exampleRun) {
		x.find("forward_id", "POST /domains/"+x.ids["domain_id"]+"/forwards\n\n"+
			`{"match":"*","address":"ada@example.net"}`, "id")
	},
	"GET /emails/receiving": func(x *exampleRun) {
		x.do(x.t, "PATCH /domains/"+x.Verified(x.Acme.TeamID, domains.NewDomain{Name: "in.acme.example"}).ID+"\n\n"+
			`{"capabilities":{"receiving":"enabled"}}`)
		x.verified("in.acme.example")
		reply := x.receive(x.t, "RECEIVE ada@example.net support@in.acme.example\n\nFrom: Ada Lovelace <ada@example.net>\n"+
			"To: support@in.acme.example\nSubject: My order\nMessage-ID: <4711@example.net>\n"+
			"Date: Tue, 03 Nov 2026 09:30:00 +0000\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=m\n\n"+
			"--m\nContent-Type: text/plain\n\nWhen does my order arrive?\n--m\nContent-Type: text/plain; name=order.txt\n"+
			"Content-Disposition: attachment; filename=order.txt\n\n4711\n--m--\n")
		if !strings.HasPrefix(reply, "250 ") {
			x.t.Fatal(reply)
		}
		x.find("received_email_id", "GET /emails/receiving", "data.0.id")
		x.find("received_attachment_id", "GET /emails/receiving", "data.0.attachments.0.id")
	},
	"GET /domains/{domain_id}/reports": func(x *exampleRun) {
		x.reported(x.t, x.Acme.TeamID, x.ids["domain_id"])
		x.find("received_report_id", "GET /domains/"+x.ids["domain_id"]+"/reports", "data.1.id")
	},
	"GET /webhooks/{webhook_id}/events": func(x *exampleRun) {
		hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "Thank you.")
		}))
		defer hook.Close()
		x.do(x.t, "PATCH /webhooks/"+x.ids["webhook_id"]+"\n\n"+`{"endpoint":"`+hook.URL+`"}`)
		x.Happen(events.Event{TeamID: x.Acme.TeamID, EmailID: x.ids["delivered"], Type: events.EmailDelivered,
			Recipient: "ada@example.net"})
		x.find("webhook_event_id", "GET /webhooks/"+x.ids["webhook_id"]+"/events", "data.0.id")
		event := "/webhooks/" + x.ids["webhook_id"] + "/events/" + x.ids["webhook_event_id"]
		stop := x.Run(x.Services.Webhooks.Kinds()...)
		testnode.Until(x.t, "the event is delivered", func() bool {
			return strings.Contains(x.do(x.t, "GET "+event).Body.String(), `"status":"success"`)
		})
		stop()
	},
	"GET /automations/{automation_id}/runs": func(x *exampleRun) {
		x.do(x.t, "PATCH /automations/"+x.ids["automation_id"]+"\n\n"+`{"status":"enabled"}`)
		x.do(x.t, "POST /events/send\n\n"+`{"event":"user.created","email":"ada@example.net","payload":{"name":"Ada"}}`)
		x.goOn()
		x.find("run_id", "GET /automations/"+x.ids["automation_id"]+"/runs", "data.0.id")
	},
	"GET /contacts/imports/{import_id}": func(x *exampleRun) { x.imported(x.t, x.ids["import_id"]) },
	"POST /contacts/imports/{import_id}/cancel": func(x *exampleRun) {
		x.set("import_id", x.importing(x.t, "email\nmary@example.net\n", nil))
	},
	"POST /broadcasts": func(x *exampleRun) {
		x.do(x.t, "POST /contacts/ada@example.net/segments/"+x.ids["segment_id"])
		x.do(x.t, "POST /contacts\n\n"+`{"email":"bob@example.net"}`)
		x.do(x.t, "POST /contacts/bob@example.net/segments/"+x.ids["segment_id"])
	},
	"POST /broadcasts/{broadcast_id}/pause": func(x *exampleRun) {
		x.broadcast(`,"send":true,"variants":[{},{"subject":"Spring"}],"ab_test":{"share":50,"metric":"manual"}`)
	},
	"GET /broadcasts/{broadcast_id}/results": func(x *exampleRun) {
		x.broadcast(`,"send":true`)
		x.sendBroadcasts()
		list := x.do(x.t, "GET /broadcasts/"+x.ids["broadcast_id"]+"/recipients?type=waiting").Body.Bytes()
		for _, item := range []string{"data.0.", "data.1."} {
			happened := events.Event{TeamID: x.Acme.TeamID, EmailID: at(list, item+"email_id"),
				Recipient: at(list, item+"email"), BroadcastID: x.ids["broadcast_id"]}
			sent, delivered, clicked := happened, happened, happened
			sent.Type, sent.Recipient = events.EmailSent, ""
			delivered.Type, clicked.Type = events.EmailDelivered, events.EmailClicked
			clicked.Data = &events.Click{Link: "https://acme.example/spring", Timestamp: time.Now()}
			x.Happen(sent, delivered)
			if happened.Recipient == "ada@example.net" {
				x.Happen(clicked)
			}
		}
	},
	"DELETE /broadcasts/{broadcast_id}": func(x *exampleRun) { x.broadcast("") },
	"GET /oauth/grants": func(x *exampleRun) {
		x.grant("emails:send emails:read")
		x.find("oauth_grant_id", "GET /oauth/grants", "data.0.id")
	},
	"POST /approvals/{approval_id}/reject": func(x *exampleRun) {
		x.find("approval_id", "POST /approvals\n\n"+strings.Replace(heldEmail, "order", "question", 1), "id")
	},
	"GET /team/members": func(x *exampleRun) {
		x.set("user_id", x.Member(x.Acme.TeamID, "lin@acme.example", teams.Member).ID)
	},
	"GET /logs": func(x *exampleRun) { x.find("log_id", "GET /logs", "data.0.id") },
}
