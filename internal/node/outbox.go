package node

import (
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

var outboxPage = template.Must(template.New("outbox").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Outbox</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.4rem .8rem;border-bottom:1px solid #ddd}
</style></head>
<body><h1>Outbox</h1><p>These emails were captured and not sent.</p>
<table><tr><th>To</th><th>Return path</th><th>Bytes</th><th></th></tr>
{{range .}}<tr><td>{{range .To}}{{.}} {{end}}</td><td>{{.From}}</td><td>{{.Size}}</td>
<td><a href="/dev/outbox/{{.ID}}">message</a></td></tr>{{else}}<tr><td colspan="4">Nothing yet.</td></tr>{{end}}
</table></body></html>
`))

// ServeOutbox adds the development pages that show captured emails to the HTTP handler. Browsers and programs on this
// machine can open the development pages. Clients on other machines need the development key, because the pages show
// the emails of all teams. If the key is empty, other machines cannot open the pages.
func (n *Node) ServeOutbox(key string) {
	n.outboxKey = key
	n.mux.HandleFunc("GET /dev/outbox", func(w http.ResponseWriter, r *http.Request) {
		all, err := n.Delivery.Outbox(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if strings.Contains(r.Header.Get("Accept"), "application/json") {
			w.Header().Set("Content-Type", "application/json")
			err = json.NewEncoder(w).Encode(all)
		} else {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			err = outboxPage.Execute(w, all)
		}
		if err != nil {
			n.Log.Warn("could not show the outbox", "error", err)
		}
	})
	n.mux.HandleFunc("GET /dev/waiting", func(w http.ResponseWriter, r *http.Request) {
		waiting, err := jobs.CountWaiting(r.Context(), n.DB.Reader, emails.DeliveryKind)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, waiting)
	})
	n.mux.HandleFunc("GET /dev/outbox/{id}", func(w http.ResponseWriter, r *http.Request) {
		message, err := n.Delivery.OpenCaptured(r.Context(), r.PathValue("id"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer message.Close()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if _, err := io.Copy(w, message); err != nil {
			n.Log.Warn("could not show a captured message", "error", err)
		}
	})
}
