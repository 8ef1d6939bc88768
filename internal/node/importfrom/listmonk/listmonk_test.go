package listmonk_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/fixture"
	"github.com/postrider/postrider/internal/node/importfrom/listmonk"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

const docs = "https://listmonk.app/docs/apis/"

var answers = map[string]fixture.Answer{
	"/api/lists?order=asc&order_by=created_at&page=1&per_page=500": {Page: docs + "lists/#get-apilists",
		Body: `{"data":{"results":[{"id":1,"uuid":"ce13e971","name":"Default list","type":"public","optin":"double","tags":[]},
		{"id":2,"uuid":"f20a2308","name":"Offers","type":"private","optin":"single","tags":[]}],
		"total":2,"per_page":500,"page":1}}`},
	"/api/templates": {Page: docs + "templates/#get-apitemplates", Body: `{"data":[
		{"id":1,"name":"Default template","body":"{{ template \"content\" . }}","type":"campaign","is_default":true},
		{"id":2,"name":"Welcome","type":"tx","subject":"Hi {{ .Subscriber.FirstName }}","body":
		"<p>{{.Subscriber.FirstName}} {{ .Tx.Data.order.id }} <a href=\"{{ TrackLink \"https://a.example\" . }}\">x</a>` +
		`{{ TrackView }} https://b.example@TrackLink {{ UnsubscribeURL }}</p>","is_default":false},
		{"id":3,"name":"Loop","type":"tx","subject":"x","body":"{{ range .Tx.Data.items }}x{{ end }}"}]}`},
	"/api/bounces?order=asc&order_by=created_at&page=1&per_page=500": {Page: docs + "bounces/#get-apibounces",
		Body: `{"data":{"results":[{"id":839971,"type":"hard","source":"demo","email":"gilles.deleuze@example.app"},
		{"id":839972,"type":"soft","email":"full@example.app"},{"id":839973,"type":"complaint","email":"no@example.app"}],
		"total":3,"per_page":500,"page":1}}`},
	"/api/subscribers?order=asc&order_by=id&page=1&per_page=500": {Page: docs + "subscribers/#get-apisubscribers",
		Body: `{"data":{"results":[{"id":1,"email":"john@example.com","name":"John Doe","attribs":{"city":"Bengaluru",
		"good":true,"projects":3},"status":"enabled","lists":[{"subscription_status":"unconfirmed","id":1},
		{"subscription_status":"unconfirmed","id":2}]},{"id":2,"email":"quadri@example.com","name":"quadri","attribs":{},
		"status":"enabled","lists":[{"subscription_status":"confirmed","id":1},{"subscription_status":"unsubscribed","id":2}]}],
		"query":"","total":501,"per_page":500,"page":1}}`},
	"/api/subscribers?order=asc&order_by=id&page=2&per_page=500": {Page: docs + "subscribers/#get-apisubscribers",
		Body: `{"data":{"results":[{"id":3,"email":"sugar@example.com","name":"sugar","attribs":{},"status":"blocklisted",
		"lists":[]}],"query":"","total":501,"per_page":500,"page":2}}`},
}

