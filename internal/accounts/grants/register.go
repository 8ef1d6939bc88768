package grants

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	clientNameMax  = 200 // maximum length in characters (API reference section 24.2)
	redirectsMax   = 10
	registerTime   = time.Hour
	registeredHour = 20  // maximum number of registrations from one address within registerTime
	registeredAll  = 500 // maximum number of unused clients registered from all addresses within registerTime
)

// NewClient contains the metadata of a client to register (RFC 7591 section 2).
type NewClient struct {
	Name          string
	RedirectURIs  []string
	GrantTypes    []string // nil means all supported types, here and in ResponseTypes
	ResponseTypes []string
	AuthMethod    string
	Scope         string
	URI, LogoURI  string
	Address       string // IP address of the client that sends the request
}

// Register registers a client. Each address may register 20 clients an hour, and networks have higher limits
// (networkLimits). All addresses together may register 500 clients an hour that have not been used yet. All
// registration limits apply across all nodes. If a limit is reached, Register returns a TooManyRequests error. The
// audit log records a client only at its first consent, so that unauthenticated clients cannot flood the log.
func (s *Service) Register(ctx context.Context, n NewClient) (Client, error) {
	c, err := n.check()
	if err != nil {
		return Client{}, err
	}
	c.ID, c.CreatedAt, c.Registered = id.New(), db.Now(), true
	address := Network(n.Address)
	// Check the limit before the transaction begins, so that a flood of registrations does not compete with other
	// transactions for the write lock.
	if err := s.mayRegister(ctx, s.DB.Reader, address, s.DB.Now()); err != nil {
		return Client{}, err
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		// Without the lock, concurrent requests would not see each other's clients and could exceed the limit.
		if err := tx.Serialize(ctx, "oauth clients"); err != nil {
			return err
		}
		if err := s.mayRegister(ctx, tx.Reader, address, tx.Now()); err != nil {
			return err
		}
		insertClient(ctx, tx, &c, address)
		return nil
	})
	return c, err
}

// networkLimits are the maximum numbers of registrations within registerTime from networks with a prefix of the given
// length. Even the largest network may use only part of registeredAll. IPv6 subscribers often get a /56 or a /48, and
// providers a /32.
var networkLimits = map[bool][]struct{ bits, most int }{
	true:  {{24, 60}, {16, 200}, {8, 350}},                        // IPv4
	false: {{64, registeredHour}, {56, 60}, {48, 200}, {32, 350}}, // IPv6
}

// mayRegister returns an error if an hourly registration limit has been reached. The limit of a single address counts
// all clients; the limits of larger networks count only clients that have not been used yet, as registeredAll does.
func (s *Service) mayRegister(ctx context.Context, r db.Reader, address string, now time.Time) error {
	own, unused, err := recentClients(ctx, r, address, now.Add(-registerTime), registeredAll)
	if err != nil {
		return fmt.Errorf("count registrations: %w", err)
	}
	if own >= registeredHour || len(unused) >= registeredAll || overNetworkLimit(address, unused) {
		return refuse(TooManyRequests,
			"Too many clients were registered from this address within an hour. Register once "+
				"and keep the client_id.")
	}
	return nil
}

// overNetworkLimit reports whether a network to which the address belongs has registered as many clients as it may. The
// list others contains an address for each recently registered client.
func overNetworkLimit(address string, others []string) bool {
	own, ok := prefixOf(address)
	if !ok {
		return false // clients without a known address share one limit
	}
	for _, l := range networkLimits[own.Addr().Is4()] {
		network, err := own.Addr().Prefix(l.bits)
		if err != nil {
			continue
		}
		n := 0
		for _, other := range others {
			if p, ok := prefixOf(other); ok && network.Contains(p.Addr()) {
				n++
			}
		}
		if n >= l.most {
			return true
		}
	}
	return false
}

// prefixOf parses a result of [Network].
func prefixOf(network string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(network); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(network)
	return p, err == nil
}

// check validates the fields of a new client and returns the client.
func (n *NewClient) check() (c Client, err error) {
	c.Name = strings.TrimSpace(n.Name)
	switch {
	case c.Name == "":
		return c, refuse(InvalidRequest, "client_name is missing.")
	case utf8.RuneCountInString(c.Name) > clientNameMax || !utf8.ValidString(c.Name) || strings.ContainsFunc(c.Name,
		isInvisible):
		return c, refuse(InvalidMetadata, "client_name must have at most %d characters, and none that cannot be seen.",
			clientNameMax)
	case len(n.RedirectURIs) == 0:
		return c, refuse(InvalidRequest, "redirect_uris is missing.")
	case len(n.RedirectURIs) > redirectsMax:
		return c, refuse(InvalidRedirectURI, "redirect_uris must have at most %d items.", redirectsMax)
	case n.GrantTypes != nil && !slices.Contains(n.GrantTypes, "authorization_code"):
		return c, refuse(InvalidMetadata, "grant_types must contain authorization_code.")
	case n.ResponseTypes != nil && !slices.Contains(n.ResponseTypes, "code"):
		return c, refuse(InvalidMetadata, "response_types must contain code.")
	case n.AuthMethod != "" && n.AuthMethod != "none":
		return c, refuse(InvalidMetadata, "token_endpoint_auth_method must be none: clients here have no secrets.")
	}
	for i, uri := range n.RedirectURIs {
		if problem := checkRedirect(uri); problem != "" {
			return c, refuse(InvalidRedirectURI, "redirect_uris[%d] %s.", i, problem)
		}
	}
	c.RedirectURIs = n.RedirectURIs
	for _, f := range []struct{ name, uri string }{{"client_uri", n.URI}, {"logo_uri", n.LogoURI}} {
		if f.uri != "" && !isPage(f.uri) {
			return c, refuse(InvalidMetadata, "%s must be an https address of at most %d characters.", f.name, uriMax)
		}
	}
	c.URI, c.LogoURI = n.URI, n.LogoURI
	if c.Scopes, err = scopesOf(n.Scope, Scopes{Full: true}); err != nil {
		return Client{}, err
	}
	return c, nil
}

// scopesOf parses a list of scope names. If the list is empty, scopesOf returns the given default scopes.
func scopesOf(text string, otherwise Scopes) (Scopes, error) {
	if strings.TrimSpace(text) == "" {
		return otherwise, nil
	}
	set, ok := ParseScopes(text)
	if !ok {
		return set, refuse(InvalidScope,
			"A scope is unknown or not available to clients. Scopes are separated by spaces; "+
				"the metadata of this server lists them as scopes_supported.")
	}
	return set, nil
}

// isInvisible reports whether a character is invisible or changes the text direction. With invisible characters, one
// client's name could be made to look like another's.
func isInvisible(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError
}

// isPage reports whether a string is a URL that may be shown as a link.
func isPage(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && len(uri) <= uriMax && isURIText(uri) && u.Scheme == "https" && u.Hostname() != "" && u.User == nil
}

// Network returns the network to which the rate limits apply: the address itself for IPv4, or its /64 for IPv6.
func Network(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return "unknown"
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a.String()
	}
	return p.String()
}

// Client returns the client with the given id. If no such client exists, Client returns an InvalidClient error.
func (s *Service) Client(ctx context.Context, clientID string) (Client, error) {
	if !id.Valid(clientID) {
		return Client{}, refuse(InvalidClient, "client_id is the id of no client. Register the client first.")
	}
	return getClient(ctx, s.DB.Reader, strings.ToLower(clientID))
}
