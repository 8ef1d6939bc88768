package node

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/front/api"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/front/links"
	"github.com/postrider/postrider/internal/front/mcp"
	"github.com/postrider/postrider/internal/front/oauth"
	"github.com/postrider/postrider/internal/front/signin"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// newProtocols builds the HTTP servers for the API, MCP, OAuth, web pages and links, and the handler that selects a
// server by the request's path.
func (n *Node) newProtocols() error {
	n.mux = http.NewServeMux()
	public := links.New(n.Emails, n.Receiving, n.Log)
	public.Register(n.mux)
	public.RegisterUnsubscribe(n.mux, n.Contacts, n.Teams)
	public.RegisterForwarding(n.mux, n.Forwards)
	n.mux.Handle("GET /tls/ask", links.TLSAsk(n.mayHaveCertificate, n.Log, trackingHosts(n.Config)...))
	if err := n.newPages(); err != nil {
		return err
	}
	n.api = n.newAPI()
	n.newDoctor()
	rest := n.api
	tools := mcp.New(mcp.Options{API: rest, Keys: n.Keys, Log: n.Log, Version: n.o.Version, Now: n.DB.Now,
		Authenticate: rest.Authenticate, Scope: rest.Scope, DryRun: api.WithDryRun, Usage: n.Grants.Usage,
		EarlierResult: n.Emails.EarlierResult})
	n.oauth = oauth.New(oauth.Options{PublicURL: n.Config.PublicURL, Address: addressOf(n.Config.PublicURL), MCP: mcp.Path,
		MCPScopes: strings.Fields(tools.Scopes().String()), Grants: n.Grants, Members: n.Members, Teams: n.Teams,
		Site: n.site, Log: n.Log, KeysConsent: n.o.KeysConsent})
	n.handler = behindProxies(n.Config.HTTPProxyFrom, n.choose(rest, tools, n.oauth))
	return nil
}

var errMetricsElsewhere = fault.NotFoundf("This address serves no metrics. The setting metrics_listen names the " +
	"address that does.")

// choose returns the handler for all HTTP requests. The JSON API gets every path that no other server claims,
// except that browsers get an error page for paths that do not belong to the API.
func (n *Node) choose(rest *api.API, tools *mcp.Server, auth *oauth.Server) http.HandlerFunc {
	tracked, policies := links.NewTracked(n.Emails, n.Tracking), links.NewPolicies(n.ServedPolicies, n.Log)
	own := append(trackingHosts(n.Config), n.Config.TrackingHost)
	development, pages := n.forDeveloper(n.mux), byName(n.Config.PublicURL, n.mux)
	unknown := n.newUnknownPage()
	return func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		switch {
		case tracked.Serves(path):
			tracked.ServeHTTP(w, r)
		case policies.Serves(r) && !slices.Contains(own, strings.ToLower(bareHost(r.Host))):
			policies.ServeHTTP(w, r)
		// Pages at an alias load assets from there.
		case isPublicLink(path), isDocumentation(r), web.IsAsset(path), isDoctor(path):
			n.mux.ServeHTTP(w, r)
		case auth.Serves(path):
			auth.ServeHTTP(w, r)
		case tools.Serves(path):
			tools.ServeHTTP(w, r)
		case signin.Serves(path), web.AppPath(path), path == developerPath, n.servesStart(r):
			pages.ServeHTTP(w, r)
		case path == "/metrics":
			wire.WriteError(w, errMetricsElsewhere)
		case strings.HasPrefix(path, "/dev/"):
			development.ServeHTTP(w, r)
		case isBrowser(r) && !rest.HasResource(path):
			unknown.ServeHTTP(w, r)
		default:
			rest.ServeHTTP(w, r)
		}
	}
}

// isPublicLink reports whether package links serves a path. Other paths must not reach the mux, because the mux
// redirects paths that contain double slashes, and clients follow a redirected POST with a GET.
func isPublicLink(path string) bool {
	for _, prefix := range []string{"/download/", "/shared", "/unsubscribe/", "/forwarding/", "/tls/ask"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

func (n *Node) newAPI() *api.API {
	c := n.Config
	return api.New(api.Options{Services: api.Services{Teams: n.Teams, Domains: n.Domains, Reports: n.Reports, Suppressions: n.Suppressions,
		Emails: n.Emails, Explanations: n.Explanations, Templates: n.Templates, Quotas: n.Quotas, Contacts: n.Contacts,
		Broadcasts:  n.Broadcasts,
		Automations: n.Automations, Events: n.CustomEvents, Logs: n.RequestLog, Metrics: n.Metrics, Live: n.EventStream,
		Webhooks: n.Webhooks, Receiving: n.Receiving, Forwards: n.Forwards, Imports: n.Imports, Exports: n.Exports,
		Privacy:        n.Privacy,
		ServedPolicies: n.ServedPolicies,
		Members:        n.Members, Audit: n.Audit, Grants: n.Grants, Approvals: n.Approvals},
		Log: n.Log, Version: n.o.Version, PublicURL: c.PublicURL, Address: addressOf(c.PublicURL), RateLimit: c.RateLimit,
		Limits: n.limits, RequireUserAgent: c.RequireUserAgent, NoAliases: !c.LegacyAliases, Ready: n.Ready,
		Observe: n.observe, Served: n.observeRequest, DNS: n.checkedDNS()})
}

// checkedDNS returns the resolver for checks of emails, or nil if the node trusts all domains and looks nothing up.
func (n *Node) checkedDNS() resolve.Resolver {
	if n.Config.TrustDomains {
		return nil
	}
	return n.dns
}

// observe adds an API request to the request log.
func (n *Node) observe(ctx context.Context, r api.RequestRecord) {
	if r.Logged() {
		n.RequestLog.Add(ctx, api.LoggedRequest(r))
	}
}

// Handler returns the handler for all HTTP requests to the node.
func (n *Node) Handler() http.Handler { return n.handler }
