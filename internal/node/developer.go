package node

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/dashboard"
	"github.com/postrider/postrider/internal/front/signin"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/waiting"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/preflight"
)

const (
	// developerAddress is the email address of the development user. The address does not receive mail.
	developerAddress = "developer@postrider.localhost"

	// developerPath is the path of the link that signs a browser in as the development user.
	developerPath = "/dev/sign-in"
)

var errDeveloperLink = fault.New(fault.BadCredential, "", "This link does not work: it was used, or it belongs to an "+
	"earlier start of “postrider dev”. Open the newest sign-in link in the output of that command, or restart the "+
	"command to get a new one.")

// developer signs browsers in as the development user. A browser must open a link with a token. Each token works once,
// and only until the node stops. The address and the headers of a request do not matter, because a proxy on this
// machine can pass on requests from anywhere.
type developer struct {
	user users.User
	show func(path string) // shows the next link to the operator

	mu    sync.Mutex
	token string // the current link's token
}

// newPages builds the HTML pages, such as those for sign-in and settings, and registers them with the mux.
func (n *Node) newPages() error {
	n.site = web.New(web.Config{PublicURL: n.Config.PublicURL, Limits: n.limits, Counts: n.countWaiting,
		Development: func() bool { return n.developer != nil }, SignInHint: func() string {
			if n.developer == nil {
				return ""
			}
			return "To sign in as the development user, open the newest sign-in link in the output of the command " +
				"“postrider dev”. Then open this page again."
		}}, n.Users, n.Members, n.Log)
	pages, err := signin.New(signin.Deps{Site: n.site, DB: n.DB, Users: n.Users, Members: n.Members, Teams: n.Teams,
		Audit: n.Audit, Grants: n.Grants, Approvals: n.Approvals, Templates: n.Templates, Automations: n.Automations.OfApps})
	if err != nil {
		return err
	}
	docs := n.newDocumentation()
	board, err := dashboard.New(dashboard.Deps{Site: n.site, Members: n.Members, Teams: n.Teams, Emails: n.Emails,
		Domains: n.Domains, Reports: n.Reports, ServedPolicies: n.ServedPolicies, Live: n.EventStream,
		Explain: n.Explanations.Explain, Now: n.DB.Now,
		PublicURL: n.Config.PublicURL, Submission: n.submissionPorts, MailHosts: n.mailHosts, Webhooks: n.Webhooks,
		Suppressions: n.Suppressions, Forwards: n.Forwards, Logs: n.RequestLog,
		Exports: n.Exports, ExportRuns: n.ExportRuns, Audit: n.Audit,
		ScopeOf:       func(method, path string) (teams.Scope, bool) { return n.api.ScopeOf(method, path) },
		AcquireExport: func(teamID string) (func(), error) { return n.api.AcquireExport(teamID) },
		ReserveMemory: func(ctx context.Context, teamID string, bytes int64) (func(), error) {
			return n.api.ReserveMemory(ctx, teamID, bytes)
		},
		SavedFilters: n.SavedFilters,
		Checker:      preflight.Checker{Domains: n.Domains, DNS: n.checkedDNS()},
		Metrics:      n.Metrics, Quotas: n.Quotas, Contacts: n.Contacts, Broadcasts: n.Broadcasts,
		Receiving: n.Receiving, Keeps: n.Keeps, RateLimit: func() int { return n.settings().RateLimit },
		Docs: func() []dashboard.DocsSection { return n.docsSections(docs) }})
	if err != nil {
		return err
	}
	web.RegisterAssets(n.mux)
	pages.Register(n.mux)
	board.Register(n.mux)
	board.RegisterComponents(n.mux)
	docs.Register(n.mux)
	n.site.Handle(n.mux, "GET /{$}", n.showStart)
	n.site.Handle(n.mux, "GET "+developerPath, n.signDeveloperIn)
	return nil
}

// countWaiting returns the numbers that the navigation of the dashboard shows.
func (n *Node) countWaiting(ctx context.Context, _ *web.Visitor, teamID string) (map[string]int64, error) {
	c, err := waiting.Of(ctx, n.DB, teamID)
	return map[string]int64{"/app/approvals": c.Approvals, "/app/webhooks": c.Webhooks}, err
}