func TestSource(t *testing.T) {
	t.Parallel()
	header, err := listmonk.Header("api_user:token")
	if err != nil {
		t.Fatal(err)
	}
	url := fixture.API{Name: "listmonk", Header: header, Answers: answers}.Serve(t)
	got := fixture.Read(t, listmonk.New(fixture.Client(t, url, "listmonk", header)))
	in := func(topic string) importfrom.Choice {
		return importfrom.Choice{TopicID: topic, Subscription: contacts.OptIn}
	}
	want := map[importfrom.Kind]importfrom.Page{
		importfrom.Segments: {Segments: []importfrom.Segment{{ID: "1", Name: "Default list"}, {ID: "2", Name: "Offers"}}},
		importfrom.Topics: {Topics: []importfrom.Topic{{ID: "1", Name: "Default list", Default: contacts.OptOut, Public: true},
			{ID: "2", Name: "Offers", Default: contacts.OptOut}}},
		importfrom.Templates: {Templates: []importfrom.Template{{ID: "2", Name: "Welcome", Subject: "Hi {{{first_name}}}",
			HTML: `<p>{{{escape first_name}}} {{{escape order_id}}} <a href="https://a.example">x</a> https://b.example ` +
				`{{{POSTRIDER_UNSUBSCRIBE_URL}}}</p>`,
			Note: "its placeholders were translated: read it, and publish it; order.id is order_id",
			Variables: []importfrom.Variable{{Key: "first_name", Type: scalar.String, Fallback: scalar.OfText("")},
				{Key: "order_id", Type: scalar.String, Fallback: scalar.OfText("")}}}},
			Refused: []importfrom.Refused{{Name: "Default template",
				Reason: "it is a layout for campaigns, and broadcasts have no layouts here: copy its HTML into the broadcast"},
				{Name: "Loop", Reason: "it uses {{ range .Tx.Data.items }}, which templates do not have here"}}},
		importfrom.Suppressions: {Suppressions: []importfrom.Suppression{
			{Address: "gilles.deleuze@example.app", Origin: suppressions.Bounce},
			{Address: "no@example.app", Origin: suppressions.Complaint}}},
		importfrom.Contacts: {Contacts: []importfrom.Contact{
			{Address: "john@example.com", FirstName: "John", LastName: "Doe", Segments: []string{"2"},
				Values: map[string]scalar.Value{"city": scalar.OfText("Bengaluru"), "good": scalar.OfText("true"),
					"projects": scalar.OfNumber(3)}, Topics: []importfrom.Choice{in("2")}},
			{Address: "quadri@example.com", FirstName: "quadri", Segments: []string{"1"},
				Topics: []importfrom.Choice{in("1"), {TopicID: "2", Subscription: contacts.OptOut}}},
			{Address: "sugar@example.com", FirstName: "sugar", Unsubscribed: true}},
			Suppressions: []importfrom.Suppression{{Address: "sugar@example.com", Origin: suppressions.Manual}}},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, key := range []string{"", "token", ":token", "user:"} {
		if _, err := listmonk.Header(key); err == nil {
			t.Errorf("the key %q is accepted", key)
		}
	}
}

// A server that limits its pages to fewer subscribers than asked for is read to the end.
func TestSmallPages(t *testing.T) {
	t.Parallel()
	answers := map[string]fixture.Answer{"/api/lists?order=asc&order_by=created_at&page=1&per_page=500": {
		Page: docs + "lists/#get-apilists", Body: `{"data":{"results":[],"total":0,"per_page":2,"page":1}}`}}
	for n, body := range []string{`[{"email":"a@example.net"},{"email":"b@example.net"}],"total":5,"per_page":2`,
		`[{"email":"c@example.net"},{"email":"d@example.net"}],"total":5`,
		`[{"email":"e@example.net","status":"disabled"}],"total":5,"per_page":2`} {
		answers[fmt.Sprintf("/api/subscribers?order=asc&order_by=id&page=%d&per_page=500", n+1)] = fixture.Answer{
			Page: docs + "subscribers/#get-apisubscribers", Body: `{"data":{"results":` + body + `}}`}
	}
	url := fixture.API{Name: "listmonk", Answers: answers}.Serve(t)
	s := listmonk.New(fixture.Client(t, url, "listmonk", nil))
	var got []string
	for cursor := ""; ; {
		p, err := s.Page(t.Context(), importfrom.Contacts, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Contacts {
			got = append(got, c.Address)
		}
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	if diff := gocmp.Diff([]string{"a@example.net", "b@example.net", "c@example.net", "d@example.net", "e@example.net"},
		got); diff != "" {
		t.Error(diff)
	}
}

// Subscribers that are added at listmonk during the import are read. The server sorts like listmonk, in descending
// order unless the order is asc.
func TestAddedSubscribers(t *testing.T) {
	t.Parallel()
	const perPage = 2
	total := 4
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		type item struct {
			ID    int    `json:"id"`
			Email string `json:"email"`
		}
		var all []item
		for i := 1; i <= total && r.URL.Path == "/api/subscribers"; i++ {
			all = append(all, item{i, fmt.Sprintf("p%d@example.net", i)})
		}
		if r.FormValue("order") != "asc" {
			slices.SortFunc(all, func(a, b item) int { return cmp.Compare(b.ID, a.ID) })
		}
		number, _ := strconv.Atoi(r.FormValue("page"))
		part := all[min(len(all), (number-1)*perPage):min(len(all), number*perPage)]
		json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"results": part, "total": len(all),
			"per_page": perPage}})
	}))
	t.Cleanup(api.Close)
	s := listmonk.New(fixture.Client(t, api.URL, "listmonk", nil))
	var got []string
	for cursor := ""; ; total = 5 {
		p, err := s.Page(t.Context(), importfrom.Contacts, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Contacts {
			got = append(got, c.Address)
		}
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	want := []string{"p1@example.net", "p2@example.net", "p3@example.net", "p4@example.net", "p5@example.net"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
