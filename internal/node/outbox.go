package node

import (
	"fmt"
	"net/http"

	"github.com/postrider/postrider/internal/front/outbox"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// ServeOutbox adds the development pages, such as those with the captured emails, to the HTTP handler. Browsers and
// programs on this machine can open the development pages. Clients on other machines need the development key, because
// the pages show the emails of all teams. If the key is empty, other machines cannot open the pages.
func (n *Node) ServeOutbox(key string) error {
	n.outboxKey = key
	relay, _ := n.Config.DefaultRelay()
	n.mux.HandleFunc("GET /dev/waiting", func(w http.ResponseWriter, r *http.Request) {
		waiting, err := jobs.CountWaiting(r.Context(), n.DB.Reader, emails.DeliveryKind)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, waiting)
	})
	return outbox.Register(n.mux, outbox.Deps{Outbox: n.Outbox, Check: n.api.CheckEmail, Release: n.Delivery.Release,
		Site: n.site, Relay: relay.Address, Sends: n.Config.Transport == "relay", Log: n.Log})
}