// EnsureDeveloper creates the development user if it does not exist, and adds it as an owner of the team. The user gets
// the notices of a team without an address, so that they reach the outbox.
// EnsureDeveloper returns the path of a link that signs a browser in as the development user. The link works once.
// After a browser has used the link, the node calls show with the path of the next link.
func (n *Node) EnsureDeveloper(ctx context.Context, teamID string, show func(path string)) (path string, err error) {
	u, err := n.Users.ByEmail(ctx, developerAddress)
	if fault.KindOf(err) == fault.NotFound {
		u, err = n.Users.Create(ctx, users.NewUser{Email: developerAddress, Name: "Developer"})
	}
	if err != nil {
		return "", fmt.Errorf("create the development user: %w", err)
	}
	if _, err = n.Members.Actor(ctx, u.ID, teamID); fault.KindOf(err) == fault.NotFound {
		err = n.DB.Update(ctx, func(tx *db.Tx) error { return n.Members.AddIn(ctx, tx, teamID, u.ID, teams.Owner) })
	}
	if err != nil {
		return "", fmt.Errorf("make the development user an owner of the team: %w", err)
	}
	if team, err := n.Teams.Get(ctx, teamID); err != nil {
		return "", err
	} else if team.Email == "" {
		if err := n.Teams.SetEmail(ctx, teamID, developerAddress); err != nil {
			return "", fmt.Errorf("send notices to the development user: %w", err)
		}
	}
	n.developer = &developer{user: u, show: show, token: rand.Text()}
	return pathOf(n.developer.token), nil
}

func pathOf(token string) string { return developerPath + "?token=" + token }

// use reports whether the token is the current link's token. If it is, use replaces the token and shows the next link.
func (d *developer) use(token string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(token), []byte(d.token)) != 1 {
		return false
	}
	d.token = rand.Text()
	d.show(pathOf(d.token))
	return true
}

// servesStart reports whether a request is for the start page. Programs get the API's response for the same path.
func (n *Node) servesStart(r *http.Request) bool {
	return r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) && isBrowser(r)
}

// isBrowser reports whether a page is expected in response to a request. A program that sends a key is not a
// browser, whatever it accepts.
func isBrowser(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html") && r.Header.Get("Authorization") == ""
}

// showStart redirects a signed-in user to the dashboard, and other visitors to the page that explains how to sign in.
// If no user exists, it redirects to the page that explains how to create the first one.
func (n *Node) showStart(w http.ResponseWriter, r *http.Request) error {
	_, ok, err := n.site.Visitor(r)
	if err != nil {
		return err
	}
	if ok {
		return web.Redirect(w, r, "/app/emails")
	}
	any, err := n.Users.Any(r.Context())
	if err != nil {
		return err
	}
	if !any {
		return web.Redirect(w, r, "/setup")
	}
	return web.Redirect(w, r, "/sign-in")
}

// newUnknownPage returns the handler for addresses that no page and no operation of the API has. Browsers get an error
// page, so that a person who mistyped an address finds the way back. The handler has a mux of its own, because a
// pattern for all paths in the main mux would replace its answers to wrong methods.
func (n *Node) newUnknownPage() http.Handler {
	mux := http.NewServeMux()
	n.site.Handle(mux, "/", func(http.ResponseWriter, *http.Request) error { return errNoPage })
	return mux
}

var errNoPage = fault.NotFoundf("There is no page at this address.")

// signDeveloperIn starts a session as the development user if the link's token is valid. HEAD requests, which programs
// send to look at a link, do not use the token.
func (n *Node) signDeveloperIn(w http.ResponseWriter, r *http.Request) error {
	if n.developer == nil {
		return errNoPage
	}
	if r.Method != http.MethodGet || !n.developer.use(r.URL.Query().Get("token")) {
		_, ok, err := n.site.Visitor(r)
		if err == nil && !ok {
			err = errDeveloperLink
		}
		if err != nil {
			return err
		}
		return web.Redirect(w, r, "/app/emails") // for example, for a browser that reopens its tabs
	}
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	var session string
	err = n.DB.Update(r.Context(), func(tx *db.Tx) (err error) {
		session, err = n.Users.StartIn(r.Context(), tx, n.developer.user, "development",
			users.Client{Address: from, UserAgent: r.UserAgent()})
		return err
	})
	if err != nil {
		return err
	}
	n.site.SignIn(w, r, session)
	return web.Redirect(w, r, "/app/emails")
}
